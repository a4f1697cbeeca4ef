package cluster

import (
	"context"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
)

// A watchFault is what is wrong with how a gateway learns of policies.
type watchFault int

const (
	noFault watchFault = iota
	// brokenWatches ends the watches, and refuses lists and watches.
	brokenWatches
	// silentWatches lets them be and passes nothing on; lists are answered.
	silentWatches
	// swallowedWatches passes nothing on either, and leaves watches open that the upstream has ended; lists are answered.
	swallowedWatches
)

// A WatchGate stands between a gateway and its upstream, and can break the lists and watches of admission policies alone.
type WatchGate struct {
	URL string

	// Lists counts the lists of policies that were answered.
	Lists atomic.Int64
	// Watches counts the watches of policies.
	Watches atomic.Int64

	proxy *httputil.ReverseProxy
	mutex sync.Mutex
	fault watchFault
	ended context.Context
	end   context.CancelFunc
}

// NewWatchGate starts one before a server, to which everything goes in the name of one user.
func (c *Cluster) NewWatchGate(upstream Endpoint, as User) (*WatchGate, error) {
	gate := &WatchGate{}
	gate.ended, gate.end = context.WithCancel(context.Background())
	var err error
	gate.proxy, gate.URL, err = c.serveBefore(upstream, as, gate)
	return gate, err
}

// Set has something be wrong from now on, or nothing.
func (g *WatchGate) Set(fault watchFault) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.fault = fault; fault == brokenWatches {
		g.end()
		g.ended, g.end = context.WithCancel(context.Background())
	}
}

func (g *WatchGate) now() (watchFault, context.Context) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.fault, g.ended
}

func (g *WatchGate) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodGet || !strings.HasPrefix(request.URL.Path, policiesPath) && !strings.HasPrefix(request.URL.Path, bindingsPath) {
		g.proxy.ServeHTTP(writer, request)
		return
	}
	fault, ended := g.now()
	if fault == brokenWatches {
		http.Error(writer, "out of order", http.StatusServiceUnavailable)
		return
	}
	if request.URL.Query().Get("watch") == "" {
		g.proxy.ServeHTTP(writer, request)
		if strings.HasPrefix(request.URL.Path, policiesPath) {
			g.Lists.Add(1)
		}
		return
	}
	if strings.HasPrefix(request.URL.Path, policiesPath) {
		g.Watches.Add(1)
	}
	ctx, cancel := context.WithCancel(request.Context())
	defer cancel()
	defer context.AfterFunc(ended, cancel)()
	g.proxy.ServeHTTP(&muted{writer, g}, request.WithContext(ctx))
	if fault, _ := g.now(); fault == swallowedWatches {
		<-ctx.Done()
	}
}

// muted discards events while watches are silent.
type muted struct {
	http.ResponseWriter
	gate *WatchGate
}

func (m *muted) Write(events []byte) (int, error) {
	if fault, _ := m.gate.now(); fault == silentWatches || fault == swallowedWatches {
		return len(events), nil
	}
	return m.ResponseWriter.Write(events)
}

// Unwrap is for the proxy, which flushes.
func (m *muted) Unwrap() http.ResponseWriter { return m.ResponseWriter }
