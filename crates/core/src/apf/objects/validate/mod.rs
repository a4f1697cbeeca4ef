//! Validation of policy objects: every check an API server makes on a write, all at once.
//!
//! Field paths and texts are those of the API server, because they are part of its interface. The
//! objects are v1, with defaults filled in.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::{
    api::flowcontrol::v1::{
        ExemptPriorityLevelConfiguration, FlowSchema, FlowSchemaSpec, LimitResponse,
        LimitedPriorityLevelConfiguration, NonResourcePolicyRule, PolicyRulesWithSubjects,
        PriorityLevelConfiguration, PriorityLevelConfigurationSpec, QueuingConfiguration,
        ResourcePolicyRule, ServiceAccountSubject, Subject,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;

use super::{bootstrap, names, v1beta3::PRESERVE_ZERO_SHARES};
use crate::apf::shard;

/// The verbs a rule may name besides `*`, in alphabetical order.
pub const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

const MAX_PRECEDENCE: i32 = 10_000;
const MAX_QUEUES: i32 = 10_000_000;

/// The sort of a field's mistake, in the API server's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorType {
    /// The field must be there.
    Required,
    /// The value does not do.
    Invalid,
    /// The value is none of those there are.
    Unsupported,
    /// The value is there twice.
    Duplicate,
    /// The field must not be there.
    Forbidden,
}

impl fmt::Display for FieldErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::Unsupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
        })
    }
}

/// One mistake in one field. `Display` is the API server's text without the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path, such as `spec.rules[0].subjects[1].kind`.
    pub field: String,
    /// The sort of mistake.
    pub mistake: FieldErrorType,
    /// The value as JSON; empty for sorts that print none.
    pub value: String,
    /// What is wrong with it; may be empty.
    pub detail: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mistake.fmt(f)?;
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                write!(f, ": {part}")?;
            }
        }
        Ok(())
    }
}

/// Everything wrong with a FlowSchema, in the order of its fields.
pub fn flow_schema(object: &FlowSchema) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let absent = FlowSchemaSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&absent);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    check_metadata(&object.metadata, &mut errors);
    check_schema_spec(name, spec, &mut errors);
    if bootstrap::is_mandatory(name)
        && let Some(fixed) = bootstrap::flow_schema(name)
        && !same_schema_spec(Some(spec), fixed.spec.as_ref())
    {
        errors.invalid(
            "spec",
            spec,
            &format!("spec of '{name}' must equal the fixed value"),
            "leave the object out; it is built in",
        );
    }
    let conditions = object.status.iter().flat_map(|s| s.conditions.iter());
    check_conditions(
        conditions.flatten().map(|c| c.type_.as_deref()),
        &mut errors,
    );
    errors.0
}

/// Everything wrong with a priority level, in the order of its fields.
pub fn priority_level(object: &PriorityLevelConfiguration) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let absent = PriorityLevelConfigurationSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&absent);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    check_metadata(&object.metadata, &mut errors);
    let annotations = object.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key(PRESERVE_ZERO_SHARES)) {
        errors.forbidden(
            "metadata.annotations",
            &format!("annotation '{PRESERVE_ZERO_SHARES}' is forbidden"),
        );
    }
    check_level_spec(name, spec, &mut errors);
    check_fixed_level(name, spec, &mut errors);
    let conditions = object.status.iter().flat_map(|s| s.conditions.iter());
    check_conditions(
        conditions.flatten().map(|c| c.type_.as_deref()),
        &mut errors,
    );
    errors.0
}

/// Whether two specs mean the same: an absent list is an empty one, an absent flag is false.
pub(super) fn same_schema_spec(a: Option<&FlowSchemaSpec>, b: Option<&FlowSchemaSpec>) -> bool {
    fn plain(spec: Option<&FlowSchemaSpec>) -> FlowSchemaSpec {
        let mut spec = spec.cloned().unwrap_or_default();
        for rule in spec.rules.get_or_insert_default() {
            rule.non_resource_rules.get_or_insert_default();
            for resource in rule.resource_rules.get_or_insert_default() {
                resource.namespaces.get_or_insert_default();
                resource.cluster_scope.get_or_insert(false);
            }
        }
        spec
    }
    plain(a) == plain(b)
}

