package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	resetsOfEach = 150_000
	resetLimit   = 20 * time.Minute // for that many, against a hang: a connection that is ended for its resets costs an attacker little
	resetAfter   = 4 * time.Millisecond
	resetBatch   = 50 // streams that an attacker opens at a time
	resetWatches = 12
	victimEvery  = 100 * time.Millisecond
)

// Four clients without any right open HTTP/2 streams and reset them after 4 ms, 150 000 times each: long-running
// requests, exempt ones, ordinary ones, and some without a credential. fairgate and the others share
// connections to the apiserver, which ends one on which it sees too many resets. Nothing may come of it for
// the others: no watch ends, no read and no write fails.
func TestResetsOfOneClientCostNobodyElseAnything(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	if *direct {
		t.Skip("the apiserver has nothing to share")
	}
	grantTesters(t)
	fairgate := newFairgate(t, FairgateOptions{Mode: "requestHeader"})
	succeeds(t, fairgate.Start())
	ctx := inTime(t, resetLimit+5*time.Minute)
	succeeds(t, shared.EnsureNamespace(ctx, "resets"))

	victims := newVictims(ctx, t, fairgate.Endpoint)
	attacking, stop := context.WithTimeout(ctx, resetLimit)
	defer stop()
	targets := []struct{ user, path string }{
		{"attacker-log", "/api/v1/namespaces/resets/pods/p/log"},
		{"attacker-probes", "/readyz?verbose"},
		{"attacker-reads", "/api/v1/namespaces/resets/configmaps"},
		{Anonymous.Name, "/readyz?verbose"},
	}
	var attackers sync.WaitGroup
	attacks := make([]attack, len(targets))
	for number, target := range targets {
		user := Anonymous
		if target.user != Anonymous.Name {
			user = must[User](t)(shared.NewUser(target.user))
		}
		attackers.Go(func() { attacks[number].run(attacking, fairgate.Endpoint, user, target.path) })
	}
	attackers.Wait()
	results := victims.end()

	result := map[string]any{"victims": results}
	for number, target := range targets {
		attack := &attacks[number]
		result[target.user] = map[string]int64{"reset": attack.reset.Load(), "connections": attack.connections.Load()}
		if attack.reset.Load() < resetsOfEach {
			t.Errorf("%s reset %d requests, fewer than %d", target.user, attack.reset.Load(), resetsOfEach)
		}
	}
	_, metrics, err := fairgate.Ask(ctx, "/metrics")
	succeeds(t, err)
	for _, line := range strings.Split(metrics, "\n") {
		for _, name := range []string{"fairgate_premature", "fairgate_client_connections_ended", "fairgate_upstream_"} {
			if strings.HasPrefix(line, name) {
				fmt.Println("RESETS", line)
			}
		}
	}
	fmt.Printf("RESETS %s\n", must[[]byte](t)(json.Marshal(result)))
	measured(t, "reads and writes of others beside resets, p99", results.P99, "ms")
	if results.WatchesEnded != 0 || results.ReadsFailed != 0 || results.WritesFailed != 0 {
		t.Errorf("others were hurt: %+v: %s", results, results.First)
	}
	if results.Events < results.Writes*resetWatches {
		t.Errorf("%d watches saw %d events of %d writes", resetWatches, results.Events, results.Writes)
	}
}

