package queueset

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// cases are traces that once differed and that no seed is known to draw.
//
//go:embed cases.jsonl
var cases []byte

// Summary is the result of playing many traces.
type Summary struct {
	Traces, Events int
	// Cut is how many traces ended early, since the original panicked.
	Cut int
	// Different is how many traces differ, and Shortest the one that does soonest.
	Different int
	Shortest  *Difference
	// Kinds is the number of traces by the kind of their first difference.
	Kinds map[string]int
}

// String is the line that ends a run.
func (s *Summary) String() string {
	line := fmt.Sprintf("%d traces, %d events: %d differences", s.Traces, s.Events, s.Different)
	if s.Different > 0 {
		line += fmt.Sprintf(" %v", s.Kinds)
	}
	if s.Cut > 0 {
		line += fmt.Sprintf(" (%d traces cut short where the original panics)", s.Cut)
	}
	return line
}

func (s *Summary) add(trace *Trace, played Played) {
	s.Traces++
	s.Events += played.Events
	if played.Panic != nil {
		s.Cut++
	}
	if different := played.Difference; different != nil {
		s.Different++
		kind, _, _ := strings.Cut(different.What, ":")
		if s.Kinds == nil {
			s.Kinds = map[string]int{}
		}
		s.Kinds[strings.TrimRight(kind, " 0123456789")]++
		sooner := s.Shortest == nil || different.Step < s.Shortest.Step ||
			different.Step == s.Shortest.Step && trace.Number < s.Shortest.Trace.Number
		if sooner {
			s.Shortest = different
		}
	}
}

// Run compares the cases, then so many traces of a seed, from the one with the number first on. The program is
// fairgate's example queue_traces. The cases are not counted among the traces.
func Run(ctx context.Context, program string, seed, first, count uint64) (*Summary, error) {
	summary := &Summary{}
	if err := summary.play(exec.CommandContext(ctx, program, "play"), bytes.NewReader(cases)); err != nil {
		return nil, err
	}
	if played := bytes.Count(cases, []byte{'\n'}); summary.Traces != played {
		return nil, fmt.Errorf("%d cases came instead of %d", summary.Traces, played)
	}
	summary.Traces = 0
	arguments := []string{"generate"}
	for _, number := range []uint64{seed, first, count} {
		arguments = append(arguments, strconv.FormatUint(number, 10))
	}
	if err := summary.play(exec.CommandContext(ctx, program, arguments...), nil); err != nil {
		return nil, err
	}
	if uint64(summary.Traces) != count {
		return nil, fmt.Errorf("%d traces came instead of %d", summary.Traces, count)
	}
	return summary, nil
}

// play compares what the process prints, a trace a line.
func (s *Summary) play(process *exec.Cmd, stdin io.Reader) error {
	process.Stdin, process.Stderr = stdin, os.Stderr
	lines, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	compared := s.compareLines(lines)
	if err := process.Wait(); err != nil && compared == nil {
		compared = fmt.Errorf("%s: %w after %d traces", process.Path, err, s.Traces)
	}
	return compared
}

// compareLines plays each line's trace, several side by side.
func (s *Summary) compareLines(from io.Reader) error {
	lines := make(chan []byte, 64)
	var (
		errs    []error
		lock    sync.Mutex
		workers sync.WaitGroup
	)
	for worker := range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for line := range lines {
				trace := &Trace{}
				err := json.Unmarshal(line, trace)
				var played Played
				if err == nil {
					played, err = Compare("worker-"+strconv.Itoa(worker), trace)
				}
				lock.Lock()
				if err != nil {
					errs = append(errs, err)
				} else {
					s.add(trace, played)
				}
				lock.Unlock()
			}
		})
	}
	reader := bufio.NewReaderSize(from, 1<<20)
	var err error
	for err == nil {
		var line []byte
		if line, err = reader.ReadBytes('\n'); err == nil {
			lines <- line
		}
	}
	close(lines)
	workers.Wait()
	if !errors.Is(err, io.EOF) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// player is fairgate playing given traces.