fn check_metadata(metadata: &ObjectMeta, errors: &mut Errors) {
    match metadata.name.as_deref() {
        None | Some("") => errors.required(
            "metadata.name",
            "name or generateName is required",
            "give the object a name",
        ),
        Some(name) => {
            for text in names::subdomain(name) {
                errors.invalid("metadata.name", name, &text, "rename the object");
            }
        }
    }
}

fn check_schema_spec(name: &str, spec: &FlowSchemaSpec, errors: &mut Errors) {
    let precedence = spec.matching_precedence.unwrap_or_default();
    let field = "spec.matchingPrecedence";
    let range = "set it to a number from 2 to 10000";
    if precedence <= 0 {
        errors.invalid(field, &precedence, "must be a positive value", range);
    }
    if precedence > MAX_PRECEDENCE {
        let text = format!("must not be greater than {MAX_PRECEDENCE}");
        errors.invalid(field, &precedence, &text, range);
    }
    if precedence == 1 && name != bootstrap::EXEMPT {
        let text = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(field, &precedence, text, range);
    }
    if let Some(method) = &spec.distinguisher_method
        && !["ByNamespace", "ByUser"].contains(&method.type_.as_str())
    {
        errors.unsupported(
            "spec.distinguisherMethod.type",
            method,
            &["ByNamespace", "ByUser"],
        );
    }
    let level = spec.priority_level_configuration.name.as_str();
    let field = "spec.priorityLevelConfiguration.name";
    if level.is_empty() {
        errors.required(
            field,
            "must reference a priority level",
            "name the PriorityLevelConfiguration for its requests",
        );
    } else {
        for text in names::subdomain(level) {
            errors.invalid(
                field,
                level,
                &text,
                "name an existing PriorityLevelConfiguration",
            );
        }
    }
    for (i, rule) in spec.rules.iter().flatten().enumerate() {
        check_rule(rule, &format!("spec.rules[{i}]"), errors);
    }
}

fn check_rule(rule: &PolicyRulesWithSubjects, path: &str, errors: &mut Errors) {
    if rule.subjects.is_empty() {
        errors.required(
            &format!("{path}.subjects"),
            "subjects must contain at least one value",
            "add a subject, such as the group system:authenticated",
        );
    }
    for (i, subject) in rule.subjects.iter().enumerate() {
        check_subject(subject, &format!("{path}.subjects[{i}]"), errors);
    }
    let resource_rules = rule.resource_rules.as_deref().unwrap_or_default();
    let non_resource_rules = rule.non_resource_rules.as_deref().unwrap_or_default();
    if resource_rules.is_empty() && non_resource_rules.is_empty() {
        errors.required(
            path,
            "at least one of resourceRules and nonResourceRules has to be non-empty",
            "say which requests the rule is for",
        );
    }
    for (i, rule) in resource_rules.iter().enumerate() {
        check_resource_rule(rule, &format!("{path}.resourceRules[{i}]"), errors);
    }
    for (i, rule) in non_resource_rules.iter().enumerate() {
        check_non_resource_rule(rule, &format!("{path}.nonResourceRules[{i}]"), errors);
    }
}

fn check_subject(subject: &Subject, path: &str, errors: &mut Errors) {
    const KINDS: [&str; 3] = ["Group", "ServiceAccount", "User"];
    let kind = subject.kind.as_str();
    if !KINDS.contains(&kind) {
        errors.unsupported(&format!("{path}.kind"), kind, &KINDS);
        return;
    }
    let members = [
        (
            "serviceAccount",
            "ServiceAccount",
            subject.service_account.is_some(),
        ),
        ("user", "User", subject.user.is_some()),
        ("group", "Group", subject.group.is_some()),
    ];
    for (member, of, present) in members {
        let field = format!("{path}.{member}");
        if of == kind && !present {
            errors.required(
                &field,
                &format!("{member} is required when subject kind is '{of}'"),
                &format!("add {member}, or correct the kind"),
            );
        }
    }
    match kind {
        "ServiceAccount" => {
            if let Some(account) = &subject.service_account {
                check_service_account(account, &format!("{path}.serviceAccount"), errors);
            }
        }
        "User" => {
            if subject
                .user
                .as_ref()
                .is_some_and(|user| user.name.is_empty())
            {
                errors.required(
                    &format!("{path}.user.name"),
                    "",
                    "name a user, or * for all",
                );
            }
        }
        _ => {
            if subject
                .group
                .as_ref()
                .is_some_and(|group| group.name.is_empty())
            {
                errors.required(
                    &format!("{path}.group.name"),
                    "",
                    "name a group, or * for all",
                );
            }
        }
    }
    for (member, of, present) in members {
        if of != kind && present {
            errors.forbidden(
                &format!("{path}.{member}"),
                &format!("{member} is forbidden when subject kind is not '{of}'"),
            );
        }
    }
}

