package cluster

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	hostedKubeconfig = flag.String("hosted-kubeconfig", "", "the server that hosts the API, instead of a fairgate started for the tests")
	hostedUser       = flag.String("hosted-user-kubeconfig", "", "somebody on the server of -hosted-kubeconfig who may change nothing")
	hostedRestart    = flag.String("hosted-restart", "", "shell command that restarts the server of -hosted-kubeconfig")
)

// stores are the stores that fairgate has for the objects of the hosted API.
var stores = []string{"local", "etcd"}

// hosted is the server that hosts the API: one for all tests that do not care where it keeps the objects.
func hosted(t *testing.T) *Hosted {
	t.Helper()
	return hostedOn(t, stores[0])
}

// hostedOn is a fairgate that keeps the objects in a store of that kind, one for all tests; or the server that
// was named.
func hostedOn(t *testing.T, store string) *Hosted {
	t.Helper()
	if *hostedKubeconfig != "" {
		return must[*Hosted](t)(givenOnce())
	}
	if shared == nil || *direct {
		t.Skip("name a server with -hosted-kubeconfig; none is started without the rest of the cluster, or without fairgate")
	}
	return must[*Hosted](t)(startedOnce[store]())
}

// onEachStore runs a test on a fairgate with each kind of store; or on the server that was named.
func onEachStore(t *testing.T, test func(t *testing.T, server *Hosted)) {
	t.Helper()
	if *hostedKubeconfig != "" {
		test(t, hosted(t))
		return
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) { test(t, hostedOn(t, store)) })
	}
}

var givenOnce = sync.OnceValues(func() (*Hosted, error) {
	given := &Hosted{Admin: *hostedKubeconfig, User: *hostedUser}
	if *hostedRestart != "" {
		given.Restart = func() error {
			if printed, err := exec.Command("/bin/sh", "-c", *hostedRestart).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, printed)
			}
			return poll(readyLimit, time.Second, func() (bool, error) { return readyBy(given.Admin) == nil, nil })
		}
	}
	return given, nil
})

var startedOnce = map[string]func() (*Hosted, error){
	"local": sync.OnceValues(func() (*Hosted, error) { return StartStandalone(shared.Dir) }),
	// The apiserver writes into the same etcd all the time.
	"etcd": sync.OnceValues(func() (*Hosted, error) {
		replica, err := shared.NewReplica("etcd", shared.etcd.URL, "/hosted")
		if err != nil {
			return nil, err
		}
		if err := replica.Start(); err != nil {
			return nil, err
		}
		return shared.Hosted(replica)
	}),
}

// config is client-go's configuration for the administrator, without client-side limits.
func (h *Hosted) config(t *testing.T) *rest.Config {
	t.Helper()
	config := must[*rest.Config](t)(clientcmd.BuildConfigFromFlags("", h.Admin))
	config.QPS = -1
	if len(h.alternate) > 0 {
		config.Wrap(alternate(h.alternate))
	}
	return config
}

// alternate has each request go to the next of several hosts.
func alternate(hosts []string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return &inTurn{hosts: hosts, next: next} }
}

// inTurn sends each request to the next of several hosts.
type inTurn struct {
	hosts []string
	next  http.RoundTripper
	sent  atomic.Uint64
}

func (i *inTurn) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.URL.Host = i.hosts[i.sent.Add(1)%uint64(len(i.hosts))]
	return i.next.RoundTrip(request)
}

// client is a typed client that speaks protobuf, as control-plane components and conformance tests do.
func (h *Hosted) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	config := h.config(t)
	config.ContentType = protobufType
	config.AcceptContentTypes = protobufType + "," + jsonType
	config.WarningHandler = rest.NoWarnings{} // each call of v1beta3 has one
	return must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
}

// A kubectlRun is one call of the real kubectl on the hosted API.
type kubectlRun struct {
	Stdin  string
	Editor string // shell script that edits the file $1
	Args   []string
}

