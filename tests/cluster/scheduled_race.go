package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A scheduledRace is a race of which a ScheduleTree says in which order the requests of the gateway come to the server.
//
// After a request was let through, the gateway goes on with its write until it sends the next request, which is held, or answers.
// Meanwhile the other write waits for a held request. So each request that comes is for the write that goes on. A gateway that sent two
// requests for one write at once would break this, and is an error.
type scheduledRace struct {
	*racer
	gate     *ScheduleGate
	row      RaceRow
	tree     *ScheduleTree
	name     string
	arrivals <-chan *heldRequest
	writes   [raceWrites]*scheduledWrite
	state    map[string]any // the stored object; nil if there is none
	outcome  RaceOutcome
	left     disturbances
	played   PlayedSchedule
}

// disturbances are how often a response is lost, and somebody else writes, in one schedule: each at most once, and both at most All times.
type disturbances struct {
	All, Lost, Others int
}

// A scheduledWrite is a write that is under way.
type scheduledWrite struct {
	pending    *heldRequest // nil once it is answered
	answered   chan struct{}
	isAnswered bool
	err        error
}

// A PlayedSchedule is one schedule and how it ended.
type PlayedSchedule struct {
	Letters string
	Steps   []string
	// Lost is why it is lost: what a write has done that policies forbid; empty if it is not.
	Lost  string
	Codes [raceWrites]int
	// IsRedundant is whether it differs from another one only in the order of reads, so it was not played to its end.
	IsRedundant bool
	// IsCut is whether it was not explored to its end, because it has too many steps.
	IsCut bool
}

func (s PlayedSchedule) String() string {
	return fmt.Sprintf("%s (%s): %d+%d", s.Letters, strings.Join(s.Steps, ", "), s.Codes[firstWrite], s.Codes[secondWrite])
}

// play plays one schedule.
func (s *scheduledRace) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s.name = fmt.Sprintf("schedule-%d", raceNumber.Add(1))
	version := ""
	if s.row.Exists {
		made, err := s.make(ctx, s.row.Kind, s.name)
		if err != nil {
			return err
		}
		s.state = made
		s.outcome.Before, version = text(made, "metadata", "uid"), text(made, "metadata", "resourceVersion")
	}
	s.arrivals = s.gate.Begin(s.name)
	defer s.gate.End(s.name)
	for i := range s.writes {
		s.start(ctx, i, version)
		if err := s.settle(ctx, i); err != nil {
			return err
		}
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	if slices.Contains(s.outcome.Codes[:], http.StatusGatewayTimeout) {
		return errGivenUp
	}
	s.judge()
	_, _, err := s.send(ctx, s.upstream, Request{Method: "DELETE", Path: s.path()}, "")
	return err
}

func (s *scheduledRace) path() string { return s.row.Kind.Path + "/" + s.name }

// start sends a write.
func (s *scheduledRace) start(ctx context.Context, i int, version string) {
	write := &scheduledWrite{answered: make(chan struct{})}
	s.writes[i] = write
	go func() {
		defer close(write.answered)
		request := s.row.Writes[i].request(s.row.Kind, s.name, version)
		code, body, err := s.send(ctx, s.at, request, fmt.Sprintf("%s/%d", s.name, i))
		s.outcome.Codes[i], s.outcome.UIDs[i], write.err = code, text(body, "metadata", "uid"), err
	}()
}

