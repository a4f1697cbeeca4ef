package cluster

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// quotedObject is the object that a patch made and that cannot be read, in the message about it.
var quotedObject = regexp.MustCompile(`(?s)Invalid value: ("(?:[^"\\]|\\.)*")`)

// withSortedObject is such a message with the members of the object in the order of their names, and whether that changed it.
func withSortedObject(t *testing.T, message string) (sorted string, isOther bool) {
	t.Helper()
	found := quotedObject.FindStringSubmatch(message)
	if found == nil {
		t.Fatalf("it quotes no object: %.300s", message)
	}
	text := must[string](t)(strconv.Unquote(found[1]))
	var object any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	succeeds(t, decoder.Decode(&object))
	inOrder := string(must[[]byte](t)(json.Marshal(object)))
	return strings.Replace(message, found[1], strconv.Quote(inOrder), 1), inOrder != text
}

// Where a patch makes something that cannot be read, a gateway answers as the server, but for the order of the members of the object that the message
// quotes: in a server, what the patch does not touch has the order of Go's types, if the kind is built in. docs/admission.md says so. The gateway sorts
// them all.
func TestObjectsThatCannotBeReadAreQuotedInTheOrderOfNames(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, 5*time.Minute)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	const namespace = "quoted-objects"
	pods, things := "/api/v1/namespaces/"+namespace+"/pods", "/apis/judged.example.com/v1/namespaces/"+namespace+"/things"
	policy := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"quoted-objects"},"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + namespace + `"}},` +
		`"resourceRules":[{"apiGroups":["","judged.example.com"],"apiVersions":["*"],"operations":["*"],"resources":["*"],"scope":"Namespaced"}]},"validations":[{"expression":"object.metadata.name != 'denied'"}]}}`
	binding := `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"quoted-objects"},"spec":{"policyName":"quoted-objects","validationActions":["Deny"]}}`
	t.Cleanup(func() {
		// It fails wherever there is no object, and other tests ask gateways that follow all policies.
		ctx := inTime(t, time.Minute)
		for _, path := range []string{bindingsPath, policiesPath} {
			succeeds(t, plain.must(ctx, "DELETE", path+"/quoted-objects", "", 200))
		}
	})
	for _, made := range [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + namespace + `"}}`}, {policiesPath, policy}, {bindingsPath, binding},
		{pods, `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
		{things, `{"apiVersion":"judged.example.com/v1","kind":"Thing","metadata":{"name":"p","labels":{"b":"c","a":"b"}},"spec":{"colour":"red"}}`},
	} {
		succeeds(t, plain.must(ctx, "POST", made[0], made[1], 201))
	}
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	through := plain.through(t, "gateway", gateway.Endpoint)
	succeeds(t, poll(time.Minute, 50*time.Millisecond, func() (bool, error) {
		answer, err := through.send(ctx, "POST", pods+"?dryRun=All", jsonType, []byte(`{"metadata":{"name":"denied"},"spec":{"containers":[{"name":"c","image":"i"}]}}`))
		return answer.code == 422, err
	}))
	for _, patch := range []struct {
		path, media, body string
		unsorted          bool
	}{
		{pods + "/p", mergePatch, `{"spec":{"containers":"x"}}`, true},
		{pods + "/p", mergePatch, `{"metadata":{"labels":{"a":{"b":1}}}}`, true},
		{pods + "/p", jsonPatch, `[{"op":"add","path":"/spec/hostNetwork","value":"x"}]`, true},
		{things + "/p", mergePatch, `{"metadata":{"labels":{"a":{"b":1}}}}`, false},
	} {
		want := must[documentAnswer](t)(plain.send(ctx, "PATCH", patch.path, patch.media, []byte(patch.body)))
		got := must[documentAnswer](t)(through.send(ctx, "PATCH", patch.path, patch.media, []byte(patch.body)))
		inOrder, isOther := withSortedObject(t, want.message)
		sorted, isUnsorted := withSortedObject(t, got.message)
		if want.code != got.code || inOrder != sorted {
			t.Errorf("%s %s: %d %s\nwant %d %s", patch.media, patch.body, got.code, got.message, want.code, want.message)
		}
		if isUnsorted || isOther != patch.unsorted {
			t.Errorf("%s %s: the server sorts the members: %v, the gateway: %v", patch.media, patch.body, !isOther, !isUnsorted)
		}
	}
}
