package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	costPods    = flag.Int("disruption-pods", 400, "pods of which the costs of the disruption controllers are measured; figures are taken with 10000")
	costBudgets = flag.Int("disruption-budgets", 40, "budgets over these pods; figures are taken with 500")
	costChanges = flag.Int("disruption-changes", 400, "pods that change meanwhile, 100 in a second; figures are taken with 3000")
)

// A processCost is what a process has used: CPU time in seconds, and its present and greatest memory in MiB.
type processCost struct{ CPU, RSS, Peak float64 }

// cost reads what a process has used so far.
func (p *process) cost() (processCost, error) {
	const ticks = 100 // of CPU time in a second, for /proc
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return processCost{}, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return processCost{}, err
	}
	found := processCost{CPU: (user + system) / ticks}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		switch name {
		case "VmRSS":
			found.RSS = kib / 1024
		case "VmHWM":
			found.Peak = kib / 1024
		}
	}
	return found, nil
}

// What the disruption controllers of fairgate and of kube-controller-manager cost over the same pods and budgets, each
// before an apiserver of its own: from their start until all budgets are computed, and while pods change steadily.
func TestCostsOfTheDisruptionController(t *testing.T) {
	aboutFairgate(t)
	onlyMeasures(t)
	ctx := inTime(t, 40*time.Minute)
	const user = "cost-counter"
	for _, name := range []string{"controller-manager", "fairgate"} {
		server := must[*Apiserver](t)(shared.StartApiserver("cost-of-"+name, "", controlledBedFlags...))
		world := &costWorld{server: server, namespaces: min(50, *costBudgets)}
		succeeds(t, world.create(ctx))
		var running *process
		if name == "fairgate" {
			succeeds(t, Grant(ctx, server.Admin, user, ImpersonatorRole, ControllerRole, LeaseRole))
			idle := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user + "-idle", Upstream: server.URL})
			succeeds(t, idle.Start())
			measured(t, "fairgate without a controller: memory", must[processCost](t)(idle.running.cost()).RSS, "MiB")
			succeeds(t, idle.Stop())
			gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: server.URL, Counts: true})
			succeeds(t, gateway.Start())
			running = gateway.running
		} else {
			running = must[*process](t)(shared.StartControllerManager(server.Endpoint, disruptionController))
		}
		from := time.Now()
		succeeds(t, world.untilComputed(ctx, func(status policyv1.PodDisruptionBudgetStatus) bool { return status.ObservedGeneration > 0 }))
		computed := time.Since(from).Seconds()
		started := must[processCost](t)(running.cost())
		succeeds(t, world.churn(ctx))
		ended := must[processCost](t)(running.cost())
		of := fmt.Sprintf("%s, %d pods, %d budgets: ", name, *costPods, *costBudgets)
		measured(t, of+"all budgets computed", computed, "s")
		measured(t, of+"CPU time until then", started.CPU, "s")
		measured(t, of+"peak memory until then", started.Peak, "MiB")
		measured(t, fmt.Sprintf("%sCPU time of %d changes", of, *costChanges), ended.CPU-started.CPU, "s")
		measured(t, fmt.Sprintf("%speak memory after %d changes", of, *costChanges), ended.Peak, "MiB")
		_, _ = running.stop(stopGrace), server.running.stop(stopGrace)
	}
}

// A costWorld has one replica set for each budget; its pods are spread evenly.
type costWorld struct {
	server     *Apiserver
	namespaces int
}

func (w *costWorld) namespace(budget int) string { return fmt.Sprintf("team-%d", budget%w.namespaces) }

// each calls run for each number below count, 16 at a time.
func each(count int, run func(int) error) error {
	numbers, errs := make(chan int), make(chan error, count)
	var group sync.WaitGroup
	for range 16 {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := range numbers {
				if err := run(number); err != nil {
					errs <- err
				}
			}
		}()
	}
	for number := range count {
		numbers <- number
	}
	close(numbers)
	group.Wait()
	close(errs)
	return <-errs
}

func (w *costWorld) create(ctx context.Context) error {
	admin := w.server.Admin
	err := each(w.namespaces, func(number int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace(number)}}
		_, err := admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	owners := make([]metav1.OwnerReference, *costBudgets)
	err = each(*costBudgets, func(number int) error {
		name := fmt.Sprintf("checkout-%d", number)
		labels := map[string]string{"app.kubernetes.io/name": name}
		replicas, bound := int32(*costPods / *costBudgets), intstr.FromString("10%")
		set, err := admin.AppsV1().ReplicaSets(w.namespace(number)).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pausedPod()}}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		owners[number] = *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		_, err = admin.PolicyV1().PodDisruptionBudgets(w.namespace(number)).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &bound, Selector: &metav1.LabelSelector{MatchLabels: labels}}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return each(*costPods, func(number int) error {
		budget := number % *costBudgets
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", owners[budget].Name, number), OwnerReferences: []metav1.OwnerReference{owners[budget]},
			Labels: map[string]string{"app.kubernetes.io/name": owners[budget].Name, "app.kubernetes.io/instance": owners[budget].Name + "-production",
				"app.kubernetes.io/version": "2024.11.3", "pod-template-hash": "7d9c5b8f64"}}, Spec: pausedPod()}
		if _, err := admin.CoreV1().Pods(w.namespace(budget)).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
		return w.setReady(ctx, number, true)
	})
}

func (w *costWorld) setReady(ctx context.Context, number int, ready bool) error {
	budget := number % *costBudgets
	side := &controlledSide{namespace: w.namespace(budget), admin: w.server.Admin}
	return side.setReady(ctx, fmt.Sprintf("checkout-%d-%d", budget, number), ready)
}

// untilComputed waits until the status of each budget is as it should be.
func (w *costWorld) untilComputed(ctx context.Context, isComputed func(policyv1.PodDisruptionBudgetStatus) bool) error {
	return poll(4*time.Minute, 100*time.Millisecond, func() (bool, error) {
		budgets, err := w.server.Admin.PolicyV1().PodDisruptionBudgets("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, budget := range budgets.Items {
			if !isComputed(budget.Status) {
				return false, nil
			}
		}
		return len(budgets.Items) == *costBudgets, nil
	})
}

// churn changes a hundred pods in a second: each loses readiness and gets it back. It ends when all budgets are as before.
func (w *costWorld) churn(ctx context.Context) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for change := range *costChanges {
		<-ticker.C
		if err := w.setReady(ctx, change/2%*costPods, change%2 == 1); err != nil {
			return err
		}
	}
	healthy := int32(*costPods / *costBudgets)
	return w.untilComputed(ctx, func(status policyv1.PodDisruptionBudgetStatus) bool { return status.CurrentHealthy == healthy })
}
