package main

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

var baseEnvironment = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())

// compile makes the validator of a policy with each part behind a meter.
func compile(policy *v1.ValidatingAdmissionPolicy, log *meterLog) (validating.Validator, error) {
	validator, err := validatorOf(policy, func(part celplugin.ConditionEvaluator, stage int) celplugin.ConditionEvaluator {
		return meter{part, stage, log}
	})
	if err != nil {
		return nil, err
	}
	return meteredValidator{validator, policy.Name, log}, nil
}

// unmetered leaves a part as it is.
func unmetered(part celplugin.ConditionEvaluator, _ int) celplugin.ConditionEvaluator { return part }

// validatorOf makes the validator of a policy out of the parts that the plugin makes it of, each passed through wrap.
func validatorOf(policy *v1.ValidatingAdmissionPolicy, wrap func(celplugin.ConditionEvaluator, int) celplugin.ConditionEvaluator) (validating.Validator, error) {
	all := celplugin.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	messages := celplugin.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil}
	compiler, err := celplugin.NewCompositedCompiler(baseEnvironment)
	if err != nil {
		return nil, err
	}
	for _, v := range policy.Spec.Variables {
		compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, all, environment.StoredExpressions)
	}
	condition := func(stage int, options celplugin.OptionalVariableDeclarations, expressions []celplugin.ExpressionAccessor) celplugin.ConditionEvaluator {
		return wrap(compiler.CompileCondition(expressions, options, environment.StoredExpressions), stage)
	}
	var conditions, validations, texts, annotations []celplugin.ExpressionAccessor
	for _, c := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var text celplugin.ExpressionAccessor
		if v.MessageExpression != "" {
			text = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		texts = append(texts, text)
	}
	for _, a := range policy.Spec.AuditAnnotations {
		annotations = append(annotations, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression})
	}
	var matcher matchconditions.Matcher
	if len(conditions) > 0 {
		matcher = matchconditions.NewMatcher(condition(stageConditions, all, conditions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	}
	return validating.NewValidator(condition(stageValidations, all, validations), matcher,
		condition(stageAnnotations, all, annotations), condition(stageMessages, messages, texts), policy.Spec.FailurePolicy, nil), nil
}

// The parts of an evaluation, in the order of their costs in the corpus.
const (
	stageConditions = iota
	stageValidations
	stageMessages
	stageAnnotations
)

// overBudget stands for the cost of a part that is more than its budget.
const overBudget = -1

// An evaluation is one policy with one param.
type evaluation struct {
	Policy string `json:"policy"`
	// By part; null where it did not run.
	Costs       [4]*int64        `json:"costs"`
	Decisions   []decisionRecord `json:"decisions,omitempty"`
	Annotations []auditRecord    `json:"annotations,omitempty"`
}

type decisionRecord struct {
	Action     string `json:"action"`
	Evaluation string `json:"evaluation"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
}

type auditRecord struct {
	Action string `json:"action"`
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Error  string `json:"error,omitempty"`
}

// A meterLog collects the evaluations of a request, and says what budgets they have instead of the usual ones.
type meterLog struct {
	evaluations []*evaluation
	budgets     budgets
}

// budgets are those of a case; nil is the usual one.
type budgets struct {
	Conditions  *int64 `json:"conditions,omitempty"`
	Validations *int64 `json:"validations,omitempty"`
	Annotations *int64 `json:"annotations,omitempty"`
}

type meter struct {
	celplugin.ConditionEvaluator
	stage int
	log   *meterLog
}

func (m meter) ForInput(ctx context.Context, attributes *admission.VersionedAttributes, request *admissionv1.AdmissionRequest, variables celplugin.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) ([]celplugin.EvaluationResult, int64, error) {
	budgets := []*int64{m.log.budgets.Conditions, m.log.budgets.Validations, nil, m.log.budgets.Annotations}
	if other := budgets[m.stage]; other != nil {
		budget = *other
	}
	results, left, err := m.ConditionEvaluator.ForInput(ctx, attributes, request, variables, namespace, budget)
	cost := budget - left
	if err != nil {
		cost = overBudget
	}
	m.log.evaluations[len(m.log.evaluations)-1].Costs[m.stage] = &cost
	return results, left, err
}

type meteredValidator struct {
	validating.Validator
	policy string
	log    *meterLog
}

func (v meteredValidator) Validate(ctx context.Context, resource schema.GroupVersionResource, attributes *admission.VersionedAttributes, params runtime.Object, namespace *corev1.Namespace, budget int64, authz authorizer.Authorizer) validating.ValidateResult {
	one := &evaluation{Policy: v.policy}
	v.log.evaluations = append(v.log.evaluations, one)
	result := v.Validator.Validate(ctx, resource, attributes, params, namespace, budget, authz)
	for _, d := range result.Decisions {
		one.Decisions = append(one.Decisions, decisionRecord{string(d.Action), string(d.Evaluation), string(d.Reason), d.Message})
	}
	for _, a := range result.AuditAnnotations {
		one.Annotations = append(one.Annotations, auditRecord{string(a.Action), a.Key, a.Value, a.Error})
	}
	return result
}

// hook is a policy with its bindings, as the plugin's policy source gives them.
func (w *world) hook(policy *v1.ValidatingAdmissionPolicy, bindings []*v1.ValidatingAdmissionPolicyBinding, log *meterLog) (*validating.PolicyHook, error) {
	validator, err := compile(policy, log)
	if err != nil {
		return nil, err
	}
	hook := &validating.PolicyHook{Policy: policy, Evaluator: validator}
	for _, b := range bindings {
		if b.Spec.PolicyName == policy.Name {
			hook.Bindings = append(hook.Bindings, b)
		}
	}
	if kind := policy.Spec.ParamKind; kind != nil {
		informer, scope, err := w.paramKind(kind.APIVersion, kind.Kind)
		hook.ParamScope, hook.ConfigurationError = scope, err
		if informer != nil {
			hook.ParamInformer = informer
		}
	}
	return hook, nil
}

// defaulted sets the defaults that the server sets, and names what has no name.
func (c *testCase) defaulted() {
	all := v1.AllScopes
	equivalent := v1.Equivalent
	resources := func(of *v1.MatchResources) {
		for _, rules := range [][]v1.NamedRuleWithOperations{of.ResourceRules, of.ExcludeResourceRules} {
			for i := range rules {
				if rules[i].Scope == nil {
					rules[i].Scope = &all
				}
			}
		}
		if of.MatchPolicy == nil {
			of.MatchPolicy = &equivalent
		}
		if of.NamespaceSelector == nil {
			of.NamespaceSelector = &metav1.LabelSelector{}
		}
		if of.ObjectSelector == nil {
			of.ObjectSelector = &metav1.LabelSelector{}
		}
	}
	for _, p := range c.Policies {
		if p.Name == "" {
			p.Name = "p"
		}
		if p.Spec.MatchConstraints == nil {
			any := []string{"*"}
			rule := v1.Rule{APIGroups: any, APIVersions: any, Resources: []string{"*/*"}}
			p.Spec.MatchConstraints = &v1.MatchResources{ResourceRules: []v1.NamedRuleWithOperations{
				{RuleWithOperations: v1.RuleWithOperations{Operations: []v1.OperationType{v1.OperationAll}, Rule: rule}}}}
		}
		resources(p.Spec.MatchConstraints)
	}
	if c.Bindings == nil {
		c.Bindings = []*v1.ValidatingAdmissionPolicyBinding{{}}
	}
	for _, b := range c.Bindings {
		if b.Name == "" {
			b.Name = "b"
		}
		if b.Spec.PolicyName == "" {
			b.Spec.PolicyName = "p"
		}
		if b.Spec.ValidationActions == nil {
			b.Spec.ValidationActions = []v1.ValidationAction{v1.Deny}
		}
		if b.Spec.MatchResources != nil {
			resources(b.Spec.MatchResources)
		}
	}
}

// without returns an object as JSON, without status and creationTimestamp, which are empty: the corpus has thousands of
// policies.
func without(object any) (map[string]any, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, err
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return content, nil
}
