package queueset

import (
	"container/heap"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/flowcontrol/debug"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/eventclock"
	"k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing/queueset"
	"k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	flowrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
)

// prepare has the original keep its metrics, one of which is its virtual time, and keep its log to itself.
var prepare = sync.OnceFunc(func() {
	metrics.Register()
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
})

// clock is the original's: time passes when the test advances it, and events happen in order of time, then of their registration.
type clock struct {
	now    time.Time
	events events
	asked  int
}

type event struct {
	at    time.Time
	asked int
	do    eventclock.EventFunc
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if order := e[i].at.Compare(e[j].at); order != 0 {
		return order < 0
	}
	return e[i].asked < e[j].asked
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (c *clock) Now() time.Time                  { return c.now }
func (c *clock) Since(t time.Time) time.Duration { return c.now.Sub(t) }
func (c *clock) Sleep(time.Duration)             { panic("a queue set does not sleep") }
func (c *clock) EventAfterDuration(do eventclock.EventFunc, after time.Duration) {
	c.EventAfterTime(do, c.now.Add(after))
}
func (c *clock) EventAfterTime(do eventclock.EventFunc, at time.Time) {
	c.asked++
	heap.Push(&c.events, event{at: at, asked: c.asked, do: do})
}

// passTo has everything happen that is due until then.
func (c *clock) passTo(then time.Time) {
	for len(c.events) > 0 && !c.events[0].at.After(then) {
		due := heap.Pop(&c.events).(event)
		if due.at.After(c.now) {
			c.now = due.at
		}
		due.do(c.now)
	}
	c.now = then
}

// gauge keeps its last value.
type gauge struct{ value float64 }

func (g *gauge) Set(value float64)      { g.value = value }
func (g *gauge) Add(delta float64)      { g.value += delta }
func (g *gauge) Inc()                   { g.value++ }
func (g *gauge) Dec()                   { g.value-- }
func (g *gauge) SetToCurrentTime()      {}
func (*gauge) SetDenominator(_ float64) {}

// began is when every queue set is made.
var began = time.Unix(0, 0)

// original is kube-apiserver's queue set, being played with.
type original struct {
	name       string
	clock      *clock
	set        fairqueuing.QueueSet
	shape      Shape
	limit      int
	demand     *gauge
	waiting    map[int]request
	executing  map[int]request
	started    []int
	dispatched int
}

type request struct {
	fairqueuing.Request
	giveUp context.CancelFunc
}

// newOriginal makes one. The name is that of its metrics: two at the same time have different ones.
func newOriginal(name string, trace *Trace) (*original, error) {
	prepare()
	o := &original{
		name: name, clock: &clock{now: began}, shape: trace.Shape, limit: trace.Limit, demand: &gauge{},
		waiting: map[int]request{}, executing: map[int]request{},
	}
	pair := metrics.RatioedGaugePair{RequestsWaiting: &gauge{}, RequestsExecuting: &gauge{}}
	making, err := queueset.NewQueueSetFactory(o.clock).BeginConstruction(o.queuing(), pair, &gauge{}, o.demand)
	if err != nil {
		return nil, err
	}
	o.set = making.Complete(o.dispatching())
	return o, nil
}

func (o *original) queuing() fairqueuing.QueuingConfig {
	config := fairqueuing.QueuingConfig{Name: o.name}
	switch o.shape.Type {
	case "queue":
		config.DesiredNumQueues, config.HandSize, config.QueueLengthLimit = o.shape.Queues, o.shape.Hand, o.shape.Length
	case "exempt":
		config.DesiredNumQueues = -1
	}
	return config
}

func (o *original) dispatching() fairqueuing.DispatchingConfig {
	return fairqueuing.DispatchingConfig{ConcurrencyLimit: o.limit, ConcurrencyDenominator: max(o.limit, 1)}
}

// errPanicked is when the original panicked, as it does after it has removed the wrong queue.
var errPanicked = errors.New("the original panicked")

// play plays one event.
func (o *original) play(step *Step) (outcome Outcome, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			fault, ok := cause.(runtime.Error)
			if !ok {
				panic(cause)
			}
			err = fmt.Errorf("%w: %w", errPanicked, fault)
		}
	}()
	o.started = nil
	o.clock.passTo(began.Add(time.Duration(step.At)))
	outcome.Fate, err = o.apply(&step.Event)
	outcome.Started = o.started
	outcome.State = o.state()
	return outcome, err
}

