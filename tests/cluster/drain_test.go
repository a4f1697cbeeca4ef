package cluster

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

var drainPods = flag.Int("drain-pods", 6, "pods of the nodes that kubectl drains")

// How long a pod of these tests takes to end, and its replacement to become ready.
const (
	podEnds   = 200 * time.Millisecond
	podStarts = 300 * time.Millisecond
)

// drainBesideReplacements is how long a drain whose evictions wait should take, by replacements one by one of as many pods. Of
// the three seconds that these take, two more are for kubectl, which starts, and looks once a second whether a pod is gone.
const drainBesideReplacements = 2

// A workload is pods of a ReplicaSet with a budget of one disruption. It stands in for kubelet and ReplicaSet controller,
// neither of which runs: it removes pods that are being deleted, and makes ready ones in their place.
type workload struct {
	admin     kubernetes.Interface
	namespace string
	owner     metav1.OwnerReference
	group     sync.WaitGroup
	mutex     sync.Mutex
	made      int
	down      int // pods that are gone or going, and not replaced yet
	mostDown  int
	failed    error
}

func newWorkload(ctx context.Context, admin kubernetes.Interface, namespace, node string, count int) (*workload, error) {
	w := &workload{admin: admin, namespace: namespace}
	labels, replicas := map[string]string{"app": "web"}, int32(count)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pausedPod()},
	}}
	set, err := admin.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	w.owner = *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	for range count {
		if err := w.makePod(ctx, node); err != nil {
			return nil, err
		}
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	_, err = admin.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{})
	return w, err
}

// makePod makes a pod that is ready.
func (w *workload) makePod(ctx context.Context, node string) error {
	w.mutex.Lock()
	w.made++
	name := fmt.Sprintf("web-%d", w.made)
	w.mutex.Unlock()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}, OwnerReferences: []metav1.OwnerReference{w.owner}}, Spec: pausedPod()}
	pod.Spec.NodeName = node
	pods := w.admin.CoreV1().Pods(w.namespace)
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// run replaces pods on another node until ctx ends.
func (w *workload) run(ctx context.Context, node string) error {
	watching, err := w.admin.CoreV1().Pods(w.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.group.Add(1)
	go func() {
		defer w.group.Done()
		defer watching.Stop()
		going := map[string]bool{}
		for event := range watching.ResultChan() {
			pod, is := event.Object.(*corev1.Pod)
			if !is || going[pod.Name] || (event.Type != watch.Deleted && pod.DeletionTimestamp == nil) {
				continue
			}
			going[pod.Name] = true
			w.group.Add(1)
			go w.replace(ctx, pod.Name, node)
		}
	}()
	return nil
}

func (w *workload) replace(ctx context.Context, name, node string) {
	defer w.group.Done()
	w.mutex.Lock()
	w.down++
	w.mostDown = max(w.mostDown, w.down)
	w.mutex.Unlock()
	none := int64(0)
	time.Sleep(podEnds) // as its containers would
	err := w.admin.CoreV1().Pods(w.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	time.Sleep(podStarts) // as its containers would
	if err == nil {
		// Before it is ready, lest the eviction that follows is counted as one too many.
		w.mutex.Lock()
		w.down--
		w.mutex.Unlock()
		err = w.makePod(ctx, node)
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if err != nil && ctx.Err() == nil {
		w.failed = err
	}
}

// A drain whose evictions wait asks once for each pod: none is refused for lack of budget and sent again.
func TestADrainWhoseEvictionsWaitAsksOnceForEachPod(t *testing.T) {
	aboutFairgate(t)
	if !*measuring {
		t.Parallel() // times are compared otherwise
	}
	d := newDrainBed(inTime(t, 12*time.Minute), t, "drained")
	rounds := 1
	if *measuring {
		rounds = leastPairs
	}
	var drains, controls []time.Duration
	for round := range rounds {
		if *measuring {
			controls = append(controls, d.replaceOneByOne(t, fmt.Sprintf("replaced-%d", round)))
		}
		got := d.drain(t, fmt.Sprintf("waiting-%d", round), "10m")
		if got.granted != float64(*drainPods) || got.others != 0 {
			t.Errorf("of %d pods %v evictions were granted, and %v ended otherwise", *drainPods, got.granted, got.others)
		}
		drains = append(drains, got.took)
	}
	measuredTimes(t, fmt.Sprintf("drain of %d pods, evictions wait", *drainPods), drains)
	if *measuring {
		measuredTimes(t, fmt.Sprintf("control: %d pods replaced one by one", *drainPods), controls)
		measuredBeside(t, fmt.Sprintf("drain of %d pods, evictions wait, by replacements one by one", *drainPods), drains, controls, drainBesideReplacements)
	}
}

// Where evictions do not wait, the budget refuses them, and kubectl asks again every five seconds.
func TestKubectlDrainsANodeByAskingAgain(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	d := newDrainBed(inTime(t, 12*time.Minute), t, "drained-by-asking")
	got := d.drain(t, "asking-again", "")
	if got.granted != float64(*drainPods) || got.others == 0 {
		t.Errorf("of %d pods %v evictions were granted, and %v refused", *drainPods, got.granted, got.others)
	}
	measured(t, fmt.Sprintf("drain of %d pods, kubectl asks again", *drainPods), got.took.Seconds(), "s")
}

// A drainBed is a server that stores pods and budgets only: fairgate counts budgets and carries evictions out.
type drainBed struct {
	ctx    context.Context
	server *Apiserver
	user   string
}

const replacementsNode = "elsewhere"

func newDrainBed(ctx context.Context, t *testing.T, name string) *drainBed {
	t.Helper()
	server := must[*Apiserver](t)(shared.StartApiserver(name, "", controlledBedFlags...))
	d := &drainBed{ctx: ctx, server: server, user: "drainer"}
	succeeds(t, Grant(ctx, server.Admin, d.user, ImpersonatorRole, PrecheckRole, EvictionRole, ControllerRole, LeaseRole))
	d.addNode(t, replacementsNode)
	return d
}

func (d *drainBed) addNode(t *testing.T, name string) {
	t.Helper()
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must[*corev1.Node](t)(d.server.Admin.CoreV1().Nodes().Create(d.ctx, object, metav1.CreateOptions{}))
}

// load makes a node, and a namespace of the same name whose workload runs on that node.
func (d *drainBed) load(t *testing.T, node string) *workload {
	t.Helper()
	d.addNode(t, node)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: node}}
	must[*corev1.Namespace](t)(d.server.Admin.CoreV1().Namespaces().Create(d.ctx, namespace, metav1.CreateOptions{}))
	w, err := newWorkload(d.ctx, d.server.Admin, node, node, *drainPods)
	succeeds(t, err)
	return w
}

// pods lists what runs on a node that load made.
func (d *drainBed) pods(t *testing.T, node string) []corev1.Pod {
	t.Helper()
	list := metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}
	return must[*corev1.PodList](t)(d.server.Admin.CoreV1().Pods(node).List(d.ctx, list)).Items
}

