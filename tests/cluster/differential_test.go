package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	referenceKubeconfig = flag.String("reference-kubeconfig", "", "the real server to compare with; without it one is started")
	referenceProgram    = flag.String("reference-program", "", "the kube-apiserver that is started to compare with; without it the cluster's own")
	referenceGates      = flag.String("reference-feature-gates", "", "of the real server that is started")
	moreDifferences     = flag.String("more-differences", "", "a further list of known differences, for another reference than the corpus has")
	record              = flag.String("record", "", "write what the real server answers to this file")
	seed                = flag.Uint64("seed", 1, "of the random sessions")
	requests            = flag.Int("requests", 700, "number of random requests")
	conditions          = flag.Bool("conditions", true, "a controller, such as fairgate's own, writes conditions into the FlowSchemas of the server under test")
	groupVersion        = flag.String("group-version", "v1", "the version of the group in which the sessions are played")
	onlySessions        = flag.String("sessions", "", "play only sessions whose name begins so")
)

// sessionsAtOnce bounds how many sessions are played at one time on one server.
const sessionsAtOnce = 4

// corpusLimit is how large the recorded corpus may become, in bytes.
const corpusLimit = 5 << 19

// playedSessions are the sessions of a run.
func playedSessions() []Session {
	var chosen []Session
	all := append(CuratedSessions(), RandomSessions(*seed, *requests)...)
	if strings.HasPrefix(*onlySessions, policySessions) {
		all = append(PolicySessions(), EnforcementSessions()...)
	} else if *record == "" && *groupVersion == "v1" {
		// They are recorded in a corpus of their own. Those about policies as objects are left to its replay: fairgate
		// writes the status of a policy, which the real server leaves to a controller that does not run.
		all = append(append(all, EnforcementSessions()...), BudgetSessions()...)
	}
	for _, session := range all {
		if strings.HasPrefix(session.Name, *onlySessions) {
			chosen = append(chosen, session.InVersion(*groupVersion))
		}
	}
	for _, session := range AcrossVersions(*groupVersion) {
		if strings.HasPrefix(session.Name, *onlySessions) {
			chosen = append(chosen, session)
		}
	}
	return chosen
}

// playAll plays sessions and returns their results, in order.
func playAll(ctx context.Context, target *Target, sessions []Session) ([][]Exchange, error) {
	return playAtOnce(ctx, target, sessions, sessionsAtOnce)
}

func playAtOnce(ctx context.Context, target *Target, sessions []Session, atOnce int) ([][]Exchange, error) {
	if err := target.Clear(ctx, sessions); err != nil {
		return nil, err
	}
	played, failures := make([][]Exchange, len(sessions)), make([]error, len(sessions))
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for number := range numbers {
				played[number], failures[number] = target.Play(ctx, sessions[number])
			}
		})
	}
	for number := range sessions {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
	return played, errors.Join(append(failures, target.Clear(ctx, sessions))...)
}

// reference is the real server. Nothing but requests changes the objects of one that is recorded; one
// that is compared with a server whose controller writes conditions has such a controller, too.
func reference(t *testing.T) *Target {
	t.Helper()
	if *referenceKubeconfig != "" {
		return must[*Target](t)(TargetOf("reference", *referenceKubeconfig))
	}
	if shared == nil {
		t.Skip("there is no cluster; name a real server with -reference-kubeconfig")
	}
	return must[*Target](t)(startReference())
}

var startReference = sync.OnceValues(func() (*Target, error) {
	return shared.StartReference("reference", *referenceProgram, *referenceGates, *conditions && *record == "")
})

