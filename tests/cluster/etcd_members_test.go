package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A member of etcd is dead or frozen, and a gateway and a kube-apiserver read and write through the others. Requests are
// sent as they are: client-go would repeat some. What is counted began later than a second after the fault.
func TestAMemberOfEtcdIsAway(t *testing.T) {
	aboutFairgate(t)
	members := must[[]*Etcd](t)(NewEtcdMembers(shared.Dir, shared.bin, 3))
	var urls []string
	started := make([]error, len(members))
	var starting sync.WaitGroup
	for index, member := range members {
		urls = append(urls, member.URL)
		starting.Go(func() { started[index] = member.Start() })
		t.Cleanup(func() { _ = member.Stop() })
	}
	starting.Wait()
	succeeds(t, started...)
	gateway := newReplica(t, "members", strings.Join(urls, ","))
	succeeds(t, gateway.Start())
	original := must[*Apiserver](t)(shared.StartApiserver("members", "", "--etcd-servers="+strings.Join(urls, ",")))
	t.Cleanup(original.Kill)
	untilMetric(t, gateway, "fairgate_bootstrap_ensured", 1)

	kill, freeze := (*Etcd).Kill, (*Etcd).Freeze
	for _, fault := range []struct {
		name       string
		leads      bool
		begin, end func(*Etcd) error
	}{
		{"dead follower", false, kill, (*Etcd).Start},
		{"frozen follower", false, freeze, (*Etcd).Thaw},
		{"dead leader", true, kill, (*Etcd).Start},
		{"frozen leader", true, freeze, (*Etcd).Thaw},
	} {
		member := memberOf(t, members, fault.leads)
		loads := []*memberLoad{startMemberLoad(t, "fairgate", gateway.Endpoint), startMemberLoad(t, "kube-apiserver", original.Endpoint)}
		for _, load := range loads {
			load.untilEnded(t, 0, 50)
		}
		enter := func(phase int32) {
			for _, load := range loads {
				load.phase.Store(phase)
			}
		}
		enter(1)
		succeeds(t, fault.begin(member))
		time.Sleep(time.Second)
		enter(2)
		time.Sleep(5 * time.Second)
		loads[0].untilEnded(t, 2, 100)
		enter(3)
		succeeds(t, fault.end(member))
		loads[0].untilEnded(t, 3, 50)
		for _, load := range loads {
			load.stop()
			t.Logf("%-15s %-14s %s", fault.name, load.name, load)
		}
		untilMetric(t, gateway, "fairgate_store_members_away", 0)
		evaluated := []int{0, 2, 3}
		if fault.leads {
			evaluated = []int{0, 3} // how long an election takes is for the clock to say
		}
		for _, phase := range evaluated {
			if failed := loads[0].failures(phase); len(failed) > 0 {
				t.Errorf("%s: %d requests failed in phase %d, one with %q", fault.name, len(failed), phase, failed[0])
			}
		}
	}
}

// memberOf is a member that leads, or one that follows.
func memberOf(t *testing.T, members []*Etcd, leads bool) *Etcd {
	t.Helper()
	var found *Etcd
	succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		for _, member := range members {
			if is, err := member.Leads(inTime(t, time.Minute)); err == nil && is == leads {
				found = member
				return true, nil
			}
		}
		return false, errors.New("no such member")
	}))
	return found
}

// A memberLoad sends requests to a server without pause, four at a time.
type memberLoad struct {
	name    string
	phase   atomic.Int32 // 0 before the fault, 1 in its first second, 2 during the rest of it, 3 after it
	stopped atomic.Bool
	workers sync.WaitGroup

	mutex sync.Mutex
	times [4][]time.Duration
	fails [4][]string
}

func startMemberLoad(t *testing.T, name string, at Endpoint) *memberLoad {
	load := &memberLoad{name: name}
	transport := shared.Transport(shared.admin, true)
	t.Cleanup(transport.CloseIdleConnections)
	for worker := range 4 {
		load.workers.Go(func() {
			for round := 0; !load.stopped.Load(); round++ {
				object := fmt.Sprintf("load-%d-%d", worker, time.Now().UnixNano())
				body := `{"metadata": {"name": "` + object + `"}, "spec": {"type": "Limited", "limited":
					{"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}}`
				load.request(transport, at, http.MethodPost, levelsPath, body)
				load.request(transport, at, http.MethodGet, levelsPath+"/"+object, "")
				load.request(transport, at, http.MethodGet, levelsPath, "")
				load.request(transport, at, http.MethodDelete, levelsPath+"/"+object, "")
			}
		})
	}
	return load
}

func (l *memberLoad) request(transport http.RoundTripper, at Endpoint, method, target, body string) {
	phase, from := l.phase.Load(), time.Now()
	header := http.Header{"Content-Type": {"application/json"}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	response, err := shared.Do(ctx, transport, at, shared.admin, method, target, header, body)
	why := ""
	if err != nil {
		why = err.Error()
	} else {
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		// What a failed creation has left out, or a deletion whose response was lost, is not there.
		if response.StatusCode >= 400 && response.StatusCode != http.StatusNotFound {
			why = fmt.Sprintf("%s %d %.200s", method, response.StatusCode, text)
		}
	}
	if phase == 0 && l.phase.Load() > 0 {
		phase = 1 // in progress when the fault began
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.times[phase] = append(l.times[phase], time.Since(from))
	if why != "" {
		l.fails[phase] = append(l.fails[phase], why)
	}
}

func (l *memberLoad) untilEnded(t *testing.T, phase, count int) {
	t.Helper()
	succeeds(t, poll(3*time.Minute, 20*time.Millisecond, func() (bool, error) {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		return len(l.times[phase]) >= count, nil
	}))
}

func (l *memberLoad) stop() {
	l.stopped.Store(true)
	l.workers.Wait()
}

func (l *memberLoad) failures(phase int) []string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.fails[phase]
}

func (l *memberLoad) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var text strings.Builder
	for phase, name := range []string{"before", "first second", "during", "after"} {
		times := l.times[phase]
		sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
		slowest := time.Duration(0)
		if len(times) > 0 {
			slowest = times[len(times)-1]
		}
		fmt.Fprintf(&text, "%s: %d of %d failed, slowest %d ms; ", name, len(l.fails[phase]), len(times), slowest.Milliseconds())
	}
	return text.String()
}
