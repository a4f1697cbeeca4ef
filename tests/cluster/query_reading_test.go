package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const queryNamespace = "query-reading"

// A policy cannot be passed by a query that the gateway reads otherwise than the server: one with so many parameters that the server
// would ignore what makes it a dry run, and a selector whose name is encoded.
func TestNoQueryPassesAPolicy(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	maps := "/api/v1/namespaces/" + queryNamespace + "/configmaps"
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"query-reading"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + queryNamespace + `"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","DELETE"],"resources":["configmaps"]}]},` +
		`"validations":[{"expression":"(object != null ? object : oldObject).metadata.name.startsWith('free')"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"query-reading"},"spec":{"policyName":"query-reading","validationActions":["Deny"]}}`
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + queryNamespace + `"}}`},
		{maps, `{"metadata":{"name":"protected","labels":{"app":"protected"}}}`},
		{policiesPath, policy}, {bindingsPath, binding},
	} {
		succeeds(t, plain.must(ctx, "POST", made[0], made[1], 201, 409))
	}
	for _, fidelity := range []string{"completed", "dryRun"} {
		for _, guard := range []bool{false, true} {
			name := fmt.Sprintf("%s, guard %v", fidelity, guard)
			gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: fidelity, Guard: guard})
			through := plain.through(t, "gateway", gateway.Endpoint)
			succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
				answer, err := through.send(ctx, "POST", maps+"?dryRun=All", jsonType, []byte(`{"metadata":{"name":"denied"}}`))
				return answer.code == 422, err
			}))
			for _, parameters := range []int{1, 9_899, 9_900, 9_901, 9_999, 10_000, 10_001} {
				path := maps + "?" + strings.Repeat("a&", parameters-1) + "a"
				answer, err := through.send(ctx, "POST", path, jsonType, []byte(`{"metadata":{"name":"denied"}}`))
				succeeds(t, err)
				if answer.isAccepted() {
					t.Errorf("%s: %d parameters: %d", name, parameters, answer.code)
				}
			}
			for _, query := range []string{"", "label%53elector=&labelSelector=app%3Dnone", "labelSelector=a;b&labelSelector=", "field%53elector=&fieldSelector=metadata.name%3Dnone", "limi%74=1"} {
				answer, err := through.send(ctx, "DELETE", maps+"?"+query, jsonType, nil)
				succeeds(t, err)
				if answer.isAccepted() {
					t.Errorf("%s: %q: %d", name, query, answer.code)
				}
			}
			for object, code := range map[string]int{"protected": 200, "denied": 404} {
				answer, err := plain.send(ctx, "GET", maps+"/"+object, jsonType, nil)
				succeeds(t, err)
				if answer.code != code {
					t.Errorf("%s: %s: %d", name, object, answer.code)
				}
			}
		}
	}
}
