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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	scaleSchemas = flag.Int("scale-schemas", 300, "FlowSchemas of 1.4 KB that a fairgate hosts while its costs are measured; figures are taken with 10000")
	scaleSettle  = flag.Duration("scale-settle", 0, "how long memory may settle before it is measured; figures are taken with 1m")
)

const (
	scaleChanges = 20 // of each kind
	// inForceAlone and inForceInRow bound the time from the response to a change until every connection shows it, when
	// changes come once and ten times in a second.
	inForceAlone, inForceInRow = 100 * time.Millisecond, 300 * time.Millisecond
	mostKiBEach, mostCPUMs     = 12, 50
	// A machine that is busy with something else is no fault of fairgate's: the slowest change may take this many times
	// as long, the median may not.
	scaleSlack = 5
)

// What hosted objects cost, and how soon a change is in force. The bars are those of 10 000 objects.
func TestManyFlowSchemasAreCheapToHost(t *testing.T) {
	aboutFairgate(t)
	ctx := inTime(t, 10*time.Minute)
	server := hosted(t)
	if server.running == nil {
		t.Skip("what a process costs is known of our own only")
	}
	running := server.running()
	// Without the figures, a second between changes that are alone would be waste.
	isFull, pause := *scaleSchemas >= 5000, time.Second
	if !isFull {
		pause = 300 * time.Millisecond
	}
	schemas := server.client(t).FlowcontrolV1().FlowSchemas()
	t.Cleanup(func() {
		all := metav1.ListOptions{LabelSelector: "scale"}
		succeeds(t, schemas.DeleteCollection(context.Background(), metav1.DeleteOptions{}, all))
	})
	create := func(schema *flowcontrolv1.FlowSchema) error {
		_, err := schemas.Create(ctx, schema, metav1.CreateOptions{})
		return err
	}
	const first = 100
	succeeds(t, each(first, func(number int) error { return create(scaleSchema(number)) }))
	time.Sleep(*scaleSettle / 6)
	before := must[processCost](t)(running.cost())
	succeeds(t, each(*scaleSchemas-first, func(number int) error { return create(scaleSchema(first + number)) }))
	time.Sleep(*scaleSettle)
	after := must[processCost](t)(running.cost())

	var probes []string
	for number := range 3*scaleChanges + 1 {
		probe := scaleProbe(*scaleSchemas + number)
		succeeds(t, create(probe))
		created := must[*flowcontrolv1.FlowSchema](t)(schemas.Get(ctx, probe.Name, metav1.GetOptions{}))
		probes = append(probes, string(created.UID))
	}
	// Each change makes the next of them match first.
	change := func(number int) error {
		patch := fmt.Sprintf(`{"spec":{"matchingPrecedence":%d}}`, 90-number)
		_, err := schemas.Patch(ctx, scaleName(*scaleSchemas+number), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	succeeds(t, change(0))
	time.Sleep(2 * time.Second)
	used := func(run func()) float64 {
		from := must[processCost](t)(running.cost())
		run()
		return must[processCost](t)(running.cost()).CPU - from.CPU
	}
	idle := used(func() { time.Sleep(10 * pause) }) / 10
	spent := used(func() {
		for number := range scaleChanges {
			patch := fmt.Sprintf(`{"spec":{"matchingPrecedence":%d}}`, 9000+number)
			_, err := schemas.Patch(ctx, scaleName(number*37%*scaleSchemas), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			succeeds(t, err)
			time.Sleep(pause)
		}
	})
	watch := newScaleWatch(t, server, probes)
	alone := watch.delays(ctx, t, scaleChanges, pause, change)
	inRow := watch.delays(ctx, t, 2*scaleChanges, 100*time.Millisecond, change)
	memory, cpu := (after.RSS-before.RSS)*1024/float64(max(1, *scaleSchemas-first)), (spent/scaleChanges-idle)*1000
	t.Logf("HOSTED_SCALE %s", asJSON(map[string]any{
		"schemas": *scaleSchemas, "KiBEach": memory, "cpuMsOfAChange": cpu,
		"inForceMs": map[string]any{"alone": summary(alone), "tenInASecond": summary(inRow)},
	}))
	if isFull && (memory > mostKiBEach || cpu > mostCPUMs) {
		t.Errorf("an object takes %.1f KiB, at most %d allowed; a change %.1f ms of CPU time, at most %d allowed", memory, mostKiBEach, cpu, mostCPUMs)
	}
	for name, bounded := range map[string]struct {
		delays []time.Duration
		most   time.Duration
	}{"alone": {alone, inForceAlone}, "ten in a second": {inRow, inForceInRow}} {
		median, slowest := bounded.delays[len(bounded.delays)/2], bounded.delays[len(bounded.delays)-1]
		if median > bounded.most || slowest > scaleSlack*bounded.most {
			t.Errorf("changes %s are in force after %v (median) and %v (slowest), not within %v", name, median, slowest, bounded.most)
		}
	}
}

func summary(sorted []time.Duration) map[string]float64 {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return map[string]float64{"median": ms(sorted[len(sorted)/2]), "slowest": ms(sorted[len(sorted)-1])}
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

// scaleProbe returns a FlowSchema that requests of every user for the version match, unless another matches first. It also
// has a path of its own, since one that no request can match has that written into its status.
func scaleProbe(number int) *flowcontrolv1.FlowSchema {
	probe := scaleSchema(number)
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
		watch.clients = append(watch.clients, &http.Client{Transport: authenticated, Timeout: 10 * time.Second})
	}
	return watch
}

// shows says which of the probes the requests of all connections match, or one before it.
func (w *scaleWatch) shows(ctx context.Context) (int, error) {
	least := len(w.probes)
	for _, client := range w.clients {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
		if err != nil {
			return 0, err
		}
		response, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		least = min(least, slices.Index(w.probes, response.Header.Get("X-Kubernetes-Pf-Flowschema-Uid")))
	}
	return least, nil
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
		shown := must[int](t)(w.shows(ctx))
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
