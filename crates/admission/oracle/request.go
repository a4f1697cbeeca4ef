package main

import (
	_ "embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
)

//go:embed requests.yaml
var requestsText []byte

// A request is what the corpus has of a request: one line for each.
type request struct {
	Request   string         `json:"request"`
	Operation string         `json:"operation"`
	Group     string         `json:"group"`
	Version   string         `json:"version"`
	KindGroup string         `json:"kindGroup"`
	Kind      string         `json:"kind"`
	Resource  string         `json:"resource"`
	Sub       string         `json:"subresource"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	DryRun    bool           `json:"dryRun"`
	Options   map[string]any `json:"options"`
	User      *userRecord    `json:"user"`
	Object    map[string]any `json:"object"`
	OldObject map[string]any `json:"oldObject"`
}

type userRecord struct {
	Username string              `json:"username"`
	UID      string              `json:"uid"`
	Groups   []string            `json:"groups"`
	Extra    map[string][]string `json:"extra"`
}

func readRequests() (map[string]*request, error) {
	var all map[string]*request
	if err := readYAML(requestsText, &all); err != nil {
		return nil, fmt.Errorf("requests.yaml: %w", err)
	}
	for name, r := range all {
		r.Request = name
		if r.Operation == "" {
			r.Operation = "CREATE"
		}
		if r.Version == "" {
			r.Version = "v1"
		}
		if r.KindGroup == "" {
			r.KindGroup = r.Group
		}
		if r.User == nil {
			r.User = &userRecord{Username: "alice", Groups: []string{"dev"}}
		}
	}
	return all, nil
}

// object returns nil if there is no content, the Go type for PodExecOptions, which has no metadata, and otherwise an
// unstructured object.
func object(content map[string]any) (runtime.Object, error) {
	if content == nil {
		return nil, nil
	}
	if content["kind"] == "PodExecOptions" {
		made := &corev1.PodExecOptions{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, made)
		return made, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// options are those of the request's verb.
func (r *request) options() (runtime.Object, error) {
	var made runtime.Object
	switch r.Options["kind"] {
	case "CreateOptions":
		made = &metav1.CreateOptions{}
	case "UpdateOptions":
		made = &metav1.UpdateOptions{}
	case "DeleteOptions":
		made = &metav1.DeleteOptions{}
	default:
		return nil, nil
	}
	return made, runtime.DefaultUnstructuredConverter.FromUnstructured(r.Options, made)
}

// attributes keeps the audit annotations that are accepted.
type attributes struct {
	admission.Attributes
	annotations map[string]string
}

func (a *attributes) AddAnnotation(key, value string) error {
	err := a.Attributes.AddAnnotation(key, value)
	if err == nil {
		a.annotations[key] = value
	}
	return err
}

func (r *request) attributes() (*attributes, error) {
	object1, err := object(r.Object)
	if err != nil {
		return nil, err
	}
	object2, err := object(r.OldObject)
	if err != nil {
		return nil, err
	}
	options, err := r.options()
	if err != nil {
		return nil, err
	}
	kind := schema.GroupVersionKind{Group: r.KindGroup, Version: r.Version, Kind: r.Kind}
	resource := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
	info := &user.DefaultInfo{Name: r.User.Username, UID: r.User.UID, Groups: r.User.Groups, Extra: r.User.Extra}
	record := admission.NewAttributesRecord(object1, object2, kind, r.Namespace, r.Name, resource, r.Sub,
		admission.Operation(r.Operation), options, r.DryRun, info)
	return &attributes{record, map[string]string{}}, nil
}