func (k kubectlRun) command(t *testing.T) *exec.Cmd {
	t.Helper()
	if err := findPrograms(); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(inTime(t, 3*time.Minute), filepath.Join(os.Getenv(binVariable), "kubectl"), k.Args...)
	cmd.Env = []string{"HOME=" + home, "KUBECONFIG=" + hosted(t).Admin, "PATH=/usr/bin:/bin"}
	cmd.Dir = home
	cmd.Stdin = strings.NewReader(k.Stdin)
	if k.Editor != "" {
		editor := filepath.Join(home, "editor")
		if err := os.WriteFile(editor, []byte("#!/bin/sh\n"+k.Editor+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, "KUBE_EDITOR="+editor)
	}
	return cmd
}

// run returns what kubectl printed on both outputs.
func (k kubectlRun) run(t *testing.T) (string, error) {
	t.Helper()
	cmd := k.command(t)
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err := cmd.Run()
	return both.String(), err
}

// hostedKubectl runs kubectl, which has to succeed.
func hostedKubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	printed, err := kubectlRun{Stdin: stdin, Args: args}.run(t)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, printed)
	}
	return printed
}

// refused runs kubectl, which has to fail and say why.
func refused(t *testing.T, why, stdin string, args ...string) {
	t.Helper()
	printed, err := kubectlRun{Stdin: stdin, Args: args}.run(t)
	if err == nil || !strings.Contains(printed, why) {
		t.Errorf("kubectl %s: %v, printed %q, want %q in it", strings.Join(args, " "), err, printed, why)
	}
}

// clear removes a test's objects, now and when it ends.
func (h *Hosted) clear(t *testing.T, label string) {
	t.Helper()
	client := h.client(t)
	clear := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		options := metav1.ListOptions{LabelSelector: label}
		err := errors.Join(
			client.FlowcontrolV1().FlowSchemas().DeleteCollection(ctx, metav1.DeleteOptions{}, options),
			client.FlowcontrolV1().PriorityLevelConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, options))
		if err != nil {
			t.Error(err)
		}
	}
	clear()
	t.Cleanup(clear)
}

const matrixLevel = `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: %s, labels: {test: matrix}}
spec: {type: Limited, limited: {nominalConcurrencyShares: %d, limitResponse: {type: Queue, queuing: {queues: 16, handSize: 4, queueLengthLimit: 10}}}}
`

const matrixSchema = `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: %s, labels: {test: matrix}}
spec:
  matchingPrecedence: %d
  priorityLevelConfiguration: {name: workload-low}
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: User, user: {name: matrix}}]
    nonResourceRules: [{verbs: ["*"], nonResourceURLs: ["/matrix"]}]
`

