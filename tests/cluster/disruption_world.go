package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// A controlledSide is a namespace of a server on which somebody computes budgets. The same steps are played on two of them.
type controlledSide struct {
	name      string
	namespace string
	admin     kubernetes.Interface
	objects   dynamic.Interface
	uids      map[string]types.UID // of the owners, by name
}

// A disruptionWorld draws steps. It knows what there is on both sides alike.
type disruptionWorld struct {
	random  *rand.Rand
	owners  []drawnOwner
	pods    []string
	held    []string // pods with a finalizer that are being deleted
	budgets []string
	count   int
	steps   map[string]int // how many of each kind were drawn
}

type drawnOwner struct {
	name, apiVersion, kind string
	above                  string // the Deployment of a ReplicaSet
	scales                 bool
}

// A disruptionStep is played on each side.
type disruptionStep func(ctx context.Context, s *controlledSide) error

const heldBack = "test.fairgate.dev/held"

// draw draws a step and its name.
func (w *disruptionWorld) draw() (string, disruptionStep) {
	name, step := w.drawOne()
	w.steps[name]++
	return name, step
}

func (w *disruptionWorld) drawOne() (string, disruptionStep) {
	w.count++
	switch pick := w.random.IntN(100); {
	case len(w.budgets) == 0 || pick < 12:
		return w.setBudget()
	case len(w.owners) == 0 || pick < 24:
		return w.createOwner()
	case len(w.pods) == 0 || pick < 48:
		return w.createPod()
	case pick < 58:
		return w.scale()
	case pick < 72:
		return w.changePod()
	case pick < 80:
		return w.deletePod()
	case pick < 84:
		return w.release()
	case pick < 88:
		return w.deleteOwner()
	case pick < 91:
		return w.deleteBudget()
	case pick < 96:
		return w.disrupt()
	default:
		return w.target()
	}
}

func pickOne[T any](random *rand.Rand, from []T) T {
	return from[random.IntN(len(from))]
}

func (w *disruptionWorld) replicas() int32 { return int32(w.random.IntN(12)) }

func (w *disruptionWorld) label() map[string]string {
	return map[string]string{"app": pickOne(w.random, []string{"a", "b", "c"}), "tier": pickOne(w.random, []string{"x", "y"})}
}

