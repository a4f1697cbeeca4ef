package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	unfinishedBodies = 20
	unfinishedSent   = "12345678" // of 1000 bytes
	unfinishedHeld   = 70 * time.Second
	unfinishedSeats  = "30" // of the server in all; the level global-default has three, and borrows more
)

// An unfinishedBody gives its first bytes and then nothing until its request ends or is answered.
type unfinishedBody struct {
	sent   bool
	done   <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (b *unfinishedBody) Read(into []byte) (int, error) {
	if !b.sent {
		b.sent = true
		return copy(into, unfinishedSent), nil
	}
	select {
	case <-b.done:
	case <-b.closed:
	}
	return 0, io.ErrUnexpectedEOF
}

// Close ends the body.
func (b *unfinishedBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// An unfinishedResult says what a level was like while bodies stayed unfinished, and what another user of it got.
type unfinishedResult struct {
	MostExecuting float64        `json:"most_executing"` // of the level, the other user's requests included
	MostWaiting   float64        `json:"most_waiting"`
	LastFull      float64        `json:"last_full_s"`    // from the beginning until two of the level executed for the last time
	SeatsBack     float64        `json:"seats_back_s"`   // from the end of the connection until nothing of the level executes
	FirstAnswer   float64        `json:"first_answer_s"` // until the first unfinished request was answered
	Answers       map[string]int `json:"answers"`        // of the unfinished requests
	Others        map[string]int `json:"others"`         // of the other user's, which waits five seconds for each
}

// What kube-apiserver does with bodies that stay unfinished: 20 POSTs of one user over HTTP/2, of whose 1000 bytes 8 are sent.
// Meanwhile another user of the same priority level reads one object after the other. It only measures.
func TestMeasureUnfinishedBodiesAtTheApiserver(t *testing.T) {
	onlyMeasures(t)
	server := must[*Apiserver](t)(shared.StartApiserver("unfinished", "", "--max-requests-inflight="+unfinishedSeats, "--max-mutating-requests-inflight=0"))
	attacker := must[User](t)(shared.NewUser("unfinished"))
	other := must[User](t)(shared.NewUser("finished"))
	binding := &rbac.ClusterRoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: "finished-and-not"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbac.Subject{
			{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: "unfinished"},
			{Kind: rbac.UserKind, APIGroup: rbac.GroupName, Name: "finished"},
		},
	}
	ctx := inTime(t, 5*time.Minute)
	must[*rbac.ClusterRoleBinding](t)(server.Admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, meta.CreateOptions{}))
	for _, held := range []time.Duration{1200 * time.Millisecond, unfinishedHeld} {
		result := leaveUnfinished(ctx, server, attacker, other, held)
		fmt.Printf("UNFINISHED_BODIES %s %s\n", held, must[[]byte](t)(json.Marshal(result)))
		measured(t, fmt.Sprintf("unfinished bodies at the apiserver for %s: seats come back", held), result.SeatsBack, "s")
	}
}

func leaveUnfinished(ctx context.Context, server *Apiserver, attacker, other User, held time.Duration) unfinishedResult {
	result := unfinishedResult{Answers: map[string]int{}, Others: map[string]int{}, SeatsBack: -1, FirstAnswer: -1}
	var mutex sync.Mutex
	begun := time.Now()
	attack, leave := context.WithCancel(ctx)
	transport := shared.Transport(attacker, true)
	var attackers sync.WaitGroup
	for range unfinishedBodies {
		attackers.Go(func() {
			body := &unfinishedBody{done: attack.Done(), closed: make(chan struct{})}
			request, _ := http.NewRequestWithContext(attack, http.MethodPost, server.URL+"/api/v1/namespaces/default/configmaps", body)
			request.ContentLength = 1000
			request.Header.Set("Content-Type", "application/json")
			if attacker.Token != "" {
				request.Header.Set("Authorization", "Bearer "+attacker.Token)
			}
			response, err := transport.RoundTrip(request)
			answered, outcome := time.Since(begun).Seconds(), "none"
			if err == nil {
				outcome = strconv.Itoa(response.StatusCode)
				_ = response.Body.Close()
			}
			mutex.Lock()
			defer mutex.Unlock()
			result.Answers[outcome]++
			if err == nil && result.FirstAnswer < 0 {
				result.FirstAnswer = answered
			}
		})
	}
	var over atomic.Bool
	var others sync.WaitGroup
	others.Go(func() {
		reading := shared.Transport(other, true)
		for !over.Load() {
			once, cancel := context.WithTimeout(ctx, 5*time.Second)
			response, err := shared.Do(once, reading, server.Endpoint, other, http.MethodGet, "/api/v1/namespaces/default", nil, "")
			outcome := "no answer"
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				outcome = strconv.Itoa(response.StatusCode)
			} else if errors.Is(err, context.DeadlineExceeded) {
				outcome = "no answer in 5 s"
			}
			cancel()
			mutex.Lock()
			result.Others[outcome]++
			mutex.Unlock()
			time.Sleep(100 * time.Millisecond)
		}
	})
	for time.Since(begun) < held {
		executing, waiting := levelLoad(ctx, server)
		result.MostExecuting = max(result.MostExecuting, executing)
		result.MostWaiting = max(result.MostWaiting, waiting)
		if executing > 1 {
			result.LastFull = time.Since(begun).Seconds()
		}
		time.Sleep(100 * time.Millisecond)
	}
	leave()
	left := time.Now()
	attackers.Wait()
	transport.CloseIdleConnections()
	over.Store(true)
	others.Wait()
	for time.Since(left) < 2*time.Minute {
		if executing, waiting := levelLoad(ctx, server); executing+waiting == 0 {
			result.SeatsBack = time.Since(left).Seconds()
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return result
}

// levelLoad is how many requests of the level global-default execute, and how many wait.
func levelLoad(ctx context.Context, server *Apiserver) (executing, waiting float64) {
	text, err := server.Admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(series, `priority_level="global-default"`) {
			continue
		}
		number, _ := strconv.ParseFloat(value, 64)
		if strings.HasPrefix(series, "apiserver_flowcontrol_current_executing_requests{") {
			executing += number
		} else if strings.HasPrefix(series, "apiserver_flowcontrol_current_inqueue_requests{") {
			waiting += number
		}
	}
	return executing, waiting
}
