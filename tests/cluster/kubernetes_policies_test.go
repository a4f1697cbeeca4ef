package cluster

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	testserver "fairgate.dev/tests/cluster/standins"
)

var (
	ownPolicyTests  = flag.String("own-policy-tests", "", "which of Kubernetes' own tests of admission policies run in each way, as a regular expression; with -measure all of them")
	ownPolicyWays   = flag.String("own-policy-ways", "", "in which ways they run, as a regular expression of the whole name")
	ownPolicyOutput = flag.String("own-policy-output", "", "directory for what they print")
)

// A policyWay is a way to have policies enforced in the place of a server.
type policyWay struct {
	name     string
	source   string // fairgate's mode
	hosted   bool   // whether fairgate hosts the policies; else they are the server's own objects
	fidelity string
	always   string // which tests run without -measure, as a regular expression; none if ""
}

var policyWays = []policyWay{
	{"hosted", "overlay", true, "completed", "TestPolicyAdmission|Test_|TestMultiple|TestCRD|TestBindingRemoval|TestAuth"},
	{"upstream", "files", false, "completed", "^TestPolicyAdmission$"},
	{"hosted-dryRun", "overlay", true, "dryRun", ""},
	{"upstream-dryRun", "files", false, "dryRun", ""},
}

// policyPrograms are the tests of test/integration/apiserver/cel, and those of a package below it.
var policyPrograms = []string{"policies.test", "authz_selectors.test"}

// verbsTest tries all verbs of all resources, which are at least leastVerbs.
const (
	verbsTest  = "TestPolicyAdmission"
	leastVerbs = 545
)

// serverItself is the control, for -direct.
const serverItself = "server"

// notAboutPolicies are the tests of test/integration/apiserver/cel that are about something else, or cannot be asked of a gateway.
var notAboutPolicies = map[string]string{
	"Test_?MutatingAdmissionPolicy.*": "mutating policies are no subject of fairgate",
	"TestStaticPolicy.*":              "the server reads policies from its own disk; a gateway has policies.files",
}

// Kubernetes' own integration tests of ValidatingAdmissionPolicy, as they are, on a fairgate that enforces the policies in front of a
// server that does not. What fails is listed with its reason.
//
// Not beside other tests: Kubernetes' own give a policy a second to take effect, which is too little where many servers compete for two
// processors.
func TestKubernetesOwnTestsOfPolicies(t *testing.T) {
	known := must[[]knownFailure](t)(readKnownFailures())
	ways := policyWays
	if *direct {
		ways = []policyWay{{name: serverItself}}
	}
	for _, way := range ways {
		if *ownPolicyWays != "" && !wholly(*ownPolicyWays).MatchString(way.name) {
			continue
		}
		t.Run(way.name, func(t *testing.T) { runsKubernetesPolicyTests(t, way, known) })
	}
}

func runsKubernetesPolicyTests(t *testing.T, way policyWay, known []knownFailure) {
	wanted := *ownPolicyTests
	if wanted == "" && !*measuring && !*direct {
		if wanted = way.always; wanted == "" {
			t.Skip("run only with -measure, or with -own-policy-tests")
		}
	}
	servers := &testServers{t: t, name: "policies-" + strings.ToLower(way.name), flags: way.serverFlags, front: way.start}
	arguments := []string{"-test.v", "-test.run=" + wanted, "-test.skip=^(" + strings.Join(slices.Sorted(maps.Keys(notAboutPolicies)), "|") + ")$", "-test.timeout=30m"}
	from := time.Now()
	var output string
	var err error
	for _, program := range policyPrograms {
		if *ownPolicyOutput != "" {
			servers.copy = filepath.Join(*ownPolicyOutput, way.name+"-"+program+".log")
		}
		printed, ended := servers.run(inTime(t, 40*time.Minute), program, arguments...)
		output, err = output+printed, errors.Join(err, ended)
	}
	results := testResults(output)
	leaves := leavesOf(results)
	passed, failed := named(leaves, "PASS"), named(leaves, "FAIL")
	unknown, gone := sortOutFailures(leaves, way.name, known)
	line, _ := json.Marshal(map[string]any{
		"way": way.name, "passed": len(passed), "failed": len(failed), "unknown": len(unknown), "skipped": len(named(leaves, "SKIP")), "seconds": int(time.Since(from).Seconds()),
	})
	fmt.Printf("KUBERNETES_POLICIES %s\n", line)
	if err != nil && len(failed) == 0 || strings.Contains(output, "\npanic: ") {
		t.Errorf("%v\n%s", err, output)
	}
	for _, name := range unfinished(output, results) {
		t.Errorf("%s has no result:\n%s", name, outputOf(output, name))
	}
	if number := len(leavesBelow(leaves, verbsTest)); results[verbsTest] != "" && number < leastVerbs {
		t.Errorf("%s has tried only %d verbs of resources", verbsTest, number)
	}
	for _, name := range unknown {
		t.Errorf("%s failed:\n%s", name, outputOf(output, name))
	}
	for _, name := range gone {
		t.Errorf("%s passes: it is no known difference any more", name)
	}
}

