package cluster

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	disruptionSteps = flag.Int("disruption-steps", 320, "random steps after which budgets are compared with those of kube-controller-manager")
	disruptionSeed  = flag.Uint64("disruption-seed", 1, "what they are drawn by")
)

// Every status that the disruption controllers of fairgate and of kube-controller-manager settle on is equal, whatever
// happens to pods, their owners and budgets. Times of transitions are excepted.
func TestBudgetsAreCountedAsByTheControllerManager(t *testing.T) {
	aboutFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, 13*time.Minute)
	original := must[*Apiserver](t)(shared.StartApiserver("counted-by-original", "", controlledBedFlags...))
	ours := must[*Apiserver](t)(shared.StartApiserver("counted-by-fairgate", "", controlledBedFlags...))
	const user = "budget-counter"
	succeeds(t, Grant(ctx, ours.Admin, user, ImpersonatorRole, ControllerRole, LeaseRole))
	const workers = 5
	pairs := make([][2]*controlledSide, workers)
	for index, server := range []*Apiserver{original, ours} {
		objects, err := shared.DefineOwners(ctx, server)
		succeeds(t, err)
		for worker := range workers {
			name := fmt.Sprintf("world-%d", worker)
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
			pairs[worker][index] = &controlledSide{name: server.Name, namespace: name, admin: server.Admin, objects: objects, uids: map[string]types.UID{}}
		}
	}
	must[*process](t)(shared.StartControllerManager(original.Endpoint, disruptionController))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: ours.URL, Counts: true})
	succeeds(t, gateway.Start())

	var compared, repeated atomic.Int64
	var mutex sync.Mutex
	drawn := map[string]int{}
	var group sync.WaitGroup
	for worker, pair := range pairs {
		group.Add(1)
		go func() {
			defer group.Done()
			world := &disruptionWorld{random: rand.New(rand.NewPCG(*disruptionSeed, uint64(worker))), steps: map[string]int{}}
			for number := range *disruptionSteps / workers {
				name, step := world.draw()
				for _, side := range pair {
					if err := step(ctx, side); err != nil {
						t.Errorf("world %d, step %d, %s on %s: %v", worker, number, name, side.name, err)
						return
					}
				}
				counts, attempts, err := settleAlike(ctx, pair, world.budgets, false)
				if err != nil {
					t.Errorf("world %d, step %d, %s: %v", worker, number, name, err)
					return
				}
				compared.Add(int64(counts))
				repeated.Add(int64(attempts - 1))
			}
			mutex.Lock()
			defer mutex.Unlock()
			for name, count := range world.steps {
				drawn[name] += count
			}
		}()
	}
	group.Wait()
	compareFailures(t, ctx, original, ours)
	reasons := [2][]string{eventReasons(t, ctx, original), eventReasons(t, ctx, ours)}
	if !slices.Equal(reasons[0], reasons[1]) {
		t.Errorf("events of kube-controller-manager: %v, of fairgate: %v", reasons[0], reasons[1])
	}
	t.Logf("DISRUPTION {\"steps\":%s,\"statuses\":%d,\"repeated\":%d,\"events\":%s}", asJSON(drawn), compared.Load(), repeated.Load(), asJSON(reasons[1]))
}

