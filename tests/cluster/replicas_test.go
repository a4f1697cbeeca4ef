package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

const autoupdate = "apf.kubernetes.io/autoupdate-spec"

// stillFor is how long a complete store must stay unchanged: two rounds of the check of the built-in objects, which
// runs once a minute, and more of every other periodic task.
const stillFor = 125 * time.Second

// ownEtcd is an etcd for one test. It does not run yet.
func ownEtcd(t *testing.T) *Etcd {
	t.Helper()
	aboutFairgate(t)
	etcd := must[*Etcd](t)(NewEtcd(shared.Dir, shared.bin))
	t.Cleanup(func() {
		_ = etcd.Stop()
		if t.Failed() {
			t.Log(etcd.Log(20))
		}
	})
	return etcd
}

// newReplica is a fairgate for one test. It does not run yet.
func newReplica(t *testing.T, name, etcd string) *Fairgate {
	t.Helper()
	return ending(t, must[*Fairgate](t)(shared.NewReplica(name, etcd, "/replicas")))
}

// succeeds stops the test at the first error.
func succeeds(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// clientOf is the administrator's client of a replica.
func clientOf(t *testing.T, replica *Fairgate) flowcontrolclient.FlowcontrolV1Interface {
	t.Helper()
	config := shared.Config(replica.Endpoint, shared.admin)
	config.QPS = -1
	return must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config)).FlowcontrolV1()
}

// untilMetric waits until a metric of a replica has a value.
func untilMetric(t *testing.T, replica *Fairgate, name string, want float64) {
	t.Helper()
	var last float64
	err := poll(changeLimit, 10*time.Millisecond, func() (bool, error) {
		value, err := replica.Metric(inTime(t, time.Minute), name)
		last = value
		return value == want, err
	})
	if err != nil {
		t.Fatalf("%s of %s is %v, want %v: %v", name, replica.Name, last, want, err)
	}
}

// untilAbove waits until a metric of a replica is greater than a value. It returns how long that took.
func untilAbove(t *testing.T, replica *Fairgate, name string, before float64) time.Duration {
	t.Helper()
	began := time.Now()
	var last float64
	err := poll(changeLimit, 5*time.Millisecond, func() (bool, error) {
		value, err := replica.Metric(inTime(t, time.Minute), name)
		last = value
		return value > before, err
	})
	if err != nil {
		t.Fatalf("%s of %s is %v, want more than %v: %v", name, replica.Name, last, before, err)
	}
	return time.Since(began)
}

// awaitEvent returns the next event of type want whose object satisfies isIt. Events of the types in before are
// skipped; any other event fails the test.
func awaitEvent(t *testing.T, events watch.Interface, want watch.EventType, isIt func(metav1.Object) bool, before ...watch.EventType) metav1.Object {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				t.Fatalf("the watch ended before %s", want)
			}
			object, ok := event.Object.(metav1.Object)
			if ok && event.Type == want && isIt(object) {
				return object
			}
			if !ok || !slices.Contains(before, event.Type) {
				t.Fatalf("event %s %+v, want %s", event.Type, event.Object, want)
			}
		case <-limit:
			t.Fatalf("no event %s in time", want)
		}
	}
}

