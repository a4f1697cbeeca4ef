package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
)

const (
	ownPath    = "/debug/api_priority_and_fairness/dump_queues" // of the paths that fairgate answers itself
	setsInUse  = "fairgate_policy_generation"                   // the metric of the sets of objects that came into force
	consumer   = "api-priority-and-fairness-config-consumer-v1" // the apiserver's, that writes conditions
	stillKnown = "the last good policy stays in force"

	lostPolicies = " for flow control; trying again" // in the log
)

// A fairgate with mode: sidecar hosts no objects. It applies those of the real server as its watches report them, with
// only the rights of the shipped role, and writes nothing there.
func TestFairgateGoesByThePolicyObjectsOfTheApiserver(t *testing.T) {
	aboutFairgate(t)
	ctx := inTime(t, 20*time.Minute)
	for number, mode := range Modes {
		t.Run(mode, func(t *testing.T) {
			self := Audited[number]
			roles := []ShippedRole{SidecarRole}
			if mode == "impersonate" {
				roles = append(roles, ImpersonatorRole)
			}
			succeeds(t, Grant(ctx, shared.Admin, self, roles...))
			gateway := newFairgate(t, FairgateOptions{Mode: mode, Source: "sidecar", User: self})
			succeeds(t, gateway.Start())
			inSync(t, gateway)
			subject := must[User](t)(shared.NewUser("subject-of-" + strings.ToLower(mode)))
			prefix := "sidecar-" + strings.ToLower(mode)
			clients := map[string]flowcontrolclient.FlowcontrolV1Interface{
				"directly": shared.Admin.FlowcontrolV1(), "through fairgate": clientOf(t, gateway),
			}

			t.Run("by its watches alone", func(t *testing.T) {
				listed := listsOf(t, self)
				for _, way := range slices.Sorted(maps.Keys(clients)) {
					changesTakeEffect(t, gateway, subject, prefix, clients[way], mode+", "+way)
				}
				if again := listsOf(t, self) - listed; again != 0 {
					t.Errorf("it listed objects %d times again for their changes", again)
				}
			})
			t.Run("which it passes on requests for", func(t *testing.T) {
				forwards(t, gateway, prefix, clients["directly"], clients["through fairgate"])
			})
			t.Run("and to which it writes nothing", func(t *testing.T) {
				dangling := makeSchema(t, clients["through fairgate"], schemaFor(subject, prefix+"-dangling", "absent", 100))
				untilDangling(t, clients["directly"], dangling.Name, flowcontrolv1.ConditionTrue)
				// Once it applies a later set it has processed this one, and would have written by then.
				later := makeSchema(t, clients["directly"], schemaFor(subject, prefix+"-later", "workload-low", 200))
				newDecider(t, gateway, subject).until(later.UID, "")
				onlyTheApiserverWrites(t, clients["directly"])
				onlyReads(t, self)
			})
		})
	}
}

