//! An evaluated request: what each policy says about it, expression by expression.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    bundle::{CompiledBundle, PolicyBundle},
    resources::KnownResources,
    world::{TestDocuments, TestInputs, TestRequest, TracedEvaluation, TracedExpression, node},
};
use fairgate_admission::{
    AdmissionVerdict, DecisionKind, EvaluationBudgets, ExpressionRole, PartCost,
    PolicyAnnotationResult, PolicyEvaluation, PolicyMismatch,
};

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum TestVerdict {
    Allowed,
    Denied,
}

impl TestVerdict {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}

/// What a policy with a binding and a param makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PolicyOutcome {
    /// All validations hold.
    Passed,
    /// It denies the request.
    Denied,
    /// A validation does not hold, and the binding's actions only warn or write to the audit event.
    Violated,
    /// An error, which the failure policy ignores.
    ErrorIgnored,
    /// A matchCondition is false.
    ConditionNotMet,
    /// A field of the policy or the binding excludes the request.
    NotMatched,
}

impl PolicyOutcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Denied => "denied",
            Self::Violated => "violated",
            Self::ErrorIgnored => "error ignored",
            Self::ConditionNotMet => "condition not met",
            Self::NotMatched => "not matched",
        }
    }
}

/// An evaluated expression.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvaluatedExpression {
    /// Such as `spec.validations[0].expression`.
    pub(super) field: String,
    pub(super) expression: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// In CEL cost units, without variables.
    pub(super) cost: u64,
}

/// A policy with a binding and a param.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvaluatedPolicy {
    pub(super) policy: String,
    /// Empty if the policy itself excludes the request or is configured wrongly.
    pub(super) binding: String,
    /// Whether the policy has no binding, and one that denies was assumed.
    pub(super) is_binding_assumed: bool,
    /// The name of the param; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) param: String,
    pub(super) outcome: PolicyOutcome,
    /// The validationActions of the binding.
    pub(super) actions: Vec<String>,
    /// Messages of validations that do not hold, and errors.
    pub(super) messages: Vec<String>,
    /// Of all parts, in CEL cost units.
    pub(super) cost: u64,
    pub(super) expressions: Vec<EvaluatedExpression>,
}

/// A denial.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvaluatedDenial {
    pub(super) policy: String,
    pub(super) binding: String,
    pub(super) reason: String,
    pub(super) code: u16,
    /// The message of the validation, or the error.
    pub(super) message: String,
}

/// A request and what policies say about it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvaluatedRequest {
    pub(super) operation: &'static str,
    /// Such as `deployments.apps/scale`.
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) user: String,
    pub(super) verdict: TestVerdict,
    pub(super) denials: Vec<EvaluatedDenial>,
    /// The message, reason and code that the client gets if the request is denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<EvaluatedStatus>,
    pub(super) policies: Vec<EvaluatedPolicy>,
    pub(super) warnings: Vec<String>,
    pub(super) audit_annotations: BTreeMap<String, String>,
    /// What was assumed, and what is missing.
    pub(super) notes: Vec<String>,
}

/// The `Status` that the client gets.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvaluatedStatus {
    pub(super) code: u64,
    pub(super) reason: String,
    pub(super) message: String,
}

impl EvaluatedStatus {
    fn of(status: &Value) -> Self {
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        Self {
            code: status["code"].as_u64().unwrap_or_default(),
            reason: text("reason"),
            message: text("message"),
        }
    }
}

