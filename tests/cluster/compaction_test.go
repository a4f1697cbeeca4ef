package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
)

// A replica misses what is written and then compacted away in etcd. Its watchers have to get an error, and
// list again.
func TestAnInformerSurvivesACompaction(t *testing.T) {
	t.Parallel()
	t.Run("while its gateway is down", func(t *testing.T) {
		compactUnderAnInformer(t, func(t *testing.T, a *Fairgate, _ *Valve) func() {
			succeeds(t, a.Stop())
			return func() { succeeds(t, a.Start()) }
		})
	})
	t.Run("while its gateway is cut off from etcd", func(t *testing.T) {
		compactUnderAnInformer(t, func(t *testing.T, a *Fairgate, valve *Valve) func() {
			valve.Shut()
			untilMetric(t, a, "fairgate_store_up", 0)
			return valve.Open
		})
	})
}

func compactUnderAnInformer(t *testing.T, disturb func(t *testing.T, a *Fairgate, valve *Valve) (undo func())) {
	etcd := ownEtcd(t)
	t.Parallel()
	succeeds(t, etcd.Start())
	valve := must[*Valve](t)(NewValve(strings.TrimPrefix(etcd.URL, "http://")))
	t.Cleanup(valve.Close)
	a, b := newReplica(t, "a", valve.URL), newReplica(t, "b", etcd.URL)
	succeeds(t, a.Launch(), b.Launch(), a.UntilReady(), b.UntilReady())
	atA, atB := clientOf(t, a).PriorityLevelConfigurations(), clientOf(t, b).PriorityLevelConfigurations()
	ctx := inTime(t, 20*time.Minute)
	create := func(client flowcontrolclient.PriorityLevelConfigurationInterface, name string) *flowcontrolv1.PriorityLevelConfiguration {
		t.Helper()
		return must[*flowcontrolv1.PriorityLevelConfiguration](t)(client.Create(ctx, rejecting(name, 1), metav1.CreateOptions{}))
	}
	for _, name := range []string{"stays", "changes", "goes", "is-made-anew"} {
		create(atA, name)
	}
	followed := follow(t, a)
	followed.untilLike(t, atA)
	began := followed.beginnings()
	old := must[*flowcontrolv1.PriorityLevelConfigurationList](t)(atA.List(ctx, metav1.ListOptions{Limit: 2}))

	undo := disturb(t, a, valve)
	must[*flowcontrolv1.PriorityLevelConfiguration](t)(atB.Patch(ctx, "changes", types.MergePatchType, []byte(`{"spec":{"limited":{"nominalConcurrencyShares":9}}}`), metav1.PatchOptions{}))
	succeeds(t, atB.Delete(ctx, "goes", metav1.DeleteOptions{}), atB.Delete(ctx, "is-made-anew", metav1.DeleteOptions{}))
	create(atB, "is-made-anew")
	create(atB, "comes")
	last := create(atB, "comes-and-goes")
	succeeds(t, atB.Delete(ctx, last.Name, metav1.DeleteOptions{}))
	succeeds(t, etcd.Compact(ctx, must[uint64](t)(etcd.Revision(ctx))))
	undo()
	untilMetric(t, a, "fairgate_store_up", 1)

	followed.untilLike(t, atB)
	if again := followed.beginnings(); again == began {
		t.Error("the informer did not list again: the past was still there, and this test says nothing")
	}
	if held := followed.names(); slices.Contains(held, "goes") || slices.Contains(held, last.Name) || !slices.Contains(held, "comes") {
		t.Errorf("the informer holds %v", held)
	}
	// The list continues from there.
	create(atB, "afterwards")
	followed.untilLike(t, atA)

	goneAt(t, a, old)
	// The other replica has seen it all, and its clients need not list.
	if events := rawWatch(t, b, old.ResourceVersion); events.Type != "MODIFIED" && events.Type != "ADDED" {
		t.Errorf("the replica that knows the past answers a watch from it with %s %s", events.Type, events.Object)
	}
}

// goneAt expects 410 from a replica for a past revision of a list, in each form of request.
func goneAt(t *testing.T, replica *Fairgate, old *flowcontrolv1.PriorityLevelConfigurationList) {
	t.Helper()
	event := rawWatch(t, replica, old.ResourceVersion)
	var status metav1.Status
	succeeds(t, json.Unmarshal(event.Object, &status))
	if event.Type != "ERROR" {
		t.Errorf("a watch from %s begins with %s", old.ResourceVersion, event.Type)
	}
	expired(t, status, `^too old resource version: `+old.ResourceVersion+` \(\d+\)$`)

	code, status := rawStatus(t, replica, "?resourceVersionMatch=Exact&resourceVersion="+old.ResourceVersion)
	if code != http.StatusGone {
		t.Errorf("a list of %s is answered %d", old.ResourceVersion, code)
	}
	expired(t, status, `^The resourceVersion for the provided list is too old\.$`)

	code, status = rawStatus(t, replica, "?limit=2&continue="+url.QueryEscape(old.Continue))
	if code != http.StatusGone {
		t.Errorf("a list that continues one of %s is answered %d", old.ResourceVersion, code)
	}
	expired(t, status, `^The provided continue parameter is too old `)
	// It offers to continue with the present objects.
	rest := must[*flowcontrolv1.PriorityLevelConfigurationList](t)(clientOf(t, replica).PriorityLevelConfigurations().List(
		inTime(t, time.Minute), metav1.ListOptions{Continue: status.Continue}))
	if len(rest.Items) == 0 || rest.Items[0].Name <= old.Items[len(old.Items)-1].Name {
		t.Errorf("the list goes on with %+v", rest.Items)
	}
}

