//! Matching one schema against one request, in plain words.
//!
//! The straightforward reading of a schema's rules: slow, and the reference for the results of
//! the index. It returns which part matched, or why none did.

use std::fmt;

use k8s_openapi::api::flowcontrol::v1::{
    NonResourcePolicyRule, PolicyRulesWithSubjects, ResourcePolicyRule, Subject,
};
use serde::Serialize;

use crate::digest::{RequestDigest, RequestInfo, User};

/// The part of a schema that matched a request; all are indices into the schema's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleMatch {
    /// The index in `spec.rules`.
    pub rule: usize,
    /// The index in the rule's `subjects`.
    pub subject: usize,
    /// In the rule's `resourceRules` or `nonResourceRules`, as the request is.
    pub part: usize,
    /// Whether `part` is a resource rule.
    pub is_resource: bool,
}

impl fmt::Display for RuleMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule,
            subject,
            part,
            is_resource,
        } = self;
        let list = list_name(*is_resource);
        write!(f, "spec.rules[{rule}]: subjects[{subject}], {list}[{part}]")
    }
}

/// Why one rule of a schema does not match a request: its part that comes closest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleMismatch {
    /// The path of that part, such as `spec.rules[0].resourceRules[1].verbs`.
    pub field: String,
    /// What does not fit.
    pub reason: Mismatch,
}

impl fmt::Display for RuleMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// What part of a rule does not match a request, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mismatch {
    /// The schema has no rules.
    NoRules,
    /// No subject is the user, one of its groups, or everybody.
    Subject,
    /// The request is for a resource, and the rule has no resource rules.
    NoResourceRules,
    /// The request is not for a resource, and the rule has only resource rules.
    NoNonResourceRules,
    /// The verb is not listed.
    Verb,
    /// The resource, with its subresource, is not listed.
    Resource,
    /// The API group is not listed.
    ApiGroup,
    /// The request has no namespace, and the rule is not for cluster scope.
    ClusterScope,
    /// The namespace is not listed.
    Namespace,
    /// No entry is the path or above it.
    Path,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRules => "there are no rules",
            Self::Subject => "neither the user nor a group of the user is listed",
            Self::NoResourceRules => "there are none, and the request is for a resource",
            Self::NoNonResourceRules => "there are none, and the request is for no resource",
            Self::Verb => "the verb is not listed",
            Self::Resource => "the resource is not listed",
            Self::ApiGroup => "the API group is not listed",
            Self::ClusterScope => {
                "the request has no namespace, and the rule is not cluster scoped"
            }
            Self::Namespace => "the namespace is not listed",
            Self::Path => "neither the path nor a directory of it is listed",
        })
    }
}

/// Which part of `rules` matches a request first, or why none does.
pub(in crate::apf) fn explain_rules(
    rules: &[PolicyRulesWithSubjects],
    digest: &RequestDigest,
) -> Result<RuleMatch, Vec<RuleMismatch>> {
    if rules.is_empty() {
        return Err(vec![RuleMismatch {
            field: "spec.rules".to_owned(),
            reason: Mismatch::NoRules,
        }]);
    }
    let mut reasons = Vec::with_capacity(rules.len());
    for (i, rule) in rules.iter().enumerate() {
        match explain_rule(rule, digest) {
            Ok((subject, part)) => {
                return Ok(RuleMatch {
                    rule: i,
                    subject,
                    part,
                    is_resource: digest.info.is_resource,
                });
            }
            Err((field, reason)) => reasons.push(RuleMismatch {
                field: format!("spec.rules[{i}].{field}"),
                reason,
            }),
        }
    }
    Err(reasons)
}

/// The indices of the subject and the part that match.
fn explain_rule(
    rule: &PolicyRulesWithSubjects,
    digest: &RequestDigest,
) -> Result<(usize, usize), (String, Mismatch)> {
    let Some(subject) = rule
        .subjects
        .iter()
        .position(|subject| is_subject(subject, &digest.user))
    else {
        return Err(("subjects".to_owned(), Mismatch::Subject));
    };
    let info = &digest.info;
    let part = if info.is_resource {
        let rules = rule.resource_rules.as_deref().unwrap_or_default();
        first_match(rules, Mismatch::NoResourceRules, |rule| {
            resource_misfit(rule, info)
        })
    } else {
        let rules = rule.non_resource_rules.as_deref().unwrap_or_default();
        first_match(rules, Mismatch::NoNonResourceRules, |rule| {
            non_resource_misfit(rule, info)
        })
    };
    match part {
        Ok(part) => Ok((subject, part)),
        Err((at, reason)) => {
            let list = list_name(info.is_resource);
            let at = at.map_or_else(String::new, |at| format!("[{at}].{}", field_of(reason)));
            Err((format!("{list}{at}"), reason))
        }
    }
}

