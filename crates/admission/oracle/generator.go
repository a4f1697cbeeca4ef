package main

import (
	"fmt"
	"math/rand/v2"

	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pools of expressions. Their values differ between requests; some do not compile, and some fail.
var (
	conditionPool = []string{
		"true", "false", "object != null", "oldObject == null", "request.operation == 'CREATE'", "request.operation in ['UPDATE', 'DELETE']",
		"has(object.metadata.labels)", "'app' in object.metadata.labels", "object.metadata.labels.app == 'web'", "object.metadata.name.startsWith('web')",
		"request.userInfo.username == 'alice'", "'dev' in request.userInfo.groups", "request.namespace == 'shop'", "namespaceObject == null",
		"namespaceObject.metadata.labels.env == 'prod'", "object.spec.replicas > 1", "!has(object.spec.hostNetwork) || object.spec.hostNetwork == false",
		"object.spec.containers.all(c, !c.image.endsWith(':latest'))", "object.spec.containers.all(c, has(c.resources.limits.memory))",
		"object.spec.containers.exists_one(c, c.name == 'main')", "object.metadata.?annotations[?'note'].orValue('') != ''",
		"authorizer.requestResource.check('get').allowed()", "authorizer.group('apps').resource('deployments').namespace(request.namespace).check('create').allowed()",
		"params == null", "params.data.max == '5'", "int(params.data.max) >= 3", "has(params.data) && 'env' in params.data",
		"variables.v0 == 'x'", "variables.v0 != null", "variables.v1", "variables.v1 == true || variables.v2 == 1", "variables.v2.size() > 1", "has(variables.v0)",
		"variables.v0 == variables.v1", "request.name == '' || request.name.matches('^[a-z0-9-]+$')", "request.dryRun", "request.resource.resource == 'pods'",
		"request.subResource == 'status'", "request.requestSubResource == ''", "object.nope.nope == 1", "1 / 0 == 1", "object.spec", "'text'", "object.a +", "nope == 1",
		"[1, 2, 3].all(a, [1, 2, 3].all(b, a + b < 6))", "quantity(object.spec.containers[0].resources.limits.memory).isLessThan(quantity('1Gi'))",
		"object.apiVersion + object.kind == 'v1Pod'", "size(object.metadata.name) <= 63", "oldObject.data == object.data", "request.options.fieldManager == 'kubectl'",
		"timestamp(namespaceObject.metadata.creationTimestamp) < timestamp('2025-01-01T00:00:00Z')", "request.userInfo.extra['scopes'].exists(s, s == 'a')",
	}
	variablePool = []string{
		"object.metadata.name", "object.spec.containers", "object.spec.containers.map(c, c.name)", "object.metadata.?labels.orValue({})", "request.userInfo.groups",
		"request.namespace == 'shop'", "object.nope", "1 + '1'", "object.spec.replicas + 1", "namespaceObject.metadata.labels", "params.data.max",
		"authorizer.requestResource.check('get').allowed()", "[1, 2, 3].map(x, x * 2)", "{'a': [1], 'b': []}", "'a,b,c'.split(',')", "variables.v0", "variables.v0 + 'x'",
		"variables.v1 == variables.v0", "has(variables.v0) ? 1 : 2", "quantity('1Gi')", "null", "object", "request", "duration('1h')", "optional.of(object.metadata.name)",
	}
	textPool = []string{
		"'fixed'", "'name ' + object.metadata.name", "object.metadata.name + ' in ' + request.namespace", "string(object.spec.replicas)", "'  '", "''",
		"'two\\nlines'", "'%s wants %d'.format([request.userInfo.username, 3])", "string(variables.v0)", "variables.v0 + '!'", "'limit ' + string(params.data.max)", "params.metadata.name",
		"object.nope", "string(object.nope)", "1", "object.a +", "string(authorizer.requestResource.check('get').allowed())", "namespaceObject.metadata.name",
		"object.spec.containers.map(c, c.name).join(', ')", "'quoted \"x\" \\\\ y'",
	}
	valuePool  = append([]string{"null", "'v'", "object == null ? '' : 'there'", "string(variables.v1)", "request.operation"}, textPool...)
	labelPool  = []map[string]string{{"env": "prod"}, {"env": "dev"}, {"app": "web"}, {"team": "a", "env": "prod"}, {"none": "x"}}
	actionPool = [][]v1.ValidationAction{{v1.Deny}, {v1.Deny}, {v1.Warn}, {v1.Audit}, {v1.Deny, v1.Audit}, {v1.Warn, v1.Audit}}
	rulePool   = []v1.Rule{
		{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "configmaps", "namespaces"}},
		{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments", "deployments/scale"}},
		{APIGroups: []string{"extensions", "apps"}, APIVersions: []string{"v1beta1"}, Resources: []string{"*"}},
		{APIGroups: []string{"apps"}, APIVersions: []string{"v1alpha1", "v1beta1"}, Resources: []string{"deployments/*"}},
		{APIGroups: []string{"*"}, APIVersions: []string{"v1"}, Resources: []string{"*/status", "*/exec", "secrets"}},
	}
)

func pick[T any](random *rand.Rand, all []T) T { return all[random.IntN(len(all))] }

// drawn makes count random cases: each has one or two policies, their bindings, and one of the requests.
func drawn(random *rand.Rand, count int, requests []string) []*testCase {
	var all []*testCase
	for i := range count {
		c := &testCase{Case: fmt.Sprintf("drawn %d", i), Request: pick(random, requests)}
		policies := 1
		if random.IntN(6) == 0 {
			policies = 2
		}
		for p := range policies {
			name := fmt.Sprintf("p%d", p)
			c.Policies = append(c.Policies, drawnPolicy(random, name))
			for b := range 1 + random.IntN(5)/4 {
				c.Bindings = append(c.Bindings, drawnBinding(random, name, fmt.Sprintf("b%d%d", p, b)))
			}
		}
		all = append(all, c)
	}
	return all
}

func drawnPolicy(random *rand.Rand, name string) *v1.ValidatingAdmissionPolicy {
	policy := &v1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec := &policy.Spec
	if random.IntN(3) == 0 {
		ignore := v1.Ignore
		spec.FailurePolicy = &ignore
	}
	if random.IntN(3) == 0 {
		spec.ParamKind = &v1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		if random.IntN(8) == 0 {
			spec.ParamKind = &v1.ParamKind{APIVersion: "example.com/v1", Kind: pick(random, []string{"Limits", "Nope"})}
		}
	}
	if random.IntN(2) == 0 {
		spec.MatchConstraints = drawnResources(random, true)
	}
	for i := range random.IntN(4) {
		spec.Variables = append(spec.Variables, v1.Variable{Name: fmt.Sprintf("v%d", i), Expression: pick(random, variablePool)})
	}
	for i := range max(0, random.IntN(5)-2) {
		spec.MatchConditions = append(spec.MatchConditions, v1.MatchCondition{Name: fmt.Sprintf("c%d", i), Expression: pick(random, conditionPool)})
	}
	for range random.IntN(5) {
		validation := v1.Validation{Expression: pick(random, conditionPool)}
		if random.IntN(2) == 0 {
			validation.MessageExpression = pick(random, textPool)
		}
		if random.IntN(3) == 0 {
			validation.Message = " must not be so "
		}
		if random.IntN(4) == 0 {
			reason := pick(random, []metav1.StatusReason{"Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"})
			validation.Reason = &reason
		}
		spec.Validations = append(spec.Validations, validation)
	}
	for i := range max(0, random.IntN(4)-1) {
		spec.AuditAnnotations = append(spec.AuditAnnotations, v1.AuditAnnotation{Key: fmt.Sprintf("k%d", i), ValueExpression: pick(random, valuePool)})
	}
	return policy
}

func drawnBinding(random *rand.Rand, policy, name string) *v1.ValidatingAdmissionPolicyBinding {
	binding := &v1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec.PolicyName = policy
	binding.Spec.ValidationActions = pick(random, actionPool)
	if random.IntN(4) == 0 {
		binding.Spec.MatchResources = drawnResources(random, false)
	}
	if random.IntN(2) == 0 {
		action := pick(random, []v1.ParameterNotFoundActionType{v1.AllowAction, v1.DenyAction})
		ref := &v1.ParamRef{ParameterNotFoundAction: &action}
		switch random.IntN(3) {
		case 0:
			ref.Name = pick(random, []string{"limits", "more", "nope", "wide"})
		case 1:
			ref.Selector = &metav1.LabelSelector{}
		default:
			ref.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"use": "policy"}}
		}
		if random.IntN(3) == 0 {
			ref.Namespace = pick(random, []string{"shop", "dev"})
		}
		binding.Spec.ParamRef = ref
	}
	return binding
}

