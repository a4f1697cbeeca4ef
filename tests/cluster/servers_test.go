package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const serverUp = "fairgate_upstream_server_up"

// Two apiservers of one etcd, one of which is killed and started again while a client writes and an informer follows: every
// read is answered, every acknowledged write is there, the informer sees all of it, and both servers are used again.
func TestServersOfOneClusterComeAndGo(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	ctx := inTime(t, 20*time.Minute)
	first := must[*Apiserver](t)(shared.StartApiserver("first-of-two", ""))
	second := must[*Apiserver](t)(shared.StartApiserver("second-of-two", "", "--etcd-prefix="+first.Prefix))
	roles := []ShippedRole{SidecarRole, ImpersonatorRole}
	succeeds(t, Grant(ctx, first.Admin, Audited[0], roles...))
	gateway := newFairgate(t, FairgateOptions{
		Mode: "impersonate", Source: "sidecar", User: Audited[0], Servers: []string{first.URL, second.URL},
	})
	succeeds(t, gateway.Start())
	inSync(t, gateway)
	client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(shared.Config(gateway.Endpoint, shared.admin)))
	seen := followConfigMaps(t, ctx, client)

	writer := startWriting(ctx, client)
	writer.untilMore(t, ctx, 50)
	first.Kill()
	untilUp(t, ctx, gateway, 1)
	writer.untilMore(t, ctx, 100)
	_, ready, err := gateway.Ask(ctx, "/readyz?verbose")
	succeeds(t, err)
	if name := strings.TrimPrefix(first.URL, "https://"); !strings.Contains(ready, "[!]servers: "+name+" cannot be reached") {
		t.Errorf("readyz does not name the server that is gone:\n%s", ready)
	}
	succeeds(t, first.Start())
	untilUp(t, ctx, gateway, 2)
	// What kills the other one shows that the first is used again, also for what the gateway itself watches.
	writer.untilMore(t, ctx, 50)
	second.Kill()
	untilUp(t, ctx, gateway, 1)
	writer.untilMore(t, ctx, 100)
	subject := must[User](t)(shared.NewUser("subject-of-servers"))
	schema := makeSchema(t, clientOf(t, gateway), schemaFor(subject, "of-servers", "workload-low", 100))
	newDecider(t, gateway, subject).until(schema.UID, "")

	written, unknown := writer.stop(t)
	t.Logf("%d acknowledged writes, %d that may have run", len(written), len(unknown))
	list := must[*corev1.ConfigMapList](t)(client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: "of=servers"}))
	stored := storedAsWritten(t, list, written, unknown)
	untilSeen(t, ctx, seen, stored)
}

// storedAsWritten fails if an acknowledged write is not there, or one that was refused is. It returns the names of the objects that are.
func storedAsWritten(t *testing.T, list *corev1.ConfigMapList, written, unknown []string) map[string]bool {
	t.Helper()
	stored := map[string]bool{}
	for _, object := range list.Items {
		stored[object.Name] = true
	}
	for _, name := range written {
		if !stored[name] {
			t.Errorf("%s was acknowledged, and is not there", name)
		}
	}
	for name := range stored {
		if !slices.Contains(written, name) && !slices.Contains(unknown, name) {
			t.Errorf("%s was refused for certain, and is there", name)
		}
	}
	return stored
}

// followConfigMaps keeps the objects of the test in an informer.
func followConfigMaps(t *testing.T, ctx context.Context, client kubernetes.Interface) cache.Store {
	t.Helper()
	labelled := informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "of=servers" })
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"), labelled)
	informer := factory.Core().V1().ConfigMaps().Informer()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not synchronise")
	}
	return informer.GetStore()
}

