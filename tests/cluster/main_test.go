package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// binVariable names the directory of the cluster's programs; without it the script build prints it.
const binVariable = "FAIRGATE_CLUSTER_BIN"

var direct = flag.Bool("direct", false, "send every request to the apiserver itself: tests the test bed, not fairgate")

// shared is the cluster of all tests; each starts the fairgate it needs in front of it.
var shared *Cluster

func init() {
	// The thread that starts the isolated process has to live as long as the process.
	runtime.LockOSThread()
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := setParallel(); err != nil {
		fmt.Fprintln(os.Stderr, "tests/cluster:", err)
		os.Exit(1)
	}
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests/cluster:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// testsSideBySide is more than there are tests that run side by side. They mostly wait, also for their turn (oneAtATime), and a test that
// waits for its turn takes the place of one that runs.
const testsSideBySide = "32"

// setParallel lets as many tests run side by side as there are, unless -parallel is given.
func setParallel() error {
	given := false
	flag.Visit(func(one *flag.Flag) { given = given || one.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", testsSideBySide)
}

func testMain(m *testing.M) (int, error) {
	if *referenceKubeconfig != "" || *hostedKubeconfig != "" {
		// Servers that are there already: no cluster is needed, and a separate network namespace could not reach them.
		return m.Run(), nil
	}
	if !*direct {
		if _, err := FairgateProgram(); err != nil {
			return 0, err
		}
	}
	if os.Getenv(insideVariable) == "1" {
		if err := prepareNamespace(); err != nil {
			return 0, err
		}
		return withCluster(m)
	}
	// Building needs the network, so it is done first.
	if err := findPrograms(); err != nil {
		return 0, err
	}
	code, err := runIsolated()
	if err == nil {
		return code, nil
	}
	fmt.Fprintf(os.Stderr, "tests/cluster: no network namespace of our own (%v); using the host's network\n", err)
	return withCluster(m)
}

// findPrograms sets binVariable, building what is missing.
func findPrograms() error {
	if os.Getenv(binVariable) != "" {
		return nil
	}
	build := exec.Command("./build")
	build.Stderr = os.Stderr
	printed, err := build.Output()
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	return os.Setenv(binVariable, strings.TrimSpace(string(printed)))
}

func withCluster(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "fairgate-cluster-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	started := time.Now()
	shared, err = Start(dir, os.Getenv(binVariable))
	defer shared.Stop()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, shared.Logs(40))
	}
	fmt.Printf("tests/cluster: cluster ready in %.1f s\n", time.Since(started).Seconds())
	code := m.Run()
	if code != 0 {
		fmt.Print(shared.Logs(40))
	}
	return code, nil
}

// throughEach runs a test through a separate fairgate in each identity mode; with -direct, straight
// at the apiserver.
func throughEach(t *testing.T, options FairgateOptions, test func(t *testing.T, at Endpoint)) {
	t.Helper()
	if *direct {
		t.Run("direct", func(t *testing.T) { test(t, shared.Direct) })
		return
	}
	for _, mode := range Modes {
		options.Mode = mode
		t.Run(mode, func(t *testing.T) { test(t, startFairgate(t, options)) })
	}
}

// startFairgate starts a fairgate for one test.
func startFairgate(t *testing.T, options FairgateOptions) Endpoint {
	t.Helper()
	fairgate := newFairgate(t, options)
	succeeds(t, fairgate.Start())
	return fairgate.Endpoint
}

// newFairgate is a fairgate for one test. It does not run yet.
func newFairgate(t *testing.T, options FairgateOptions) *Fairgate {
	t.Helper()
	return ending(t, must[*Fairgate](t)(shared.NewFairgate(options)))
}

// ending stops a fairgate with its test. It must end well, and its log is shown when the test fails.
func ending(t *testing.T, fairgate *Fairgate) *Fairgate {
	t.Cleanup(func() {
		if err := fairgate.Stop(); err != nil {
			t.Errorf("fairgate did not end well: %v", err)
		}
		if t.Failed() {
			t.Log(fairgate.Name, fairgate.Log(60))
		}
	})
	return fairgate
}

// busy is held by the test that keeps the cores busy.
var busy sync.Mutex

// oneAtATime lets a test that keeps the cores busy run beside those that mostly wait, but not beside another such test. Two take as long side
// by side as in turn, and what waits for them runs into its time limits.
func oneAtATime(t *testing.T) {
	t.Helper()
	t.Parallel()
	busy.Lock()
	t.Cleanup(busy.Unlock)
}

// inTime is a context that ends before the test could hang.
func inTime(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// must stops the test at an error of its preparations.
func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// kubectl runs kubectl and fails the test unless it succeeds.
func kubectl(t *testing.T, at Endpoint, user User, stdin string, args ...string) string {
	t.Helper()
	printed, err := shared.RunKubectl(inTime(t, 2*time.Minute), at, user, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return printed
}

// alice is the ordinary user of the tests. Her rights, and those of others who share them, come from RBAC.
var alice = sync.OnceValues(func() (User, error) { return shared.NewUser("alice", "dev", "team:payments") })

// testerRole gives the tests' users rights on plain objects: no more than a developer has.
const testerRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: tester
rules:
- apiGroups: [""]
  resources: [configmaps, secrets, pods, services]
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: tester
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: tester
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: elephant}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: mouse}
- {kind: ServiceAccount, namespace: in-cluster, name: controller}
`

var grantOnce = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := shared.RunKubectl(ctx, shared.Direct, shared.admin, testerRole, "apply", "-f", "-")
	return err
})

// grantTesters gives the tests' users their rights.
func grantTesters(t *testing.T) {
	t.Helper()
	if err := grantOnce(); err != nil {
		t.Fatal(err)
	}
}

const (
	crowdNamespace = "crowd"
	crowdSize      = 10_000
)

var crowdOnce = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	if err := shared.EnsureNamespace(ctx, crowdNamespace); err != nil {
		return err
	}
	started := time.Now()
	numbers := make(chan int)
	failures := make(chan error, crowdSize)
	payload := strings.Repeat("x", 512)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for number := range numbers {
				object := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("member-%05d", number)},
					Data:       map[string]string{"payload": payload},
				}
				_, err := shared.Admin.CoreV1().ConfigMaps(crowdNamespace).Create(ctx, object, metav1.CreateOptions{})
				if err != nil && !apierrors.IsAlreadyExists(err) {
					failures <- err
				}
			}
		})
	}
	for number := range crowdSize {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
	close(failures)
	var all []error
	for err := range failures {
		if all = append(all, err); len(all) == 5 {
			break
		}
	}
	fmt.Printf("tests/cluster: %d objects made in %.1f s\n", crowdSize, time.Since(started).Seconds())
	return errors.Join(all...)
})

// makeCrowd fills a namespace with 10 000 ConfigMaps, once for all tests.
func makeCrowd(t *testing.T) {
	t.Helper()
	if err := crowdOnce(); err != nil {
		t.Fatal(err)
	}
}

// The programs that the tests run are the versions that are pinned.
func TestTheApiserverIsTheReleaseThatIsPinned(t *testing.T) {
	printed := kubectl(t, shared.Direct, shared.admin, "", "version", "-o", "json")
	if got := strings.Count(printed, `"gitVersion": "v1.36.3"`); got != 2 {
		t.Errorf("kubectl and apiserver should both be v1.36.3:\n%s", printed)
	}
	transport := shared.Transport(shared.admin, true)
	defer transport.CloseIdleConnections()
	response, err := shared.Do(inTime(t, time.Minute), transport, shared.Direct, shared.admin, http.MethodGet, "/livez/ping", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.Header.Get(flowSchemaHeader) == "" {
		t.Error("priority and fairness is not on")
	}
}
