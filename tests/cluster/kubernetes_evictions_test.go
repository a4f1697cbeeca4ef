package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testserver "fairgate.dev/tests/cluster/evictions"
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
	t.Parallel()
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
	servers := &testServers{t: t, source: source, running: map[string]*testServerPair{}}
	listener := httptest.NewServer(servers)
	defer listener.Close()
	defer servers.endAll()
	ctx := inTime(t, 8*time.Minute)
	tests := exec.CommandContext(ctx, filepath.Join(shared.bin, "evictions.test"), "-test.v", "-test.run=^("+strings.Join(wanted, "|")+")$")
	tests.Dir = t.TempDir()
	// Their etcd is only looked for: the servers use the cluster's.
	tests.Env = append(os.Environ(), testserver.ServersVariable+"="+listener.URL, "KUBE_INTEGRATION_ETCD_URL="+shared.etcd.URL)
	var output bytes.Buffer
	tests.Stdout, tests.Stderr = &output, &output
	from := time.Now()
	err := tests.Run()
	results := testResults(output.String())
	t.Logf("KUBERNETES_EVICTIONS {\"source\":%q,\"passed\":%d,\"evictions\":%d,\"seconds\":%.0f}", source, len(results["PASS"]), servers.evictions, time.Since(from).Seconds())
	if err != nil || len(results["FAIL"])+len(results["SKIP"]) > 0 {
		t.Errorf("%v\nfailed: %q\nskipped: %q\n%s", err, results["FAIL"], results["SKIP"], output.String())
	}
	if servers.evictions < numberOfConcurrentEvictions {
		t.Errorf("only %d evictions went through fairgate", servers.evictions)
	}
	for _, name := range wanted {
		if !slices.Contains(results["PASS"], name) {
			t.Errorf("%s has not passed; passed: %q", name, results["PASS"])
		}
	}
}

var resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// testResults are the names of tests and subtests by their results.
func testResults(output string) map[string][]string {
	results := map[string][]string{}
	for _, line := range resultLine.FindAllStringSubmatch(output, -1) {
		results[line[1]] = append(results[line[1]], line[2])
	}
	return results
}

// testServers starts and ends servers for tests that run in another process.
type testServers struct {
	t      *testing.T
	source string // fairgate's mode

	mutex     sync.Mutex
	made      int
	running   map[string]*testServerPair
	evictions int // that fairgates have carried out or refused
}

type testServerPair struct {
	apiserver *Apiserver
	fairgate  *Fairgate
}

func (s *testServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch r.Method {
	case http.MethodPost:
		var flags []string
		err := json.NewDecoder(r.Body).Decode(&flags)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		made, err := s.start(flags)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		made.URL = "http://" + r.Host + made.URL
		_ = json.NewEncoder(w).Encode(made)
	case http.MethodDelete:
		if err := s.end(r.URL.Path); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	default:
		http.Error(w, "only POST and DELETE are known here", http.StatusMethodNotAllowed)
	}
}

// start starts an apiserver with flags, and a fairgate in front of it. The URL of the result is a path.
func (s *testServers) start(flags []string) (*testserver.NewServer, error) {
	s.made++
	name := fmt.Sprintf("evictions-%s-%d", s.source, s.made)
	apiserver, err := shared.StartApiserver(name, "", append(flags, uidFlag, "--enable-priority-and-fairness=false")...)
	if err != nil {
		return nil, err
	}
	pair := &testServerPair{apiserver: apiserver}
	path := "/" + name
	s.running[path] = pair
	roles := []ShippedRole{ImpersonatorRole, PrecheckRole, EvictionRole}
	if s.source == "overlay" {
		roles = append(roles, OverlayRole)
	}
	if err := Grant(s.t.Context(), apiserver.Admin, evictionUser, roles...); err != nil {
		return nil, err
	}
	// The apiserver makes it in the background, and a test counts on it.
	err = poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
		_, err := apiserver.Admin.CoreV1().Namespaces().Get(s.t.Context(), "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	options := FairgateOptions{Mode: "impersonate", Source: s.source, User: evictionUser, Upstream: apiserver.URL, Eviction: "authoritative"}
	if pair.fairgate, err = shared.NewFairgate(options); err != nil {
		return nil, err
	}
	if err := pair.fairgate.Start(); err != nil {
		return nil, err
	}
	kubeconfig, err := shared.Kubeconfig(pair.fairgate.Endpoint, shared.admin)
	return &testserver.NewServer{URL: path, Kubeconfig: kubeconfig}, err
}

// end ends the servers of a path: fairgate first, which then has an upstream to the end.
func (s *testServers) end(path string) error {
	pair := s.running[path]
	if pair == nil {
		return fmt.Errorf("no server %s", path)
	}
	delete(s.running, path)
	defer pair.apiserver.Kill()
	if pair.fairgate == nil {
		return nil
	}
	counted := s.countEvictions(pair)
	if err := pair.fairgate.Stop(); err != nil {
		s.t.Log(pair.fairgate.Log(40))
		return err
	}
	return counted
}

var (
	evictedByFairgate  = regexp.MustCompile(`(?m)^fairgate_evictions_total\{mode="authoritative",.*\} (\d+)$`)
	evictedByApiserver = regexp.MustCompile(`(?m)^apiserver_request_total\{.*subresource="eviction".*verb="POST".*$`)
)

// countEvictions adds the evictions of a fairgate. It fails if the apiserver's own subresource was used.
func (s *testServers) countEvictions(pair *testServerPair) error {
	ctx := s.t.Context()
	text, err := pair.apiserver.Admin.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err
	}
	if used := evictedByApiserver.Find(text); used != nil {
		return fmt.Errorf("the apiserver's own subresource was used: %s", used)
	}
	_, metrics, err := pair.fairgate.Ask(ctx, "/metrics")
	if err != nil {
		return err
	}
	for _, count := range evictedByFairgate.FindAllStringSubmatch(metrics, -1) {
		number, err := strconv.Atoi(count[1])
		if err != nil {
			return err
		}
		s.evictions += number
	}
	return nil
}

func (s *testServers) endAll() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for path := range s.running {
		_ = s.end(path)
	}
}
