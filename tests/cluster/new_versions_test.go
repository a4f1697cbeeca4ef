package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	versionedGroup  = "versions.example.com"
)

// versionedKind is the definition of a custom kind with these versions, of which the first is stored.
func versionedKind(versions ...string) string {
	var all []string
	for i, version := range versions {
		all = append(all, fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, version, i == 0))
	}
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"parts.%[1]s"},`+
		`"spec":{"group":%[1]q,"scope":"Cluster","names":{"plural":"parts","singular":"part","kind":"Part","listKind":"PartList"},"versions":[%[2]s]}}`,
		versionedGroup, strings.Join(all, ","))
}

// A policy about one version of a resource holds for a version that is defined later, from its first request on.
func TestAPolicyHoldsForNewVersionsOfItsResource(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 20*time.Minute)
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	transport := shared.Transport(shared.admin, false)
	for _, one := range []*racer{
		{name: "gateway", at: gateway.Endpoint, upstream: bed.Plain.Endpoint, transport: transport},
		{name: "server", at: bed.Enforcing.Endpoint, upstream: bed.Enforcing.Endpoint, transport: transport},
	} {
		one.define(ctx, t)
		// It is not known how long a new version takes until it is served: nothing of it is stored before.
		known := []string{"v1"}
		for _, version := range []string{"v2", "v4"} {
			known = append(known, version)
			patch := Request{Method: "PATCH", Path: definitionsPath + "/parts." + versionedGroup, Headers: map[string]string{contentHeader: mergePatch}, Body: versionedKind(known...)}
			one.expect(ctx, t, one.upstream, patch, http.StatusOK)
			codes, took := one.untilDenied(ctx, t, version, "denied")
			fmt.Printf("tests/cluster: VERSIONS %s %s: %v within %.1f s\n", one.name, version, codes, took.Seconds())
			if codes[http.StatusCreated] > 0 && one.at != one.upstream {
				t.Errorf("%s: %d denied objects are stored by way of %s", one.name, codes[http.StatusCreated], version)
			}
			if unexpected := slices.DeleteFunc(slices.Collect(maps.Keys(codes)), func(code int) bool {
				return code == http.StatusCreated || code == http.StatusNotFound || code == http.StatusUnprocessableEntity
			}); len(unexpected) > 0 {
				t.Errorf("%s: writes of %s are answered %v", one.name, version, unexpected)
			}
			measured(t, one.name+": judging a new version of a resource begins", took.Seconds(), "s")
		}
		// The other way round, the versions that are known are evaluated by a policy about a new one, once it is known. With the other policy,
		// each write would be evaluated, and the gateway would look at the definition.
		one.expect(ctx, t, one.upstream, Request{Method: "DELETE", Path: bindingsPath + "/versions"}, http.StatusOK)
		patch := Request{Method: "PATCH", Path: definitionsPath + "/parts." + versionedGroup, Headers: map[string]string{contentHeader: mergePatch}, Body: versionedKind(append(known, "v6")...)}
		one.expect(ctx, t, one.upstream, patch, http.StatusOK)
		codes, took := one.untilDenied(ctx, t, "v1", "late")
		fmt.Printf("tests/cluster: VERSIONS %s, a policy about v6: %v within %.1f s\n", one.name, codes, took.Seconds())
		measured(t, one.name+": judging the known versions by a policy about a new one begins", took.Seconds(), "s")
	}
}

// define makes the kind and a policy about its first version on the upstream, and waits until that is in force.
func (r *racer) define(ctx context.Context, t *testing.T) {
	t.Helper()
	create := func(path, body string) {
		request := Request{Method: "POST", Path: path, Headers: map[string]string{contentHeader: jsonType}, Body: strings.ReplaceAll(body, "@all", "versions")}
		r.expect(ctx, t, r.upstream, request, http.StatusCreated)
	}
	create(definitionsPath, versionedKind("v1"))
	create(policiesPath, policy("versions", `spec.matchConstraints={"matchPolicy":"Equivalent","resourceRules":[{"apiGroups":["`+versionedGroup+`"],"apiVersions":["v1"],"operations":["*"],"resources":["parts"]}]}`,
		mustHold(`!has(object.denied)`)))
	create(bindingsPath, binding("versions"))
	create(policiesPath, policy("later", `spec.matchConstraints={"matchPolicy":"Equivalent","resourceRules":[{"apiGroups":["`+versionedGroup+`"],"apiVersions":["v6"],"operations":["*"],"resources":["parts"]}]}`,
		mustHold(`!has(object.late)`)))
	create(bindingsPath, binding("later"))
	r.untilDenied(ctx, t, "v1", "denied")
}

// untilDenied creates objects in this version that are denied for this member, one after the other, until several in a row are denied. It returns how often each code was
// answered, and after what time the first was denied.
func (r *racer) untilDenied(ctx context.Context, t *testing.T, version, member string) (map[int]int, time.Duration) {
	t.Helper()
	codes, began, first := map[int]int{}, time.Now(), time.Duration(0)
	for denied := 0; denied < 20; {
		name := fmt.Sprintf("part-%d", raceNumber.Add(1))
		body := fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Part","metadata":{"name":%q},%q:"yes"}`, versionedGroup, version, name, member)
		request := Request{Method: "POST", Path: "/apis/" + versionedGroup + "/" + version + "/parts", Headers: map[string]string{contentHeader: jsonType}, Body: body}
		code, _, err := r.send(ctx, r.at, request, "")
		succeeds(t, err)
		codes[code]++
		if code != http.StatusUnprocessableEntity {
			denied = 0
			continue
		}
		if denied++; denied == 1 {
			first = time.Since(began)
		}
	}
	return codes, first
}

