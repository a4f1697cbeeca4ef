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
	return fmt.Sprintf("%s #%d %s\n    %s\n      want %s\n      got  %s", d.Session, d.Number, d.Request, d.Field, short(d.Want), short(d.Got))
}

func short(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	if len(text) > 600 {
		return string(text[:600]) + "…"
	}
	return string(text)
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
	// Conditions says that it takes a controller which writes conditions; see Target.Conditions.
	Conditions bool   `json:"conditions,omitempty"`
	Reason     string `json:"reason"`
}

// knownDifferencesFile is shared with the test that replays the corpus without a cluster.
const knownDifferencesFile = "../it/hosted/known_differences.json"

// SortOut parts differences into those that nobody knows of and says which known ones did not occur.
func SortOut(found []Difference, known []KnownDifference) (unknown []Difference, unused []KnownDifference, err error) {
	type matcher struct{ session, request, field *regexp.Regexp }
	matchers := make([]matcher, len(known))
	used := make([]bool, len(known))
	for i, one := range known {
		for _, part := range []struct {
			text string
			into **regexp.Regexp
		}{{one.Session, &matchers[i].session}, {one.Request, &matchers[i].request}, {one.Field, &matchers[i].field}} {
			if part.text == "" {
				part.text = "(?s).*"
			}
			if *part.into, err = regexp.Compile("^(?:" + part.text + ")$"); err != nil {
				return nil, nil, err
			}
		}
	}
	for _, difference := range found {
		expected := false
		for i, m := range matchers {
			if m.session.MatchString(difference.Session) && m.request.MatchString(difference.Request) && m.field.MatchString(difference.Field) {
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
	return unknown, unused, nil
}

// KnownDifferences reads their list.
func KnownDifferences() ([]KnownDifference, error) {
	text, err := os.ReadFile(knownDifferencesFile)
	if err != nil {
		return nil, err
	}
	var known []KnownDifference
	return known, json.Unmarshal(text, &known)
}
