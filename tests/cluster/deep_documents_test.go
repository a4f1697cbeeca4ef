package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// deepestDocument is how many lists and objects Go's decoders of JSON let be open at once.
const deepestDocument = 10_000

// A deepWrite is a write whose body nests deep.
type deepWrite struct {
	method, path, media string
	// body has a value for %s, above which so many levels are.
	body  string
	above int
	// stored is how many levels are above the value in the object that a patch makes; the same, if it is 0.
	stored int
	// levels of all of the document.
	levels []int
}

// deepDefinition is of custom resources whose schema keeps all there is.
const deepDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"depths.deep.example.com"},"spec":{"group":"deep.example.com","scope":"Namespaced",` +
	`"names":{"plural":"depths","singular":"depth","kind":"Depth","listKind":"DepthList"},"versions":[{"name":"v1","served":true,"storage":true,` +
	`"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// deepValue nests so many levels.
func deepValue(open, end string, levels int) string {
	return strings.Repeat(open, levels) + "0" + strings.Repeat(end, levels)
}

// What nests as deep as a server takes it is accepted through a gateway whose policies are about it, and what nests deeper is refused in the
// same words.
func TestDeepDocumentsAreReadAsDeepAsByTheServer(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	const user, namespace = "deep-gateway", "deep-documents"
	succeeds(t, Grant(ctx, bed.Plain.Admin, user, ImpersonatorRole, AdmissionRole, EvaluatedObjectsRole))
	reads := []rbacv1.PolicyRule{{APIGroups: []string{"deep.example.com"}, Resources: []string{"depths"}, Verbs: []string{"get", "list", "watch"}}}
	succeeds(t, GrantRules(ctx, bed.Plain.Admin, user, user+":depths", reads))
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	maps, depths := "/api/v1/namespaces/"+namespace+"/configmaps", "/apis/deep.example.com/v1/namespaces/"+namespace+"/depths"
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"deep-documents"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + namespace + `"}},"resourceRules":[{"apiGroups":["","deep.example.com"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]},` +
		`"validations":[{"expression":"object == null || !has(object.metadata.labels) || !('denied' in object.metadata.labels)"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"deep-documents"},"spec":{"policyName":"deep-documents","validationActions":["Deny"]}}`
	denied := `{"metadata":{"name":"denied","labels":{"denied":""}}}`
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + namespace + `"}}`}, {maps, `{"metadata":{"name":"m"},"data":{"a":"1"}}`}, {policiesPath, policy}, {bindingsPath, binding}, {definitions, deepDefinition},
	} {
		succeeds(t, plain.must(ctx, "POST", made[0], made[1], 201, 409))
	}
	depth := func(more string) string {
		return `{"apiVersion":"deep.example.com/v1","kind":"Depth","metadata":{"name":"d"},"kept":{"a":{}}` + more + `}`
	}
	succeeds(t, poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
		answer, err := plain.send(ctx, http.MethodPost, depths, jsonType, []byte(depth("")))
		return answer.code == 201 || answer.code == 409, err
	}))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: bed.Plain.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
	through := plain.through(t, "gateway", gateway.Endpoint)
	succeeds(t, poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
		answer, err := through.send(ctx, http.MethodPost, maps+"?dryRun=All", jsonType, []byte(denied))
		return answer.code == http.StatusUnprocessableEntity && answer.reason != "", err
	}))
	deeper := []int{600, deepestDocument - 1, deepestDocument, deepestDocument + 1}
	all, kept := []int{600, deepestDocument, deepestDocument + 1, 3 * deepestDocument}, []int{600, deepestDocument - 100, deepestDocument + 1}
	for _, write := range []deepWrite{
		{http.MethodPost, maps + "?dryRun=All", jsonType, `{"metadata":{"name":"n"},"unknown":%s}`, 1, 0, all},
		{http.MethodPut, maps + "/m", jsonType, `{"metadata":{"name":"m"},"unknown":%s}`, 1, 0, all},
		{http.MethodPatch, maps + "/m", "application/merge-patch+json", `{"unknown":%s}`, 1, 0, all},
		{http.MethodPatch, maps + "/m", "application/json-patch+json", `[{"op":"add","path":"/unknown","value":%s}]`, 2, 0, all},
		{http.MethodDelete, maps + "/m", jsonType, `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"],"unknown":%s}`, 1, 0, all},
		// The patch can be read, but not what it makes of the object, which is a level deeper.
		{http.MethodPatch, depths + "/d?dryRun=All", "application/json-patch+json", `[{"op":"add","path":"/kept/a/b","value":%s}]`, 2, 3, deeper},
		// The server notes who owns each of these levels, deeper than they are, and cannot read that again beyond its bound.
		{http.MethodPost, depths + "?dryRun=All", jsonType, strings.Replace(depth(`,"spec":%s`), `"d"`, `"n"`, 1), 1, 0, kept},
		{http.MethodPatch, depths + "/d?dryRun=All", "application/merge-patch+json", `{"spec":%s}`, 1, 0, kept},
		{http.MethodPatch, depths + "/d?dryRun=All", "application/json-patch+json", `[{"op":"add","path":"/spec","value":%s}]`, 2, 0, kept},
		{http.MethodPatch, depths + "/d?dryRun=All&fieldManager=deep", "application/apply-patch+yaml", depth(`,"spec":%s`), 1, 0, kept},
	} {
		for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
			for _, levels := range write.levels {
				body := []byte(fmt.Sprintf(write.body, deepValue(brackets[0], brackets[1], levels-write.above)))
				send := func(side documentSide) documentAnswer {
					sending, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					return must[documentAnswer](t)(side.send(sending, write.method, write.path, write.media, body))
				}
				want, got := send(plain), send(through)
				if got.code != want.code || got.message != want.message {
					t.Errorf("%s %s %s, %d levels of %s: %d %.300q, want %d %.300q", write.method, write.path, write.media, levels, brackets[0], got.code, got.message, want.code, want.message)
				}
				// What the patch adds is deeper in the object.
				below := max(0, write.stored-write.above)
				if accepted := want.code < 300; accepted != (levels+below <= deepestDocument) {
					t.Errorf("%s %s %s, %d levels of %s: the server says %d %.300q", write.method, write.path, write.media, levels, brackets[0], want.code, want.message)
				}
			}
		}
	}
}