func drawnResources(random *rand.Rand, rules bool) *v1.MatchResources {
	resources := &v1.MatchResources{}
	if rules || random.IntN(2) == 0 {
		for range 1 + random.IntN(2) {
			resources.ResourceRules = append(resources.ResourceRules, drawnRule(random))
		}
	}
	if random.IntN(6) == 0 {
		resources.ExcludeResourceRules = append(resources.ExcludeResourceRules, drawnRule(random))
	}
	if random.IntN(4) == 0 {
		exact := v1.Exact
		resources.MatchPolicy = &exact
	}
	if random.IntN(3) == 0 {
		resources.NamespaceSelector = drawnSelector(random)
	}
	if random.IntN(4) == 0 {
		resources.ObjectSelector = drawnSelector(random)
	}
	return resources
}

func drawnSelector(random *rand.Rand) *metav1.LabelSelector {
	if random.IntN(2) == 0 {
		return &metav1.LabelSelector{MatchLabels: pick(random, labelPool)}
	}
	operator := pick(random, []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist})
	one := metav1.LabelSelectorRequirement{Key: pick(random, []string{"env", "app", "team", "kubernetes.io/metadata.name"}), Operator: operator}
	if operator == metav1.LabelSelectorOpIn || operator == metav1.LabelSelectorOpNotIn {
		one.Values = []string{"prod", "web"}
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{one}}
}

func drawnRule(random *rand.Rand) v1.NamedRuleWithOperations {
	operations := pick(random, [][]v1.OperationType{{v1.OperationAll}, {v1.OperationAll}, {v1.Create, v1.Update}, {v1.Delete, v1.Connect}})
	rule := pick(random, rulePool)
	if random.IntN(4) == 0 {
		scope := pick(random, []v1.ScopeType{v1.ClusterScope, v1.NamespacedScope})
		rule.Scope = &scope
	}
	named := v1.NamedRuleWithOperations{RuleWithOperations: v1.RuleWithOperations{Operations: operations, Rule: rule}}
	if random.IntN(6) == 0 {
		named.ResourceNames = []string{"cm", "name", "web-0"}
	}
	return named
}