func (w *disruptionWorld) createOwner() (string, disruptionStep) {
	owner := drawnOwner{name: fmt.Sprintf("owner-%d", w.count), apiVersion: "apps/v1", scales: true}
	replicas := w.replicas()
	labels := map[string]string{"owner": owner.name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pausedPod()}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	meta := metav1.ObjectMeta{Name: owner.name}
	var create disruptionStep
	kind := pickOne(w.random, []string{"ReplicationController", "ReplicaSet", "ReplicaSet", "Deployment", "Deployment", "StatefulSet", "DaemonSet", "Job", "Widget", "Widget", "Gadget"})
	switch kind {
	case "ReplicationController":
		owner.apiVersion, owner.kind = "v1", kind
		create = func(ctx context.Context, s *controlledSide) error {
			made, err := s.admin.CoreV1().ReplicationControllers(s.namespace).Create(ctx, &corev1.ReplicationController{ObjectMeta: meta,
				Spec: corev1.ReplicationControllerSpec{Replicas: &replicas, Selector: labels, Template: &template}}, metav1.CreateOptions{})
			return s.made(owner.name, made, err)
		}
	case "ReplicaSet", "Deployment":
		owner.kind = "ReplicaSet"
		if kind == "Deployment" {
			owner.above = owner.name + "-deployment"
		}
		own := w.replicas()
		create = func(ctx context.Context, s *controlledSide) error {
			set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &own, Selector: selector, Template: template}}
			if owner.above != "" {
				deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: owner.above}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template}}
				above, err := s.admin.AppsV1().Deployments(s.namespace).Create(ctx, deployment, metav1.CreateOptions{})
				if err := s.made(owner.above, above, err); err != nil {
					return err
				}
				set.OwnerReferences = []metav1.OwnerReference{s.reference(drawnOwner{name: owner.above, apiVersion: "apps/v1", kind: "Deployment"})}
			}
			made, err := s.admin.AppsV1().ReplicaSets(s.namespace).Create(ctx, set, metav1.CreateOptions{})
			return s.made(owner.name, made, err)
		}
	case "StatefulSet":
		owner.kind = kind
		create = func(ctx context.Context, s *controlledSide) error {
			made, err := s.admin.AppsV1().StatefulSets(s.namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta,
				Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: template}}, metav1.CreateOptions{})
			return s.made(owner.name, made, err)
		}
	case "DaemonSet":
		owner.kind, owner.scales = kind, false
		create = func(ctx context.Context, s *controlledSide) error {
			made, err := s.admin.AppsV1().DaemonSets(s.namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta,
				Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
			return s.made(owner.name, made, err)
		}
	case "Job":
		owner.apiVersion, owner.kind, owner.scales = "batch/v1", kind, false
		create = func(ctx context.Context, s *controlledSide) error {
			job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pausedPod()}}}
			job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
			made, err := s.admin.BatchV1().Jobs(s.namespace).Create(ctx, job, metav1.CreateOptions{})
			return s.made(owner.name, made, err)
		}
	default:
		resource := widgets
		if kind == "Gadget" {
			resource = gadgets
		}
		owner.apiVersion, owner.kind, owner.scales = resource.GroupVersion().String(), kind, kind == "Widget"
		if w.random.IntN(3) == 0 {
			owner.apiVersion = resource.Group + "/" + olderVersion
		}
		create = func(ctx context.Context, s *controlledSide) error {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind,
				"metadata": map[string]any{"name": owner.name}, "spec": map[string]any{"replicas": int64(replicas)}}}
			made, err := s.objects.Resource(resource).Namespace(s.namespace).Create(ctx, object, metav1.CreateOptions{})
			return s.made(owner.name, made, err)
		}
	}
	w.owners = append(w.owners, owner)
	return "create " + kind, create
}

// scale changes how many replicas an owner wants.
func (w *disruptionWorld) scale() (string, disruptionStep) {
	owner := pickOne(w.random, w.owners)
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, w.replicas())
	return "scale " + owner.kind, func(ctx context.Context, s *controlledSide) error {
		var err error
		merge := types.MergePatchType
		switch {
		case !owner.scales:
		case owner.above != "":
			_, err = s.admin.AppsV1().Deployments(s.namespace).Patch(ctx, owner.above, merge, patch, metav1.PatchOptions{})
		case owner.kind == "ReplicationController":
			_, err = s.admin.CoreV1().ReplicationControllers(s.namespace).Patch(ctx, owner.name, merge, patch, metav1.PatchOptions{})
		case owner.kind == "ReplicaSet":
			_, err = s.admin.AppsV1().ReplicaSets(s.namespace).Patch(ctx, owner.name, merge, patch, metav1.PatchOptions{})
		case owner.kind == "StatefulSet":
			_, err = s.admin.AppsV1().StatefulSets(s.namespace).Patch(ctx, owner.name, merge, patch, metav1.PatchOptions{})
		case owner.kind == "Widget":
			_, err = s.objects.Resource(widgets).Namespace(s.namespace).Patch(ctx, owner.name, merge, patch, metav1.PatchOptions{})
		}
		return ifThere(err)
	}
}

// deleteOwner leaves the pods of an owner behind.
func (w *disruptionWorld) deleteOwner() (string, disruptionStep) {
	owner := pickOne(w.random, w.owners)
	onlyAbove := owner.above != "" && w.random.IntN(2) == 0
	orphan := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &orphan}
	return "delete " + owner.kind, func(ctx context.Context, s *controlledSide) error {
		var err error
		switch {
		case onlyAbove:
			err = s.admin.AppsV1().Deployments(s.namespace).Delete(ctx, owner.above, options)
		case owner.kind == "ReplicationController":
			err = s.admin.CoreV1().ReplicationControllers(s.namespace).Delete(ctx, owner.name, options)
		case owner.kind == "ReplicaSet":
			err = s.admin.AppsV1().ReplicaSets(s.namespace).Delete(ctx, owner.name, options)
		case owner.kind == "StatefulSet":
			err = s.admin.AppsV1().StatefulSets(s.namespace).Delete(ctx, owner.name, options)
		case owner.kind == "DaemonSet":
			err = s.admin.AppsV1().DaemonSets(s.namespace).Delete(ctx, owner.name, options)
		case owner.kind == "Job":
			err = s.admin.BatchV1().Jobs(s.namespace).Delete(ctx, owner.name, options)
		case owner.kind == "Widget":
			err = s.objects.Resource(widgets).Namespace(s.namespace).Delete(ctx, owner.name, options)
		default:
			err = s.objects.Resource(gadgets).Namespace(s.namespace).Delete(ctx, owner.name, options)
		}
		return ifThere(err)
	}
}