fn check_service_account(account: &ServiceAccountSubject, path: &str, errors: &mut Errors) {
    let field = format!("{path}.name");
    if account.name.is_empty() {
        errors.required(&field, "", "name a service account, or * for all");
    } else if account.name != "*" {
        for text in names::subdomain(&account.name) {
            errors.invalid(&field, &account.name, &text, "correct the name");
        }
    }
    let field = format!("{path}.namespace");
    if account.namespace.is_empty() {
        errors.required(
            &field,
            "must specify namespace for service account",
            "name its namespace",
        );
    } else {
        for text in names::label(&account.namespace) {
            errors.invalid(&field, &account.namespace, &text, "name one namespace");
        }
    }
}

fn check_resource_rule(rule: &ResourcePolicyRule, path: &str, errors: &mut Errors) {
    check_verbs(&rule.verbs, path, errors);
    check_set(
        &rule.api_groups,
        &format!("{path}.apiGroups"),
        "resource rules must supply at least one api group",
        "api groups",
        errors,
    );
    check_set(
        &rule.resources,
        &format!("{path}.resources"),
        "resource rules must supply at least one resource",
        "resources",
        errors,
    );
    let namespaces = rule.namespaces.as_deref().unwrap_or_default();
    let field = format!("{path}.namespaces");
    if namespaces.is_empty() && rule.cluster_scope == Some(true) {
        return;
    }
    let whole = check_set(
        namespaces,
        &field,
        "resource rules that are not cluster scoped must supply at least one namespace",
        "namespaces",
        errors,
    );
    if whole {
        return;
    }
    for (i, namespace) in namespaces.iter().enumerate() {
        for text in names::label(namespace) {
            errors.invalid(
                &format!("{field}[{i}]"),
                namespace,
                &format!("each member of this list must be '*' or a DNS-1123 label; {text}"),
                "correct the namespace",
            );
        }
    }
}

fn check_non_resource_rule(rule: &NonResourcePolicyRule, path: &str, errors: &mut Errors) {
    check_verbs(&rule.verbs, path, errors);
    let field = format!("{path}.nonResourceURLs");
    let whole = check_set(
        &rule.non_resource_urls,
        &field,
        "nonResourceURLs must contain at least one value",
        "non-resource URLs",
        errors,
    );
    if whole {
        return;
    }
    for (i, url) in rule.non_resource_urls.iter().enumerate() {
        if let Some(text) = url_problem(url) {
            errors.invalid(
                &format!("{field}[{i}]"),
                url,
                text,
                "write a path such as /healthz, or /healthz/* for all below it",
            );
        }
    }
}

/// What is wrong with an element of `nonResourceURLs` other than `*`.
fn url_problem(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        return Some("must not be empty");
    }
    if url == "/" {
        return None;
    }
    if !url.starts_with('/') {
        return Some("must start with slash");
    }
    if url.contains(' ') {
        return Some("must not contain white-space");
    }
    if url.contains("//") {
        return Some("must not contain double slash");
    }
    let stem = url.strip_suffix("/*").unwrap_or(url);
    stem.contains('*')
        .then_some("wildcard can only do suffix matching")
}

fn check_verbs(verbs: &[String], path: &str, errors: &mut Errors) {
    let field = format!("{path}.verbs");
    let whole = check_set(
        verbs,
        &field,
        "verbs must contain at least one value",
        "verbs",
        errors,
    );
    if !whole && verbs.iter().any(|verb| !VERBS.contains(&verb.as_str())) {
        errors.unsupported(&field, verbs, &VERBS);
    }
}

