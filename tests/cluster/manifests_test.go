package cluster

import (
	"bytes"

	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// otherwiseApplied are the shipped files that are not applied with the others, and the tests that a server sees them in.
var otherwiseApplied = map[string]string{
	"sidecar/pod.yaml":                      "TestAServerAcceptsThePodOfTheSidecar",
	"sidecar/kube-apiserver+strategic.yaml": "TestThePatchOfKubeApiserverChangesTheHostOfItsProbes",
	"overlay/deployment+strategic.yaml":     "TestTheShippedManifestsApplyAllAtOnce",
	"eviction/mistakes.yaml":                "TestAServerAcceptsTheMistakesOfBudgetsThatAreNotInvalid",
}

// shippedFiles are all files below a directory, as paths in it, that describe objects of Kubernetes.
func shippedFiles(directory string) (files []string, err error) {
	err = filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		// The cases of `fairgate policy test` are no objects.
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || entry.Name() == "cases.yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := readManifest(content)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		// A configuration is fairgate's alone.
		if len(objects) == 0 || objects[0].GetAPIVersion() == "fairgate.dev/v1alpha1" {
			return nil
		}
		name, err := filepath.Rel(directory, path)
		files = append(files, name)
		return err
	})
	return files, err
}

// appliedManifests are the files that operators apply, of all modes, the namespace first.
func appliedManifests(t *testing.T) []string {
	t.Helper()
	applied := []string{"deployment.yaml"}
	shipped := must[[]string](t)(shippedFiles(manifests))
	for _, file := range shipped {
		if _, otherwise := otherwiseApplied[file]; !otherwise && file != applied[0] {
			applied = append(applied, file)
		}
	}
	for file := range otherwiseApplied {
		if !slices.Contains(shipped, file) {
			t.Errorf("%s is not shipped any more", file)
		}
	}
	return applied
}

// shippedRoles are all roles of these files.
var shippedRoles = []ShippedRole{
	ImpersonatorRole, SidecarRole, OverlayRole, SecureAdminRole, MetricsReaderRole, PrecheckRole, EvictionRole, ControllerRole, LeaseRole, AdmissionRole, EvaluatedObjectsRole, EditorRole,
}

// readManifest reads the objects of a file.
func readManifest(content []byte) (objects []unstructured.Unstructured, err error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		var object unstructured.Unstructured
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// The manifests of all modes can be applied to one cluster, in any order: no object of one takes the place of another one's.
func TestTheShippedManifestsApplyAllAtOnce(t *testing.T) {
	ctx := inTime(t, 5*time.Minute)
	applied := appliedManifests(t)
	of := map[string]string{}
	contents := map[string]string{}
	for _, file := range applied {
		content := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, file)))
		contents[file] = string(content)
		for _, object := range must[[]unstructured.Unstructured](t)(readManifest(content)) {
			id := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
			if other, taken := of[id]; taken {
				t.Errorf("%s is in %s and in %s", id, other, file)
			}
			of[id] = file
		}
	}
	reversed := slices.Clone(applied[1:])
	slices.Reverse(reversed)
	for _, file := range append(append(slices.Clone(applied), "deployment.yaml"), reversed...) {
		kubectl(t, shared.Direct, shared.admin, contents[file], "apply", "-f", "-")
	}
	for _, shipped := range shippedRoles {
		wanted, err := shipped.Read()
		succeeds(t, err)
		got, err := shared.Admin.RbacV1().ClusterRoles().Get(ctx, shipped.Name, metav1.GetOptions{})
		succeeds(t, err)
		if !apiequality.Semantic.DeepEqual(got.Rules, wanted.Rules) {
			t.Errorf("the role %s of %s is not in force: %v", shipped.Name, shipped.File, got.Rules)
		}
	}
	for user, may := range map[string]authorizationv1.ResourceAttributes{
		"system:serviceaccount:fairgate-system:fairgate": {Verb: "impersonate", Resource: "users"},
		"fairgate": {Verb: "watch", Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"},
	} {
		succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &may}}
			reviewed, err := shared.Admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &review, metav1.CreateOptions{})
			return err == nil && reviewed.Status.Allowed, err
		}))
	}
	patch := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, "overlay/deployment+strategic.yaml")))
	kubectl(t, shared.Direct, shared.admin, "", "-n", "fairgate-system", "patch", "deployment", "fairgate", "--patch", string(patch))
	deployment, err := shared.Admin.AppsV1().Deployments("fairgate-system").Get(ctx, "fairgate", metav1.GetOptions{})
	succeeds(t, err)
	volume := deployment.Spec.Template.Spec.Volumes[slices.IndexFunc(deployment.Spec.Template.Spec.Volumes, func(one corev1.Volume) bool { return one.Name == "state" })]
	if *deployment.Spec.Replicas != 1 || volume.PersistentVolumeClaim == nil || volume.EmptyDir != nil {
		t.Errorf("%d replicas with the volume %+v", *deployment.Spec.Replicas, volume)
	}
}

// A server accepts all policies that are shipped as examples, and the objects that go with them.
func TestAServerAcceptsTheShippedPolicies(t *testing.T) {
	kubectl(t, shared.Direct, shared.admin, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`, "apply", "-f", "-")
	for _, directory := range []string{"../../config/policies", "../../config/admission"} {
		files := must[[]string](t)(shippedFiles(directory))
		if len(files) == 0 {
			t.Errorf("%s has no objects", directory)
		}
		for _, file := range files {
			content := must[[]byte](t)(os.ReadFile(filepath.Join(directory, file)))
			kubectl(t, shared.Direct, shared.admin, string(content), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		}
	}
}

// The shipped roles are all that a gateway needs to evaluate requests by the upstream's policies.
func TestTheShippedRolesSufficeForAdmission(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	const user, namespace = "roles-gateway", "shipped-roles"
	succeeds(t, Grant(ctx, bed.Plain.Admin, user, ImpersonatorRole, AdmissionRole, EvaluatedObjectsRole))
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	maps := "/api/v1/namespaces/" + namespace + "/configmaps"
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"shipped-roles"},"spec":{"failurePolicy":"Fail",` +
		`"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + namespace + `"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["configmaps"]}]},` +
		`"validations":[{"expression":"oldObject.data.a == object.data.a && authorizer.group('').resource('pods').check('list').allowed()"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"shipped-roles"},"spec":{"policyName":"shipped-roles","validationActions":["Deny"]}}`
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + namespace + `"}}`}, {maps, `{"metadata":{"name":"m"},"data":{"a":"1"}}`}, {policiesPath, policy}, {bindingsPath, binding},
	} {
		succeeds(t, plain.must(ctx, "POST", made[0], made[1], 201, 409))
	}
	gateway := newFairgate(t, FairgateOptions{Mode: "impersonate", User: user, Upstream: bed.Plain.URL, Off: true, Admission: "enforce", Fidelity: "completed"})
	succeeds(t, gateway.Start(), untilPoliciesAreKnown(gateway))
	through := plain.through(t, "gateway", gateway.Endpoint)
	update := func(a string) (int, error) {
		answer, err := through.send(ctx, http.MethodPut, maps+"/m", jsonType, []byte(`{"metadata":{"name":"m"},"data":{"a":"`+a+`"}}`))
		return answer.code, err
	}
	succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
		code, err := update("2")
		return code == http.StatusUnprocessableEntity, err
	}))
	code, err := update("1")
	if err != nil || code != http.StatusOK {
		t.Errorf("%d %v", code, err)
	}
}
