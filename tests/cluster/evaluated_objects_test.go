package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var evaluatedRecord = flag.String("record-evaluated", "", "write which objects a server shows its policies to this file")

// evaluatedDifferencesFile lists where a gateway shows policies another object than a server does, with reasons.
const evaluatedDifferencesFile = "evaluated_object_differences.json"

// evaluatedCorpusLimit is how large the recorded corpus may become, in bytes.
const evaluatedCorpusLimit = 3 << 20

func evaluatedObjectSessions() []Session {
	return slices.DeleteFunc(EvaluatedObjectSessions(), func(session Session) bool { return !strings.Contains(session.Name, *onlySessions) })
}

// A gateway that completes bodies itself shows policies the objects that a server shows them: with the metadata that the
// server owns, and without the fields that it drops. Policies that print what they see warn in the same words, those that can be
// evaded by a forged field deny the same requests, and the same objects are stored.
func TestCompletedObjectsAreThoseThatAServerShowsItsPolicies(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	bed, sessions := must[*AdmissionBed](t)(admissionBed()), evaluatedObjectSessions()
	sessions = slices.DeleteFunc(sessions, func(session Session) bool { return writtenByOthers.MatchString(session.Name) })
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	want, got, err := playBoth(inTime(t, 30*time.Minute), sessions, admissionTarget(t, bed.Enforcing.Endpoint), admissionTarget(t, gateway.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	found := evaluatedDifferences(want, got)
	onlyKnownDiffer(t, evaluatedDifferencesFile, sessions, want, found)
}

// evaluatedDifferences are those that say something about evaluating. Whether a write makes a new version is left to the clock: within one
// second, one that changes only who owns a field does not. And without a dry run, a request that the server refuses before it asks policies
// may be refused by a policy here: then it must be refused, too.
func evaluatedDifferences(want, got [][]Exchange) []Difference {
	var found []Difference
	for number := range want {
		for i := range min(len(want[number]), len(got[number])) {
			one, other := want[number][i], got[number][i]
			if one.Request.Until != 0 {
				continue // it waits for the policies, and several may warn, in any order
			}
			saw, sees := echoIn(one.Response), echoIn(other.Response)
			code := one.Response.Code
			if code >= 400 && code < 500 && saw == nil && other.Response.Code >= 400 {
				continue
			}
			one.Response.Headers.Warning, other.Response.Headers.Warning = nil, nil
			for _, difference := range Compare([]Exchange{one}, []Exchange{other}) {
				if difference.Number = i; !strings.HasSuffix(difference.Field, "/resourceVersion") {
					found = append(found, difference)
				}
			}
			compareTrees("/echo", saw, sees, func(field string, want, got any) {
				target := one.Request.Method + " " + one.Request.Path
				found = append(found, Difference{one.Session, i, target, field, want, got})
			})
		}
	}
	return found
}

// echoIn is what a policy says that it sees: the fields of its warning, or nil if there is none. The server may try a write again and
// warn twice. Other warnings are not those of policies.
func echoIn(response Response) any {
	var last string
	for _, warning := range response.Headers.Warning {
		if strings.Contains(warning, "ValidatingAdmissionPolicy '") {
			last = warning
		}
	}
	if last == "" {
		return nil
	}
	fields, rest := map[string]any{}, []string{}
	for _, word := range strings.Fields(strings.Trim(last, `\"`)) {
		if name, value, found := strings.Cut(word, "="); found {
			fields[name] = value
		} else {
			rest = append(rest, strings.TrimSuffix(word, "…"))
		}
	}
	fields["rest"] = strings.Join(rest, " ")
	return fields
}

// A evaluatedExchange is a line of the corpus: a write, what a gateway can know of it, and what the server shows its policies.
type evaluatedExchange struct {
	Session     string `json:"session"`
	Method      string `json:"method"`
	Path        string `json:"path"`
	ContentType string `json:"contentType"`
	Body        string `json:"body"`
	User        any    `json:"user,omitempty"`
	// Stored is the object before; null if there is none.
	Stored    any    `json:"stored,omitempty"`
	Code      int    `json:"code"`
	Operation string `json:"operation"`
	Object    any    `json:"object"`
}

// What a server shows its policies is recorded twice without a difference.
func TestRecordTheObjectsThatAServerShowsItsPolicies(t *testing.T) {
	if *evaluatedRecord == "" {
		t.Skip("give -record-evaluated=FILE to record")
	}
	bed := must[*AdmissionBed](t)(admissionBed())
	hook := must[*AdmissionWatcher](t)(shared.WatchAdmission(inTime(t, 20*time.Minute), bed.Enforcing))
	target := admissionTarget(t, bed.Enforcing.Endpoint)
	var plays [2][]byte
	for i := range plays {
		var corpus bytes.Buffer
		play := nextPlay()
		for _, session := range evaluatedObjectSessions() {
			lines, err := recordEvaluated(inTime(t, 20*time.Minute), target, hook, session.numbered(play), play)
			if err != nil {
				t.Fatal(err)
			}
			corpus.Write(lines)
		}
		plays[i] = corpus.Bytes()
	}
	reproducible := func(play []byte) [][]byte {
		return slices.DeleteFunc(bytes.Split(play, []byte("\n")), writtenByOthers.Match)
	}
	one, other := reproducible(plays[0]), reproducible(plays[1])
	if len(one) != len(other) {
		t.Errorf("two plays have %d and %d lines", len(one), len(other))
	}
	for i := range min(len(one), len(other)) {
		if !bytes.Equal(one[i], other[i]) {
			a, b := short(string(one[i]), string(other[i]))
			t.Errorf("of two plays, line %d:\n%s\n%s", i+1, a, b)
		}
	}
	fmt.Printf("tests/cluster: %d objects recorded, %d bytes\n", bytes.Count(plays[0], []byte("\n")), len(plays[0]))
	if len(plays[0]) > evaluatedCorpusLimit {
		t.Errorf("the corpus has %d bytes, which is more than %d", len(plays[0]), evaluatedCorpusLimit)
	}
	if !t.Failed() {
		succeeds(t, os.WriteFile(*evaluatedRecord, plays[0], 0o644))
	}
}

// writtenByOthers are the sessions about kinds that controllers inside of kube-apiserver write at any time.
var writtenByOthers = regexp.MustCompile(`echo-(definitions|apiservices)`)

// recordEvaluated plays a session without its policies and notes what the server shows for each write.
func recordEvaluated(ctx context.Context, target *Target, hook *AdmissionWatcher, session Session, play int) ([]byte, error) {
	seen, names := newNormaliser(false, false), newRecordedNames(play)
	var lines bytes.Buffer
	for _, request := range session.Requests {
		if strings.HasPrefix(request.Path, policiesPath) || strings.HasPrefix(request.Path, bindingsPath) || request.Until != 0 || strings.HasPrefix(request.Path, stepsPath) {
			continue
		}
		// One that is applied is evaluated by the response to a dry run.
		writes := (request.Method == "PUT" || request.Method == "PATCH" || request.Method == "POST") && request.Headers[contentHeader] != applyPatch
		var stored any
		body := seen.resolve(request.Body)
		if writes && request.Method != "POST" {
			_, stored = target.plainly(ctx, strings.TrimSuffix(request.Path, "/finalize"))
		}
		hook.forget()
		response, err := target.send(ctx, request, seen)
		if err != nil {
			return nil, err
		}
		if !writes || strings.Contains(request.Path+request.Body, "-evil") {
			continue // those about evil objects show the same fields, one by one
		}
		line := evaluatedExchange{Session: session.Name, Method: request.Method, Path: request.Path, ContentType: request.Headers[contentHeader], Body: body, Stored: stored, Code: response.Code}
		if review := hook.first(request.Path); review != nil {
			// What controllers of the server have written meanwhile is in it.
			if old := review["oldObject"]; old != nil {
				line.Stored = old
			}
			line.Operation, line.Object = text(review, "operation"), review["object"]
			if strings.Contains(request.Path, "certificatesigningrequests") {
				line.User = review["userInfo"] // it is in the object
			}
		}
		if line.Operation == "" {
			continue // refused before
		}
		text, err := names.line(line)
		if err != nil {
			return nil, err
		}
		lines.Write(text)
	}
	return lines.Bytes(), nil
}

// plainly is an object as the server has it.
func (t *Target) plainly(ctx context.Context, path string) (int, any) {
	wire, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base.String()+path, nil)
	if err != nil {
		return 0, nil
	}
	answer, err := t.transport.RoundTrip(wire)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	documents, _ := jsonDocuments(data)
	if err != nil || answer.StatusCode != http.StatusOK || len(documents) != 1 {
		return answer.StatusCode, nil
	}
	return answer.StatusCode, documents[0]
}

// recordedNames replaces what is another at each play: uids by numbers, so that which of them are the same can still be seen, times and
// versions.
type recordedNames struct {
	play  int
	known map[string]string
}

func newRecordedNames(play int) *recordedNames {
	return &recordedNames{play: play, known: map[string]string{}}
}

var (
	recordedUID     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	recordedTime    = regexp.MustCompile(`20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	recordedVersion = regexp.MustCompile(`(\\?"resourceVersion\\?":\\?")(\d{2,})(\\?")`)
)

func (n *recordedNames) line(line evaluatedExchange) ([]byte, error) {
	withoutManagedFields(line.Stored)
	withoutManagedFields(line.Object)
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(line); err != nil {
		return nil, err
	}
	plain := strings.ReplaceAll(buffer.String(), playNumber(n.play), playMark)
	plain = fingerprint.ReplaceAllString(plain, "X509SHA256={{certificate}}")
	plain = recordedUID.ReplaceAllStringFunc(plain, func(uid string) string {
		if uid == forgedUID {
			return uid
		}
		if _, known := n.known[uid]; !known {
			n.known[uid] = fmt.Sprintf("11111111-0000-4000-8000-0000000000%02d", len(n.known)+1)
		}
		return n.known[uid]
	})
	plain = recordedTime.ReplaceAllString(plain, "2026-01-01T00:00:00Z")
	// Whether a write within one second makes a new version is left to the clock.
	plain = recordedVersion.ReplaceAllStringFunc(plain, func(found string) string {
		parts := recordedVersion.FindStringSubmatch(found)
		if parts[2] == "77" {
			return found
		}
		return parts[1] + "1000" + parts[3]
	})
	return []byte(plain), nil
}

// withoutManagedFields leaves out who owns which fields: the gateway shows those of the stored object.
func withoutManagedFields(object any) {
	if metadata, ok := at(object, "metadata").(map[string]any); ok {
		delete(metadata, "managedFields")
	}
}