/// Checks a set that may be `*`; true if there is nothing left to say about its elements.
fn check_set(
    set: &[String],
    field: &str,
    if_empty: &str,
    things: &str,
    errors: &mut Errors,
) -> bool {
    if set.is_empty() {
        errors.required(field, if_empty, "list at least one, or * for all");
        return true;
    }
    if !set.iter().any(|element| element == "*") {
        return false;
    }
    if set.len() > 1 {
        errors.invalid(
            field,
            set,
            &format!("if '*' is present, must not specify other {things}"),
            "keep * alone, or list the others without it",
        );
    }
    true
}

fn check_level_spec(name: &str, spec: &PriorityLevelConfigurationSpec, errors: &mut Errors) {
    let kind = spec.type_.as_str();
    if (name == bootstrap::EXEMPT) != (kind == "Exempt") {
        errors.invalid(
            "spec.type",
            kind,
            "must be 'Exempt' if and only if `name` is 'exempt'",
            "set it to Limited, or send its requests to the level exempt",
        );
    }
    match kind {
        "Exempt" => {
            if spec.limited.is_some() {
                errors.forbidden("spec.limited", "must be nil if the type is not Limited");
            }
            if let Some(exempt) = &spec.exempt {
                check_exempt(exempt, errors);
            }
        }
        "Limited" => {
            if spec.exempt.is_some() {
                errors.forbidden("spec.exempt", "must be nil if the type is Limited");
            }
            match &spec.limited {
                None => errors.required(
                    "spec.limited",
                    "must not be empty when type is Limited",
                    "add limited with its limitResponse",
                ),
                Some(limited) => check_limited(limited, errors),
            }
        }
        "" => errors.required("spec.type", "", "set it to Limited"),
        _ => errors.unsupported("spec.type", kind, &["Exempt", "Limited"]),
    }
}

fn check_exempt(exempt: &ExemptPriorityLevelConfiguration, errors: &mut Errors) {
    check_shares(
        exempt.nominal_concurrency_shares,
        "spec.exempt.nominalConcurrencyShares",
        errors,
    );
    check_lendable(
        exempt.lendable_percent,
        "spec.exempt.lendablePercent",
        errors,
    );
}

fn check_limited(limited: &LimitedPriorityLevelConfiguration, errors: &mut Errors) {
    check_shares(
        limited.nominal_concurrency_shares,
        "spec.limited.nominalConcurrencyShares",
        errors,
    );
    let absent = LimitResponse::default();
    check_response(limited.limit_response.as_ref().unwrap_or(&absent), errors);
    check_lendable(
        limited.lendable_percent,
        "spec.limited.lendablePercent",
        errors,
    );
    if let Some(percent) = limited.borrowing_limit_percent
        && percent < 0
    {
        errors.invalid(
            "spec.limited.borrowingLimitPercent",
            &percent,
            "if specified, must be a non-negative integer",
            "set it to 0 or more, or leave it out for no limit",
        );
    }
}

fn check_shares(shares: Option<i32>, field: &str, errors: &mut Errors) {
    if let Some(shares) = shares
        && shares < 0
    {
        let text = "must be a non-negative integer";
        errors.invalid(field, &shares, text, "set it to 0 or more");
    }
}

fn check_lendable(percent: Option<i32>, field: &str, errors: &mut Errors) {
    if let Some(percent) = percent
        && !(0..=100).contains(&percent)
    {
        let text = "must be between 0 and 100, inclusive";
        errors.invalid(field, &percent, text, "set it to a percentage");
    }
}

fn check_response(response: &LimitResponse, errors: &mut Errors) {
    let field = "spec.limited.limitResponse.queuing";
    match (response.type_.as_str(), &response.queuing) {
        ("Reject", Some(_)) => errors.forbidden(
            field,
            "must be nil if limited.limitResponse.type is not Limited",
        ),
        ("Reject", None) => {}
        ("Queue", None) => errors.required(
            field,
            "must not be empty if limited.limitResponse.type is Limited",
            "add queuing; {} gives its defaults",
        ),
        ("Queue", Some(queuing)) => check_queuing(queuing, field, errors),
        ("", _) => errors.required(
            "spec.limited.limitResponse.type",
            "",
            "set it to Queue or Reject",
        ),
        (other, _) => errors.unsupported(
            "spec.limited.limitResponse.type",
            other,
            &["Queue", "Reject"],
        ),
    }
}