// settle waits until a write that goes on has a request held or is answered.
func (s *scheduledRace) settle(ctx context.Context, i int) error {
	write := s.writes[i]
	write.pending = nil
	select {
	case held := <-s.arrivals:
		if held.write != "" && held.write != fmt.Sprint(i) {
			return fmt.Errorf("%s of write %s came while write %d went on", held.does, held.write, i)
		}
		write.pending = held
	case <-write.answered:
		write.isAnswered = true
		if write.err != nil {
			return write.err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case held := <-s.arrivals:
		return fmt.Errorf("%s came while another request of write %d was held or it was answered", held.does, i)
	default:
		return nil
	}
}

// follow lets requests through, as the tree says, until both writes are answered.
func (s *scheduledRace) follow(ctx context.Context) error {
	for number := 0; ; number++ {
		enabled := s.enabled()
		if len(enabled) == 0 {
			return nil
		}
		choice := enabled[0]
		s.played.IsCut = number >= scheduleSteps
		if !s.played.IsCut && !s.played.IsRedundant {
			var isNew bool
			var err error
			if choice, isNew, err = s.tree.Choose(number, enabled); err != nil {
				return fmt.Errorf("%s: %w", s.played, err)
			}
			if !isNew {
				s.played.IsRedundant, choice = true, enabled[0]
			}
		}
		if err := s.take(ctx, choice); err != nil {
			return err
		}
	}
}

// enabled is what may happen next; nothing once both writes are answered.
func (s *scheduledRace) enabled() []Choice {
	var carried, lost []Choice
	for i, write := range s.writes {
		if write.isAnswered {
			continue
		}
		held := write.pending
		carried = append(carried, Choice{Letter: firstGoesOn + byte(i), Does: held.does, Reads: held.reads})
		if !held.reads && min(s.left.All, s.left.Lost) > 0 {
			lost = append(lost, Choice{Letter: firstIsLost + byte(i), Does: held.does})
		}
	}
	var others []Choice
	if len(carried) > 0 && min(s.left.All, s.left.Others) > 0 {
		others = s.othersMay()
	}
	return slices.Concat(carried, lost, others)
}

// othersMay is what somebody else may do that makes a difference.
func (s *scheduledRace) othersMay() []Choice {
	others := []Choice{{Letter: isRecreated, Does: "recreated"}}
	if s.state != nil {
		others = append(others, Choice{Letter: isDeleted, Does: "deleted"})
	}
	if _, has := label(s.state, "a"); !has {
		others = append(others, Choice{Letter: isLabelled, Does: "labelled"})
	}
	return others
}

// take has one thing happen.
func (s *scheduledRace) take(ctx context.Context, choice Choice) error {
	s.played.Letters += string(choice.Letter)
	switch choice.Letter {
	case firstGoesOn, secondGoesOn:
		return s.letThrough(ctx, int(choice.Letter-firstGoesOn), false)
	case firstIsLost, secondIsLost:
		s.left.All, s.left.Lost = s.left.All-1, s.left.Lost-1
		return s.letThrough(ctx, int(choice.Letter-firstIsLost), true)
	}
	s.left.All, s.left.Others = s.left.All-1, s.left.Others-1
	s.played.Steps = append(s.played.Steps, choice.Does)
	if err := s.disturb(ctx, choice.Letter); err != nil {
		return err
	}
	var err error
	s.state, err = s.stored(ctx)
	return err
}

// letThrough carries out what is held for a write, checks what that has done, and waits until the write comes to its next request or its end.
func (s *scheduledRace) letThrough(ctx context.Context, i int, isLost bool) error {
	held := s.writes[i].pending
	if err := held.letThrough(ctx, isLost); err != nil {
		return err
	}
	step := fmt.Sprintf("%c %s %d", firstGoesOn+rune(i), held.does, held.code)
	if isLost {
		step += " lost"
	}
	s.played.Steps = append(s.played.Steps, step)
	if isDone := held.code < 400 || held.code >= 500; isDone && !held.reads {
		after, err := s.stored(ctx)
		if err != nil {
			return err
		}
		if why := s.row.Writes[i].forbidden(s.state, after); why != "" && s.played.Lost == "" {
			s.played.Lost = fmt.Sprintf("step %d %s", len(s.played.Steps), why)
		}
		s.state = after
	}
	return s.settle(ctx, i)
}

// disturb writes the object straight at the server.
func (s *scheduledRace) disturb(ctx context.Context, letter byte) error {
	requests := []Request{}
	creates := RacingWrite{Verb: "POST", Change: "seed"}
	switch {
	case letter == isLabelled && s.state != nil:
		requests = append(requests, RacingWrite{Verb: "merge", Change: "a"}.request(s.row.Kind, s.name, ""))
	case letter == isLabelled:
		creates.Change = "a"
	case s.state != nil:
		requests = append(requests, Request{Method: "DELETE", Path: s.path()})
	}
	if letter == isRecreated || letter == isLabelled && s.state == nil {
		requests = append(requests, creates.request(s.row.Kind, s.name, ""))
	}
	for _, request := range requests {
		code, body, err := s.send(ctx, s.upstream, request, "")
		if err != nil || code >= 300 {
			return fmt.Errorf("%s by somebody else was answered %d %v: %w", request.Method, code, body, err)
		}
	}
	return nil
}

// stored is the object as it is stored; nil if there is none.
func (s *scheduledRace) stored(ctx context.Context) (map[string]any, error) {
	code, body, err := s.send(ctx, s.upstream, Request{Method: "GET", Path: s.path()}, "")
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound:
		return nil, nil
	case code != http.StatusOK:
		return nil, fmt.Errorf("the object could not be read: %d %v", code, body)
	}
	return body, nil
}