// serverFlags are those of a test, but for the plugin, which is off; and what the original has and the test bed has not.
func (w policyWay) serverFlags(given []string) []string {
	const plugin = "ValidatingAdmissionPolicy"
	lists := map[string][]string{"--disable-admission-plugins": {plugin}, "--enable-admission-plugins": nil}
	if w.name == serverItself {
		lists = map[string][]string{"--disable-admission-plugins": nil, "--enable-admission-plugins": nil}
	}
	flags := []string{uidFlag, "--service-cluster-ip-range=10.0.0.0/16"}
	authorized := false
	for number := 0; number < len(given); number++ {
		name, value, joined := strings.Cut(given[number], "=")
		if !joined && number+1 < len(given) && !strings.HasPrefix(given[number+1], "--") {
			number++
			value, joined = given[number], true
		}
		authorized = authorized || name == "--authorization-mode"
		switch _, list := lists[name]; {
		case list:
			lists[name] = append(lists[name], strings.Split(value, ",")...)
		case joined:
			flags = append(flags, name+"="+value)
		default:
			flags = append(flags, name)
		}
	}
	if !authorized {
		flags = append(flags, "--authorization-mode=AlwaysAllow")
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		plugins := slices.DeleteFunc(lists[name], func(one string) bool {
			return one == plugin && strings.HasPrefix(name, "--enable") && w.name != serverItself
		})
		if len(plugins) > 0 {
			flags = append(flags, name+"="+strings.Join(plugins, ","))
		}
	}
	return flags
}

// start makes a fairgate that enforces policies before a server. To the server it is whoever sends the requests of these tests in
// the original: that is whom the audit log names.
func (w policyWay) start(server *Apiserver, order testserver.Order) (*Fairgate, error) {
	if w.name == serverItself {
		return nil, nil
	}
	options := FairgateOptions{
		Mode: "impersonate", Source: w.source, User: testserver.Administrator, Group: "system:masters", Upstream: server.URL, Off: true,
		Admission: "enforce", AdmissionHosted: w.hosted, Fidelity: w.fidelity,
		Reviewed: "0s", // a test takes a right back, and expects a server that knows it at once
	}
	if w.hosted && order.Prefix != "" {
		// A server that is started again finds its objects.
		options.Prefix = "/fairgate/" + order.Prefix
	}
	return shared.NewFairgate(options)
}

// A knownFailure is a test that fails on a gateway, and why.
type knownFailure struct {
	Test   string `json:"test"`          // a regular expression of the whole name of tests without subtests
	Way    string `json:"way,omitempty"` // a regular expression of the whole name of ways; "" means all
	Reason string `json:"reason"`
}

// knownFailuresFile lists them.
const knownFailuresFile = "kubernetes_policy_differences.json"

func readKnownFailures() ([]knownFailure, error) {
	text, err := os.ReadFile(knownFailuresFile)
	if err != nil {
		return nil, err
	}
	var known []knownFailure
	return known, json.Unmarshal(text, &known)
}

// sortOutFailures are the failures that are not known, and the known ones that did not happen.
func sortOutFailures(leaves map[string]string, way string, known []knownFailure) (unknown, gone []string) {
	for _, name := range slices.Sorted(maps.Keys(leaves)) {
		expected := slices.ContainsFunc(known, func(one knownFailure) bool {
			return wholly(one.Test).MatchString(name) && (one.Way == "" || wholly(one.Way).MatchString(way)) && way != serverItself
		})
		switch failed := leaves[name] == "FAIL"; {
		case failed && !expected:
			unknown = append(unknown, name)
		case !failed && expected:
			gone = append(gone, name)
		}
	}
	return unknown, gone
}

// wholly is a regular expression of a whole text.
func wholly(pattern string) *regexp.Regexp { return regexp.MustCompile("^(?:" + pattern + ")$") }

// leavesOf are the results of tests without subtests, and of those that failed although none of their subtests did.
func leavesOf(results map[string]string) map[string]string {
	parents, explained := map[string]bool{}, map[string]bool{}
	for name, result := range results {
		for parent := name; strings.Contains(parent, "/"); {
			parent = parent[:strings.LastIndex(parent, "/")]
			parents[parent] = true
			explained[parent] = explained[parent] || result == "FAIL"
		}
	}
	leaves := map[string]string{}
	for name, result := range results {
		if !parents[name] || result == "FAIL" && !explained[name] {
			leaves[name] = result
		}
	}
	return leaves
}

// leavesBelow are the names of the tests below another one.
func leavesBelow(leaves map[string]string, parent string) []string {
	var names []string
	for name := range leaves {
		if strings.HasPrefix(name, parent+"/") {
			names = append(names, name)
		}
	}
	return names
}

var runLine = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)

// unfinished are the tests that have begun, but did not end, as those that run when the program crashes.
func unfinished(output string, results map[string]string) []string {
	var names []string
	for _, line := range runLine.FindAllStringSubmatch(output, -1) {
		if results[line[1]] == "" {
			names = append(names, line[1])
		}
	}
	return names
}

// outputOf is what a test has printed.
func outputOf(output, name string) string {
	var kept []string
	inside := false
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "=== ") {
			fields := strings.Fields(line)
			inside = fields[len(fields)-1] == name
			continue
		}
		if inside {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

func TestOnlyKnownFailuresOfOwnTestsAreForgiven(t *testing.T) {
	results := testResults("--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/known (0.0s)\n    --- PASS: TestA/gone (0.0s)\n--- FAIL: TestB (0.1s)\n    --- PASS: TestB/one (0.0s)\n--- PASS: TestC (0.0s)\n")
	known := []knownFailure{{Test: "TestA/(known|gone)", Way: "here"}, {Test: "TestC", Way: "elsewhere"}}
	leaves := leavesOf(results)
	unknown, gone := sortOutFailures(leaves, "here", known)
	// TestB has failed by itself: none of its subtests did.
	if !slices.Equal(unknown, []string{"TestB"}) || !slices.Equal(gone, []string{"TestA/gone"}) {
		t.Errorf("unknown %q, gone %q of %v", unknown, gone, leaves)
	}
	if left := unfinished("=== RUN   TestC\n=== RUN   TestD\n", results); !slices.Equal(left, []string{"TestD"}) {
		t.Errorf("unfinished: %q", left)
	}
}