// settleAlike has both controllers compute all budgets anew, and waits until they agree. It returns how many statuses were
// compared, and how often it had to ask: neither controller computes anything when only a scale has changed, so one that
// has not heard of a new scale yet has to be asked again. Of a budget that cannot be computed the message is compared only
// withMessages: if several pods are to blame, it is about any of them.
func settleAlike(ctx context.Context, pair [2]*controlledSide, budgets []string, withMessages bool) (int, int, error) {
	const attempts = 8
	var last error
	for attempt := 1; attempt <= attempts; attempt++ {
		for _, side := range pair {
			for _, name := range budgets {
				err := side.changeStatus(ctx, name, func(status *policyv1.PodDisruptionBudgetStatus) {
					kept := status.DisruptedPods
					*status = policyv1.PodDisruptionBudgetStatus{DisruptedPods: kept, Conditions: []metav1.Condition{{
						Type: "test.fairgate.dev/Kept", Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Unix(1700000000, 0)),
					}}}
				})
				if err != nil {
					return 0, attempt, fmt.Errorf("status of %s on %s: %w", name, side.name, err)
				}
			}
		}
		last = poll(10*time.Second, 10*time.Millisecond, func() (bool, error) {
			var found [2]map[string]any
			for index, side := range pair {
				var err error
				if found[index], err = side.settled(ctx, withMessages); err != nil {
					return false, err
				}
			}
			return len(found[0]) >= len(budgets) && reflect.DeepEqual(found[0], found[1]), nil
		})
		if last == nil {
			return len(budgets), attempt, nil
		}
		if ctx.Err() != nil {
			return 0, attempt, ctx.Err()
		}
		var found [2]map[string]any
		for index, side := range pair {
			found[index], _ = side.settled(ctx, withMessages)
		}
		last = fmt.Errorf("%w\nkube-controller-manager: %s\nfairgate:                %s", last, asJSON(found[0]), asJSON(found[1]))
	}
	return 0, attempts, fmt.Errorf("the controllers do not agree: %w", last)
}

