package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What differs from one server to the next, or from one moment to the next.
var (
	inYAML = regexp.MustCompile(`(creationTimestamp|resourceVersion|uid|time): .*`)
	// The ages with their heading, and the spaces around them: the longest age decides how many these are.
	inColumns = regexp.MustCompile(` +(AGE|(\d+[smh])+)\b *`)
)

// kubectl does with the budgets that fairgate hosts, without and with an upstream, what it does with those of a real
// server: the same words, tables and descriptions.
func TestKubectlOnHostedBudgets(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := must[*Apiserver](t)(evictionBed())
	ctx := inTime(t, 20*time.Minute)
	succeeds(t, Grant(ctx, server.Admin, "hosts-budgets", ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", Source: "overlay", User: "hosts-budgets", Upstream: server.URL, Eviction: "authoritative"})
	succeeds(t, gateway.Start())
	for _, name := range []string{"budgets-a", "budgets-b"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
	}
	at := func(endpoint Endpoint) func(...string) string {
		return func(args ...string) string { return kubectl(t, endpoint, shared.admin, "", args...) }
	}
	kubectls := map[string]func(...string) string{
		"real":       at(server.Endpoint),
		"overlay":    at(gateway.Endpoint),
		"standalone": func(args ...string) string { return hostedKubectl(t, "", args...) },
	}
	steps := [][]string{
		{"create", "poddisruptionbudget", "one", "-n", "budgets-a", "--selector=app=web", "--min-available=50%"},
		{"create", "pdb", "two", "-n", "budgets-a", "--selector=app=db,tier in (a,b)", "--max-unavailable=1"},
		{"create", "pdb", "one", "-n", "budgets-b", "--selector=app=web", "--min-available=2"},
		{"create", "pdb", "dry", "-n", "budgets-b", "--selector=app=web", "--min-available=2", "--dry-run=server"},
		{"get", "pdb", "-n", "budgets-a"},
		{"get", "pdb", "-n", "budgets-a", "-o", "wide"},
		{"get", "pdb", "-n", "budgets-a", "-o", "name"},
		{"get", "pdb", "-n", "budgets-a", "--show-labels"},
		{"get", "poddisruptionbudgets.policy", "one", "-n", "budgets-a", "-o", "yaml", "--show-managed-fields"},
		{"get", "pdb", "-A", "--field-selector=metadata.name=one"},
		{"get", "pdb", "-n", "budgets-a", "--sort-by=.metadata.name", "-o", "custom-columns=NS:.metadata.namespace,MIN:.spec.minAvailable,MAX:.spec.maxUnavailable"},
		{"patch", "pdb", "one", "-n", "budgets-a", "--type=merge", "-p", `{"spec":{"minAvailable":"60%","unhealthyPodEvictionPolicy":"AlwaysAllow"}}`},
		{"label", "pdb", "one", "-n", "budgets-a", "team=web"},
		{"patch", "pdb", "one", "-n", "budgets-a", "--subresource=status", "--type=merge", "-p", `{"status":{"disruptionsAllowed":2,"currentHealthy":5,"desiredHealthy":3,"expectedPods":5,"observedGeneration":2}}`},
		{"describe", "pdb", "one", "-n", "budgets-a"},
		{"describe", "pdb", "two", "-n", "budgets-a"},
		{"get", "pdb", "one", "-n", "budgets-a", "-o", "yaml"},
		{"delete", "pdb", "two", "-n", "budgets-a"},
		{"delete", "pdb", "--all", "-n", "budgets-b"},
	}
	printed := map[string][]string{}
	for name, run := range kubectls {
		for _, step := range steps {
			text := inColumns.ReplaceAllString(inYAML.ReplaceAllString(run(step...), "$1: …"), " …")
			printed[name] = append(printed[name], text)
		}
	}
	for index, step := range steps {
		for _, name := range []string{"overlay", "standalone"} {
			if want, got := printed["real"][index], printed[name][index]; got != want {
				t.Errorf("%s: kubectl %s\nreal server\n%s\nfairgate\n%s", name, strings.Join(step, " "), want, got)
			}
		}
	}
	for _, name := range []string{"overlay", "standalone"} {
		t.Run(name, func(t *testing.T) { explainsBudgets(t, kubectls[name], kubectls["real"]) })
	}
	t.Run("watch", func(t *testing.T) { watchesBudgets(t, gateway.Endpoint) })
	for _, run := range kubectls {
		run("delete", "pdb", "--all", "-n", "budgets-a")
	}
	t.Logf("KUBECTL_BUDGETS {\"commands\":%d}", len(steps))
}

// explainsBudgets compares the fields and types that are explained. The texts are fairgate's own.
func explainsBudgets(t *testing.T, run, real func(...string) string) {
	t.Helper()
	for _, field := range []string{"pdb", "pdb.spec", "pdb.spec.selector", "pdb.spec.unhealthyPodEvictionPolicy", "poddisruptionbudgets.status", "pdb.status.disruptedPods", "pdb.status.conditions"} {
		args := []string{"explain", field, "--recursive"}
		want, got := fieldLines(real(args...)), fieldLines(run(args...))
		if !slices.Equal(want, got) {
			t.Errorf("kubectl explain %s\nreal server\n%s\nfairgate\n%s", field, strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	text := run("api-resources", "--api-group=policy", "--no-headers")
	if fields := strings.Join(strings.Fields(text), " "); !strings.Contains(fields, "poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget") {
		t.Errorf("kubectl api-resources: %s", text)
	}
}

// fieldLines are the lines about a kind or field and its type.
func fieldLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "\t<") || strings.HasPrefix(line, "GROUP:") || strings.HasPrefix(line, "KIND:") || strings.HasPrefix(line, "VERSION:") || strings.HasPrefix(line, "FIELD: ") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

func watchesBudgets(t *testing.T, at Endpoint) {
	t.Helper()
	cmd, err := shared.Kubectl(inTime(t, 20*time.Minute), at, shared.admin, "get", "pdb", "-A", "-w", "--no-headers")
	if err != nil {
		t.Fatal(err)
	}
	lines := start(t, cmd.StdoutPipe, cmd.Start)
	awaitLine(t, lines, "60%")
	patch := func(least string) {
		kubectl(t, at, shared.admin, "", "patch", "pdb", "one", "-n", "budgets-a", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"minAvailable":"%s"}}`, least))
	}
	for _, least := range []string{"70%", "80%"} {
		patch(least)
		awaitLine(t, lines, least)
	}
	_ = cmd.Process.Kill() // it would watch for ever
	_ = cmd.Wait()
}
