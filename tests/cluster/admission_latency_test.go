package cluster

import (
	"context"
	"fmt"
	"slices"
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
	// inForceWithin bounds the time from the response to a change until requests are judged by it.
	inForceWithin = time.Second
)

// A policy is in force soon after it was written, and no longer soon after it was deleted, as on a server.
func TestAChangeOfPoliciesIsSoonInForce(t *testing.T) {
	aboutJudgingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	gateway := judgingFairgate(t, FairgateOptions{Admission: "enforce"})
	server := delaysOfPolicies(ctx, t, bed.Enforcing.Endpoint)
	ours := delaysOfPolicies(ctx, t, gateway.Endpoint)
	t.Logf("changes in force after (median, slowest of %d): server %v, %v; fairgate %v, %v", len(ours),
		server[len(server)/2], server[len(server)-1], ours[len(ours)/2], ours[len(ours)-1])
	if slowest := ours[len(ours)-1]; slowest > inForceWithin {
		t.Errorf("a change was in force after %v, not within %v", slowest, inForceWithin)
	}
}

// delaysOfPolicies are the times from the response to a change of policies until requests are judged by it, in order.
func delaysOfPolicies(ctx context.Context, t *testing.T, at Endpoint) []time.Duration {
	t.Helper()
	client := must[kubernetes.Interface](t)(shared.adminOf(at))
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy, binding := latencyPolicy(at.Name)
	must[*admissionv1.ValidatingAdmissionPolicy](t)(policies.Create(ctx, policy, metav1.CreateOptions{}))
	t.Cleanup(func() {
		succeeds(t, policies.Delete(context.Background(), policy.Name, metav1.DeleteOptions{}))
	})
	var delays []time.Duration
	for range changesOfPolicies {
		must[*admissionv1.ValidatingAdmissionPolicyBinding](t)(bindings.Create(ctx, binding, metav1.CreateOptions{}))
		delays = append(delays, untilDenied(ctx, t, client, policy.Name, true))
		succeeds(t, bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		delays = append(delays, untilDenied(ctx, t, client, policy.Name, false))
	}
	slices.Sort(delays)
	return delays
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

// untilDenied waits until the ConfigMap of this name is denied, or no longer is.
func untilDenied(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, denied bool) time.Duration {
	t.Helper()
	begun := time.Now()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if (err != nil) == denied {
			return time.Since(begun)
		}
	}
}
