package cluster

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
)

// overlaySessions begin so on the servers that these tests share with others.
const overlaySessions = "ovl-"

// Policies evaluate writes to what a gateway hosts before an upstream as they evaluate them on a server: whatever is hosted, and
// whatever of it they need is the upstream's.
func TestPoliciesAreEnforcedOnHostedObjectsBeforeAnUpstream(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server, ctx := bare(t), inTime(t, 20*time.Minute)
	const self = "overlay-policies"
	succeeds(t, Grant(ctx, server.Admin, self, ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole))
	params := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps", "resourcequotas"}, Verbs: []string{"get", "list", "watch"}}}
	succeeds(t, GrantRules(ctx, server.Admin, self, self+"-params", params))
	gateway := newFairgate(t, FairgateOptions{
		Mode: "impersonate", Source: "overlay", User: self, Upstream: server.URL, Eviction: "authoritative", Off: true,
		Admission: "enforce", AdmissionHosted: true, Fidelity: "completed",
	})
	succeeds(t, gateway.Start())
	var sessions []Session
	for _, session := range slices.Concat(EnforcementSessions(), OverlaySessions()) {
		if session = session.renamed(overlaySessions); strings.HasPrefix(session.Name, *onlySessions) {
			sessions = append(sessions, session)
		}
	}
	// A server of its own: a kube-apiserver stops to follow a built-in kind of params when the last policy goes that names it,
	// and never begins again. So what these sessions do would change what others find.
	real := must[*Target](t)(shared.StartReference("overlay-reference", *referenceProgram, *referenceGates, *conditions))
	target := admissionTarget(t, gateway.Endpoint)
	real.As = requesters()
	// Both write conditions into FlowSchemas.
	real.Conditions, target.Conditions, target.Writes = *conditions, *conditions, *conditions
	if *conditions {
		real.Writes = must[bool](t)(real.WritesConditions(ctx))
	}
	want, err := playAll(ctx, real, sessions)
	if err != nil {
		t.Fatal(err)
	}
	got, err := playAll(ctx, target, sessions)
	if err != nil {
		t.Fatal(err)
	}
	compared, refused := 0, 0
	var found []Difference
	for number := range sessions {
		compared += len(want[number])
		refused += refusedBy(want[number])
		found = append(found, Compare(want[number], got[number])...)
	}
	known := must[[]KnownDifference](t)(KnownDifferences(*moreDifferences))
	unknown, reasons, _, err := SortOut(found, append(known, statusesOfPolicies))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("policies on hosted objects before an upstream: %d requests in %d sessions, %d refused by policies; %d differences, %d of them unknown\n",
		compared, len(sessions), refused, len(found), len(unknown))
	if *onlySessions == "" && refused < 100 {
		t.Errorf("only %d requests were refused by policies", refused)
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%d known differences: %s", reasons[reason], reason)
	}
	for _, difference := range unknown {
		t.Error(difference)
	}
}

// statusesOfPolicies are written between two requests of a session, or not yet.
var statusesOfPolicies = KnownDifference{
	Request: `(PUT|PATCH) ` + regexp.QuoteMeta(policiesPath) + `/.*`,
	Field:   "/body/status/(observedGeneration|typeChecking)",
	Reason:  "fairgate checks the types of policies; for a real server a controller does that, which does not run here",
}
