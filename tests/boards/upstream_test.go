package boards

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An upstream stands in for an API server. The query of a request says what it does: `delay` (a duration), `bytes` of the
// body, `watch`, `code`, and `break` for a response that breaks off.
type upstream struct {
	address string
	mutex   sync.Mutex
	server  *http.Server
	// flowSchemas and levels are the items of the lists that a sidecar follows.
	flowSchemas, levels string
	// refusesReviews says whether it refuses to review tokens.
	refusesReviews atomic.Bool
	// leases are those of a fleet, if there is one.
	leases *leases
	// cut says whether it answers requests for them with 503.
	cut atomic.Bool
}

func startUpstream(t *testing.T, flowSchemas, levels string) *upstream {
	u := &upstream{address: "127.0.0.1:0", flowSchemas: flowSchemas, levels: levels}
	u.up(t)
	t.Cleanup(u.down)
	return u
}

// up listens, on the same port as before.
func (u *upstream) up(t *testing.T) {
	listener, err := net.Listen("tcp", u.address)
	if err != nil {
		t.Fatal(err)
	}
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.address = listener.Addr().String()
	u.server = &http.Server{Handler: http.HandlerFunc(u.serve)}
	go u.server.Serve(listener)
}

// down stops listening and breaks all connections.
func (u *upstream) down() {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.server.Close()
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	if u.leases != nil {
		if u.cut.Load() && strings.Contains(r.URL.Path, "/leases") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if u.leases.serve(w, r) {
			return
		}
	}
	watch, _ := strconv.ParseBool(query.Get("watch"))
	if kind, items, found := u.followed(r.URL.Path); found && !watch {
		fmt.Fprintf(w, `{"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": %q, "metadata": {"resourceVersion": "1"}, "items": [%s]}`, kind, items)
		return
	}
	if watch {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	if r.URL.Path == "/apis/flowcontrol.apiserver.k8s.io" {
		version := `{"groupVersion": "flowcontrol.apiserver.k8s.io/v1", "version": "v1"}`
		fmt.Fprintf(w, `{"kind": "APIGroup", "apiVersion": "v1", "name": "flowcontrol.apiserver.k8s.io", "versions": [%s], "preferredVersion": %s}`, version, version)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") && u.refusesReviews.Load() {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if strings.HasSuffix(r.URL.Path, "reviews") {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"status": {"allowed": true, "authenticated": false}}`)
		return
	}
	if delay, err := time.ParseDuration(query.Get("delay")); err == nil {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
		}
	}
	if code, err := strconv.Atoi(query.Get("code")); err == nil {
		w.WriteHeader(code)
	}
	size, _ := strconv.Atoi(query.Get("bytes"))
	line := []byte(strings.Repeat(" ", 1<<16))
	for size > 0 {
		n := min(size, len(line))
		if _, err := w.Write(line[:n]); err != nil {
			return
		}
		size -= n
	}
	if query.Has("break") {
		panic(http.ErrAbortHandler)
	}
	io.WriteString(w, "{}")
}

func (u *upstream) followed(path string) (kind, items string, found bool) {
	switch path {
	case "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas":
		return "FlowSchemaList", u.flowSchemas, true
	case "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations":
		return "PriorityLevelConfigurationList", u.levels, true
	}
	return "", "", false
}