/// Evaluates a request.
///
/// # Errors
///
/// A number in one of the documents that is none in JSON.
pub(super) fn evaluate(
    request: &TestRequest,
    bundle: &PolicyBundle,
    compiled: &CompiledBundle,
    known: &KnownResources,
) -> Result<EvaluatedRequest, String> {
    let documents = TestDocuments::of(request, known);
    let inputs = TestInputs::new(request, &documents, known)?;
    let options = (!request.options.is_null()).then_some(&request.options);
    let options = options.map(node).transpose()?;
    let attributes = request.attributes(options.as_ref());
    let mut evaluated = EvaluatedRequest::of(request);
    if attributes.is_exempt() {
        let note = "policies that are created through the API never evaluate this resource";
        evaluated.notes.push(note.to_owned());
        return Ok(evaluated);
    }
    let view = PolicyTables { bundle, compiled };
    match compiled
        .set
        .evaluate(&attributes, &inputs, EvaluationBudgets::default())
    {
        Ok(verdict) => {
            evaluated.read(&verdict);
            if let Some(first) = verdict.denials.first() {
                let status = first.status(&attributes, inputs.requested());
                evaluated.status = Some(EvaluatedStatus::of(&status));
            }
            evaluated.policies = view.matched(&verdict);
        }
        Err(abort) => {
            evaluated.verdict = TestVerdict::Denied;
            evaluated.status = Some(EvaluatedStatus::of(&abort.status()));
        }
    }
    let mismatches = compiled.set.mismatches(&attributes, &inputs);
    let mismatches = mismatches.into_iter().map(|one| view.mismatch(&one));
    evaluated.policies.extend(mismatches);
    evaluated.note(request, &inputs);
    let (evaluations, errors) = inputs.trace.into_parts();
    view.add_expressions(&mut evaluated.policies, evaluations);
    for (policy, binding, error) in errors {
        evaluated
            .policies
            .push(view.configuration_error(&policy, binding, error));
    }
    evaluated
        .policies
        .sort_by(|a, b| (&a.policy, &a.binding).cmp(&(&b.policy, &b.binding)));
    Ok(evaluated)
}

