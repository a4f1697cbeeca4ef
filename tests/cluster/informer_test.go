package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const informerRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: informer
rules:
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: informer
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: informer
subjects:
- {kind: ServiceAccount, namespace: informer, name: watcher}
`

func TestAnInformerOfAServiceAccountSeesEveryChange(t *testing.T) {
	account := must[User](t)(shared.NewServiceAccount(inTime(t, time.Minute), "informer", "watcher"))
	kubectl(t, shared.Direct, shared.admin, informerRole, "apply", "-f", "-")
	throughEach(t, FairgateOptions{}, func(t *testing.T, at Endpoint) {
		ctx := inTime(t, 20*time.Minute)
		namespace := "informer-" + strings.ToLower(at.Name)
		if err := shared.EnsureNamespace(ctx, namespace); err != nil {
			t.Fatal(err)
		}
		objects := shared.Admin.CoreV1().ConfigMaps(namespace)
		create := func(name string) *corev1.ConfigMap {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"n": "1"}}
			return must[*corev1.ConfigMap](t)(objects.Create(ctx, object, metav1.CreateOptions{}))
		}
		create("before")

		client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(shared.Config(at, account)))
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
		informer := factory.Core().V1().ConfigMaps().Informer()
		changes := make(chan string, 1000)
		describe := func(kind string, object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			configMap := object.(*corev1.ConfigMap)
			changes <- kind + " " + configMap.Name + " " + configMap.Data["n"]
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { describe("add", object) },
			UpdateFunc: func(_, object any) { describe("update", object) },
			DeleteFunc: func(object any) { describe("delete", object) },
		})
		if err != nil {
			t.Fatal(err)
		}
		factory.StartWithContext(ctx)
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("the informer did not synchronise")
		}
		await := func(want string) {
			t.Helper()
			select {
			case got := <-changes:
				if got != want {
					t.Fatalf("saw %q, want %q", got, want)
				}
			case <-time.After(time.Minute):
				t.Fatalf("did not see %q in time", want)
			}
		}

		await("add before 1")
		object := create("during")
		await("add during 1")
		object.Data["n"] = "2"
		must[*corev1.ConfigMap](t)(objects.Update(ctx, object, metav1.UpdateOptions{}))
		await("update during 2")
		if err := objects.Delete(ctx, "before", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await("delete before 1")
		// The cache serves what the events contained.
		if kept := informer.GetStore().ListKeys(); len(kept) != 1 || kept[0] != namespace+"/during" {
			t.Errorf("the cache holds %v", kept)
		}
	})
}
