package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var freshReadCount = flag.Int("fresh-reads", 200, "how often a namespace is labelled, or a param changed, and written to at once")

// freshPolicies deny ConfigMaps in namespaces that are locked, and while a param in the namespace says so.
func freshPolicies() []string {
	in := `"namespaceSelector":{"matchLabels":{%s}},"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["configmaps"]}]`
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"%s"},"spec":{"failurePolicy":"Ignore",%s"matchConstraints":{` + in + `},"validations":[{"expression":%q,"message":"locked"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"%[1]s"},"spec":{"policyName":"%[1]s",%[2]s"validationActions":["Deny"]}}`
	kind := `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`
	return []string{
		fmt.Sprintf(policy, "fresh-label", "", `"fresh-locked":"yes"`, "false"), fmt.Sprintf(binding, "fresh-label", ""),
		fmt.Sprintf(policy, "fresh-param", kind, `"fresh":"yes"`, "params.?data.?mode.orValue('') != 'deny'"),
		fmt.Sprintf(binding, "fresh-param", `"paramRef":{"name":"fresh-param","parameterNotFoundAction":"Allow"},`),
		fmt.Sprintf(policy, "fresh-params", kind, `"fresh":"yes"`, "params.?data.?mode.orValue('') != 'denyselected'"),
		fmt.Sprintf(binding, "fresh-params", `"paramRef":{"selector":{"matchLabels":{"fresh":"yes"}},"parameterNotFoundAction":"Allow"},`),
	}
}

// A freshChange is a change after which writes are denied, and one after which they are not.
type freshChange struct {
	name, path, deny, allow string
}

func freshChanges(namespace string) []freshChange {
	of := "/api/v1/namespaces/" + namespace
	param := of + "/configmaps/fresh-param"
	return []freshChange{
		{"label", of, `{"metadata":{"labels":{"fresh-locked":"yes"}}}`, `{"metadata":{"labels":{"fresh-locked":"no"}}}`},
		{"param", param, `{"data":{"mode":"deny"}}`, `{"data":{"mode":"allow"}}`},
		{"selected param", param, `{"data":{"mode":"denyselected"}}`, `{"data":{"mode":"allow"}}`},
	}
}

// A freshResult says how many writes after a change were evaluated by what was before it, and for how long that went on.
type freshResult struct {
	Side   string  `json:"side"`
	Change string  `json:"change"`
	Writes int     `json:"writes"`
	Passed int     `json:"passed"`
	Median float64 `json:"median_ms"`
	Most   float64 `json:"most_ms"`
}

// race makes the change at a server, and writes at once; then goes on writing until the change counts.
func (c freshChange) race(ctx context.Context, store, evaluate documentSide, namespace string, count int) (freshResult, error) {
	result := freshResult{Side: evaluate.name, Change: c.name}
	path := "/api/v1/namespaces/" + namespace + "/configmaps?dryRun=All"
	write := func() (denied bool, err error) {
		answer, err := evaluate.send(ctx, "POST", path, jsonType, []byte(`{"metadata":{"name":"written"}}`))
		if err == nil && answer.code != 201 && !strings.HasSuffix(answer.message, "locked") {
			err = fmt.Errorf("%s: %d %s", evaluate.name, answer.code, answer.message)
		}
		return answer.code != 201, err
	}
	var times []time.Duration
	for range count {
		if err := store.mustPatch(ctx, c.path, c.allow); err != nil {
			return result, err
		}
		err := poll(changeLimit, time.Millisecond, func() (bool, error) {
			denied, err := write()
			return !denied, err
		})
		if err != nil {
			return result, err
		}
		if err := store.mustPatch(ctx, c.path, c.deny); err != nil {
			return result, err
		}
		changed := time.Now()
		result.Writes++
		stale := time.Duration(0)
		for first := true; ; first = false {
			sent := time.Since(changed)
			denied, err := write()
			if err != nil {
				return result, err
			}
			if denied {
				break
			}
			if first {
				result.Passed++
			}
			// This write began so long after the change, and did not know of it.
			stale = max(sent, time.Microsecond)
		}
		times = append(times, stale)
	}
	slices.Sort(times)
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	result.Median, result.Most = milliseconds(times[len(times)/2]), milliseconds(times[len(times)-1])
	return result, store.mustPatch(ctx, c.path, c.allow)
}

func (s documentSide) mustPatch(ctx context.Context, path, patch string) error {
	answer, err := s.send(ctx, "PATCH", path, mergePatch, []byte(patch))
	if err == nil && answer.code != 200 {
		err = fmt.Errorf("%s: PATCH %s: %d %s", s.name, path, answer.code, answer.message)
	}
	return err
}

// prepareFresh makes the namespace, the param and the policies on a server.
func (s documentSide) prepareFresh(ctx context.Context, namespace string) error {
	body := `{"metadata":{"name":"` + namespace + `","labels":{"fresh":"yes","fresh-locked":"no"}}}`
	if err := s.must(ctx, "POST", "/api/v1/namespaces", body, 201, 409); err != nil {
		return err
	}
	param := `{"metadata":{"name":"fresh-param","labels":{"fresh":"yes"}},"data":{"mode":"allow"}}`
	if err := s.must(ctx, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", param, 201, 409); err != nil {
		return err
	}
	for _, policy := range freshPolicies() {
		path := policiesPath
		if strings.Contains(policy, "PolicyBinding") {
			path = bindingsPath
		}
		if err := s.must(ctx, "POST", path, policy, 201, 409); err != nil {
			return err
		}
	}
	return nil
}

// A namespace is labelled, or a param changed, and the namespace written to at once. With reads: consistent not one write is evaluated by what was before. A
// server and a gateway with reads: cached, which both know what watches have delivered, let some through, and how many is printed.
func TestWritesRightAfterAChangeAreEvaluatedByIt(t *testing.T) {
	aboutEvaluatingFairgate(t)
	const namespace = "fresh-reads"
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	cached := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	consistent := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed", Reads: "consistent"})
	server := newDocumentSide(t, "kube-apiserver", bed.Enforcing.Endpoint)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	for _, side := range []documentSide{server, plain} {
		succeeds(t, side.prepareFresh(ctx, namespace))
	}
	for _, one := range []struct{ store, evaluate documentSide }{
		{server, server},
		{plain, plain.through(t, "cached", cached.Endpoint)},
		{plain, plain.through(t, "consistent", consistent.Endpoint)},
	} {
		for _, change := range freshChanges(namespace) {
			// The policies are in force once the change has an effect.
			if _, err := change.race(ctx, one.store, one.evaluate, namespace, 1); err != nil {
				t.Fatal(err)
			}
			result, err := change.race(ctx, one.store, one.evaluate, namespace, *freshReadCount)
			if err != nil {
				t.Fatal(err)
			}
			line := must[[]byte](t)(json.Marshal(result))
			fmt.Printf("FRESH READS %s\n", line)
			if one.evaluate.name == "consistent" && result.Passed > 0 {
				t.Errorf("%d of %d writes were judged by what was before the change: %s", result.Passed, result.Writes, change.name)
			}
		}
	}
}
