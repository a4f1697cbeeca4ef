// Package boards tests the dashboards of config/grafana and the rules of config/prometheus: Prometheus scrapes gateways
// that serve requests, at first in health and then in an outage.
package boards

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// healthyFor is how many evaluations of the alerts, one in a second, have to pass without one that fires. They last longer
	// than most alerts wait; the gateways serve meanwhile and before.
	healthyFor = 10
	// firesWithin is how many evaluations it may take until the alerts of an outage fire. It takes about 25 where the machine
	// is not busy; it guards against those that never fire.
	firesWithin = 300
)

// quiet ends the title of an expression whose panel is empty while nothing goes wrong.
const quiet = " (quiet)"

// variables chooses values for the variables of the boards.
var variables = strings.NewReplacer(
	"$__rate_interval", "10s", "$cluster", "", "$fleet", ".*", "$job", "fairgate", "$instance", ".*", "$level", "busy")

// level returns a level with one share of the seats.
func level(name string, lends int, response object) object {
	return object{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
		"metadata": object{"name": name, "resourceVersion": "1"},
		"spec": object{"type": "Limited", "limited": object{
			"nominalConcurrencyShares": 30, "lendablePercent": lends, "borrowingLimitPercent": 0, "limitResponse": response}},
	}
}

func queues(count, hand int) object {
	return object{"type": "Queue", "queuing": object{"queues": count, "handSize": hand, "queueLengthLimit": 50}}
}

// schema returns a FlowSchema for a group, whose flows are its users.
func schema(name, level, group string) object {
	return object{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
		"metadata": object{"name": name, "resourceVersion": "1"},
		"spec": object{
			"matchingPrecedence": 100, "priorityLevelConfiguration": object{"name": level},
			"distinguisherMethod": object{"type": "ByUser"},
			"rules": []object{{
				"subjects": []object{{"kind": "Group", "group": object{"name": group}}},
				"resourceRules": []object{{"verbs": []string{"*"}, "apiGroups": []string{"*"}, "resources": []string{"*"},
					"clusterScope": true, "namespaces": []string{"*"}}},
			}},
		},
	}
}

