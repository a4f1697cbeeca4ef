// Writes what Kubernetes' type checker says about the policies of cases.yaml: one JSON object a line, with the policy and its
// warnings. The server that it asks for kinds has those that fairgate hosts, and custom ones, of which openapi.json is what a server says.
//
// The output is checked in as crates/admission/tests/corpus/types.jsonl, with which the crate is compared.
// .ci/run cluster checks that it is current. To write it: go run ./admissiontypes >FILE
package main

import (
	_ "embed"
	"encoding/json"
	"log"
	"os"
	"regexp"

	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	clientopenapi "k8s.io/client-go/openapi"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var text []byte

//go:embed openapi.json
var document []byte

// A customServer has the OpenAPI document of example.com/v1, and no other.
type customServer struct {
	discovery.DiscoveryInterface
}

func (customServer) OpenAPIV3() clientopenapi.Client { return customServer{} }

func (customServer) Paths() (map[string]clientopenapi.GroupVersion, error) {
	return map[string]clientopenapi.GroupVersion{"apis/example.com/v1": customServer{}}, nil
}

func (customServer) Schema(string) ([]byte, error) { return document, nil }

func (customServer) ServerRelativeURL() string { return "" }

// A typeCase is a policy about FlowSchemas, or about other resources.
type typeCase struct {
	Name string `json:"name"`
	// Rules instead of one about FlowSchemas.
	Rules     []v1.NamedRuleWithOperations `json:"rules"`
	ParamKind *v1.ParamKind                `json:"paramKind"`
	Variables []v1.Variable                `json:"variables"`
	// Each is a validation; a message may follow after " => ".
	Expressions []string `json:"expressions"`
}

type result struct {
	Name     string                       `json:"name"`
	Policy   v1.ValidatingAdmissionPolicy `json:"policy"`
	Warnings []v1.ExpressionWarning       `json:"warnings"`
}

// The original gives its types unique names.
var unique = regexp.MustCompile(`\b(FlowSchema|PriorityLevelConfiguration|PodDisruptionBudget|ValidatingAdmissionPolicy|ValidatingAdmissionPolicyBinding|Gadget|Sparse|Untyped|Loop|Broken|Flat)\d+`)

var message = regexp.MustCompile(`^(.*) => (.*)$`)

func main() {
	var cases []typeCase
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		log.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for version, kinds := range map[schema.GroupVersion][]string{
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1"}:      {"FlowSchema", "PriorityLevelConfiguration"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1beta3"}: {"FlowSchema", "PriorityLevelConfiguration"},
		{Group: "policy", Version: "v1"}:                            {"PodDisruptionBudget"},
		{Group: "example.com", Version: "v1"}:                       {"Gadget", "Sparse", "Untyped", "Loop", "Broken", "Flat", "Undeclared"},
		{Group: "example.com", Version: "v2"}:                       {"Gadget"},
		{Group: "admissionregistration.k8s.io", Version: "v1"}:      {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
	} {
		for _, kind := range kinds {
			mapper.Add(version.WithKind(kind), meta.RESTScopeRoot)
		}
	}
	checker := validating.TypeChecker{
		SchemaResolver: resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme).
			Combine(&resolver.ClientDiscoveryResolver{Discovery: customServer{}}),
		RestMapper: mapper,
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, one := range cases {
		found := result{Name: one.Name, Policy: one.policy(), Warnings: []v1.ExpressionWarning{}}
		for _, warning := range checker.Check(&found.Policy) {
			warning.Warning = unique.ReplaceAllString(warning.Warning, "$1")
			found.Warnings = append(found.Warnings, warning)
		}
		if err := out.Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}

func (c *typeCase) policy() v1.ValidatingAdmissionPolicy {
	var policy v1.ValidatingAdmissionPolicy
	policy.Name = "example"
	rules := c.Rules
	if rules == nil {
		rule := v1.Rule{APIGroups: []string{"flowcontrol.apiserver.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"flowschemas"}}
		rules = []v1.NamedRuleWithOperations{{RuleWithOperations: v1.RuleWithOperations{Operations: []v1.OperationType{"CREATE"}, Rule: rule}}}
	}
	policy.Spec.MatchConstraints = &v1.MatchResources{ResourceRules: rules}
	policy.Spec.ParamKind, policy.Spec.Variables = c.ParamKind, c.Variables
	for _, expression := range c.Expressions {
		validation := v1.Validation{Expression: expression}
		if parts := message.FindStringSubmatch(expression); parts != nil {
			validation = v1.Validation{Expression: parts[1], MessageExpression: parts[2]}
		}
		policy.Spec.Validations = append(policy.Spec.Validations, validation)
	}
	return policy
}
