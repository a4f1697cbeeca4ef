package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// raceVariable is how many races of each row are played, as with the flag -races.
const raceVariable = "FAIRGATE_RACES"

var (
	racesPlayed = flag.Int("races", racesByDefault(), "how many races of each row are played with each fidelity, and on the server itself")
	raceRows    = flag.String("race-rows", "", "play the rows alone whose names have what this regular expression matches")
	racesBeside = flag.Int("races-beside", 8, "how many races are played side by side")
)

func racesByDefault() int {
	if given, err := strconv.Atoi(os.Getenv(raceVariable)); err == nil {
		return given
	}
	return 2 // in one order and in the other
}

// knownRaces are rows that a gateway loses, as fidelity, colon, row, with the reason.
const knownRacesFile = "known_races.json"

// A racer plays races on one server.
type racer struct {
	name      string
	at        Endpoint
	upstream  Endpoint // where objects are made, and looked at
	gate      *RaceGate
	transport http.RoundTripper
}

var raceNumber atomic.Uint64

// A gateway with a guard loses no race, in whatever order the server carries the writes out: the server's own admission
// beside it.
func TestNoRaceOfTwoWritesGetsPastAGuardedGateway(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	bed := must[*AdmissionBed](t)(admissionBed())
	succeeds(t, admissionRights())
	evaluate := must[User](t)(shared.NewUser(admissionUser))
	gate := must[*RaceGate](t)(shared.NewRaceGate(bed.Plain.Endpoint, evaluate))
	transport := shared.Transport(shared.admin, false)
	racers := []*racer{{name: "server", at: bed.Enforcing.Endpoint, upstream: bed.Enforcing.Endpoint, transport: transport}}
	for _, fidelity := range []string{"completed", "dryRun"} {
		gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", Fidelity: fidelity, Guard: true})
		succeeds(t, gateway.Start())
		racers = append(racers, &racer{name: fidelity, at: gateway.Endpoint, upstream: bed.Plain.Endpoint, gate: gate, transport: transport})
	}
	ctx := inTime(t, time.Duration(60+*racesPlayed/3)*time.Minute)
	for _, one := range []*racer{racers[0], racers[1]} {
		succeeds(t, one.prepare(ctx))
	}
	for _, one := range racers {
		succeeds(t, one.untilEvaluated(ctx))
	}
	known := must[map[string]string](t)(readKnownRaces())
	wanted := must[*regexp.Regexp](t)(regexp.Compile(*raceRows))
	for _, row := range RaceRows() {
		if wanted.MatchString(row.String()) {
			playRow(ctx, t, row, racers, known)
		}
	}
	if *raceRows == "" {
		for name := range known {
			t.Errorf("%s: there is no such row", name)
		}
	}
}

func readKnownRaces() (map[string]string, error) {
	known := map[string]string{}
	text, err := os.ReadFile(knownRacesFile)
	if err != nil {
		return nil, err
	}
	return known, json.Unmarshal(text, &known)
}

// playRow plays one row everywhere at the same time, and compares what is lost with what is known to be.
func playRow(ctx context.Context, t *testing.T, row RaceRow, racers []*racer, known map[string]string) {
	t.Helper()
	counts, failures := make([]RaceCount, len(racers)), make([]error, len(racers))
	var group sync.WaitGroup
	for i, one := range racers {
		group.Go(func() { counts[i], failures[i] = one.play(ctx, row, *racesPlayed) })
	}
	group.Wait()
	for i, one := range racers {
		if failures[i] != nil {
			t.Fatalf("%s: %s: %v", one.name, row, failures[i])
		}
		fmt.Printf("tests/cluster: RACES %-9s %s: %s\n", one.name, row, counts[i])
		checkKnown(t, one, row, counts[i], known)
	}
}

// checkKnown compares what is lost of a row with what is known to be.
func checkKnown(t *testing.T, one *racer, row RaceRow, count RaceCount, known map[string]string) {
	t.Helper()
	name := one.name + ": " + row.String()
	_, isKnown := known[name]
	delete(known, name)
	switch {
	case count.Lost > 0 && !isKnown:
		t.Errorf("%s: %s", name, count)
	case count.Lost == 0 && isKnown && one.gate != nil:
		t.Errorf("%s is no longer lost", name)
	}
}

// prepare makes the namespace and the policies of races on the upstream.
func (r *racer) prepare(ctx context.Context) error {
	create := []Request{{Path: "/api/v1/namespaces", Body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + racesNamespace + `","labels":{"races":"yes"}}}`}}
	for _, one := range racingPolicies {
		create = append(create, Request{Path: policiesPath, Body: one})
	}
	for _, name := range []string{"races", "races-scale"} {
		create = append(create, Request{Path: bindingsPath, Body: binding(name)})
	}
	for _, request := range create {
		request.Method, request.Headers = "POST", map[string]string{contentHeader: jsonType}
		request.Body = strings.ReplaceAll(request.Body, "@all", "races")
		code, body, err := r.send(ctx, r.upstream, request, "")
		if err != nil || code != http.StatusCreated && code != http.StatusConflict {
			return fmt.Errorf("%s was answered %d %v: %w", request.Path, code, body, err)
		}
	}
	return nil
}

