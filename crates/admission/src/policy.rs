//! Policies and bindings, compiled.

use std::collections::BTreeMap;

use fairgate_cel::{CelEnvironment, CelReads, PatternBudget};
use fairgate_gotext::names;
use fairgate_objects::{defaults::DefaultedKinds, schema::UnreadParts};
use k8s_openapi::api::admissionregistration::v1::{
    AuditAnnotation, ParamRef, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicySpec, Validation,
};

use crate::environment::{PolicyEnvironment, PolicyVariableNumbers, REQUEST_RESOURCE};
use crate::expression::{PolicyExpression, expression_types};
use crate::inputs::PolicyParamKind;
use crate::matching::{EarlyMatch, LabelRule, MatchRequest, ResourceMatcher};
use crate::observer::ExpressionRole;
use crate::pattern_limits;
use crate::reads;
use crate::set_by_server::FieldSetByServer;

/// What an error or a wrong configuration leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    Fail,
    Ignore,
    /// Another text, which no server accepts but an object may hold.
    Unknown(String),
}

impl FailurePolicy {
    fn of(text: Option<&str>) -> Self {
        match text {
            None | Some("Fail") => Self::Fail,
            Some("Ignore") => Self::Ignore,
            Some(other) => Self::Unknown(other.to_owned()),
        }
    }
}

/// A validation with its message.
pub(crate) struct PolicyValidation {
    pub(crate) expression: PolicyExpression,
    /// Trimmed; empty if there is none.
    pub(crate) message: String,
    pub(crate) message_expression: Option<PolicyExpression>,
    pub(crate) reason: String,
}

pub(crate) struct PolicyAnnotation {
    pub(crate) key: String,
    /// Whether `<policy>/<key>` can be the key of an annotation.
    pub(crate) is_publishable: bool,
    pub(crate) expression: PolicyExpression,
}

/// A policy whose expressions are compiled, as part of a [`PolicySet`](crate::PolicySet).
pub(crate) struct CompiledPolicy {
    pub(crate) name: String,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) matcher: Result<ResourceMatcher, String>,
    /// The number of the first policy of the set with the same matchConstraints: both match the same requests.
    pub(crate) constraints: u32,
    pub(crate) param_kind: Option<PolicyParamKind>,
    /// Makes the bindings of an evaluation.
    pub(crate) environment: &'static CelEnvironment,
    pub(crate) numbers: PolicyVariableNumbers,
    /// Sorted by name; of several with the same name, the last.
    pub(crate) variables: Vec<(String, PolicyExpression)>,
    pub(crate) conditions: Vec<PolicyExpression>,
    pub(crate) validations: Vec<PolicyValidation>,
    pub(crate) annotations: Vec<PolicyAnnotation>,
    /// For each condition the number of all that have its source, if others of the set do; empty unless they read only
    /// `request`.
    pub(crate) shared_conditions: Vec<Option<u32>>,
    /// The fields of `request` that the conditions read, if they read nothing else.
    pub(crate) early_fields: Option<Vec<Box<str>>>,
    /// Whether an expression may read the name of the object.
    pub(crate) reads_name: bool,
    /// The kinds of objects of which an expression may read a field that has a default, or that depends on one.
    pub(crate) reads_defaults: DefaultedKinds,
    /// Whether an expression may read who owns the fields of the object.
    pub(crate) reads_owners: bool,
    /// The parts of the object that no expression reads.
    pub(crate) unread: UnreadParts,
    /// The fields which a server sets, of any kind, that an expression may read.
    pub(crate) set_by_server: Box<[&'static FieldSetByServer]>,
    pub(crate) bindings: Vec<PolicyBinding>,
}

pub(crate) struct PolicyBinding {
    pub(crate) name: String,
    /// Policy and actions as they are written, for the audit event.
    pub(crate) policy_name: String,
    pub(crate) actions: Vec<String>,
    /// `None` matches whatever the policy matches.
    pub(crate) matcher: Option<Result<ResourceMatcher, String>>,
    pub(crate) params: Option<BindingParams>,
}

/// Which objects are the params of a binding.
pub(crate) struct BindingParams {
    pub(crate) name: String,
    pub(crate) selector: Option<Result<LabelRule, String>>,
    pub(crate) namespace: String,
    /// Whether it is an error if there are no params.
    pub(crate) deny_absence: bool,
}

impl CompiledPolicy {
    /// Compiles a policy without bindings.
    pub(crate) fn unbound(policy: &ValidatingAdmissionPolicy) -> Self {
        Self::compile(
            policy,
            &[],
            &mut PatternBudget::new(pattern_limits::OF_POLICY),
        )
    }