// VictimResults has the results of the clients that do not attack.
type VictimResults struct {
	WatchesEnded int64   `json:"watches_ended"`
	Events       int64   `json:"events"`
	Reads        int64   `json:"reads"`
	ReadsFailed  int64   `json:"reads_failed"`
	Writes       int64   `json:"writes"`
	WritesFailed int64   `json:"writes_failed"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	First        string  `json:"first_failure,omitempty"`
}

// victims are an administrator with watches, and a user that reads and writes.
type victims struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	// The watches outlive the writer, so as to see all writes.
	watching sync.WaitGroup
	ended    atomic.Bool
	unwatch  context.CancelFunc

	mutex   sync.Mutex
	results VictimResults
	took    []float64
}

func newVictims(ctx context.Context, t *testing.T, at Endpoint) *victims {
	t.Helper()
	v := &victims{}
	admin := must[kubernetes.Interface](t)(shared.adminOf(at))
	config := shared.Config(at, must[User](t)(alice()))
	config.QPS = -1
	user := must[kubernetes.Interface](t)(kubernetes.NewForConfig(config))
	watching, unwatch := context.WithCancel(ctx)
	v.unwatch = unwatch
	for range resetWatches {
		events := must[watch.Interface](t)(admin.CoreV1().ConfigMaps("resets").Watch(watching, metav1.ListOptions{}))
		v.watching.Go(func() { v.watch(events) })
	}
	acting, stop := context.WithCancel(ctx)
	v.stop = stop
	v.running.Go(func() { v.act(ctx, acting, user) })
	return v
}

func (v *victims) watch(events watch.Interface) {
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			if v.ended.Load() {
				return // it is ours that it was cancelled
			}
			v.failed(&v.results.WatchesEnded, fmt.Errorf("a watch got %v", event.Object))
			return
		}
		v.mutex.Lock()
		v.results.Events++
		v.mutex.Unlock()
	}
	if !v.ended.Load() {
		v.failed(&v.results.WatchesEnded, errors.New("a watch ended"))
	}
}

// act reads and writes in turn, whether or not the earlier requests were answered.
func (v *victims) act(ctx, until context.Context, user kubernetes.Interface) {
	var requests sync.WaitGroup
	for number := 0; ; number++ {
		select {
		case <-until.Done():
			requests.Wait()
			return
		case <-time.After(victimEvery):
		}
		requests.Go(func() {
			started := time.Now()
			if number%2 == 0 {
				v.write(ctx, user, number)
			} else {
				v.read(ctx, user)
			}
			took := float64(time.Since(started).Microseconds()) / 1000
			v.mutex.Lock()
			v.took = append(v.took, took)
			v.mutex.Unlock()
		})
	}
}

func (v *victims) write(ctx context.Context, user kubernetes.Interface, number int) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("written-%d", number)}}
	_, err := user.CoreV1().ConfigMaps("resets").Create(ctx, object, metav1.CreateOptions{})
	v.mutex.Lock()
	v.results.Writes++
	v.mutex.Unlock()
	if err != nil {
		v.failed(&v.results.WritesFailed, err)
	}
}

func (v *victims) read(ctx context.Context, user kubernetes.Interface) {
	_, err := user.CoreV1().ConfigMaps("resets").List(ctx, metav1.ListOptions{Limit: 5})
	v.mutex.Lock()
	v.results.Reads++
	v.mutex.Unlock()
	if err != nil {
		v.failed(&v.results.ReadsFailed, err)
	}
}

func (v *victims) failed(count *int64, err error) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	*count++
	if v.results.First == "" {
		v.results.First = err.Error()
	}
}

// end ends them all, and returns their results.
func (v *victims) end() VictimResults {
	v.stop()
	v.running.Wait()
	_ = poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		return v.results.WatchesEnded > 0 || v.results.Events >= v.results.Writes*resetWatches, nil
	})
	v.ended.Store(true)
	v.unwatch()
	v.watching.Wait()
	slices.Sort(v.took)
	if len(v.took) > 0 {
		v.results.P50, v.results.P99 = v.took[len(v.took)/2], v.took[len(v.took)*99/100]
	}
	return v.results
}

// An attack has the counts of one attacker.
type attack struct {
	reset       atomic.Int64
	connections atomic.Int64
}

// run opens streams and resets them, on another connection whenever one is ended, until there were enough.
func (a *attack) run(ctx context.Context, at Endpoint, user User, path string) {
	for ctx.Err() == nil && a.reset.Load() < resetsOfEach {
		if err := a.onOneConnection(ctx, at, user, path); err != nil {
			// The server may not want to talk at all for a moment.
			select {
			case <-ctx.Done():
			case <-time.After(resetAfter):
			}
		}
	}
}

func (a *attack) onOneConnection(ctx context.Context, at Endpoint, user User, path string) error {
	address, err := url.Parse(at.URL)
	if err != nil {
		return err
	}
	config := shared.Transport(user, true).TLSClientConfig
	config.NextProtos = []string{"h2"}
	dialer := tls.Dialer{Config: config}
	connection, err := dialer.DialContext(ctx, "tcp", address.Host)
	if err != nil {
		return err
	}
	defer connection.Close()
	a.connections.Add(1)
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	if _, err := io.WriteString(connection, http2.ClientPreface); err != nil {
		return err
	}
	// Whatever is said is taken and forgotten, so that nothing stands still.
	go func() { _, _ = io.Copy(io.Discard, connection) }()
	framer := http2.NewFramer(connection, nil)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	fields := [][2]string{{":method", http.MethodGet}, {":scheme", "https"}, {":authority", address.Host}, {":path", path}}
	for stream := uint32(1); stream < 1<<30 && a.reset.Load() < resetsOfEach; {
		first := stream
		for range resetBatch {
			head.Reset()
			for _, field := range fields {
				if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
					return err
				}
			}
			err := framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: stream, BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true,
			})
			if err != nil {
				return err
			}
			stream += 2
		}
		time.Sleep(resetAfter)
		for ; first < stream; first += 2 {
			if err := framer.WriteRSTStream(first, http2.ErrCodeCancel); err != nil {
				return err
			}
			a.reset.Add(1)
		}
	}
	return nil
}
