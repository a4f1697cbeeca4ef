package cluster

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	scheduleRows         = flag.String("schedule-rows", "", "play the rows alone whose fidelity, colon and name have what this regular expression matches")
	scheduleDisturbances = flag.Int("schedule-disturbances", 1, "how often in one schedule a response is lost or somebody else writes, at most 2: each at most once")
	scheduleWhole        = flag.Bool("schedule-whole", false, "play schedules that differ only in the order of reads, too")
	schedulesOfRow       = flag.Int("schedules", 5000, "how many schedules of a row are played at most; more fail the test")
	schedulesBeside      = flag.Int("schedules-beside", 8, "how many rows are played side by side")
	scheduleControls     = flag.Bool("schedule-controls", false, "play all rows on gateways without a guard, not only some")
)

// sampleRows are one row of each kind. A gateway without a guard loses each of them in some order.
var sampleRows = []string{
	"stored configmaps: merge × merge",
	"stored configmaps: PUT × DELETE",
	"stored configmaps: json × deletecollection",
	"stored roles: DELETE × PUT",
	"absent roles: POST × PUT",
	"stored things: merge × merge status",
	"stored things: merge × PUT scale",
}

// disturbedRows are those that are always played with disturbances, as fidelity, colon and row. They are few, since a row with many
// requests keeps both cores busy for long.
var disturbedRows = []string{
	"completed: stored configmaps: merge × merge",
	"completed: absent roles: POST × PUT",
	"dryRun: absent roles: POST × PUT",
}

// A scheduledRow is a row that is played on a gateway.
type scheduledRow struct {
	on    *racer
	row   RaceRow
	count ScheduleCount
	err   error
}

func (r *scheduledRow) String() string { return r.on.name + ": " + r.row.String() }

// Whatever the order in which the server carries out the requests of a gateway with a guard, no write does what policies forbid.
func TestNoScheduleOfTwoWritesGetsPastAGuardedGateway(t *testing.T) {
	playSchedules(t, 0, func(*scheduledRow) bool { return true })
}

// Nor if a response is lost, or somebody else deletes, recreates or labels the object at any point: all rows of this with -measure.
func TestNoDisturbedScheduleOfTwoWritesGetsPastAGuardedGateway(t *testing.T) {
	playSchedules(t, *scheduleDisturbances, func(one *scheduledRow) bool {
		return *measuring || *scheduleRows != "" || slices.Contains(disturbedRows, one.String())
	})
}

// playSchedules plays all schedules of the rows that are wanted, and fails the test if one is lost or left out.
func playSchedules(t *testing.T, disturbances int, isWanted func(*scheduledRow) bool) {
	t.Helper()
	aboutEvaluatingFairgate(t)
	t.Parallel()
	gate, racers := scheduleRacers(t, true)
	named := must[*regexp.Regexp](t)(regexp.Compile(*scheduleRows))
	rows := scheduledRows(racers, func(one *scheduledRow) bool { return isWanted(one) && named.MatchString(one.String()) })
	if len(rows) == 0 {
		t.Skipf("no row has what -schedule-rows=%s matches", *scheduleRows)
	}
	exploring := exploration{gate: gate, disturbances: disturbances, isWhole: *scheduleWhole, most: *schedulesOfRow}
	from := time.Now()
	exploring.playAll(inTime(t, 48*time.Hour), rows)
	var total ScheduleCount
	for _, one := range rows {
		total.Played, total.Lost, total.Redundant = total.Played+one.count.Played, total.Lost+one.count.Lost, total.Redundant+one.count.Redundant
		switch {
		case one.err != nil:
			t.Errorf("%s: after %s: %v", one, one.count, one.err)
		case one.count.Lost > 0:
			t.Errorf("%s: %s: %q", one, one.count, one.count.Losses)
		case one.count.IsCut, one.count.Deepest < raceWrites:
			t.Errorf("%s: %s", one, one.count)
		case !one.count.succeeded() && !one.row.createsNothing():
			t.Errorf("%s: no write succeeds: %s", one, one.count)
		}
	}
	fmt.Printf("tests/cluster: SCHEDULES with %d disturbances: %d rows × fidelities, %d schedules, %d lost; %d others differ only in the order of reads; %.0f s\n",
		disturbances, len(rows), total.Played, total.Lost, total.Redundant, time.Since(from).Seconds())
}

// Without a guard, the same exploration finds schedules that are lost: the control of the test before.
func TestSomeScheduleOfTwoWritesGetsPastAGatewayWithoutAGuard(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	gate, racers := scheduleRacers(t, false)
	exploring := exploration{gate: gate, most: *schedulesOfRow, stopsLost: true}
	rows := scheduledRows(racers, func(one *scheduledRow) bool {
		return *scheduleControls || slices.Contains(sampleRows, one.row.String())
	})
	exploring.playAll(inTime(t, time.Hour), rows)
	lost := 0
	for _, one := range rows {
		lost += one.count.Lost
		switch {
		case one.err != nil:
			t.Errorf("%s: %v", one, one.err)
		case one.count.Lost == 0 && slices.Contains(sampleRows, one.row.String()):
			t.Errorf("%s: %s", one, one.count)
		}
		t.Logf("%s: %q", one, one.count.Losses)
	}
	fmt.Printf("tests/cluster: SCHEDULES without a guard: %d of %d rows are lost in some schedule\n", lost, len(rows))
}

