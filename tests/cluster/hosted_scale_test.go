package cluster

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	scaleSchemas = flag.Int("scale-schemas", 300, "FlowSchemas of 1.4 KB that a fairgate hosts while its costs are measured; figures are taken with 10000")
	scaleSettle  = flag.Duration("scale-settle", 0, "how long memory may settle before it is measured; figures are taken with 1m")
)

// scaleChanges is how many changes of each kind are measured.
const scaleChanges = 20

// Among many hosted objects each change makes one set. Once that is reported, every connection goes by it. Changes in a row
// may share a set, and take effect in their order.
func TestChangesOfManyFlowSchemasAreInForceOnceReported(t *testing.T) {
	aboutFairgate(t)
	const changes = 10
	ctx := inTime(t, 10*time.Minute)
	bed := newScaleBed(ctx, t, *scaleSchemas, 2*changes)
	watch := newScaleWatch(t, bed.server, bed.probes)
	stale, begun := 0, settled(func() float64 { return bed.sets(ctx, t) })
	for number := 1; number <= changes; number++ {
		known := bed.sets(ctx, t)
		succeeds(t, bed.change(ctx, number))
		succeeds(t, poll(changeLimit, 5*time.Millisecond, func() (bool, error) { return bed.sets(ctx, t) > known, nil }))
		for _, shown := range must[[]int](t)(watch.shown(ctx)) {
			if shown != number {
				stale++
			}
		}
	}
	if stale != 0 {
		t.Errorf("%d of %d requests went by former objects after new ones were reported", stale, changes*len(watch.clients))
	}
	if applied := bed.sets(ctx, t) - begun; applied != changes {
		t.Errorf("%d changes made %v sets of objects", changes, applied)
	}

	begun = settled(func() float64 { return bed.sets(ctx, t) })
	done := make(chan error, 1)
	go func() {
		for number := changes + 1; number <= 2*changes; number++ {
			if err := bed.change(ctx, number); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	last, backwards := make([]int, len(watch.clients)), 0
	succeeds(t, poll(changeLimit, 5*time.Millisecond, func() (bool, error) {
		shown, err := watch.shown(ctx)
		if err != nil {
			return false, err
		}
		for client, now := range shown {
			if now < last[client] {
				backwards++
			}
			last[client] = now
		}
		return slices.Min(shown) == 2*changes, nil
	}), <-done)
	if applied := bed.sets(ctx, t) - begun; backwards != 0 || applied > changes {
		t.Errorf("%d changes in a row made %v sets of objects; %d requests went by older ones than the request before", changes, applied, backwards)
	}
}

// What hosted objects cost, and how soon a change is in force. These are figures: no server is beside it.
func TestCostsOfManyFlowSchemas(t *testing.T) {
	aboutFairgate(t)
	onlyMeasures(t)
	ctx := inTime(t, 30*time.Minute)
	const first = 100
	bed := newScaleBed(ctx, t, first, 3*scaleChanges)
	if bed.server.running == nil {
		t.Skip("what a process costs is known of our own only")
	}
	running := bed.server.running()
	// Without the figures, a second between changes that are alone would be waste.
	pause := time.Second
	if *scaleSchemas < 5000 {
		pause = 300 * time.Millisecond
	}
	time.Sleep(*scaleSettle / 6)
	before := must[processCost](t)(running.cost())
	succeeds(t, each(*scaleSchemas-first, func(number int) error { return bed.create(ctx, scaleSchema(first+number)) }))
	time.Sleep(*scaleSettle)
	after := must[processCost](t)(running.cost())
	time.Sleep(2 * time.Second)
	used := func(run func()) float64 {
		from := must[processCost](t)(running.cost())
		run()
		return must[processCost](t)(running.cost()).CPU - from.CPU
	}
	idle := used(func() { time.Sleep(10 * pause) }) / 10
	spent := used(func() {
		for number := range scaleChanges {
			succeeds(t, bed.patch(ctx, number*37%*scaleSchemas, 9000+number))
			time.Sleep(pause)
		}
	})
	watch := newScaleWatch(t, bed.server, bed.probes)
	change := func(number int) error { return bed.change(ctx, number) }
	alone := watch.delays(ctx, t, scaleChanges, pause, change)
	inRow := watch.delays(ctx, t, 2*scaleChanges, 100*time.Millisecond, change)
	memory, cpu := (after.RSS-before.RSS)*1024/float64(max(1, *scaleSchemas-first)), (spent/scaleChanges-idle)*1000
	name := fmt.Sprintf("%d FlowSchemas: ", *scaleSchemas)
	measured(t, name+"memory of one", memory, "KiB")
	measured(t, name+"CPU time of a change", cpu, "ms")
	measuredTimes(t, name+"a change alone in force", alone)
	measuredTimes(t, name+"changes ten times in a second in force", inRow)
}

// A scaleBed is a fairgate that hosts many FlowSchemas, and probes: each change makes the next of them match first.
type scaleBed struct {
	server  *Hosted
	schemas flowcontrolclient.FlowSchemaInterface
	metrics func(context.Context) ([]byte, error)
	probes  []string // their UIDs
}

// newScaleBed makes that many schemas, and one probe more than changes are to be made: the first of them matches.
func newScaleBed(ctx context.Context, t *testing.T, schemas, changes int) *scaleBed {
	t.Helper()
	server := hosted(t)
	client := server.client(t)
	bed := &scaleBed{server: server, schemas: client.FlowcontrolV1().FlowSchemas(), metrics: func(ctx context.Context) ([]byte, error) {
		return client.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	}}
	t.Cleanup(func() {
		all := metav1.ListOptions{LabelSelector: "scale"}
		succeeds(t, bed.schemas.DeleteCollection(context.Background(), metav1.DeleteOptions{}, all))
	})
	succeeds(t, each(schemas, func(number int) error { return bed.create(ctx, scaleSchema(number)) }))
	for number := range changes + 1 {
		probe := scaleProbe(number)
		succeeds(t, bed.create(ctx, probe))
		created := must[*flowcontrolv1.FlowSchema](t)(bed.schemas.Get(ctx, probe.Name, metav1.GetOptions{}))
		bed.probes = append(bed.probes, string(created.UID))
	}
	succeeds(t, bed.change(ctx, 0))
	// All that was made is in force once the last of it is.
	watch := newScaleWatch(t, server, bed.probes)
	succeeds(t, poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
		shown, err := watch.shown(ctx)
		return err == nil && slices.Min(shown) == 0, err
	}))
	return bed
}

