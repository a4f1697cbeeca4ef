package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

var auditedSteps = flag.Int("audited-steps", 120, "number of changes that controllers work off while a gateway and a server record what policies find; with -measure as many as 20 minutes take")

const (
	auditedNamespace = "audited"
	auditedProbe     = "probe"
	// auditedPrefix begins the name of each policy, and so the key of each annotation that a policy asks for.
	auditedPrefix = "audited-"
)

// auditedPolicies record what controllers write: generated names, defaults, another version, statuses, and what only the server sets.
func auditedPolicies() (policies []string) {
	add := func(name, group, resources, operations, rest string) {
		name = auditedPrefix + name
		policies = append(policies, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{"failurePolicy":"Fail","matchConstraints":{`+
			`"namespaceSelector":{"matchLabels":{"audited":"yes"}},"resourceRules":[{"apiGroups":[%q],"apiVersions":["*"],"operations":[%s],"resources":[%s]}]},%s}}`, name, group, operations, resources, rest),
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%[1]q},"spec":{"policyName":%[1]q,"validationActions":["Audit"]}}`, name))
	}
	fails := func(message string) string {
		return `"validations":[{"expression":"false","messageExpression":` + quoted(message) + `}]`
	}
	add("names", "", `"pods"`, `"CREATE"`, fails(`object.metadata.name + ' ' + request.name + ' ' + object.metadata.generateName + ' ' + object.spec.restartPolicy + ' ' + string(has(object.metadata.uid))`))
	add("images", "", `"pods"`, `"CREATE"`, `"auditAnnotations":[{"key":"images","valueExpression":"object.spec.containers.map(c, c.image + ':' + c.imagePullPolicy).join(',')"},{"key":"owner","valueExpression":"string(object.metadata.ownerReferences[0].name)"}]`)
	add("sets", "apps", `"replicasets"`, `"CREATE","UPDATE"`, fails(`object.metadata.name + ' ' + string(object.spec.replicas) + ' ' + string(object.metadata.generation) + ' ' + request.userInfo.username`))
	add("rollouts", "apps", `"deployments"`, `"CREATE","UPDATE"`, `"matchConditions":[{"name":"few","expression":"object.spec.replicas > 1"}],`+fails(`string(object.spec.replicas) + ' after ' + (oldObject == null ? 'none' : string(oldObject.spec.replicas)) + ' ' + object.spec.strategy.type`))
	add("rollout-states", "apps", `"deployments/status"`, `"UPDATE"`, fails(`string(object.status.?observedGeneration.orValue(0)) + ' ' + string(object.status.?replicas.orValue(0)) + ' ' + string(object.metadata.generation)`))
	add("jobs", "batch", `"jobs","jobs/status"`, `"CREATE","UPDATE"`, fails(`request.?subResource.orValue('-') + ' ' + string(object.spec.backoffLimit) + ' ' + object.spec.completionMode + ' ' + string(object.status.?active.orValue(0))`))
	add("events", "", `"events"`, `"CREATE"`, fails(`object.reason + ' ' + object.involvedObject.kind + ' ' + object.type`))
	add("tolerations", "", `"pods"`, `"CREATE"`, `"auditAnnotations":[{"key":"number","valueExpression":"string(size(object.spec.?tolerations.orValue([])))"}]`)
	add("deletions", "", `"pods"`, `"DELETE"`, fails(`oldObject.metadata.labels.app + ' ' + string(request.options.?gracePeriodSeconds.orValue(-1))`))
	return policies
}

