package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// replicasOfWork are those of a Deployment of the work, before and after it is scaled.
	replicasOfWork, scaledReplicas = 4, 9
	// measuredRestarts is for how long parts are restarted in turn when that is measured.
	measuredRestarts = 20 * time.Minute
)

// A controlled cluster is Kubernetes' controllers and its scheduler, each at an address of its own, and apiservers behind these.
type controlled struct {
	name     string
	programs []*process
	// client alternates between the addresses.
	client kubernetes.Interface
	// restarts are what is restarted in turn.
	restarts []func() error
}

// kube-controller-manager with all its controllers and kube-scheduler work through two gateways of a fleet, before two apiservers, while each gateway
// and each server is restarted in turn: Deployments get their pods, are scaled and go. Their logs complain of no refusal, and of no
// gateway without a server, unless they do so where they talk to kube-apiservers directly, beside this. With -measure for 20 minutes.
func TestKubernetesWorksThroughAFleetWhosePartsAreRestarted(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	ctx := inTime(t, 50*time.Minute)
	gateways, servers := startFleetOfTwo(t, ctx, "controllers", 200)
	throughFleet := startControlled(t, ctx, "through-fleet", servers[0].Admin, []Endpoint{gateways[0].Endpoint, gateways[1].Endpoint})
	throughFleet.restarts = []func() error{gateways[0].Restart, restartOf(servers[0]), gateways[1].Restart, restartOf(servers[1])}

	first := must[*Apiserver](t)(shared.StartApiserver("first-direct", ""))
	second := must[*Apiserver](t)(shared.StartApiserver("second-direct", "", "--etcd-prefix="+first.Prefix))
	direct := startControlled(t, ctx, "direct", first.Admin, []Endpoint{first.Endpoint, second.Endpoint})
	direct.restarts = []func() error{restartOf(first), restartOf(second), restartOf(first), restartOf(second)}

	for _, side := range []*controlled{direct, throughFleet} {
		side.work(t, ctx, "before")
	}
	begun, rounds := time.Now(), 0
	for more := true; more; more = *measuring && time.Since(begun) < measuredRestarts {
		for part := range throughFleet.restarts {
			for _, side := range []*controlled{direct, throughFleet} {
				succeeds(t, side.restarts[part]())
				side.work(t, ctx, fmt.Sprintf("round-%d-%d", rounds, part))
			}
		}
		rounds++
	}
	usual, found := direct.complaints(t), throughFleet.complaints(t)
	fmt.Printf("CONTROLLERS %s\n", asJSON(map[string]any{"rounds": rounds, "direct": usual, "through a fleet": found}))
	for _, kind := range slices.Sorted(maps.Keys(found)) {
		if usual[kind] == 0 && ofAGateway.MatchString(kind) {
			t.Errorf("%d times, and never directly: %s", found[kind], kind)
		}
	}
}

func restartOf(server *Apiserver) func() error {
	return func() error {
		server.Kill()
		return server.Start()
	}
}

// startControlled starts a controller manager at the first address and a scheduler at the second one, as the users that kubeadm makes them, and three nodes.
func startControlled(t *testing.T, ctx context.Context, name string, admin kubernetes.Interface, at []Endpoint) *controlled {
	t.Helper()
	side := &controlled{name: name}
	// A server is ready before it knows the roles that it has made itself.
	succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:kube-controller-manager",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication",
			},
		}}
		answer, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	}))
	program := func(number int, program string, more ...string) {
		kubeconfig := must[string](t)(shared.Kubeconfig(at[number], must[User](t)(shared.NewUser("system:"+program))))
		port := must[int](t)(freePort("127.0.0.1"))
		arguments := []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		}
		started := must[*process](t)(startProcess(t.TempDir(), name+"-"+program, filepath.Join(shared.bin, program), append(arguments, more...)...))
		t.Cleanup(func() { _ = started.stop(10 * time.Second) }) // a signal ends it
		side.programs = append(side.programs, started)
	}
	program(0, "kube-controller-manager", "--use-service-account-credentials=true", "--service-account-private-key-file="+shared.PKI.ServiceAccount.Key,
		"--root-ca-file="+shared.PKI.CA.Cert, "--cert-dir="+t.TempDir())
	program(1, "kube-scheduler")
	config := shared.Config(at[0], shared.admin)
	config.QPS = -1
	var hosts []string
	for _, endpoint := range at {
		hosts = append(hosts, strings.TrimPrefix(endpoint.URL, "https://"))
	}
	config.Wrap(alternate(hosts))
	side.client = must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
	for number := range 3 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", number)}}
		must[*corev1.Node](t)(admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}))
	}
	kubelets, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for kubelets.Err() == nil {
			beKubelets(kubelets, side.client)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return side
}