// changesTakeEffect makes, changes and deletes levels and a schema by a client. Each change comes into force as one set, on
// all connections: no request is classified by the former objects after the gateway has reported the new ones. How long that
// takes is measured from the response to the change.
func changesTakeEffect(t *testing.T, gateway *Fairgate, subject User, prefix string, client flowcontrolclient.FlowcontrolV1Interface, way string) {
	t.Helper()
	const rounds, connections, changes = 3, 8, 7
	ctx := inTime(t, 20*time.Minute)
	// Data cores take connections in turn.
	deciders := make([]decider, connections)
	for number := range deciders {
		deciders[number] = newDecider(t, gateway, subject)
	}
	before, _ := deciders[0].decide()
	sets := func() float64 { t.Helper(); return must[float64](t)(gateway.Metric(ctx, setsInUse)) }
	begun := settled(sets)
	known := begun
	var delays []time.Duration
	// One change at a time, so that the next set that is reported has it.
	inSet := func() {
		t.Helper()
		delays = append(delays, untilAbove(t, gateway, setsInUse, known))
		known = sets()
	}
	asked, stale := 0, 0
	// changed expects all connections to classify by the objects once the change is reported.
	changed := func(schema, level types.UID) {
		t.Helper()
		inSet()
		for _, decider := range deciders {
			schemaUID, levelUID := decider.decide()
			asked++
			if schemaUID != string(schema) || level != "" && levelUID != string(level) {
				stale++
			}
		}
	}
	for range rounds {
		first := makeLevel(t, client, prefix+"-first")
		inSet()
		second := makeLevel(t, client, prefix+"-second")
		inSet()
		schema := makeSchema(t, client, schemaFor(subject, prefix, first.Name, 200))
		changed(schema.UID, first.UID)
		// This is no change of the policy, and makes no set, in the time in which it would make one.
		must[*flowcontrolv1.FlowSchema](t)(client.FlowSchemas().Patch(ctx, schema.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"note":"no change"}}}`), metav1.PatchOptions{}))
		settled(sets)

		must[*flowcontrolv1.FlowSchema](t)(client.FlowSchemas().Patch(ctx, schema.Name, types.MergePatchType,
			[]byte(`{"spec":{"priorityLevelConfiguration":{"name":"`+second.Name+`"}}}`), metav1.PatchOptions{}))
		changed(schema.UID, second.UID)
		// The same holds for requests that the apiserver serves, which adds headers of its own.
		passed := ask(t, gateway, subject, http.MethodGet, "/version", "")
		if got := passed.Header.Values(flowSchemaHeader); !slices.Equal(got, []string{string(schema.UID)}) {
			t.Errorf("a request that is passed on bears the schemas %q, want %q", got, schema.UID)
		}

		succeeds(t, client.FlowSchemas().Delete(ctx, schema.Name, metav1.DeleteOptions{}))
		changed(types.UID(before), "")
		for _, level := range []string{first.Name, second.Name} {
			succeeds(t, client.PriorityLevelConfigurations().Delete(ctx, level, metav1.DeleteOptions{}))
			inSet()
		}
	}
	if stale != 0 {
		t.Errorf("%s: %d of %d requests were classified by former objects after new ones were reported", way, stale, asked)
	}
	if applied := known - begun; applied != rounds*changes {
		t.Errorf("%s: %v sets of objects came into force by %d changes", way, applied, rounds*changes)
	}
	measuredTimes(t, "a change of policy objects in force, "+way, delays)
}

// settled returns a count once it has been the same many times: a set is in force a moment before it is counted.
func settled(count func() float64) float64 {
	last := count()
	for same := 0; same < 50; same++ {
		if now := count(); now != last {
			last, same = now, 0
		}
	}
	return last
}

// listsOf is how often one of the [Audited] users has listed policy objects in its own name.
func listsOf(t *testing.T, self string) int {
	t.Helper()
	lists := 0
	for _, audit := range must[[]Audit](t)(shared.AuditsOf(self)) {
		if audit.Verb == "list" && audit.Object != nil && audit.Object.Group == groupName {
			lists++
		}
	}
	if lists < 2 {
		t.Errorf("%s has listed policy objects %d times; it must have listed both kinds", self, lists)
	}
	return lists
}

// forwards expects the apiserver's own responses about the objects.
func forwards(t *testing.T, gateway *Fairgate, prefix string, directly, through flowcontrolclient.FlowcontrolV1Interface) {
	t.Helper()
	ctx := inTime(t, 20*time.Minute)
	created := makeLevel(t, through, prefix+"-passed")
	found, err := directly.PriorityLevelConfigurations().Get(ctx, created.Name, metav1.GetOptions{})
	if err != nil || found.UID != created.UID || found.ResourceVersion != created.ResourceVersion {
		t.Errorf("made through fairgate: %+v; there is %+v, %v", created, found, err)
	}
	for _, target := range []string{
		groupPath, groupPath + "/v1", "/apis", "/openapi/v3", "/openapi/v3" + groupPath + "/v1", groupPath + "/v1beta3/flowschemas",
		groupPath + "/v1/prioritylevelconfigurations/" + created.Name, groupPath + "/v1/flowschemas/exempt", groupPath + "/v1/flowschemas?limit=3",
	} {
		var got, want string
		// A condition may be written in between.
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			got, want = responseTo(t, gateway.Endpoint, shared.admin, target), responseTo(t, shared.Direct, shared.admin, target)
			return got == want, nil
		})
		if err != nil {
			t.Errorf("%s: through fairgate\n%.2000s\nitself\n%.2000s", target, got, want)
		}
	}
	events := must[watch.Interface](t)(through.PriorityLevelConfigurations().Watch(ctx, metav1.ListOptions{ResourceVersion: found.ResourceVersion}))
	defer events.Stop()
	succeeds(t, directly.PriorityLevelConfigurations().Delete(ctx, created.Name, metav1.DeleteOptions{}))
	awaitEvent(t, events, watch.Deleted, func(object metav1.Object) bool { return object.GetUID() == created.UID }, watch.Added, watch.Modified)
	if _, err := through.PriorityLevelConfigurations().Get(ctx, created.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted directly, through fairgate: %v", err)
	}
}

// onlyTheApiserverWrites expects no status but the apiserver's, and nothing of fairgate in any object.
func onlyTheApiserverWrites(t *testing.T, client flowcontrolclient.FlowcontrolV1Interface) {
	t.Helper()
	ctx := inTime(t, 20*time.Minute)
	var objects []metav1.Object
	for _, schema := range must[*flowcontrolv1.FlowSchemaList](t)(client.FlowSchemas().List(ctx, metav1.ListOptions{})).Items {
		objects = append(objects, &schema)
	}
	for _, level := range must[*flowcontrolv1.PriorityLevelConfigurationList](t)(client.PriorityLevelConfigurations().List(ctx, metav1.ListOptions{})).Items {
		objects = append(objects, &level)
	}
	statuses := 0
	for _, object := range objects {
		for _, entry := range object.GetManagedFields() {
			if entry.Subresource == "status" {
				statuses++
			}
			if strings.Contains(entry.Manager, "fairgate") || entry.Subresource == "status" && entry.Manager != consumer {
				t.Errorf("%s has fields of %s %s", object.GetName(), entry.Manager, entry.Subresource)
			}
		}
	}
	if statuses == 0 {
		t.Error("nobody has written a status")
	}
}

// onlyReads expects a fairgate to have sent only the necessary reads in its own name.
func onlyReads(t *testing.T, self string) {
	t.Helper()
	const of = ".flowcontrol.apiserver.k8s.io "
	needed := []string{"list flowschemas" + of + "200", "list prioritylevelconfigurations" + of + "200",
		"watch flowschemas" + of + "200", "watch prioritylevelconfigurations" + of + "200"}
	known := append([]string{"get " + groupPath + " 200", "get /metrics 200"}, needed...)
	seen := map[string]int{}
	for _, audit := range must[[]Audit](t)(shared.AuditsOf(self)) {
		path, _, _ := strings.Cut(audit.URI, "?")
		if audit.Object != nil {
			path = audit.Object.Resource + "." + audit.Object.Group
		}
		seen[fmt.Sprintf("%s %s %d", audit.Verb, path, audit.Status.Code)]++
	}
	t.Logf("%s asks: %v", self, seen)
	for what := range seen {
		if !slices.Contains(known, what) {
			t.Errorf("it asks for %s", what)
		}
	}
	for _, what := range needed {
		if seen[what] == 0 {
			t.Errorf("it never asks for %s: %v", what, seen)
		}
	}
}

// While its apiserver is lost a fairgate applies the last objects it has read, however old, and reports that. When
// the apiserver is back, missed changes are applied.
func TestFairgateGoesByTheLastGoodPolicyWithoutItsApiserver(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	for _, loss := range []struct {
		name, why string
		lose      func(t *testing.T, valve *Valve, self string)
		find      func(t *testing.T, valve *Valve, self string)
		forwards  int // how a request is answered meanwhile
	}{
		{
			"which cannot be reached", "",
			func(_ *testing.T, valve *Valve, _ string) { valve.Shut() },
			func(_ *testing.T, valve *Valve, _ string) { valve.Open() },
			http.StatusServiceUnavailable,
		},
		{
			"which hangs", "",
			func(_ *testing.T, valve *Valve, _ string) { valve.Hold() },
			func(_ *testing.T, valve *Valve, _ string) { valve.Open() },
			0,
		},
		{
			"which takes back its rights", `the upstream answered 403: .* is forbidden: User "sidecar-last-.*" cannot list resource ".*" in API group "flowcontrol.apiserver.k8s.io"`,
			func(t *testing.T, valve *Valve, self string) {
				succeeds(t, Revoke(inTime(t, time.Minute), shared.Admin, self, SidecarRole))
				valve.Shut() // a watch that is open stays so
				valve.Open()
			},
			func(t *testing.T, _ *Valve, self string) {
				succeeds(t, Grant(inTime(t, time.Minute), shared.Admin, self, SidecarRole))
			},
			http.StatusOK,
		},
	} {
		t.Run(loss.name, func(t *testing.T) {
			t.Parallel()
			name := "sidecar-last-" + strings.ReplaceAll(loss.name, " ", "-")
			self, ctx := name, inTime(t, 20*time.Minute)
			succeeds(t, Grant(ctx, shared.Admin, self, SidecarRole))
			valve := valveToTheApiserver(t)
			gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "sidecar", User: self, Upstream: "https://" + valve.Address})
			succeeds(t, gateway.Start())
			inSync(t, gateway)
			subject := must[User](t)(shared.NewUser("subject-of-" + name))
			decider := newDecider(t, gateway, subject)
			client := shared.Admin.FlowcontrolV1()
			level := makeLevel(t, client, name+"-before")
			schema := makeSchema(t, client, schemaFor(subject, level.Name, level.Name, 200))
			decider.until(schema.UID, level.UID)

			loss.lose(t, valve, self)
			reportsLoss(t, gateway, `out of sync for \d+ s: .*`+loss.why+`.*; `+stillKnown)
			after := makeLevel(t, client, name+"-after")
			meanwhile := makeSchema(t, client, schemaFor(subject, after.Name, after.Name, 100))
			succeeds(t, client.FlowSchemas().Delete(ctx, schema.Name, metav1.DeleteOptions{}))
			succeeds(t, client.PriorityLevelConfigurations().Delete(ctx, level.Name, metav1.DeleteOptions{}))
			if schemaUID, levelUID := decider.decide(); schemaUID != string(schema.UID) || levelUID != string(level.UID) {
				t.Errorf("the last good policy has %q and %q, requests are classified by %q and %q", schema.UID, level.UID, schemaUID, levelUID)
			}
			dumpHas(t, gateway, level.Name, true)
			if loss.forwards != 0 {
				passed := ask(t, gateway, subject, http.MethodGet, "/version", "")
				if passed.StatusCode != loss.forwards || passed.Header.Get(flowSchemaHeader) != string(schema.UID) {
					t.Errorf("a request is answered %s with %v, want %d", passed.Status, passed.Header, loss.forwards)
				}
			}

			loss.find(t, valve, self)
			back := decider.until(meanwhile.UID, after.UID)
			measured(t, "in step again with an apiserver "+loss.name, back.Seconds(), "s")
			inSync(t, gateway)
			// Of the kind whose watch failed first: the other one is then closed, too.
			logs(t, gateway, "watching (flowschemas|prioritylevelconfigurations) again")
			// It is gone with its last request.
			dumpHas(t, gateway, level.Name, false)
			dumpHas(t, gateway, after.Name, true)
		})
	}
}

// A fairgate that has never reached the objects of its apiserver applies the built-in ones and reports why. It
// takes the objects once it can.
func TestFairgateStartsWithoutTheObjectsOfItsApiserver(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	for _, lack := range []struct {
		name, why string
		reachable bool
		rights    []ShippedRole // those it has at first, of what it needs
	}{
		{"because it is not there", ".*", false, []ShippedRole{SidecarRole}},
		{"because it may not read them", `the upstream answered 403: (flowschemas|prioritylevelconfigurations)\.flowcontrol\.apiserver\.k8s\.io is forbidden: ` +
			`User "sidecar-first-.*" cannot list resource "(flowschemas|prioritylevelconfigurations)" in API group "flowcontrol\.apiserver\.k8s\.io" at the cluster scope`, true, nil},
	} {
		t.Run(lack.name, func(t *testing.T) {
			t.Parallel()
			self, ctx := "sidecar-first-"+strings.ReplaceAll(lack.name, " ", "-"), inTime(t, 20*time.Minute)
			succeeds(t, Grant(ctx, shared.Admin, self, lack.rights...))
			valve := valveToTheApiserver(t)
			if !lack.reachable {
				valve.Shut()
			}
			gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "sidecar", User: self, Upstream: "https://" + valve.Address})
			succeeds(t, gateway.Start())
			reportsLoss(t, gateway, `not reached for \d+ s: `+lack.why+`; the built-in objects are in force`)
			for _, level := range []string{"exempt", "catch-all", "global-default", "workload-low"} {
				dumpHas(t, gateway, level, true)
			}
			decider := newDecider(t, gateway, must[User](t)(shared.NewUser("subject-of-"+self)))
			theirs := must[*flowcontrolv1.FlowSchema](t)(shared.Admin.FlowcontrolV1().FlowSchemas().Get(ctx, "global-default", metav1.GetOptions{}))
			if builtIn, _ := decider.decide(); builtIn == "" || builtIn == string(theirs.UID) {
				t.Errorf("classified by %q, and the apiserver has %q", builtIn, theirs.UID)
			}

			if !lack.reachable {
				valve.Open()
			} else {
				succeeds(t, Grant(ctx, shared.Admin, self, SidecarRole))
			}
			measured(t, "in step with an apiserver that was lacking "+lack.name, decider.until(theirs.UID, "").Seconds(), "s")
			inSync(t, gateway)
		})
	}
}

// A fairgate whose apiserver has no such objects always applies the built-in ones.
func TestFairgateGoesByTheBuiltInObjectsWhereTheApiserverHasNone(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := bare(t)
	self := "sidecar-of-bare"
	succeeds(t, Grant(inTime(t, time.Minute), server.Admin, self, SidecarRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "sidecar", User: self, Upstream: server.URL})
	succeeds(t, gateway.Start())
	reportsLoss(t, gateway, `not reached for \d+ s: the upstream answered 404: .*; the built-in objects are in force`)
	response := ask(t, gateway, must[User](t)(shared.NewUser("subject-of-"+self)), http.MethodGet, "/version", "")
	if response.StatusCode != http.StatusOK || response.Header.Get(flowSchemaHeader) == "" {
		t.Errorf("a request is answered %s with %v", response.Status, response.Header)
	}
}

// The apiserver ends every watch after a while. A fairgate continues from there: it neither falls out of sync nor sends
// for everything again.
func TestFairgateStaysInStepWhileItsWatchesAreRenewed(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	self, ctx := Audited[2], inTime(t, 10*time.Minute)
	succeeds(t, Grant(ctx, shared.Admin, self, SidecarRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "requestHeader", Source: "sidecar", User: self})
	succeeds(t, gateway.Start())
	inSync(t, gateway)
	began := time.Now()
	asked := func() map[string]int {
		t.Helper()
		times := map[string]int{}
		for _, audit := range must[[]Audit](t)(shared.AuditsOf(self)) {
			if audit.Object != nil && audit.Stage == "ResponseComplete" {
				times[audit.Verb+" "+audit.Object.Resource]++
			}
		}
		return times
	}
	var oldest float64
	err := poll(4*time.Minute, 100*time.Millisecond, func() (bool, error) {
		age, err := gateway.Metric(ctx, "fairgate_source_age_seconds")
		oldest = max(oldest, age)
		times := asked()
		return times["watch flowschemas"] > 0 && times["watch prioritylevelconfigurations"] > 0, err
	})
	if err != nil {
		t.Fatalf("the watches do not end: %v, %v", asked(), err)
	}
	inSync(t, gateway)
	t.Logf("watches ended after %d s; asked for, to the end: %v", int(time.Since(began).Seconds()), asked())
	measured(t, "out of step while watches are renewed", oldest, "s")
	if strings.Contains(gateway.Log(10_000), lostPolicies) {
		t.Error("it lost its policy objects while the watches were renewed")
	}
	subject, client := must[User](t)(shared.NewUser("subject-of-"+self)), shared.Admin.FlowcontrolV1()
	schema := makeSchema(t, client, schemaFor(subject, self+"-after", "workload-low", 200))
	newDecider(t, gateway, subject).until(schema.UID, "")
	for _, what := range []string{"list flowschemas", "list prioritylevelconfigurations"} {
		if times := asked()[what]; times != 1 {
			t.Errorf("%s: %d times", what, times)
		}
	}
}

// aboutFairgate skips a test without a cluster or without fairgate.
func aboutFairgate(t *testing.T) {
	t.Helper()
	if shared == nil || *direct {
		t.Skip("this is about fairgate's own processes")
	}
}

// valveToTheApiserver is a valve for this test alone.
func valveToTheApiserver(t *testing.T) *Valve {
	t.Helper()
	valve := must[*Valve](t)(NewValve(strings.TrimPrefix(shared.Direct.URL, "https://")))
	t.Cleanup(valve.Close)
	return valve
}

// A decider finds out how a fairgate classifies a user's requests, on one connection.
type decider struct {
	t         *testing.T
	gateway   *Fairgate
	user      User
	transport http.RoundTripper
}

func newDecider(t *testing.T, gateway *Fairgate, user User) decider {
	transport := shared.Transport(user, true)
	t.Cleanup(transport.CloseIdleConnections)
	return decider{t, gateway, user, transport}
}

// decide gives the UIDs of the schema and the level. The path is one that fairgate never passes on, so they are
// not the apiserver's, and the apiserver need not be there.
func (d decider) decide() (schema, level string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	response := must[*http.Response](d.t)(shared.Do(ctx, d.transport, d.gateway.Endpoint, d.user, http.MethodGet, ownPath, nil, ""))
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusForbidden || response.Header.Get("X-Fairgate-Reason") == "" {
		d.t.Fatalf("%s is answered %s with %v, which is not fairgate's answer to an ordinary user", ownPath, response.Status, response.Header)
	}
	return response.Header.Get(flowSchemaHeader), response.Header.Get(priorityLevelHeader)
}

// until waits until requests are classified by a schema and, unless it is "", a level. It returns how long that took.
func (d decider) until(schema, level types.UID) time.Duration {
	d.t.Helper()
	began := time.Now()
	var schemaUID, levelUID string
	err := poll(changeLimit, 5*time.Millisecond, func() (bool, error) {
		schemaUID, levelUID = d.decide()
		return schemaUID == string(schema) && (level == "" || levelUID == string(level)), nil
	})
	if err != nil {
		d.t.Fatalf("after a minute requests are classified by %q and %q, want %q and %q", schemaUID, levelUID, schema, level)
	}
	return time.Since(began)
}

// schemaFor is a schema for all requests of a user that are for no resource.
func schemaFor(user User, name, level string, precedence int32) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{
		TypeMeta:   metav1.TypeMeta{APIVersion: flowcontrolv1.SchemeGroupVersion.String(), Kind: "FlowSchema"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         precedence,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: user.Name}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			}},
		},
	}
}

// makeSchema makes a schema that is deleted with the test.
func makeSchema(t *testing.T, client flowcontrolclient.FlowcontrolV1Interface, schema *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchema {
	t.Helper()
	created := must[*flowcontrolv1.FlowSchema](t)(client.FlowSchemas().Create(inTime(t, time.Minute), schema, metav1.CreateOptions{}))
	t.Cleanup(func() {
		gone(t, client.FlowSchemas().Delete(inTime(t, time.Minute), schema.Name, metav1.DeleteOptions{}))
	})
	return created
}

// makeLevel makes a level that is deleted with the test.
func makeLevel(t *testing.T, client flowcontrolclient.FlowcontrolV1Interface, name string) *flowcontrolv1.PriorityLevelConfiguration {
	t.Helper()
	created := must[*flowcontrolv1.PriorityLevelConfiguration](t)(client.PriorityLevelConfigurations().Create(inTime(t, time.Minute), rejecting(name, 1), metav1.CreateOptions{}))
	t.Cleanup(func() {
		gone(t, client.PriorityLevelConfigurations().Delete(inTime(t, time.Minute), name, metav1.DeleteOptions{}))
	})
	return created
}

// gone takes that an object was deleted by the test itself.
func gone(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// untilDangling waits until a schema has the condition.
func untilDangling(t *testing.T, client flowcontrolclient.FlowcontrolV1Interface, name string, want flowcontrolv1.ConditionStatus) {
	t.Helper()
	var conditions []flowcontrolv1.FlowSchemaCondition
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		schema, err := client.FlowSchemas().Get(inTime(t, time.Minute), name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		conditions = schema.Status.Conditions
		return slices.ContainsFunc(conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
			return c.Type == flowcontrolv1.FlowSchemaConditionDangling && c.Status == want
		}), nil
	})
	if err != nil {
		t.Fatalf("%s has the conditions %+v, want Dangling=%s: %v", name, conditions, want, err)
	}
}

// inSync waits until a fairgate reports that it has the objects of its upstream.
func inSync(t *testing.T, gateway *Fairgate) {
	t.Helper()
	untilMetric(t, gateway, "fairgate_source_age_seconds", 0)
	code, text, err := gateway.Ask(inTime(t, time.Minute), "/readyz?verbose")
	if err != nil || code != http.StatusOK || !strings.Contains(text, "[+]source ok\n") {
		t.Errorf("/readyz?verbose: %d %v\n%s", code, err, text)
	}
}

// reportsLoss waits until a fairgate reports that it has lost its upstream, and why: by its metric, its probe
// and its log. It is ready all the same.
func reportsLoss(t *testing.T, gateway *Fairgate, why string) {
	t.Helper()
	began := time.Now()
	line := regexp.MustCompile(`(?m)^\[!\]source: ` + why + `$`)
	var code int
	var text string
	// A watch may be silent for a minute.
	err := poll(3*time.Minute, 50*time.Millisecond, func() (bool, error) {
		var err error
		code, text, err = gateway.Ask(inTime(t, time.Minute), "/readyz?verbose")
		return line.MatchString(text), err
	})
	if err != nil || code != http.StatusOK {
		t.Fatalf("/readyz?verbose: %d %v\n%s\nwant %s", code, err, text, line)
	}
	t.Logf("reported after %d ms: %s", time.Since(began).Milliseconds(), line.FindString(text))
	if age, err := gateway.Metric(inTime(t, time.Minute), "fairgate_source_age_seconds"); err != nil || age < 1 {
		t.Errorf("the age is %v, %v", age, err)
	}
	// It is logged once finding it again has failed, too.
	logs(t, gateway, lostPolicies)
}

// logs waits until a fairgate has logged what the pattern matches.
func logs(t *testing.T, gateway *Fairgate, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) { return wanted.MatchString(gateway.Log(10_000)), nil })
	if err != nil {
		t.Errorf("it does not log %q", pattern)
	}
}

// dumpHas waits until the dump of a fairgate has a level, or not.
func dumpHas(t *testing.T, gateway *Fairgate, level string, want bool) {
	t.Helper()
	var text string
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		var err error
		_, text, err = gateway.Ask(inTime(t, time.Minute), "/debug/api_priority_and_fairness/dump_priority_levels")
		return strings.Contains("\n"+text, "\n"+level+",") == want, err
	})
	if err != nil {
		t.Errorf("%s is in the dump: want %v, %v\n%s", level, want, err, text)
	}
}

// responseTo is the response to a GET: status, content type and body.
func responseTo(t *testing.T, at Endpoint, user User, target string) string {
	t.Helper()
	transport := shared.Transport(user, true)
	defer transport.CloseIdleConnections()
	response := must[*http.Response](t)(shared.Do(inTime(t, time.Minute), transport, at, user, http.MethodGet, target, nil, ""))
	defer response.Body.Close()
	var text bytes.Buffer
	fmt.Fprintln(&text, response.StatusCode, response.Header.Get("Content-Type"), response.Header.Get("ETag"))
	text.Write(must[[]byte](t)(io.ReadAll(response.Body)))
	return text.String()
}
