package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const chanceNamespace = "chance"

// What kube-apiserver leaves to chance (the order of a Go map) cannot be used to have something stored that policies have not seen: a strategic merge patch
// that sets a value of a list and deletes it is refused. A server shows its policies what it stores, in whatever order it came about.
func TestNoPatchPassesPoliciesByChance(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	server, plain := newDocumentSide(t, "server", bed.Enforcing.Endpoint), newDocumentSide(t, "plain", bed.Plain.Endpoint)
	deployments := "/apis/apps/v1/namespaces/" + chanceNamespace + "/deployments"
	deployment := func(name string) string {
		return `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `","finalizers":["example.com/keep"]},"spec":{"selector":{"matchLabels":{"a":"d"}},"template":{"metadata":{"labels":{"a":"d"}},` +
			`"spec":{"containers":[{"name":"c","image":"i","securityContext":{"capabilities":{"drop":["ALL"]}}}]}}}}`
	}
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"chance"},"spec":{"failurePolicy":"Fail","matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + chanceNamespace + `"}},` +
		`"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["deployments"]}]},"validations":[` +
		`{"expression":"object.spec.template.spec.containers.all(c, 'ALL' in c.?securityContext.?capabilities.?drop.orValue([]))","message":"evil"},{"expression":"'example.com/keep' in object.metadata.?finalizers.orValue([])","message":"evil"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"chance"},"spec":{"policyName":"chance","validationActions":["Deny"]}}`
	for _, side := range []documentSide{server, plain} {
		for _, made := range [][2]string{{"/api/v1/namespaces", `{"metadata":{"name":"` + chanceNamespace + `"}}`}, {policiesPath, policy}, {bindingsPath, binding}} {
			succeeds(t, side.must(ctx, "POST", made[0], made[1], 201, 409))
		}
	}
	capabilities := `{"spec":{"template":{"spec":{"containers":[{"name":"c","securityContext":{"capabilities":{"drop":["ALL"],"$deleteFromPrimitiveList/drop":["ALL"]}}}]}}}}`
	for _, patch := range []string{capabilities, strings.Replace(capabilities, "$delete", `\u0024delete`, 1), `{"metadata":{"finalizers":["example.com/keep"],"$deleteFromPrimitiveList/finalizers":["example.com/keep"]}}`,
		// With an order, the list is merged first.
		`{"metadata":{"finalizers":["example.com/keep"],"$deleteFromPrimitiveList/finalizers":["example.com/keep"],"$setElementOrder/finalizers":["example.com/keep"]}}`} {
		for of, options := range []FairgateOptions{{Fidelity: "completed"}, {Fidelity: "completed", Guard: true}, {Fidelity: "dryRun"}} {
			options.Admission = "enforce"
			gateway := evaluatingFairgate(t, options)
			through := plain.through(t, "gateway", gateway.Endpoint)
			name := fmt.Sprintf("d%d", of)
			for _, side := range []documentSide{server, through} {
				succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
					answer, err := side.send(ctx, "POST", deployments+"?dryRun=All", jsonType, []byte(strings.ReplaceAll(deployment("probe"), `"ALL"`, `"NONE"`)))
					return answer.code == 422, err
				}))
				succeeds(t, side.must(ctx, "POST", deployments, deployment(name), 201, 409))
				stored, refused := 0, map[int]int{}
				for range 40 {
					answer, err := side.send(ctx, "PATCH", deployments+"/"+name, strategicType, []byte(patch))
					succeeds(t, err)
					if !answer.isAccepted() {
						refused[answer.code]++
					}
					answer, err = side.send(ctx, "GET", deployments+"/"+name, jsonType, nil)
					succeeds(t, err)
					if text := storedForm(answer.object); !strings.Contains(text, `"drop":["ALL"]`) || !strings.Contains(text, `"finalizers":["example.com/keep"]`) {
						stored++
						succeeds(t, plain.must(ctx, "PUT", deployments+"/"+name, deployment(name), 200))
					}
				}
				fmt.Printf("CHANCE %s, guard %v, by the %s: %d of 40 stored what is denied, refused by code %v\n", options.Fidelity, options.Guard, side.name, stored, refused)
				if stored > 0 {
					t.Errorf("%s, guard %v, by the %s: %d patches %s stored what is denied", options.Fidelity, options.Guard, side.name, stored, patch)
				}
				if side.name == "server" && of == 0 && refused[422] == 0 {
					t.Errorf("the server leaves nothing to chance: %v", refused)
				}
			}
		}
	}
}
