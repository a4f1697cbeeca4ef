package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// typedClient is the interface of client-go's typed client of a resource; T and L are pointers to an object and a list.
type typedClient[T, L any] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	UpdateStatus(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
	DeleteCollection(ctx context.Context, options metav1.DeleteOptions, selected metav1.ListOptions) error
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}

// typedList is the type of client-go's lists.
type typedList interface {
	runtime.Object
	metav1.ListInterface
}

// conformant has what differs between resources in the conformance test.
type conformant[T metav1.Object, L typedList] struct {
	version, resource, kind string
	client                  typedClient[T, L]
	label                   string
	object                  string   // JSON
	field                   []string // path to a number in it
	patch                   string
	patched, updated        int64 // the number then
}

func flowSchemasIn[T metav1.Object, L typedList](version string, client typedClient[T, L]) conformant[T, L] {
	return conformant[T, L]{
		version: version, resource: "flowschemas", kind: "FlowSchema", client: client, label: "example-e2e-fs-label",
		object: `{"metadata":{"generateName":"e2e-example-fs-"},"spec":{"matchingPrecedence":10000,"priorityLevelConfiguration":{"name":"global-default"},
			"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"User","user":{"name":"example-e2e-non-existent-user"}}],
			"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`,
		field: []string{"spec", "matchingPrecedence"},
		patch: `{"metadata":{"annotations":{"patched":"true"}},"spec":{"matchingPrecedence":9999}}`, patched: 9999, updated: 9000,
	}
}

func levelsIn[T metav1.Object, L typedList](version string, client typedClient[T, L]) conformant[T, L] {
	return conformant[T, L]{
		version: version, resource: "prioritylevelconfigurations", kind: "PriorityLevelConfiguration", client: client, label: "example-e2e-pl-label",
		object: `{"metadata":{"generateName":"e2e-example-pl-"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":2,"limitResponse":{"type":"Reject"}}}}`,
		field:  []string{"spec", "limited", "nominalConcurrencyShares"},
		patch:  `{"metadata":{"annotations":{"patched":"true"}},"spec":{"limited":{"nominalConcurrencyShares":4}}}`, patched: 4, updated: 6,
	}
}

func TestFlowSchemasPassTheConformanceSequence(t *testing.T) {
	onEachStore(t, func(t *testing.T, server *Hosted) {
		client := server.client(t)
		t.Run("v1", func(t *testing.T) { passSequence(t, server, flowSchemasIn("v1", client.FlowcontrolV1().FlowSchemas())) })
		t.Run("v1beta3", func(t *testing.T) {
			passSequence(t, server, flowSchemasIn("v1beta3", client.FlowcontrolV1beta3().FlowSchemas()))
		})
	})
}

func TestPriorityLevelsPassTheConformanceSequence(t *testing.T) {
	onEachStore(t, func(t *testing.T, server *Hosted) {
		client := server.client(t)
		t.Run("v1", func(t *testing.T) {
			passSequence(t, server, levelsIn("v1", client.FlowcontrolV1().PriorityLevelConfigurations()))
		})
		t.Run("v1beta3", func(t *testing.T) {
			passSequence(t, server, levelsIn("v1beta3", client.FlowcontrolV1beta3().PriorityLevelConfigurations()))
		})
	})
}