func (b *scaleBed) create(ctx context.Context, schema *flowcontrolv1.FlowSchema) error {
	_, err := b.schemas.Create(ctx, schema, metav1.CreateOptions{})
	return err
}

// change makes a probe match first.
func (b *scaleBed) change(ctx context.Context, number int) error {
	return b.patchNamed(ctx, probeName(number), 90-number)
}

func (b *scaleBed) patch(ctx context.Context, number, precedence int) error {
	return b.patchNamed(ctx, scaleName(number), precedence)
}

func (b *scaleBed) patchNamed(ctx context.Context, name string, precedence int) error {
	patch := fmt.Sprintf(`{"spec":{"matchingPrecedence":%d}}`, precedence)
	_, err := b.schemas.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// sets is how many sets of objects came into force so far.
func (b *scaleBed) sets(ctx context.Context, t *testing.T) float64 {
	t.Helper()
	count := must[float64](t)(sumOf(string(must[[]byte](t)(b.metrics(ctx))), setsInUse))
	if count == 0 {
		t.Fatalf("no metric %s", setsInUse)
	}
	return count
}

// scaleSchema returns a FlowSchema of about 1.4 KB for a service account.
func scaleSchema(number int) *flowcontrolv1.FlowSchema {
	account := &flowcontrolv1.ServiceAccountSubject{Namespace: fmt.Sprintf("team-%d", number%100), Name: fmt.Sprintf("robot-%d", number)}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: scaleName(number), Labels: map[string]string{"scale": ""}, Annotations: map[string]string{"note": strings.Repeat("x", 750)}},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         int32(1000 + number%8000),
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: account}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods", "services"}, Namespaces: []string{"*"},
				}},
			}},
		},
	}
}

func scaleName(number int) string { return fmt.Sprintf("scale-%05d", number) }

func probeName(number int) string { return fmt.Sprintf("scale-probe-%02d", number) }

// scaleProbe returns a FlowSchema that requests of every user for the version match, unless another matches first. It also
// has a path of its own, since one that no request can match has that written into its status.
func scaleProbe(number int) *flowcontrolv1.FlowSchema {
	probe := scaleSchema(number)
	probe.Name = probeName(number)
	probe.Spec.MatchingPrecedence = 9990
	probe.Spec.Rules = []flowcontrolv1.PolicyRulesWithSubjects{{
		Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: "system:authenticated"}}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/version", "/" + probe.Name}}},
	}}
	return probe
}

// A scaleWatch sees over several connections which FlowSchema a request matches.
type scaleWatch struct {
	url     string
	clients []*http.Client
	probes  []string
	changed int
}

func newScaleWatch(t *testing.T, server *Hosted, probes []string) *scaleWatch {
	config := must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", server.User))
	watch := &scaleWatch{url: config.Host + "/version", probes: probes, changed: 0}
	// Data cores take connections in turn.
	for range 8 {
		// client-go would have them share one connection.
		transport := &http.Transport{TLSClientConfig: must[*tls.Config](t)(rest.TLSConfigFor(config))}
		authenticated := must[http.RoundTripper](t)(rest.HTTPWrappersForConfig(config, transport))
		watch.clients = append(watch.clients, &http.Client{Transport: authenticated, Timeout: time.Minute})
	}
	return watch
}

// shown says which of the probes the requests of each connection match, -1 being none.
func (w *scaleWatch) shown(ctx context.Context) (shown []int, err error) {
	for _, client := range w.clients {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		shown = append(shown, slices.Index(w.probes, response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")))
	}
	return shown, nil
}

// delays makes changes one after another, and returns after which times all connections showed them, in order.
func (w *scaleWatch) delays(ctx context.Context, t *testing.T, until int, pause time.Duration, change func(int) error) []time.Duration {
	t.Helper()
	first := w.changed + 1
	done := make(chan error, 1)
	made := make([]time.Time, until)
	go func() {
		for number := first; number < first+until; number++ {
			if err := change(number); err != nil {
				done <- err
				return
			}
			made[number-first] = time.Now()
			time.Sleep(pause)
		}
		done <- nil
	}()
	seen := make([]time.Time, until)
	for count := 0; count < until; {
		shown := slices.Min(must[[]int](t)(w.shown(ctx)))
		for now := time.Now(); count < until && first+count <= shown; count++ {
			seen[count] = now
		}
	}
	succeeds(t, <-done)
	w.changed += until
	var delays []time.Duration
	for number := range until {
		delays = append(delays, max(0, seen[number].Sub(made[number])))
	}
	slices.Sort(delays)
	return delays
}
