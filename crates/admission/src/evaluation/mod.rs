//! One policy with one param: matchConditions, validations, messages and audit annotations.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/validating/validator.go` and
//! `webhook/matchconditions/matcher.go`.

mod early_run;
mod expression_clock;
mod part;
pub(crate) mod values;
mod variables;

use std::time::Duration;

use fairgate_cel::{CelBindings, CelJson, CelValue, CelVariable};
use fairgate_core::time::Time;
use smallvec::{SmallVec, smallvec};

use crate::attributes::AdmissionObjects;
use crate::expression::PolicyExpression;
use crate::inputs::AdmissionInputs;
use crate::observer::ExpressionRole;
use crate::policy::{CompiledPolicy, FailurePolicy, PolicyAnnotation, PolicyValidation};
use crate::set_by_server::FieldSetByServer;
pub(crate) use early_run::{EarlyResult, EarlyRun};
use expression_clock::ExpressionClock;
pub(crate) use part::WORK_LIMIT;
use part::{EvaluationPart, ExpressionError, OutOfBudget};

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

/// Ends the message of an error that is not ignored although the failure policy is `Ignore`.
pub(crate) const NOT_IGNORED: &str =
    " (a limit of fairgate; failurePolicy Ignore does not cover it)";

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

impl EvaluationCosts {
    /// What all parts cost together, in CEL cost units. A part that exceeds its budget has no known cost.
    pub fn known_total(self) -> u64 {
        let parts = [
            self.conditions,
            self.validations,
            self.messages,
            self.annotations,
        ];
        let spent = parts.into_iter().map(|part| match part {
            PartCost::Spent(cost) => cost,
            PartCost::NotRun | PartCost::OverBudget => 0,
        });
        spent.sum()
    }
}

/// What a validation, or an error of the whole policy, leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// The validation holds.
    Allowed,
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
    /// The message for the client, or the error; empty if the validation holds.
    pub message: String,
    /// How long the expression of the validation took, by the clock of [`AdmissionInputs::now`], if it does not hold; zero for
    /// errors of the whole policy.
    pub took: Duration,
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
    /// How long its expression took, by the clock of [`AdmissionInputs::now`], if it has an error.
    pub took: Duration,
}

impl PolicyAnnotationResult<'_> {
    /// Whether it denies the request.
    pub fn denies(&self) -> bool {
        matches!(self.result, AnnotationResult::ErrorDenied(_))
    }

    /// The error, if it has one.
    pub fn error(&self) -> Option<&str> {
        match &self.result {
            AnnotationResult::ErrorIgnored(error) | AnnotationResult::ErrorDenied(error) => {
                Some(error)
            }
            AnnotationResult::Published(_) | AnnotationResult::Absent => None,
        }
    }
}

/// The decisions of one evaluation. Most policies have one validation, or two.
pub type PolicyDecisions<'p> = SmallVec<[PolicyDecision<'p>; 2]>;

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
    pub decisions: PolicyDecisions<'p>,
    /// One for each audit annotation, if they were evaluated.
    pub annotations: Vec<PolicyAnnotationResult<'p>>,
    /// How long it took, by the clock of [`AdmissionInputs::now`].
    pub took: Duration,
    /// Fields that a server sets, of any resource, that the policy may read.
    pub set_by_server: &'p [&'static FieldSetByServer],
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
    /// The steps that each part may take besides those that its cost allows.
    pub(crate) work: u64,
}

/// Evaluates a policy with a param; it is `started` now.
pub(crate) fn evaluate<'p: 'c, 'c>(
    policy: &'p CompiledPolicy,
    context: &EvaluationContext<'c>,
    param: Option<&'c CelJson<'c>>,
    started: Time,
) -> PolicyEvaluation<'p> {
    let mut result = PolicyEvaluation {
        policy: &policy.name,
        set_by_server: &policy.set_by_server,
        ..PolicyEvaluation::default()
    };
    let mut run = PolicyRun::new(policy, context, param);
    if !policy.conditions.is_empty() {
        match run.conditions(&mut result.costs.conditions) {
            ConditionResult::Met => {}
            ConditionResult::NotMet => return result,
            ConditionResult::Error(error) => {
                result.decisions.push(run.failed(error));
                return result;
            }
        }
    }
    let known = policy.conditions.is_empty().then_some(started);
    match run.validations(&mut result.costs, known) {
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
            // As in the original, this takes the place of all decisions, also of those that deny.
            result.decisions = smallvec![run.error(error.to_string())];
        }
    }
    result
}

enum ConditionResult {
    Met,
    NotMet,
    Error(ExpressionError),
}

