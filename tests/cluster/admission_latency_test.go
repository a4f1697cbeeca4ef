package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// changesOfPolicies is how often a policy comes into force and goes.
	changesOfPolicies = 5
	// evaluatedAfterwards is how many requests are sent once a change is reported.
	evaluatedAfterwards = 20
	// inForceBesideServer is how long a change should take until it is in force, by the time that it takes at kube-apiserver.
	inForceBesideServer = 1
	// policiesInForce is the metric of the policies that evaluate requests.
	policiesInForce = "fairgate_admission_policies"
)

// A change of policies reaches the gateway as an event of its watch, without a list. Once its metric reports the change, no
// request is evaluated by the policies before.
func TestAChangeOfPoliciesIsInForceOnceItIsReported(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce"})
	untilMetric(t, gateway, "fairgate_admission_synced", 1)
	others := must[float64](t)(gateway.Metric(ctx, policiesInForce))
	listed := listsOfPolicies(ctx, t, bed.Plain)
	stale := 0
	client := must[kubernetes.Interface](t)(shared.adminOf(gateway.Endpoint))
	ours := newPolicyChanges(ctx, t, client, gateway.Name, func(name string, bound bool) time.Duration {
		begun, want := time.Now(), others
		if bound {
			want++
		}
		untilMetric(t, gateway, policiesInForce, want)
		took := time.Since(begun)
		for range evaluatedAfterwards {
			if isDenied(ctx, t, client, name) != bound {
				stale++
			}
		}
		return took
	})
	// What is measured alternates, so that both meet the same machine.
	sides := []*policyChanges{ours}
	if *measuring {
		enforcing := must[kubernetes.Interface](t)(shared.adminOf(bed.Enforcing.Endpoint))
		sides = append(sides, newPolicyChanges(ctx, t, enforcing, bed.Enforcing.Name, func(name string, bound bool) time.Duration {
			begun := time.Now()
			for isDenied(ctx, t, enforcing, name) != bound {
			}
			return time.Since(begun)
		}))
	}
	for range changesOfPolicies {
		for _, bound := range []bool{true, false} {
			for _, side := range sides {
				side.change(ctx, t, bound)
			}
		}
	}
	if stale != 0 {
		t.Errorf("%d of %d requests were judged by former policies after the gateway had reported the new ones", stale, 2*changesOfPolicies*evaluatedAfterwards)
	}
	if again := listsOfPolicies(ctx, t, bed.Plain) - listed; again != 0 {
		t.Errorf("policies or bindings were listed %v times for %d changes", again, 2*changesOfPolicies)
	}
	measuredTimes(t, "a change of admission policies in force", ours.delays)
	if *measuring {
		server := sides[1].delays
		measuredTimes(t, "control: a change of admission policies in force at kube-apiserver", server)
		measuredBeside(t, "a change of admission policies in force, by that at kube-apiserver", ours.delays, server, inForceBesideServer)
	}
}

// listsOfPolicies is how often policies and bindings were listed at a server.
func listsOfPolicies(ctx context.Context, t *testing.T, server *Apiserver) float64 {
	t.Helper()
	text := string(must[[]byte](t)(server.Admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)))
	policies := must[float64](t)(sumOf(text, "apiserver_request_total", `verb="LIST"`, `resource="validatingadmissionpolicies"`))
	bindings := must[float64](t)(sumOf(text, "apiserver_request_total", `verb="LIST"`, `resource="validatingadmissionpolicybindings"`))
	if policies == 0 || bindings == 0 {
		t.Errorf("%s counts %v lists of policies and %v of bindings; the gateway must have listed both", server.Name, policies, bindings)
	}
	return policies + bindings
}

// policyChanges bind a policy at one server and take that back, and note the times from the response to a change until the
// change is in force, for which inForce waits.
type policyChanges struct {
	client  kubernetes.Interface
	binding *admissionv1.ValidatingAdmissionPolicyBinding
	inForce func(name string, bound bool) time.Duration
	delays  []time.Duration
}

// newPolicyChanges creates the policy, which is named after the server.
func newPolicyChanges(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, inForce func(name string, bound bool) time.Duration) *policyChanges {
	t.Helper()
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, binding := latencyPolicy(name)
	must[*admissionv1.ValidatingAdmissionPolicy](t)(policies.Create(ctx, policy, metav1.CreateOptions{}))
	t.Cleanup(func() {
		succeeds(t, policies.Delete(context.Background(), policy.Name, metav1.DeleteOptions{}))
	})
	return &policyChanges{client: client, binding: binding, inForce: inForce}
}

// change binds the policy, or takes that back.
func (c *policyChanges) change(ctx context.Context, t *testing.T, bound bool) {
	t.Helper()
	bindings := c.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if bound {
		must[*admissionv1.ValidatingAdmissionPolicyBinding](t)(bindings.Create(ctx, c.binding, metav1.CreateOptions{}))
	} else {
		succeeds(t, bindings.Delete(ctx, c.binding.Name, metav1.DeleteOptions{}))
	}
	c.delays = append(c.delays, c.inForce(c.binding.Name, bound))
}

// latencyPolicy denies ConfigMaps of its own name.
func latencyPolicy(endpoint string) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	name := "latency-" + endpoint
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
			Validations:      []admissionv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", name)}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	return policy, binding
}

// isDenied is whether the ConfigMap of this name is denied.
func isDenied(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) bool {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	return err != nil
}