// untilEvaluated waits until both policies are in force.
func (r *racer) untilEvaluated(ctx context.Context) error {
	name := fmt.Sprintf("probe-%d", raceNumber.Add(1))
	if _, err := r.make(ctx, racingThings, name); err != nil {
		return err
	}
	probes := []RacingWrite{{Verb: "merge", Sub: "scale", Change: "replicas=0"}, {Verb: "merge", Change: "replicas=0"}}
	var last any
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		for _, probe := range probes {
			request := probe.request(racingThings, name, "")
			request.Query = "dryRun=All"
			code, body, err := r.send(ctx, r.at, request, "")
			if last = body; err != nil || code != http.StatusUnprocessableEntity {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%s: the policies are not in force, by %v: %w", r.name, last, err)
	}
	return nil
}

// play plays a row so often.
func (r *racer) play(ctx context.Context, row RaceRow, races int) (RaceCount, error) {
	count, failures := RaceCount{Codes: map[string]int{}}, make(chan error, *racesBeside)
	var mutex sync.Mutex
	var next atomic.Int64
	for range *racesBeside {
		go func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= races {
					failures <- nil
					return
				}
				outcome, err := r.race(ctx, row, number)
				if err != nil {
					failures <- err
					return
				}
				mutex.Lock()
				count.Played++
				if row.IsLost(outcome) {
					count.Lost++
				}
				count.Codes[fmt.Sprintf("%d+%d", outcome.Codes[firstWrite], outcome.Codes[secondWrite])]++
				mutex.Unlock()
			}
		}()
	}
	var failed error
	for range *racesBeside {
		if err := <-failures; err != nil {
			failed = err
		}
	}
	return count, failed
}

// race plays one race. Before a gateway, the writes come to the server in an order that the number of the race says.
func (r *racer) race(ctx context.Context, row RaceRow, number int) (RaceOutcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	name := fmt.Sprintf("race-%d", raceNumber.Add(1))
	var outcome RaceOutcome
	version := ""
	if row.Exists {
		made, err := r.make(ctx, row.Kind, name)
		if err != nil {
			return outcome, err
		}
		outcome.Before, version = text(made, "metadata", "uid"), text(made, "metadata", "resourceVersion")
	}
	var held *heldRace
	if r.gate != nil {
		held = r.gate.Begin(name)
		defer r.gate.End(name)
	}
	var answered [raceWrites]chan struct{}
	failures := make(chan error, raceWrites)
	for i, write := range row.Writes {
		answered[i] = make(chan struct{})
		go func() {
			defer close(answered[i])
			code, body, err := r.send(ctx, r.at, write.request(row.Kind, name, version), fmt.Sprintf("%s/%d", name, i))
			outcome.Codes[i], outcome.UIDs[i] = code, text(body, "metadata", "uid")
			failures <- err
		}()
	}
	if held != nil {
		order := [raceWrites]int{number % raceWrites, 1 - number%raceWrites}
		if err := held.conduct(ctx, answered, order); err != nil {
			return outcome, err
		}
	}
	for range raceWrites {
		if err := <-failures; err != nil {
			return outcome, err
		}
	}
	for _, end := range answered {
		<-end
	}
	code, body, err := r.send(ctx, r.upstream, Request{Method: "GET", Path: row.Kind.Path + "/" + name}, "")
	if code == http.StatusOK {
		outcome.After = body
	}
	return outcome, err
}

// make makes an object for a race.
func (r *racer) make(ctx context.Context, kind RacingKind, name string) (map[string]any, error) {
	request := RacingWrite{Verb: "POST", Change: "seed"}.request(kind, name, "")
	code, body, err := r.send(ctx, r.upstream, request, "")
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("%s %s was answered %d %v", request.Method, request.Path, code, body)
	}
	return body, err
}

// send sends a request, as the given write of a race.
func (r *racer) send(ctx context.Context, to Endpoint, request Request, write string) (int, map[string]any, error) {
	target := request.Path
	if request.Query != "" {
		target += "?" + request.Query
	}
	header := http.Header{}
	for name, value := range maps.All(request.Headers) {
		header.Set(name, value)
	}
	if write != "" {
		header.Set(raceHeader, write)
	}
	response, err := shared.Do(ctx, r.transport, to, shared.admin, request.Method, target, header, request.Body)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	documents, _ := jsonDocuments(data)
	if err != nil || len(documents) != 1 {
		return response.StatusCode, nil, err
	}
	body, _ := documents[0].(map[string]any)
	return response.StatusCode, body, nil
}

// The rows have names of their own.
func TestRowsOfRacesHaveNamesOfTheirOwn(t *testing.T) {
	var names []string
	for _, row := range RaceRows() {
		names = append(names, row.String())
	}
	slices.Sort(names)
	if compact := slices.Compact(slices.Clone(names)); len(compact) != len(names) {
		t.Errorf("%d rows have %d names", len(names), len(compact))
	}
}
