package cluster

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// The last document tells when the others are in force.
	forwardedPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: forwarded}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubectl: forwarded}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, pods, pods/ephemeralcontainers]}
    - {apiGroups: [""], apiVersions: [v1], operations: [CONNECT], resources: [pods/exec, pods/portforward]}
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments, deployments/scale]}
    - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [configmaps, pods]}
  validations:
  - expression: "request.kind.kind != 'ConfigMap' || object == null || object.data.mode != 'slow'"
    messageExpression: "'no slow mode in ' + object.metadata.name"
    reason: Forbidden
  - expression: "request.kind.kind != 'PodExecOptions' || object.command[0] != 'rm'"
    message: nobody runs rm
  - expression: "!(request.kind.kind in ['Deployment', 'Scale']) || object.spec.replicas < 5"
    messageExpression: "string(object.spec.replicas) + ' replicas'"
  - expression: "request.operation != 'DELETE' || !('kept' in oldObject.metadata.?labels.orValue({}))"
    message: kept
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: forwarded}
spec: {policyName: forwarded, validationActions: [%s]}
`
	forwardedConfigMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"mode":"%s"}}`
	forwardedPod       = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"app"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
)

// What kubectl prints through a gateway that enforces policies on what it forwards is what it prints on a server that does.
func TestKubectlIsRefusedAndWarnedThroughAGateway(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	bed, gateway := must[*AdmissionBed](t)(admissionBed()), evaluatingFairgate(t, FairgateOptions{Admission: "enforce"})
	of := func(action string) string { return strings.Replace(forwardedPolicy, "%s", action, 1) }
	configMap := func(name, mode string) string {
		return strings.NewReplacer(`"name":"%s"`, `"name":"`+name+`"`, `"mode":"%s"`, `"mode":"`+mode+`"`).Replace(forwardedConfigMap)
	}
	type step struct {
		stdin string
		until string // it is repeated until it prints this
		args  []string
	}
	steps := []step{
		{"", "", []string{"create", "namespace", "forwarded"}},
		{"", "", []string{"label", "namespace", "forwarded", "kubectl=forwarded"}},
		{of("Deny"), "", []string{"apply", "-f", "-"}},
		{configMap("probe", "slow"), "denied request", []string{"create", "--dry-run=server", "-f", "-"}},
		{configMap("one", "slow"), "", []string{"create", "-f", "-"}},
		{configMap("one", "slow"), "", []string{"apply", "-f", "-"}},
		{configMap("one", "slow"), "", []string{"apply", "--server-side", "-f", "-"}},
		{configMap("one", "fast"), "", []string{"apply", "-f", "-"}},
		{configMap("one", "slow"), "", []string{"apply", "-f", "-"}},
		{configMap("one", "slow"), "", []string{"diff", "-f", "-"}},
		{configMap("one", "slow"), "", []string{"replace", "-f", "-"}},
		{"", "", []string{"patch", "configmap", "one", "--type=merge", "-p", `{"data":{"mode":"slow"}}`}},
		{"", "", []string{"label", "configmap", "one", "kept=yes"}},
		{"", "", []string{"delete", "configmap", "one"}},
		{"", "", []string{"delete", "configmaps", "--selector=kept"}},
		{forwardedPod, "", []string{"create", "-f", "-"}},
		{"", "", []string{"exec", "app", "--", "rm", "-r", "/"}},
		{"", "", []string{"exec", "app", "--", "ls"}},
		{"", "", []string{"create", "deployment", "many", "--image=i", "--replicas=7"}},
		{"", "", []string{"create", "deployment", "few", "--image=i", "--replicas=2"}},
		{"", "", []string{"scale", "deployment", "few", "--replicas=8"}},
		{"", "", []string{"scale", "deployment", "few", "--replicas=3"}},
		{"", "", []string{"set", "image", "deployment/few", "i=j"}},
		{of("Warn"), "", []string{"apply", "-f", "-"}},
		{configMap("probe", "slow"), "created", []string{"create", "--dry-run=server", "-f", "-"}},
		{configMap("two", "slow"), "", []string{"create", "-f", "-"}},
		{configMap("two", "slow"), "", []string{"apply", "-f", "-"}},
		{configMap("two", "slow"), "", []string{"apply", "--server-side", "--field-manager=other", "-f", "-"}},
		{configMap("two", "slow"), "", []string{"create", "--warnings-as-errors", "-f", "-"}},
		{"", "", []string{"exec", "app", "--", "rm", "-r", "/"}},
		{"", "", []string{"scale", "deployment", "few", "--replicas=9"}},
		{"", "", []string{"delete", "configmap", "one"}},
		{"", "", []string{"get", "configmaps,deployments,pods", "-o", "name"}},
		{of("Warn"), "", []string{"delete", "-f", "-"}},
	}
	printed := map[string][]string{}
	for name, at := range map[string]Endpoint{"server": bed.Enforcing.Endpoint, "gateway": gateway.Endpoint} {
		for _, step := range steps {
			var text string
			err := poll(changeLimit, 200*time.Millisecond, func() (bool, error) {
				cmd := must[*exec.Cmd](t)(shared.Kubectl(inTime(t, 20*time.Minute), at, shared.admin, append([]string{"--namespace=forwarded"}, step.args...)...))
				cmd.Stdin = strings.NewReader(step.stdin)
				both, err := cmd.CombinedOutput()
				if text = string(both); err != nil {
					text = "failed: " + text
				}
				return strings.Contains(text, step.until), nil
			})
			if err != nil {
				t.Fatalf("%s: kubectl %s printed %s", name, strings.Join(step.args, " "), text)
			}
			printed[name] = append(printed[name], inForwarded.ReplaceAllString(text, "…"))
		}
	}
	refused, warnings := 0, 0
	for number, step := range steps {
		want, got := printed["server"][number], printed["gateway"][number]
		if got != want {
			t.Errorf("kubectl %s\nserver\n%s\ngateway\n%s", strings.Join(step.args, " "), want, got)
		}
		if strings.Contains(want, "denied request") {
			refused++
		}
		if strings.Contains(want, "Warning: Validation failed") {
			warnings++
		}
	}
	if refused < 10 || warnings < 5 {
		t.Errorf("%d commands were refused and %d warned about: %q", refused, warnings, printed["server"])
	}
	if !slices.Equal(printed["server"], printed["gateway"]) {
		t.Log(gateway.Log(20))
	}
	t.Logf("KUBECTL_FORWARDED {\"commands\":%d,\"refused\":%d,\"warned\":%d}", len(steps), refused, warnings)
}

// inForwarded is what differs in the output of kubectl from one server to the next: names of files, times, uids and versions.
var inForwarded = regexp.MustCompile(`/tmp/[^ \t\n]+|\d{4}-\d\d-\d\d[T ][^ \n]+( \+0000)?|[0-9a-f]{8}-[0-9a-f-]{27}|resourceVersion: "\d+"`)
