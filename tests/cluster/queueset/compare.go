package queueset

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// readVirtualTime is after how many events the original's virtual time is read, apart from what its queues show
// of it: reading a metric is slow.
const readVirtualTime = 64

// Difference is where the two first differ.
type Difference struct {
	Trace *Trace
	// Step is the number of the event, from 0.
	Step int
	// What differs, in one line.
	What     string
	Original Outcome
}

// Played is the result of comparing a trace.
type Played struct {
	// Events is how many could be compared.
	Events int
	// Panic is why the original could not play the trace to its end, or nil.
	Panic error
	// Difference is nil if there is none.
	Difference *Difference
}

// Compare plays a trace through the original. The name distinguishes original queue sets that exist at the same
// time.
func Compare(name string, trace *Trace) (Played, error) {
	trace.complete()
	original, err := newOriginal(name, trace)
	if err != nil {
		return Played{}, err
	}
	reshaped := false
	for at := range trace.Steps {
		step := &trace.Steps[at]
		reshaped = reshaped || step.Event.Type == "shape"
		got, err := original.play(step)
		if errors.Is(err, errPanicked) && reshaped {
			return Played{Events: at, Panic: err}, nil
		}
		if err != nil {
			return Played{}, fmt.Errorf("trace %d of seed %d, event %d: %w", trace.Number, trace.Seed, at, err)
		}
		what := difference(step.Outcome, &got)
		if what == "" && got.State.Seats+got.State.WaitingSeats != int(original.demand.value) {
			what = fmt.Sprintf("the original measures a demand of %v", original.demand.value)
		}
		if what == "" && (at%readVirtualTime == readVirtualTime-1 || at == len(trace.Steps)-1) {
			r, err := original.virtualTime()
			if err != nil {
				return Played{}, err
			}
			if ours := float64(step.Outcome.State.R) / 1e8; ours != r {
				what = fmt.Sprintf("virtual time: original %.8f, Compatible %.8f", r, ours)
			}
		}
		if what != "" {
			if r, err := original.virtualTime(); err == nil {
				got.State.R = uint64(math.Round(r * 1e8))
			}
			return Played{Events: at, Difference: &Difference{trace, at, what, got}}, nil
		}
	}
	return Played{Events: len(trace.Steps)}, nil
}

// difference is the first thing in which the outcomes differ, or "". The original's virtual time is not in it.
func difference(ours, original *Outcome) string {
	of, theirs := &ours.State, &original.State
	fields := []struct {
		name           string
		original, ours any
	}{
		{"fate", original.Fate, ours.Fate},
		{"seats in use", theirs.Seats, of.Seats},
		{"executing", theirs.Executing, of.Executing},
		{"waiting", theirs.Waiting, of.Waiting},
		{"seats asked for", theirs.WaitingSeats, of.WaitingSeats},
		{"dispatched", theirs.Dispatched, of.Dispatched},
		{"rejected", theirs.Rejected, of.Rejected},
		{"cancelled", theirs.Cancelled, of.Cancelled},
		{"idle", theirs.Idle, of.Idle},
		{"lingering", theirs.Lingering, of.Lingering},
		{"next release", theirs.Release, of.Release},
		{"queues", theirs.Deck, of.Deck},
	}
	if !slices.Equal(ours.Started, original.Started) {
		return fmt.Sprintf("order of dispatch: original %v, Compatible %v", original.Started, ours.Started)
	}
	for _, field := range fields {
		if field.original != field.ours {
			return fmt.Sprintf("%s: original %v, Compatible %v", field.name, field.original, field.ours)
		}
	}
	if !slices.Equal(theirs.Queueless, of.Queueless) {
		return fmt.Sprintf("executing without queues: original %v, Compatible %v", theirs.Queueless, of.Queueless)
	}
	for index := range theirs.Queues {
		if !same(&of.Queues[index], &theirs.Queues[index]) {
			return fmt.Sprintf("queue %d: original %+v, Compatible %+v", index, theirs.Queues[index], of.Queues[index])
		}
	}
	return ""
}

func same(ours, original *Queue) bool {
	if ours.NextDispatchR != original.NextDispatchR || ours.Seats != original.Seats ||
		ours.InitialSeats != original.InitialSeats || ours.MaxSeats != original.MaxSeats ||
		ours.Work != original.Work || ours.Waiting != original.Waiting || ours.Executing != original.Executing {
		return false
	}
	return ours.Requests == nil ||
		slices.Equal(ours.Requests[0], original.Requests[0]) && slices.Equal(ours.Requests[1], original.Requests[1])
}
