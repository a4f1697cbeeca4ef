package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// wholes are all that policies see of a write, in two parts because messages have a limit: owners of fields, and what nobody thought of.
var wholes = map[string]string{
	"whole":   `object, oldObject == null ? {} : oldObject`,
	"request": `dyn(request), dyn(namespaceObject)`,
}

// wholeDifferencesFile lists where a gateway shows policies another object than a server does, with reasons.
const wholeDifferencesFile = "whole_object_differences.json"

// wholeObjectSessions are those about evaluated objects, with a policy that denies each write and prints its objects. So the objects that are
// there stay as they are.
func wholeObjectSessions(kinds []echoedKind, parts ...string) []Session {
	var all []Session
	for _, part := range parts {
		message := fmt.Sprintf(`"messageExpression":%q`, `' whole %s'.format([[`+wholes[part]+`]])`)
		for _, kind := range kinds {
			j := newEvaluation(part + "-" + kind.session)
			kind.write(j, func(j *evaluation) {
				mine := `{"name":"mine","expression":"request.name.contains('` + j.Name + `')"}`
				j.post(policiesPath, policy("@a", kind.constraints(), `spec.matchConditions=[`+mine+`]`, mustHold(validation(`false`, message))))
				j.post(bindingsPath, binding("@a"))
				j.settle()
			})
			if !writtenByOthers.MatchString("echo-" + kind.session) {
				all = append(all, j.Session)
			}
		}
	}
	return slices.DeleteFunc(all, func(session Session) bool { return !strings.Contains(session.Name, *onlySessions) })
}

// unlikeOnEachServer is what two servers never have in common.
var unlikeOnEachServer = []struct {
	found *regexp.Regexp
	by    string
}{
	{regexp.MustCompile(`20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`(resourceVersion\\?": ?\\?")\d+`), "${1}VERSION"},
	{recordedUID, "UID"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-DRAWN"},
}

// wholeIn are the objects that a response says a policy sees; nil if none was asked.
func wholeIn(response Response) (any, error) {
	_, whole, found := strings.Cut(text(response.Body, "message"), " whole ")
	if !found {
		return nil, nil
	}
	whole = strings.ReplaceAll(whole, forgedUID, "FORGED")
	for _, one := range unlikeOnEachServer {
		whole = one.found.ReplaceAllString(whole, one.by)
	}
	var seen any
	if err := json.Unmarshal([]byte(whole), &seen); err != nil {
		return nil, fmt.Errorf("%w: %s", err, whole)
	}
	for _, object := range seen.([]any) {
		byManager(object)
	}
	return seen, nil
}

// byManager has the owners of an object's fields be members by their names, because which of them comes first is left to the clock.
func byManager(object any) {
	metadata, _ := at(object, "metadata").(map[string]any)
	entries, _ := metadata["managedFields"].([]any)
	owners := map[string]any{}
	for _, entry := range entries {
		owners[strings.Join([]string{text(entry, "manager"), text(entry, "operation"), text(entry, "apiVersion"), text(entry, "subresource")}, " ")] = entry
	}
	if metadata != nil {
		metadata["managedFields"] = owners
	}
}

// A wholeTally is of writes whose objects policies print.
type wholeTally struct {
	alike, differing int
	found            []Difference
}

// wholeDifferences are the places at which a server and a gateway show policies something else, where both were asked about the write, or only
// the server was.
func wholeDifferences(t *testing.T, want, got [][]Exchange) wholeTally {
	t.Helper()
	var tally wholeTally
	for number := range want {
		for i := range min(len(want[number]), len(got[number])) {
			one, other := want[number][i], got[number][i]
			saw, sees := must[any](t)(wholeIn(one.Response)), must[any](t)(wholeIn(other.Response))
			if saw == nil && (sees == nil || one.Response.Code >= 400) {
				continue // none was asked, or the server refuses the write before
			}
			before := len(tally.found)
			compareTrees("/whole", saw, sees, func(field string, want, got any) {
				tally.found = append(tally.found, Difference{one.Session, i, one.Request.Method + " " + one.Request.Path, field, want, got})
			})
			if before == len(tally.found) {
				tally.alike++
			} else {
				tally.differing++
			}
		}
	}
	return tally
}

// What policies see of a write is, in every field, what they see of it in a server: of objects of all kinds, written in every way.
func TestWholeObjectsAreThoseThatAServerShowsItsPolicies(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	bed, sessions := must[*AdmissionBed](t)(admissionBed()), wholeObjectSessions(evaluatedObjectKinds(), slices.Sorted(maps.Keys(wholes))...)
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	want, got, err := playBoth(inTime(t, 30*time.Minute), sessions, admissionTarget(t, bed.Enforcing.Endpoint), admissionTarget(t, gateway.Endpoint))
	succeeds(t, err)
	tally := wholeDifferences(t, want, got)
	fmt.Printf("WHOLE OBJECTS {\"alike\":%d,\"differing\":%d}\n", tally.alike, tally.differing)
	if tally.alike < 20*len(sessions) {
		t.Errorf("of %d sessions, %d writes say something", len(sessions), tally.alike)
	}
	onlyKnownDiffer(t, wholeDifferencesFile, sessions, want, tally.found)
}
