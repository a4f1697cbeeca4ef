package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A replay is a session whose policies are in a file: nothing but dry runs is evaluated, so every gateway sees the same state.
type replay struct {
	policies  []string // with their bindings
	prepare   Session  // of the objects
	evaluated Session
}

// replayOf makes one of a random session. The policies are those that it begins with.
func replayOf(session Session) replay {
	made := replay{prepare: Session{Name: session.Name}, evaluated: Session{Name: session.Name}}
	settled := false
	for _, request := range session.Requests {
		kind := fmt.Sprint(path(request))
		switch {
		case strings.HasPrefix(request.Path, admissionPath):
			if request.Method == "POST" && !settled && !strings.Contains(request.Body, session.Name+"-fence") {
				made.policies = append(made.policies, request.Body)
			}
			settled = settled || strings.Contains(request.Body, session.Name+"-fence")
		case request.Warning != "" || strings.HasPrefix(request.Path, "/api/v1/namespaces/") && kind == "namespaces" || strings.Contains(request.Path+request.Body, "-steps"):
			// The probe of the fence, and what the session changes afterwards.
		case !settled:
			made.prepare.Requests = append(made.prepare.Requests, request)
		case request.Method == "GET" || strings.HasSuffix(request.Path, "/exec"):
		default:
			if !strings.Contains(request.Query, "dryRun=All") {
				request.Query = strings.TrimPrefix(request.Query+"&dryRun=All", "&")
			}
			made.evaluated.Requests = append(made.evaluated.Requests, request)
		}
	}
	return made
}

// path is the resource that a request is about, without a group.
func path(request Request) string {
	parts := strings.Split(request.Path, "/")
	if at := slices.Index(parts, "namespaces"); at >= 0 && len(parts) > at+2 {
		return parts[at+2]
	}
	return "namespaces"
}

// Audit comes to the same verdicts as enforce, and changes nothing: it answers as the server does without policies.
func TestAuditAndEnforceComeToTheSameVerdicts(t *testing.T) {
	aboutEvaluatingFairgate(t)
	// Beside other tests, many stored objects are read too late to be evaluated.
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	play := nextPlay()
	var prepared, evaluated []Session
	var documents []string
	for _, session := range RandomEvaluatedSessions(*admissionSeed+1, 900) {
		one := replayOf(session.numbered(play))
		prepared, evaluated, documents = append(prepared, one.prepare), append(evaluated, one.evaluated), append(documents, one.policies...)
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	succeeds(t, os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600))
	plain := admissionTarget(t, bed.Plain.Endpoint)
	if _, err := playAll(ctx, plain, prepared); err != nil {
		t.Fatal(err)
	}
	answered := map[string][][]Exchange{}
	verdicts := map[string]map[string]map[string]int{}
	for _, mode := range []string{"off", "audit", "enforce"} {
		target, log := plain, filepath.Join(t.TempDir(), "audit.jsonl")
		var gateway *Fairgate
		if mode != "off" {
			gateway = evaluatingFairgate(t, FairgateOptions{Admission: mode, AdmissionFiles: file, AdmissionLog: log, Fidelity: "completed"})
			target = admissionTarget(t, gateway.Endpoint)
		}
		played, err := playAll(ctx, target, evaluated)
		if err != nil {
			t.Fatal(err)
		}
		sortWarnings(played)
		for _, session := range played {
			for i := range session {
				session[i].Response = evaluatedResponse(session[i].Response)
			}
		}
		answered[mode] = played
		if gateway != nil {
			succeeds(t, gateway.Stop()) // its log is whole then
			verdicts[mode] = must[map[string]map[string]int](t)(readVerdicts(log))
		}
	}
	for _, difference := range compareAll(answered["off"], answered["audit"]) {
		t.Error("audit changed an answer:", difference)
	}
	if differ := compareAll(answered["off"], answered["enforce"]); len(differ) < 20 {
		t.Errorf("enforce changed %d answers only", len(differ))
	}
	refused, all := 0, 0
	for _, session := range answered["enforce"] {
		refused += refusedBy(session)
		all += len(session)
	}
	alike, late := 0, 0
	for namespace, wanted := range verdicts["enforce"] {
		got := verdicts["audit"][namespace]
		missing := 0
		for verdict, count := range wanted {
			if verdict == refusedBefore {
				continue // of some of these audit records nothing, as a server
			}
			alike += min(count, got[verdict])
			missing += max(0, count-got[verdict])
		}
		for verdict, count := range got {
			if verdict != notJudged && count > wanted[verdict] {
				t.Errorf("%s: audit found %d times, enforce %d times: %s", namespace, count, wanted[verdict], verdict)
			}
		}
		// What was carried out before the stored object was read is not evaluated; it may have had any verdict.
		if late += got[notJudged]; missing > got[notJudged] {
			t.Errorf("%s: %d verdicts of enforce are none of audit, which left out %d: %v, %v", namespace, missing, got[notJudged], wanted, got)
		}
	}
	if alike < 30 || refused < 20 {
		t.Errorf("of %d requests %d were refused, and %d had a verdict in both modes", all, refused, alike)
	}
	report, err := json.Marshal(map[string]int{"requests": all, "refused": refused, "alike": alike, "not judged by audit": late})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("tests/cluster: ADMISSION_AUDIT %s\n", report)
}

const appliedPolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: applied}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {applied: "yes"}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  validations:
  - expression: "object.data.?mode.orValue('fast') != 'slow'"
    messageExpression: "'no slow mode in ' + object.metadata.name"
  - expression: "oldObject == null || object.data.size == oldObject.data.size"
    messageExpression: "oldObject.data.size + ' stays'"
  - expression: "object.metadata.?labels.orValue({}).size() < 3"
    messageExpression: "string(object.metadata.labels.size()) + ' labels'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: applied}
