package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// kubeadmPod is kube-apiserver's as kubeadm writes it, as far as the shipped patch is about it.
const kubeadmPod = `
apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  hostNetwork: true
  containers:
  - name: kube-apiserver
    image: registry.k8s.io/kube-apiserver:v1.36.0
    command: [kube-apiserver, --bind-address=127.0.0.1]
    livenessProbe: {httpGet: {host: 192.0.2.10, path: /livez, port: 6443, scheme: HTTPS}, periodSeconds: 10}
    readinessProbe: {httpGet: {host: 192.0.2.10, path: /readyz, port: 6443, scheme: HTTPS}, periodSeconds: 1}
    startupProbe: {httpGet: {host: 192.0.2.10, path: /livez, port: 6443, scheme: HTTPS}, failureThreshold: 24}
`

// accepts has the shared server look at objects as if they were to be created.
func accepts(t *testing.T, objects string) string {
	t.Helper()
	return kubectl(t, shared.Direct, shared.admin, objects, "create", "--dry-run=server", "--validate=strict", "-o", "yaml", "-f", "-")
}

// A server accepts the pod of the sidecar as it is shipped.
func TestAServerAcceptsThePodOfTheSidecar(t *testing.T) {
	content := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, "sidecar/pod.yaml")))
	var pod corev1.Pod
	succeeds(t, yaml.Unmarshal([]byte(accepts(t, withoutAccount(t, content))), &pod))
	if pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Host != "127.0.0.1" || pod.Spec.PriorityClassName != "system-node-critical" {
		t.Errorf("%+v", pod.Spec)
	}
}

// kubeadm's patch of kube-apiserver changes the host of all probes and nothing else, and a server accepts the patched pod.
func TestThePatchOfKubeApiserverChangesTheHostOfItsProbes(t *testing.T) {
	patch := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, "sidecar/kube-apiserver+strategic.yaml")))
	file := filepath.Join(t.TempDir(), "patch.yaml")
	succeeds(t, os.WriteFile(file, patch, 0o600))
	patched := kubectl(t, shared.Direct, shared.admin, kubeadmPod, "patch", "--local", "--type", "strategic", "--patch-file", file, "-o", "yaml", "-f", "-")
	var before, after corev1.Pod
	succeeds(t, yaml.Unmarshal([]byte(kubeadmPod), &before), yaml.Unmarshal([]byte(accepts(t, withoutAccount(t, []byte(patched)))), &after))
	container := after.Spec.Containers[0]
	old := before.Spec.Containers[0]
	for name, probes := range map[string][2]*corev1.Probe{
		"liveness": {old.LivenessProbe, container.LivenessProbe}, "readiness": {old.ReadinessProbe, container.ReadinessProbe}, "startup": {old.StartupProbe, container.StartupProbe},
	} {
		was, is := probes[0].HTTPGet, probes[1].HTTPGet
		if is.Host != "127.0.0.1" || is.Path != was.Path || is.Port != was.Port || is.Scheme != was.Scheme {
			t.Errorf("%s: %+v", name, is)
		}
	}
	if len(after.Spec.Containers) != 1 || strings.Join(container.Command, " ") != strings.Join(old.Command, " ") {
		t.Errorf("%+v", container)
	}
}

// withoutAccount leaves out the token of the service account, which no controller creates in these tests, and creates the account.
func withoutAccount(t *testing.T, content []byte) string {
	t.Helper()
	kubectl(t, shared.Direct, shared.admin, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default","namespace":"kube-system"}}`, "apply", "-f", "-")
	objects := must[[]unstructured.Unstructured](t)(readManifest(content))
	succeeds(t, unstructured.SetNestedField(objects[0].Object, false, "spec", "automountServiceAccountToken"))
	return string(must[[]byte](t)(objects[0].MarshalJSON()))
}

// Of the mistakes that `check --budgets` is shown with, a server accepts all but the one of which the file says that no server does.
func TestAServerAcceptsTheMistakesOfBudgetsThatAreNotInvalid(t *testing.T) {
	content := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, "eviction/mistakes.yaml")))
	kubectl(t, shared.Direct, shared.admin, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, "apply", "-f", "-")
	var accepted, refused []string
	for _, object := range must[[]unstructured.Unstructured](t)(readManifest(content)) {
		name := object.GetKind() + " " + object.GetName()
		text := string(must[[]byte](t)(object.MarshalJSON()))
		if _, err := shared.RunKubectl(inTime(t, changeLimit), shared.Direct, shared.admin, text, "create", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
			if !strings.Contains(err.Error(), `unknown field "spec.selektor"`) {
				t.Errorf("%s is refused: %v", name, err)
			}
			refused = append(refused, name)
			continue
		}
		accepted = append(accepted, name)
	}
	const budget = "PodDisruptionBudget "
	wanted := strings.Join([]string{"Deployment web", "DaemonSet logs", budget + "web", budget + "front", budget + "payment", budget + "logs"}, ", ")
	if strings.Join(accepted, ", ") != wanted || strings.Join(refused, ", ") != budget+"invalid" {
		t.Errorf("accepted: %v, refused: %v", accepted, refused)
	}
}
