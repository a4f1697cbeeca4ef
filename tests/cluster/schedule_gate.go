package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"regexp"
	"strings"
	"sync"
)

// A ScheduleGate stands between gateways and their upstream. It holds every request about the object of a schedule until it is let through:
// reads, dry runs and writes. A gateway reads in its own name and without the headers of the client, so a request is known by the name of
// the object in its target, which is unique.
//
// Requests that do not name the object are not held: access reviews, and reads of namespaces and definitions, which do not depend on it.
type ScheduleGate struct {
	URL string

	proxy *httputil.ReverseProxy
	mutex sync.Mutex
	held  map[string]chan *heldRequest
}

// scheduledName is the name of an object, also in a selector.
var scheduledName = regexp.MustCompile(`schedule-[0-9]+`)

// errGivenUp is that a gateway has not waited for the answer to a request: the machine is too slow.
var errGivenUp = errors.New("the gateway has given a request up")

// A heldRequest waits at the gate.
type heldRequest struct {
	write   string // which write it is for, if it says so
	does    string
	reads   bool
	release chan bool       // whether the response is lost
	gone    <-chan struct{} // closed when the gateway has given it up
	carried chan struct{}   // closed when the server has answered
	code    int             // what it has answered
}

// NewScheduleGate starts one before a server, to which everything goes in the name of one user.
func (c *Cluster) NewScheduleGate(upstream Endpoint, as User) (*ScheduleGate, error) {
	gate := &ScheduleGate{held: map[string]chan *heldRequest{}}
	var err error
	gate.proxy, gate.URL, err = c.serveBefore(upstream, as, gate)
	return gate, err
}

func (g *ScheduleGate) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	name, which, _ := strings.Cut(request.Header.Get(raceHeader), "/")
	if name == "" {
		name = scheduledName.FindString(request.URL.Path + "?" + request.URL.RawQuery)
	}
	g.mutex.Lock()
	arrivals := g.held[name]
	g.mutex.Unlock()
	if arrivals == nil {
		g.proxy.ServeHTTP(writer, request)
		return
	}
	held := newHeldRequest(request, which)
	arrivals <- held
	select {
	case isLost := <-held.release:
		g.carryOut(held, isLost, writer, request)
	case <-held.gone:
	}
}

func newHeldRequest(request *http.Request, which string) *heldRequest {
	held := &heldRequest{write: which, does: request.Method, release: make(chan bool), gone: request.Context().Done(), carried: make(chan struct{})}
	isDry := strings.Contains(request.URL.RawQuery, "dryRun=")
	if isDry {
		held.does += " dry run"
	}
	held.reads = isDry || request.Method == http.MethodGet
	return held
}

// carryOut lets a request through.
func (g *ScheduleGate) carryOut(held *heldRequest, isLost bool, writer http.ResponseWriter, request *http.Request) {
	defer close(held.carried)
	answer := &codeWriter{ResponseWriter: writer, code: http.StatusOK}
	if isLost {
		answer.ResponseWriter = httptest.NewRecorder()
	}
	g.proxy.ServeHTTP(answer, request)
	held.code = answer.code
	if isLost {
		panic(http.ErrAbortHandler) // resets the stream
	}
}

// A codeWriter notes the code of a response.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (w *codeWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Begin has requests about the object of this name held from now on. Returns those that come.
func (g *ScheduleGate) Begin(name string) <-chan *heldRequest {
	arrivals := make(chan *heldRequest, scheduleSteps)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.held[name] = arrivals
	return arrivals
}

// End holds no more of them.
func (g *ScheduleGate) End(name string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.held, name)
}

// letThrough carries a held request out, and waits until the server has answered.
func (h *heldRequest) letThrough(ctx context.Context, isLost bool) error {
	select {
	case h.release <- isLost:
	case <-h.gone:
		return errGivenUp
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-h.carried:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
