package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// A scenario is a namespace on a server that only stores objects. A fairgate in front of it counts the budgets and carries
// evictions out. All requests go through that.
type scenario struct {
	t         *testing.T
	ctx       context.Context
	client    kubernetes.Interface
	namespace string
	owner     []metav1.OwnerReference
	replicas  int32 // of the owner
	pods      []string
	ready     int
}

// newScenario makes a namespace with pods of which the first are ready. They are owned by a ReplicaSet of that many
// replicas, if any are named.
func newScenario(t *testing.T, client kubernetes.Interface, replicas int32, pods, ready int) *scenario {
	t.Helper()
	s := &scenario{t: t, ctx: inTime(t, 20*time.Minute), client: client, replicas: replicas, ready: ready}
	s.namespace = must[*corev1.Namespace](t)(client.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scenario-"}}, metav1.CreateOptions{})).Name
	labels := map[string]string{"app": "web"}
	if replicas > 0 {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pausedPod()},
		}}
		set = must[*appsv1.ReplicaSet](t)(client.AppsV1().ReplicaSets(s.namespace).Create(s.ctx, set, metav1.CreateOptions{}))
		s.owner = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	for number := range pods {
		name := fmt.Sprintf("web-%d", number)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: s.owner}, Spec: pausedPod()}
		pod = must[*corev1.Pod](t)(client.CoreV1().Pods(s.namespace).Create(s.ctx, pod, metav1.CreateOptions{}))
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}
		if number < ready {
			pod.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		must[*corev1.Pod](t)(client.CoreV1().Pods(s.namespace).UpdateStatus(s.ctx, pod, metav1.UpdateOptions{}))
		s.pods = append(s.pods, name)
	}
	return s
}

func atLeast(pods string) policyv1.PodDisruptionBudgetSpec {
	bound := intstr.Parse(pods)
	return policyv1.PodDisruptionBudgetSpec{MinAvailable: &bound}
}

func atMost(pods string) policyv1.PodDisruptionBudgetSpec {
	bound := intstr.Parse(pods)
	return policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &bound}
}

// budget creates the budget of the pods, or changes its spec, and waits until it is counted.
func (s *scenario) budget(spec policyv1.PodDisruptionBudgetSpec) {
	s.t.Helper()
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budgets := s.client.PolicyV1().PodDisruptionBudgets(s.namespace)
	// Its status may be written meanwhile.
	succeeds(s.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		budget, err := budgets.Get(s.ctx, "web", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			budget = &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec}
			_, err = budgets.Create(s.ctx, budget, metav1.CreateOptions{})
		} else if err == nil {
			budget.Spec = spec
			_, err = budgets.Update(s.ctx, budget, metav1.UpdateOptions{})
		}
		return err
	}))
	s.counted()
}

// counted waits until the status of the budget is that of the present pods.
func (s *scenario) counted() {
	s.t.Helper()
	budgets := s.client.PolicyV1().PodDisruptionBudgets(s.namespace)
	succeeds(s.t, poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
		budget, err := budgets.Get(s.ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		status := budget.Status
		return status.ObservedGeneration == budget.Generation && int(status.CurrentHealthy) == s.ready && len(status.DisruptedPods) == 0, nil
	}))
}

// evict evicts the first pod, and waits until that is counted. A refusal has to be one of the budget.
func (s *scenario) evict() bool {
	s.t.Helper()
	name := s.pods[0]
	err := s.client.PolicyV1().Evictions(s.namespace).Evict(s.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}})
	_, read := s.client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	if err != nil {
		if cause, has := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); !has || !apierrors.IsTooManyRequests(err) || !strings.Contains(cause.Message, "web") {
			s.t.Fatalf("refused, but not by the budget: %v", err)
		}
		if read != nil {
			s.t.Fatalf("refused, and yet: %v", read)
		}
		return false
	}
	if !apierrors.IsNotFound(read) {
		s.t.Fatalf("evicted, and yet it is there: %v", read)
	}
	s.pods = s.pods[1:]
	s.ready = max(0, s.ready-1)
	return true
}

// evictAll evicts all pods in turn, and returns how many went.
func (s *scenario) evictAll() (evicted int) {
	s.t.Helper()
	for range len(s.pods) {
		if s.evict() {
			evicted++
			s.counted()
		} else {
			s.pods = append(s.pods[1:], s.pods[0])
		}
	}
	return evicted
}