fn check_queuing(queuing: &QueuingConfiguration, path: &str, errors: &mut Errors) {
    let limit = queuing.queue_length_limit.unwrap_or_default();
    let queues = queuing.queues.unwrap_or_default();
    let hand = queuing.hand_size.unwrap_or_default();
    let positive = "must be positive";
    if limit <= 0 {
        let field = format!("{path}.queueLengthLimit");
        errors.invalid(&field, &limit, positive, "set it to 1 or more");
    }
    let field = format!("{path}.queues");
    if queues <= 0 {
        errors.invalid(&field, &queues, positive, "set it to 1 or more");
    } else if queues > MAX_QUEUES {
        let text = format!("must not be greater than {MAX_QUEUES}");
        errors.invalid(&field, &queues, &text, "a few hundred are plenty");
    }
    let field = format!("{path}.handSize");
    if hand <= 0 {
        errors.invalid(&field, &hand, positive, "set it to 1 or more");
    } else if hand > queues {
        let text = format!("should not be greater than queues ({queues})");
        errors.invalid(&field, &hand, &text, "lower handSize or raise queues");
    } else {
        let bits = shard::entropy_bits(queues.unsigned_abs(), hand.unsigned_abs());
        if bits > shard::MAX_ENTROPY_BITS {
            let text = format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be \
                 greater than {}",
                shard::MAX_ENTROPY_BITS
            );
            errors.invalid(&field, &hand, &text, "lower handSize or queues");
        }
    }
}

fn check_fixed_level(name: &str, spec: &PriorityLevelConfigurationSpec, errors: &mut Errors) {
    if !bootstrap::is_mandatory(name) {
        return;
    }
    let Some(fixed) = bootstrap::priority_level(name).and_then(|level| level.spec.as_ref()) else {
        return;
    };
    let exempt = name == bootstrap::EXEMPT;
    let mut compared = spec.clone();
    if exempt {
        compared.exempt.clone_from(&fixed.exempt);
    }
    if &compared != fixed {
        let (except, remedy) = if exempt {
            (
                " except the 'spec.exempt' field",
                "keep only spec.type and spec.exempt",
            )
        } else {
            ("", "leave the object out; it is built in")
        };
        let text = format!("spec of '{name}'{except} must equal the fixed value");
        errors.invalid("spec", spec, &text, remedy);
    }
}

fn check_conditions<'a>(types: impl Iterator<Item = Option<&'a str>>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, kind) in types.enumerate() {
        let kind = kind.unwrap_or_default();
        let field = format!("status.conditions[{i}].type");
        if !seen.insert(kind) {
            errors.push(
                &field,
                FieldErrorType::Duplicate,
                json(kind),
                "",
                "remove one of them",
            );
        }
        if kind.is_empty() {
            errors.required(&field, "", "leave the status out");
        }
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn push(
        &mut self,
        field: &str,
        mistake: FieldErrorType,
        value: String,
        detail: &str,
        remedy: &str,
    ) {
        self.0.push(FieldError {
            field: field.to_owned(),
            mistake,
            value,
            detail: detail.to_owned(),
            remedy: remedy.to_owned(),
        });
    }

    fn required(&mut self, field: &str, detail: &str, remedy: &str) {
        self.push(
            field,
            FieldErrorType::Required,
            String::new(),
            detail,
            remedy,
        );
    }

    fn forbidden(&mut self, field: &str, detail: &str) {
        self.push(
            field,
            FieldErrorType::Forbidden,
            String::new(),
            detail,
            "remove it",
        );
    }

    fn invalid<T: Serialize + ?Sized>(
        &mut self,
        field: &str,
        value: &T,
        detail: &str,
        remedy: &str,
    ) {
        self.push(field, FieldErrorType::Invalid, json(value), detail, remedy);
    }

    fn unsupported<T: Serialize + ?Sized>(&mut self, field: &str, value: &T, known: &[&str]) {
        let quoted: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.push(
            field,
            FieldErrorType::Unsupported,
            json(value),
            &detail,
            "use one of them",
        );
    }
}

#[cfg(test)]
mod tests;