func (o *original) apply(event *Event) (string, error) {
	switch event.Type {
	case "arrive":
		return o.arrive(event), nil
	case "finish":
		request, executes := o.executing[event.Number]
		if !executes {
			return "left alone", nil
		}
		delete(o.executing, event.Number)
		executed := false
		request.Finish(func() { executed = true })
		request.giveUp()
		if !executed {
			return "does not execute", nil
		}
		return "finishes", nil
	case "cancel":
		request, waits := o.waiting[event.Number]
		if !waits {
			return "left alone", nil
		}
		delete(o.waiting, event.Number)
		executed := false
		request.giveUp()
		request.Finish(func() { executed = true })
		if executed {
			return "executes", nil
		}
		return "gives up", nil
	case "limit":
		o.limit = event.Limit
		return "", o.configure()
	case "shape":
		o.shape = *event.Shape
		return "", o.configure()
	case "pass":
		return "", nil
	}
	return "", fmt.Errorf("no such event: %q", event.Type)
}

func (o *original) configure() error {
	changing, err := o.set.BeginConfigChange(o.queuing())
	if err == nil {
		changing.Complete(o.dispatching())
	}
	return err
}

func (o *original) arrive(event *Event) string {
	ctx, giveUp := context.WithCancel(context.Background())
	work := &flowrequest.WorkEstimate{
		InitialSeats: event.Initial, FinalSeats: event.Last, AdditionalLatency: time.Duration(event.Latency),
	}
	number := event.Number
	arriving, queued, startsAtOnce := true, false, false
	// The original reports every dispatch here, in order.
	note := func(enters bool) {
		if enters {
			queued = true
			return
		}
		if arriving {
			startsAtOnce = true
			return
		}
		if request, waits := o.waiting[number]; waits {
			delete(o.waiting, number)
			o.executing[number] = request
			o.started = append(o.started, number)
			o.dispatched++
		}
	}
	got, _ := o.set.StartRequest(ctx, work, event.Hash, strconv.Itoa(number), "", nil, nil, note)
	arriving = false
	switch {
	case got == nil && o.shape.Type == "queue":
		giveUp()
		return "queue-full"
	case got == nil:
		giveUp()
		return "concurrency-limit"
	case queued && !startsAtOnce:
		o.waiting[number] = request{got, giveUp}
		return "waits"
	}
	o.executing[number] = request{got, giveUp}
	o.dispatched++
	return "executes"
}

// state is the visible state of the original, except virtual time.
func (o *original) state() State {
	dump := o.set.Dump(false)
	state := State{
		Seats:        dump.SeatsInUse,
		Executing:    dump.Executing,
		Waiting:      dump.Waiting,
		WaitingSeats: dump.SeatsWaiting,
		Dispatched:   o.dispatched,
		Rejected:     dump.Rejected,
		Cancelled:    dump.Cancelled,
		Idle:         o.set.IsIdle(),
		Lingering:    len(o.clock.events),
		Queueless:    numbers(dump.QueuelessExecutingRequests),
		Deck:         len(dump.Queues),
		Queues:       make([]Queue, len(dump.Queues)),
	}
	slices.Sort(state.Queueless)
	if len(o.clock.events) > 0 {
		state.Release = o.clock.events[0].at.Sub(began).Nanoseconds()
	}
	for index, queue := range dump.Queues {
		executing := numbers(queue.RequestsExecuting)
		slices.Sort(executing)
		state.Queues[index] = Queue{
			Index:         index,
			NextDispatchR: units(queue.NextDispatchR),
			Seats:         queue.SeatsInUse,
			InitialSeats:  queue.QueueSum.InitialSeatsSum,
			MaxSeats:      queue.QueueSum.MaxSeatsSum,
			Work:          units(queue.QueueSum.TotalWorkSum),
			Waiting:       len(queue.Requests),
			Executing:     queue.ExecutingRequests,
			Requests:      [][]int{numbers(queue.Requests), executing},
		}
	}
	return state
}

// numbers are those of requests, which are there in the place of the flow distinguisher.
func numbers(requests []debug.RequestDump) []int {
	var numbers []int
	for _, request := range requests {
		number, err := strconv.Atoi(request.FlowDistinguisher)
		if err != nil {
			panic(err)
		}
		numbers = append(numbers, number)
	}
	return numbers
}

// units reads seat-seconds as the original writes them, such as 0.00300000ss.
func units(text string) uint64 {
	digits := strings.Replace(strings.TrimSuffix(text, "ss"), ".", "", 1)
	units, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		panic(err)
	}
	return units
}

// virtualTime is the value of the original's metric, in seat-seconds.
func (o *original) virtualTime() (float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		if family.GetName() != "apiserver_flowcontrol_current_r" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "priority_level" && label.GetValue() == o.name {
					return metric.GetGauge().GetValue(), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("the original does not report its virtual time")
}
