//! One policy with one param: matchConditions, validations, messages and audit annotations.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/validating/validator.go` and
//! `webhook/matchconditions/matcher.go`.

mod part;
pub(crate) mod values;
mod variables;

use fairgate_cel::{CelBindings, CelJson, CelValue};

use crate::attributes::AdmissionObjects;
use crate::inputs::AdmissionInputs;
use crate::policy::{
    CompiledPolicy, FailurePolicy, PolicyAnnotation, PolicyExpression, PolicyValidation,
};
use part::{EvaluationPart, OutOfBudget};

/// The longest text of a messageExpression, in bytes; a longer one is not used.
const MAX_MESSAGE: usize = 5 * 1024;

/// The highest costs that the parts of an evaluation may have, in CEL cost units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationBudgets {
    /// All matchConditions together.
    pub conditions: u64,
    /// All validations and messageExpressions together.
    pub validations: u64,
    /// All audit annotations together.
    pub annotations: u64,
}

/// The budgets of kube-apiserver.
impl Default for EvaluationBudgets {
    fn default() -> Self {
        Self {
            conditions: 2_500_000,
            validations: 10_000_000,
            annotations: 10_000_000,
        }
    }
}

/// What a part of an evaluation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartCost {
    /// It did not run.
    #[default]
    NotRun,
    /// The cost, in CEL cost units.
    Spent(u64),
    /// It would have cost more than its budget.
    OverBudget,
}

/// What an evaluation cost, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvaluationCosts {
    /// matchConditions.
    pub conditions: PartCost,
    /// Validations.
    pub validations: PartCost,
    /// messageExpressions, which spend what the validations leave.
    pub messages: PartCost,
    /// Audit annotations.
    pub annotations: PartCost,
}

/// What a validation, or an error of the whole policy, leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// The validation holds.
    Admitted,
    /// An error, which the failure policy ignores.
    ErrorIgnored,
    /// The validation does not hold.
    Denied,
    /// An error, which the failure policy does not ignore.
    ErrorDenied,
}

/// The decision of one validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDecision<'p> {
    /// What the validation, or the error, leads to.
    pub kind: DecisionKind,
    /// The policy's reason for a denial; empty for errors.
    pub reason: &'p str,
    /// What the client is told, or the error; empty if the validation holds.
    pub message: String,
}

/// The result of an audit annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnnotationResult {
    /// The value to publish.
    Published(String),
    /// There is none: the value is null or empty.
    Absent,
    /// An error, which the failure policy ignores.
    ErrorIgnored(String),
    /// An error, which denies the request.
    ErrorDenied(String),
}

/// An audit annotation of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAnnotationResult<'p> {
    /// The key, without the policy's name.
    pub key: &'p str,
    /// The value, or why there is none.
    pub result: AnnotationResult,
    /// Whether the key can be published.
    pub(crate) is_publishable: bool,
}

/// What evaluating one policy with one param gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyEvaluation<'p> {
    /// The name of the policy.
    pub policy: &'p str,
    /// The name of the binding.
    pub binding: &'p str,
    /// What each part cost.
    pub costs: EvaluationCosts,
    /// One for each validation, or a single one for an error of the whole policy; none if a matchCondition is false.
    pub decisions: Vec<PolicyDecision<'p>>,
    /// One for each audit annotation, if they were evaluated.
    pub annotations: Vec<PolicyAnnotationResult<'p>>,
}

/// The values of what expressions see. Those that the policy does not use may be absent.
#[derive(Clone)]
pub(crate) struct EvaluationContext<'c> {
    pub(crate) inputs: &'c dyn AdmissionInputs,
    pub(crate) objects: AdmissionObjects<'c>,
    /// For matchConditions, which see the resource as requested.
    pub(crate) requested: Option<&'c CelJson<'c>>,
    pub(crate) request: Option<&'c CelJson<'c>>,
    /// As validations and messages see it.
    pub(crate) namespace: Option<&'c CelJson<'c>>,
    /// As audit annotations see it.
    pub(crate) full_namespace: Option<&'c CelJson<'c>>,
    pub(crate) authorizer: Option<CelValue<'c>>,
    pub(crate) resource_check: Option<CelValue<'c>>,
    pub(crate) budgets: EvaluationBudgets,
}