// settled are the statuses that the controller has computed, and the conditions of pods that it resets, without times.
func (s *controlledSide) settled(ctx context.Context, withMessages bool) (map[string]any, error) {
	budgets, err := s.admin.PolicyV1().PodDisruptionBudgets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := map[string]any{}
	for _, budget := range budgets.Items {
		isComputed := false
		for index := range budget.Status.Conditions {
			condition := &budget.Status.Conditions[index]
			isComputed = isComputed || condition.Type == policyv1.DisruptionAllowedCondition
			condition.LastTransitionTime = metav1.Time{}
			if condition.Reason == policyv1.SyncFailedReason && !withMessages {
				condition.Message = ""
			}
		}
		if isComputed {
			found[budget.Name] = budget.Status
		}
	}
	pods, err := s.admin.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.DisruptionTarget {
				found["pod "+pod.Name] = fmt.Sprint(condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	return found, nil
}

// eventReasons are kind and reason of all events about disruptions.
func eventReasons(t *testing.T, ctx context.Context, at *Apiserver) []string {
	t.Helper()
	events := must[*corev1.EventList](t)(at.Admin.CoreV1().Events("").List(ctx, metav1.ListOptions{}))
	found := map[string]bool{}
	for _, event := range events.Items {
		if event.Source.Component == "controllermanager" {
			found[event.InvolvedObject.APIVersion+" "+event.InvolvedObject.Kind+" "+event.Type+" "+event.Reason+" "+event.ReportingController] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// emptyBudget is a budget without pods.
const emptyBudget = "none"

// createOccasions creates what further events are about: a pod of two budgets, one whose eviction was granted and never
// happened, and a budget without pods.
func createOccasions(t *testing.T, ctx context.Context, side *controlledSide) []string {
	t.Helper()
	names := []string{"double-a", "double-b", "late", emptyBudget}
	bound := intstr.FromInt32(0)
	for _, name := range names {
		labels := map[string]string{"kind": name[:4]}
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &bound, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
		_, err := side.admin.PolicyV1().PodDisruptionBudgets(side.namespace).Create(ctx, budget, metav1.CreateOptions{})
		succeeds(t, err)
	}
	for _, label := range []string{"doub", "late"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + label, Labels: map[string]string{"kind": label}}, Spec: pausedPod()}
		_, err := side.admin.CoreV1().Pods(side.namespace).Create(ctx, pod, metav1.CreateOptions{})
		succeeds(t, err)
	}
	// The controllers learn of the entry after they know the pod, else it would be dropped without an event.
	succeeds(t, poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
		budget, err := side.admin.PolicyV1().PodDisruptionBudgets(side.namespace).Get(ctx, "late", metav1.GetOptions{})
		return err == nil && budget.Status.ExpectedPods == 1, err
	}))
	succeeds(t, side.changeStatus(ctx, "late", func(status *policyv1.PodDisruptionBudgetStatus) {
		status.DisruptedPods = map[string]metav1.Time{"pod-late": metav1.NewTime(time.Now().Add(-3 * time.Minute))}
	}))
	// The other pod changes once more, now that both of its budgets are known.
	succeeds(t, side.setReady(ctx, "pod-doub", true))
	return names
}

// compareFailures compares what budgets and events say about budgets that cannot be computed, each because of one pod, or
// whose pod has no owner.
func compareFailures(t *testing.T, ctx context.Context, original, ours *Apiserver) {
	t.Helper()
	const namespace = "failures"
	unknown := func(apiVersion, kind string) drawnOwner {
		return drawnOwner{name: "nobody", apiVersion: apiVersion, kind: kind}
	}
	owners := []drawnOwner{
		unknown("v1", "ReplicationController"), unknown("apps/v1", "ReplicaSet"), unknown("extensions/v1beta1", "ReplicaSet"),
		unknown("apps/v1", "Deployment"), unknown("apps/v1", "StatefulSet"), unknown("apps/v1", "DaemonSet"), unknown("batch/v1", "Job"),
		unknown("v1", "Node"), unknown("v1", "ReplicaSet"), unknown("apps/v1", "ReplicationController"), unknown("apps/v7", "StatefulSet"),
		unknown("test.fairgate.dev/v1", "Widget"), unknown("test.fairgate.dev/v1", "Gadget"), unknown("test.fairgate.dev/v1", "Gizmo"),
		unknown("test.fairgate.dev/v2", "Widget"), unknown("unknown.fairgate.dev/v1", "TestWorkload"), {},
	}
	var pair [2]*controlledSide
	var budgets []string
	for index, server := range []*Apiserver{original, ours} {
		side := &controlledSide{name: server.Name, namespace: namespace, admin: server.Admin, uids: map[string]types.UID{}}
		pair[index] = side
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}))
		budgets = nil
		for number, owner := range owners {
			name := fmt.Sprintf("failure-%d", number)
			labels := map[string]string{"failure": name}
			bound := intstr.FromInt32(1)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: pausedPod()}
			if owner.name != "" {
				pod.OwnerReferences = []metav1.OwnerReference{side.reference(owner)}
			}
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &bound, Selector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "failure", Operator: metav1.LabelSelectorOpIn, Values: []string{"other", name}}, {Key: "failure", Operator: metav1.LabelSelectorOpExists}}}}}
			_, err := server.Admin.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			succeeds(t, err)
			_, err = server.Admin.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{})
			succeeds(t, err)
			budgets = append(budgets, name)
		}
		budgets = append(budgets, createOccasions(t, ctx, side)...)
	}
	if _, _, err := settleAlike(ctx, pair, budgets, true); err != nil {
		t.Errorf("failures: %v", err)
	}
	var found [2][]string
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		for index, side := range pair {
			events, err := side.admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			texts := map[string]bool{}
			for _, event := range events.Items {
				if event.Reason == "NoPods" && event.InvolvedObject.Name != emptyBudget {
					continue // the controller came to know the budget before its pod
				}
				// Which of several budgets the original chooses is up to its cache.
				message := strings.ReplaceAll(event.Message, `Chose "double-b"`, `Chose "double-a"`)
				// The original names the namespace twice, fairgate the budget.
				message = strings.ReplaceAll(message, "by PDB "+namespace+"/"+namespace+" to", "by PDB "+namespace+"/late to")
				texts[event.InvolvedObject.Kind+" "+event.InvolvedObject.Name+" "+event.Type+" "+event.Reason+": "+message] = true
			}
			found[index] = slices.Sorted(maps.Keys(texts))
		}
		// One about each failure and each of the three occasions.
		return len(found[0]) == len(owners)+3 && slices.Equal(found[0], found[1]), nil
	})
	if err != nil {
		t.Errorf("events of failures: %v\nkube-controller-manager: %s\nfairgate:                %s", err, asJSON(found[0]), asJSON(found[1]))
	}
}
