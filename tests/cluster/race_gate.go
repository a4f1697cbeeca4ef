package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// raceHeader names the write of a race that a request belongs to: the race, a slash, and which of both.
const raceHeader = "Race-Write"

// The writes of a race.
const (
	firstWrite = iota
	secondWrite
	raceWrites
)

// A RaceGate stands between a gateway and its upstream. It holds the first attempt at each write of a race until both have been
// evaluated, and then lets them through one after the other: so that chance does not decide whether one was evaluated by the object
// before the other.
type RaceGate struct {
	URL string
	// Readings is how often all groups were asked for.
	Readings atomic.Int64

	proxy *httputil.ReverseProxy
	mutex sync.Mutex
	races map[string]*heldRace
}

// A heldRace is a race that is under way.
type heldRace struct {
	writes [raceWrites]heldWrite
}

// A heldWrite is the first attempt at a write. Later ones, after a conflict, are not held.
type heldWrite struct {
	once                      sync.Once
	arrived, release, carried chan struct{}
}

// NewRaceGate starts one before a server, to which everything goes in the name of one user.
func (c *Cluster) NewRaceGate(upstream Endpoint, as User) (*RaceGate, error) {
	gate := &RaceGate{races: map[string]*heldRace{}}
	var err error
	gate.proxy, gate.URL, err = c.serveBefore(upstream, as, gate)
	return gate, err
}

// serveBefore has a handler serve with TLS. Returns a proxy to the server that it stands before, to which everything goes in the name of
// one user, and the URL at which it serves.
func (c *Cluster) serveBefore(upstream Endpoint, as User, handler http.Handler) (*httputil.ReverseProxy, string, error) {
	to, err := url.Parse(upstream.URL)
	if err != nil {
		return nil, "", err
	}
	pair, err := c.PKI.newServer(fmt.Sprintf("gate-%s-%d", upstream.Name, time.Now().UnixNano()), nil)
	if err != nil {
		return nil, "", err
	}
	certificate, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	proxy := &httputil.ReverseProxy{
		Transport:     c.Transport(as, false),
		FlushInterval: -1, // for watches
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(to)
			request.Out.Header.Del(raceHeader)
		},
		ErrorHandler: func(writer http.ResponseWriter, _ *http.Request, err error) {
			http.Error(writer, err.Error(), http.StatusBadGateway)
		},
	}
	serving := http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}}
	go func() { _ = serving.ServeTLS(listener, "", "") }()
	return proxy, "https://" + listener.Addr().String(), nil
}

func (g *RaceGate) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.URL.Path == "/apis" {
		g.Readings.Add(1)
	}
	held := g.write(request)
	if held == nil {
		g.proxy.ServeHTTP(writer, request)
		return
	}
	isFirst := false
	held.once.Do(func() { isFirst = true })
	if isFirst {
		close(held.arrived)
		select {
		case <-held.release:
		case <-request.Context().Done():
		}
		defer close(held.carried)
	}
	g.proxy.ServeHTTP(writer, request)
}

// write is the write of a race that a request is; nil if it is none, such as a dry run.
func (g *RaceGate) write(request *http.Request) *heldWrite {
	name, which, found := strings.Cut(request.Header.Get(raceHeader), "/")
	if !found || request.Method == http.MethodGet || strings.Contains(request.URL.RawQuery, "dryRun=") {
		return nil
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	race := g.races[name]
	if race == nil {
		return nil
	}
	if which == "0" {
		return &race.writes[firstWrite]
	}
	return &race.writes[secondWrite]
}

// Begin has the writes of a race held from now on.
func (g *RaceGate) Begin(name string) *heldRace {
	race := &heldRace{}
	for i := range race.writes {
		race.writes[i].arrived, race.writes[i].release, race.writes[i].carried = make(chan struct{}), make(chan struct{}), make(chan struct{})
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.races[name] = race
	return race
}

// End forgets a race.
func (g *RaceGate) End(name string) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	delete(g.races, name)
}

// conduct waits until each write is held or answered without, and lets them through in this order.
func (r *heldRace) conduct(ctx context.Context, answered [raceWrites]chan struct{}, order [raceWrites]int) error {
	for _, which := range order {
		select {
		case <-r.writes[which].arrived:
		case <-answered[which]:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, which := range order {
		close(r.writes[which].release)
		select {
		case <-r.writes[which].carried:
		case <-answered[which]:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