// Two fairgates start at the same time on an empty store.
func TestReplicasShareOneSetOfObjects(t *testing.T) {
	etcd := ownEtcd(t)
	t.Parallel()
	succeeds(t, etcd.Start())
	a, b := newReplica(t, "a", etcd.URL), newReplica(t, "b", etcd.URL)
	succeeds(t, a.Launch(), b.Launch(), a.UntilReady(), b.UntilReady())
	ctx := inTime(t, 10*time.Minute)
	atA, atB := clientOf(t, a), clientOf(t, b)

	t.Run("objects are created once", func(t *testing.T) {
		untilMetric(t, a, "fairgate_bootstrap_ensured", 1)
		untilMetric(t, b, "fairgate_bootstrap_ensured", 1)
		untilConditions(t, atB)
		staysStill(t, etcd, a, b)
		sameAsTheApiserver(t, atA, atB)
	})

	t.Run("each sees writes through the other", func(t *testing.T) {
		list := must[*flowcontrolv1.PriorityLevelConfigurationList](t)(atB.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{}))
		events := must[watch.Interface](t)(atB.PriorityLevelConfigurations().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}))
		defer events.Stop()
		created := must[*flowcontrolv1.PriorityLevelConfiguration](t)(atA.PriorityLevelConfigurations().Create(ctx, rejecting("replicas-shared", 1), metav1.CreateOptions{}))
		is := func(version string) func(metav1.Object) bool {
			return func(object metav1.Object) bool {
				return object.GetName() == created.Name && object.GetUID() == created.UID && (version == "" || object.GetResourceVersion() == version)
			}
		}
		awaitEvent(t, events, watch.Added, is(created.ResourceVersion))
		// A list at the other is never older than a write that was acknowledged.
		for shares := range int32(20) {
			patched := must[*flowcontrolv1.PriorityLevelConfiguration](t)(atA.PriorityLevelConfigurations().Patch(ctx, created.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"limited":{"nominalConcurrencyShares":%d}}}`, 2+shares), metav1.PatchOptions{}))
			found := must[*flowcontrolv1.PriorityLevelConfigurationList](t)(atB.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + created.Name}))
			if len(found.Items) != 1 || found.Items[0].ResourceVersion != patched.ResourceVersion {
				t.Errorf("a list shows %+v after %s was written", found.Items, patched.ResourceVersion)
			}
			awaitEvent(t, events, watch.Modified, is(patched.ResourceVersion))
		}
		// Two writers of one state: the second gets a conflict.
		first := created.DeepCopy()
		first.Annotations = map[string]string{"from": "before"}
		if _, err := atB.PriorityLevelConfigurations().Update(ctx, first, metav1.UpdateOptions{}); err == nil {
			t.Error("an update of an old state was accepted")
		}
		succeeds(t, atA.PriorityLevelConfigurations().Delete(ctx, created.Name, metav1.DeleteOptions{}))
		awaitEvent(t, events, watch.Deleted, is(""))
	})

	t.Run("deleted mandatory objects come back", func(t *testing.T) {
		only := metav1.ListOptions{FieldSelector: "metadata.name=exempt"}
		levels := must[*flowcontrolv1.PriorityLevelConfigurationList](t)(atB.PriorityLevelConfigurations().List(ctx, only))
		only.ResourceVersion = levels.ResourceVersion
		levelEvents := must[watch.Interface](t)(atB.PriorityLevelConfigurations().Watch(ctx, only))
		defer levelEvents.Stop()
		schemaEvents := must[watch.Interface](t)(atB.FlowSchemas().Watch(ctx, only))
		defer schemaEvents.Stop()
		// Right after one another, so that a deletion happens while the gateways still process the last one.
		last := levels.Items[0].UID
		for range 20 {
			succeeds(t, atA.PriorityLevelConfigurations().Delete(ctx, "exempt", metav1.DeleteOptions{}))
			awaitEvent(t, levelEvents, watch.Deleted, func(object metav1.Object) bool { return object.GetUID() == last })
			back := awaitEvent(t, levelEvents, watch.Added, func(object metav1.Object) bool { return object.GetUID() != last })
			if back.GetGeneration() != 1 || back.GetAnnotations()[autoupdate] != "true" {
				t.Errorf("it is back as %+v", back)
			}
			last = back.GetUID()
		}
		any := func(metav1.Object) bool { return true }
		succeeds(t, atA.FlowSchemas().Delete(ctx, "exempt", metav1.DeleteOptions{}))
		awaitEvent(t, schemaEvents, watch.Deleted, any, watch.Modified)
		awaitEvent(t, schemaEvents, watch.Added, any)
	})

	t.Run("edits of objects that users own persist", func(t *testing.T) {
		patch := func(name, patch string) *flowcontrolv1.PriorityLevelConfiguration {
			t.Helper()
			return must[*flowcontrolv1.PriorityLevelConfiguration](t)(atA.PriorityLevelConfigurations().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
		}
		kept := patch("workload-low", `{"metadata":{"annotations":{"`+autoupdate+`":"false"}},"spec":{"limited":{"nominalConcurrencyShares":33}}}`)

		// An edit of an object that the gateways maintain is undone.
		options := metav1.ListOptions{FieldSelector: "metadata.name=global-default", ResourceVersion: kept.ResourceVersion}
		events := must[watch.Interface](t)(atB.PriorityLevelConfigurations().Watch(ctx, options))
		defer events.Stop()
		shares := func(object metav1.Object) int32 {
			return *object.(*flowcontrolv1.PriorityLevelConfiguration).Spec.Limited.NominalConcurrencyShares
		}
		patch("global-default", `{"spec":{"limited":{"nominalConcurrencyShares":33}}}`)
		awaitEvent(t, events, watch.Modified, func(object metav1.Object) bool { return shares(object) == 33 })
		awaitEvent(t, events, watch.Modified, func(object metav1.Object) bool { return shares(object) == 20 })

		succeeds(t, a.Stop(), b.Stop(), a.Launch(), b.Launch(), a.UntilReady(), b.UntilReady())
		for _, replica := range []*Fairgate{a, b} {
			untilMetric(t, replica, "fairgate_bootstrap_ensured", 1)
			found := must[*flowcontrolv1.PriorityLevelConfiguration](t)(clientOf(t, replica).PriorityLevelConfigurations().Get(ctx, kept.Name, metav1.GetOptions{}))
			if shares(found) != 33 || found.ResourceVersion != kept.ResourceVersion || found.Generation != kept.Generation {
				t.Errorf("through %s it is %+v, was %+v", replica.Name, found, kept)
			}
		}
	})
}

func rejecting(name string, shares int32) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, LimitResponse: flowcontrolv1.LimitResponse{Type: "Reject"},
		}},
	}
}

// untilConditions waits until every schema says whether its level exists.
func untilConditions(t *testing.T, client flowcontrolclient.FlowcontrolV1Interface) {
	t.Helper()
	var without []string
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		list, err := client.FlowSchemas().List(inTime(t, time.Minute), metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		without = nil
		for _, schema := range list.Items {
			if !slices.ContainsFunc(schema.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
				return c.Type == flowcontrolv1.FlowSchemaConditionDangling
			}) {
				without = append(without, schema.Name)
			}
		}
		return len(list.Items) > 0 && len(without) == 0, nil
	})
	if err != nil {
		t.Fatalf("without the condition: %v: %v", without, err)
	}
}

// staysStill watches for a while whether anything is written: through each replica, and in etcd itself.
func staysStill(t *testing.T, etcd *Etcd, replicas ...*Fairgate) {
	t.Helper()
	limit := stillFor
	if testing.Short() {
		limit /= 10
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	revision := must[uint64](t)(etcd.Revision(ctx))
	unexpected := make(chan string, 100)
	for _, replica := range replicas {
		client := clientOf(t, replica)
		from := metav1.ListOptions{ResourceVersion: fmt.Sprint(revision)}
		for _, events := range []watch.Interface{
			must[watch.Interface](t)(client.FlowSchemas().Watch(ctx, from)), must[watch.Interface](t)(client.PriorityLevelConfigurations().Watch(ctx, from)),
		} {
			go func() {
				for event := range events.ResultChan() {
					if ctx.Err() == nil {
						unexpected <- fmt.Sprintf("%s: %s %+v", replica.Name, event.Type, event.Object)
					}
				}
				if ctx.Err() == nil {
					unexpected <- replica.Name + ": the watch ended"
				}
			}()
		}
	}
	select {
	case <-ctx.Done():
	case what := <-unexpected:
		t.Errorf("unexpected change: %s", what)
	}
	if after := must[uint64](t)(etcd.Revision(t.Context())); after != revision {
		t.Errorf("the revision of etcd moved from %d to %d", revision, after)
	}
	for _, replica := range replicas {
		untilMetric(t, replica, "fairgate_store_revision", float64(revision))
	}
}

// sameAsTheApiserver compares the objects that replicas create in an empty store with those of the real server.
func sameAsTheApiserver(t *testing.T, replicas ...flowcontrolclient.FlowcontrolV1Interface) {
	t.Helper()
	ctx := inTime(t, 20*time.Minute)
	wanted := specs(t, ctx, shared.Admin.FlowcontrolV1(), func(object metav1.Object) bool { return object.GetAnnotations()[autoupdate] == "true" })
	if len(wanted) < 10 {
		t.Fatalf("the apiserver has only %d objects of its own", len(wanted))
	}
	for _, replica := range replicas {
		found := specs(t, ctx, replica, func(object metav1.Object) bool {
			if object.GetGeneration() != 1 || object.GetAnnotations()[autoupdate] != "true" {
				t.Errorf("%s has generation %d and annotations %v", object.GetName(), object.GetGeneration(), object.GetAnnotations())
			}
			return true
		})
		for name, spec := range wanted {
			if !equality.Semantic.DeepEqual(found[name], spec) {
				t.Errorf("%s is %+v, want %+v", name, found[name], spec)
			}
			delete(found, name)
		}
		for name := range found {
			t.Errorf("%s is not among the apiserver's own", name)
		}
	}
}

// specs returns the specs of the objects that satisfy counts, by kind and name.
func specs(t *testing.T, ctx context.Context, client flowcontrolclient.FlowcontrolV1Interface, counts func(metav1.Object) bool) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, schema := range must[*flowcontrolv1.FlowSchemaList](t)(client.FlowSchemas().List(ctx, metav1.ListOptions{})).Items {
		if counts(&schema) {
			found["schema "+schema.Name] = schema.Spec
		}
	}
	for _, level := range must[*flowcontrolv1.PriorityLevelConfigurationList](t)(client.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})).Items {
		if counts(&level) {
			found["level "+level.Name] = level.Spec
		}
	}
	return found
}