// A recordedRequest is what a server or a gateway has recorded about a request: annotations of policies.
type recordedRequest struct {
	ID          string            `json:"auditID"`
	Stage       string            `json:"stage"`
	Decision    string            `json:"decision"`
	Failure     string            `json:"failure"`
	Operation   string            `json:"operation"`
	Resource    string            `json:"resource"`
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
	// SetByServer is what a policy may have read that only the server sets.
	SetByServer map[string][]string `json:"setByServer"`
	// Agent is the client's name for the request, in the log of a server.
	Agent string `json:"userAgent"`
	// Answer is the response, in the log of a server.
	Answer struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// readRecorded reads a log with one record in a line, by the audit IDs of the requests. Annotations of others than policies are left out.
func readRecorded(file string) (map[string]recordedRequest, error) {
	return readAllRecorded(file, false)
}

// readAllRecorded reads also requests of a server's log that policies have said nothing about, if it is to.
func readAllRecorded(file string, withSilent bool) (map[string]recordedRequest, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	found := map[string]recordedRequest{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one recordedRequest
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for key := range one.Annotations {
			// A server annotates requests for other reasons, too, slow ones for example.
			if !strings.HasPrefix(key, auditedPrefix) && !strings.HasPrefix(key, "validation.policy.admission.k8s.io/") {
				delete(one.Annotations, key)
			}
		}
		if one.Stage != "" && one.Stage != "ResponseComplete" || len(one.Annotations) == 0 && one.Decision == "" && !withSilent {
			continue
		}
		found[one.ID] = one
	}
	return found, lines.Err()
}

// notJudgedShare is the share of the requests with annotations of the server that the gateway may say it could not evaluate.
const notJudgedShare = 0.03

// A gateway in audit mode records of the work of Kubernetes' controllers what the server itself records of the same policies, request by request.
// Left out are few, of which the gateway says that it could not evaluate them.
func TestAuditReportsWhatTheServersAnnotationsReport(t *testing.T) {
	aboutEvaluatingFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, 40*time.Minute)
	world := newAuditedWorld(t, ctx, "audited", auditedPolicies())
	gateway := world.gateway
	client := must[kubernetes.Interface](t)(shared.adminOf(gateway.Endpoint))
	// Both record the last policy's finding, so they have all.
	succeeds(t, poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		if _, err := client.AppsV1().Deployments(auditedNamespace).Create(ctx, deploymentOf(auditedProbe), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return false, err
		}
		recorded, err := readRecorded(world.serverLog)
		return len(recorded) > 0, err
	}))
	at := gateway.Endpoint
	at.Name = "audited"
	manager := must[*process](t)(shared.StartControllerManager(at, "deployment-controller", "replicaset-controller", "job-controller", "garbage-collector-controller"))
	steps := *auditedSteps
	for until, step := time.Now().Add(20*time.Minute), 0; step < steps || *measuring && time.Now().Before(until); step++ {
		succeeds(t, auditedStep(ctx, client, rand.New(rand.NewPCG(1, uint64(step))), step))
	}
	_ = manager.stop(10 * time.Second)
	succeeds(t, gateway.Stop()) // its log is whole then
	compareRecorded(t, must[map[string]recordedRequest](t)(readRecorded(world.serverLog)), must[map[string]recordedRequest](t)(readRecorded(world.log)))
}

// An auditedWorld is a server that writes annotations of policies into its log, and a gateway in audit mode that writes a log of the same policies.
type auditedWorld struct {
	server         *Apiserver
	gateway        *Fairgate
	serverLog, log string
}

func newAuditedWorld(t *testing.T, ctx context.Context, name string, policies []string) auditedWorld {
	t.Helper()
	directory, user := t.TempDir(), name+"-auditor"
	world := auditedWorld{serverLog: filepath.Join(directory, "server.log"), log: filepath.Join(directory, "gateway.log")}
	policy := filepath.Join(directory, "policy.yaml")
	succeeds(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: Metadata, verbs: [create, update, patch, delete]}\n- {level: None}\n"), 0o600))
	world.server = must[*Apiserver](t)(shared.StartApiserver(name, "", uidFlag, "--enable-priority-and-fairness=false", "--disable-admission-plugins=ServiceAccount",
		"--audit-policy-file="+policy, "--audit-log-path="+world.serverLog, "--audit-log-mode=blocking", "--audit-log-maxsize=10000"))
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	succeeds(t, GrantRules(ctx, world.server.Admin, user, user+"-everything", everything))
	side := newDocumentSide(t, world.server.Name, world.server.Endpoint)
	succeeds(t, side.must(ctx, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+auditedNamespace+`","labels":{"audited":"yes"}}}`, 201))
	for i, document := range policies {
		succeeds(t, side.must(ctx, "POST", []string{policiesPath, bindingsPath}[i%2], document, 201))
	}
	world.gateway = newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: world.server.URL, Off: true, Admission: "audit", AdmissionLog: world.log, Fidelity: "completed"})
	succeeds(t, world.gateway.Start(), untilPoliciesAreKnown(world.gateway))
	return world
}

