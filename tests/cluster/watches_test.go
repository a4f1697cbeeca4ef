package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	watchingUsers  = 300
	watchesOfEach  = 100
	watchEvent     = `{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}` + "\n"
	watchesOpening = 8 // users that open theirs at the same time
)

// 30 000 watches of 300 users pass at the same time, each of them sees what happens, and others are served as
// ever. The upstream is a stand-in, which holds watches and answers the rest, so that the machine has to keep
// no more than that. Prints the memory of fairgate per watch.
func TestThirtyThousandWatches(t *testing.T) {
	if testing.Short() || *direct {
		t.Skip("takes a minute, and is about fairgate")
	}
	ctx := inTime(t, 15*time.Minute)
	upstream := newWatched(t)
	fairgate := newWatchFairgate(t, upstream.address)
	succeeds(t, fairgate.Start())
	before := must[int](t)(residentMemory(fairgate))

	var watches sync.WaitGroup
	var opened, refused, events, ended atomic.Int64
	watching, unwatch := context.WithCancel(ctx)
	started := time.Now()
	turns := make(chan struct{}, watchesOpening)
	var opening sync.WaitGroup
	for user := range watchingUsers {
		opening.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			client := plainHTTP2()
			for range watchesOfEach {
				body, code, err := startWatch(watching, client, fairgate.URL, "user-"+strconv.Itoa(user))
				if err != nil || code != http.StatusOK {
					refused.Add(1)
					continue
				}
				opened.Add(1)
				watches.Go(func() {
					defer body.Close()
					lines := bufio.NewReaderSize(body, 256)
					for {
						if _, err := lines.ReadString('\n'); err != nil {
							if watching.Err() == nil {
								ended.Add(1)
							}
							return
						}
						events.Add(1)
					}
				})
			}
		})
	}
	opening.Wait()
	took := time.Since(started)
	after := must[int](t)(residentMemory(fairgate))

	upstream.tellAll()
	all := int64(watchingUsers * watchesOfEach)
	saw := poll(3*time.Minute, 10*time.Millisecond, func() (bool, error) { return events.Load() == all, nil })
	running := must[float64](t)(fairgate.Metric(ctx, "fairgate_watches"))
	other := plainHTTP2()
	failed := 0
	for range 100 {
		response, err := getPlain(ctx, other, fairgate.URL+"/api/v1/namespaces/a/configmaps/one", "user-0")
		if err != nil || response.StatusCode != http.StatusOK {
			failed++
		}
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
	}
	unwatch()
	watches.Wait()
	line := must[[]byte](t)(json.Marshal(map[string]any{
		"watches": opened.Load(), "refused": refused.Load(), "events": events.Load(), "ended": ended.Load(),
		"fairgate_watches": running, "seconds": took.Seconds(), "upstream_connections": upstream.connections.Load(),
		"resident_before": before, "resident_after": after, "bytes_each": (after - before) / int(all),
	}))
	fmt.Printf("WATCHES %s\n", line)
	measured(t, "memory of one of 30 000 watches", float64(after-before)/float64(all), "bytes")
	if opened.Load() != all || ended.Load() != 0 || saw != nil || running != float64(all) || failed != 0 {
		t.Errorf("%d of %d watches, %d ended, %d events; %d of 100 others failed", opened.Load(), all, ended.Load(), events.Load(), failed)
	}
}

// watched is an upstream that holds watches.
type watched struct {
	address     string
	connections atomic.Int64
	event       chan struct{} // closed when there is an event
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{event: make(chan struct{})}
	listener := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	w.address = listener.Addr().String()
	server := &http.Server{
		Handler:   http.HandlerFunc(w.serve),
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: 100},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				w.connections.Add(1)
			}
		},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return w
}

func (w *watched) serve(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("Content-Type", "application/json")
	if request.URL.Query().Get("watch") == "" {
		_, _ = io.WriteString(response, "{}\n")
		return
	}
	_ = http.NewResponseController(response).Flush()
	select {
	case <-w.event:
		_, _ = io.WriteString(response, watchEvent)
		_ = http.NewResponseController(response).Flush()
	case <-request.Context().Done():
		return
	}
	<-request.Context().Done()
}

// tellAll has every watch see an event.
func (w *watched) tellAll() { close(w.event) }

// newWatchFairgate is a fairgate in front of an upstream that speaks plain HTTP/2. Its users have tokens that are
// their names.
func newWatchFairgate(t *testing.T, upstream string) *Fairgate {
	t.Helper()
	var tokens strings.Builder
	for user := range watchingUsers {
		fmt.Fprintf(&tokens, "user-%[1]d,user-%[1]d,%[1]d\n", user)
	}
	file := filepath.Join(t.TempDir(), "tokens.csv")
	succeeds(t, os.WriteFile(file, []byte(tokens.String()), 0o600))
	fairgate := must[*Fairgate](t)(shared.newFairgate("watches", "", 0, func(address, admin string) (string, error) {
		return fmt.Sprintf(`apiVersion: fairgate.dev/v1alpha1
kind: Configuration
listen: {address: "%s"}
upstream: {url: "http://%s", protocol: http2}
authentication: {tokenFile: %s, tokenReview: {enabled: false}}
admin: {address: "%s"}
drain: {delay: 0s, grace: 1s}
`, address, upstream, file, admin), nil
	}))
	fairgate.URL = strings.Replace(fairgate.URL, "https://", "http://", 1)
	return ending(t, fairgate)
}

// plainHTTP2 is a client with a separate connection.
func plainHTTP2() *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: transport}
}

func getPlain(ctx context.Context, client *http.Client, url, token string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return client.Do(request)
}

func startWatch(ctx context.Context, client *http.Client, url, token string) (io.ReadCloser, int, error) {
	response, err := getPlain(ctx, client, url+"/api/v1/configmaps?watch=1&resourceVersion=7", token)
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
	}
	return response.Body, response.StatusCode, nil
}

// residentMemory is the resident memory of a fairgate, in bytes.
func residentMemory(fairgate *Fairgate) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", fairgate.running.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kibibytes, err := strconv.Atoi(fields[1])
			return kibibytes << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in %s", status)
}