// judge says whether the race is lost.
func (s *scheduledRace) judge() {
	s.played.Codes, s.outcome.After = s.outcome.Codes, s.state
	isAlone := !strings.ContainsAny(s.played.Letters, string([]byte{isDeleted, isRecreated, isLabelled}))
	if s.played.Lost == "" && isAlone && s.row.IsLost(s.outcome) {
		s.played.Lost = "it ends in the forbidden state"
	}
}

// A ScheduleCount is what was found of a row at a gateway.
type ScheduleCount struct {
	Played, Lost, Redundant, Deepest int
	Codes                            map[string]int
	// Losses are the first schedules that are lost.
	Losses []string
	// IsCut is whether not all schedules were played.
	IsCut bool
	// Repeated is how often a schedule was played again, because the gateway had given up what was held.
	Repeated int
}

// succeeded is whether some write did in some schedule: otherwise nothing is shown.
func (c ScheduleCount) succeeded() bool {
	for codes := range c.Codes {
		for code := range strings.SplitSeq(codes, "+") {
			if strings.HasPrefix(code, "2") {
				return true
			}
		}
	}
	return false
}

func (c ScheduleCount) String() string {
	text := fmt.Sprintf("%d schedules of up to %d steps, %d lost (%s)", c.Played, c.Deepest, c.Lost, countedCodes(c.Codes))
	if c.IsCut {
		text += ", not all that there are"
	}
	if c.Repeated > 0 {
		text += fmt.Sprintf(", %d repeated", c.Repeated)
	}
	return text
}

// add counts a schedule.
func (c *ScheduleCount) add(played PlayedSchedule) {
	c.IsCut = c.IsCut || played.IsCut
	c.Deepest = max(c.Deepest, len(played.Letters))
	if played.IsRedundant {
		c.Redundant++
		return
	}
	c.Played++
	c.Codes[fmt.Sprintf("%d+%d", played.Codes[firstWrite], played.Codes[secondWrite])]++
	if played.Lost == "" {
		return
	}
	c.Lost++
	if len(c.Losses) < 3 {
		c.Losses = append(c.Losses, played.Lost+": "+played.String())
	}
}

// An exploration plays all schedules of rows.
type exploration struct {
	gate         *ScheduleGate
	disturbances int
	isWhole      bool // see ScheduleTree
	most         int  // schedules of a row
	// stopsLost is whether it ends with the first schedule that is lost.
	stopsLost bool
}

// explore plays all schedules of a row.
func (e exploration) explore(ctx context.Context, r *racer, row RaceRow) (ScheduleCount, error) {
	count := ScheduleCount{Codes: map[string]int{}}
	tree := &ScheduleTree{Whole: e.isWhole}
	for {
		if count.Played+count.Redundant >= e.most {
			count.IsCut = true
			return count, nil
		}
		played, repeated, err := e.playPatiently(ctx, r, row, tree)
		if err != nil {
			return count, err
		}
		count.Repeated += repeated
		count.add(played)
		if e.stopsLost && count.Lost > 0 || !tree.Advance() {
			return count, nil
		}
	}
}

// playPatiently plays a schedule, and again if the machine was so slow that the gateway gave up.
func (e exploration) playPatiently(ctx context.Context, r *racer, row RaceRow, tree *ScheduleTree) (PlayedSchedule, int, error) {
	known := tree.Length()
	for repeated := 0; ; repeated++ {
		tree.Forget(known)
		race := scheduledRace{racer: r, gate: e.gate, row: row, tree: tree, left: disturbances{All: e.disturbances, Lost: 1, Others: 1}}
		err := race.play(ctx)
		if err == nil || !errors.Is(err, errGivenUp) || repeated == 5 {
			return race.played, repeated, err
		}
	}
}