// deepParamLevels is how deep the params nest that the test makes. A server notes who owns each of their levels, and takes both together.
const deepParamLevels = deepestDocument - 100

// A gateway follows the params of its policies. Those that nest as deep as a server stores them, in the first list or in an event of the watch,
// do not end that: policies see the next changes of others, and these objects are params like others.
func TestParamsThatNestDeepAreFollowed(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	const user, namespace = "deep-params-gateway", "deep-params"
	succeeds(t, Grant(ctx, bed.Plain.Admin, user, ImpersonatorRole, AdmissionRole, EvaluatedObjectsRole))
	reads := []rbacv1.PolicyRule{{APIGroups: []string{"deep.example.com"}, Resources: []string{"depths"}, Verbs: []string{"get", "list", "watch"}}}
	succeeds(t, GrantRules(ctx, bed.Plain.Admin, user, user+":depths", reads))
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	maps, depths := "/api/v1/namespaces/"+namespace+"/configmaps", "/apis/deep.example.com/v1/namespaces/"+namespace+"/depths"
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"deep-params"},"spec":{"failurePolicy":"Fail","paramKind":{"apiVersion":"deep.example.com/v1","kind":"Depth"},` +
		`"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + namespace + `"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},` +
		`"validations":[{"expression":"!has(params.denied) || object.metadata.name != params.denied"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"deep-params"},"spec":{"policyName":"deep-params","validationActions":["Deny"],"paramRef":{"selector":{},"parameterNotFoundAction":"Deny"}}}`
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + namespace + `"}}`}, {policiesPath, policy}, {bindingsPath, binding}, {definitions, deepDefinition},
	} {
		succeeds(t, plain.must(ctx, "POST", made[0], made[1], 201, 409))
	}
	// A param with a name that it denies, and with a value of so many levels.
	param := func(name, denied string, levels int) string {
		return fmt.Sprintf(`{"apiVersion":"deep.example.com/v1","kind":"Depth","metadata":{"name":%q},"denied":%q,"kept":%s}`, name, denied, deepValue(`{"a":`, "}", levels-1))
	}
	succeeds(t, poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
		answer, err := plain.send(ctx, http.MethodPost, depths, jsonType, []byte(param("shallow", "first", 2)))
		return answer.code == 201 || answer.code == 409, err
	}))
	succeeds(t, plain.must(ctx, "POST", depths, param("listed", "listed", deepParamLevels), 201))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: bed.Plain.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
	through := plain.through(t, "gateway", gateway.Endpoint)
	until := func(name string, code int) {
		t.Helper()
		var last documentAnswer
		err := poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
			answer, err := through.send(ctx, http.MethodPost, maps+"?dryRun=All", jsonType, []byte(fmt.Sprintf(`{"metadata":{"name":%q}}`, name)))
			last = answer
			return answer.code == code, err
		})
		if err != nil {
			t.Fatalf("a map with the name %q is answered %d %.300q: %v", name, last.code, last.message, err)
		}
	}
	denied, allowed := http.StatusUnprocessableEntity, http.StatusCreated
	until("first", denied)
	until("listed", denied)
	until("watched", allowed)
	// Events: what nests deep is added, changed and deleted, and after each something else changes.
	succeeds(t, plain.must(ctx, "POST", depths, param("watched", "watched", deepParamLevels), 201))
	until("watched", denied)
	change := func(name, to string) {
		t.Helper()
		answer := must[documentAnswer](t)(plain.send(ctx, http.MethodPatch, depths+"/"+name, "application/merge-patch+json", []byte(fmt.Sprintf(`{"denied":%q}`, to))))
		if answer.code != http.StatusOK {
			t.Fatalf("%s is changed: %d %.300q", name, answer.code, answer.message)
		}
	}
	change("shallow", "second")
	until("second", denied)
	until("first", allowed)
	change("watched", "changed")
	until("changed", denied)
	succeeds(t, plain.must(ctx, "DELETE", depths+"/listed", "", 200))
	until("listed", allowed)
	change("shallow", "third")
	until("third", denied)
}
