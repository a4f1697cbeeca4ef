package boards

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Several servers, and fleets of gateways: a world of its own, because one outage of a fleet hides another one.

// fleetCauses says for each alert about servers and fleets what in the test makes it fire. FairgateServerAway is among the others.
var fleetCauses = map[string]string{
	"FairgateServersUnbalanced":  "one client sends all requests on one HTTP/2 connection, and keeps one of two servers busy",
	"FairgateFleetIsolated":      "an API server refuses the leases of one of two gateways",
	"FairgateFleetLedgerStale":   "a newer version of fairgate writes the ledger",
	"FairgateFleetLedgerLost":    "the ledger is deleted",
	"FairgateFleetCallsFail":     "a gateway with other settings joins a fleet",
	"FairgateFleetNoCoordinator": "nobody may update the coordinator's lease",
}

func isOfFleets(alert string) bool { return fleetCauses[alert] != "" }

// showsFleets says whether an expression of a board is about several servers or a fleet.
func showsFleets(expr string) bool {
	return strings.Contains(expr, "fairgate_fleet_") ||
		strings.Contains(expr, "fairgate_upstream_server_") && !strings.Contains(expr, serverProblem)
}

const (
	// serverProblem has no sample in health; one of two servers is away in the outage of all other boards.
	serverProblem = "fairgate_upstream_server_problem"
	// isolatedReason is shown only of gateways that are cut off.
	isolatedReason = "fairgate_fleet_isolated_reason"
)

// fleets are gateways with several servers, and five fleets, one for each outage.
type fleets struct {
	leases *leases
	// balanced has two servers.
	balanced *gateway
	// cut are two gateways of a fleet, each with a server of its own that has the leases of both.
	cut []*gateway
	// doors are these servers.
	doors []*upstream
	// newer, lost, leaderless and mixed are the only gateways of their fleets.
	newer, lost, leaderless, mixed *gateway
	prometheus                     *prometheus
}

// fleetSeats are those of each fleet, and of both servers together.
const fleetSeats = 40

// withPolicy writes a policy that gives a group of users nearly all seats, and returns the directory.
func withPolicy(t *testing.T) string {
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "policies"), 0o700); err != nil {
		t.Fatal(err)
	}
	busy := level("busy", 0, queues(16, 2))
	busy["spec"].(object)["limited"].(object)["nominalConcurrencyShares"] = 5000
	write(t, filepath.Join(directory, "policies"), "all.yaml",
		`{"apiVersion": "v1", "kind": "List", "items": [`+encode(t, busy, schema("tenants", "busy", "tenants"))+"]}")
	return directory
}

func newFleets(t *testing.T) *fleets {
	f := &fleets{leases: newLeases()}
	first, second := startUpstream(t, "", ""), startUpstream(t, "", "")
	directory := withPolicy(t)
	certify(t, directory, 90*24*time.Hour)
	f.balanced = startGateway(t, directory, object{
		"mode": "files", "dataCores": 1, "flowControl": object{"policies": object{"directory": "policies"}},
		"upstream": object{"servers": []object{
			{"url": "http://" + first.address, "seats": fleetSeats / 2}, {"url": "http://" + second.address, "seats": fleetSeats / 2}}},
	}, true)
	f.balanced.client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	f.cut = []*gateway{f.member(t, "cut", "gw-0", 2), f.member(t, "cut", "gw-1", 2)}
	f.newer = f.member(t, "newer", "gw-0", 2)
	f.lost = f.member(t, "lost", "gw-0", 2)
	f.leaderless = f.member(t, "leaderless", "gw-0", 2)
	f.mixed = f.member(t, "mixed", "gw-0", 2)
	targets := []string{f.balanced.admin}
	for _, gateway := range f.members() {
		targets = append(targets, gateway.admin)
	}
	f.prometheus = startPrometheus(t, targets...)
	return f
}

func (f *fleets) members() []*gateway {
	return append(slices.Clone(f.cut), f.newer, f.lost, f.leaderless, f.mixed)
}

// member starts a gateway of a fleet of so many, with a server of its own. All servers have the same leases.
func (f *fleets) member(t *testing.T, fleet, name string, most int) *gateway {
	server := startUpstream(t, "", "")
	server.leases = f.leases
	f.doors = append(f.doors, server)
	return startGateway(t, withPolicy(t), object{
		"mode": "files", "upstream": object{"url": "http://" + server.address}, "dataCores": 1,
		"flowControl": object{"totalSeats": fleetSeats, "policies": object{"directory": "policies"}},
		"fleet":       object{"engine": "kubernetes", "name": fleet, "gateway": name, "maxGateways": most, "isolatedSeats": 2, "reclaim": "prompt"},
	}, false)
}

// calm sends what the gateways can bear.
func (f *fleets) calm(ctx context.Context) {
	for _, gateway := range append(f.members(), f.balanced) {
		gateway.load(ctx, 1, "mouse", "GET", podsOfA+"?delay=10ms", 50*time.Millisecond)
		gateway.load(ctx, 1, "node", "GET", "/api/v1/pods?watch=true", time.Second)
	}
	// Somebody else, with a connection and so a server of its own.
	other := *f.balanced
	other.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	other.load(ctx, 1, "elephant", "GET", podsOfA+"?delay=10ms", 50*time.Millisecond)
}