// scheduleRacers starts a gateway of each fidelity behind one gate.
func scheduleRacers(t *testing.T, isGuarded bool) (*ScheduleGate, []*racer) {
	t.Helper()
	bed := must[*AdmissionBed](t)(admissionBed())
	succeeds(t, admissionRights())
	evaluate := must[User](t)(shared.NewUser(admissionUser))
	gate := must[*ScheduleGate](t)(shared.NewScheduleGate(bed.Plain.Endpoint, evaluate))
	ctx := inTime(t, readyLimit)
	var racers []*racer
	for _, fidelity := range []string{"completed", "dryRun"} {
		gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", Fidelity: fidelity, Guard: isGuarded})
		succeeds(t, gateway.Start())
		one := &racer{name: fidelity, at: gateway.Endpoint, upstream: bed.Plain.Endpoint, transport: shared.Transport(shared.admin, false)}
		if len(racers) == 0 {
			succeeds(t, one.prepare(ctx))
		}
		succeeds(t, one.untilEvaluated(ctx))
		racers = append(racers, one)
	}
	return gate, racers
}

// scheduledRows are the rows that are wanted, on each gateway.
func scheduledRows(racers []*racer, isWanted func(*scheduledRow) bool) []*scheduledRow {
	var rows []*scheduledRow
	for _, row := range RaceRows() {
		for _, on := range racers {
			if one := (&scheduledRow{on: on, row: row}); isWanted(one) {
				rows = append(rows, one)
			}
		}
	}
	return rows
}

// playAll plays rows side by side.
func (e exploration) playAll(ctx context.Context, rows []*scheduledRow) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range *schedulesBeside {
		group.Go(func() {
			for number := int(next.Add(1)) - 1; number < len(rows); number = int(next.Add(1)) - 1 {
				one := rows[number]
				from := time.Now()
				one.count, one.err = e.explore(ctx, one.on, one.row)
				fmt.Printf("tests/cluster: SCHEDULES %s: %s; %.1f s\n", one, one.count, time.Since(from).Seconds())
			}
		})
	}
	group.Wait()
}

// The rows that are always played are there.
func TestRowsThatSchedulesNameAreThere(t *testing.T) {
	var names []string
	for _, row := range RaceRows() {
		names = append(names, row.String(), "completed: "+row.String(), "dryRun: "+row.String())
	}
	for _, one := range slices.Concat(sampleRows, disturbedRows) {
		if !slices.Contains(names, one) {
			t.Errorf("%s: there is no such row", one)
		}
	}
}

// The tree goes through every order of two sequences once, and through one alone of those that differ in the order of reads.
func TestAScheduleTreeGoesThroughAllOrders(t *testing.T) {
	for _, one := range []struct {
		first, second string // r reads, w writes
		isWhole       bool
		want          int
	}{
		{"www", "www", false, 20}, {"ww", "wwww", true, 15}, {"rrr", "rrr", true, 20}, {"rrr", "rrr", false, 1},
		{"rw", "rw", true, 6}, {"rw", "rw", false, 4}, {"", "w", false, 1}, {"rw", "rrr", false, 4},
	} {
		tree, seen := &ScheduleTree{Whole: one.isWhole}, map[string]int{}
		for {
			if played, isWhole := followed(t, tree, one.first, one.second); isWhole {
				seen[played]++
			}
			if !tree.Advance() {
				break
			}
		}
		if len(seen) != one.want {
			t.Errorf("%+v: %d schedules: %v", one, len(seen), seen)
		}
		for played, times := range seen {
			if times != 1 {
				t.Errorf("%+v: %s was played %d times", one, played, times)
			}
		}
	}
}

// followed is the schedule of two sequences that comes next. Returns false if it ends early.
func followed(t *testing.T, tree *ScheduleTree, first, second string) (string, bool) {
	t.Helper()
	letters, left := "", [raceWrites]string{first, second}
	for number := 0; left[firstWrite]+left[secondWrite] != ""; number++ {
		var enabled []Choice
		for i, steps := range left {
			if steps != "" {
				enabled = append(enabled, Choice{Letter: firstGoesOn + byte(i), Reads: steps[0] == 'r'})
			}
		}
		choice, isNew, err := tree.Choose(number, enabled)
		if err != nil || !isNew {
			succeeds(t, err)
			return letters, false
		}
		letters += string(choice.Letter)
		which := choice.Letter - firstGoesOn
		left[which] = left[which][1:]
	}
	return letters, true
}

// What a write may not do to an object.
func TestWhatPoliciesOfRacesForbidIsKnownWithoutThem(t *testing.T) {
	object := func(replicas int, labels ...string) map[string]any {
		own := map[string]any{}
		for _, one := range labels {
			own[one] = "1"
		}
		return map[string]any{"metadata": map[string]any{"labels": own}, "spec": map[string]any{"replicas": replicas}}
	}
	whole, scale := RacingWrite{Verb: "PUT"}, RacingWrite{Verb: "PUT", Sub: "scale"}
	withStatus := object(1, "a")
	withStatus["status"] = map[string]any{"b": "1"}
	for number, one := range []struct {
		write         RacingWrite
		before, after map[string]any
		isForbidden   bool
	}{
		{whole, nil, object(1, "a"), false}, {whole, nil, object(1, "a", "b"), true}, {whole, nil, object(1, "c"), true},
		{whole, object(1), object(1, "c"), false}, {whole, object(1, "a"), object(1), true}, {whole, object(1, "a"), nil, true},
		{whole, object(1, "b"), nil, false}, {whole, nil, nil, false}, {whole, object(5), object(3), true}, {scale, object(5), object(3), true},
		{scale, object(3, "a", "b"), object(5, "a", "b"), false}, {whole, object(1, "a"), withStatus, true},
	} {
		if why := one.write.forbidden(one.before, one.after); (why != "") != one.isForbidden {
			t.Errorf("case %d: %q", number, why)
		}
	}
}
