package queueset

// Trace is a new queue set, its events, and what fairgate did with them.
type Trace struct {
	Seed   uint64 `json:"seed"`
	Number uint64 `json:"number"`
	Limit  int    `json:"limit"`
	Shape  Shape  `json:"shape"`
	Lazy   bool   `json:"lazy"`
	Steps  []Step `json:"steps"`
}

// Step is one event. Times are nanoseconds since the queue set was made.
type Step struct {
	At      int64    `json:"at"`
	Event   Event    `json:"event"`
	Outcome *Outcome `json:"outcome"`
}

// Shape says how a level treats its requests: queue, reject or exempt.
type Shape struct {
	Type   string `json:"type"`
	Queues int    `json:"queues,omitempty"`
	Hand   int    `json:"hand,omitempty"`
	Length int    `json:"length,omitempty"`
}

// Event is an arrival, an answer (finish), a request that gives up (cancel), another limit or shape, or nothing
// but time passing.
type Event struct {
	Type    string `json:"type"`
	Number  int    `json:"number"`
	Hash    uint64 `json:"hash"`
	Initial uint64 `json:"initial"`
	Last    uint64 `json:"last"`
	Latency int64  `json:"latency"`
	Limit   int    `json:"limit"`
	Shape   *Shape `json:"shape,omitempty"`
}

// Outcome is the effect of an event.
type Outcome struct {
	// Fate is that of the request that the event is about.
	Fate string `json:"fate"`
	// Started are the other requests that started, in order.
	Started []int `json:"started"`
	State   State `json:"state"`
}

// State is the visible state of a queue set. Work is in units of 1e-8 seat-seconds.
type State struct {
	R            uint64 `json:"r"`
	Seats        int    `json:"seats"`
	Executing    int    `json:"executing"`
	Waiting      int    `json:"waiting"`
	WaitingSeats int    `json:"waiting_seats"`
	Dispatched   int    `json:"dispatched"`
	Rejected     int    `json:"rejected"`
	Cancelled    int    `json:"cancelled"`
	Idle         bool   `json:"idle"`
	Lingering    int    `json:"lingering"`
	Release      int64  `json:"release"`
	Queueless    []int  `json:"queueless"`
	Deck         int    `json:"deck"`
	// Queues are all of the deck here, and only those that changed in a line of JSON.
	Queues []Queue `json:"queues"`
}

// Queue is one queue of the deck.
type Queue struct {
	Index         int    `json:"index"`
	NextDispatchR uint64 `json:"next_dispatch_r"`
	Seats         int    `json:"seats"`
	InitialSeats  int    `json:"initial_seats"`
	MaxSeats      int    `json:"max_seats"`
	Work          uint64 `json:"work"`
	Waiting       int    `json:"waiting"`
	Executing     int    `json:"executing"`
	// Requests are the waiting requests, first to last, and the executing ones, sorted. Nil if that is not known.
	Requests [][]int `json:"requests"`
}

// complete makes the queues of each state all of the deck.
func (t *Trace) complete() {
	var all []Queue
	for at := range t.Steps {
		state := &t.Steps[at].Outcome.State
		next := make([]Queue, state.Deck)
		copy(next, all)
		for index := len(all); index < len(next); index++ {
			next[index].Index = index
			next[index].Requests = [][]int{nil, nil}
		}
		for _, queue := range state.Queues {
			next[queue.Index] = queue
		}
		state.Queues, all = next, next
	}
}
