package cluster

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// statusController writes the status of policies.
const statusController = "validatingadmissionpolicy-status-controller"

//go:embed admissiontypes/cases.yaml
var typeCases []byte

//go:embed admissiontypes/definition.yaml
var typedDefinition []byte

// A typedCase is one of admissiontypes.
type typedCase struct {
	Name        string                       `json:"name"`
	Rules       []v1.NamedRuleWithOperations `json:"rules"`
	ParamKind   *v1.ParamKind                `json:"paramKind"`
	Variables   []v1.Variable                `json:"variables"`
	Expressions []string                     `json:"expressions"`
}

// policies has one for each expression, since a server stores none with an expression that it cannot compile without types.
func (c typedCase) policies() (all []*v1.ValidatingAdmissionPolicy) {
	rules := c.Rules
	if rules == nil {
		rule := v1.Rule{APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"flowschemas"}}
		rules = []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{Operations: []v1.OperationType{"CREATE"}, Rule: rule}}}
	}
	for number, expression := range c.Expressions {
		validation := v1.Validation{Expression: expression}
		if before, after, found := strings.Cut(expression, " => "); found {
			validation = v1.Validation{Expression: before, MessageExpression: after}
		}
		name := fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(c.Name, " ", "-")), number)
		all = append(all, &v1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &v1.MatchResources{ResourceRules: rules}, ParamKind: c.ParamKind, Variables: c.Variables, Validations: []v1.Validation{validation},
			},
		})
	}
	return all
}

// Types have unique names in the original.
var uniqueType = regexp.MustCompile(`\b([A-Z][A-Za-z]*)\d+\b`)

// A checkedPolicy is what became of a policy: the code of its creation, or what the type checker says.
type checkedPolicy struct {
	Code   int32
	Status string
}

// checkedStatus says what the type checker has found, and whether it has checked the policy as it is. When it finds nothing any more, server-side apply
// leaves nothing in the status where the next apply of the same leaves an empty object.
func checkedStatus(policy *v1.ValidatingAdmissionPolicy) (string, bool) {
	checked := []byte("{}")
	if policy.Status.TypeChecking != nil {
		checked, _ = json.Marshal(policy.Status.TypeChecking)
	}
	return uniqueType.ReplaceAllString(string(checked), "$1"), policy.Status.ObservedGeneration == policy.Generation
}

// checkTypes creates policies and waits until all of them have a status.
func checkTypes(ctx context.Context, t *testing.T, client kubernetes.Interface, policies []*v1.ValidatingAdmissionPolicy) map[string]checkedPolicy {
	t.Helper()
	found := map[string]checkedPolicy{}
	for _, policy := range policies {
		_, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{})
		if status := apierrors.APIStatus(nil); err != nil {
			if refused, ok := err.(apierrors.APIStatus); ok {
				status = refused
			}
			if status == nil || status.Status().Code != 422 {
				t.Fatalf("%s: %v", policy.Name, err)
			}
			found[policy.Name] = checkedPolicy{Code: 422}
		}
	}
	for _, policy := range policies {
		if found[policy.Name].Code != 0 {
			continue
		}
		eventually(ctx, t, policy.Name, func() (string, bool) {
			got, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, policy.Name, metav1.GetOptions{})
			succeeds(t, err)
			status, isChecked := checkedStatus(got)
			if isChecked {
				found[policy.Name] = checkedPolicy{Code: 201, Status: status}
			}
			return "it has no status", isChecked
		})
	}
	return found
}