// areSettled says whether each fleet has one coordinator, and all its seats but what is kept for others are granted.
func (f *fleets) areSettled(t *testing.T) bool {
	granted := f.prometheus.query(t, fmt.Sprintf(`sum by (fleet) (fairgate_fleet_coordinator) == 1 and sum by (fleet) (fairgate_fleet_seats) >= %d`, fleetSeats-2))
	return len(granted) == 5
}

// follower returns which of the two gateways of the fleet does not coordinate.
func (f *fleets) follower(t *testing.T) int {
	found := f.prometheus.query(t, `fairgate_fleet_coordinator{fleet="cut"} == 0`)
	if len(found) != 1 {
		t.Fatalf("not one of two gateways follows: %v", found)
	}
	return slices.IndexFunc(f.cut, func(g *gateway) bool { return g.admin == found[0].Metric["instance"] })
}

// storm begins the outages, and returns which alerts they have to fire: with the instance, or the fleet where no instance is at fault.
func (f *fleets) storm(t *testing.T, ctx context.Context) []string {
	follower := f.follower(t)
	f.doors[follower].cut.Store(true)
	f.leases.overwrite(t, leasePath("newer", "ledger"), `{"version": 2, "from": "the future"}`)
	f.leases.remove(t, leasePath("lost", "ledger"))
	f.leases.protect(leasePath("leaderless", "coordinator"))
	// Nobody scrapes this one, which would be cut off.
	f.member(t, "mixed", "gw-1", 3)
	f.balanced.load(ctx, fleetSeats/2-2, "mouse", "GET", podsOfA+"?delay=500ms", 0)
	return []string{
		"FairgateFleetCallsFail " + f.mixed.admin,
		"FairgateFleetIsolated " + f.cut[follower].admin,
		"FairgateFleetLedgerLost " + f.lost.admin,
		"FairgateFleetLedgerStale " + f.newer.admin,
		"FairgateFleetNoCoordinator leaderless",
		"FairgateServersUnbalanced " + f.balanced.admin,
	}
}

// fired returns the alerts that have fired since the start.
func (f *fleets) fired(t *testing.T) []string {
	found := map[string]bool{}
	for _, one := range f.prometheus.query(t, `max_over_time(ALERTS{alertstate="firing"}[1h])`) {
		at := one.Metric["instance"]
		if at == "" {
			at = one.Metric["fleet"]
		}
		found[one.Metric["alertname"]+" "+at] = true
	}
	return slices.Sorted(maps.Keys(found))
}

func TestBoardsShowServersAndFleetsAndTheirAlertsFireInOutagesAlone(t *testing.T) {
	f := newFleets(t)
	start := time.Now()
	w := &world{prometheus: f.prometheus}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f.calm(ctx)
	w.wait(t, firesWithin, func() bool { return f.areSettled(t) })
	if !f.areSettled(t) {
		t.Fatal("the fleets have no coordinators, or not all seats")
	}
	empty := expressions(t)
	maps.DeleteFunc(empty, func(_, expr string) bool { return !showsFleets(expr) })
	inOutage := maps.Clone(empty)
	maps.DeleteFunc(inOutage, func(_, expr string) bool { return !strings.Contains(expr, isolatedReason) })
	maps.DeleteFunc(empty, func(title, _ string) bool { return inOutage[title] != "" })
	count := len(empty)
	w.wait(t, firesWithin, func() bool {
		w.dropThoseWithData(t, empty)
		return len(empty) == 0
	})
	for title, expr := range inOutage {
		if w.prometheus.hasData(t, expr) {
			t.Errorf("in health there are data in %s", title)
		}
	}
	report(t, "in health", empty, count)
	if count == 0 || len(empty) > 0 {
		t.Error("panels without data, although there are servers and fleets")
	}
	healthy := f.prometheus.evaluations(t)
	w.wait(t, firesWithin, func() bool { return f.prometheus.evaluations(t) >= healthy+healthyFor })
	if fired := f.fired(t); len(fired) > 0 {
		t.Errorf("in health: %v", fired)
	}

	begun, first := time.Now(), f.prometheus.evaluations(t)
	expected := f.storm(t, ctx)
	known := map[string]bool{}
	w.wait(t, firesWithin, func() bool {
		for _, name := range f.fired(t) {
			if !known[name] {
				known[name] = true
				alert, at, _ := strings.Cut(name, " ")
				t.Logf("%-27s fired after %3d evaluations at %s: %s", alert, f.prometheus.evaluations(t)-first, at, fleetCauses[alert])
				measured(t, alert+" fired after", time.Since(begun).Seconds(), "s")
			}
		}
		return !slices.ContainsFunc(expected, func(name string) bool { return !known[name] })
	})
	reasons := len(inOutage)
	w.dropThoseWithData(t, inOutage)
	report(t, "in the outage", inOutage, reasons)
	if reasons == 0 || len(inOutage) > 0 {
		t.Error("the boards do not say why a gateway is cut off")
	}
	if fired := f.fired(t); !slices.Equal(fired, expected) {
		t.Errorf("the alerts that fired are %v, and should be %v", fired, expected)
	}
	w.pasteRunbooks(t, slices.Sorted(maps.Keys(fleetCauses))...)
	log, err := os.ReadFile(filepath.Join(f.lost.directory, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(log), "the ledger is missing"); lines != 1 {
		t.Errorf("the log says %d times that the ledger is gone:\n%s", lines, log)
	}
	if directory := os.Getenv("FAIRGATE_PICTURES"); directory != "" {
		f.prometheus.draw(t, directory, "fleet-", variables, start)
	}
}