func TestKubectlOnTheHostedAPI(t *testing.T) {
	hosted(t).clear(t, "test=matrix")
	levelOf := func(name string, shares int) string { return fmt.Sprintf(matrixLevel, name, shares) }
	schemaOf := func(name string, precedence int) string { return fmt.Sprintf(matrixSchema, name, precedence) }
	shares := func(name string) string {
		return hostedKubectl(t, "", "get", "prioritylevelconfiguration", name, "-o", "jsonpath={.spec.limited.nominalConcurrencyShares}")
	}

	t.Run("create and get", func(t *testing.T) {
		expect(t, "prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/matrix-a created", hostedKubectl(t, levelOf("matrix-a", 5), "create", "-f", "-"))
		expect(t, "flowschema.flowcontrol.apiserver.k8s.io/matrix-a created", hostedKubectl(t, schemaOf("matrix-a", 700), "create", "-f", "-"))
		expect(t, "flowschema.flowcontrol.apiserver.k8s.io/matrix-b created", hostedKubectl(t, schemaOf("matrix-b", 600), "create", "-f", "-"))
		refused(t, "AlreadyExists", levelOf("matrix-a", 5), "create", "-f", "-")
		refused(t, `unknown field "spec.nope"`, strings.Replace(levelOf("matrix-c", 5), "spec: {", "spec: {nope: 1, ", 1), "create", "-f", "-")
		refused(t, "must be a non-negative integer", levelOf("matrix-c", -5), "create", "-f", "-")
		refused(t, "NotFound", "", "get", "flowschema", "matrix-none")

		table := strings.Split(strings.TrimSpace(hostedKubectl(t, "", "get", "flowschemas", "-l", "test=matrix")), "\n")
		if len(table) != 3 || !slices.Equal(strings.Fields(table[0]), []string{"NAME", "PRIORITYLEVEL", "MATCHINGPRECEDENCE", "DISTINGUISHERMETHOD", "AGE", "MISSINGPL"}) {
			t.Errorf("table %q", table)
		}
		// The server prints the table, in the order in which schemas match.
		if fields := strings.Fields(table[1]); !slices.Equal(fields[:4], []string{"matrix-b", "workload-low", "600", "ByUser"}) {
			t.Errorf("first row %q", table[1])
		}
		expect(t, "matrix-a   Limited   5                          16       4          10", hostedKubectl(t, "", "get", "prioritylevelconfigurations", "matrix-a", "-o", "wide"))
		expect(t, `"kind": "FlowSchema"`, hostedKubectl(t, "", "get", "flowschema", "matrix-a", "-o", "json"))
		expect(t, "matchingPrecedence: 700", hostedKubectl(t, "", "get", "flowschema", "matrix-a", "-o", "yaml"))
		expect(t, "kind: List", hostedKubectl(t, "", "get", "flowschemas,prioritylevelconfigurations", "-l", "test=matrix", "-o", "yaml"))
		expect(t, "flowschema.flowcontrol.apiserver.k8s.io/matrix-a\nflowschema.flowcontrol.apiserver.k8s.io/matrix-b\n",
			hostedKubectl(t, "", "get", "flowschemas", "-l", "test in (matrix,other)", "-o", "name", "--chunk-size=1"))
		expect(t, "matrix-b", hostedKubectl(t, "", "get", "flowschemas", "--field-selector=metadata.name=matrix-b", "--no-headers"))
		expect(t, "No resources found", hostedKubectl(t, "", "get", "flowschemas", "-l", "test=matrix", "--field-selector=metadata.name!=matrix-b,metadata.name!=matrix-a"))
		refused(t, "not a known field selector", "", "get", "flowschemas", "--field-selector=spec.matchingPrecedence=1")
		expect(t, "matrix-a 700\nmatrix-b 600\n", hostedKubectl(t, "", "get", "flowschemas", "-l", "test=matrix", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.matchingPrecedence}{"\n"}{end}`))
		sorted := hostedKubectl(t, "", "get", "flowschemas", "-l", "test=matrix", "--sort-by=.spec.matchingPrecedence", "--no-headers")
		if !strings.HasPrefix(sorted, "matrix-b") {
			t.Errorf("sorted %q", sorted)
		}
		expect(t, `"name":"matrix-a"`, hostedKubectl(t, "", "get", "--raw=/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/matrix-a"))
	})

	t.Run("get --watch", func(t *testing.T) {
		cmd := kubectlRun{Args: []string{"get", "prioritylevelconfigurations", "-l", "test=matrix", "--watch", "--output-watch-events", "-o", `jsonpath={.type} {.object.metadata.name} {.object.spec.limited.nominalConcurrencyShares}{"\n"}`}}.command(t)
		lines := start(t, cmd.StdoutPipe, cmd.Start)
		awaitLine(t, lines, "ADDED matrix-a 5")
		hostedKubectl(t, levelOf("matrix-w", 1), "create", "-f", "-")
		awaitLine(t, lines, "ADDED matrix-w 1")
		hostedKubectl(t, levelOf("matrix-w", 2), "replace", "-f", "-")
		awaitLine(t, lines, "MODIFIED matrix-w 2")
		hostedKubectl(t, "", "label", "prioritylevelconfiguration", "matrix-w", "test=other", "--overwrite")
		awaitLine(t, lines, "DELETED matrix-w 2")
		hostedKubectl(t, "", "delete", "prioritylevelconfiguration", "matrix-w")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		// The table of a watch, which the server prints too.
		cmd = kubectlRun{Args: []string{"get", "flowschemas", "--field-selector=metadata.name=matrix-b", "--watch"}}.command(t)
		lines = start(t, cmd.StdoutPipe, cmd.Start)
		awaitLine(t, lines, "600")
		hostedKubectl(t, schemaOf("matrix-b", 650), "apply", "-f", "-")
		awaitLine(t, lines, "650")
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	t.Run("apply by the client", func(t *testing.T) {
		expect(t, "created (server dry run)", hostedKubectl(t, levelOf("matrix-c", 1), "apply", "--dry-run=server", "-f", "-"))
		refused(t, "NotFound", "", "get", "prioritylevelconfiguration", "matrix-c")
		expect(t, "created", hostedKubectl(t, levelOf("matrix-c", 1), "apply", "-f", "-"))
		expect(t, "unchanged", hostedKubectl(t, levelOf("matrix-c", 1), "apply", "-f", "-"))
		expect(t, "configured", hostedKubectl(t, levelOf("matrix-c", 2), "apply", "-f", "-"))
		expect(t, "2", shares("matrix-c"))
		printed, err := kubectlRun{Stdin: levelOf("matrix-c", 3), Args: []string{"diff", "-f", "-"}}.run(t)
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("kubectl diff: %v\n%s", err, printed)
		}
		expect(t, "+    nominalConcurrencyShares: 3", printed)
		if printed := hostedKubectl(t, levelOf("matrix-c", 2), "diff", "-f", "-"); printed != "" {
			t.Errorf("a difference where there is none: %s", printed)
		}
		expect(t, "created", hostedKubectl(t, levelOf("matrix-p1", 1)+"---"+levelOf("matrix-p2", 1), "apply", "--prune", "-l", "test=matrix,none!=x",
			"--prune-allowlist=flowcontrol.apiserver.k8s.io/v1/PriorityLevelConfiguration", "-f", "-"))
		refused(t, "NotFound", "", "get", "prioritylevelconfiguration", "matrix-c")
	})

	t.Run("apply by the server", func(t *testing.T) {
		expect(t, "serverside-applied", hostedKubectl(t, levelOf("matrix-s", 1), "apply", "--server-side", "-f", "-"))
		expect(t, "serverside-applied", hostedKubectl(t, levelOf("matrix-s", 1), "apply", "--server-side", "-f", "-"))
		hostedKubectl(t, "", "patch", "prioritylevelconfiguration", "matrix-s", "--type=merge", "-p", `{"spec":{"limited":{"nominalConcurrencyShares":8}}}`)
		refused(t, `conflict with "kubectl-patch" using flowcontrol.apiserver.k8s.io/v1: .spec.limited.nominalConcurrencyShares`, levelOf("matrix-s", 1), "apply", "--server-side", "-f", "-")
		expect(t, "server dry run", hostedKubectl(t, levelOf("matrix-s", 1), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"))
		expect(t, "8", shares("matrix-s"))
		expect(t, "serverside-applied", hostedKubectl(t, levelOf("matrix-s", 1), "apply", "--server-side", "--force-conflicts", "-f", "-"))
		expect(t, "1", shares("matrix-s"))
		expect(t, "manager: kubectl", hostedKubectl(t, "", "get", "prioritylevelconfiguration", "matrix-s", "-o", "yaml", "--show-managed-fields"))
		// An object of client-side apply is migrated to server-side apply.
		hostedKubectl(t, levelOf("matrix-m", 1), "apply", "-f", "-")
		expect(t, "serverside-applied", hostedKubectl(t, levelOf("matrix-m", 2), "apply", "--server-side", "-f", "-"))
		expect(t, "2", shares("matrix-m"))
	})

	t.Run("change", func(t *testing.T) {
		expect(t, "edited", mustRun(t, kubectlRun{Editor: `sed -i 's/nominalConcurrencyShares: 5/nominalConcurrencyShares: 6/' "$1"`, Args: []string{"edit", "prioritylevelconfiguration", "matrix-a"}}))
		expect(t, "6", shares("matrix-a"))
		expect(t, "cancelled", mustRun(t, kubectlRun{Editor: `true`, Args: []string{"edit", "prioritylevelconfiguration", "matrix-a"}}))
		for kind, patch := range map[string]string{
			"json": `[{"op":"replace","path":"/spec/limited/nominalConcurrencyShares","value":7}]`, "merge": `{"spec":{"limited":{"nominalConcurrencyShares":8}}}`, "strategic": `{"spec":{"limited":{"nominalConcurrencyShares":9}}}`,
		} {
			expect(t, "patched", hostedKubectl(t, "", "patch", "prioritylevelconfiguration", "matrix-a", "--type="+kind, "-p", patch))
			expect(t, "(no change)", hostedKubectl(t, "", "patch", "prioritylevelconfiguration", "matrix-a", "--type="+kind, "-p", patch))
		}
		expect(t, "patched", hostedKubectl(t, "", "patch", "flowschema", "matrix-a", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[{"type":"Matrix","status":"True"}]}}`))
		expect(t, "replaced", hostedKubectl(t, levelOf("matrix-a", 11), "replace", "-f", "-"))
		refused(t, "NotFound", levelOf("matrix-none", 11), "replace", "-f", "-")
		expect(t, "replaced", hostedKubectl(t, levelOf("matrix-a", 12), "replace", "--force", "-f", "-"))
		expect(t, "labeled", hostedKubectl(t, "", "label", "prioritylevelconfiguration", "matrix-a", "colour=red"))
		refused(t, "--overwrite is false", "", "label", "prioritylevelconfiguration", "matrix-a", "colour=blue")
		expect(t, "unlabeled", hostedKubectl(t, "", "label", "prioritylevelconfiguration", "matrix-a", "colour-"))
		expect(t, "annotated", hostedKubectl(t, "", "annotate", "flowschemas", "-l", "test=matrix", "note=one"))
		expect(t, "annotated", hostedKubectl(t, "", "annotate", "flowschema", "matrix-a", "note-"))
		refused(t, "must be a positive value", "", "patch", "flowschema", "matrix-a", "--type=merge", "-p", `{"spec":{"matchingPrecedence":-3}}`)
	})

	t.Run("describe, explain and discovery", func(t *testing.T) {
		expect(t, "Matching Precedence:  700", hostedKubectl(t, "", "describe", "flowschema", "matrix-a"))
		explained := hostedKubectl(t, "", "explain", "flowschema.spec.rules")
		expect(t, "GROUP:      flowcontrol.apiserver.k8s.io", explained)
		expect(t, "subjects", explained)
		expect(t, "-required-", explained)
		expect(t, "nominalConcurrencyShares", hostedKubectl(t, "", "explain", "prioritylevelconfigurations", "--recursive"))
		resources := strings.Fields(hostedKubectl(t, "", "api-resources", "--api-group=flowcontrol.apiserver.k8s.io", "--no-headers"))
		if !slices.Equal(resources, []string{"flowschemas", "flowcontrol.apiserver.k8s.io/v1", "false", "FlowSchema", "prioritylevelconfigurations", "flowcontrol.apiserver.k8s.io/v1", "false", "PriorityLevelConfiguration"}) {
			t.Errorf("resources %q", resources)
		}
		expect(t, "flowcontrol.apiserver.k8s.io/v1\n", hostedKubectl(t, "", "api-versions"))
		expect(t, "Server Version", hostedKubectl(t, "", "version"))
	})

	t.Run("wait", func(t *testing.T) {
		expect(t, "condition met", hostedKubectl(t, "", "wait", "flowschema/matrix-a", "--for=jsonpath={.spec.matchingPrecedence}=700", "--timeout=60s"))
		expect(t, "condition met", hostedKubectl(t, "", "wait", "flowschema/matrix-a", "--for=condition=Dangling=False", "--timeout=60s"))
		cmd := kubectlRun{Args: []string{"wait", "flowschema/matrix-b", "--for=delete", "--timeout=60s", "-v=6"}}.command(t)
		lines := start(t, cmd.StderrPipe, cmd.Start)
		awaitLine(t, lines, "watch=true")
		expect(t, "deleted", hostedKubectl(t, "", "delete", "flowschema", "matrix-b"))
		drain(lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("kubectl wait: %v", err)
		}
	})

	t.Run("auth", func(t *testing.T) {
		expect(t, "yes", hostedKubectl(t, "", "auth", "can-i", "create", "flowschemas.flowcontrol.apiserver.k8s.io"))
		expect(t, "Username", hostedKubectl(t, "", "auth", "whoami"))
		user := hosted(t).User
		if user == "" {
			return
		}
		expect(t, "Username", hostedKubectl(t, "", "--kubeconfig="+user, "auth", "whoami"))
		refused(t, "no", "", "--kubeconfig="+user, "auth", "can-i", "delete", "flowschemas.flowcontrol.apiserver.k8s.io")
		refused(t, `cannot delete resource "flowschemas" in API group "flowcontrol.apiserver.k8s.io" at the cluster scope`, "", "--kubeconfig="+user, "delete", "flowschema", "matrix-a")
	})

	t.Run("delete", func(t *testing.T) {
		expect(t, "deleted (server dry run)", hostedKubectl(t, "", "delete", "flowschema", "matrix-a", "--dry-run=server"))
		expect(t, "deleted", hostedKubectl(t, "", "delete", "flowschema", "matrix-a", "--cascade=foreground"))
		refused(t, "NotFound", "", "delete", "flowschema", "matrix-a")
		expect(t, "deleted", hostedKubectl(t, "", "delete", "prioritylevelconfigurations", "-l", "test=matrix"))
		expect(t, "No resources found", hostedKubectl(t, "", "delete", "prioritylevelconfigurations,flowschemas", "-l", "test=matrix"))
	})

	t.Run("delete --all", func(t *testing.T) {
		names := func() []string {
			return strings.Fields(hostedKubectl(t, "", "get", "flowschemas", "-o", "name"))
		}
		builtIn := names()
		hostedKubectl(t, schemaOf("matrix-all", 9000), "create", "-f", "-")
		printed := hostedKubectl(t, "", "delete", "flowschemas", "--all")
		for _, name := range append(builtIn, "matrix-all") {
			expect(t, fmt.Sprintf("%q deleted", strings.TrimPrefix(name, "flowschema.flowcontrol.apiserver.k8s.io/")), printed)
		}
		// Those that have to be there are there again.
		if err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) { return slices.Equal(names(), builtIn), nil }); err != nil {
			t.Errorf("after all were deleted there are %v, not %v: %v", names(), builtIn, err)
		}
	})

	t.Run("a cluster-scoped object that carries a namespace", func(t *testing.T) {
		carrying := strings.Replace(levelOf("matrix-n", 3), "name: matrix-n", "name: matrix-n, namespace: somewhere", 1)
		for _, args := range [][]string{{"create"}, {"apply"}, {"apply", "--server-side", "--force-conflicts"}, {"replace"}} {
			hostedKubectl(t, carrying, append(args, "-f", "-")...)
		}
		if printed := hostedKubectl(t, "", "get", "prioritylevelconfiguration", "matrix-n", "-o", "jsonpath={.metadata.namespace}"); printed != "" {
			t.Errorf("the namespace stayed: %q", printed)
		}
		expect(t, "deleted", hostedKubectl(t, carrying, "delete", "-f", "-"))
	})
}