// auditedStep changes something that controllers work off, and waits until they have.
func auditedStep(ctx context.Context, client kubernetes.Interface, random *rand.Rand, step int) error {
	name := fmt.Sprintf("web-%d", step%4)
	deployments := client.AppsV1().Deployments(auditedNamespace)
	if step < 4 {
		wanted := deploymentOf(name)
		*wanted.Spec.Replicas = 2
		_, err := deployments.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	switch random.IntN(5) {
	case 0:
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-%d", step)}}
		job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "example.com/job"}}}
		if _, err := client.BatchV1().Jobs(auditedNamespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return err
		}
	case 1:
		selected := metav1.ListOptions{LabelSelector: "app=" + name}
		pods, err := client.CoreV1().Pods(auditedNamespace).List(ctx, selected)
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		// No kubelet confirms it.
		var now int64
		if err := client.CoreV1().Pods(auditedNamespace).Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			return err
		}
	default:
		replicas := int32(random.IntN(4))
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			scale, err := deployments.GetScale(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			scale.Spec.Replicas = replicas
			_, err = deployments.UpdateScale(ctx, name, scale, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return poll(changeLimit, 20*time.Millisecond, func() (bool, error) {
		found, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return found.Status.ObservedGeneration == found.Generation && found.Status.Replicas == *found.Spec.Replicas, nil
	})
}

// compareRecorded compares two logs, by the audit IDs of the requests.
func compareRecorded(t *testing.T, server, gateway map[string]recordedRequest) {
	counts, failures := map[string]int{}, map[string]int{}
	for id, wanted := range server {
		got := gateway[id]
		switch {
		case asText(got.Annotations) == asText(wanted.Annotations):
			counts["alike"]++
			counts[got.Operation+" "+got.Resource]++
		case got.Decision == "notJudged":
			counts["not judged"]++
			failures[got.Operation+" "+got.Resource+": "+got.Failure]++
		case differsAsMarked(wanted, got):
			counts["marked"]++
			counts[got.Operation+" "+got.Resource]++
		default:
			counts["wrong"]++
			if counts["wrong"] <= 10 {
				t.Errorf("%s %s %s:\nserver:  %s\ngateway: %s", id, got.Operation, got.Resource, asText(wanted.Annotations), asText(got.Annotations))
			}
		}
	}
	for id, got := range gateway {
		if _, found := server[id]; !found && got.Name != auditedProbe && got.Decision != "notJudged" && len(got.Annotations) > 0 {
			counts["invented"]++
			t.Errorf("%s: the server has recorded nothing: %s", id, asText(got.Annotations))
		}
	}
	share := float64(counts["not judged"]) / float64(max(len(server), 1))
	fmt.Printf("AUDIT ANNOTATIONS %s of %d, not judged %.2f %% %s\n", asText(counts), len(server), 100*share, asText(failures))
	if share > notJudgedShare {
		t.Errorf("%.2f %% of %d requests are not judged; at most %.0f %% may be", 100*share, len(server), 100*notJudgedShare)
	}
	if counts["alike"]+counts["marked"] < len(server)/2 || counts["CREATE pods"] < 20 || counts["UPDATE replicasets"] < 20 {
		t.Errorf("of %d requests, too few are alike", len(server))
	}
}

// differsAsMarked says that the annotations differ by those alone of policies that read what only the server sets.
func differsAsMarked(server, gateway recordedRequest) bool {
	all := maps.Clone(server.Annotations)
	maps.Copy(all, gateway.Annotations)
	for key := range all {
		policy, _, _ := strings.Cut(key, "/")
		if server.Annotations[key] != gateway.Annotations[key] && len(gateway.SetByServer[policy]) == 0 {
			return false
		}
	}
	return true
}

func asText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