// eventually waits until something holds; otherwise it says why not.
func eventually(ctx context.Context, t *testing.T, what string, holds func() (string, bool)) {
	t.Helper()
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		why, ok := holds()
		if ok {
			return
		}
		select {
		case <-limit.Done():
			t.Fatalf("%s: %s", what, why)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// checkAgain changes policies, so that a server checks them again, and waits until it has.
func checkAgain(ctx context.Context, t *testing.T, client kubernetes.Interface) map[string]checkedPolicy {
	t.Helper()
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	found := map[string]checkedPolicy{}
	for _, policy := range must[*v1.ValidatingAdmissionPolicyList](t)(policies.List(ctx, metav1.ListOptions{})).Items {
		other := fmt.Sprintf(`{"spec":{"matchConditions":[{"name":"c","expression":"'%s' != ''"}]}}`, time.Now())
		must[*v1.ValidatingAdmissionPolicy](t)(policies.Patch(ctx, policy.Name, mergePatch, []byte(other), metav1.PatchOptions{}))
		eventually(ctx, t, policy.Name, func() (string, bool) {
			status, isChecked := checkedStatus(must[*v1.ValidatingAdmissionPolicy](t)(policies.Get(ctx, policy.Name, metav1.GetOptions{})))
			found[policy.Name] = checkedPolicy{Code: 201, Status: status}
			return "it has no status", isChecked
		})
	}
	return found
}

// The one policy that is about a version that fairgate hosts and the server does not have any more.
const olderVersionChecked = "several-kinds-1"

// The type checker says the same about policies as that of a cluster, about custom resources, too; and says something else once these change, which the
// original does for policies alone that change as well.
func TestTypesOfPoliciesAreCheckedAsInACluster(t *testing.T) {
	aboutFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, 20*time.Minute)
	server := must[*Apiserver](t)(shared.StartApiserver("typed", "", uidFlag, "--enable-priority-and-fairness=false"))
	must[*process](t)(shared.StartControllerManager(server.Endpoint, statusController))
	const self = "type-checks"
	succeeds(t, Grant(ctx, server.Admin, self, ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole))
	gateway := newFairgate(t, FairgateOptions{
		Mode: "impersonate", Source: "overlay", User: self, Upstream: server.URL, Off: true,
		Admission: "enforce", AdmissionHosted: true, Fidelity: "completed",
	})
	succeeds(t, gateway.Start())
	hosted := must[kubernetes.Interface](t)(shared.adminOf(gateway.Endpoint))

	definitions := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(shared.Config(server.Endpoint, shared.admin))).
		Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	var definition map[string]any
	succeeds(t, yaml.Unmarshal(typedDefinition, &definition))
	created := must[*unstructured.Unstructured](t)(definitions.Create(ctx, &unstructured.Unstructured{Object: definition}, metav1.CreateOptions{}))
	published := func(text string, wanted bool) {
		t.Helper()
		eventually(ctx, t, "the schema", func() (string, bool) {
			document, err := server.Admin.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/example.com/v1").DoRaw(ctx)
			has := err == nil && strings.Contains(string(document), text)
			return string(document), has == wanted
		})
	}
	published("Gadget", true)

	var cases []typedCase
	succeeds(t, yaml.UnmarshalStrict(typeCases, &cases))
	var policies []*v1.ValidatingAdmissionPolicy
	for _, one := range cases {
		policies = append(policies, one.policies()...)
	}
	want, got := checkTypes(ctx, t, server.Admin, policies), checkTypes(ctx, t, hosted, policies)
	warned := 0
	for name, one := range want {
		if strings.Contains(one.Status, "expressionWarnings") {
			warned++
		}
		if got[name] != one && name != olderVersionChecked {
			t.Errorf("%s:\nserver:   %v\nfairgate: %v", name, one, got[name])
		}
	}
	fmt.Printf("type checking: %d policies, %d with warnings\n", len(want), warned)
	if warned < 100 {
		t.Errorf("only %d policies have warnings", warned)
	}

	// follows waits until the policies that the gateway has say what those of the server say once they are checked again.
	follows := func(when string) {
		t.Helper()
		want := checkAgain(ctx, t, server.Admin)
		began, changed := time.Now(), 0
		eventually(ctx, t, when, func() (string, bool) {
			changed = 0
			list, err := hosted.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
			succeeds(t, err)
			for _, policy := range list.Items {
				name := policy.Name
				if name == olderVersionChecked {
					continue
				}
				status, _ := checkedStatus(&policy)
				if status != want[name].Status {
					return fmt.Sprintf("%s:\nserver:   %v\nfairgate: %v", name, want[name].Status, status), false
				}
				if status != got[name].Status {
					changed++
				}
			}
			return "", true
		})
		fmt.Printf("type checking: %s, %d policies have other warnings, within %.1f s\n", when, changed, time.Since(began).Seconds())
		if changed == 0 {
			t.Errorf("%s: nothing has changed", when)
		}
	}
	// The size of a gadget becomes a text, and its parts get other names.
	text := string(must[[]byte](t)(json.Marshal(created.Object["spec"])))
	text = strings.Replace(text, `"size":{"format":"int32","minimum":1,"type":"integer"}`, `"size":{"type":"string"}`, 1)
	text = strings.Replace(text, `"parts":{`, `"pieces":{`, 1)
	patch := []byte(`{"spec":` + strings.Replace(text, `"spec":{"properties":{`, `"spec":{"properties":{"parts":null,`, 1) + `}`)
	must[*unstructured.Unstructured](t)(definitions.Patch(ctx, created.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{}))
	published(`"pieces"`, true)
	follows("the schema has changed")
	succeeds(t, definitions.Delete(ctx, created.GetName(), metav1.DeleteOptions{}))
	published("Gadget", false)
	follows("the resource is gone")
}
