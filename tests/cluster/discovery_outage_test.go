package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const outageNamespace = "discovery-outage"

// outagePolicies are two: one about a built-in kind, one about a custom resource.
func outagePolicies() string {
	var all []string
	for _, one := range []struct{ name, group, resource, expression string }{
		{"outage-maps", "", "configmaps", `object.data.mode == 'good'`},
		{"outage-things", "judged.example.com", "things", `object.spec.colour == 'good'`},
	} {
		constraints := `spec.matchConstraints={"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + outageNamespace + `"}},"resourceRules":[` + rule(one.group, one.resource, "CREATE") + `]}`
		all = append(all, policy(one.name, constraints, mustHold(one.expression)), binding(one.name))
	}
	return strings.NewReplacer("@all", "outage").Replace(strings.Join(all, "\n---\n"))
}

// An outage is a gateway before a server of which it cannot learn what it has.
type outage struct {
	gate    *DiscoveryGate
	server  kubernetes.Interface
	gateway *Fairgate
	writer  documentSide
}

func startOutage(t *testing.T, ctx context.Context) outage {
	bed := must[*AdmissionBed](t)(admissionBed())
	succeeds(t, admissionRights())
	gate := must[*DiscoveryGate](t)(shared.NewDiscoveryGate(bed.Plain.Endpoint, must[User](t)(shared.NewUser(admissionUser)), refusedDiscovery))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: outageNamespace}}
	if _, err := bed.Plain.Admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policies.yaml")
	succeeds(t, os.WriteFile(file, []byte(outagePolicies()), 0o600))
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: admissionUser, Upstream: gate.URL, Off: true, Admission: "enforce", AdmissionFiles: file, Fidelity: "completed"})
	succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
	return outage{gate, bed.Plain.Admin, gateway, newDocumentSide(t, "gateway", gateway.Endpoint)}
}

// post creates a thing, and returns the code of the answer.
func (o outage) post(ctx context.Context, name, colour string) (int, error) {
	body := fmt.Sprintf(`{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":%q},"spec":{"colour":%q}}`, name, colour)
	answer, err := o.writer.send(ctx, "POST", "/apis/judged.example.com/v1/namespaces/"+outageNamespace+"/things", jsonType, []byte(body))
	return answer.code, err
}

// things are the names of all that are stored.
func (o outage) things(t *testing.T, ctx context.Context) (names []string) {
	t.Helper()
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	data, err := o.server.Discovery().RESTClient().Get().AbsPath("/apis/judged.example.com/v1/namespaces/" + outageNamespace + "/things").DoRaw(ctx)
	succeeds(t, err, json.Unmarshal(data, &list))
	for _, item := range list.Items {
		names = append(names, item.Metadata.Name)
	}
	return names
}

