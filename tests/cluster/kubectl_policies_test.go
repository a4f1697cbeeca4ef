package cluster

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// A policy with a mistake that only a type checker sees, its binding, and a level that it refuses.
const (
	kubectlPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few-shares}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {judged: "yes"}}
    resourceRules:
    - {apiGroups: [flowcontrol.apiserver.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [prioritylevelconfigurations]}
  validations:
  - expression: object.spec.limited.nominalConcurrencyShares < 10
    messageExpression: "'too many shares: ' + string(object.spec.limited.nominalConcurrencyShares)"
  - expression: "!has(object.spec.nope)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few-shares}
spec: {policyName: few-shares, validationActions: [%s]}
`
	kubectlLevel = `
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: judged, labels: {judged: "yes"}}
spec: {type: Limited, limited: {nominalConcurrencyShares: 12, limitResponse: {type: Reject}}}
`
)

// inDescription is what differs there from one server to the next.
var inDescription = regexp.MustCompile(`(Creation Timestamp|Resource Version|UID): .*`)

// kubectl does with the admission policies that fairgate hosts what it does with those of a real server: the same words,
// tables, refusals, warnings and descriptions.
func TestKubectlOnHostedPolicies(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	server := must[*Apiserver](t)(evictionBed())
	kubectls := map[string]func(stdin string, args ...string) (string, error){
		"real": func(stdin string, args ...string) (string, error) {
			cmd := must[*exec.Cmd](t)(shared.Kubectl(inTime(t, 20*time.Minute), server.Endpoint, shared.admin, args...))
			cmd.Stdin = strings.NewReader(stdin)
			both, err := cmd.CombinedOutput()
			return string(both), err
		},
		"fairgate": func(stdin string, args ...string) (string, error) {
			return kubectlRun{Stdin: stdin, Args: args}.run(t)
		},
	}
	type step struct {
		stdin string
		args  []string
	}
	of := func(action string) string { return strings.Replace(kubectlPolicy, "%s", action, 1) }
	steps := []step{
		{of("Deny"), []string{"apply", "-f", "-"}},
		{of("Deny"), []string{"apply", "-f", "-"}},
		// A conflict: the constraints have got defaults.
		{of("Deny"), []string{"apply", "--server-side", "--dry-run=server", "-f", "-"}},
		{"", []string{"get", "validatingadmissionpolicies", "few-shares"}},
		{"", []string{"get", "validatingadmissionpolicybindings", "few-shares"}},
		{"", []string{"get", "validatingadmissionpolicybindings", "few-shares", "-o", "yaml", "--show-managed-fields"}},
		{"", []string{"get", "validatingadmissionpolicies", "few-shares", "-o", "jsonpath={.spec}"}},
		{"", []string{"describe", "validatingadmissionpolicybindings", "few-shares"}},
		{kubectlLevel, []string{"create", "--dry-run=server", "-f", "-"}}, // until it is refused
		{kubectlLevel, []string{"create", "-f", "-"}},
		{kubectlLevel, []string{"apply", "-f", "-"}},
		{kubectlLevel, []string{"apply", "--server-side", "-f", "-"}},
		{of("Warn"), []string{"apply", "-f", "-"}},
		{kubectlLevel, []string{"create", "--dry-run=server", "-f", "-"}}, // until it is not
		{kubectlLevel, []string{"create", "-f", "-"}},
		{"", []string{"delete", "prioritylevelconfiguration", "judged"}},
		{"", []string{"patch", "validatingadmissionpolicy", "few-shares", "--type=merge", "-p", `{"spec":{"validations":[{"expression":"object.x +"}]}}`}},
		{"", []string{"delete", "validatingadmissionpolicybindings", "few-shares"}},
		{"", []string{"delete", "validatingadmissionpolicies", "few-shares"}},
	}
	printed := map[string][]string{}
	refusals := map[string][]int{}
	for name, run := range kubectls {
		for number, step := range steps {
			text, err := run(step.stdin, step.args...)
			if number == 8 || number == 13 {
				refused := number == 8
				if failed := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
					text, err = run(step.stdin, step.args...)
					return (err != nil) == refused, nil
				}); failed != nil {
					t.Fatalf("%s: %s: %v", name, text, err)
				}
			}
			if err != nil {
				text, refusals[name] = "failed: "+text, append(refusals[name], number)
			}
			text = inDescription.ReplaceAllString(inYAML.ReplaceAllString(text, "$1: …"), "$1: …")
			printed[name] = append(printed[name], inColumns.ReplaceAllString(text, " …"))
		}
	}
	for number, step := range steps {
		if want, got := printed["real"][number], printed["fairgate"][number]; got != want {
			t.Errorf("kubectl %s\nreal server\n%s\nfairgate\n%s", strings.Join(step.args, " "), want, got)
		}
	}
	if want := []int{2, 8, 9, 10, 11, 16}; !slices.Equal(refusals["fairgate"], want) {
		t.Errorf("the commands %v were refused, want %v: %q", refusals, want, printed["fairgate"])
	}
	for _, field := range []string{"validatingadmissionpolicy", "validatingadmissionpolicy.spec", "validatingadmissionpolicy.spec.matchConstraints", "validatingadmissionpolicy.spec.validations", "validatingadmissionpolicy.status",
		"validatingadmissionpolicybinding", "validatingadmissionpolicybinding.spec.paramRef"} {
		explained := func(name string) []string {
			text, err := kubectls[name]("", "explain", field, "--recursive")
			if err != nil {
				t.Fatalf("%s: %s: %v", name, text, err)
			}
			return fieldLines(text)
		}
		if want, got := explained("real"), explained("fairgate"); !slices.Equal(want, got) || len(got) < 4 {
			t.Errorf("kubectl explain %s\nreal server\n%s\nfairgate\n%s", field, strings.Join(want, "\n"), strings.Join(got, "\n"))
		}
	}
	t.Run("status", func(t *testing.T) { typeChecks(t, kubectls["fairgate"], of("Audit")) })
	t.Logf("KUBECTL_POLICIES {\"commands\":%d}", len(steps))
}

// typeChecks waits until fairgate has written what is wrong with a policy into its status.
func typeChecks(t *testing.T, run func(stdin string, args ...string) (string, error), manifest string) {
	t.Helper()
	if text, err := run(manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(text, err)
	}
	const warning = "undefined field 'nope'"
	err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		text, err := run("", "get", "validatingadmissionpolicies", "few-shares", "-o", "jsonpath={.status.typeChecking.expressionWarnings[0].warning}")
		return strings.Contains(text, warning), err
	})
	if err != nil {
		t.Errorf("the status has no warning %q: %v", warning, err)
	}
	if text, err := run(manifest, "delete", "-f", "-"); err != nil {
		t.Error(text, err)
	}
}
