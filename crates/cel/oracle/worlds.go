package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// writtenWorlds are the worlds that curated expressions refer to by index.
//
//go:embed worlds.json
var writtenWorlds []byte

// A worldRecord is a world as the corpus has it: the values of the variables.
type worldRecord struct {
	World           int            `json:"world"`
	Object          map[string]any `json:"object"`
	OldObject       map[string]any `json:"oldObject"`
	Params          map[string]any `json:"params"`
	NamespaceObject map[string]any `json:"namespaceObject"`
	Request         map[string]any `json:"request"`
}

// A writtenWorld is a world as worlds.json has it.
type writtenWorld struct {
	Object          map[string]any `json:"object"`
	OldObject       map[string]any `json:"oldObject"`
	Params          map[string]any `json:"params"`
	NamespaceObject map[string]any `json:"namespaceObject"`
	Operation       string         `json:"operation"`
	Group           string         `json:"group"`
	Version         string         `json:"version"`
	Kind            string         `json:"kind"`
	Resource        string         `json:"resource"`
	Subresource     string         `json:"subresource"`
	Name            string         `json:"name"`
	Namespace       string         `json:"namespace"`
	DryRun          bool           `json:"dryRun"`
	User            struct {
		Username string              `json:"username"`
		UID      string              `json:"uid"`
		Groups   []string            `json:"groups"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
}

// A world has the values of all variables of an expression.
type world struct {
	attributes *admission.VersionedAttributes
	request    *admissionv1.AdmissionRequest
	namespace  *corev1.Namespace
	params     runtime.Object
}

func (w *world) bindings() celplugin.OptionalVariableBindings {
	return celplugin.OptionalVariableBindings{VersionedParams: w.params, Authorizer: fakeAuthorizer{}}
}

// makeWorlds returns the written worlds, then count others that differ from them in random values.
func makeWorlds(random *rand.Rand, count int) ([]*world, []worldRecord, error) {
	var written []writtenWorld
	if err := utiljson.Unmarshal(writtenWorlds, &written); err != nil {
		return nil, nil, fmt.Errorf("worlds.json: %w", err)
	}
	base := len(written)
	for i := range count {
		written = append(written, disturbed(random, written[i%base]))
	}
	var worlds []*world
	var records []worldRecord
	for i, w := range written {
		made, record, err := w.make(i)
		if err != nil {
			return nil, nil, fmt.Errorf("world %d: %w", i, err)
		}
		worlds = append(worlds, made)
		records = append(records, record)
	}
	return worlds, records, nil
}

// object returns nil for no content, as the server does.
func object(content map[string]any) runtime.Object {
	if content == nil {
		return nil
	}
	return &unstructured.Unstructured{Object: content}
}

func (w writtenWorld) make(index int) (*world, worldRecord, error) {
	gvk := schema.GroupVersionKind{Group: w.Group, Version: w.Version, Kind: w.Kind}
	gvr := schema.GroupVersionResource{Group: w.Group, Version: w.Version, Resource: w.Resource}
	info := &user.DefaultInfo{Name: w.User.Username, UID: w.User.UID, Groups: w.User.Groups, Extra: w.User.Extra}
	record := admission.NewAttributesRecord(object(w.Object), object(w.OldObject), gvk, w.Namespace, w.Name, gvr,
		w.Subresource, admission.Operation(w.Operation), &metav1.CreateOptions{}, w.DryRun, info)
	made := &world{
		attributes: &admission.VersionedAttributes{
			Attributes: record, VersionedKind: gvk,
			VersionedObject: object(w.Object), VersionedOldObject: object(w.OldObject),
		},
		request: celplugin.CreateAdmissionRequest(record, metav1.GroupVersionResource(gvr), metav1.GroupVersionKind(gvk)),
		params:  object(w.Params),
	}
	request, err := runtime.DefaultUnstructuredConverter.ToUnstructured(made.request)
	if err != nil {
		return nil, worldRecord{}, err
	}
	lines := worldRecord{World: index, Object: w.Object, OldObject: w.OldObject, Params: w.Params, Request: request}
	if w.NamespaceObject != nil {
		namespace := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(w.NamespaceObject, namespace); err != nil {
			return nil, worldRecord{}, err
		}
		made.namespace = celplugin.CreateNamespaceObject(namespace)
		lines.NamespaceObject, err = runtime.DefaultUnstructuredConverter.ToUnstructured(made.namespace)
	}
	return made, lines, err
}

// disturbed returns a copy in which some values of the objects are missing or replaced.
func disturbed(random *rand.Rand, from writtenWorld) writtenWorld {
	text, err := json.Marshal(from)
	if err != nil {
		panic(err)
	}
	var to writtenWorld
	if err := utiljson.Unmarshal(text, &to); err != nil {
		panic(err)
	}
	for _, content := range []map[string]any{to.Object, to.OldObject, to.Params} {
		disturb(random, content)
	}
	return to
}

// oddValues replace other values.
var oddValues = []any{nil, "", "x", "3", int64(0), int64(-1), int64(7), 1.5, true, false, []any{}, map[string]any{}, []any{int64(1), "a"}}

func disturb(random *rand.Rand, value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			switch random.IntN(16) {
			case 0:
				delete(v, key)
			case 1:
				v[key] = runtime.DeepCopyJSONValue(oddValues[random.IntN(len(oddValues))])
			default:
				disturb(random, v[key])
			}
		}
	case []any:
		for i := range v {
			disturb(random, v[i])
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// fakeAuthorizer decides by the verb alone. The reason lists the attributes of the check.
type fakeAuthorizer struct{}

func (fakeAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	asked := []string{
		a.GetUser().GetName(), strings.Join(a.GetUser().GetGroups(), ","), a.GetVerb(),
		a.GetPath(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(),
	}
	if fields, err := a.GetFieldSelector(); len(fields) > 0 || err != nil {
		asked = append(asked, "by field")
	}
	if labels, err := a.GetLabelSelector(); len(labels) > 0 || err != nil {
		asked = append(asked, "by label")
	}
	reason := strings.Join(asked, "|")
	switch a.GetVerb() {
	case "get", "list", "watch":
		return authorizer.DecisionAllow, reason, nil
	case "delete":
		return authorizer.DecisionDeny, reason, nil
	case "fail":
		return authorizer.DecisionDeny, "", errors.New("the authorizer failed")
	}
	return authorizer.DecisionNoOpinion, reason, nil
}
