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

// kubectl drains a node whose server stores pods and budgets only: fairgate counts budgets and carries evictions out. With
// evictions that wait, this takes what the replacements take; without, kubectl asks again every five seconds.
func TestKubectlDrainsANode(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := must[*Apiserver](t)(shared.StartApiserver("drained", "", controlledBedFlags...))
	ctx := inTime(t, 12*time.Minute)
	const user = "drainer"
	succeeds(t, Grant(ctx, server.Admin, user, ImpersonatorRole, PrecheckRole, EvictionRole, ControllerRole, LeaseRole))
	for _, node := range []string{"elsewhere", "waiting", "asking-again", "replaced"} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		must[*corev1.Node](t)(server.Admin.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}))
	}
	took := map[string]float64{"replaced": replacingOneByOne(ctx, t, server, "replaced", "elsewhere")}
	for name, wait := range map[string]string{"waiting": "10m", "asking-again": ""} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
		gateway := must[*Fairgate](t)(shared.NewFairgate(FairgateOptions{Mode: "impersonate", User: user, Upstream: server.URL, Eviction: "authoritative", Counts: true, Wait: wait}))
		succeeds(t, gateway.Start())
		w, err := newWorkload(ctx, server.Admin, name, name, *drainPods)
		succeeds(t, err)
		budgets := server.Admin.PolicyV1().PodDisruptionBudgets(name)
		succeeds(t, poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
			budget, err := budgets.Get(ctx, "web", metav1.GetOptions{})
			return err == nil && budget.Status.DisruptionsAllowed == 1, err
		}))
		running, stop := context.WithCancel(ctx)
		succeeds(t, w.run(running, "elsewhere"))
		from := time.Now()
		printed, err := shared.RunKubectl(ctx, gateway.Endpoint, shared.admin, "", "drain", name, "--timeout=10m")
		took[name] = time.Since(from).Seconds()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, printed)
		}
		expect(t, "node/"+name+" drained", printed)
		left := must[*corev1.PodList](t)(server.Admin.CoreV1().Pods(name).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name}))
		if len(left.Items) != 0 {
			t.Errorf("%s: %d pods remain", name, len(left.Items))
		}
		stop()
		w.group.Wait()
		if w.failed != nil || w.mostDown != 1 {
			t.Errorf("%s: %d pods were down at a time, %v", name, w.mostDown, w.failed)
		}
		succeeds(t, gateway.Stop())
	}
	// Two seconds are for kubectl, which starts, and looks once a second whether a pod is gone.
	if got, best := took["waiting"], took["replaced"]; got > 1.2*best+2 {
		t.Errorf("a drain whose evictions wait takes %.1f s, the replacements alone %.1f s", got, best)
	}
	t.Logf("DRAIN {\"pods\":%d,\"seconds\":%s}", *drainPods, asJSON(took))
}

// replacingOneByOne deletes the pods of a node, each as soon as the one before is replaced, and returns how many seconds
// that takes: no drain that keeps the budget can be faster.
func replacingOneByOne(ctx context.Context, t *testing.T, server *Apiserver, node, elsewhere string) float64 {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: node}}
	must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
	w, err := newWorkload(ctx, server.Admin, node, node, *drainPods)
	succeeds(t, err)
	pods := must[*corev1.PodList](t)(server.Admin.CoreV1().Pods(node).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}))
	from := time.Now()
	for _, pod := range pods.Items {
		w.group.Add(1)
		w.replace(ctx, pod.Name, elsewhere)
	}
	succeeds(t, w.failed)
	return time.Since(from).Seconds()
}
