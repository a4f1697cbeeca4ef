package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// stalePolicy is about the limits of one name.
func stalePolicy(name, denied string) (string, string) {
	rules := `spec.matchConstraints={"resourceRules":[{"apiGroups":["judged.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["limits"]}]}`
	of := strings.NewReplacer("@all", "stale")
	return of.Replace(policy(name, rules, mustHold(`object.metadata.name != '`+denied+`'`))), of.Replace(binding(name))
}

// A staleWriter writes in dry runs what a policy denies as soon as it is in force.
type staleWriter struct {
	*racer
	name string
}

func (w staleWriter) write(ctx context.Context, t *testing.T) int {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"judged.example.com/v1","kind":"Limit","metadata":{"name":%q}}`, w.name)
	request := Request{Method: "POST", Path: "/apis/judged.example.com/v1/namespaces/default/limits", Query: "dryRun=All", Headers: map[string]string{contentHeader: jsonType}, Body: body}
	code, _, err := w.send(ctx, w.at, request, "")
	succeeds(t, err)
	return code
}

// until writes until this code is the answer, and counts the others. Returns how long it took, and when the last write was accepted.
func (w staleWriter) until(ctx context.Context, t *testing.T, code int) (others map[int]int, took, accepted time.Duration) {
	t.Helper()
	others, began := map[int]int{}, time.Now()
	for {
		got := w.write(ctx, t)
		took = time.Since(began)
		if got == code {
			return others, took, accepted
		}
		others[got]++
		if got == http.StatusCreated {
			accepted = took
		}
		if ctx.Err() != nil {
			t.Fatalf("not answered %d, but %v", code, others)
		}
	}
}

// The watches of policies break, while everything else of the upstream works. With maxStaleness writes are refused once it is not certain any
// more that the policies in force are the upstream's, until they are known again; and a watch that is silent is noticed. Once maxStaleness has
// passed since the watches broke, not one write is accepted. Before, one may be although another was refused: what was known when they broke
// may have been compiled since then.
func TestWritesAreRefusedWhenPoliciesCannotBeWatched(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	succeeds(t, admissionRights())
	gate := must[*WatchGate](t)(shared.NewWatchGate(bed.Plain.Endpoint, must[User](t)(shared.NewUser(admissionUser))))
	const most = 6 * time.Second
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", Fidelity: "completed", MaxStaleness: most.String()})
	succeeds(t, gateway.Start())
	one := &racer{name: "gateway", at: gateway.Endpoint, upstream: bed.Plain.Endpoint, transport: shared.Transport(shared.admin, false)}
	create := func(name, denied string) { one.createStalePolicy(ctx, t, name, denied) }
	create("stale-known", "known")
	_, _, _ = staleWriter{one, "known"}.until(ctx, t, http.StatusUnprocessableEntity)

	gate.Set(brokenWatches)
	broken := time.Now()
	create("stale-broken", "broken")
	writer := staleWriter{one, "broken"}
	others, took, accepted := writer.until(ctx, t, http.StatusServiceUnavailable)
	for time.Since(broken) < most {
		if code := writer.write(ctx, t); code == http.StatusCreated {
			accepted = time.Since(broken)
		}
	}
	fmt.Printf("tests/cluster: STALE with broken watches %v, refused after %.1f s\n", others, took.Seconds())
	measured(t, "broken watches of policies: the last write is accepted", accepted.Seconds(), "s")
	for range 50 {
		if code := writer.write(ctx, t); code != http.StatusServiceUnavailable {
			t.Errorf("after maxStaleness, a write is answered %d", code)
		}
	}
	gate.Set(noFault)
	others, took, _ = writer.until(ctx, t, http.StatusUnprocessableEntity)
	if others[http.StatusCreated] > 0 {
		t.Errorf("before the new policy is in force, writes are answered %v", others)
	}
	measured(t, "watches of policies are repaired: until writes are judged by the new policy", took.Seconds(), "s")

	gate.Set(silentWatches)
	create("stale-silent", "silent")
	writer = staleWriter{one, "silent"}
	others, took, accepted = writer.until(ctx, t, http.StatusUnprocessableEntity)
	fmt.Printf("tests/cluster: STALE with silent watches %v, judged by the new policy after %.1f s\n", others, took.Seconds())
	measured(t, "silent watches of policies: the last write is accepted", accepted.Seconds(), "s")
	gate.Set(noFault)
	_, _, _ = writer.until(ctx, t, http.StatusUnprocessableEntity)
}

// createStalePolicy creates a policy and its binding on the upstream.
func (r *racer) createStalePolicy(ctx context.Context, t *testing.T, name, denied string) {
	t.Helper()
	policy, binding := stalePolicy(name, denied)
	for path, body := range map[string]string{policiesPath: policy, bindingsPath: binding} {
		r.expect(ctx, t, r.upstream, Request{Method: "POST", Path: path, Headers: map[string]string{contentHeader: jsonType}, Body: body}, http.StatusCreated)
	}
}

// A proxy swallows whatever arrives on the open watches of policies, and leaves them open. Without maxStaleness, the gateway notices it and
// lists the policies again: the first list after the change brings it into force. Watches that are merely quiet bring about a list for every
// three watches at most, where etcd does not tell the server how far it is, so that this sends no bookmarks.
func TestPoliciesAreListedWhenTheirWatchesAreSwallowed(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	succeeds(t, admissionRights())
	gate := must[*WatchGate](t)(shared.NewWatchGate(bed.Plain.Endpoint, must[User](t)(shared.NewUser(admissionUser))))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start())
	one := &racer{name: "gateway", at: gateway.Endpoint, upstream: bed.Plain.Endpoint, transport: shared.Transport(shared.admin, false)}
	create := func(name, denied string) { one.createStalePolicy(ctx, t, name, denied) }
	create("swallowed-known", "swallowed-known")
	_, _, _ = staleWriter{one, "swallowed-known"}.until(ctx, t, http.StatusUnprocessableEntity)

	before, watches := gate.Lists.Load(), gate.Watches.Load()
	succeeds(t, poll(5*time.Minute, time.Second, func() (bool, error) { return gate.Watches.Load() >= watches+3, nil }))
	if lists, watches := gate.Lists.Load()-before, gate.Watches.Load()-watches; 3*lists > watches {
		t.Errorf("quiet watches have led to %d lists beside %d watches", lists, watches)
	}

	gate.Set(swallowedWatches)
	before = gate.Lists.Load()
	create("swallowed-new", "swallowed-new")
	others, took, accepted := staleWriter{one, "swallowed-new"}.until(ctx, t, http.StatusUnprocessableEntity)
	fmt.Printf("tests/cluster: STALE with swallowed watches %v, judged by the new policy after %.1f s\n", others, took.Seconds())
	measured(t, "swallowed watches of policies: the last write is accepted", accepted.Seconds(), "s")
	if lists := gate.Lists.Load() - before; lists != 1 {
		t.Errorf("the new policy came into force after %d lists of policies, want 1", lists)
	}
	gate.Set(noFault)
}
