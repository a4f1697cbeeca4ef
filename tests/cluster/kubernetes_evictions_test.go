package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	testserver "fairgate.dev/tests/cluster/standins"
)

// Kubernetes' own tests: all of test/integration/evictions of the pinned release.
var (
	kubernetesBudgetTests   = []string{"TestConcurrentEvictionRequests", "TestEvictionWithUnhealthyPodEvictionPolicy", "TestTerminalPodEviction"}
	kubernetesEvictionTests = append([]string{"TestEvictionVersions", "TestEvictionWithFinalizers", "TestEvictionWithPrecondition"}, kubernetesBudgetTests...)
)

// numberOfConcurrentEvictions is how many evictions TestConcurrentEvictionRequests alone has.
const numberOfConcurrentEvictions = 10

// Kubernetes' own integration tests of evictions, as they are, pass on a fairgate that carries evictions out; those with
// budgets also if it hosts these. Only the package that starts their servers is replaced. In the process of the tests the
// original disruption controller runs, through fairgate.
func TestKubernetesOwnTestsOfEvictions(t *testing.T) {
	aboutFairgate(t)
	oneAtATime(t)
	t.Run("budgets of the upstream", func(t *testing.T) {
		t.Parallel()
		runsKubernetesEvictionTests(t, "files", kubernetesEvictionTests)
	})
	t.Run("hosted budgets", func(t *testing.T) {
		t.Parallel()
		runsKubernetesEvictionTests(t, "overlay", kubernetesBudgetTests)
	})
}

func runsKubernetesEvictionTests(t *testing.T, source string, wanted []string) {
	evictions := 0 // that fairgates have carried out or refused
	servers := &testServers{
		t: t, name: "evictions-" + source,
		flags: func(given []string) []string { return append(given, uidFlag, "--enable-priority-and-fairness=false") },
		front: func(server *Apiserver, _ testserver.Order) (*Fairgate, error) {
			roles := []ShippedRole{ImpersonatorRole, PrecheckRole, EvictionRole}
			if source == "overlay" {
				roles = append(roles, OverlayRole)
			}
			if err := Grant(t.Context(), server.Admin, evictionUser, roles...); err != nil {
				return nil, err
			}
			return shared.NewFairgate(FairgateOptions{Mode: "impersonate", Source: source, User: evictionUser, Upstream: server.URL, Eviction: "authoritative"})
		},
		ending: func(pair *testServerPair) error {
			counted, err := evictionsOf(t.Context(), pair)
			evictions += counted
			return err
		},
	}
	from := time.Now()
	output, err := servers.run(inTime(t, 8*time.Minute), "evictions.test", "-test.v", "-test.run=^("+strings.Join(wanted, "|")+")$")
	results := testResults(output)
	passed := named(results, "PASS")
	t.Logf("KUBERNETES_EVICTIONS {\"source\":%q,\"passed\":%d,\"evictions\":%d,\"seconds\":%.0f}", source, len(passed), evictions, time.Since(from).Seconds())
	if err != nil || len(passed) < len(results) {
		t.Errorf("%v\nfailed: %q\nskipped: %q\n%s", err, named(results, "FAIL"), named(results, "SKIP"), output)
	}
	if evictions < numberOfConcurrentEvictions {
		t.Errorf("only %d evictions went through fairgate", evictions)
	}
	for _, name := range wanted {
		if results[name] != "PASS" {
			t.Errorf("%s has not passed; passed: %q", name, passed)
		}
	}
}

var (
	evictedByFairgate  = regexp.MustCompile(`(?m)^fairgate_evictions_total\{mode="authoritative",.*\} (\d+)$`)
	evictedByApiserver = regexp.MustCompile(`(?m)^apiserver_request_total\{.*subresource="eviction".*verb="POST".*$`)
)

// evictionsOf counts the evictions of a fairgate. It fails if the apiserver's own subresource was used.
func evictionsOf(ctx context.Context, pair *testServerPair) (int, error) {
	text, err := pair.apiserver.Admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	if used := evictedByApiserver.Find(text); used != nil {
		return 0, fmt.Errorf("the apiserver's own subresource was used: %s", used)
	}
	_, metrics, err := pair.fairgate.Ask(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0
	for _, count := range evictedByFairgate.FindAllStringSubmatch(metrics, -1) {
		number, err := strconv.Atoi(count[1])
		if err != nil {
			return 0, err
		}
		sum += number
	}
	return sum, nil
}
