package cluster

import (
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
)

// A discoveryFault is what is wrong with the documents that say what a server has.
type discoveryFault int

const (
	noDiscoveryFault discoveryFault = iota
	// refusedDiscovery answers requests for them with 503.
	refusedDiscovery
	// heldDiscovery does not answer them until something else is set.
	heldDiscovery
	// refusedOpenAPI answers requests for the OpenAPI documents with 503.
	refusedOpenAPI
)

// A DiscoveryGate stands between a gateway and its upstream, and has the upstream not say what it has.
type DiscoveryGate struct {
	URL string

	proxy   *httputil.ReverseProxy
	mutex   sync.Mutex
	fault   discoveryFault
	changed chan struct{}
	met     int // requests that met the fault
}

// NewDiscoveryGate starts one before a server, to which everything goes in the name of one user.
func (c *Cluster) NewDiscoveryGate(upstream Endpoint, as User, fault discoveryFault) (*DiscoveryGate, error) {
	gate := &DiscoveryGate{fault: fault, changed: make(chan struct{})}
	var err error
	gate.proxy, gate.URL, err = c.serveBefore(upstream, as, gate)
	return gate, err
}

// Set has something be wrong from now on, or nothing.
func (g *DiscoveryGate) Set(fault discoveryFault) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.fault, g.met = fault, 0
	close(g.changed)
	g.changed = make(chan struct{})
}

// Met is how many requests have met the fault since it was set.
func (g *DiscoveryGate) Met() int {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.met
}

// meets says how a request for this path is answered, and when that may change.
func (g *DiscoveryGate) meets(path string) (discoveryFault, <-chan struct{}) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	isOpenAPI := strings.HasPrefix(path, "/openapi/")
	if g.fault == noDiscoveryFault || !isOpenAPI && (g.fault == refusedOpenAPI || !isDiscovery(path)) {
		return noDiscoveryFault, nil
	}
	g.met++
	return g.fault, g.changed
}

// isDiscovery says whether a path is that of a document about groups, versions or resources.
func isDiscovery(path string) bool {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	return segments[0] == "api" && len(segments) <= 2 || segments[0] == "apis" && len(segments) <= 3
}

func (g *DiscoveryGate) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	for {
		fault, changed := g.meets(request.URL.Path)
		switch fault {
		case noDiscoveryFault:
			g.proxy.ServeHTTP(writer, request)
			return
		case heldDiscovery:
			select {
			case <-changed:
			case <-request.Context().Done():
				return
			}
		default:
			http.Error(writer, "out of order", http.StatusServiceUnavailable)
			return
		}
	}
}