// While the upstream does not say what it has, writes of built-in kinds are evaluated and stored, in protobuf, too. A write of a custom resource gets
// 503 while the documents are refused, and waits while they are not answered. None passes notEvaluated.
func TestWritesAreEvaluatedWhileDiscoveryIsNotAvailable(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	ctx := inTime(t, 5*time.Minute)
	o := startOutage(t, ctx)
	config := shared.Config(o.gateway.Endpoint, shared.admin)
	config.ContentType = protobufType
	maps := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config)).CoreV1().ConfigMaps(outageNamespace)
	for mode, code := range map[string]int32{"good": 0, "evil": 422} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: mode + "-"}, Data: map[string]string{"mode": mode}}
		_, err := maps.Create(ctx, object, metav1.CreateOptions{})
		if code == 0 {
			succeeds(t, err)
		} else if refused, ok := err.(apierrors.APIStatus); !ok || refused.Status().Code != code || !strings.Contains(err.Error(), "outage-maps") {
			t.Errorf("an evil map in protobuf: %v", err)
		}
	}
	stored := must[*corev1.ConfigMapList](t)(o.server.CoreV1().ConfigMaps(outageNamespace).List(ctx, metav1.ListOptions{}))
	for _, one := range stored.Items {
		if one.Data["mode"] == "evil" {
			t.Errorf("%s is stored", one.Name)
		}
	}
	if o.gate.Met() == 0 {
		t.Error("the gateway has not asked what the upstream has")
	}
	for _, colour := range []string{"good", "evil"} {
		if code := must[int](t)(o.post(ctx, "refused-"+colour, colour)); code != 503 {
			t.Errorf("a thing while discovery is refused: %d", code)
		}
	}

	o.gate.Set(heldDiscovery)
	type answer struct {
		colour string
		code   int
		err    error
	}
	answers := make(chan answer, 2)
	for _, colour := range []string{"good", "evil"} {
		go func() {
			code, err := o.post(ctx, "held-"+colour, colour)
			answers <- answer{colour, code, err}
		}()
	}
	succeeds(t, poll(changeLimit, 10*time.Millisecond, func() (bool, error) { return o.gate.Met() > 0, nil }))
	if len(answers) > 0 {
		t.Errorf("answered before anything is known: %v", <-answers)
	}
	o.gate.Set(noDiscoveryFault)
	for range 2 {
		got := <-answers
		succeeds(t, got.err)
		if want := map[string]int{"good": 201, "evil": 422}[got.colour]; got.code != want {
			t.Errorf("a thing that has waited, %s: %d", got.colour, got.code)
		}
	}
	if names := o.things(t, ctx); len(names) != 1 || names[0] != "held-good" {
		t.Errorf("stored are %v", names)
	}
}

// A policy about a custom resource has no status while the OpenAPI documents are refused, and gets one once they are not.
func TestPoliciesHaveNoStatusUntilTheOpenAPIDocumentsAreAnswered(t *testing.T) {
	aboutEvaluatingFairgate(t)
	t.Parallel()
	ctx := inTime(t, 5*time.Minute)
	bed := must[*AdmissionBed](t)(admissionBed())
	const self = "openapi-outage"
	succeeds(t, Grant(ctx, bed.Plain.Admin, self, ImpersonatorRole, OverlayRole, PrecheckRole, EvictionRole))
	gate := must[*DiscoveryGate](t)(shared.NewDiscoveryGate(bed.Plain.Endpoint, must[User](t)(shared.NewUser(self)), refusedOpenAPI))
	gateway := newFairgate(t, FairgateOptions{
		Mode: "impersonate", Source: "overlay", User: self, Upstream: gate.URL, Off: true, Admission: "enforce", AdmissionHosted: true, Fidelity: "completed",
	})
	succeeds(t, gateway.Start())
	policies := must[kubernetes.Interface](t)(shared.adminOf(gateway.Endpoint)).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	create := func(name, group, resource, expression string) {
		t.Helper()
		rule := v1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}}
		rules := []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{Operations: []v1.OperationType{"CREATE"}, Rule: rule}}}
		spec := v1.ValidatingAdmissionPolicySpec{MatchConstraints: &v1.MatchResources{ResourceRules: rules}, Validations: []v1.Validation{{Expression: expression}}}
		_, err := policies.Create(ctx, &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		succeeds(t, err)
	}
	checked := func(name string) (string, bool) {
		return checkedStatus(must[*v1.ValidatingAdmissionPolicy](t)(policies.Get(ctx, name, metav1.GetOptions{})))
	}
	create("custom", "judged.example.com", "things", "object.spec.size == 'large'")
	create("built-in", "", "configmaps", "object.data == 'large'")
	eventually(ctx, t, "a built-in kind", func() (string, bool) {
		status, isChecked := checked("built-in")
		return "it has no status", isChecked && strings.Contains(status, "expressionWarnings")
	})
	before := gate.Met()
	succeeds(t, poll(changeLimit, 10*time.Millisecond, func() (bool, error) { return gate.Met() > before+1, nil }))
	if status, isChecked := checked("custom"); isChecked {
		t.Errorf("while nothing is known of its fields, the status is %s", status)
	}
	gate.Set(noDiscoveryFault)
	eventually(ctx, t, "a custom resource", func() (string, bool) {
		status, isChecked := checked("custom")
		return "it has no status", isChecked && strings.Contains(status, "expressionWarnings")
	})
}