func (w *disruptionWorld) createPod() (string, disruptionStep) {
	name := fmt.Sprintf("pod-%d", w.count)
	labels, ready, holds := w.label(), w.random.IntN(4) > 0, w.random.IntN(4) == 0
	owner := drawnOwner{}
	kind := "create pod"
	switch pick := w.random.IntN(20); {
	case pick < 3:
		kind += " without owner"
	case pick < 4:
		owner = drawnOwner{name: "nobody", apiVersion: pickOne(w.random, []string{"unknown.fairgate.dev/v1", "apps/v1", "test.fairgate.dev/v1", "invalid/v7", "v1"}), kind: pickOne(w.random, []string{"TestWorkload", "ReplicaSet", "Widget"})}
		kind += " of an unknown owner"
	default:
		owner = pickOne(w.random, w.owners)
	}
	w.pods = append(w.pods, name)
	return kind, func(ctx context.Context, s *controlledSide) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: pausedPod()}
		if owner.name != "" {
			pod.OwnerReferences = []metav1.OwnerReference{s.reference(owner)}
		}
		if holds {
			pod.Finalizers = []string{heldBack}
		}
		if _, err := s.admin.CoreV1().Pods(s.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
		return s.setReady(ctx, name, ready)
	}
}

// changePod changes the readiness or the labels of a pod.
func (w *disruptionWorld) changePod() (string, disruptionStep) {
	name := pickOne(w.random, w.pods)
	if w.random.IntN(2) == 0 {
		ready := w.random.IntN(2) == 0
		return "ready", func(ctx context.Context, s *controlledSide) error { return ifThere(s.setReady(ctx, name, ready)) }
	}
	patch := asJSON(map[string]any{"metadata": map[string]any{"labels": w.label()}})
	return "label", func(ctx context.Context, s *controlledSide) error {
		_, err := s.admin.CoreV1().Pods(s.namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return ifThere(err)
	}
}

func (w *disruptionWorld) deletePod() (string, disruptionStep) {
	index := w.random.IntN(len(w.pods))
	name := w.pods[index]
	w.pods = slices.Delete(w.pods, index, index+1)
	w.held = append(w.held, name)
	return "delete pod", func(ctx context.Context, s *controlledSide) error {
		return ifThere(s.admin.CoreV1().Pods(s.namespace).Delete(ctx, name, *metav1.NewDeleteOptions(0)))
	}
}

// release removes the finalizer of a pod that is being deleted.
func (w *disruptionWorld) release() (string, disruptionStep) {
	if len(w.held) == 0 {
		return w.deletePod()
	}
	name := pickOne(w.random, w.held)
	return "release pod", func(ctx context.Context, s *controlledSide) error {
		_, err := s.admin.CoreV1().Pods(s.namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return ifThere(err)
	}
}

// target marks a pod as one whose eviction was granted three minutes ago.
func (w *disruptionWorld) target() (string, disruptionStep) {
	name := pickOne(w.random, w.pods)
	reason := pickOne(w.random, []string{"EvictionByEvictionAPI", "TerminationByKubelet"})
	since := metav1.NewTime(time.Now().Add(-3 * time.Minute).Truncate(time.Second))
	return "target", func(ctx context.Context, s *controlledSide) error {
		condition := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: "a test", LastTransitionTime: since}
		patch := asJSON(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
		_, err := s.admin.CoreV1().Pods(s.namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return ifThere(err)
	}
}

// disrupt enters pods into the map of a budget.
func (w *disruptionWorld) disrupt() (string, disruptionStep) {
	budget := pickOne(w.random, w.budgets)
	entries := map[string]metav1.Time{"not-there": metav1.NewTime(time.Now().Truncate(time.Second))}
	for range 3 {
		ago := pickOne(w.random, []time.Duration{0, 3 * time.Minute, -time.Minute})
		entries[pickOne(w.random, w.pods)] = metav1.NewTime(time.Now().Add(-ago).Truncate(time.Second))
	}
	return "disrupt", func(ctx context.Context, s *controlledSide) error {
		return ifThere(s.changeStatus(ctx, budget, func(status *policyv1.PodDisruptionBudgetStatus) { status.DisruptedPods = entries }))
	}
}

func (w *disruptionWorld) setBudget() (string, disruptionStep) {
	name := fmt.Sprintf("budget-%d", w.random.IntN(4))
	if !slices.Contains(w.budgets, name) {
		w.budgets = append(w.budgets, name)
	}
	spec := policyv1.PodDisruptionBudgetSpec{}
	bound := intstr.FromInt32(w.replicas())
	if w.random.IntN(2) == 0 {
		bound = intstr.FromString(fmt.Sprintf("%d%%", pickOne(w.random, []int{0, 1, 10, 28, 34, 50, 90, 99, 100})))
	}
	switch pick := w.random.IntN(20); {
	case pick == 0:
	case pick < 10:
		spec.MinAvailable = &bound
	default:
		spec.MaxUnavailable = &bound
	}
	labels := w.label()
	switch w.random.IntN(6) {
	case 0:
		spec.Selector = &metav1.LabelSelector{}
	case 1:
	case 2:
		spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{labels["app"]}}}}
	case 3:
		spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	default:
		spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": labels["app"]}}
	}
	return "budget", func(ctx context.Context, s *controlledSide) error {
		budgets := s.admin.PolicyV1().PodDisruptionBudgets(s.namespace)
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			budget, err := budgets.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				_, err = budgets.Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
				return err
			} else if err != nil {
				return err
			}
			budget.Spec = spec
			_, err = budgets.Update(ctx, budget, metav1.UpdateOptions{})
			return err
		})
	}
}

