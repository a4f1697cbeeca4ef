package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"
)

//go:embed world.yaml
var worldText []byte

// A worldRecord is world.yaml; it is the first line of the corpus.
type worldRecord struct {
	Namespaces  []map[string]any  `json:"namespaces"`
	ParamKinds  []paramKindRecord `json:"paramKinds"`
	Params      []map[string]any  `json:"params"`
	Equivalents []equivalence     `json:"equivalents"`
}

type paramKindRecord struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
	NotSynced  bool   `json:"notSynced,omitempty"`
}

type equivalence struct {
	Storage     string               `json:"storage"`
	Subresource string               `json:"subresource,omitempty"`
	Resources   []equivalentResource `json:"resources"`
}

type equivalentResource struct {
	Group    string     `json:"group"`
	Version  string     `json:"version"`
	Resource string     `json:"resource"`
	Kind     kindRecord `json:"kind"`
}

type kindRecord struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// readYAML reads YAML the way Kubernetes does, with integers as int64.
func readYAML(text []byte, into any) error {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return utiljson.Unmarshal(data, into)
}

// A world is what there is in the cluster.
type world struct {
	record     worldRecord
	namespaces map[string]*corev1.Namespace
}

func newWorld() (*world, error) {
	w := &world{namespaces: map[string]*corev1.Namespace{}}
	if err := readYAML(worldText, &w.record); err != nil {
		return nil, fmt.Errorf("world.yaml: %w", err)
	}
	for _, content := range w.record.Namespaces {
		namespace := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, namespace); err != nil {
			return nil, err
		}
		w.namespaces[namespace.Name] = namespace
	}
	return w, nil
}

// namespaceLister finds the namespaces of a world.
type namespaceLister struct {
	listersv1.NamespaceLister
	world *world
}

func (l namespaceLister) Get(name string) (*corev1.Namespace, error) {
	if found := l.world.namespaces[name]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

// client finds no namespace: the lister already has all that exist.
type client struct{ kubernetes.Interface }
type coreClient struct{ corev1client.CoreV1Interface }
type namespaceClient struct {
	corev1client.NamespaceInterface
}

func (client) CoreV1() corev1client.CoreV1Interface            { return coreClient{} }
func (coreClient) Namespaces() corev1client.NamespaceInterface { return namespaceClient{} }
func (namespaceClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
}

// paramKind gives the informer and the scope of a kind, or the configuration error of a policy that names it.
func (w *world) paramKind(apiVersion, kind string) (*paramInformer, meta.RESTScope, error) {
	for _, known := range w.record.ParamKinds {
		if known.APIVersion != apiVersion || known.Kind != kind {
			continue
		}
		scope := meta.RESTScope(meta.RESTScopeRoot)
		if known.Namespaced {
			scope = meta.RESTScopeNamespace
		}
		return &paramInformer{world: w, kind: known}, scope, nil
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, nil, err
	}
	// The text of the original's policy source.
	return nil, nil, fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gv.WithKind(kind))
}

// A paramInformer has the params of a kind, in the order of the world.
type paramInformer struct {
	world *world
	kind  paramKindRecord
}

type syncedInformer struct {
	cache.SharedIndexInformer
	synced bool
}

func (i syncedInformer) HasSynced() bool { return i.synced }

func (i *paramInformer) Informer() cache.SharedIndexInformer {
	return syncedInformer{synced: !i.kind.NotSynced}
}
func (i *paramInformer) Lister() cache.GenericLister { return paramLister{i, ""} }

type paramLister struct {
	informer  *paramInformer
	namespace string
}

func (l paramLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return paramLister{l.informer, namespace}
}

func (l paramLister) List(selector labels.Selector) ([]runtime.Object, error) {
	var found []runtime.Object
	for _, content := range l.informer.world.record.Params {
		param := &unstructured.Unstructured{Object: content}
		if param.GetAPIVersion() == l.informer.kind.APIVersion && param.GetKind() == l.informer.kind.Kind &&
			param.GetNamespace() == l.namespace && selector.Matches(labels.Set(param.GetLabels())) {
			found = append(found, param)
		}
	}
	return found, nil
}

func (l paramLister) Get(name string) (runtime.Object, error) {
	all, err := l.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, param := range all {
		if param.(*unstructured.Unstructured).GetName() == name {
			return param, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: l.informer.kind.Kind}, name)
}

// mapper knows the equivalent resources.
type mapper struct{ world *world }

func (m mapper) EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	for _, same := range m.world.record.Equivalents {
		if same.Subresource != subresource {
			continue
		}
		var all []schema.GroupVersionResource
		among := false
		for _, r := range same.Resources {
			gvr := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
			among = among || gvr == resource
			all = append(all, gvr)
		}
		if among {
			return all
		}
	}
	return nil
}

func (m mapper) KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	for _, same := range m.world.record.Equivalents {
		for _, r := range same.Resources {
			if same.Subresource == subresource && r.Group == resource.Group && r.Version == resource.Version && r.Resource == resource.Resource {
				return schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind}
			}
		}
	}
	return schema.GroupVersionKind{}
}

// convertor gives an object another version. Conversions to the kind Broken fail.
type convertor struct {
	runtime.ObjectConvertor
	runtime.ObjectCreater
}

func (convertor) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	made := &unstructured.Unstructured{Object: map[string]any{}}
	made.SetGroupVersionKind(kind)
	return made, nil
}

func (convertor) Convert(in, out, _ any) error {
	to := out.(*unstructured.Unstructured)
	kind := to.GroupVersionKind()
	if kind.Kind == "Broken" {
		return errors.New("no such conversion")
	}
	to.Object = runtime.DeepCopyJSON(in.(*unstructured.Unstructured).Object)
	to.SetGroupVersionKind(kind)
	return nil
}

func (w *world) interfaces() admission.ObjectInterfaces {
	return &admission.RuntimeObjectInterfaces{
		ObjectCreater: convertor{}, ObjectConvertor: convertor{}, EquivalentResourceMapper: mapper{w},
	}
}
