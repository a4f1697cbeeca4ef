package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A fairgate starts before its etcd, and loses it later. It serves all the time, by the policy it knows.
func TestAGatewayServesWithoutItsStore(t *testing.T) {
	etcd := ownEtcd(t)
	t.Parallel()
	gateway := newReplica(t, "a", etcd.URL)
	succeeds(t, gateway.Start())
	process := gateway.running
	ctx := inTime(t, 20*time.Minute)
	levels, schemas := clientOf(t, gateway).PriorityLevelConfigurations(), clientOf(t, gateway).FlowSchemas()

	// Absent: the built-in policy serves, of which no object is known.
	tellsOfItsStore(t, gateway, false)
	classifies(t, gateway)
	refusesWrites(t, gateway, "outage-absent")
	if code, status := rawStatus(t, gateway, ""); code != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable {
		t.Errorf("a list is answered %d %+v", code, status)
	}

	// Reached at last: the objects are created, and the gateway uses them.
	succeeds(t, etcd.Start())
	tellsOfItsStore(t, gateway, true)
	untilMetric(t, gateway, "fairgate_bootstrap_ensured", 1)
	untilClassifiedByTheStore(t, gateway)
	created := must[*flowcontrolv1.PriorityLevelConfiguration](t)(levels.Create(ctx, rejecting("outage-before", 1), metav1.CreateOptions{}))
	events := must[watch.Interface](t)(levels.Watch(ctx, metav1.ListOptions{ResourceVersion: created.ResourceVersion}))
	defer events.Stop()

	// Lost: requests are served from what was read before, and so are reads from memory.
	succeeds(t, etcd.Kill())
	tellsOfItsStore(t, gateway, false)
	refusesWrites(t, gateway, "outage-during")
	if code, status := rawStatus(t, gateway, ""); code != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable {
		t.Errorf("a list of what is newest is answered %d %+v", code, status)
	}
	known := must[*flowcontrolv1.PriorityLevelConfiguration](t)(levels.Get(ctx, created.Name, metav1.GetOptions{ResourceVersion: "0"}))
	if known.UID != created.UID {
		t.Errorf("in memory there is %+v, want %+v", known, created)
	}
	exempt := must[*flowcontrolv1.FlowSchema](t)(schemas.Get(ctx, "exempt", metav1.GetOptions{ResourceVersion: "0"}))
	if uid := classifies(t, gateway); uid != string(exempt.UID) {
		t.Errorf("the administrator is classified as %q, want %q", uid, exempt.UID)
	}

	// Back: all works, and a watch has neither ended nor missed anything.
	succeeds(t, etcd.Start())
	tellsOfItsStore(t, gateway, true)
	after := must[*flowcontrolv1.PriorityLevelConfiguration](t)(levels.Create(ctx, rejecting("outage-after", 1), metav1.CreateOptions{}))
	awaitEvent(t, events, watch.Added, func(object metav1.Object) bool { return object.GetUID() == after.UID })
	list := must[*flowcontrolv1.PriorityLevelConfigurationList](t)(levels.List(ctx, metav1.ListOptions{}))
	for _, level := range list.Items {
		if level.Name == "outage-absent" || level.Name == "outage-during" {
			t.Errorf("%s was refused, and is there", level.Name)
		}
	}
	select {
	case <-process.done:
		t.Error("the gateway has ended")
	default:
	}
}

// tellsOfItsStore waits until metric and probe say that the store is there, or not. The gateway is ready
// either way.
func tellsOfItsStore(t *testing.T, gateway *Fairgate, up bool) {
	t.Helper()
	value, wanted := 1.0, "[+]store ok\n"
	if !up {
		value, wanted = 0, "[!]store: the store is not available: "
	}
	untilMetric(t, gateway, "fairgate_store_up", value)
	code, text, err := gateway.Ask(inTime(t, time.Minute), "/readyz?verbose")
	if err != nil || code != http.StatusOK || !strings.Contains(text, wanted) {
		t.Errorf("/readyz?verbose: %d %v\n%s\nwant %q", code, err, text, wanted)
	}
}

// classifies expects the requests of an administrator and of an ordinary user to go through flow control. It
// returns the UID of the administrator's schema.
func classifies(t *testing.T, gateway *Fairgate) string {
	t.Helper()
	ordinary := must[User](t)(alice())
	seen := map[string]bool{}
	var last string
	for _, user := range []User{ordinary, shared.admin} {
		response := ask(t, gateway, user, http.MethodGet, "/version", "")
		_, _ = io.Copy(io.Discard, response.Body)
		last = response.Header.Get(flowSchemaHeader)
		if response.StatusCode != http.StatusOK || last == "" || response.Header.Get(priorityLevelHeader) == "" || seen[last] {
			t.Errorf("%s gets %s with %v", user.Name, response.Status, response.Header)
		}
		seen[last] = true
	}
	return last
}

// untilClassifiedByTheStore waits until requests are classified by the objects of the store.
func untilClassifiedByTheStore(t *testing.T, gateway *Fairgate) {
	t.Helper()
	exempt := must[*flowcontrolv1.FlowSchema](t)(clientOf(t, gateway).FlowSchemas().Get(inTime(t, time.Minute), "exempt", metav1.GetOptions{}))
	var uid string
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		uid = classifies(t, gateway)
		return uid == string(exempt.UID), nil
	})
	if err != nil {
		t.Errorf("the administrator is classified as %q, want %q", uid, exempt.UID)
	}
}

// refusesWrites expects each kind of write to fail in a way that clients understand.
func refusesWrites(t *testing.T, gateway *Fairgate, name string) {
	t.Helper()
	object := must[[]byte](t)(json.Marshal(rejecting(name, 1)))
	for _, write := range []struct {
		method, target, body string
		again                int32 // seconds after which it may be repeated; 0 where it might have been done
	}{
		{http.MethodPost, levelsPath, string(object), 0},
		{http.MethodDelete, levelsPath + "/exempt", "", 1}, // fails when it reads
		{http.MethodDelete, levelsPath + "?labelSelector=none%3Dsuch", "", 1},
	} {
		header := ""
		if write.again > 0 {
			header = strconv.Itoa(int(write.again))
		}
		began := time.Now()
		response := ask(t, gateway, shared.admin, write.method, write.target, write.body)
		var status metav1.Status
		succeeds(t, json.Unmarshal(must[[]byte](t)(io.ReadAll(response.Body)), &status))
		if response.StatusCode != http.StatusServiceUnavailable || status.Kind != "Status" || status.Code != http.StatusServiceUnavailable ||
			status.Reason != metav1.StatusReasonServiceUnavailable || !strings.HasPrefix(status.Message, "the store is not available: ") ||
			status.Details == nil || status.Details.RetryAfterSeconds != write.again || response.Header.Get("Retry-After") != header {
			t.Errorf("%s %s: %s %v %+v", write.method, write.target, response.Status, response.Header, status)
		}
		measured(t, fmt.Sprintf("refusal without a store, %s: %s", name, write.method), time.Since(began).Seconds(), "s")
	}
}
