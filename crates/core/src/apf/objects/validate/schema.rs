//! The spec of a FlowSchema: rules, subjects, and what each may list.

use k8s_openapi::api::flowcontrol::v1::{
    FlowSchemaSpec, NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule,
    ServiceAccountSubject, Subject,
};

use super::{Errors, MAX_PRECEDENCE, ONE_OF_THEM, VERBS};
use fairgate_gotext::names;

use crate::apf::objects::bootstrap;

pub(super) fn check_schema_spec(name: &str, spec: &FlowSchemaSpec, errors: &mut Errors) {
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
            // The server prints the whole method as the value, though the path is that of its type.
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
    // Such a rule is for cluster-scoped objects only, so it needs no namespace.
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

/// The error in an element of `nonResourceURLs` other than `*`.
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
        let meant = (verbs.iter())
            .map(|verb| meant_verb(verb))
            .collect::<Option<Vec<_>>>();
        let remedy = meant.map(|meant| format!("write {}", meant.join(", ")));
        let remedy = remedy.as_deref().unwrap_or(ONE_OF_THEM);
        errors.unsupported_with(&field, verbs, &VERBS, remedy);
    }
}

/// The verb that is probably meant: Kubernetes' are in lower case, and named by what they do instead of the method.
fn meant_verb(verb: &str) -> Option<&'static str> {
    let lower = verb.to_ascii_lowercase();
    let meant = match &*lower {
        "post" => "create",
        "put" => "update",
        "head" => "get",
        other => other,
    };
    VERBS.into_iter().find(|known| *known == meant)
}

/// Checks a set that may be `*`; true if its elements need no further checks.
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
