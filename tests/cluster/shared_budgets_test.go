package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

const (
	hostedPods    = 50
	hostedAllowed = 10
)

var leaseOfAnEtcd = regexp.MustCompile(`fairgate-disruption-controller-[0-9a-f]{8}`)

// hostedBudgets is a namespace whose budget two fairgates host in one etcd.
type hostedBudgets struct {
	t         *testing.T
	ctx       context.Context
	server    *Apiserver
	gateways  []*Fairgate
	admins    []kubernetes.Interface // of each gateway
	made      int
	namespace string
}

// Two fairgates host a budget in one etcd, with the shipped roles alone: one of them counts it, both evict by it, and
// exactly as many pods go as it allows. After the one that counts was restarted, pods are still counted; when the namespace is
// deleted, so is the budget.
func TestTwoFairgatesHostBudgetsInOneEtcd(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	h := &hostedBudgets{t: t, ctx: inTime(t, 4*time.Minute)}
	h.server = must[*Apiserver](t)(shared.StartApiserver("hosted-budgets", "", controlledBedFlags...))
	const user = "shares-budgets"
	succeeds(t, Grant(h.ctx, h.server.Admin, user, ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole, ControllerRole, LeaseRole))
	namespace, drainer := evictionNamespace(t, h.ctx, h.server, "hosted-in-etcd")
	h.namespace = namespace
	var drainers []kubernetes.Interface
	for range 2 {
		gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", Source: "overlay", User: user, Upstream: h.server.URL, Eviction: "authoritative", Counts: true, Prefix: "/of-fairgate-" + namespace})
		succeeds(t, gateway.Start())
		h.gateways = append(h.gateways, gateway)
		h.admins = append(h.admins, evictingClient(t, gateway.Endpoint, shared.admin))
		drainers = append(drainers, evictingClient(t, gateway.Endpoint, drainer))
	}
	h.grantLease(user)
	least := intstr.FromInt32(hostedPods - hostedAllowed)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{}}}
	must[*policyv1.PodDisruptionBudget](t)(h.admins[0].PolicyV1().PodDisruptionBudgets(h.namespace).Create(h.ctx, budget, metav1.CreateOptions{}))
	for range hostedPods {
		h.makePod()
	}
	h.awaits(hostedAllowed, hostedPods)
	if granted := h.evictAll(drainers); granted != hostedAllowed {
		t.Errorf("%d evictions were granted, want %d", granted, hostedAllowed)
	}
	h.awaits(0, hostedPods-hostedAllowed)

	h.restartLeader()
	h.makePod()
	h.awaits(1, hostedPods-hostedAllowed+1)
	if granted := h.evictAll(drainers); granted != 1 {
		t.Errorf("%d evictions were granted after the leader was restarted, want 1", granted)
	}
	succeeds(t, h.server.Admin.CoreV1().Namespaces().Delete(h.ctx, h.namespace, metav1.DeleteOptions{}))
	succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		left, err := h.admins[0].PolicyV1().PodDisruptionBudgets("").List(h.ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 0, err
	}))
}

// grantLease adds the name of the lease that the gateways log to the shipped role, as that says.
func (h *hostedBudgets) grantLease(user string) {
	h.t.Helper()
	name := ""
	succeeds(h.t, poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		name = leaseOfAnEtcd.FindString(h.gateways[0].Log(200))
		return name != "", nil
	}))
	role := must[*rbacv1.ClusterRole](h.t)(LeaseRole.Read())
	for index := range role.Rules {
		if role.Rules[index].ResourceNames != nil {
			role.Rules[index].ResourceNames = []string{name}
		}
	}
	succeeds(h.t, GrantRules(h.ctx, h.server.Admin, user, user+":lease", role.Rules))
}

// makePod makes a pod that is ready.
func (h *hostedBudgets) makePod() {
	h.t.Helper()
	h.made++
	pods := h.server.Admin.CoreV1().Pods(h.namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", h.made)}, Spec: pausedPod()}
	pod = must[*corev1.Pod](h.t)(pods.Create(h.ctx, pod, metav1.CreateOptions{}))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	must[*corev1.Pod](h.t)(pods.UpdateStatus(h.ctx, pod, metav1.UpdateOptions{}))
}

// awaits waits until each gateway says that the budget allows so many disruptions of so many healthy pods.
func (h *hostedBudgets) awaits(allowed, healthy int32) {
	h.t.Helper()
	for _, admin := range h.admins {
		var last policyv1.PodDisruptionBudgetStatus
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			budget, err := admin.PolicyV1().PodDisruptionBudgets(h.namespace).Get(h.ctx, "all", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			last = budget.Status
			return last.DisruptionsAllowed == allowed && last.CurrentHealthy == healthy && len(last.DisruptedPods) == 0, nil
		})
		if err != nil {
			h.t.Fatalf("%v: %s", err, asJSON(last))
		}
	}
}

// evictAll evicts all pods at once, through the gateways by turns, and returns how many evictions were granted.
func (h *hostedBudgets) evictAll(drainers []kubernetes.Interface) int {
	h.t.Helper()
	list := must[*corev1.PodList](h.t)(h.server.Admin.CoreV1().Pods(h.namespace).List(h.ctx, metav1.ListOptions{}))
	var granted atomic.Int64
	var group sync.WaitGroup
	for index, pod := range list.Items {
		group.Go(func() {
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: h.namespace}}
			for {
				err := drainers[index%len(drainers)].PolicyV1().Evictions(h.namespace).Evict(h.ctx, eviction)
				if err == nil {
					granted.Add(1)
				} else if !apierrors.IsTooManyRequests(err) {
					h.t.Errorf("%s: %v", pod.Name, err)
				} else if strings.Contains(fmt.Sprint(asStatus(err)), "still being processed") {
					continue
				}
				return
			}
		})
	}
	group.Wait()
	left := must[*corev1.PodList](h.t)(h.server.Admin.CoreV1().Pods(h.namespace).List(h.ctx, metav1.ListOptions{}))
	if gone := len(list.Items) - len(left.Items); gone != int(granted.Load()) {
		h.t.Errorf("%d pods are gone, %d evictions were granted", gone, granted.Load())
	}
	return int(granted.Load())
}

// restartLeader restarts the one gateway that counts. All are asked first: the other takes over as soon as it has stopped.
func (h *hostedBudgets) restartLeader() {
	h.t.Helper()
	var leaders []*Fairgate
	for _, gateway := range h.gateways {
		if must[float64](h.t)(gateway.Metric(h.ctx, "fairgate_disruption_controller_leader")) == 1 {
			leaders = append(leaders, gateway)
		}
	}
	if len(leaders) != 1 {
		h.t.Fatalf("%d fairgates count budgets, want 1", len(leaders))
	}
	succeeds(h.t, leaders[0].Restart())
}