/// Evaluates a policy with a param.
pub(crate) fn evaluate<'p: 'c, 'c>(
    policy: &'p CompiledPolicy,
    context: &EvaluationContext<'c>,
    param: Option<&'c CelJson<'c>>,
) -> PolicyEvaluation<'p> {
    let mut result = PolicyEvaluation {
        policy: &policy.name,
        ..PolicyEvaluation::default()
    };
    let mut run = PolicyRun::new(policy, context, param);
    if !policy.conditions.is_empty() {
        match run.conditions(&mut result.costs.conditions) {
            ConditionResult::Met => {}
            ConditionResult::NotMet => return result,
            ConditionResult::Error(message) => {
                result.decisions.push(run.error(message));
                return result;
            }
        }
    }
    match run.validations(&mut result.costs) {
        Ok(decisions) => result.decisions = decisions,
        Err(error) => {
            result.decisions.push(run.error(error.to_string()));
            return result;
        }
    }
    match run.annotations() {
        Ok((annotations, cost)) => {
            result.annotations = annotations;
            result.costs.annotations = PartCost::Spent(cost);
        }
        Err(error) => {
            result.costs.annotations = PartCost::OverBudget;
            result.decisions = vec![run.error(error.to_string())];
        }
    }
    result
}

enum ConditionResult {
    Met,
    NotMet,
    Error(String),
}

/// The results of a part's expressions.
type PartResults<'c> = Vec<Result<CelValue<'c>, String>>;

struct PolicyRun<'p, 'c, 'e> {
    policy: &'p CompiledPolicy,
    context: &'e EvaluationContext<'c>,
    bindings: CelBindings<'c>,
}

impl<'p: 'c, 'c, 'e> PolicyRun<'p, 'c, 'e> {
    fn new(
        policy: &'p CompiledPolicy,
        context: &'e EvaluationContext<'c>,
        param: Option<&'c CelJson<'c>>,
    ) -> Self {
        let value = |node: Option<&'c CelJson<'c>>| node.map_or(CelValue::Null, CelValue::json);
        let mut bindings = policy.environment.bindings().with_lazy("variables");
        bindings.set("object", value(context.objects.object));
        bindings.set("oldObject", value(context.objects.old_object));
        if policy.param_kind.is_some() {
            bindings.set("params", value(param));
        }
        let mut run = Self {
            policy,
            context,
            bindings,
        };
        run.bind_authorizer();
        run
    }

    fn bind(&mut self, name: &str, node: Option<&'c CelJson<'c>>) {
        self.bindings
            .set(name, node.map_or(CelValue::Null, CelValue::json));
    }

    fn bind_authorizer(&mut self) {
        let named = [
            ("authorizer", &self.context.authorizer),
            ("authorizer.requestResource", &self.context.resource_check),
        ];
        for (name, value) in named {
            if let Some(value) = value {
                self.bindings.set(name, value.clone());
            }
        }
    }

    /// Messages and audit annotations have no authorizer.
    fn unbind_authorizer(&mut self) {
        if self.context.authorizer.is_some() || self.context.resource_check.is_some() {
            let bindings = self.bindings.clone();
            self.bindings = bindings
                .without("authorizer")
                .without("authorizer.requestResource");
        }
    }

    fn error(&self, message: String) -> PolicyDecision<'p> {
        let kind = match self.policy.failure_policy {
            FailurePolicy::Ignore => DecisionKind::ErrorIgnored,
            FailurePolicy::Fail | FailurePolicy::Unknown(_) => DecisionKind::ErrorDenied,
        };
        PolicyDecision {
            kind,
            reason: "",
            message,
        }
    }

    /// Runs a part with what is bound now; returns the results and what is left of the budget.
    fn part(
        &self,
        expressions: impl Iterator<Item = &'p PolicyExpression>,
        budget: u64,
    ) -> Result<(PartResults<'c>, u64), OutOfBudget> {
        let mut expressions = expressions.peekable();
        if expressions.peek().is_none() {
            return Ok((Vec::new(), budget));
        }
        let inputs = self.context.inputs;
        let interrupted = || inputs.is_interrupted();
        let mut part =
            EvaluationPart::new(&self.policy.variables, &self.bindings, &interrupted, budget);
        let results: Result<Vec<_>, _> = expressions.map(|one| part.evaluate(one)).collect();
        Ok((results?, part.left()))
    }

    /// All conditions are evaluated, so that one that is false counts for more than an error before it.
    fn conditions(&mut self, cost: &mut PartCost) -> ConditionResult {
        self.bind("request", self.context.requested);
        self.bind("namespaceObject", None);
        let budget = self.context.budgets.conditions;
        let results = match self.part(self.policy.conditions.iter(), budget) {
            Ok((results, left)) => {
                *cost = PartCost::Spent(budget - left);
                results
            }
            Err(error) => {
                *cost = PartCost::OverBudget;
                return self.failed_conditions(&[error.to_string()]);
            }
        };
        if results.contains(&Ok(CelValue::Bool(false))) {
            return ConditionResult::NotMet;
        }
        let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        if errors.is_empty() {
            return ConditionResult::Met;
        }
        self.failed_conditions(&errors)
    }

    fn failed_conditions(&self, errors: &[String]) -> ConditionResult {
        match self.policy.failure_policy {
            FailurePolicy::Fail => ConditionResult::Error(aggregate(errors)),
            FailurePolicy::Ignore => ConditionResult::NotMet,
            FailurePolicy::Unknown(_) => ConditionResult::Met,
        }
    }

    fn validations(
        &mut self,
        costs: &mut EvaluationCosts,
    ) -> Result<Vec<PolicyDecision<'p>>, OutOfBudget> {
        self.bind("request", self.context.request);
        self.bind("namespaceObject", self.context.namespace);
        let budget = self.context.budgets.validations;
        let validations = self.policy.validations.iter();
        let expressions = validations.clone().map(|one| &one.expression);
        costs.validations = PartCost::OverBudget;
        let (results, left) = self.part(expressions, budget)?;
        costs.validations = PartCost::Spent(budget - left);
        self.unbind_authorizer();
        let expressions = validations
            .clone()
            .filter_map(|one| one.message_expression.as_ref());
        let messages = self.part(expressions, left);
        let (mut messages, out_of_budget) = match messages {
            Ok((messages, after)) => {
                costs.messages = PartCost::Spent(left - after);
                (messages.into_iter(), None)
            }
            Err(error) => {
                costs.messages = PartCost::OverBudget;
                (Vec::new().into_iter(), Some(error))
            }
        };
        let decisions = validations.zip(results).map(|(validation, result)| {
            let has_message = validation.message_expression.is_some();
            let message = has_message.then(|| messages.next()).flatten();
            match (result, out_of_budget) {
                (Err(error), _) => self.error(error),
                (Ok(_), Some(error)) => self.error(format!("failed messageExpression: {error}")),
                (Ok(value), None) => decision(validation, &value, message.as_ref()),
            }
        });
        Ok(decisions.collect())
    }

    fn annotations(&mut self) -> Result<(Vec<PolicyAnnotationResult<'p>>, u64), OutOfBudget> {
        self.bind("namespaceObject", self.context.full_namespace);
        let budget = self.context.budgets.annotations;
        let annotations = self.policy.annotations.iter();
        let (results, left) = self.part(annotations.clone().map(|one| &one.expression), budget)?;
        let ignore = self.policy.failure_policy == FailurePolicy::Ignore;
        let all = annotations
            .zip(results)
            .map(|(annotation, result)| PolicyAnnotationResult {
                key: &annotation.key,
                result: annotation_result(annotation, result, ignore),
                is_publishable: annotation.is_publishable,
            });
        Ok((all.collect(), budget - left))
    }
}

