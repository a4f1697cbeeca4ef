//! From matching policies to a verdict: bindings, params, evaluations, and what the decisions lead to.
//!
//! Source: Kubernetes `apiserver/pkg/admission/plugin/policy/validating/dispatcher.go`.

use std::cell::OnceCell;
use std::time::Duration;

use fairgate_cel::CelJson;
use fairgate_cel::library::authorizer::{AuthorizationCheck, authorizer, resource_check};
use fairgate_core::time::Time;

use crate::attributes::{AdmissionAttributes, AdmissionObjects};
use crate::evaluation::values::{namespace_value, request_value};
use crate::evaluation::{
    AnnotationResult, DecisionKind, EvaluationBudgets, EvaluationContext, NOT_IGNORED,
    PolicyDecision, PolicyEvaluation, WORK_LIMIT, evaluate,
};
use crate::inputs::{ConversionFailure, InputFailure, ParamScope, PolicyParamKind};
use crate::matching::{MatchRequest, MatchedResource};
use crate::params;
use crate::policy::{CompiledPolicy, FailurePolicy, PolicyBinding};
use crate::verdict::{
    AdmissionAbort, AdmissionVerdict, EnforcementAction, PolicyDenial, VALIDATION_FAILURE,
    ValidationFailure, error_type,
};

/// The longest value of an audit annotation, in bytes.
const MAX_ANNOTATION: usize = 10 * 1024;

/// A request that is being evaluated.
pub(crate) struct Evaluate<'a> {
    request: MatchRequest<'a>,
    /// The matchConstraints of the latest policy that was compared with the request, and how the request matches; policies
    /// with equal ones often follow each other.
    latest_match: Option<(u32, Option<MatchedResource<'a>>)>,
    budgets: EvaluationBudgets,
    /// The namespace of the request, once it is known.
    namespace: OnceCell<Option<&'a CelJson<'a>>>,
    verdict: AdmissionVerdict<'a>,
}

/// What all evaluations of policies that match as the same resource share. Values are made when the first evaluation
/// needs them.
#[derive(Default)]
pub(crate) struct SharedValues<'a> {
    matched: MatchedResource<'a>,
    request: OnceCell<CelJson<'a>>,
    requested: OnceCell<CelJson<'a>>,
    namespace: OnceCell<CelJson<'a>>,
    full_namespace: OnceCell<CelJson<'a>>,
    objects: Option<AdmissionObjects<'a>>,
}

/// Why a binding cannot be applied to a request.
enum BindingError {
    /// It is configured wrongly.
    Configuration(String),
    /// The objects cannot be converted to the version that the policy is about.
    Conversion(ConversionFailure),
}

impl From<String> for BindingError {
    fn from(error: String) -> Self {
        Self::Configuration(error)
    }
}

/// Values of audit annotations by key, from all bindings and params of a policy.
type CollectedAnnotations<'a> = Vec<(&'a str, Vec<String>)>;

impl<'a> Evaluate<'a> {
    /// For a request that at most `policies` match.
    pub(crate) fn new(
        request: MatchRequest<'a>,
        budgets: EvaluationBudgets,
        policies: usize,
    ) -> Self {
        let mut verdict = AdmissionVerdict::default();
        verdict.evaluations.reserve(policies);
        Self {
            request,
            latest_match: None,
            budgets,
            namespace: OnceCell::new(),
            verdict,
        }
    }

