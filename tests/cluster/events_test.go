package cluster

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientrecord "k8s.io/client-go/tools/record"
)

var recordEvents = flag.Bool("record-events", false, "write what client-go makes of events to the file that fairgate's test reads")

// eventCases is a file of events, each with what client-go records.
const eventCases = "../../crates/disruption-controller/src/event_cases.jsonl"

// An eventCase is an event of a sequence. Recorded is nil if it is left out.
type eventCase struct {
	Sequence int            `json:"sequence"`
	At       int            `json:"at"`     // seconds since the beginning
	Reason   int            `json:"reason"` // one of two
	Message  string         `json:"message"`
	Recorded *recordedEvent `json:"recorded"`
}

type recordedEvent struct {
	Count   int32  `json:"count"`
	First   int    `json:"first"` // seconds since the beginning
	Message string `json:"message"`
}

// A steppedClock is at a time until it is set.
type steppedClock struct{ now time.Time }

func (c *steppedClock) Now() time.Time                     { return c.now }
func (c *steppedClock) Since(past time.Time) time.Duration { return c.now.Sub(past) }

// correlateEvents draws sequences of events, and has client-go's correlator decide about them. Once it combines events it forgets any
// one of their messages, so from then on each message is a new one, and the result does not depend on that.
func correlateEvents(t *testing.T) []byte {
	t.Helper()
	var lines bytes.Buffer
	random := rand.New(rand.NewPCG(1, 3))
	for sequence := range 20 {
		begun := time.Unix(1_700_000_000, 0)
		clock := &steppedClock{begun}
		correlator := clientrecord.NewEventCorrelator(clock)
		messages := map[int][]string{}
		made := 0
		pause := []int{1, 30, 200, 700}[sequence%4]
		for range 60 {
			clock.now = clock.now.Add(time.Duration(random.IntN(pause)) * time.Second)
			reason := random.IntN(2)
			known := messages[reason]
			var message string
			if len(known) > 0 && len(known) < 9 && random.IntN(3) > 0 {
				message = known[random.IntN(len(known))]
			} else {
				made++
				message = fmt.Sprintf("message %d", made)
				messages[reason] = append(known, message)
			}
			at := int(clock.Since(begun).Seconds())
			now := metav1.NewTime(clock.Now())
			event := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("foo.%x", now.UnixNano()), Namespace: "ns"},
				InvolvedObject: corev1.ObjectReference{Kind: "PodDisruptionBudget", Namespace: "ns", Name: "foo", UID: "u", APIVersion: "policy/v1"},
				Reason:         fmt.Sprint(reason), Message: message, Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: now, LastTimestamp: now,
				Source: corev1.EventSource{Component: "controllermanager"},
			}
			result, err := correlator.EventCorrelate(event)
			succeeds(t, err)
			one := eventCase{Sequence: sequence, At: at, Reason: reason, Message: message}
			if !result.Skip {
				one.Recorded = &recordedEvent{Count: result.Event.Count, First: int(result.Event.FirstTimestamp.Sub(begun).Seconds()), Message: result.Event.Message}
			}
			succeeds(t, json.NewEncoder(&lines).Encode(one))
		}
	}
	return lines.Bytes()
}

// The file by which fairgate's recording of events is tested is what client-go says.
func TestEventCasesAreThoseOfClientGo(t *testing.T) {
	cases := correlateEvents(t)
	if *recordEvents {
		succeeds(t, os.WriteFile(eventCases, cases, 0o644))
	}
	if stored := must[[]byte](t)(os.ReadFile(eventCases)); !bytes.Equal(stored, cases) {
		t.Errorf("%s is not what client-go records: write it with -record-events", eventCases)
	}
}