// number is that of the field which the sequence changes.
func (c conformant[T, L]) number(t *testing.T, object T) int64 {
	t.Helper()
	tree := must[map[string]any](t)(runtime.DefaultUnstructuredConverter.ToUnstructured(object))
	number, _, err := unstructured.NestedInt64(tree, c.field...)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// conditions are the types of an object's conditions.
func (c conformant[T, L]) conditions(t *testing.T, object T) (types []string) {
	t.Helper()
	tree := must[map[string]any](t)(runtime.DefaultUnstructuredConverter.ToUnstructured(object))
	conditions, _, err := unstructured.NestedSlice(tree, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range conditions {
		types = append(types, fmt.Sprint(condition.(map[string]any)["type"]))
	}
	return types
}

// editTree changes an object by its tree.
func editTree[T metav1.Object](object T, edit func(tree map[string]any) error) error {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	if err := edit(tree); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(tree, object)
}

var wellFormedVersion = regexp.MustCompile(`^[1-9][0-9]*$`)

// newer compares resource versions as clients do: as numbers of any length.
func newer(a, b string) bool {
	return len(a) > len(b) || len(a) == len(b) && a > b
}

// passSequence makes the calls of Kubernetes' conformance tests "should support FlowSchema (and
// PriorityLevelConfiguration) API operations", one after the other.
func passSequence[T metav1.Object, L typedList](t *testing.T, server *Hosted, c conformant[T, L]) {
	ctx := inTime(t, 20*time.Minute)
	client := server.client(t)
	if _, err := client.Discovery().ServerResourcesForGroupVersion("flowcontrol.apiserver.k8s.io/" + c.version); *hostedKubeconfig != "" && apierrors.IsNotFound(err) {
		t.Skip("the server that was named does not serve " + c.version)
	}

	// Discovery, in each of its forms.
	groups := must[*metav1.APIGroupList](t)(client.Discovery().ServerGroups())
	hasGroup := slices.ContainsFunc(groups.Groups, func(group metav1.APIGroup) bool {
		return group.Name == "flowcontrol.apiserver.k8s.io" && slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == c.version })
	})
	if !hasGroup {
		t.Errorf("no group in %+v", groups)
	}
	var group metav1.APIGroup
	if err := client.Discovery().RESTClient().Get().AbsPath(groupPath).Do(ctx).Into(&group); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == c.version }) {
		t.Errorf("no version in %+v", group)
	}
	resources := must[*metav1.APIResourceList](t)(client.Discovery().ServerResourcesForGroupVersion("flowcontrol.apiserver.k8s.io/" + c.version))
	for _, name := range []string{c.resource, c.resource + "/status"} {
		if !slices.ContainsFunc(resources.APIResources, func(resource metav1.APIResource) bool { return resource.Name == name }) {
			t.Errorf("no resource %s", name)
		}
	}

	value := fmt.Sprintf("%08x", rand.Uint32())
	selected := metav1.ListOptions{LabelSelector: c.label + "=" + value}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.client.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
			t.Error(err)
		}
	})
	create := func() T {
		t.Helper()
		var object T
		if err := json.Unmarshal([]byte(c.object), &object); err != nil {
			t.Fatal(err)
		}
		object.SetLabels(map[string]string{c.label: value})
		return must[T](t)(c.client.Create(ctx, object, metav1.CreateOptions{}))
	}
	create()
	create()
	created := create()
	name := created.GetName()

	read := must[T](t)(c.client.Get(ctx, name, metav1.GetOptions{}))
	if read.GetUID() != created.GetUID() || !wellFormedVersion.MatchString(read.GetResourceVersion()) {
		t.Errorf("read %+v, created %+v", read, created)
	}
	list := must[L](t)(c.client.List(ctx, selected))
	if length := meta.LenList(list); length != 3 {
		t.Errorf("%d items", length)
	}
	events := must[watch.Interface](t)(c.client.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), LabelSelector: selected.LabelSelector}))
	defer events.Stop()

	patched := must[T](t)(c.client.Patch(ctx, name, types.MergePatchType, []byte(c.patch), metav1.PatchOptions{}))
	if patched.GetAnnotations()["patched"] != "true" || c.number(t, patched) != c.patched || !newer(patched.GetResourceVersion(), created.GetResourceVersion()) {
		t.Errorf("patched %+v", patched)
	}
	var updated T
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := c.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.GetAnnotations()["updated"] = "true" // the map has to be there
		err = editTree(object, func(tree map[string]any) error { return unstructured.SetNestedField(tree, c.updated, c.field...) })
		if err != nil {
			return err
		}
		updated, err = c.client.Update(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if updated.GetAnnotations()["updated"] != "true" || c.number(t, updated) != c.updated {
		t.Errorf("updated %+v", updated)
	}
	if err := awaitPatched[T](events); err != nil {
		t.Error(err)
	}

	dynamicClient := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(server.config(t)))
	resource := schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: c.version, Resource: c.resource}
	status := must[*unstructured.Unstructured](t)(dynamicClient.Resource(resource).Get(ctx, name, metav1.GetOptions{}, "status"))
	if status.GroupVersionKind() != resource.GroupVersion().WithKind(c.kind) || status.GetUID() != created.GetUID() {
		t.Errorf("status %+v", status)
	}
	patch := []byte(`{"status":{"conditions":[{"type":"PatchStatusFailed","status":"False","reason":"e2e"}]}}`)
	patched = must[T](t)(c.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"))
	if !slices.Contains(c.conditions(t, patched), "PatchStatusFailed") {
		t.Errorf("conditions %v", c.conditions(t, patched))
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := c.client.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		err = editTree(object, func(tree map[string]any) error {
			conditions, _, err := unstructured.NestedSlice(tree, "status", "conditions")
			if err != nil {
				return err
			}
			added := map[string]any{"type": "StatusUpdateFailed", "status": "False", "reason": "E2E", "message": "Set from an e2e test"}
			return unstructured.SetNestedSlice(tree, append(conditions, added), "status", "conditions")
		})
		if err != nil {
			return err
		}
		updated, err = c.client.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.conditions(t, updated), "StatusUpdateFailed") {
		t.Errorf("conditions %v", c.conditions(t, updated))
	}

	if err := c.client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object should be NotFound, got %v", err)
	}
	if left := meta.LenList(must[L](t)(c.client.List(ctx, selected))); left != 2 {
		t.Errorf("%d items", left)
	}
	if err := c.client.DeleteCollection(ctx, metav1.DeleteOptions{}, selected); err != nil {
		t.Fatal(err)
	}
	if left := meta.LenList(must[L](t)(c.client.List(ctx, selected))); left != 0 {
		t.Errorf("%d items", left)
	}
}

