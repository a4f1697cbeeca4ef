package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	elephantClients = 48
	mouseRequests   = 25 // of a test; figures are taken with those of elephantSeconds
	elephantSeconds = 15
	elephantSeats   = 8 // fairgate's server concurrency limit: what two cores serve without long queues of their own
	mouseInterval   = 200 * time.Millisecond
	requestLimit    = 5 * time.Minute
)

// A flood has the results of the elephant and of the mouse, in milliseconds from the intended send time.
type flood struct {
	// MouseOvertaken is how many LISTs of the elephant ended between a request of the mouse and its answer: the median.
	MouseOvertaken  int     `json:"mouse_overtaken"`
	MouseRequests   int     `json:"mouse_requests"`
	MouseOK         int     `json:"mouse_ok"`
	MouseRejected   int     `json:"mouse_rejected"`
	MouseP50        float64 `json:"mouse_p50_ms"`
	MouseP99        float64 `json:"mouse_p99_ms"`
	MouseIdleP50    float64 `json:"mouse_idle_p50_ms"` // before the elephant came
	MouseIdleP99    float64 `json:"mouse_idle_p99_ms"`
	ElephantOK      int64   `json:"elephant_ok"`
	Elephant429     int64   `json:"elephant_rejected"`
	ElephantFailed  int64   `json:"elephant_failed"`
	ElephantSeconds float64 `json:"seconds"`
}

// An elephant floods LISTs of 10 000 objects while a mouse, another user of the same priority level, reads one object five
// times a second, through a fairgate with eight seats. A request of the mouse waits for no more of the LISTs than there are
// seats, although forty wait all the time: its flow has its turn. No request of either fails.
func TestAMouseWaitsForNoMoreOfAnElephantThanThereAreSeats(t *testing.T) {
	aboutFairgate(t)
	grantTesters(t)
	makeCrowd(t)
	elephant := must[User](t)(shared.NewUser("elephant"))
	mouse := must[User](t)(shared.NewUser("mouse"))
	// No request is refused for the time that it waits, however slow the machine is.
	at := startFairgate(t, FairgateOptions{Mode: "requestHeader", Seats: elephantSeats, Request: "8m"})
	got := runFlood(t, at, elephant, mouse, mouseRequests)
	t.Logf("%s", asJSON(got))
	if got.MouseOK != got.MouseRequests {
		t.Errorf("served %d of the mouse's %d requests", got.MouseOK, got.MouseRequests)
	}
	if got.ElephantOK == 0 || got.ElephantFailed != 0 {
		t.Errorf("the elephant should be served or refused with Retry-After: %d served, %d failed", got.ElephantOK, got.ElephantFailed)
	}
	if got.MouseOvertaken > elephantSeats {
		t.Errorf("half of the mouse's requests waited for %d LISTs or more, with %d seats", got.MouseOvertaken, elephantSeats)
	}
	measured(t, "a mouse beside an elephant, p99", got.MouseP99, "ms")
}

// The same at the apiserver itself, through a fairgate that only passes on, and through one that is fair. The second shows
// the effect of any proxy, fair or not: it takes the place of many connections by few, which alone holds the elephant back.
func TestAMouseBesideAnElephant(t *testing.T) {
	onlyMeasures(t)
	grantTesters(t)
	makeCrowd(t)
	elephant := must[User](t)(shared.NewUser("elephant"))
	mouse := must[User](t)(shared.NewUser("mouse"))

	result := map[string]any{"clients": elephantClients, "seats": elephantSeats}
	const requests = int(elephantSeconds * time.Second / mouseInterval)
	alone := runFlood(t, shared.Direct, elephant, mouse, requests)
	result["apiserver"] = alone
	if !*direct {
		behind := func(name string, options FairgateOptions) flood {
			var measured flood
			t.Run(name, func(t *testing.T) {
				measured = runFlood(t, startFairgate(t, options), elephant, mouse, requests)
				if measured.MouseOK != measured.MouseRequests {
					t.Errorf("served %d of the mouse's %d requests", measured.MouseOK, measured.MouseRequests)
				}
				if measured.ElephantOK == 0 || measured.ElephantFailed != 0 {
					t.Errorf("the elephant should be served or refused with Retry-After: %d served, %d failed", measured.ElephantOK, measured.ElephantFailed)
				}
			})
			return measured
		}
		passing := behind("passing on", FairgateOptions{Mode: "requestHeader", Off: true})
		fair := behind("fair", FairgateOptions{Mode: "requestHeader", Seats: elephantSeats})
		result["fairgate_off"], result["fairgate"] = passing, fair
		measured(t, "a mouse beside an elephant, p99, by that at the apiserver itself", ratio(fair.MouseP99, alone.MouseP99), "")
		measured(t, "the same through a fairgate that only passes on", ratio(passing.MouseP99, alone.MouseP99), "")
	}
	line := must[[]byte](t)(json.Marshal(result))
	fmt.Printf("ELEPHANT_MOUSE %s\n", line)
	if alone.ElephantOK == 0 || alone.MouseOK == 0 {
		t.Errorf("nothing was measured: %s", line)
	}
}