func expired(t *testing.T, status metav1.Status, message string) {
	t.Helper()
	wanted := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, ListMeta: status.ListMeta,
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone, Message: status.Message,
	}
	if status != wanted || !regexp.MustCompile(message).MatchString(status.Message) {
		t.Errorf("%+v, want %q, %d %s", status, message, wanted.Code, wanted.Reason)
	}
}

// A rawEvent is one of a watch, as it is on the wire.
type rawEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// rawWatch gives the first event of a watch of the levels after a resource version.
func rawWatch(t *testing.T, replica *Fairgate, version string) (event rawEvent) {
	t.Helper()
	response := ask(t, replica, shared.admin, http.MethodGet, levelsPath+"?watch=1&timeoutSeconds=20&resourceVersion="+version, "")
	if response.StatusCode != http.StatusOK {
		t.Errorf("a watch is answered %s", response.Status)
	}
	line := must[[]byte](t)(bufio.NewReader(response.Body).ReadBytes('\n'))
	succeeds(t, json.Unmarshal(line, &event))
	return event
}

// rawStatus gets the levels, which fails.
func rawStatus(t *testing.T, replica *Fairgate, query string) (int, metav1.Status) {
	t.Helper()
	response := ask(t, replica, shared.admin, http.MethodGet, levelsPath+query, "")
	var status metav1.Status
	succeeds(t, json.Unmarshal(must[[]byte](t)(io.ReadAll(response.Body)), &status))
	return response.StatusCode, status
}

// ask sends a request to a replica. The response's body is closed when the test ends.
func ask(t *testing.T, replica *Fairgate, user User, method, target, body string) *http.Response {
	t.Helper()
	transport := shared.Transport(user, true)
	header := http.Header{"Content-Type": {jsonType}}
	response := must[*http.Response](t)(shared.Do(inTime(t, time.Minute), transport, replica.Endpoint, user, method, target, header, body))
	t.Cleanup(func() {
		response.Body.Close()
		transport.CloseIdleConnections()
	})
	return response
}

// An informed is an informer of the levels, and the events that its handlers got.
type informed struct {
	informer cache.SharedIndexInformer
	mutex    sync.Mutex
	reported map[string]string // name to version, as the events come to
	begun    int               // how often it asked for everything
}

// follow starts an informer.
func follow(t *testing.T, replica *Fairgate) *informed {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	followed := &informed{reported: map[string]string{}}
	config := shared.Config(replica.Endpoint, shared.admin)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			query := request.URL.Query()
			response, err := next.RoundTrip(request)
			if err == nil && response.StatusCode == http.StatusOK && (!query.Has("watch") || query.Get("sendInitialEvents") == "true") {
				followed.mutex.Lock()
				followed.begun++
				followed.mutex.Unlock()
			}
			return response, err
		})
	})
	client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
	factory := informers.NewSharedInformerFactory(client, 0)
	followed.informer = factory.Flowcontrol().V1().PriorityLevelConfigurations().Informer()
	handlers := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { followed.note("", object) },
		UpdateFunc: func(before, object any) { followed.note(before.(metav1.Object).GetResourceVersion(), object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			followed.mutex.Lock()
			defer followed.mutex.Unlock()
			delete(followed.reported, object.(metav1.Object).GetName())
		},
	}
	must[cache.ResourceEventHandlerRegistration](t)(followed.informer.AddEventHandler(handlers))
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(inTime(t, time.Minute).Done(), followed.informer.HasSynced) {
		t.Fatal("the informer did not synchronise")
	}
	return followed
}

// note takes in that an object is there, which was of version before, if it was there.
func (i *informed) note(before string, object any) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	reported := object.(metav1.Object)
	if i.reported[reported.GetName()] != before {
		i.reported[reported.GetName()] = "out of order"
		return
	}
	i.reported[reported.GetName()] = reported.GetResourceVersion()
}

// untilLike waits until the informer holds exactly what a fresh list shows, and its handlers have got the events.
func (i *informed) untilLike(t *testing.T, client flowcontrolclient.PriorityLevelConfigurationInterface) {
	t.Helper()
	var wanted, held, reported map[string]string
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		list, err := client.List(inTime(t, time.Minute), metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		wanted, held = map[string]string{}, map[string]string{}
		for _, level := range list.Items {
			wanted[level.Name] = level.ResourceVersion
		}
		for _, object := range i.informer.GetStore().List() {
			held[object.(metav1.Object).GetName()] = object.(metav1.Object).GetResourceVersion()
		}
		i.mutex.Lock()
		reported = maps.Clone(i.reported)
		i.mutex.Unlock()
		return maps.Equal(wanted, held) && maps.Equal(wanted, reported), nil
	})
	if err != nil {
		t.Fatalf("the informer holds %v and reported %v, want %v: %v", held, reported, wanted, err)
	}
}

func (i *informed) names() []string {
	return slices.Sorted(slices.Values(i.informer.GetStore().ListKeys()))
}

func (i *informed) beginnings() int {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.begun
}

// roundTrip is a function as a RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