// awaitPatched reads events until one shows the patch. Each has to be a modification.
func awaitPatched[T metav1.Object](events watch.Interface) error {
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return errors.New("the watch has ended")
			}
			object, ok := event.Object.(T)
			if event.Type != watch.Modified || !ok {
				return fmt.Errorf("event %s with %T", event.Type, event.Object)
			}
			if object.GetAnnotations()["patched"] == "true" {
				return nil
			}
		case <-time.After(time.Minute):
			return errors.New("no event in time")
		}
	}
}

// The end-to-end test "requests can be classified by adding FlowSchema and PriorityLevelConfiguration".
func TestRequestsAreClassifiedByWhatTheHostedAPIHolds(t *testing.T) {
	onEachStore(t, classifyByWhatIsHosted)
}

func classifyByWhatIsHosted(t *testing.T, server *Hosted) {
	ctx := inTime(t, 20*time.Minute)
	client := server.client(t)
	schemas, levels := client.FlowcontrolV1().FlowSchemas(), client.FlowcontrolV1().PriorityLevelConfigurations()
	const levelName, schemaName = "e2e-testing-prioritylevel", "e2e-testing-flowschema"
	clear := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, err := range []error{schemas.Delete(ctx, schemaName, metav1.DeleteOptions{}), levels.Delete(ctx, levelName, metav1.DeleteOptions{})} {
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	}
	clear()
	t.Cleanup(clear)

	shares := int32(1)
	level := must[*flowcontrolv1.PriorityLevelConfiguration](t)(levels.Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: levelName},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, LimitResponse: flowcontrolv1.LimitResponse{Type: "Reject"},
		}},
	}, metav1.CreateOptions{}))
	flowSchema := must[*flowcontrolv1.FlowSchema](t)(schemas.Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: schemaName},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         1000,
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: levelName},
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: "ByUser"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "noxu"}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			}},
		},
	}, metav1.CreateOptions{}))

	err := poll(changeLimit, time.Second, func() (bool, error) {
		current, err := schemas.Get(ctx, schemaName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(current.Status.Conditions, func(condition flowcontrolv1.FlowSchemaCondition) bool {
			return condition.Type == flowcontrolv1.FlowSchemaConditionDangling && condition.Status == flowcontrolv1.ConditionFalse
		}) {
			return false, nil
		}
		if server.inEffect != nil {
			return server.inEffect(levelName)
		}
		text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "apiserver_flowcontrol_nominal_limit_seats{") && strings.Contains(line, `priority_level="`+levelName+`"`) {
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		t.Fatalf("the schema and its level do not come into effect: %v", err)
	}

	uids := func(user string) (string, string) {
		t.Helper()
		config := server.config(t)
		if server.credential != nil {
			credential := must[User](t)(server.credential(user))
			config.CertFile, config.KeyFile, config.CertData, config.KeyData = credential.Pair.Cert, credential.Pair.Key, nil, nil
		} else {
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		}
		transport := must[http.RoundTripper](t)(rest.TransportFor(config))
		request := must[*http.Request](t)(http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/version", nil))
		response := must[*http.Response](t)(transport.RoundTrip(request))
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.Header.Get(flowSchemaHeader), response.Header.Get(priorityLevelHeader)
	}
	if schemaUID, levelUID := uids("noxu"); schemaUID != string(flowSchema.UID) || levelUID != string(level.UID) {
		t.Errorf("noxu is classified as %q, %q, want %q, %q", schemaUID, levelUID, flowSchema.UID, level.UID)
	}
	if schemaUID, levelUID := uids("foo"); schemaUID == "" || levelUID == "" || schemaUID == string(flowSchema.UID) {
		t.Errorf("foo is classified as %q, %q", schemaUID, levelUID)
	}
}
