package cluster

import (
	"strings"
	"testing"
	"time"
)

// precedenceDifferencesFile lists where a gateway that makes the objects itself answers otherwise than a server before policies are asked.
const precedenceDifferencesFile = "precedence_differences.json"

// A server refuses some requests before its policies deny them, and warns of fields beside a denial. A gateway with the default fidelity does the
// same without asking the upstream.
func TestRefusalsBeforePoliciesAreThoseOfAServer(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	bed := must[*AdmissionBed](t)(admissionBed())
	var sessions []Session
	for _, session := range PrecedenceSessions() {
		if strings.Contains(session.Name, *onlySessions) {
			sessions = append(sessions, session)
		}
	}
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	want, got, err := playBoth(inTime(t, 30*time.Minute), sessions, admissionTarget(t, bed.Enforcing.Endpoint), admissionTarget(t, gateway.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	found := compareAll(want, got)
	onlyKnownDiffer(t, precedenceDifferencesFile, sessions, want, found)
}