// mustRun runs kubectl, which has to succeed.
func mustRun(t *testing.T, run kubectlRun) string {
	t.Helper()
	printed, err := run.run(t)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(run.Args, " "), err, printed)
	}
	return printed
}

func TestDeletingACollectionOfTheHostedAPI(t *testing.T) {
	onEachStore(t, deleteCollections)
}

func deleteCollections(t *testing.T, server *Hosted) {
	server.clear(t, "test=collection")
	ctx := inTime(t, 20*time.Minute)
	config := server.config(t)
	levels := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config)).FlowcontrolV1().PriorityLevelConfigurations()
	selected := metav1.ListOptions{LabelSelector: "test=collection"}
	fill := func(t *testing.T) {
		t.Helper()
		for i := range 3 {
			shares := int32(1)
			must[*flowcontrolv1.PriorityLevelConfiguration](t)(levels.Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("collection-%d", i), Labels: map[string]string{"test": "collection"}},
				Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: &shares, LimitResponse: flowcontrolv1.LimitResponse{Type: "Reject"},
				}},
			}, metav1.CreateOptions{}))
		}
	}
	left := func(t *testing.T) int {
		t.Helper()
		return len(must[*flowcontrolv1.PriorityLevelConfigurationList](t)(levels.List(ctx, selected)).Items)
	}
	raw := func(t *testing.T, query string) (int, string) {
		t.Helper()
		transport := must[http.RoundTripper](t)(rest.TransportFor(config))
		request := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodDelete, config.Host+levelsPath+"?labelSelector=test%3Dcollection"+query, nil))
		response := must[*http.Response](t)(transport.RoundTrip(request))
		defer response.Body.Close()
		return response.StatusCode, string(must[[]byte](t)(io.ReadAll(response.Body)))
	}
	t.Run("by client-go", func(t *testing.T) {
		fill(t)
		if err := levels.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil || left(t) != 0 {
			t.Errorf("%v, left %d", err, left(t))
		}
	})
	t.Run("by a request without a body", func(t *testing.T) {
		fill(t)
		if code, body := raw(t, "&dryRun=All"); code != http.StatusOK || !strings.Contains(body, `"collection-2"`) || left(t) != 3 {
			t.Errorf("%d %s, left %d", code, body, left(t))
		}
		if code, body := raw(t, ""); code != http.StatusOK || !strings.Contains(body, `"PriorityLevelConfigurationList"`) || left(t) != 0 {
			t.Errorf("%d %s, left %d", code, body, left(t))
		}
	})
	t.Run("with a resource version in the query, which then is a precondition as well", func(t *testing.T) {
		fill(t)
		if code, body := raw(t, "&resourceVersion=0"); code != http.StatusConflict {
			t.Errorf("%d %s, left %d", code, body, left(t))
		}
	})
}

