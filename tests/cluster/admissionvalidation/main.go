// Writes what Kubernetes' validation says about the policies and bindings of cases.yaml: one JSON object a line, with the
// object after its defaults, the object that it replaces, and the errors in their order.
//
// The output is checked in as crates/admission/tests/corpus/validation.jsonl, with which the crate is compared.
// .ci/run cluster checks that it is current. To write it: go run ./admissionvalidation >FILE
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var text []byte

type object = map[string]any

type validationCase struct {
	Name string `json:"name"`
	// policy, binding or status.
	Kind  string `json:"kind"`
	Patch object `json:"patch"`
	Old   object `json:"old"`
	// A list, and how many items it gets.
	Many []any `json:"many"`
	// A list that gets one expression of audit annotations over the limit.
	Long []string `json:"long"`
}

type result struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind"`
	Object object   `json:"object"`
	Old    object   `json:"old,omitempty"`
	Errors []string `json:"errors"`
}

const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: example.com}
spec:
  matchConstraints:
    resourceRules:
    - {operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}
  validations:
  - {expression: "object.spec.replicas <= 5"}
`

const binding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: example}
spec: {policyName: example.com, validationActions: [Deny]}
`

func main() {
	var cases []validationCase
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		log.Fatal(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, one := range cases {
		if err := out.Encode(one.run()); err != nil {
			log.Fatal(err)
		}
	}
}

func (c *validationCase) run() result {
	c.expand()
	found := result{Name: c.Name, Kind: c.Kind, Object: c.object(c.Patch), Errors: []string{}}
	if c.Old != nil {
		found.Old = c.object(c.Old)
	}
	var errors field.ErrorList
	if c.Kind == "binding" {
		errors = validation.ValidateValidatingAdmissionPolicyBinding(internal(found.Object).(*admissionregistration.ValidatingAdmissionPolicyBinding))
	} else {
		now := internal(found.Object).(*admissionregistration.ValidatingAdmissionPolicy)
		switch {
		case c.Kind == "status":
			errors = validation.ValidateValidatingAdmissionPolicyStatusUpdate(now, now)
		case c.Old != nil:
			errors = validation.ValidateValidatingAdmissionPolicyUpdate(now, internal(found.Old).(*admissionregistration.ValidatingAdmissionPolicy))
		default:
			errors = validation.ValidateValidatingAdmissionPolicy(now)
		}
	}
	for _, one := range errors {
		if !strings.HasPrefix(one.Field, "metadata") {
			found.Errors = append(found.Errors, one.Error())
		}
	}
	return found
}

// Fills in what would be too long for the file.
func (c *validationCase) expand() {
	if len(c.Long) == 2 {
		expression := "'" + strings.Repeat("x", 5*1024) + "'"
		c.Patch = object{c.Long[0]: object{c.Long[1]: []any{object{"key": "a", "valueExpression": expression}}}}
	}
	if len(c.Many) == 3 {
		var items []any
		for index := range int(c.Many[2].(float64)) {
			name := fmt.Sprint("n", index)
			items = append(items, map[bool]object{
				true:  {"name": name, "expression": "true"},
				false: {"key": name, "valueExpression": "'x'"},
			}[c.Many[1] == "matchConditions"])
		}
		c.Patch = object{c.Many[0].(string): object{c.Many[1].(string): items}}
	}
}

// The valid object with a patch and with its defaults.
func (c *validationCase) object(patch object) object {
	base := policy
	if c.Kind == "binding" {
		base = binding
	}
	var merged object
	check(yaml.Unmarshal([]byte(base), &merged))
	merge(merged, patch)
	decoded := versioned(merged)
	legacyscheme.Scheme.Default(decoded)
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
	check(err)
	return out
}

func versioned(from object) runtime.Object {
	var into runtime.Object = &v1.ValidatingAdmissionPolicy{}
	if from["kind"] == "ValidatingAdmissionPolicyBinding" {
		into = &v1.ValidatingAdmissionPolicyBinding{}
	}
	text, err := json.Marshal(from)
	check(err)
	check(json.Unmarshal(text, into))
	return into
}

func internal(from object) runtime.Object {
	converted, err := legacyscheme.Scheme.ConvertToVersion(versioned(from), admissionregistration.SchemeGroupVersion)
	check(err)
	return converted
}

// An RFC 7386 merge patch.
func merge(into, patch object) {
	for name, value := range patch {
		inner, isObject := value.(object)
		old, wasObject := into[name].(object)
		switch {
		case value == nil:
			delete(into, name)
		case isObject && wasObject:
			merge(old, inner)
		default:
			into[name] = value
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
