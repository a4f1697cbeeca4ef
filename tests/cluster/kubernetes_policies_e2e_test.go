package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// numberOfPolicySpecs is how many specs test/e2e/apimachinery/validatingadmissionpolicy.go has.
const numberOfPolicySpecs = 6

// Kubernetes' own e2e specs of ValidatingAdmissionPolicy, as they are, on a fairgate that enforces the policies in front of a server that does not.
// What fails is listed with its reason, as for the integration tests.
func TestKubernetesOwnSpecsOfPolicies(t *testing.T) {
	oneAtATime(t)
	known := must[[]knownFailure](t)(readKnownFailures())
	ways := []policyWay{
		{name: "hosted", source: "overlay", hosted: true},
		{name: "standalone", source: "standalone", hosted: true},
		{name: "upstream", source: "files"},
	}
	if *direct {
		ways = []policyWay{{name: serverItself}}
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			runsKubernetesPolicySpecs(t, way, known)
		})
	}
}

func runsKubernetesPolicySpecs(t *testing.T, way policyWay, known []knownFailure) {
	name := "specs-" + way.name
	flags := []string{uidFlag}
	if way.name != serverItself {
		flags = append(flags, "--disable-admission-plugins=ValidatingAdmissionPolicy")
	}
	server := must[*Apiserver](t)(shared.StartApiserver(name, "", flags...))
	defer server.Kill()
	at := server.Endpoint
	if !way.hosted {
		// It checks the types of a server's policies.
		must[*process](t)(shared.StartControllerManager(at, "validatingadmissionpolicy-status-controller"))
	}
	if way.name != serverItself {
		at = startFairgate(t, FairgateOptions{
			Mode: "impersonate", Source: way.source, User: name, Group: "system:masters", Upstream: server.URL, Off: true,
			Admission: "enforce", AdmissionHosted: way.hosted, Fidelity: "completed",
		})
	}
	from := time.Now()
	way.name = name
	results, failures := runsSpecs(t, at, way, known)
	if len(results) != numberOfPolicySpecs {
		t.Fatalf("not %d specs have run, but %v", numberOfPolicySpecs, results)
	}
	unknown, gone := sortOutFailures(results, way.name, known)
	line, _ := json.Marshal(map[string]any{
		"way": way.name, "passed": len(named(results, "PASS")), "failed": len(named(results, "FAIL")), "unknown": len(unknown), "seconds": int(time.Since(from).Seconds()),
	})
	fmt.Printf("KUBERNETES_POLICY_SPECS %s\n", line)
	for _, name := range unknown {
		t.Errorf("%s failed: %s", name, failures[name])
	}
	for _, name := range gone {
		t.Errorf("%s passes: it is no known difference any more", name)
	}
}

// runsSpecs runs the specs at an endpoint. Those that are known to fail are run apart: a spec waits for what it expects until the
// time of all is up.
func runsSpecs(t *testing.T, at Endpoint, way policyWay, known []knownFailure) (results, failures map[string]string) {
	kubeconfig := must[string](t)(shared.Kubeconfig(at, shared.admin))
	runs := [][]string{{"-ginkgo.focus=ValidatingAdmissionPolicy .Privileged", "-ginkgo.timeout=10m"}}
	if failing := failingIn(way.name, known); failing != "" {
		runs[0] = append(runs[0], "-ginkgo.skip="+failing)
		runs = append(runs, []string{"-ginkgo.focus=" + failing, "-ginkgo.timeout=20s"})
	}
	results, failures = map[string]string{}, map[string]string{}
	for number, run := range runs {
		report := filepath.Join(t.TempDir(), "report.json")
		specs := exec.CommandContext(inTime(t, 20*time.Minute), filepath.Join(shared.bin, "policies_e2e.test"),
			append(run, "-kubeconfig="+kubeconfig, "-ginkgo.json-report="+report, "-e2e-verify-service-account=false", "-num-nodes=0", "-ginkgo.v", "-ginkgo.no-color")...)
		specs.Dir = t.TempDir()
		output, err := specs.CombinedOutput()
		if *ownPolicyOutput != "" {
			succeeds(t, os.WriteFile(filepath.Join(*ownPolicyOutput, fmt.Sprintf("%s-%d.log", way.name, number+1)), output, 0o644))
		}
		ended, failed, unreadable := specResults(report)
		if unreadable != nil {
			t.Fatalf("%v, %v\n%s", err, unreadable, output)
		}
		maps.Copy(results, ended)
		maps.Copy(failures, failed)
	}
	return results, failures
}

// failingIn is a regular expression of the specs that are known to fail in a way, "" without any.
func failingIn(way string, known []knownFailure) string {
	var failing []string
	for _, one := range known {
		if one.Way != "" && wholly(one.Way).MatchString(way) {
			failing = append(failing, one.Test)
		}
	}
	return strings.Join(failing, "|")
}

// specResults are the results of the specs that a report of Ginkgo says have run, and what those that failed said.
func specResults(file string) (results, failures map[string]string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	var suites []struct {
		SpecReports []struct {
			LeafNodeType, LeafNodeText, State string
			Failure                           struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, nil, err
	}
	results, failures = map[string]string{}, map[string]string{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			switch {
			case spec.LeafNodeType != "It" || spec.State == "skipped" || spec.State == "pending":
			case spec.State == "passed":
				results[spec.LeafNodeText] = "PASS"
			default:
				results[spec.LeafNodeText] = "FAIL"
				failures[spec.LeafNodeText] = spec.State + ": " + spec.Failure.Message
			}
		}
	}
	return results, failures, nil
}
