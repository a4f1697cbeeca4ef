package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// generatedName is what a server makes of a generateName: its end.
const generatedName = `-[bcdfghjklmnpqrstvwxz2456789]{5}`

// namesPolicy denies pods whose names a server would not have generated for these Deployments, and all of one Deployment.
var namesPolicy = []string{
	`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"names"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["pods"]}]},"validations":[` +
		`{"expression":"object.metadata.name.matches('^(web|kept-out)-[a-z0-9]+` + generatedName + `$') && request.name == object.metadata.name"},` +
		`{"expression":"!object.metadata.name.startsWith('kept-out-')","message":"kept out"}]}}`,
	`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"names"},"spec":{"policyName":"names","validationActions":["Deny"]}}`,
}

// A policy reads the names of pods, which a server generates before it asks policies. The controllers of Kubernetes work through the
// gateway that enforces it: a Deployment gets its pods, and one that is kept out is told why in the server's words.
func TestADeploymentGetsItsPodsThoughAPolicyReadsTheirNames(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	ctx := inTime(t, 10*time.Minute)
	server := must[*Apiserver](t)(shared.StartApiserver("generated-names", "", uidFlag, "--enable-priority-and-fairness=false", "--disable-admission-plugins=ServiceAccount,ValidatingAdmissionPolicy"))
	const user = "name-giver"
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	succeeds(t, GrantRules(ctx, server.Admin, user, user+"-everything", everything))
	side := newDocumentSide(t, server.Name, server.Endpoint)
	for index, path := range []string{policiesPath, bindingsPath} {
		succeeds(t, side.must(ctx, "POST", path, namesPolicy[index], 201))
	}
	for _, fidelity := range []string{"completed", "dryRun"} {
		gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: server.URL, Off: true, Admission: "enforce", Fidelity: fidelity})
		succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
		at := gateway.Endpoint
		at.Name = "names-" + strings.ToLower(fidelity)
		manager := must[*process](t)(shared.StartControllerManager(at, "deployment-controller", "replicaset-controller"))
		namespace := "names-" + strings.ToLower(fidelity)
		must[*corev1.Namespace](t)(server.Admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}))
		for _, name := range []string{"web", "kept-out"} {
			must[*appsv1.Deployment](t)(server.Admin.AppsV1().Deployments(namespace).Create(ctx, deploymentOf(name), metav1.CreateOptions{}))
		}
		succeeds(t, untilPodsOf(ctx, server.Admin, namespace))
		message, err := failureOf(ctx, server.Admin, namespace, "kept-out")
		succeeds(t, err)
		want := regexp.MustCompile(`^pods "kept-out-[a-z0-9]+` + generatedName + `" is forbidden: ValidatingAdmissionPolicy 'names' with binding 'names' denied request: kept out$`)
		if !want.MatchString(message) {
			t.Errorf("%s: the Deployment that is kept out says %q", fidelity, message)
		}
		_ = manager.stop(10 * time.Second) // a signal ends it
	}
}

const podsOfADeployment = 5

func deploymentOf(name string) *appsv1.Deployment {
	replicas, labels := int32(podsOfADeployment), map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}},
	}}
}

// untilPodsOf waits until the Deployment web has its pods, each of which still says what its name begins with.
func untilPodsOf(ctx context.Context, client kubernetes.Interface, namespace string) error {
	found := 0
	err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return false, err
		}
		for _, pod := range pods.Items {
			if pod.GenerateName == "" || !strings.HasPrefix(pod.Name, pod.GenerateName) || len(pod.Name) != len(pod.GenerateName)+5 {
				return false, fmt.Errorf("a pod is named %q, which was to begin with %q", pod.Name, pod.GenerateName)
			}
		}
		found = len(pods.Items)
		return found == podsOfADeployment, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d pods: %w", found, podsOfADeployment, err)
	}
	return nil
}

// failureOf waits until the ReplicaSet of a Deployment says why it has no pods.
func failureOf(ctx context.Context, client kubernetes.Interface, namespace, name string) (message string, err error) {
	err = poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		sets, err := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return false, err
		}
		for _, set := range sets.Items {
			for _, condition := range set.Status.Conditions {
				if condition.Type == appsv1.ReplicaSetReplicaFailure {
					message = condition.Message
				}
			}
		}
		return message != "", nil
	})
	return message, err
}