    /// Compiles a policy, whose patterns take from `budget`. Expressions that do not compile become errors when they are
    /// needed.
    pub(crate) fn compile(
        policy: &ValidatingAdmissionPolicy,
        bindings: &[&ValidatingAdmissionPolicyBinding],
        budget: &mut PatternBudget,
    ) -> Self {
        let empty = ValidatingAdmissionPolicySpec::default();
        let spec = policy.spec.as_ref().unwrap_or(&empty);
        let name = policy.metadata.name.clone().unwrap_or_default();
        let mut environment = PolicyEnvironment::new(spec.param_kind.is_some());
        let variables = variables(&mut environment, spec, budget);
        let annotations = spec.audit_annotations.iter().flatten();
        let validations = spec.validations.iter().flatten();
        let mut compiled = Self {
            failure_policy: FailurePolicy::of(spec.failure_policy.as_deref()),
            matcher: match &spec.match_constraints {
                Some(resources) => ResourceMatcher::new(resources),
                None => Err("policy contained no match constraints, a required field".to_owned()),
            },
            constraints: 0,
            param_kind: spec.param_kind.as_ref().map(|kind| PolicyParamKind {
                api_version: kind.api_version.clone().unwrap_or_default(),
                kind: kind.kind.clone().unwrap_or_default(),
            }),
            variables,
            conditions: spec
                .match_conditions
                .iter()
                .flatten()
                .map(|condition| boolean(&environment, &condition.expression, budget))
                .collect(),
            validations: validations
                .map(|validation| PolicyValidation::compile(&environment, validation, budget))
                .collect(),
            annotations: annotations
                .map(|annotation| {
                    PolicyAnnotation::compile(&environment, &name, annotation, budget)
                })
                .collect(),
            shared_conditions: Vec::new(),
            early_fields: None,
            reads_name: false,
            reads_defaults: DefaultedKinds::NONE,
            reads_owners: false,
            unread: UnreadParts::NONE,
            set_by_server: Box::default(),
            bindings: bindings.iter().copied().map(PolicyBinding::new).collect(),
            numbers: PolicyVariableNumbers::default(),
            environment: PolicyEnvironment::for_bindings(spec.param_kind.is_some()),
            name,
        };
        compiled.numbers = compiled.used_variables();
        compiled.early_fields = compiled.read_of_request();
        let mut reads = CelReads::default();
        compiled.visit_reads(spec, &mut |_, one| reads.add(one));
        compiled.reads_name = reads::may_read_name(&reads)
            // The authorizer is asked about the object by its name.
            || compiled.expressions().any(|one| one.uses(REQUEST_RESOURCE));
        compiled.reads_defaults = reads::read_defaults(&reads);
        compiled.reads_owners = reads::may_read_owners(&reads);
        compiled.unread = reads::unread_parts(&reads);
        compiled.set_by_server = FieldSetByServer::read_by(&reads).collect();
        compiled
    }

    /// What is known of a match with a request before its objects are. A wrong configuration may match.
    pub(crate) fn early_match(&self, request: &MatchRequest<'_>) -> EarlyMatch {
        let matcher = self.matcher.as_ref();
        matcher.map_or(EarlyMatch::Possible, |matcher| matcher.early_match(request))
    }

    /// Whether a request may match, or be bound, once other versions of its resource are known.
    pub(crate) fn may_match_another_version(&self, request: &MatchRequest<'_>) -> bool {
        let Ok(matcher) = &self.matcher else {
            return false;
        };
        let may_be_bound = || {
            self.bindings.iter().any(|binding| match &binding.matcher {
                Some(Ok(matcher)) => matcher.may_match_another_version(request),
                _ => false,
            })
        };
        matcher.may_match_another_version(request) || matcher.may_match(request) && may_be_bound()
    }

    fn expressions(&self) -> impl Iterator<Item = &PolicyExpression> {
        let variables = self.variables.iter().map(|(_, expression)| expression);
        let own = self.own_expressions();
        variables.chain(own.map(|(_, expression)| expression))
    }

    /// The expressions but for the variables, each with its role and its index in its list.
    pub(crate) fn own_expressions(
        &self,
    ) -> impl Iterator<Item = ((ExpressionRole, usize), &PolicyExpression)> {
        let conditions = self.conditions.iter().enumerate();
        let validations = self.validations.iter().enumerate();
        let annotations = self.annotations.iter().enumerate();
        let conditions = conditions.map(|(at, one)| ((ExpressionRole::Condition, at), one));
        let validations = validations.flat_map(|(at, one)| {
            let message = one.message_expression.as_ref();
            let message = message.map(|message| ((ExpressionRole::Message, at), message));
            [
                Some(((ExpressionRole::Validation, at), &one.expression)),
                message,
            ]
        });
        let annotations =
            annotations.map(|(at, one)| ((ExpressionRole::Annotation, at), &one.expression));
        conditions.chain(validations.flatten()).chain(annotations)
    }