// A drainResult is how a gateway answered the evictions of a drain, and how long that took.
type drainResult struct {
	granted, others float64
	took            time.Duration
}

// drain lets kubectl drain a new node through a gateway whose evictions wait for at most wait.
func (d *drainBed) drain(t *testing.T, node, wait string) drainResult {
	t.Helper()
	w := d.load(t, node)
	gateway := must[*Fairgate](t)(shared.NewFairgate(FairgateOptions{Mode: "impersonate", User: d.user, Upstream: d.server.URL, Eviction: "authoritative", Counts: true, Wait: wait}))
	succeeds(t, gateway.Start())
	budgets := d.server.Admin.PolicyV1().PodDisruptionBudgets(node)
	succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		budget, err := budgets.Get(d.ctx, "web", metav1.GetOptions{})
		return err == nil && budget.Status.DisruptionsAllowed == 1, err
	}))
	running, stop := context.WithCancel(d.ctx)
	defer stop()
	succeeds(t, w.run(running, replacementsNode))
	from := time.Now()
	printed, err := shared.RunKubectl(d.ctx, gateway.Endpoint, shared.admin, "", "drain", node, "--timeout=10m")
	result := drainResult{took: time.Since(from)}
	if err != nil {
		t.Errorf("%s: %v\n%s", node, err, printed)
	}
	expect(t, "node/"+node+" drained", printed)
	if left := d.pods(t, node); len(left) != 0 {
		t.Errorf("%s: %d pods remain", node, len(left))
	}
	stop()
	w.group.Wait()
	if w.failed != nil || w.mostDown != 1 {
		t.Errorf("%s: %d pods were down at a time, %v", node, w.mostDown, w.failed)
	}
	d.expectEvents(t, node, wait)
	all := must[float64](t)(gateway.Sum(d.ctx, "fairgate_evictions_total"))
	result.granted = must[float64](t)(gateway.Sum(d.ctx, "fairgate_evictions_total", `outcome="granted"`))
	result.others = all - result.granted
	succeeds(t, gateway.Stop())
	return result
}

// expectEvents looks at what kubectl shows after a drain: an event on the budget if its evictions waited, and otherwise none.
func (d *drainBed) expectEvents(t *testing.T, namespace, wait string) {
	t.Helper()
	const columns = "-ojsonpath={range .items[*]}{.reportingComponent} {.type} {.involvedObject.kind}/{.involvedObject.name}: {.message}{\"\\n\"}{end}"
	printed := must[string](t)(shared.RunKubectl(d.ctx, d.server.Endpoint, shared.admin, "", "get", "events", "-n", namespace, "--field-selector=reason=EvictionsWaiting", columns))
	if wait == "" {
		if printed != "" {
			t.Errorf("no eviction waits, and there are events:\n%s", printed)
		}
		return
	}
	// Why, in a server's words: which of them depends on what the controller has counted by then.
	expect(t, "fairgate Normal PodDisruptionBudget/web: The disruption budget web ", printed)
	expect(t, "Evictions of its pods wait until it allows them, for up to 10m0s each; requested by ", printed)
}

// replaceOneByOne deletes the pods of a new node, each as soon as the one before is replaced, and returns how long
// that takes: no drain that keeps the budget can be faster.
func (d *drainBed) replaceOneByOne(t *testing.T, node string) time.Duration {
	t.Helper()
	w := d.load(t, node)
	pods := d.pods(t, node)
	from := time.Now()
	for _, pod := range pods {
		w.group.Add(1)
		w.replace(d.ctx, pod.Name, replacementsNode)
	}
	succeeds(t, w.failed)
	return time.Since(from)
}