impl EvaluatedRequest {
    /// The request, with nothing found yet.
    fn of(request: &TestRequest) -> Self {
        Self {
            operation: request.operation.name(),
            resource: request.resource.shown(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            user: request.user.name.clone(),
            verdict: TestVerdict::Allowed,
            denials: Vec::new(),
            status: None,
            policies: Vec::new(),
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    fn read(&mut self, verdict: &AdmissionVerdict<'_>) {
        for denial in &verdict.denials {
            self.verdict = TestVerdict::Denied;
            self.denials.push(EvaluatedDenial {
                policy: denial.policy.to_owned(),
                binding: denial.binding.unwrap_or_default().to_owned(),
                reason: denial.reason.to_owned(),
                code: denial.code(),
                message: denial.message.clone(),
            });
        }
        self.warnings.clone_from(&verdict.warnings);
        self.audit_annotations = verdict.audit_annotations.iter().cloned().collect();
    }

    fn note(&mut self, request: &TestRequest, inputs: &TestInputs<'_>) {
        let resource = &request.resource;
        if resource.is_guess {
            self.notes.push(format!(
                "{} is no kind of Kubernetes: its resource is taken to be {:?}; if it is another, give its \
                 CustomResourceDefinition or --resource {}=PLURAL",
                resource.kind[2], resource.plural, resource.kind[2]
            ));
        }
        if let Some(name) = inputs.assumed_namespace() {
            self.notes.push(format!(
                "namespace {name:?} is not given: it is taken to exist without labels of its own"
            ));
        }
        for check in inputs.unanswered() {
            self.notes.push(format!(
                "no answer is given for the authorization check {check}"
            ));
        }
    }
}

/// The policies as they are written.
struct PolicyTables<'b> {
    bundle: &'b PolicyBundle,
    compiled: &'b CompiledBundle,
}

impl PolicyTables<'_> {
    /// A policy or binding that is not for the request.
    fn mismatch(&self, mismatch: &PolicyMismatch<'_>) -> EvaluatedPolicy {
        let list = if mismatch.binding.is_some() {
            "matchResources"
        } else {
            "matchConstraints"
        };
        let binding = mismatch.binding.unwrap_or_default();
        let mut policy = self.empty(mismatch.policy, binding, PolicyOutcome::NotMatched);
        let field = format!("spec.{list}.{}", mismatch.field);
        policy.messages.push(field);
        policy
    }

    fn empty(&self, policy: &str, binding: &str, outcome: PolicyOutcome) -> EvaluatedPolicy {
        let actions = self.compiled.bindings.get(binding);
        let actions = actions.map(|binding| &binding["spec"]["validationActions"]);
        let actions = actions.and_then(Value::as_array).into_iter().flatten();
        EvaluatedPolicy {
            policy: policy.to_owned(),
            binding: binding.to_owned(),
            is_binding_assumed: self.compiled.assumed.iter().any(|name| name == policy),
            param: String::new(),
            outcome,
            actions: actions
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            messages: Vec::new(),
            cost: 0,
            expressions: Vec::new(),
        }
    }

    /// The evaluations of a verdict, in its order, without expressions.
    fn matched(&self, verdict: &AdmissionVerdict<'_>) -> Vec<EvaluatedPolicy> {
        let evaluations = verdict.evaluations.iter();
        let evaluated = evaluations.map(|evaluation| {
            let binding = evaluation.binding;
            let mut evaluated = self.empty(evaluation.policy, binding, PolicyOutcome::Passed);
            evaluated.outcome = outcome(evaluation, &evaluated.actions);
            let decisions = evaluation.decisions.iter();
            let messages = decisions.map(|decision| decision.message.clone());
            evaluated.messages = messages.filter(|message| !message.is_empty()).collect();
            evaluated.messages.extend(annotation_errors(evaluation));
            evaluated.cost = evaluation.costs.known_total();
            evaluated
        });
        evaluated.collect()
    }

    /// Adds the expressions of each evaluation, in the same order.
    fn add_expressions(&self, evaluated: &mut [EvaluatedPolicy], traced: Vec<TracedEvaluation>) {
        for (evaluated, traced) in evaluated.iter_mut().zip(traced) {
            evaluated.param = traced.param;
            let policy = self.bundle.policy(&evaluated.policy);
            let spec = policy.map_or(&Value::Null, |policy| &policy.value["spec"]);
            let expressions = traced.expressions.into_iter();
            evaluated.expressions = expressions.map(|one| expression(spec, one)).collect();
        }
    }

    fn configuration_error(
        &self,
        policy: &str,
        binding: Option<String>,
        error: String,
    ) -> EvaluatedPolicy {
        let of = self.bundle.policy(policy);
        let ignores = of.is_some_and(|of| of.text(&["spec", "failurePolicy"]) == "Ignore");
        let outcome = if ignores {
            PolicyOutcome::ErrorIgnored
        } else {
            PolicyOutcome::Denied
        };
        let mut evaluated = self.empty(policy, &binding.unwrap_or_default(), outcome);
        evaluated.messages.push(error);
        evaluated
    }
}

fn outcome(evaluation: &PolicyEvaluation<'_>, actions: &[String]) -> PolicyOutcome {
    let has = |kind: DecisionKind| evaluation.decisions.iter().any(|one| one.kind == kind);
    let denies = actions.iter().any(|action| action == "Deny");
    let fails = has(DecisionKind::Denied) || has(DecisionKind::ErrorDenied);
    if (fails && denies)
        || evaluation
            .annotations
            .iter()
            .any(PolicyAnnotationResult::denies)
    {
        PolicyOutcome::Denied
    } else if fails {
        PolicyOutcome::Violated
    } else if has(DecisionKind::ErrorIgnored) {
        PolicyOutcome::ErrorIgnored
    } else if evaluation.decisions.is_empty() && evaluation.costs.validations == PartCost::NotRun {
        PolicyOutcome::ConditionNotMet
    } else {
        PolicyOutcome::Passed
    }
}

fn annotation_errors(evaluation: &PolicyEvaluation<'_>) -> impl Iterator<Item = String> {
    let errors = evaluation.annotations.iter();
    errors.filter_map(|one| one.error().map(str::to_owned))
}

fn expression(spec: &Value, traced: TracedExpression) -> EvaluatedExpression {
    let index = traced.index;
    let (list, member) = traced.role.members();
    let items = spec[list].as_array();
    let index = if traced.role == ExpressionRole::Variable {
        // Of several with one name, the last counts.
        let named = |item: &Value| item["name"] == *traced.name;
        items
            .and_then(|items| items.iter().rposition(named))
            .unwrap_or(index)
    } else {
        index
    };
    let source = items.and_then(|items| items.get(index));
    let source = source
        .and_then(|item| item[member].as_str())
        .unwrap_or_default();
    let (value, error) = match traced.result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    };
    EvaluatedExpression {
        field: traced.role.field(index),
        expression: source.to_owned(),
        value,
        error,
        cost: traced.cost,
    }
}