// expect sends a request that must be answered with this code.
func (r *racer) expect(ctx context.Context, t *testing.T, to Endpoint, request Request, code int) {
	t.Helper()
	got, body, err := r.send(ctx, to, request, "")
	if err != nil || got != code {
		t.Fatalf("%s %s was answered %d %v: %v", request.Method, request.Path, got, body, err)
	}
}

// A flood of writes to versions that do not exist makes no more readings of discovery than one client.
func TestWritesToUnknownVersionsShareTheReadingOfDiscovery(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 10*time.Minute)
	succeeds(t, admissionRights())
	gate := must[*RaceGate](t)(shared.NewRaceGate(bed.Plain.Endpoint, must[User](t)(shared.NewUser(admissionUser))))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start())
	one := &racer{name: "gateway", at: gateway.Endpoint, upstream: bed.Plain.Endpoint, transport: shared.Transport(shared.admin, false)}
	create := func(path, body string) {
		request := Request{Method: "POST", Path: path, Headers: map[string]string{contentHeader: jsonType}, Body: strings.ReplaceAll(body, "@all", "unknown")}
		one.expect(ctx, t, one.upstream, request, http.StatusCreated)
	}
	create("/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"unknown-versions","labels":{"unknown":"yes"}}}`)
	create(policiesPath, policy("unknown", `spec.matchConstraints={"matchPolicy":"Equivalent","namespaceSelector":{"matchLabels":{"unknown":"yes"}},"resourceRules":[{"apiGroups":["judged.example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["limits"]}]}`,
		mustHold(`object.metadata.name != 'unknown'`)))
	create(bindingsPath, binding("unknown"))
	post := func(version string) int {
		body := `{"apiVersion":"judged.example.com/` + version + `","kind":"Limit","metadata":{"name":"unknown"}}`
		request := Request{Method: "POST", Path: "/apis/judged.example.com/" + version + "/namespaces/unknown-versions/limits", Query: "dryRun=All", Headers: map[string]string{contentHeader: jsonType}, Body: body}
		code, _, err := one.send(ctx, one.at, request, "")
		succeeds(t, err)
		return code
	}
	succeeds(t, poll(changeLimit, 20*time.Millisecond, func() (bool, error) { return post("v1") == http.StatusUnprocessableEntity, nil }))
	before := gate.Readings.Load()
	codes := make(chan int)
	const writes = 200
	for number := range writes {
		go func() { codes <- post(fmt.Sprintf("v%d", 100+number)) }()
	}
	answered := map[int]int{}
	for range writes {
		answered[<-codes]++
	}
	// One that began before they came, one that they wait for, and one for those that came during that.
	readings := gate.Readings.Load() - before
	fmt.Printf("tests/cluster: UNKNOWN %d writes are answered %v after %v readings\n", writes, answered, readings)
	if answered[http.StatusNotFound] != writes || readings > 3 {
		t.Errorf("%d writes are answered %v, after %v readings", writes, answered, readings)
	}
}