// ratio is a number that JSON can hold, whatever was measured.
func ratio(of, to float64) float64 {
	if to == 0 {
		return 0
	}
	return of / to
}

func runFlood(t *testing.T, at Endpoint, elephant, mouse User, requests int) flood {
	t.Helper()
	ctx := inTime(t, 10*time.Minute)
	var result flood
	if *measuring {
		idle := runMouse(ctx, at, mouse, requests/5, nil)
		result.MouseIdleP50, result.MouseIdleP99 = idle.percentile(50), idle.percentile(99)
	}

	flooding, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	var ok, rejected, failed, running atomic.Int64
	for range elephantClients {
		clients.Go(func() {
			// A connection each: they are many clients, not one.
			transport := shared.Transport(elephant, false)
			defer transport.CloseIdleConnections()
			running.Add(1)
			for flooding.Err() == nil {
				code, wait, err := list(flooding, transport, at, elephant)
				switch {
				case flooding.Err() != nil:
				case err != nil:
					failed.Add(1)
				case code == http.StatusOK:
					ok.Add(1)
				case code == http.StatusTooManyRequests:
					rejected.Add(1)
					select {
					case <-flooding.Done():
					case <-time.After(min(wait, time.Second)):
					}
				default:
					failed.Add(1)
				}
			}
		})
	}
	// The mouse starts when all clients have begun, and the first have been answered.
	if err := poll(2*time.Minute, 10*time.Millisecond, func() (bool, error) {
		return running.Load() == elephantClients && ok.Load() >= elephantSeats, nil
	}); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	beside := runMouse(ctx, at, mouse, requests, &ok)
	stop()
	clients.Wait()

	result.MouseRequests, result.MouseOK, result.MouseRejected = beside.sent, len(beside.served), beside.rejected
	slices.Sort(beside.overtaken)
	result.MouseOvertaken = int(beside.overtaken[len(beside.overtaken)/2])
	result.MouseP50, result.MouseP99 = beside.percentile(50), beside.percentile(99)
	result.ElephantOK, result.Elephant429, result.ElephantFailed = ok.Load(), rejected.Load(), failed.Load()
	result.ElephantSeconds = time.Since(started).Seconds()
	return result
}

// list reads the whole crowd once. It returns the code and, of a refusal, how long to wait.
func list(ctx context.Context, transport *http.Transport, at Endpoint, user User) (int, time.Duration, error) {
	response, err := shared.Do(ctx, transport, at, user, http.MethodGet, "/api/v1/namespaces/"+crowdNamespace+"/configmaps", nil, "")
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, 0, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, time.Duration(max(seconds, 1)) * time.Second, nil
}

// A run has the results of a mouse.
type run struct {
	sent, rejected int
	served         []float64 // milliseconds, of those answered 200
	failed         []float64 // milliseconds, of the others: they count as waiting too
	overtaken      []int64   // how much others did meanwhile, for each
}

func (r run) percentile(percent int) float64 {
	all := slices.Concat(r.served, r.failed)
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*percent/100)]
}

// runMouse reads one object that many times at a fixed rate, whether or not the earlier responses have arrived, and measures
// from the moment when each request was due. It notes how far others counts while a request is in progress.
func runMouse(ctx context.Context, at Endpoint, user User, count int, others *atomic.Int64) run {
	transport := shared.Transport(user, true)
	defer transport.CloseIdleConnections()
	var result run
	var mutex sync.Mutex
	var requests sync.WaitGroup
	started := time.Now()
	for number := range count {
		due := time.Duration(number) * mouseInterval
		select {
		case <-ctx.Done(): // the requests fail at once and are counted so
		case <-time.After(time.Until(started.Add(due))):
		}
		result.sent++
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, requestLimit) // against a hang
			defer cancel()
			code, before := 0, int64(0)
			if others != nil {
				before = others.Load()
			}
			response, err := shared.Do(ctx, transport, at, user, http.MethodGet, "/api/v1/namespaces/"+crowdNamespace+"/configmaps/member-00042", nil, "")
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				code = response.StatusCode
			}
			took := float64(time.Since(started.Add(due)).Microseconds()) / 1000
			mutex.Lock()
			defer mutex.Unlock()
			if others != nil {
				result.overtaken = append(result.overtaken, others.Load()-before)
			}
			switch {
			case err == nil && code == http.StatusOK:
				result.served = append(result.served, took)
				return
			case code == http.StatusTooManyRequests:
				result.rejected++
			}
			result.failed = append(result.failed, took)
		})
	}
	requests.Wait()
	return result
}