// An informer sees every change, also those around a restart of the server, and misses none.
func TestAnInformerOfTheHostedAPISurvivesARestart(t *testing.T) {
	onEachStore(t, restartUnderAnInformer)
}

func restartUnderAnInformer(t *testing.T, server *Hosted) {
	server.clear(t, "test=informer")
	ctx, cancel := context.WithCancel(inTime(t, 20*time.Minute))
	defer cancel()
	client := server.client(t)
	schemas := client.FlowcontrolV1().FlowSchemas()
	create := func(name string) {
		t.Helper()
		must[*flowcontrolv1.FlowSchema](t)(schemas.Create(ctx, &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "informer"}},
			Spec:       flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 500, PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "global-default"}},
		}, metav1.CreateOptions{}))
	}
	create("informer-before")

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "test=informer" }))
	informer := factory.Flowcontrol().V1().FlowSchemas().Informer()
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not synchronise")
	}
	await := func(want ...string) {
		t.Helper()
		var kept []string
		err := poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
			kept = kept[:0]
			for _, object := range informer.GetStore().List() {
				schema := object.(*flowcontrolv1.FlowSchema)
				kept = append(kept, fmt.Sprintf("%s %d", schema.Name, schema.Spec.MatchingPrecedence))
			}
			slices.Sort(kept)
			return slices.Equal(kept, want), nil
		})
		if err != nil {
			t.Fatalf("the cache holds %q, want %q", kept, want)
		}
	}
	await("informer-before 500")
	create("informer-during")
	await("informer-before 500", "informer-during 500")
	patch := func(name, precedence string) {
		t.Helper()
		must[*flowcontrolv1.FlowSchema](t)(schemas.Patch(ctx, name, "application/merge-patch+json", []byte(`{"spec":{"matchingPrecedence":`+precedence+`}}`), metav1.PatchOptions{}))
	}
	patch("informer-during", "501")
	await("informer-before 500", "informer-during 501")

	if server.Restart != nil {
		versionBefore := must[*flowcontrolv1.FlowSchema](t)(schemas.Get(ctx, "informer-during", metav1.GetOptions{})).ResourceVersion
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
		object := must[*flowcontrolv1.FlowSchema](t)(schemas.Get(ctx, "informer-during", metav1.GetOptions{}))
		// A condition may have been written meanwhile, but no version occurs twice.
		if newer(versionBefore, object.ResourceVersion) {
			t.Errorf("a restart brought the resource version back from %s to %s", versionBefore, object.ResourceVersion)
		}
		patch("informer-during", "502")
		create("informer-after")
		await("informer-after 500", "informer-before 500", "informer-during 502")
	} else {
		create("informer-after")
		patch("informer-during", "502")
		await("informer-after 500", "informer-before 500", "informer-during 502")
	}
	if err := schemas.Delete(ctx, "informer-before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("informer-after 500", "informer-during 502")
	if _, err := schemas.Get(ctx, "informer-before", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object should be NotFound, got %v", err)
	}
}
