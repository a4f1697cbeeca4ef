//! Rules about resources.

use fairgate_cel::equal_texts;
use k8s_openapi::api::admissionregistration::v1::NamedRuleWithOperations;

use super::{MatchRequest, MatchedResource};
use crate::attributes::{AdmissionAttributes, AdmissionOperation, GroupVersionResource};

/// All operations, each at its number.
pub(super) const OPERATIONS: [AdmissionOperation; 4] = [
    AdmissionOperation::Create,
    AdmissionOperation::Update,
    AdmissionOperation::Delete,
    AdmissionOperation::Connect,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleScope {
    Any,
    Namespaced,
    Cluster,
    /// A text that is no scope: nothing matches.
    Unknown,
}

/// One rule: all of its parts must match.
pub(crate) struct ResourceRule {
    scope: RuleScope,
    /// Whether it takes each operation, in the order of the type's variants.
    operations: [bool; 4],
    groups: Vec<String>,
    versions: Vec<String>,
    /// Patterns of resource and subresource.
    resources: Vec<(String, String)>,
    /// Empty for any name.
    names: Vec<String>,
}

impl ResourceRule {
    pub(super) fn new(of: &NamedRuleWithOperations) -> Self {
        let resources = of.resources.iter().flatten();
        let split = |pattern: &String| {
            let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
            (resource.to_owned(), subresource.to_owned())
        };
        Self {
            scope: match of.scope.as_deref() {
                None | Some("*") => RuleScope::Any,
                Some("Namespaced") => RuleScope::Namespaced,
                Some("Cluster") => RuleScope::Cluster,
                Some(_) => RuleScope::Unknown,
            },
            operations: OPERATIONS.map(|one| {
                let named = of.operations.as_deref().unwrap_or_default();
                exact_or_any(named, one.name())
            }),
            groups: of.api_groups.clone().unwrap_or_default(),
            versions: of.api_versions.clone().unwrap_or_default(),
            resources: resources.map(split).collect(),
            names: of.resource_names.clone().unwrap_or_default(),
        }
    }

    /// The patterns of resource and subresource; `*` is any.
    pub(super) fn patterns(&self) -> &[(String, String)] {
        &self.resources
    }

    pub(super) fn takes_operation(&self, operation: AdmissionOperation) -> bool {
        self.operations[operation as usize]
    }

    fn matches(
        &self,
        attributes: &AdmissionAttributes<'_>,
        resource: &GroupVersionResource<'_>,
    ) -> bool {
        exact_or_any(&self.versions, resource.version)
            && self.matches_but_version(attributes, resource)
    }

    fn matches_but_version(
        &self,
        attributes: &AdmissionAttributes<'_>,
        resource: &GroupVersionResource<'_>,
    ) -> bool {
        let subresource = attributes.subresource;
        let takes = |(pattern, sub): &(String, String)| {
            matches_any(pattern, resource.resource) && matches_any(sub, subresource)
        };
        self.in_scope(attributes, resource)
            && self.takes_operation(attributes.operation)
            && exact_or_any(&self.groups, resource.group)
            && self.resources.iter().any(takes)
    }

    fn in_scope(
        &self,
        attributes: &AdmissionAttributes<'_>,
        resource: &GroupVersionResource<'_>,
    ) -> bool {
        const NAMESPACES: GroupVersionResource<'static> = GroupVersionResource {
            group: "",
            version: "v1",
            resource: "namespaces",
        };
        // A request for a namespace object carries its name as the namespace.
        let is_cluster = *resource == NAMESPACES || attributes.namespace.is_empty();
        match self.scope {
            RuleScope::Any => true,
            RuleScope::Namespaced => !is_cluster,
            RuleScope::Cluster => is_cluster,
            RuleScope::Unknown => false,
        }
    }

    fn takes_name(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|one| one == name)
    }
}

fn exact_or_any(items: &[String], wanted: &str) -> bool {
    items.iter().any(|item| matches_any(item, wanted))
}

/// Whether a pattern is `*` or the text itself.
fn matches_any(pattern: &str, wanted: &str) -> bool {
    pattern == "*" || equal_texts(pattern, wanted)
}

/// The first rule that matches: the resource as requested before equivalent ones, those rule by rule. With `any_name`,
/// names do not count.
///
/// # Errors
///
/// When the equivalent resource that matches has a kind that the server does not know.
pub(super) fn find<'a>(
    rules: &[ResourceRule],
    is_equivalent: bool,
    any_name: bool,
    request: &MatchRequest<'a>,
) -> Result<Option<MatchedResource<'a>>, String> {
    let attributes = request.attributes;
    let requested = attributes.resource;
    let takes_name = |rule: &ResourceRule| any_name || rule.takes_name(attributes.name);
    let exact = |rule: &ResourceRule| rule.matches(attributes, &requested) && takes_name(rule);
    if rules.iter().any(exact) {
        return Ok(Some(MatchedResource {
            resource: requested,
            kind: attributes.kind,
        }));
    }
    if !is_equivalent || rules.is_empty() {
        return Ok(None);
    }
    let equivalents = request
        .inputs
        .equivalents(requested, attributes.subresource);
    for rule in rules {
        for other in equivalents {
            if other.resource == requested || !rule.matches(attributes, &other.resource) {
                continue;
            }
            let Some(kind) = other.kind else {
                return Err(format!(
                    "unable to convert to {}: unknown kind",
                    other.resource
                ));
            };
            // After the kind, so that an unknown one is an error for any name, as in the original.
            if takes_name(rule) {
                let resource = other.resource;
                return Ok(Some(MatchedResource { resource, kind }));
            }
        }
    }
    Ok(None)
}

/// Whether a rule matches the request but for the version, and none matches it as it is.
pub(super) fn match_another_version(rules: &[ResourceRule], request: &MatchRequest<'_>) -> bool {
    let attributes = request.attributes;
    let requested = &attributes.resource;
    let mut all = rules.iter();
    all.clone()
        .any(|rule| rule.matches_but_version(attributes, requested))
        && !all.any(|rule| rule.matches(attributes, requested))
}