// admission is a policy that allows all pods, and its binding.
const admission = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: any}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "true"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: any}
spec: {policyName: any, validationActions: [Deny]}
`

func encode(t *testing.T, objects ...object) string {
	var texts []string
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, ",")
}

// A world is gateways before one upstream, and a Prometheus that scrapes all.
type world struct {
	upstream *upstream
	// files has its policy in files, serves TLS, and has the semantics Improved.
	files *gateway
	// sidecar follows the upstream's policy. All flows share its two queues, and have the semantics Compatible, so that
	// who sends more gets more.
	sidecar *gateway
	// overlay hosts the policy objects, and asks the upstream who may read them.
	overlay *gateway
	// reviewing has the upstream review tokens.
	reviewing *gateway
	// panicking hosts the policy objects without an upstream.
	panicking  *gateway
	prometheus *prometheus
}

func newWorld(t *testing.T) *world {
	w := &world{}
	w.upstream = startUpstream(t, encode(t, schema("tenants", "busy", "tenants")), encode(t, level("busy", 0, queues(2, 2))))
	address := "http://" + w.upstream.address
	directory := t.TempDir()
	if err := os.Mkdir(filepath.Join(directory, "policies"), 0o700); err != nil {
		t.Fatal(err)
	}
	certify(t, directory, 90*24*time.Hour)
	for _, object := range []object{
		level("busy", 0, queues(16, 2)), schema("tenants", "busy", "tenants"),
		level("strict", 0, object{"type": "Reject"}), schema("impatient", "strict", "impatient"),
	} {
		name := object["metadata"].(map[string]any)["name"].(string)
		write(t, filepath.Join(directory, "policies"), name+".yaml", encode(t, object))
	}
	w.files = startGateway(t, directory, object{
		"mode": "files", "upstream": object{"url": address}, "dataCores": 1,
		"flowControl": object{"totalSeats": 40, "policies": object{"directory": "policies"}},
		"limits":      object{"watchesPerUser": 10, "watchesTotal": 10, "spoolPerAnswer": "64Ki"},
		"timeouts":    object{"request": "4s"},
	}, true)
	w.sidecar = startGateway(t, t.TempDir(), object{
		"mode": "sidecar", "upstream": object{"url": address}, "dataCores": 1,
		// The longest wait is a quarter of it.
		"timeouts":    object{"request": "12s"},
		"flowControl": object{"totalSeats": 10, "semantics": "Compatible"},
	}, false)
	hosting := t.TempDir()
	write(t, hosting, admissionFile, "")
	w.overlay = startGateway(t, hosting, object{
		"mode": "overlay", "upstream": object{"url": address}, "dataCores": 1, "store": object{"local": object{"path": "store"}},
		"admission": object{"mode": "audit", "policies": object{"files": []string{admissionFile}}},
	}, false)
	w.reviewing = startGateway(t, t.TempDir(), object{
		"mode": "files", "upstream": object{"url": address}, "dataCores": 1,
		"timeouts":       object{"request": "1s"},
		"authentication": object{"tokenFile": "tokens", "tokenReview": object{"enabled": true}},
	}, false)
	w.panicking = startPanicking(t)
	w.prometheus = startPrometheus(t, w.files.admin, w.sidecar.admin, w.overlay.admin, w.reviewing.admin, w.panicking.admin)
	return w
}

// calm sends what the gateways can bear.
func (w *world) calm(ctx context.Context) {
	const pods = "/api/v1/namespaces/a/pods"
	for _, gateway := range []*gateway{w.files, w.sidecar} {
		for _, token := range []string{"mouse", "elephant"} {
			gateway.load(ctx, 1, token, "GET", pods+"?delay=20ms&bytes=5000", 50*time.Millisecond)
			gateway.load(ctx, 1, token, "GET", pods+"/one?delay=5ms", 50*time.Millisecond)
			gateway.load(ctx, 1, token, "POST", pods+"?delay=10ms&code=201", 100*time.Millisecond)
		}
		gateway.load(ctx, 1, "mouse", "GET", "/api/v1/pods?watch=true", time.Second)
		gateway.load(ctx, 1, "node", "GET", "/api/v1/nodes/a", 200*time.Millisecond)
	}
	w.reviewing.load(ctx, 1, "mouse", "GET", pods, 100*time.Millisecond)
	// Its token is reviewed, and refused.
	w.reviewing.load(ctx, 1, "stranger", "GET", pods, 100*time.Millisecond)
	w.files.load(ctx, 1, "root", "POST", pods+"/one/eviction?code=429", 100*time.Millisecond)
}

// admissionFile has the admission policies of the overlay.
const admissionFile = "admission.yaml"

// storm causes everything that alerts are about, but for the loss of upstream and gateway.
func (w *world) storm(t *testing.T, ctx context.Context) {
	const pods = "/api/v1/namespaces/a/pods"
	w.files.load(ctx, 60, "elephant", "GET", pods+"?delay=900ms", 0)
	w.files.load(ctx, 1, "mouse", "GET", pods+"/one?delay=300ms", 0)
	w.files.load(ctx, 60, "node", "GET", "/api/v1/nodes/a?delay=2s", 0)
	w.files.load(ctx, 15, "root", "GET", pods+"?delay=1s", 0)
	w.files.load(ctx, 20, "impatient", "GET", pods+"?delay=3s", 20*time.Millisecond)
	w.files.load(ctx, 12, "mouse", "GET", "/api/v1/pods?watch=true", time.Second)
	w.files.load(ctx, 1, "root", "GET", pods+"/broken?code=500", 100*time.Millisecond)
	go w.files.babble(ctx)
	for number := range 4 {
		// One after another, so that rates over 10 s show what becomes of them all the time.
		time.AfterFunc(time.Duration(number)*2500*time.Millisecond, func() { w.files.stall(ctx, "mouse", pods+"?bytes=100000000") })
	}
	w.files.load(ctx, 1, "root", "GET", pods+"/broken?bytes=100000&break", 100*time.Millisecond)
	w.files.load(ctx, 1, "nobody", "GET", pods, 100*time.Millisecond)
	w.sidecar.load(ctx, 45, "elephant", "GET", pods+"/one?delay=600ms", 0)
	w.sidecar.load(ctx, 2, "mouse", "GET", pods+"/one?delay=200ms", 0)
	for _, query := range []string{"", "?watch=true&resourceVersion=0&timeoutSeconds=1"} {
		w.overlay.load(ctx, 1, "mouse", "GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"+query, 100*time.Millisecond)
	}
	w.panicking.load(ctx, 1, "root", "GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas?panic", time.Second)
	w.files.load(ctx, 1, "root", "POST", pods+"/one/eviction?code=500", 100*time.Millisecond)
	w.reviewing.load(ctx, 10, "mouse", "GET", pods+"?delay=1h", 0)
	w.upstream.refusesReviews.Store(true)
	stranded := startGateway(t, t.TempDir(), object{
		"mode": "overlay", "upstream": object{"url": "http://" + w.upstream.address}, "dataCores": 1,
		"store": object{"local": object{"path": filepath.Join(w.overlay.directory, "store")}},
	}, false)
	judging := t.TempDir()
	write(t, judging, admissionFile, admission)
	judge := startGateway(t, judging, object{
		"mode": "files", "upstream": object{"url": "http://" + w.upstream.address}, "dataCores": 1,
		"timeouts":  object{"request": "1s"},
		"admission": object{"mode": "enforce", "policies": object{"source": "files", "files": []string{admissionFile}}},
	}, false)
	judge.load(ctx, 1, "root", "POST", pods, 100*time.Millisecond)
	observing := t.TempDir()
	if err := os.Mkdir(filepath.Join(observing, "policies"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(observing, "policies"), "strict.yaml", `{"apiVersion": "v1", "kind": "List", "items": [`+
		encode(t, level("strict", 0, object{"type": "Reject"}), schema("impatient", "strict", "impatient"))+"]}")
	observer := startGateway(t, observing, object{
		"mode": "files", "upstream": object{"url": "http://" + w.upstream.address}, "dataCores": 1,
		"flowControl": object{"totalSeats": 40, "enforcement": "observe", "policies": object{"directory": "policies"}},
	}, false)
	// More at a time than the level has seats, and so seldom that no alert fires here.
	observer.load(ctx, 8, "impatient", "GET", pods+"?delay=200ms", 3*time.Second)
	// Nobody listens at the discard port.
	servers := startGateway(t, t.TempDir(), object{
		"mode": "files", "dataCores": 1,
		"upstream": object{"servers": []object{{"url": "http://" + w.upstream.address}, {"url": "http://127.0.0.1:9"}}},
	}, false)
	servers.load(ctx, 1, "mouse", "GET", pods, 100*time.Millisecond)
	host := w.hostAdmission(t, ctx)
	w.prometheus.scrape(t, append(w.prometheus.targets, stranded.admin, judge.admin, observer.admin, servers.admin, host.admin)...)
	w.files.reload(t, "kind: Nonsense")
	certify(t, w.files.directory, 3*24*time.Hour)
	write(t, filepath.Join(w.files.directory, "policies"), "broken.yaml", "kind: Nonsense")
	write(t, w.overlay.directory, admissionFile, "kind: Nonsense")
}

// startWithoutGrant starts a gateway of a fleet whose records it cannot reach. It has no seats for an hour, for which requests of an
// earlier run may execute.
func (w *world) startWithoutGrant(t *testing.T) *gateway {
	unreachable := startUpstream(t, "", "")
	unreachable.leases = newLeases()
	unreachable.cut.Store(true)
	return startGateway(t, t.TempDir(), object{
		"mode": "files", "dataCores": 1, "upstream": object{"url": "http://" + unreachable.address},
		"fleet": object{"engine": "kubernetes", "gateway": "gw-0", "reclaim": "strict", "requestLimit": "1h"},
	}, false)
}

// hostAdmission starts a gateway that hosts an admission policy, which denies flow schemas.
func (w *world) hostAdmission(t *testing.T, ctx context.Context) *gateway {
	host := startGateway(t, t.TempDir(), object{"mode": "standalone", "dataCores": 1}, false)
	const group = "/apis/admissionregistration.k8s.io/v1/"
	for target, hosted := range map[string]object{
		group + "validatingadmissionpolicies": {"kind": "ValidatingAdmissionPolicy", "spec": object{
			"matchConstraints": object{"resourceRules": []object{{"apiGroups": []string{"flowcontrol.apiserver.k8s.io"},
				"apiVersions": []string{"*"}, "operations": []string{"CREATE"}, "resources": []string{"flowschemas"}}}},
			"validations": []object{{"expression": "false"}}}},
		group + "validatingadmissionpolicybindings": {"kind": "ValidatingAdmissionPolicyBinding", "spec": object{
			"policyName": "none", "validationActions": []string{"Deny"}}},
	} {
		hosted["apiVersion"], hosted["metadata"] = "admissionregistration.k8s.io/v1", object{"name": "none"}
		if status := host.post(ctx, "root", target, encode(t, hosted)); status != http.StatusCreated {
			t.Fatalf("%s: %d", target, status)
		}
	}
	denied := encode(t, schema("denied", "catch-all", "nobody"))
	go func() {
		for ctx.Err() == nil {
			host.post(ctx, "root", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", denied)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	return host
}

// elsewhere are panels of a disruption controller and of evictions that wait. These need an API server with pods, so that they
// have no data here.
var elsewhere = []string{"Budgets are computed", "Evictions that wait", "Wait for a budget", "Budgets (fairgate)", "Syncs by outcome", "Age of the last sync"}

// causes says for each alert what in the test makes it fire.
var causes = map[string]string{
	"FairgateAbsent":                 "Prometheus has no targets any more",
	"FairgateDown":                   "a gateway is killed",
	"FairgateUpstreamDown":           "the upstream ends",
	"FairgateServerAway":             "one of two servers of a gateway does not listen",
	"FairgateNoSeats":                "none of two servers of a gateway listens; another one starts and cannot reach the records of its fleet",
	"FairgatePolicySourceStale":      "the upstream ends, from which a gateway reads its policy",
	"FairgateVitalLevelRefuses":      "60 clients update nodes, which takes 2 s each",
	"FairgateLevelSaturated":         "60 clients of one user list pods, which takes 0.9 s each",
	"FairgateWaitNearLimit":          "the same; requests wait up to the limit of 1 s",
	"FairgateFlowDominates":          "one user sends with 45 clients and another with 2, and both share the queues",
	"FairgateUnfairLevel":            "the same",
	"FairgateBystandersWait":         "the same",
	"FairgateExemptShare":            "15 clients of system:masters list pods, which takes 1 s each",
	"FairgateRetryAmplification":     "20 clients repeat requests at once that a level without queues refuses",
	"FairgatePolicyRefused":          "a broken file is put into the directory of policies",
	"FairgateAdmissionPoliciesStale": "a broken file takes the place of the admission policies",
	"FairgateCertificateExpires":     "the certificate is replaced by one for three days",
	"FairgateWatchesNearLimit":       "12 watches where 10 are allowed",
	"FairgateSlowReaders":            "4 clients read nothing of responses of 100 MB",
	"FairgateUpstreamTimeouts":       "10 clients of a gateway whose requests may take 1 s ask for what takes an hour",
	"FairgateTokenReviewsFail":       "the upstream refuses to review tokens, of which one is unknown to a gateway",
	"FairgateServerErrors":           "a gateway built for tests panics on request",
	"FairgateStoreDown":              "a gateway has the store of another one, which has locked it",
	"FairgateReloadRefused":          "the configuration is replaced by a broken one and reloaded",
	"FairgateAdmissionFails":         "pods are created, for which there is a policy, and the upstream has no discovery",
	"FairgateEvictionsFail":          "the upstream answers evictions with 500",
	"FairgatePanics":                 "a gateway built for tests panics on request",
}

func TestBoardsHaveDataAndEveryAlertFiresInAnOutageAlone(t *testing.T) {
	w := newWorld(t)
	start := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w.calm(ctx)
	empty := expressions(t)
	maps.DeleteFunc(empty, func(_, expr string) bool { return showsFleets(expr) })
	count := len(empty)
	// A level's mean, and rates over 10 s, need some scrapes.
	w.wait(t, firesWithin, func() bool {
		w.dropThoseWithData(t, empty)
		return onlyQuiet(empty)
	})
	report(t, "in health", empty, count)
	if !onlyQuiet(empty) {
		t.Error("panels without data in health")
	}
	healthy := w.prometheus.evaluations(t)
	w.wait(t, firesWithin, func() bool { return w.prometheus.evaluations(t) >= healthy+healthyFor })
	for _, fired := range w.prometheus.query(t, `max_over_time(ALERTS{alertstate="firing"}[1h])`) {
		t.Errorf("in health: %v", fired.Metric)
	}
	w.storm(t, ctx)
	for name, expr := range map[string]string{
		"failed handshakes": `apiserver_tls_handshake_errors_total > 0`,
		"stored objects":    `apiserver_storage_objects{resource="flowschemas.flowcontrol.apiserver.k8s.io"} > 5`,
		"initial events":    `apiserver_init_events_total{resource="flowschemas"} > 5`,
	} {
		empty["outage: "+name] = expr
		count++
	}
	expected := slices.DeleteFunc(alerts(t), isOfFleets)
	type moment struct {
		evaluations int
		after       time.Duration
	}
	fired := map[string]moment{}
	begun, first := time.Now(), w.prometheus.evaluations(t)
	follow := func(until ...string) func() bool {
		return func() bool {
			for name := range w.prometheus.firing(t) {
				if _, known := fired[name]; !known {
					fired[name] = moment{w.prometheus.evaluations(t) - first, time.Since(begun)}
				}
			}
			w.dropThoseWithData(t, empty)
			return !slices.ContainsFunc(until, func(name string) bool { return fired[name].after == 0 })
		}
	}
	loss := []string{"FairgateUpstreamDown", "FairgatePolicySourceStale", "FairgateDown"}
	others := slices.DeleteFunc(slices.Clone(expected), func(name string) bool {
		return slices.Contains(loss, name) || name == "FairgateAbsent" || name == "FairgateNoSeats"
	})
	w.wait(t, firesWithin, follow(others...))
	w.pasteRunbooks(t, others...)
	if directory := os.Getenv("FAIRGATE_PICTURES"); directory != "" {
		w.prometheus.draw(t, directory, "outage-", variables, start)
	}
	w.upstream.down()
	// The one that needs no upstream: what the loss of that does to the others is to be seen.
	w.panicking.kill()
	w.wait(t, firesWithin, follow(loss...))
	w.pasteRunbooks(t, loss...)
	// Not before, because the alerts about the upstream fire for it, too. Nobody listens at the ports discard and chargen.
	nowhere := startGateway(t, t.TempDir(), object{
		"mode": "files", "dataCores": 1,
		"upstream": object{"servers": []object{{"url": "http://127.0.0.1:9"}, {"url": "http://127.0.0.1:19"}}},
	}, false)
	w.prometheus.scrape(t, nowhere.admin)
	w.wait(t, firesWithin, follow("FairgateNoSeats"))
	w.pasteRunbooks(t, "FairgateNoSeats")
	starting := w.startWithoutGrant(t)
	w.prometheus.scrape(t, starting.admin)
	withoutGrant := fmt.Sprintf(`ALERTS{alertname="FairgateNoSeats", alertstate="firing", instance=%q}`, starting.admin)
	w.wait(t, firesWithin, func() bool { return len(w.prometheus.query(t, withoutGrant)) > 0 })
	if len(w.prometheus.query(t, withoutGrant)) == 0 {
		t.Error("FairgateNoSeats does not fire for a gateway to which its fleet gives no seat")
	}
	w.prometheus.scrape(t)
	w.wait(t, firesWithin, follow("FairgateAbsent"))
	w.pasteRunbooks(t, "FairgateAbsent")
	for _, name := range expected {
		if at, did := fired[name]; did {
			t.Logf("%-31s fired after %3d evaluations: %s", name, at.evaluations, causes[name])
			measured(t, name+" fired after", at.after.Seconds(), "s")
		} else {
			t.Errorf("%s did not fire", name)
		}
	}
	for _, title := range elsewhere {
		before := len(empty)
		maps.DeleteFunc(empty, func(name, _ string) bool {
			return strings.HasPrefix(name, "fairgate / Evictions and admission: "+title)
		})
		if len(empty) == before {
			t.Errorf("%q has data here, too", title)
		}
	}
	report(t, "in health and outage together", empty, count)
	if len(empty) > 0 {
		t.Error("expressions that never had data")
	}
}

// wait returns when done does, or after so many evaluations of the alerts: while the machine stands still there are none.
func (w *world) wait(t *testing.T, most int, done func() bool) {
	for first := w.prometheus.evaluations(t); !done() && w.prometheus.evaluations(t) < first+most; {
		time.Sleep(500 * time.Millisecond)
	}
}

func report(t *testing.T, when string, empty map[string]string, count int) {
	t.Logf("%s %d of %d expressions have data", when, count-len(empty), count)
	for _, title := range slices.Sorted(maps.Keys(empty)) {
		t.Logf("  none: %s: %s", title, empty[title])
	}
}

func onlyQuiet(empty map[string]string) bool {
	for title := range empty {
		if !strings.HasSuffix(title, quiet) {
			return false
		}
	}
	return true
}

func (w *world) dropThoseWithData(t *testing.T, empty map[string]string) {
	maps.DeleteFunc(empty, func(_, expr string) bool { return w.prometheus.hasData(t, expr) })
}

func expressions(t *testing.T) map[string]string { return expressionsOf(t, variables) }

// expressionsOf returns those of all panels and recording rules, by a title.
func expressionsOf(t *testing.T, variables *strings.Replacer) map[string]string {
	found := map[string]string{}
	for _, board := range boardFiles(t) {
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				title := fmt.Sprintf("%s: %s %s", board.Title, panel.Title, target.RefID)
				if panel.FieldConfig.Defaults.NoValue != absent {
					title += quiet
				}
				found[title] = variables.Replace(target.Expr)
			}
		}
	}
	for _, name := range match(t, "rules.yaml", `(?m)- record: (\S+)`) {
		found["rule "+name] = name + `{job="fairgate"}`
	}
	return found
}

func alerts(t *testing.T) []string { return match(t, "alerts.yaml", `(?m)- alert: (\S+)`) }

func match(t *testing.T, name, pattern string) []string {
	text, err := os.ReadFile(filepath.Join("../../config/prometheus", name))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
		found = append(found, match[1])
	}
	if len(found) == 0 {
		t.Fatalf("%s has nothing like %s", name, pattern)
	}
	return found
}

func TestEveryAlertHasAnOutageThatFiresIt(t *testing.T) {
	known := slices.Concat(slices.Collect(maps.Keys(causes)), slices.Collect(maps.Keys(fleetCauses)))
	slices.Sort(known)
	if expected := slices.Sorted(slices.Values(alerts(t))); !slices.Equal(known, expected) {
		t.Errorf("the alerts are %v, and there are causes of %v", expected, known)
	}
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	var pages []string
	paths, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if name := strings.TrimSuffix(filepath.Base(path), ".md"); name != "README" {
			pages = append(pages, name)
		}
	}
	names := slices.Sorted(slices.Values(alerts(t)))
	if !slices.Equal(names, pages) {
		t.Errorf("alerts and runbooks differ: %v, %v", names, pages)
	}
	if runbooks := match(t, "alerts.yaml", `runbook_url: '.*/docs/runbooks" }}/(\S+)\.md'`); !slices.Equal(runbooks, alerts(t)) {
		t.Errorf("the annotations name %v", runbooks)
	}
}