    fn read_of_request(&self) -> Option<Vec<Box<str>>> {
        let mut fields = Vec::new();
        for condition in &self.conditions {
            let program = condition.program.as_ref().ok()?;
            if program.variables().any(|name| name != "request") {
                return None;
            }
            fields.extend(program.fields_of("request")?.into_iter().map(Box::from));
        }
        fields.sort_unstable();
        fields.dedup();
        Some(fields).filter(|_| !self.conditions.is_empty())
    }

    /// Shows what each expression may read. `spec` has the variables in their order.
    pub(crate) fn visit_reads(
        &self,
        spec: &ValidatingAdmissionPolicySpec,
        visit: &mut dyn FnMut((ExpressionRole, usize), CelReads),
    ) {
        reads::visit(self.variables_in_order(spec), self.own_expressions(), visit);
    }

    /// The variables in the order in which `spec` has them.
    pub(crate) fn variables_in_order(
        &self,
        spec: &ValidatingAdmissionPolicySpec,
    ) -> impl Iterator<Item = &(String, PolicyExpression)> {
        let names = spec
            .variables
            .iter()
            .flatten()
            .map(|variable| &variable.name);
        names.filter_map(|name| {
            let known = self.variables.binary_search_by(|(of, _)| of.cmp(name));
            known.ok().map(|at| &self.variables[at])
        })
    }

    fn used_variables(&self) -> PolicyVariableNumbers {
        PolicyVariableNumbers::of(self.environment, |name| {
            self.expressions().any(|one| one.uses(name))
        })
    }
}

fn boolean(
    environment: &PolicyEnvironment,
    source: &str,
    budget: &mut PatternBudget,
) -> PolicyExpression {
    let types = expression_types::CONDITION;
    PolicyExpression::compile(environment.full(), source, types, budget)
}

/// Each variable sees those before it.
fn variables(
    environment: &mut PolicyEnvironment,
    spec: &ValidatingAdmissionPolicySpec,
    budget: &mut PatternBudget,
) -> Vec<(String, PolicyExpression)> {
    let mut compiled = BTreeMap::new();
    for variable in spec.variables.iter().flatten() {
        let source = &variable.expression;
        let expression = PolicyExpression::compile(environment.full(), source, &[], budget);
        environment.add_variable(&variable.name, expression.result_type());
        compiled.insert(variable.name.clone(), expression);
    }
    compiled.into_iter().collect()
}

impl PolicyValidation {
    fn compile(
        environment: &PolicyEnvironment,
        validation: &Validation,
        budget: &mut PatternBudget,
    ) -> Self {
        let expression = boolean(environment, &validation.expression, budget);
        let message = validation.message_expression.as_deref().unwrap_or_default();
        let mut compiled = |source| {
            let types = expression_types::MESSAGE;
            PolicyExpression::compile(environment.unauthorized(), source, types, budget)
        };
        Self {
            expression,
            message: validation
                .message
                .as_deref()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            message_expression: (!message.is_empty()).then(|| compiled(message)),
            reason: validation
                .reason
                .clone()
                .unwrap_or_else(|| "Invalid".to_owned()),
        }
    }
}

impl PolicyValidation {
    /// The message where no messageExpression gives one.
    pub(crate) fn own_message(&self) -> String {
        match &*self.message {
            "" => format!("failed expression: {}", self.expression.source.trim()),
            message => message.to_owned(),
        }
    }
}

impl PolicyAnnotation {
    fn compile(
        environment: &PolicyEnvironment,
        policy: &str,
        of: &AuditAnnotation,
        budget: &mut PatternBudget,
    ) -> Self {
        let key = format!("{policy}/{}", of.key);
        Self {
            is_publishable: key.matches('/').count() == 1 && names::is_label_key(key.as_bytes()),
            key: of.key.clone(),
            // With `authorizer`, as the original compiles them, although it has no value when they are evaluated.
            expression: PolicyExpression::compile(
                environment.full(),
                &of.value_expression,
                expression_types::ANNOTATION,
                budget,
            ),
        }
    }
}

impl PolicyBinding {
    fn new(binding: &ValidatingAdmissionPolicyBinding) -> Self {
        let spec = &binding.spec;
        Self {
            name: binding.metadata.name.clone().unwrap_or_default(),
            policy_name: spec.policy_name.clone(),
            actions: spec.validation_actions.clone(),
            matcher: spec.match_resources.as_ref().map(ResourceMatcher::new),
            params: spec.param_ref.as_ref().map(BindingParams::new),
        }
    }
}

impl BindingParams {
    fn new(of: &ParamRef) -> Self {
        Self {
            name: of.name.clone().unwrap_or_default(),
            selector: of.selector.as_ref().map(LabelRule::new),
            namespace: of.namespace.clone().unwrap_or_default(),
            deny_absence: of.parameter_not_found_action.as_deref() == Some("Deny"),
        }
    }
}
