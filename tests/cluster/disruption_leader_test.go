package cluster

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Of two fairgates one counts budgets. When it drains, the other one continues at once; when it is killed, once its lease has
// expired.
func TestAnotherFairgateGoesOnCountingBudgets(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	ctx := inTime(t, 20*time.Minute)
	server := must[*Apiserver](t)(shared.StartApiserver("handed-over", "", controlledBedFlags...))
	const user, namespace = "budget-leader", "handed-over"
	succeeds(t, Grant(ctx, server.Admin, user, ImpersonatorRole, ControllerRole, LeaseRole))
	_, err := server.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	succeeds(t, err)
	all := intstr.FromInt32(0)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{}}}
	_, err = server.Admin.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{})
	succeeds(t, err)
	start := func() *Fairgate {
		gateway := must[*Fairgate](t)(shared.NewFairgate(FairgateOptions{Mode: "impersonate", User: user, Upstream: server.URL, Counts: true}))
		succeeds(t, gateway.Start())
		t.Cleanup(func() { _ = gateway.Stop() })
		return gateway
	}
	pods := 0
	// A pod is created, and its budget says so.
	counted := func() time.Duration {
		pods++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", pods)}, Spec: pausedPod()}
		_, err := server.Admin.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		succeeds(t, err)
		from := time.Now()
		succeeds(t, poll(2*time.Minute, 20*time.Millisecond, func() (bool, error) {
			found, err := server.Admin.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "all", metav1.GetOptions{})
			return err == nil && int(found.Status.ExpectedPods) == pods, err
		}))
		return time.Since(from)
	}
	first := start()
	alone := counted()
	second := start()
	if leads := must[float64](t)(second.Metric(ctx, "fairgate_disruption_controller_leader")); leads != 0 {
		t.Error("two fairgates count at a time")
	}
	succeeds(t, first.Stop())
	drained := counted()
	third := start()
	_ = second.running.cmd.Process.Kill()
	killed := counted()
	if leads := must[float64](t)(third.Metric(ctx, "fairgate_disruption_controller_leader")); leads != 1 {
		t.Error("the last fairgate does not count")
	}
	measured(t, "a pod counted by the only fairgate", alone.Seconds(), "s")
	measured(t, "a pod counted after the leader was drained", drained.Seconds(), "s")
	measured(t, "a pod counted after the leader was killed", killed.Seconds(), "s")
}