// untilSeen waits until an informer has exactly these objects.
func untilSeen(t *testing.T, ctx context.Context, seen cache.Store, names map[string]bool) {
	t.Helper()
	for len(seen.ListKeys()) != len(names) {
		if ctx.Err() != nil {
			t.Fatalf("the informer has %d objects, and there are %d", len(seen.ListKeys()), len(names))
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, key := range seen.ListKeys() {
		if !names[strings.TrimPrefix(key, "default/")] {
			t.Errorf("the informer has %s, which is not there", key)
		}
	}
}

// untilUp waits until so many servers take requests.
func untilUp(t *testing.T, ctx context.Context, gateway *Fairgate, servers float64) {
	t.Helper()
	for {
		up, err := gateway.Sum(ctx, serverUp)
		succeeds(t, err)
		if up == servers {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A writer creates one object after the other, and reads each back.
type writer struct {
	mutex    sync.Mutex
	written  []string
	unknown  []string // writes that were sent and not answered
	failures []string // what may not happen
	end      context.CancelFunc
	done     chan struct{}
}

func startWriting(ctx context.Context, client kubernetes.Interface) *writer {
	ctx, cancel := context.WithCancel(ctx)
	w := &writer{end: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for number := 0; ctx.Err() == nil; number++ {
			w.write(ctx, client, fmt.Sprintf("object-%d", number))
		}
	}()
	return w
}

func (w *writer) write(ctx context.Context, client kubernetes.Interface, name string) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": "servers"}}}
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch {
	case ctx.Err() != nil:
		w.unknown = append(w.unknown, name)
		return
	case err == nil:
		w.written = append(w.written, name)
	case mayHaveRun(err):
		w.unknown = append(w.unknown, name)
	default:
		w.failures = append(w.failures, fmt.Sprintf("creating %s: %v", name, err))
	}
	if _, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1}); err != nil && ctx.Err() == nil {
		w.failures = append(w.failures, fmt.Sprintf("a read after %s: %v", name, err))
	}
}

// mayHaveRun says whether fairgate answered a write that it had sent, and to which there was no response.
func mayHaveRun(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusBadGateway
}

// untilMore waits until so many more objects are written.
func (w *writer) untilMore(t *testing.T, ctx context.Context, more int) {
	t.Helper()
	number := func() int {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		return len(w.written)
	}
	for wanted := number() + more; number() < wanted; time.Sleep(10 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("only %d of %d objects were written", number(), wanted)
		}
	}
}

// stop ends it, and returns the names of the objects that are written, and of those that may be.
func (w *writer) stop(t *testing.T) (written, unknown []string) {
	t.Helper()
	w.end()
	<-w.done
	for _, failure := range w.failures {
		t.Error(failure)
	}
	return w.written, w.unknown
}

const (
	readsAfterWrites = 300
	spreadClients    = 5
	spreadReads      = 100
)

// What the two ways to spread requests over servers cost and give: how many reads of a server's cache do not see the write before them, and how
// unevenly requests of few clients are spread. Only reads of the newest state have to see every write, and they do.
func TestReadsAfterWritesThroughTwoServers(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	ctx := inTime(t, 20*time.Minute)
	first := must[*Apiserver](t)(shared.StartApiserver("first-of-spread", ""))
	second := must[*Apiserver](t)(shared.StartApiserver("second-of-spread", "", "--etcd-prefix="+first.Prefix))
	succeeds(t, Grant(ctx, first.Admin, Audited[0], ImpersonatorRole))
	for _, spread := range []string{"connection", "request"} {
		gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: Audited[0], Servers: []string{first.URL, second.URL}, Spread: spread})
		succeeds(t, gateway.Start())
		config := shared.Config(gateway.Endpoint, shared.admin)
		config.QPS = -1 // as fast as it is answered
		client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
		objects, unseen := client.CoreV1().ConfigMaps("default"), 0
		for number := range readsAfterWrites {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", spread, number)}}
			must[*corev1.ConfigMap](t)(objects.Create(ctx, object, metav1.CreateOptions{}))
			_, err := objects.Get(ctx, object.Name, metav1.GetOptions{ResourceVersion: "0"})
			if apierrors.IsNotFound(err) {
				unseen, err = unseen+1, nil
			}
			succeeds(t, err)
			must[*corev1.ConfigMap](t)(objects.Get(ctx, object.Name, metav1.GetOptions{}))
		}
		measured(t, spread+": reads of a cache that did not see the write before", float64(unseen)/readsAfterWrites, "")
		before := must[[]float64](t)(answersOf(ctx, gateway, first, second))
		var readers sync.WaitGroup
		for range spreadClients {
			readers.Go(func() {
				transport := shared.Transport(shared.admin, false)
				defer transport.CloseIdleConnections()
				for range spreadReads {
					response, err := shared.Do(ctx, transport, gateway.Endpoint, shared.admin, http.MethodGet, "/api/v1/namespaces/default", nil, "")
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			})
		}
		readers.Wait()
		after := must[[]float64](t)(answersOf(ctx, gateway, first, second))
		most := max(after[0]-before[0], after[1]-before[1])
		measured(t, spread+": the part of the requests that the busier of two servers had", most/(after[0]-before[0]+after[1]-before[1]), "")
		succeeds(t, gateway.Stop())
	}
}

// answersOf are the requests that servers have answered.
func answersOf(ctx context.Context, gateway *Fairgate, servers ...*Apiserver) (all []float64, err error) {
	for _, server := range servers {
		label := fmt.Sprintf(",server=%q", // not apiserver
			strings.TrimPrefix(server.URL, "https://"))
		count, err := gateway.Sum(ctx, "fairgate_upstream_server_answers_total", label)
		if err != nil {
			return nil, err
		}
		all = append(all, count)
	}
	return all, nil
}
