package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testserver "fairgate.dev/tests/cluster/standins"
)

// testServers starts and ends servers for Kubernetes' own tests, which run in another process (see standins).
type testServers struct {
	t     *testing.T
	name  string                        // of the servers, which get a number besides
	flags func(given []string) []string // of a kube-apiserver, made of those that a test gives
	front func(server *Apiserver, order testserver.Order) (*Fairgate, error)
	// ending sees a pair before it ends, unless it is nil.
	ending func(pair *testServerPair) error
	copy   string // file for what the tests print, while they print it; none if ""

	mutex   sync.Mutex
	made    int
	running map[string]*testServerPair
}

type testServerPair struct {
	apiserver *Apiserver
	fairgate  *Fairgate // nil where a test speaks to the apiserver itself
}

// run runs a program of tests, as built by build, with these servers, and returns what it printed.
func (s *testServers) run(ctx context.Context, program string, arguments ...string) (string, error) {
	s.running = map[string]*testServerPair{}
	listener := httptest.NewServer(s)
	defer listener.Close()
	defer s.endAll()
	tests := exec.CommandContext(ctx, filepath.Join(shared.bin, program), arguments...)
	tests.Dir = s.t.TempDir()
	// Their etcd is only looked for: the servers use the cluster's.
	tests.Env = append(os.Environ(), testserver.ServersVariable+"="+listener.URL, "KUBE_INTEGRATION_ETCD_URL="+shared.etcd.URL)
	var output bytes.Buffer
	var into io.Writer = &output
	if s.copy != "" {
		file, err := os.Create(s.copy)
		if err != nil {
			return "", err
		}
		defer file.Close()
		into = io.MultiWriter(file, &output)
	}
	tests.Stdout, tests.Stderr = into, into
	err := tests.Run()
	return output.String(), err
}

func (s *testServers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch r.Method {
	case http.MethodPost:
		var order testserver.Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		made, err := s.start(order)
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

// start starts an apiserver, and a fairgate in front of it. The URL of the result is a path.
func (s *testServers) start(order testserver.Order) (*testserver.NewServer, error) {
	s.made++
	name := fmt.Sprintf("%s-%d", s.name, s.made)
	flags := s.flags(order.Flags)
	if order.Prefix != "" {
		flags = append(flags, "--etcd-prefix=/"+strings.TrimPrefix(order.Prefix, "/"))
	}
	apiserver, err := shared.StartApiserver(name, "", flags...)
	if err != nil {
		return nil, err
	}
	pair := &testServerPair{apiserver: apiserver}
	path := "/" + name
	s.running[path] = pair
	// The apiserver makes it in the background, and a test counts on it.
	err = poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		_, err := apiserver.Admin.CoreV1().Namespaces().Get(s.t.Context(), "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	made := &testserver.NewServer{URL: path}
	if pair.fairgate, err = s.front(apiserver, order); err != nil {
		return nil, err
	}
	if pair.fairgate == nil {
		pair, err := shared.PKI.UserWithUID(testserver.Administrator, testserver.Administrator, testserver.AdministratorUID, "system:masters")
		if err != nil {
			return nil, err
		}
		made.Kubeconfig, err = shared.Kubeconfig(apiserver.Endpoint, User{Name: testserver.Administrator, Pair: pair})
		return made, err
	}
	if err := pair.fairgate.Start(); err != nil {
		return nil, err
	}
	made.FrontProxy = true
	made.Kubeconfig, err = shared.Kubeconfig(pair.fairgate.Endpoint, User{Name: "front proxy", Pair: shared.PKI.FrontProxyClient})
	return made, err
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
	var seen error
	if s.ending != nil {
		seen = s.ending(pair)
	}
	if err := pair.fairgate.Stop(); err != nil {
		s.t.Log(pair.fairgate.Log(40))
		return err
	}
	return seen
}

func (s *testServers) endAll() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for path := range s.running {
		_ = s.end(path)
	}
}

var resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// testResults are the results of tests and subtests by their names.
func testResults(output string) map[string]string {
	results := map[string]string{}
	for _, line := range resultLine.FindAllStringSubmatch(output, -1) {
		results[line[2]] = line[1]
	}
	return results
}

// named are the sorted names of the tests with a result.
func named(results map[string]string, result string) []string {
	var names []string
	for name, one := range results {
		if one == result {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