/// The first of `rules` without a misfit, or the one that comes closest and its misfit.
fn first_match<T>(
    rules: &[T],
    if_none: Mismatch,
    misfit: impl Fn(&T) -> Option<Mismatch>,
) -> Result<usize, (Option<usize>, Mismatch)> {
    let mut closest = (None, if_none);
    for (i, rule) in rules.iter().enumerate() {
        match misfit(rule) {
            None => return Ok(i),
            // Reasons are ordered as the checks are: one that fails later fits more of the request.
            Some(reason) if closest.0.is_none() || reason > closest.1 => {
                closest = (Some(i), reason);
            }
            Some(_) => {}
        }
    }
    Err(closest)
}

fn is_subject(subject: &Subject, user: &User) -> bool {
    match subject.kind.as_str() {
        "User" => subject
            .user
            .as_ref()
            .is_some_and(|wanted| wanted.name == "*" || wanted.name == user.name),
        "Group" => subject
            .group
            .as_ref()
            .is_some_and(|wanted| wanted.name == "*" || user.in_group(&wanted.name)),
        "ServiceAccount" => subject.service_account.as_ref().is_some_and(|wanted| {
            user.name
                .strip_prefix(super::ACCOUNT_PREFIX)
                .and_then(|rest| rest.strip_prefix(wanted.namespace.as_str()))
                .and_then(|rest| rest.strip_prefix(':'))
                .is_some_and(|name| wanted.name == "*" || wanted.name == name)
        }),
        _ => false,
    }
}

fn resource_misfit(rule: &ResourcePolicyRule, info: &RequestInfo) -> Option<Mismatch> {
    if !lists(&rule.verbs, info.verb.as_str().as_bytes()) {
        return Some(Mismatch::Verb);
    }
    let mut resource = info.resource().to_vec();
    if !info.subresource().is_empty() {
        resource.push(b'/');
        resource.extend_from_slice(info.subresource());
    }
    if !lists(&rule.resources, &resource) {
        return Some(Mismatch::Resource);
    }
    if !lists(&rule.api_groups, info.group()) {
        return Some(Mismatch::ApiGroup);
    }
    if info.namespace().is_empty() {
        return (rule.cluster_scope != Some(true)).then_some(Mismatch::ClusterScope);
    }
    let namespaces = rule.namespaces.as_deref().unwrap_or_default();
    (!lists(namespaces, info.namespace())).then_some(Mismatch::Namespace)
}

fn non_resource_misfit(rule: &NonResourcePolicyRule, info: &RequestInfo) -> Option<Mismatch> {
    if !lists(&rule.verbs, info.verb.as_str().as_bytes()) {
        return Some(Mismatch::Verb);
    }
    let covers = |entry: &String| {
        let mut directory = entry.strip_suffix('*').unwrap_or(entry).to_owned();
        if !directory.ends_with('/') {
            directory.push('/');
        }
        entry == "*"
            || entry.as_bytes() == info.path()
            || info.path().starts_with(directory.as_bytes())
    };
    (!rule.non_resource_urls.iter().any(covers)).then_some(Mismatch::Path)
}

/// Whether a list is `*` or has `wanted`.
fn lists(list: &[String], wanted: &[u8]) -> bool {
    matches!(list, [only] if only == "*") || list.iter().any(|entry| entry.as_bytes() == wanted)
}

const fn list_name(is_resource: bool) -> &'static str {
    if is_resource {
        "resourceRules"
    } else {
        "nonResourceRules"
    }
}

const fn field_of(reason: Mismatch) -> &'static str {
    match reason {
        Mismatch::Resource => "resources",
        Mismatch::ApiGroup => "apiGroups",
        Mismatch::ClusterScope => "clusterScope",
        Mismatch::Namespace => "namespaces",
        Mismatch::Path => "nonResourceURLs",
        _ => "verbs",
    }
}
