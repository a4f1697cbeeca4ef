package cluster

import "fmt"

// A schedule is the order in which the requests that a gateway sends for two writes come to the server. All schedules of a race are
// explored depth first: each is played from the beginning on a new object (stateless model checking), follows the schedule before up
// to the last point at which something else could have happened, and from there on takes what comes first.
//
// Source: P. Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems", chapter 5, "Sleep Sets".

// What may happen at a point of a schedule.
const (
	firstGoesOn  = 'a' // the request that is held for the first write is carried out
	secondGoesOn = 'b'
	firstIsLost  = 'A' // it is carried out, and the connection is closed before the response
	secondIsLost = 'B'
	isDeleted    = 'D' // somebody else deletes the object, straight at the server
	isRecreated  = 'R' // somebody else deletes it if it is there, and creates another one with its name
	isLabelled   = 'L' // somebody else gives it the label a, and creates it if there is none
)

// scheduleSteps are the most steps of a schedule. One with more is not explored further.
const scheduleSteps = 100

// A Choice is one of the things that may happen at a point of a schedule.
type Choice struct {
	Letter byte
	Does   string // the request
	Reads  bool   // whether it changes nothing
}

// commutes says whether the order of two choices that follow each other makes no difference.
func (c Choice) commutes(other Choice) bool {
	return c.Reads && other.Reads && c.Letter != other.Letter
}

// A choicePoint is a point of a schedule.
type choicePoint struct {
	enabled []Choice
	// asleep are the letters that were taken before, here, or at an earlier point and in another order that makes no difference.
	asleep map[byte]bool
	taken  int
}

func (p *choicePoint) choice() Choice { return p.enabled[p.taken] }

// next takes the first choice that is not asleep. Returns false if there is none.
func (p *choicePoint) next() bool {
	for number, one := range p.enabled {
		if !p.asleep[one.Letter] {
			p.taken = number
			return true
		}
	}
	return false
}

// A ScheduleTree goes through all schedules.
type ScheduleTree struct {
	// Whole is whether schedules that differ only in the order of reads are explored, too.
	Whole  bool
	points []*choicePoint
}

// Choose says what happens at the point of this number. Returns false if all that begins with the schedule so far was explored in
// another order.
//
// It fails if the same schedule has led to another point before: then what is explored is not all that there is.
func (t *ScheduleTree) Choose(number int, enabled []Choice) (Choice, bool, error) {
	if number < len(t.points) {
		point := t.points[number]
		if got, want := fmt.Sprint(enabled), fmt.Sprint(point.enabled); got != want {
			return Choice{}, false, fmt.Errorf("after the same schedule %s came once, and %s now", want, got)
		}
		return point.choice(), true, nil
	}
	point := &choicePoint{enabled: enabled, asleep: t.asleep()}
	if !point.next() {
		return Choice{}, false, nil
	}
	t.points = append(t.points, point)
	return point.choice(), true, nil
}

// asleep are the letters that are asleep at the point that follows.
func (t *ScheduleTree) asleep() map[byte]bool {
	asleep := map[byte]bool{}
	if len(t.points) == 0 || t.Whole {
		return asleep
	}
	before := t.points[len(t.points)-1]
	for _, one := range before.enabled {
		if before.asleep[one.Letter] && one.commutes(before.choice()) {
			asleep[one.Letter] = true
		}
	}
	return asleep
}

// Length is how many points the schedule has so far.
func (t *ScheduleTree) Length() int { return len(t.points) }

// Forget forgets all points after the first ones, to play the schedule again.
func (t *ScheduleTree) Forget(after int) { t.points = t.points[:min(after, len(t.points))] }

// Advance goes on to the next schedule. Returns false if there is none.
func (t *ScheduleTree) Advance() bool {
	for len(t.points) > 0 {
		last := t.points[len(t.points)-1]
		last.asleep[last.choice().Letter] = true
		if last.next() {
			return true
		}
		t.points = t.points[:len(t.points)-1]
	}
	return false
}