// beKubelets says once that the nodes are well and their pods run, and removes those that are to go. What fails is done the next time.
func beKubelets(ctx context.Context, client kubernetes.Interface) {
	defer func() {
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}()
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, node := range nodes.Items {
		node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("256Gi"), "pods": resource.MustParse("500")}
		node.Status.Allocatable = node.Status.Capacity
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: node.CreationTimestamp,
		}}
		_, _ = client.CoreV1().Nodes().UpdateStatus(ctx, &node, metav1.UpdateOptions{})
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return
	}
	for _, pod := range pods.Items {
		switch {
		case pod.DeletionTimestamp != nil:
			_ = client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		case pod.Status.Phase != corev1.PodRunning:
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
			_, _ = client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
		}
	}
}

// work has a Deployment get its pods, be scaled, and go.
func (c *controlled) work(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	deployments := c.client.AppsV1().Deployments("default")
	until := func(what string, done func() (bool, error)) {
		t.Helper()
		for _, program := range c.programs {
			if program.hasEnded() {
				t.Fatalf("%s, %s: %s", c.name, name, program.tail(20))
			}
		}
		var last error
		err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
			is, err := done()
			if err != nil {
				last = err // a part may just be away
			}
			return is && err == nil, nil
		})
		if err != nil {
			t.Fatalf("%s, %s: %s: %v, %v", c.name, name, what, err, last)
		}
	}
	available := func(replicas int32) func() (bool, error) {
		return func() (bool, error) {
			deployment, err := deployments.Get(ctx, name, metav1.GetOptions{})
			return err == nil && deployment.Status.AvailableReplicas == replicas && deployment.Status.ObservedGeneration == deployment.Generation, err
		}
	}
	until("creating it", func() (bool, error) {
		_, err := deployments.Create(ctx, withReplicas(deploymentOf(name), replicasOfWork), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
	until("its pods", available(replicasOfWork))
	until("scaling it", func() (bool, error) {
		patch := fmt.Sprintf(`{"spec": {"replicas": %d}}`, scaledReplicas)
		_, err := deployments.Patch(ctx, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		return err == nil, err
	})
	until("its pods after scaling", available(scaledReplicas))
	until("deleting it", func() (bool, error) {
		err := deployments.Delete(ctx, name, metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err), err
	})
	until("the end of its pods", func() (bool, error) {
		pods, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		return err == nil && len(pods.Items) == 0, err
	})
}

func withReplicas(deployment *appsv1.Deployment, replicas int32) *appsv1.Deployment {
	deployment.Spec.Replicas = &replicas
	return deployment
}

var (
	// complaintLine is a warning or an error in the log of a component: where it is in the source, and what it says.
	complaintLine = regexp.MustCompile(`(?m)^[EWF]\d{4} [\d:.]+ +\d+ ([\w.]+):\d+\] (.*)$`)
	// ofAGateway is in what client-go says of a refusal (429), of 503 and of 504. A restart directly causes ends of connections, time that runs out, and 403s
	// of a server that does not know all roles yet, not each of these in each component in each run; a 502 stands for the end of a connection.
	ofAGateway = regexp.MustCompile(`too many requests|currently unable to handle the request|unable to return a response in the time`)
	// What is quoted inside of a quoted text is a URL or a name.
	innerQuote = regexp.MustCompile(`\\"[^"]*\\"`)
	changing   = regexp.MustCompile(`[\w./:-]*\d[\w./:-]*`)
)

// complaints are the kinds of warnings and errors in the logs, with how many there were.
func (c *controlled) complaints(t *testing.T) map[string]int {
	t.Helper()
	kinds := map[string]int{}
	for _, program := range c.programs {
		text := string(must[[]byte](t)(os.ReadFile(program.log)))
		for _, line := range complaintLine.FindAllStringSubmatch(text, -1) {
			kinds[complaintKind(line[1], line[2])]++
		}
	}
	return kinds
}

// complaintKind is what a complaint says without what differs from one to the next: names, addresses, numbers.
func complaintKind(file, text string) string {
	return file + ": " + changing.ReplaceAllString(innerQuote.ReplaceAllString(text, "Q"), "N")
}