/// Several errors as one text: each once, in brackets unless there is only one.
fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [only] => (*only).to_owned(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// The decision of a validation that has a value.
fn decision<'p>(
    validation: &'p PolicyValidation,
    value: &CelValue<'_>,
    message: Option<&Result<CelValue<'_>, String>>,
) -> PolicyDecision<'p> {
    if *value == CelValue::Bool(true) {
        return PolicyDecision {
            kind: DecisionKind::Admitted,
            reason: "",
            message: String::new(),
        };
    }
    let computed = match message {
        Some(Ok(value)) => value.as_str().map(str::trim),
        _ => None,
    };
    let usable = |text: &&str| text.len() <= MAX_MESSAGE && !text.contains('\n');
    let texts = [
        computed.filter(usable).unwrap_or_default(),
        &validation.message,
    ];
    let message = match texts.into_iter().find(|text| !text.is_empty()) {
        Some(text) => text.to_owned(),
        None => format!("failed expression: {}", validation.expression.source.trim()),
    };
    PolicyDecision {
        kind: DecisionKind::Denied,
        reason: &validation.reason,
        message,
    }
}

fn annotation_result(
    annotation: &PolicyAnnotation,
    result: Result<CelValue<'_>, String>,
    ignore: bool,
) -> AnnotationResult {
    match result {
        Err(error) if ignore => AnnotationResult::ErrorIgnored(error),
        Err(error) => AnnotationResult::ErrorDenied(error),
        Ok(CelValue::Null) => AnnotationResult::Absent,
        Ok(CelValue::String(text)) => match text.trim() {
            "" => AnnotationResult::Absent,
            text => AnnotationResult::Published(text.to_owned()),
        },
        Ok(other) => AnnotationResult::ErrorDenied(format!(
            "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
            annotation.expression.source,
            other.type_name(),
        )),
    }
}