func (s *scenario) expects(got, want any, what string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// The scenarios X1 to X9: evictions from end to end through a fairgate that counts the budgets, whether these are the
// apiserver's or hosted, and whether fairgate carries evictions out or the apiserver does.
func TestScenariosOfEvictions(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := must[*Apiserver](t)(shared.StartApiserver("scenarios", "", controlledBedFlags...))
	const user = "scenarios"
	succeeds(t, Grant(inTime(t, time.Minute), server.Admin, user, ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole, ControllerRole, LeaseRole))
	for _, options := range []FairgateOptions{
		{Eviction: "relay", Source: "files"}, {Eviction: "precheck", Source: "files"},
		{Eviction: "authoritative", Source: "files"}, {Eviction: "authoritative", Source: "overlay"},
	} {
		t.Run(options.Eviction+" "+options.Source, func(t *testing.T) {
			options.Mode, options.User, options.Upstream, options.Counts = "impersonate", user, server.URL, true
			gateway := must[*Fairgate](t)(shared.NewFairgate(options))
			succeeds(t, gateway.Start())
			client := evictingClient(t, gateway.Endpoint, shared.admin)
			for _, test := range scenarios {
				t.Run(test.name, func(t *testing.T) { test.run(t, client) })
			}
			// One counts at a time.
			if err := gateway.Stop(); err != nil || t.Failed() {
				t.Error(err, gateway.Log(60))
			}
		})
	}
}

var unhealthyPolicies = []string{"", string(policyv1.IfHealthyBudget), string(policyv1.AlwaysAllow)}

// withPolicy sets the policy for pods that are not ready; "" leaves it out.
func withPolicy(spec policyv1.PodDisruptionBudgetSpec, policy string) policyv1.PodDisruptionBudgetSpec {
	if policy != "" {
		spec.UnhealthyPodEvictionPolicy = (*policyv1.UnhealthyPodEvictionPolicyType)(&policy)
	}
	return spec
}

var scenarios = []struct {
	name string
	run  func(t *testing.T, client kubernetes.Interface)
}{
	{"X1 without a budget a pod goes", func(t *testing.T, client kubernetes.Interface) {
		s := newScenario(t, client, 0, 1, 1)
		s.expects(s.evict(), true, "evicted")
	}},
	{"X2 a number of pods stays", func(t *testing.T, client kubernetes.Interface) {
		for pods, goes := range map[int]bool{2: false, 3: true} {
			s := newScenario(t, client, 0, pods, pods)
			s.budget(atLeast("2"))
			s.expects(s.evict(), goes, fmt.Sprintf("of %d pods, evicted", pods))
		}
	}},
	{"X3 a percentage of pods stays", func(t *testing.T, client kubernetes.Interface) {
		for ready, goes := range map[int]bool{10: true, 9: false} {
			s := newScenario(t, client, 10, 10, ready)
			s.budget(atLeast("90%"))
			s.expects(s.evict(), goes, fmt.Sprintf("of %d ready pods, evicted", ready))
		}
	}},
	{"X4 a percentage of pods may be missing", func(t *testing.T, client kubernetes.Interface) {
		s := newScenario(t, client, 10, 10, 10)
		s.budget(atMost("10%"))
		s.expects(s.evictAll(), 1, "evicted")
	}},
	{"X5 pods that are not ready are missing", func(t *testing.T, client kubernetes.Interface) {
		s := newScenario(t, client, 10, 10, 9)
		s.budget(atMost("1"))
		s.expects(s.evict(), false, "evicted")
	}},
	{"X6 a changed budget decides anew", func(t *testing.T, client kubernetes.Interface) {
		s := newScenario(t, client, 3, 3, 3)
		s.budget(atLeast("3"))
		s.expects(s.evict(), false, "evicted while three have to stay")
		s.budget(atLeast("2"))
		s.expects(s.evict(), true, "evicted while two have to stay")
		s.budget(atMost("0"))
		s.expects(s.evict(), false, "evicted while none may be missing")
		succeeds(t, client.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(s.ctx, "web", metav1.DeleteOptions{}))
		s.expects(s.evict(), true, "evicted without a budget")
	}},
	{"X7 of ready pods one goes under every policy", func(t *testing.T, client kubernetes.Interface) {
		for _, policy := range unhealthyPolicies {
			s := newScenario(t, client, 3, 3, 3)
			s.budget(withPolicy(atMost("1"), policy))
			s.expects(s.evictAll(), 1, "evicted under the policy "+policy)
		}
	}},
	{"X8 pods that are never ready go if that is always allowed", func(t *testing.T, client kubernetes.Interface) {
		for index, policy := range unhealthyPolicies {
			s := newScenario(t, client, 3, 3, 0)
			s.budget(withPolicy(atMost("1"), policy))
			s.expects(s.evictAll(), []int{0, 0, 3}[index], "evicted under the policy "+policy)
		}
	}},
	{"X9 budgets are listed over namespaces and deleted in one", func(t *testing.T, client kubernetes.Interface) {
		here, there := newScenario(t, client, 0, 0, 0), newScenario(t, client, 0, 0, 0)
		labels := map[string]string{"for": here.namespace}
		for namespace, names := range map[string][]string{here.namespace: {"a", "b"}, there.namespace: {"c"}} {
			for _, name := range names {
				budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: atLeast("1")}
				must[*policyv1.PodDisruptionBudget](t)(client.PolicyV1().PodDisruptionBudgets(namespace).Create(here.ctx, budget, metav1.CreateOptions{}))
			}
		}
		selected := metav1.ListOptions{LabelSelector: "for=" + here.namespace}
		listed := func(namespace string) []string {
			list := must[*policyv1.PodDisruptionBudgetList](t)(client.PolicyV1().PodDisruptionBudgets(namespace).List(here.ctx, selected))
			var names []string
			for _, budget := range list.Items {
				names = append(names, budget.Name)
			}
			slices.Sort(names)
			return names
		}
		here.expects(strings.Join(listed(""), " "), "a b c", "in all namespaces")
		here.expects(strings.Join(listed(here.namespace), " "), "a b", "in one namespace")
		succeeds(t, client.PolicyV1().PodDisruptionBudgets(here.namespace).DeleteCollection(here.ctx, metav1.DeleteOptions{}, selected))
		here.expects(len(listed(here.namespace)), 0, "left")
		here.expects(strings.Join(listed(""), " "), "c", "left in all namespaces")
	}},
}