func (w *disruptionWorld) deleteBudget() (string, disruptionStep) {
	index := w.random.IntN(len(w.budgets))
	name := w.budgets[index]
	w.budgets = slices.Delete(w.budgets, index, index+1)
	return "delete budget", func(ctx context.Context, s *controlledSide) error {
		return s.admin.PolicyV1().PodDisruptionBudgets(s.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
}

// pausedPod is what all pods have in common. Nobody starts them.
func pausedPod() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.invalid/none"}}}
}

// ifThere is nil where a step is about something that is gone.
func ifThere(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// made remembers the UID of an owner that was created.
func (s *controlledSide) made(name string, object metav1.Object, err error) error {
	if err == nil {
		s.uids[name] = object.GetUID()
	}
	return err
}

// reference refers to an owner, be it there or not.
func (s *controlledSide) reference(owner drawnOwner) metav1.OwnerReference {
	uid, known := s.uids[owner.name]
	if !known {
		uid = "00000000-0000-0000-0000-000000000000"
	}
	controls := true
	return metav1.OwnerReference{APIVersion: owner.apiVersion, Kind: owner.kind, Name: owner.name, UID: uid, Controller: &controls}
}

func (s *controlledSide) setReady(ctx context.Context, name string, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: status}
	patch := asJSON(map[string]any{"status": map[string]any{"phase": corev1.PodRunning, "conditions": []any{condition}}})
	_, err := s.admin.CoreV1().Pods(s.namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// changeStatus changes the status of a budget, however often the controller writes it meanwhile.
func (s *controlledSide) changeStatus(ctx context.Context, name string, change func(*policyv1.PodDisruptionBudgetStatus)) error {
	budgets := s.admin.PolicyV1().PodDisruptionBudgets(s.namespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		budget, err := budgets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(&budget.Status)
		_, err = budgets.UpdateStatus(ctx, budget, metav1.UpdateOptions{})
		return err
	})
}
