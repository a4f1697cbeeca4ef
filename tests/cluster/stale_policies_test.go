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
// more that the policies in force are the upstream's, until they are known again; and a watch that is silent is noticed. Not one write is
// accepted after one was refused.
func TestWritesAreRefusedWhenPoliciesCannotBeWatched(t *testing.T) {
	aboutJudgingFairgate(t)
	t.Parallel()
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	succeeds(t, admissionRights())
	gate := must[*WatchGate](t)(shared.NewWatchGate(bed.Plain.Endpoint, must[User](t)(shared.NewUser(admissionUser))))
	const most = 6 * time.Second
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", Fidelity: "completed", MaxStaleness: most.String()})
	succeeds(t, gateway.Start())
	one := &racer{name: "gateway", at: gateway.Endpoint, upstream: bed.Plain.Endpoint, transport: shared.Transport(shared.admin, false)}
	create := func(name, denied string) {
		policy, binding := stalePolicy(name, denied)
		for path, body := range map[string]string{policiesPath: policy, bindingsPath: binding} {
			one.expect(ctx, t, one.upstream, Request{Method: "POST", Path: path, Headers: map[string]string{contentHeader: jsonType}, Body: body}, http.StatusCreated)
		}
	}
	create("stale-known", "known")
	_, _, _ = staleWriter{one, "known"}.until(ctx, t, http.StatusUnprocessableEntity)

	gate.Set(brokenWatches)
	create("stale-broken", "broken")
	writer := staleWriter{one, "broken"}
	others, took, accepted := writer.until(ctx, t, http.StatusServiceUnavailable)
	fmt.Printf("tests/cluster: STALE with broken watches %v, refused after %.1f s\n", others, took.Seconds())
	measured(t, "broken watches of policies: the last write is accepted", accepted.Seconds(), "s")
	for range 50 {
		if code := writer.write(ctx, t); code != http.StatusServiceUnavailable {
			t.Errorf("after writes were refused, one is answered %d", code)
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