    pub(crate) fn verdict(self) -> AdmissionVerdict<'a> {
        self.verdict
    }

    /// Evaluates by one policy. `values` are those of the policy before.
    pub(crate) fn policy(
        &mut self,
        policy: &'a CompiledPolicy,
        values: &mut SharedValues<'a>,
    ) -> Result<(), AdmissionAbort> {
        let matched = match self.matches(policy) {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.configuration_error(policy, None, &error);
                return Ok(());
            }
        };
        let kind = policy.param_kind.as_ref();
        let scope = match kind.map(|kind| self.request.inputs.cluster().param_scope(kind)) {
            None => None,
            Some(Ok(scope)) => Some(scope),
            Some(Err(error)) => {
                self.configuration_error(policy, None, &error);
                return Ok(());
            }
        };
        if values.matched != matched {
            *values = SharedValues {
                matched,
                ..SharedValues::default()
            };
        }
        let mut annotations = CollectedAnnotations::new();
        for binding in &policy.bindings {
            let params = match self.params(policy, scope, binding, values) {
                Ok(Some(params)) => params,
                Ok(None) => continue,
                Err(error) => {
                    self.binding_error(policy, binding, &error);
                    continue;
                }
            };
            if kind.is_some_and(PolicyParamKind::is_secret) {
                self.verdict.secret_params.push(policy.name.clone());
            }
            let namespace = self.namespace()?;
            for param in params {
                self.stop_between_evaluations()?;
                if let Some(observer) = self.request.inputs.observer() {
                    observer.evaluation(&policy.name, &binding.name, param);
                }
                let started = self.request.inputs.now();
                let mut evaluation = self.evaluate(policy, namespace, values, (param, started));
                evaluation.took = self.request.inputs.now().since(started);
                evaluation.binding = &binding.name;
                self.act(policy, binding, &evaluation, &mut annotations);
                self.verdict.evaluations.push(evaluation);
            }
        }
        for (key, values) in annotations {
            let key = format!("{}/{key}", policy.name);
            self.verdict.annotate(&key, values.join(", "));
        }
        Ok(())
    }

    /// Comprehensions look after a hundred iterations at the earliest, and there may be any number of short evaluations.
    fn stop_between_evaluations(&self) -> Result<(), AdmissionAbort> {
        let is_first = self.verdict.evaluations.is_empty();
        if !is_first && self.request.inputs.is_interrupted() {
            return Err(AdmissionAbort::Interrupted);
        }
        Ok(())
    }

    /// Whether the request matches the policy, and as which resource and kind.
    fn matches(&mut self, policy: &CompiledPolicy) -> Result<Option<MatchedResource<'a>>, String> {
        if let Some((constraints, matched)) = self.latest_match
            && constraints == policy.constraints
        {
            return Ok(matched);
        }
        let matcher = policy.matcher.as_ref().map_err(String::clone)?;
        let matched = matcher.matches(&self.request)?;
        self.latest_match = Some((policy.constraints, matched));
        Ok(matched)
    }

    /// The params of a binding, if it matches. Converts the objects before they are needed for the first time.
    fn params(
        &self,
        policy: &CompiledPolicy,
        scope: Option<ParamScope>,
        binding: &PolicyBinding,
        values: &mut SharedValues<'a>,
    ) -> Result<Option<params::Params<'a>>, BindingError> {
        if let Some(matcher) = &binding.matcher {
            let matcher = matcher.as_ref().map_err(String::clone)?;
            if matcher.matches(&self.request)?.is_none() {
                return Ok(None);
            }
        }
        let namespace = self.request.attributes.namespace;
        let inputs = self.request.inputs;
        let params = params::collect(
            policy,
            scope,
            binding.params.as_ref(),
            namespace,
            inputs.cluster(),
        )?;
        // Not before there are params: a binding without any evaluates nothing, so a failed conversion would be no
        // reason to deny.
        if values.objects.is_none() && !params.is_empty() {
            let converted = inputs.objects(values.matched.kind);
            values.objects = Some(converted.map_err(BindingError::Conversion)?);
        }
        Ok(Some(params))
    }

    /// The namespace of the request, if it has one; a namespace object counts as having none.
    fn namespace(&self) -> Result<Option<&'a CelJson<'a>>, AdmissionAbort> {
        if let Some(known) = self.namespace.get() {
            return Ok(*known);
        }
        let attributes = self.request.attributes;
        let name = attributes.namespace;
        let found = if name.is_empty() || attributes.is_namespace_kind() {
            None
        } else {
            Some(
                self.request
                    .inputs
                    .cluster()
                    .namespace(name)
                    .map_err(|why| match why {
                        InputFailure::NotFound => {
                            AdmissionAbort::NamespaceNotFound(name.to_owned())
                        }
                        InputFailure::Failed(why) => AdmissionAbort::NamespaceFailed(why),
                        InputFailure::Lacking(lack) => {
                            AdmissionAbort::NamespaceFailed(lack.to_string())
                        }
                    })?,
            )
        };
        Ok(*self.namespace.get_or_init(|| found))
    }

    fn evaluate(
        &self,
        policy: &'a CompiledPolicy,
        namespace: Option<&'a CelJson<'a>>,
        values: &SharedValues<'a>,
        (param, started): (Option<&'a CelJson<'a>>, Time),
    ) -> PolicyEvaluation<'a> {
        let attributes = self.request.attributes;
        let used = &policy.numbers;
        let (matched, requested) = (values.matched, attributes.resource);
        let request = used.request.map(|_| {
            let make = || request_value(attributes, matched.resource, matched.kind);
            values.request.get_or_init(make)
        });
        let namespace = namespace.filter(|_| used.namespace.is_some());
        let inputs = self.request.inputs;
        let context = EvaluationContext {
            inputs,
            objects: values.objects.unwrap_or_default(),
            request,
            requested: match request {
                Some(_) if matched.resource != requested => {
                    let make = || request_value(attributes, requested, matched.kind);
                    Some(values.requested.get_or_init(make))
                }
                other => other,
            },
            namespace: namespace.map(|of| {
                let make = || namespace_value(of, false);
                values.namespace.get_or_init(make)
            }),
            full_namespace: namespace.map(|of| {
                let make = || namespace_value(of, true);
                values.full_namespace.get_or_init(make)
            }),
            authorizer: used.authorizer.map(|_| authorizer(inputs.authorizer())),
            resource_check: used
                .resource_check
                .map(|_| resource_check(inputs.authorizer(), check_of(attributes))),
            budgets: self.budgets,
            work: WORK_LIMIT,
        };
        evaluate(policy, &context, param, started)
    }

    /// What the decisions of an evaluation lead to.
    fn act(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: &'a PolicyBinding,
        evaluation: &PolicyEvaluation<'a>,
        annotations: &mut CollectedAnnotations<'a>,
    ) {
        for (index, decision) in evaluation.decisions.iter().enumerate() {
            match decision.kind {
                DecisionKind::Allowed => {}
                DecisionKind::ErrorIgnored => {
                    let kind = error_type(&decision.message);
                    let action = EnforcementAction::Allow;
                    self.count(policy, binding, (kind, action), decision.took);
                }
                DecisionKind::Denied | DecisionKind::ErrorDenied => {
                    self.denied(policy, binding, index, decision);
                }
            }
        }
        for annotation in &evaluation.annotations {
            match &annotation.result {
                AnnotationResult::Published(value) if annotation.is_publishable => {
                    collect(annotations, annotation.key, cut(value));
                }
                AnnotationResult::Published(_)
                | AnnotationResult::Absent
                | AnnotationResult::ErrorIgnored(_) => {}
                AnnotationResult::ErrorDenied(error) => {
                    // As in the original, whatever the actions of the binding are.
                    self.deny(policy, Some(&binding.name), "", error);
                    let action = (error_type(error), EnforcementAction::Deny);
                    self.count(policy, binding, action, annotation.took);
                }
            }
        }
    }

    /// What a binding does about a decision to deny.
    fn denied(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: &'a PolicyBinding,
        index: usize,
        decision: &PolicyDecision<'a>,
    ) {
        let (policy_name, binding_name) = (&policy.name, &binding.name);
        for action in &binding.actions {
            let action = match action.as_str() {
                "Deny" => {
                    let (reason, message) = (decision.reason, &decision.message);
                    self.deny(policy, Some(binding_name), reason, message);
                    EnforcementAction::Deny
                }
                "Audit" => {
                    let failure = ValidationFailure {
                        message: &decision.message,
                        policy: &binding.policy_name,
                        binding: binding_name,
                        expression_index: index,
                        validation_actions: &binding.actions,
                    };
                    self.verdict
                        .annotate(VALIDATION_FAILURE, failure.annotation());
                    EnforcementAction::Audit
                }
                "Warn" => {
                    self.verdict.warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}': {}",
                        decision.message
                    ));
                    EnforcementAction::Warn
                }
                _ => continue,
            };
            let kind = error_type(&decision.message);
            self.count(policy, binding, (kind, action), decision.took);
        }
    }

    fn count(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: &'a PolicyBinding,
        (error_type, action): (&'static str, EnforcementAction),
        took: Duration,
    ) {
        (self.verdict).count(&policy.name, &binding.name, error_type, action, took);
    }

    fn deny(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: Option<&'a str>,
        reason: &'a str,
        message: &str,
    ) {
        self.verdict.denials.push(PolicyDenial {
            policy: &policy.name,
            binding,
            reason: if reason.is_empty() { "Invalid" } else { reason },
            message: message.to_owned(),
        });
    }

    /// A binding that cannot be applied. It is the client who chooses the version of the objects, so a conversion that only the
    /// server could do is no error to be ignored, where the binding would deny.
    fn binding_error(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: &'a PolicyBinding,
        error: &BindingError,
    ) {
        let name = Some(&*binding.name);
        let failure = match error {
            BindingError::Configuration(why) => return self.configuration_error(policy, name, why),
            BindingError::Conversion(failure) => failure,
        };
        let why = format!("failed to convert object version: {failure}");
        self.configuration_error(policy, name, &why);
        let is_own_limit = matches!(failure, ConversionFailure::Unsupported(_));
        let denies = binding.actions.iter().any(|action| action == "Deny");
        if is_own_limit && denies && policy.failure_policy == FailurePolicy::Ignore {
            let message = format!("failed to configure binding: {why}{NOT_IGNORED}");
            self.deny(policy, name, "", &message);
        }
    }

    /// A policy or binding that is configured wrongly denies the request, whatever its actions, unless errors are
    /// ignored.
    fn configuration_error(
        &mut self,
        policy: &'a CompiledPolicy,
        binding: Option<&'a str>,
        error: &str,
    ) {
        if let Some(observer) = self.request.inputs.observer() {
            observer.configuration_error(&policy.name, binding, error);
        }
        let what = if binding.is_some() {
            "binding"
        } else {
            "policy"
        };
        let message = match &policy.failure_policy {
            FailurePolicy::Ignore => return,
            FailurePolicy::Fail => format!("failed to configure {what}: {error}"),
            FailurePolicy::Unknown(text) => format!("unrecognized failure policy: '{text}'"),
        };
        self.deny(policy, binding, "", &message);
    }
}

fn check_of(attributes: &AdmissionAttributes<'_>) -> AuthorizationCheck {
    AuthorizationCheck {
        group: attributes.resource.group.to_owned(),
        resource: attributes.resource.resource.to_owned(),
        subresource: attributes.subresource.to_owned(),
        namespace: attributes.namespace.to_owned(),
        name: attributes.name.to_owned(),
        ..AuthorizationCheck::default()
    }
}

/// Adds a value to those of a key, unless it is among them.
fn collect<'a>(annotations: &mut CollectedAnnotations<'a>, key: &'a str, value: &str) {
    let known = annotations.iter().position(|(of, _)| *of == key);
    let at = known.unwrap_or_else(|| {
        annotations.push((key, Vec::new()));
        annotations.len() - 1
    });
    let values = &mut annotations[at].1;
    if values.iter().all(|of| of != value) {
        values.push(value.to_owned());
    }
}

/// The first [`MAX_ANNOTATION`] bytes of a value, cut at a character boundary.
fn cut(value: &str) -> &str {
    let mut end = value.len().min(MAX_ANNOTATION);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    &value[..end]
}