// What is recorded has been played twice without a difference, or it would say nothing about another server.
func TestRecordTheCorpus(t *testing.T) {
	if *record == "" {
		t.Skip("give -record=FILE to record")
	}
	target, sessions := reference(t), playedSessions()
	started := time.Now()
	played, err := playAll(inTime(t, 30*time.Minute), target, sessions)
	if err != nil {
		t.Fatal(err)
	}
	again, err := playAll(inTime(t, 30*time.Minute), target, sessions)
	if err != nil {
		t.Fatal(err)
	}
	var corpus []byte
	lines := 0
	for number, session := range played {
		for _, difference := range Compare(session, again[number]) {
			t.Error("of two plays:", difference)
		}
		for _, exchange := range session {
			corpus = append(corpus, must[[]byte](t)(exchange.line())...)
			lines++
		}
	}
	fmt.Printf("tests/cluster: %d sessions, %d requests, %d bytes in %.1f s\n", len(sessions), lines, len(corpus), time.Since(started).Seconds())
	if len(corpus) > corpusLimit {
		t.Errorf("the corpus has %d bytes, which is more than %d", len(corpus), corpusLimit)
	}
	if t.Failed() {
		return
	}
	if err := os.WriteFile(*record, corpus, 0o644); err != nil {
		t.Fatal(err)
	}
}

// repetitions is how often a session with a difference is played again where a controller writes.
const repetitions = 2

// lasting plays the sessions with a difference again on both servers, each by itself, and returns the differences that
// occur again. A controller's write between two requests of a session is a race, which both servers have, and
// either may have lost it at the first attempt: only the replay of the corpus, where none writes, evaluates every
// answer at the first attempt.
func lasting(t *testing.T, real, target *Target, sessions []Session, differences []Difference) (again []Difference) {
	t.Helper()
	if !*conditions {
		return differences
	}
	for _, session := range sessions {
		of := slices.DeleteFunc(slices.Clone(differences), func(one Difference) bool { return one.Session != session.Name })
		if len(of) == 0 {
			continue
		}
		want, err := playAll(inTime(t, 20*time.Minute), real, []Session{session})
		if err != nil {
			t.Fatal(err)
		}
		got, err := playAll(inTime(t, 20*time.Minute), target, []Session{session})
		if err != nil {
			t.Fatal(err)
		}
		now := Compare(want[0], got[0])
		for _, one := range of {
			if slices.ContainsFunc(now, func(other Difference) bool { return other.Number == one.Number && other.Field == one.Field }) {
				again = append(again, one)
			} else {
				t.Logf("a race with the writer of conditions: %v", one)
			}
		}
	}
	return again
}

func TestFairgateAnswersAsARealServer(t *testing.T) {
	oneAtATime(t)
	known := must[[]KnownDifference](t)(KnownDifferences(*moreDifferences))
	known = slices.DeleteFunc(known, func(one KnownDifference) bool { return one.Conditions && !*conditions })
	target, sessions := must[*Target](t)(TargetOf("hosted", hosted(t).Admin)), playedSessions()
	real := reference(t)
	real.Conditions, target.Conditions, target.Writes = *conditions, *conditions, *conditions
	if *conditions {
		real.Writes = must[bool](t)(real.WritesConditions(inTime(t, time.Minute)))
	}
	want, err := playAll(inTime(t, 30*time.Minute), real, sessions)
	if err != nil {
		t.Fatal(err)
	}
	got, err := playAll(inTime(t, 30*time.Minute), target, sessions)
	if err != nil {
		t.Fatal(err)
	}
	var found []Difference
	for number := range sessions {
		found = append(found, Compare(want[number], got[number])...)
	}
	unknown, reasons, unused, err := SortOut(found, known)
	if err != nil {
		t.Fatal(err)
	}
	lasts := unknown
	for range repetitions {
		lasts = lasting(t, real, target, sessions, lasts)
	}
	fmt.Print(Summary(want, found, unknown, lasts))
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%d known differences: %s", reasons[reason], reason)
	}
	for _, difference := range lasts {
		t.Error(difference)
	}
	if *onlySessions == "" {
		for _, one := range unused {
			t.Logf("no longer occurs: %+v", one)
		}
	}
}