/// What all conditions of a policy gave.
struct ConditionResults {
    is_false: bool,
    errors: Vec<ExpressionError>,
    /// What is left of their budget.
    left: u64,
}

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
        let mut run = Self {
            policy,
            context,
            bindings: policy.environment.bindings(),
        };
        let numbers = &policy.numbers;
        if let Some(variables) = numbers.variables {
            run.bindings.bind_lazily(variables);
        }
        run.bind(numbers.object, context.objects.object);
        run.bind(numbers.old_object, context.objects.old_object);
        run.bind(numbers.params, param);
        run.bind_opaque(numbers.authorizer, context.authorizer.as_ref());
        run.bind_opaque(numbers.resource_check, context.resource_check.as_ref());
        run
    }

    fn bind(&mut self, variable: Option<CelVariable>, node: Option<&'c CelJson<'c>>) {
        if let Some(variable) = variable {
            let value = node.map_or(CelValue::Null, CelValue::json);
            self.bindings.bind(variable, Some(value));
        }
    }

    fn bind_opaque(&mut self, variable: Option<CelVariable>, value: Option<&CelValue<'c>>) {
        if let Some(variable) = variable {
            self.bindings.bind(variable, value.cloned());
        }
    }

    /// Messages and audit annotations have no authorizer.
    fn unbind_authorizer(&mut self) {
        self.bind_opaque(self.policy.numbers.authorizer, None);
        self.bind_opaque(self.policy.numbers.resource_check, None);
    }

    fn error(&self, message: String) -> PolicyDecision<'p> {
        self.failed(ExpressionError::other(message))
    }

    /// The decision that an error leads to: what the failure policy says, unless a limit of ours is the reason.
    fn failed(&self, error: ExpressionError) -> PolicyDecision<'p> {
        let mut message = error.message;
        let mut kind = DecisionKind::ErrorDenied;
        if self.policy.failure_policy == FailurePolicy::Ignore {
            if error.is_own_limit {
                message.push_str(NOT_IGNORED);
            } else {
                kind = DecisionKind::ErrorIgnored;
            }
        }
        PolicyDecision {
            kind,
            reason: "",
            message,
            took: Duration::ZERO,
        }
    }

    /// Runs a part with what is bound now, and passes on each result and the clock that says how long it took; returns what
    /// is left of the budget.
    fn part(
        &self,
        role: ExpressionRole,
        expressions: impl Iterator<Item = (usize, &'p PolicyExpression)>,
        budget: u64,
        clock: &mut ExpressionClock<'_>,
        mut each: impl FnMut(Result<CelValue<'c>, ExpressionError>, &mut ExpressionClock<'_>),
    ) -> Result<u64, OutOfBudget> {
        let mut expressions = expressions.peekable();
        if expressions.peek().is_none() {
            return Ok(budget);
        }
        let inputs = self.context.inputs;
        let interrupted = || inputs.is_interrupted();
        let mut part = EvaluationPart::new(
            &self.policy.variables,
            &self.bindings,
            inputs,
            &interrupted,
            (role, budget, self.context.work),
        );
        for (index, expression) in expressions {
            clock.begin();
            each(part.evaluate(index, expression)?, clock);
        }
        Ok(part.left())
    }

    fn bind_for_conditions(&mut self) {
        self.bind(self.policy.numbers.request, self.context.requested);
        self.bind(self.policy.numbers.namespace, None);
    }

    /// All conditions are evaluated, so that one that is false counts for more than an error before it.
    fn condition_results(&mut self) -> Result<ConditionResults, OutOfBudget> {
        self.bind_for_conditions();
        let budget = self.context.budgets.conditions;
        let (mut is_false, mut errors) = (false, Vec::new());
        let left = self.part(
            ExpressionRole::Condition,
            self.policy.conditions.iter().enumerate(),
            budget,
            &mut ExpressionClock::stopped(),
            |result, _| match result {
                Ok(value) => is_false |= matches!(value, CelValue::Bool(false)),
                Err(error) => errors.push(error),
            },
        )?;
        Ok(ConditionResults {
            is_false,
            errors,
            left,
        })
    }

    fn conditions(&mut self, cost: &mut PartCost) -> ConditionResult {
        let results = match self.condition_results() {
            Ok(results) => results,
            Err(error) => {
                *cost = PartCost::OverBudget;
                return self.failed_conditions(&[ExpressionError::other(error.to_string())]);
            }
        };
        *cost = PartCost::Spent(self.context.budgets.conditions - results.left);
        if results.is_false {
            return ConditionResult::NotMet;
        }
        if results.errors.is_empty() {
            return ConditionResult::Met;
        }
        self.failed_conditions(&results.errors)
    }

    fn failed_conditions(&self, errors: &[ExpressionError]) -> ConditionResult {
        let all = ExpressionError::of_all(errors);
        match self.policy.failure_policy {
            FailurePolicy::Fail => ConditionResult::Error(all),
            FailurePolicy::Ignore if all.is_own_limit => ConditionResult::Error(all),
            FailurePolicy::Ignore => ConditionResult::NotMet,
            // In the original no case applies to such a policy, and the request counts as matching.
            FailurePolicy::Unknown(_) => ConditionResult::Met,
        }
    }

    fn validations(
        &mut self,
        costs: &mut EvaluationCosts,
        started: Option<Time>,
    ) -> Result<PolicyDecisions<'p>, OutOfBudget> {
        let mut clock = ExpressionClock::new(self.context.inputs, started);
        self.bind(self.policy.numbers.request, self.context.request);
        self.bind(self.policy.numbers.namespace, self.context.namespace);
        let budget = self.context.budgets.validations;
        let validations = &self.policy.validations;
        // What it stays at if the part ends early.
        costs.validations = PartCost::OverBudget;
        let mut decisions = PolicyDecisions::with_capacity(validations.len());
        let expressions = validations.iter().map(|one| &one.expression).enumerate();
        let left = self.part(
            ExpressionRole::Validation,
            expressions,
            budget,
            &mut clock,
            |result, clock| {
                let mut decided = match result {
                    Ok(value) => decision(&validations[decisions.len()], &value),
                    Err(error) => self.failed(error),
                };
                if decided.kind != DecisionKind::Allowed {
                    decided.took = clock.took();
                }
                decisions.push(decided);
            },
        )?;
        costs.validations = PartCost::Spent(budget - left);
        self.unbind_authorizer();
        costs.messages = match self.messages(&mut decisions, left) {
            Ok(after) => PartCost::Spent(left - after),
            Err(error) => {
                let evaluated = |one: &&mut PolicyDecision<'p>| {
                    matches!(one.kind, DecisionKind::Allowed | DecisionKind::Denied)
                };
                for decision in decisions.iter_mut().filter(evaluated) {
                    *decision = self.error(format!("failed messageExpression: {error}"));
                }
                PartCost::OverBudget
            }
        };
        Ok(decisions)
    }

    /// Evaluates the messages of all validations, and gives those that do not hold theirs. Returns what is left of the
    /// budget.
    fn messages(
        &self,
        decisions: &mut [PolicyDecision<'p>],
        budget: u64,
    ) -> Result<u64, OutOfBudget> {
        let with_message = |(at, one): (usize, &'p PolicyValidation)| {
            one.message_expression.as_ref().map(|message| (at, message))
        };
        let validations = self.policy.validations.iter();
        let messages = validations.clone().enumerate().filter_map(with_message);
        let mut places = messages.clone().map(|(at, _)| at);
        let left = self.part(
            ExpressionRole::Message,
            messages,
            budget,
            &mut ExpressionClock::stopped(),
            |result, _| {
                let decision = places.next().and_then(|at| decisions.get_mut(at));
                if let (Some(decision), Ok(value)) = (decision, result)
                    && decision.kind == DecisionKind::Denied
                    && let Some(text) = usable_message(&value)
                {
                    text.clone_into(&mut decision.message);
                }
            },
        )?;
        for (decision, validation) in decisions.iter_mut().zip(validations) {
            if decision.kind == DecisionKind::Denied && decision.message.is_empty() {
                decision.message = validation.own_message();
            }
        }
        Ok(left)
    }

    fn annotations(&mut self) -> Result<(Vec<PolicyAnnotationResult<'p>>, u64), OutOfBudget> {
        let mut clock = ExpressionClock::new(self.context.inputs, None);
        self.bind(self.policy.numbers.namespace, self.context.full_namespace);
        let budget = self.context.budgets.annotations;
        let annotations = &self.policy.annotations;
        let ignore = self.policy.failure_policy == FailurePolicy::Ignore;
        let mut all = Vec::with_capacity(annotations.len());
        let expressions = annotations.iter().map(|one| &one.expression).enumerate();
        let left = self.part(
            ExpressionRole::Annotation,
            expressions,
            budget,
            &mut clock,
            |result, clock| {
                let annotation = &annotations[all.len()];
                let mut evaluated = PolicyAnnotationResult {
                    key: &annotation.key,
                    result: annotation_result(annotation, result, ignore),
                    is_publishable: annotation.is_publishable,
                    took: Duration::ZERO,
                };
                if evaluated.error().is_some() {
                    evaluated.took = clock.took();
                }
                all.push(evaluated);
            },
        )?;
        Ok((all, budget - left))
    }
}

/// The decision of a validation that has a value, without a message yet.
fn decision<'p>(validation: &'p PolicyValidation, value: &CelValue<'_>) -> PolicyDecision<'p> {
    let (kind, reason) = match value {
        // Only true allows: an expression of unknown type may have any value.
        CelValue::Bool(true) => (DecisionKind::Allowed, ""),
        _ => (DecisionKind::Denied, validation.reason.as_str()),
    };
    PolicyDecision {
        kind,
        reason,
        message: String::new(),
        took: Duration::ZERO,
    }
}

/// The text of a messageExpression, if it can be used.
fn usable_message<'v>(value: &'v CelValue<'_>) -> Option<&'v str> {
    let text = value.as_str()?.trim();
    let usable = !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    usable.then_some(text)
}

fn annotation_result(
    annotation: &PolicyAnnotation,
    result: Result<CelValue<'_>, ExpressionError>,
    ignore: bool,
) -> AnnotationResult {
    match result {
        Err(error) if ignore && error.is_own_limit => {
            AnnotationResult::ErrorDenied(error.message + NOT_IGNORED)
        }
        Err(error) if ignore => AnnotationResult::ErrorIgnored(error.message),
        Err(error) => AnnotationResult::ErrorDenied(error.message),
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
