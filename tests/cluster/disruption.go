package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// controlledBedFlags are those of an apiserver whose pods no other controller touches: no namespace has a service account.
var controlledBedFlags = []string{uidFlag, "--enable-priority-and-fairness=false", "--disable-admission-plugins=ServiceAccount"}

// disruptionController is the controller of kube-controller-manager that counts budgets.
const disruptionController = "disruption-controller"

// StartControllerManager starts a kube-controller-manager with these controllers alone, at an apiserver or before it. It
// ends with the cluster.
func (c *Cluster) StartControllerManager(at Endpoint, controllers ...string) (*process, error) {
	kubeconfig, err := c.Kubeconfig(at, c.admin)
	if err != nil {
		return nil, err
	}
	port, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	name := at.Name + "-controller-manager"
	manager := &Apiserver{Endpoint: Endpoint{Name: name}}
	manager.running, err = startProcess(c.Dir, name, filepath.Join(c.bin, "kube-controller-manager"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--controllers="+strings.Join(controllers, ","), "--leader-elect=false", "--use-service-account-credentials=false",
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir="+filepath.Join(c.Dir, name))
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	c.further = append(c.further, manager)
	c.mutex.Unlock()
	return manager.running, nil
}

// olderVersion is another version of the custom resources, in which none of them has a scale. Owner references may name it.
const olderVersion = "v1alpha1"

// Custom resources that own pods: widgets have a scale, gadgets have none.
var (
	widgets = schema.GroupVersionResource{Group: "test.fairgate.dev", Version: "v1", Resource: "widgets"}
	gadgets = schema.GroupVersionResource{Group: "test.fairgate.dev", Version: "v1", Resource: "gadgets"}
)

// DefineOwners defines the custom resources on a further apiserver, and waits until they are served.
func (c *Cluster) DefineOwners(ctx context.Context, at *Apiserver) (dynamic.Interface, error) {
	config := c.Config(at.Endpoint, c.admin)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for kind, resource := range map[string]schema.GroupVersionResource{"Widget": widgets, "Gadget": gadgets} {
		subresources := map[string]any{}
		if resource == widgets {
			subresources["scale"] = map[string]any{"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
		}
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": resource.Resource + "." + resource.Group},
			"spec": map[string]any{
				"group": resource.Group, "scope": "Namespaced",
				"names": map[string]any{"plural": resource.Resource, "kind": kind},
				"versions": []any{map[string]any{
					"name": resource.Version, "served": true, "storage": true, "subresources": subresources,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}, map[string]any{
					"name": olderVersion, "served": true, "storage": false,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}
		if _, err := definitions.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			_, err := client.Resource(resource).Namespace("default").List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return nil, err
		}
	}
	return client, nil
}