type player struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startPlayer(program string) (*player, error) {
	process := exec.Command(program, "play")
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &player{process, in, bufio.NewReaderSize(out, 1<<20)}, process.Start()
}

func (p *player) stop() error {
	p.in.Close()
	return p.process.Wait()
}

// again has fairgate play these events on the queue set of a trace, and compares.
func (p *player) again(trace *Trace, steps []Step) (*Difference, error) {
	shorter := *trace
	shorter.Steps = make([]Step, len(steps))
	for at, step := range steps {
		shorter.Steps[at] = Step{At: step.At, Event: step.Event}
	}
	line, err := json.Marshal(&shorter)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	if line, err = p.out.ReadBytes('\n'); err != nil {
		return nil, err
	}
	var played Trace
	if err := json.Unmarshal(line, &played); err != nil {
		return nil, err
	}
	result, err := Compare("shrink", &played)
	return result.Difference, err
}

// Shrink removes from a trace with a difference the events that the difference does not need.
func Shrink(program string, from *Difference) (*Difference, error) {
	player, err := startPlayer(program)
	if err != nil {
		return nil, err
	}
	defer player.stop()
	best := from
	for length := from.Step + 1; length > 0; {
		found := false
		steps := best.Trace.Steps[:best.Step+1]
		for at := 0; at+length <= len(steps) && !found; at++ {
			rest := append(append([]Step{}, steps[:at]...), steps[at+length:]...)
			shorter, err := player.again(best.Trace, rest)
			if err != nil {
				return nil, err
			}
			if found = shorter != nil; found {
				best = shorter
			}
		}
		if found {
			length = min(length, best.Step+1)
		} else {
			length /= 2
		}
	}
	return best, nil
}

// String is the trace up to where it differs, an event a line, and both states there.
func (d *Difference) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "trace %d of seed %d differs after event %d\n", d.Trace.Number, d.Trace.Seed, d.Step)
	fmt.Fprintf(&text, "limit %d, %s\n", d.Trace.Limit, d.Trace.Shape)
	for at, step := range d.Trace.Steps[:d.Step+1] {
		fmt.Fprintf(&text, "%4d at %d ns: %s, %s, starts %v\n", at, step.At, step.Event, step.Outcome.Fate, step.Outcome.Started)
	}
	fmt.Fprintf(&text, "%s\n", d.What)
	text.WriteString("original\n" + d.Original.String())
	text.WriteString("Compatible\n" + d.Trace.Steps[d.Step].Outcome.String())
	return text.String()
}

// String is the event in a few words.
func (e Event) String() string {
	switch e.Type {
	case "arrive":
		return fmt.Sprintf("arrive %d of flow %#x, %d seats, then %d for %d ns", e.Number, e.Hash, e.Initial, e.Last, e.Latency)
	case "limit":
		return fmt.Sprintf("limit %d", e.Limit)
	case "shape":
		return e.Shape.String()
	case "pass":
		return e.Type
	}
	return fmt.Sprintf("%s %d", e.Type, e.Number)
}

// String is the shape in a few words.
func (s Shape) String() string {
	if s.Type != "queue" {
		return s.Type
	}
	return fmt.Sprintf("%d queues of length %d in hands of %d", s.Queues, s.Length, s.Hand)
}

// String is the outcome over several lines. Queues without differences are left out.
func (o *Outcome) String() string {
	state := o.State
	state.Queues = nil
	var text strings.Builder
	fmt.Fprintf(&text, "  %q, starts %v, %+v\n", o.Fate, o.Started, state)
	for _, queue := range o.State.Queues {
		if queue.NextDispatchR > 0 || queue.Seats > 0 || queue.Waiting > 0 || queue.Executing > 0 {
			fmt.Fprintf(&text, "  %+v\n", queue)
		}
	}
	return text.String()
}
