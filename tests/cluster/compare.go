package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A Difference is one place in which two servers answered a request differently.
type Difference struct {
	Session string
	Number  int    // of the request in its session, from 0
	Request string // method, path and query
	Field   string // JSON pointer into the response
	Want    any    // what the real server said
	Got     any
}

func (d Difference) String() string {
	want, got := short(inFull(d.Want), inFull(d.Got))
	// On one line, since some logs keep the first line of an error only.
	return fmt.Sprintf("%s #%d %s: %s: want %s, got %s", d.Session, d.Number, d.Request, d.Field, want, got)
}

// short cuts two long texts down to their difference.
func short(want, got string) (string, string) {
	const limit, context = 600, 100
	same := 0
	for same < min(len(want), len(got)) && want[same] == got[same] {
		same++
	}
	cut := func(text string) string {
		if len(text) > limit && same > context {
			text = "…" + text[same-context:]
		}
		if len(text) > limit {
			text = text[:limit] + "…"
		}
		return text
	}
	return cut(want), cut(got)
}

// inFull is the JSON of a value, written as it reads best.
func inFull(value any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(text.String())
}

// Compare compares two plays of one session.
func Compare(want, got []Exchange) []Difference {
	var found []Difference
	for number := range max(len(want), len(got)) {
		if number >= len(want) || number >= len(got) {
			found = append(found, Difference{Number: number, Field: "", Want: len(want), Got: len(got)})
			break
		}
		request := want[number].Request
		target := request.Method + " " + request.Path
		if request.Query != "" {
			target += "?" + request.Query
		}
		compareTrees("", plain(want[number].Response), plain(got[number].Response), func(field string, one, other any) {
			found = append(found, Difference{want[number].Session, number, target, field, one, other})
		})
	}
	return found
}

// plain is a response as the corpus has it.
func plain(response Response) any {
	text, err := json.Marshal(response)
	if err != nil {
		return err.Error()
	}
	documents, err := jsonDocuments(text)
	if err != nil {
		return err.Error()
	}
	return documents[0]
}

func compareTrees(field string, want, got any, report func(field string, want, got any)) {
	switch one := want.(type) {
	case map[string]any:
		other, ok := got.(map[string]any)
		if !ok {
			break
		}
		keys := slices.Sorted(maps.Keys(one))
		for key := range other {
			if _, both := one[key]; !both {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			compareTrees(field+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), one[key], other[key], report)
		}
		return
	case []any:
		other, ok := got.([]any)
		if !ok || len(one) != len(other) {
			break
		}
		for i := range one {
			compareTrees(fmt.Sprintf("%s/%d", field, i), one[i], other[i], report)
		}
		return
	}
	if !reflect.DeepEqual(want, got) {
		report(field, want, got)
	}
}

// A KnownDifference says where fairgate is meant to differ from a real server, and why. An empty pattern
// matches everything.
type KnownDifference struct {
	Session string `json:"session,omitempty"` // regular expressions, each of the whole text
	Request string `json:"request,omitempty"` // of method, path and query
	Field   string `json:"field,omitempty"`   // of the JSON pointer
	Want    string `json:"want,omitempty"`    // of what the real server said, as JSON
	Got     string `json:"got,omitempty"`
	// Conditions says that the difference occurs only with a controller that writes conditions; see Target.Conditions.
	Conditions bool   `json:"conditions,omitempty"`
	Reason     string `json:"reason"`
}

// knownDifferencesFile is shared with the test that replays the corpus without a cluster.
const knownDifferencesFile = "../it/hosted/known_differences.json"

// SortOut finds the unknown differences, counts the known ones by their reasons, and says which
// of these did not occur.
func SortOut(found []Difference, known []KnownDifference) (unknown []Difference, reasons map[string]int, unused []KnownDifference, err error) {
	type matcher struct{ session, request, field, want, got *regexp.Regexp }
	matchers := make([]matcher, len(known))
	used := make([]bool, len(known))
	for i, one := range known {
		for _, part := range []struct {
			text string
			into **regexp.Regexp
		}{{one.Session, &matchers[i].session}, {one.Request, &matchers[i].request}, {one.Field, &matchers[i].field}, {one.Want, &matchers[i].want}, {one.Got, &matchers[i].got}} {
			if part.text == "" {
				part.text = ".*"
			}
			if *part.into, err = regexp.Compile("(?s)^(?:" + part.text + ")$"); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	reasons = map[string]int{}
	for _, difference := range found {
		expected := false
		want, got := inFull(difference.Want), inFull(difference.Got)
		for i, m := range matchers {
			if m.session.MatchString(difference.Session) && m.request.MatchString(difference.Request) && m.field.MatchString(difference.Field) &&
				m.want.MatchString(want) && m.got.MatchString(got) {
				if !expected {
					reasons[known[i].Reason]++
				}
				used[i], expected = true, true
			}
		}
		if !expected {
			unknown = append(unknown, difference)
		}
	}
	for i, one := range known {
		if !used[i] {
			unused = append(unused, one)
		}
	}
	return unknown, reasons, unused, nil
}

// KnownDifferences reads their list, and another one unless its name is "".
func KnownDifferences(more string) ([]KnownDifference, error) {
	var known []KnownDifference
	for _, file := range []string{knownDifferencesFile, more} {
		if file == "" {
			continue
		}
		listed, err := readDifferences(file)
		if err != nil {
			return nil, err
		}
		known = append(known, listed...)
	}
	return known, nil
}

func readDifferences(file string) ([]KnownDifference, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var listed []KnownDifference
	if err := json.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return listed, nil
}

// Summary says in one line how many requests were played and how they were answered. Differences are all that
// were found, the unknown ones among them, and those of the unknown ones that are reproducible.
func Summary(played [][]Exchange, found, unknown, lasting []Difference) string {
	requests := 0
	for _, session := range played {
		requests += len(session)
	}
	differ, surprise, last := requestsOf(found), requestsOf(unknown), requestsOf(lasting)
	return fmt.Sprintf("tests/cluster: %d sessions, %d requests: %d answered alike, %d but for a race, %d with known differences, %d with others\n",
		len(played), requests, requests-differ, surprise-last, differ-surprise, last)
}

// requestsOf counts the requests that differences are about.
func requestsOf(differences []Difference) int {
	type key struct {
		session string
		number  int
	}
	seen := map[key]bool{}
	for _, difference := range differences {
		seen[key{difference.Session, difference.Number}] = true
	}
	return len(seen)
}
