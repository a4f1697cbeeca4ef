//! Names of resources in rules that are probably not those that were meant: a rule with one never matches, and nobody is told.

use serde_json::Value;

use crate::documents::{FileObject, items};
use fairgate_admission::built_in_resources;
use fairgate_core::finding::Finding;

/// The API group in which Kubernetes up to 1.21 served what is in other groups since.
const EXTENSIONS: &str = "extensions";

/// A warning for each such name in the rules of a policy.
pub(super) fn warnings(policy: &FileObject) -> Vec<Finding> {
    let constraints = &policy.value["spec"]["matchConstraints"];
    let mut found = Vec::new();
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(&constraints[list]).enumerate() {
            let at = format!("spec.matchConstraints.{list}[{index}]");
            let groups: Vec<&str> = items(&rule["apiGroups"])
                .filter_map(Value::as_str)
                .collect();
            if groups == [EXTENSIONS] {
                let message = "no server since Kubernetes 1.22 has this group";
                let remedy = "write apps for deployments, daemonsets and replicasets, and networking.k8s.io for ingresses and networkpolicies";
                found.push(policy.warning(&format!("{at}.apiGroups"), message, remedy));
            }
            for group in groups.iter().filter(|group| group.contains('/')) {
                let name = group.split('/').next().unwrap_or_default();
                let message = format!("{group:?} is no group: the rule matches nothing");
                let remedy = format!("write {name:?}; versions are in apiVersions");
                found.push(policy.warning(&format!("{at}.apiGroups"), message, &remedy));
            }
            for name in items(&rule["resources"]).filter_map(Value::as_str) {
                if let Some((message, remedy)) = problem(&groups, name) {
                    found.push(policy.warning(&format!("{at}.resources"), message, &remedy));
                }
            }
        }
    }
    found
}

/// What is wrong with the name of a resource in these groups, and what to do.
fn problem(groups: &[&str], name: &str) -> Option<(String, String)> {
    let (main, subresource) = name.split_once('/').unwrap_or((name, ""));
    let in_groups = |group: &str| groups.iter().any(|one| ["*", group].contains(one));
    let mut known = built_in_resources()
        .iter()
        .filter(|one| in_groups(one.group));
    if main == "*" || known.clone().any(|one| one.plural == main) {
        return None;
    }
    let is_meant = |kind: &str, plural: &str| {
        kind.eq_ignore_ascii_case(main)
            || plural.eq_ignore_ascii_case(main)
            || plural.eq_ignore_ascii_case(&format!("{main}s"))
            || differs_by_one(plural, main)
    };
    let meant = known.find(|one| is_meant(one.kind, one.plural));
    let is_lower = !main.contains(|letter: char| letter.is_ascii_uppercase());
    let message = match (&meant, is_lower) {
        (Some(_), _) => format!("Kubernetes has no resource {main:?}: the rule matches nothing"),
        (None, false) => {
            format!("{main:?} is no name of a resource: the rule matches nothing")
        }
        // Elsewhere it may be a custom resource.
        (None, true)
            if !groups.is_empty() && groups.iter().all(|group| is_of_kubernetes(group)) =>
        {
            format!("Kubernetes has no resource {main:?} in {groups:?}: the rule matches nothing")
        }
        (None, true) => return None,
    };
    let mut everywhere = built_in_resources().iter();
    let elsewhere = everywhere.find(|one| one.plural == main);
    let remedy = match (meant, elsewhere) {
        (Some(one), _) => {
            let separator = if subresource.is_empty() { "" } else { "/" };
            format!("write {}{separator}{subresource}", one.plural)
        }
        (None, Some(one)) => format!("write the group {:?}", one.group),
        (None, None) => "write the resource in the plural and in lower case, as in URLs".to_owned(),
    };
    Some((message, remedy))
}

/// Whether all resources of the group are those of Kubernetes itself.
fn is_of_kubernetes(group: &str) -> bool {
    built_in_resources().iter().any(|one| one.group == group)
}

/// Whether one letter is missing, added, other, or has changed its place with the next one.
fn differs_by_one(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let same = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (one, other) = (&one[same..], &other[same..]);
    let rest = |bytes: &[u8], from: usize| bytes.get(from..).map(<[u8]>::to_vec);
    let is_swapped = one.len() >= 2
        && other.len() >= 2
        && (one[0], one[1]) == (other[1], other[0])
        && one[2..] == other[2..];
    is_swapped
        || rest(one, 1).as_deref() == Some(other)
        || rest(other, 1).as_deref() == Some(one)
        || !one.is_empty() && rest(one, 1) == rest(other, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_match_nothing_are_told_with_what_is_probably_meant() {
        for (groups, name, remedy) in [
            (&["apps"][..], "Deployment", "write deployments"),
            (&["apps"], "deployment", "write deployments"),
            (&["apps"], "Deployment/scale", "write deployments/scale"),
            (&["apps", "batch"], "cronjob", "write cronjobs"),
            (&["*"], "ConfigMaps", "write configmaps"),
            (&[""], "pdos", "write pods"),
            (&[""], "configmap", "write configmaps"),
            (&["networking.k8s.io"], "ingress", "write ingresses"),
            (
                &["apps"],
                "deploy",
                "write the resource in the plural and in lower case, as in URLs",
            ),
            (&["apps"], "pods", "write the group \"\""),
            (
                &["example.com"],
                "Widget",
                "write the resource in the plural and in lower case, as in URLs",
            ),
        ] {
            let (_, told) = problem(groups, name).unwrap();
            assert_eq!(told, remedy, "{name}");
        }
        for (groups, name) in [
            (&["apps"][..], "deployments"),
            (&["apps"], "deployments/*"),
            (&["*"], "*"),
            (&["apps"], "*/scale"),
            (&["example.com"], "widgets"),
            (&["apps", "example.com"], "widgets"),
            (&[""], "pods/eviction"),
            // Of another group, in which it may be.
            (&["apps", "batch"], "jobs"),
        ] {
            assert_eq!(problem(groups, name), None, "{groups:?} {name}");
        }
    }
}