spec: {policyName: applied, validationActions: [Deny]}
`

// Audit mode evaluates a server-side apply by what the upstream makes of it, once that is stored: as a server does before.
func TestAnApplyIsAuditedAsAServerEvaluatesIt(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	const space = "applied"
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 20*time.Minute)
	file, log := filepath.Join(t.TempDir(), "policies.yaml"), filepath.Join(t.TempDir(), "audit.jsonl")
	succeeds(t, os.WriteFile(file, []byte(appliedPolicy), 0o600))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space, Labels: map[string]string{"applied": "yes"}}}
	for _, server := range []*Apiserver{bed.Enforcing, bed.Plain} {
		must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
	}
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "audit", AdmissionFiles: file, AdmissionLog: log, Fidelity: "completed"})
	for _, document := range strings.Split(appliedPolicy, "---\n") {
		path := policiesPath
		if strings.Contains(document, "Binding") {
			path = bindingsPath
		}
		if code, message := statusOf(ctx, t, bed.Enforcing.Endpoint, shared.admin, http.MethodPost, path, yamlType, document); code != http.StatusCreated {
			t.Fatal(code, message)
		}
	}
	items := "/api/v1/namespaces/" + space + "/configmaps"
	apply := func(at Endpoint, name, manager, labels, data string) (int, string) {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":%s},"data":%s}`, name, labels, data)
		return statusOf(ctx, t, at, shared.admin, http.MethodPatch, items+"/"+name+"?force=true&fieldManager="+manager, applyPatch, body)
	}
	succeeds(t, poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"},"data":{"mode":"slow"}}`
		code, _ := statusOf(ctx, t, bed.Enforcing.Endpoint, shared.admin, http.MethodPost, items+"?dryRun=All", jsonType, body)
		return code == http.StatusUnprocessableEntity, nil
	}))
	// The labels and the data that a second manager adds to what a first one has applied, which has one label and the size 1.
	want, all := map[string]string{}, 0
	for i, labels := range []string{`{}`, `{"b":"2"}`, `{"b":"2","c":"3"}`, `{"a":"4","b":"2","c":"3"}`} {
		for j, data := range []string{`{}`, `{"size":"1"}`, `{"size":"2"}`, `{"mode":"slow"}`, `{"mode":"slow","size":"3"}`} {
			// Created, or changed.
			for k, first := range []bool{false, true} {
				name := fmt.Sprintf("c-%d-%d-%d", i, j, k)
				all++
				for _, at := range []Endpoint{bed.Enforcing.Endpoint, gateway.Endpoint} {
					if first {
						if code, message := apply(at, name, "one", `{"a":"1"}`, `{"size":"1"}`); code != http.StatusCreated {
							t.Fatal(at.Name, name, code, message)
						}
					}
					code, message := apply(at, name, "two", labels, data)
					if code == http.StatusUnprocessableEntity && at == bed.Enforcing.Endpoint {
						_, want[name], _ = strings.Cut(message, "denied request: ")
					} else if code != http.StatusOK && code != http.StatusCreated {
						t.Errorf("%s: %s: %d %s", at.Name, name, code, message)
					}
				}
			}
		}
	}
	// They are evaluated after they were answered. What is not evaluated was carried out before the stored object was read.
	got, late := map[string]string{}, map[string]bool{}
	missing := func() bool {
		clear(got)
		clear(late)
		for line := range strings.Lines(string(must[[]byte](t)(os.ReadFile(log)))) {
			var entry struct {
				Name, Decision string
				Policies       []struct{ Message string }
			}
			if json.Unmarshal([]byte(line), &entry) != nil {
				return true // it is not written to its end
			}
			if entry.Decision == "denied" && len(entry.Policies) > 0 {
				got[entry.Name] = entry.Policies[0].Message
			}
			late[entry.Name] = entry.Decision == "notJudged"
		}
		for name := range want {
			if _, evaluated := late[name]; !evaluated {
				return true
			}
		}
		return false
	}
	if err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) { return !missing(), nil }); err != nil {
		t.Errorf("the audit log lacks what the server denies: %v", err)
	}
	succeeds(t, gateway.Stop())
	missing()
	maps.DeleteFunc(late, func(_ string, is bool) bool { return !is })
	for name := range late {
		delete(want, name)
		delete(got, name)
	}
	if !maps.Equal(want, got) || len(want) < 5 || len(want)+len(late) == all {
		t.Errorf("of %d applies the server denies %v, and audit mode would deny %v; it did not judge %v", all, want, got, late)
	}
}

// notJudged is the verdict about a request that was carried out too soon.
const notJudged = "not judged"

// refusedBefore stands for a request that the server would refuse before it asks its policies, so that there is no verdict.
const refusedBefore = "refused before policies"

// readVerdicts counts the lines of an audit log by namespace and verdict.
func readVerdicts(file string) (map[string]map[string]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := map[string]map[string]int{}
	for line := range strings.Lines(string(data)) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		namespace := text(entry, "namespace")
		if found[namespace] == nil {
			found[namespace] = map[string]int{}
		}
		verdict := notJudged
		switch failure := text(entry, "failure"); {
		case text(entry, "decision") == "notJudged":
		case strings.HasSuffix(failure, "(404)") || strings.HasSuffix(failure, "(409)") || strings.HasPrefix(failure, "the upstream answered its dry run with "):
			verdict = refusedBefore
		default:
			for _, key := range []string{"time", "auditID", "mode", "judgingSeconds", "totalSeconds", "fidelity"} {
				delete(entry, key)
			}
			verdict = inFull(entry)
		}
		found[namespace][verdict]++
	}
	return found, nil
}
