//! Names of resources in rules that are probably not those that were meant: a rule with one never matches, and nobody is told.

use serde_json::Value;

use crate::documents::{FileObject, items};
use fairgate_admission::{BuiltInResource, built_in_resources};
use fairgate_core::finding::Finding;

/// The API group in which Kubernetes up to 1.21 served what is in other groups since.
const EXTENSIONS: &str = "extensions";

/// The list of groups in a rule.
const GROUPS: &str = "apiGroups";

/// A name in a rule that is probably not the one that was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MisspeltName {
    /// The list of the rule in which it is: `apiGroups` or `resources`.
    pub(super) list: &'static str,
    /// What is wrong with it.
    pub(super) message: String,
    /// What to write.
    pub(super) remedy: String,
}

/// A warning for each such name in the rules of a policy, and in its kind of params.
pub(super) fn warnings(policy: &FileObject) -> Vec<Finding> {
    let spec = &policy.value["spec"];
    let constraints = &spec["matchConstraints"];
    let mut found = Vec::new();
    if let Some((field, message, remedy)) = param_kind_problem(&spec["paramKind"]) {
        found.push(policy.warning(&format!("spec.paramKind.{field}"), message, remedy));
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(&constraints[list]).enumerate() {
            let texts = |list| items(&rule[list]).filter_map(Value::as_str).collect();
            let (groups, resources): (Vec<&str>, Vec<&str>) =
                (texts("apiGroups"), texts("resources"));
            for name in misspelt_names(&groups, &resources) {
                let MisspeltName {
                    list: part,
                    message,
                    remedy,
                } = name;
                let field = format!("spec.matchConstraints.{list}[{index}].{part}");
                found.push(policy.warning(&field, message, remedy));
            }
        }
    }
    found
}

/// The names of groups and resources in one rule, of an admission policy or of flow control, that are probably not those that were
/// meant.
pub(super) fn misspelt_names(groups: &[&str], resources: &[&str]) -> Vec<MisspeltName> {
    let mut found = Vec::new();
    let mut push = |list, message, remedy| {
        found.push(MisspeltName {
            list,
            message,
            remedy,
        });
    };
    if groups == [EXTENSIONS] {
        let message = "no server since Kubernetes 1.22 has this group".to_owned();
        let remedy = "write apps for deployments, daemonsets and replicasets, and networking.k8s.io for ingresses and networkpolicies";
        push(GROUPS, message, remedy.to_owned());
    }
    for group in groups.iter().filter(|group| group.contains('/')) {
        let message = format!("{group:?} is no group: the rule matches nothing");
        // An admission policy names versions beside, a rule of flow control is for all.
        let remedy = format!("write {:?}, without a version", without_version(group));
        push(GROUPS, message, remedy);
    }
    for group in groups.iter().filter(|group| !group.contains('/')) {
        if let Some(remedy) = group_remedy(group) {
            let message = format!("Kubernetes has no group {group:?}: it matches nothing");
            push(GROUPS, message, remedy);
        }
    }
    // So that a group with a version is one mistake.
    let groups: Vec<&str> = groups.iter().map(|group| without_version(group)).collect();
    for name in resources {
        if let Some((message, remedy)) = problem(&groups, name) {
            push("resources", message, remedy);
        }
    }
    found
}

/// What to write in the place of a group that no server has.
fn group_remedy(group: &str) -> Option<String> {
    if ["", "*", EXTENSIONS].contains(&group) || is_of_kubernetes(group) {
        return None;
    }
    let known = built_in_resources().iter().map(|one| one.group);
    let mut known = known.filter(|known| !known.is_empty());
    let has_dot = group.contains('.');
    let is_meant = |known: &&str| {
        let is_beginning = !has_dot && known.split('.').next() == Some(group);
        known.eq_ignore_ascii_case(group) || is_beginning || differs_by_one(known, group)
    };
    match known.find(is_meant) {
        Some(meant) => Some(format!("write {meant:?}")),
        // One of custom resources.
        None if has_dot => None,
        None if ["core", "v1"].contains(&group) => {
            Some("write \"\", the group of apiVersion: v1".to_owned())
        }
        None => {
            Some("write what apiVersion has before the slash, or \"\" if it has none".to_owned())
        }
    }
}

fn without_version(group: &str) -> &str {
    group.split('/').next().unwrap_or_default()
}

/// What is wrong with a kind of params, if no server has it: the field, what it is, and what to do.
fn param_kind_problem(param_kind: &Value) -> Option<(&'static str, String, String)> {
    let api_version = param_kind["apiVersion"].as_str()?;
    let kind = param_kind["kind"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let all = built_in_resources();
    let mut of_group = all.iter().filter(|one| one.group == group);
    if of_group
        .clone()
        .any(|one| one.kind == kind && one.version == version)
    {
        return None;
    }
    let unknown = format!("Kubernetes has no kind {kind:?} in {api_version}");
    let is_meant = |one: &&BuiltInResource| {
        one.kind.eq_ignore_ascii_case(kind)
            || one.plural.eq_ignore_ascii_case(kind)
            || differs_by_one(one.kind, kind)
    };
    if let Some(one) = of_group.find(is_meant) {
        return Some(if one.kind == kind {
            (
                "apiVersion",
                unknown,
                format!("write {}", shown_version(one)),
            )
        } else {
            ("kind", unknown, format!("write {}", one.kind))
        });
    }
    // The groups of custom resources have a dot, and other kinds than Kubernetes'.
    if group.contains('.') && !is_of_kubernetes(group) {
        return None;
    }
    let remedy = match all.iter().find(is_meant) {
        Some(one) => format!(
            "write apiVersion: {} and kind: {}",
            shown_version(one),
            one.kind
        ),
        None => "write apiVersion and kind of the objects as kubectl prints them".to_owned(),
    };
    Some(("apiVersion", unknown, remedy))
}

fn shown_version(one: &BuiltInResource) -> String {
    match one.group {
        "" => one.version.to_owned(),
        group => format!("{group}/{}", one.version),
    }
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
    let everywhere = || built_in_resources().iter();
    let elsewhere = everywhere().find(|one| one.plural == main);
    let similar = everywhere()
        .find(|one| one.plural.eq_ignore_ascii_case(main) || one.kind.eq_ignore_ascii_case(main));
    let remedy = match (meant, elsewhere) {
        (Some(one), _) => {
            let separator = if subresource.is_empty() { "" } else { "/" };
            format!("write {}{separator}{subresource}", one.plural)
        }
        (None, Some(one)) => format!("write the group {:?}", one.group),
        (None, None) if let Some(one) = similar => {
            format!("write {}, and the group {:?}", one.plural, one.group)
        }
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_group_with_a_version_is_one_mistake() {
        let found = misspelt_names(&["apps/v1"], &["Deployments"]);
        let told: Vec<_> = found.iter().map(|one| (one.list, &*one.remedy)).collect();
        let expected = [
            ("apiGroups", "write \"apps\", without a version"),
            ("resources", "write deployments"),
        ];
        assert_eq!(told, expected);
        assert_eq!(misspelt_names(&["apps/v1"], &["deployments"]).len(), 1);
    }

    #[test]
    fn groups_that_no_server_has_are_told() {
        for (group, remedy) in [
            ("core", "write \"\", the group of apiVersion: v1"),
            ("v1", "write \"\", the group of apiVersion: v1"),
            ("app", "write \"apps\""),
            ("Apps", "write \"apps\""),
            ("networking", "write \"networking.k8s.io\""),
            (
                "rbac.authorisation.k8s.io",
                "write \"rbac.authorization.k8s.io\"",
            ),
            (
                "deployments",
                "write what apiVersion has before the slash, or \"\" if it has none",
            ),
        ] {
            let found = misspelt_names(&[group], &["*"]);
            let told: Vec<_> = found.iter().map(|one| (one.list, &*one.remedy)).collect();
            assert_eq!(told, [("apiGroups", remedy)], "{group}");
        }
        for group in ["", "*", "apps", "example.com", "gateway.networking.k8s.io"] {
            assert_eq!(misspelt_names(&[group], &["*"]), [], "{group}");
        }
    }

    #[test]
    fn kinds_of_params_that_no_server_has_are_told() {
        let problem = |api_version: &str, kind: &str| {
            let found = param_kind_problem(&json!({"apiVersion": api_version, "kind": kind}));
            found.map(|(field, _, remedy)| (field, remedy))
        };
        for (api_version, kind, field, remedy) in [
            ("v1", "Configmap", "kind", "write ConfigMap"),
            ("v1", "configmaps", "kind", "write ConfigMap"),
            ("v1", "ConfigMpa", "kind", "write ConfigMap"),
            ("v2", "ConfigMap", "apiVersion", "write v1"),
            (
                "core/v1",
                "ConfigMap",
                "apiVersion",
                "write apiVersion: v1 and kind: ConfigMap",
            ),
            ("apps/v1beta9", "Deployment", "apiVersion", "write apps/v1"),
            (
                "apps/v1",
                "Replicas",
                "apiVersion",
                "write apiVersion and kind of the objects as kubectl prints them",
            ),
        ] {
            let expected = Some((field, remedy.to_owned()));
            assert_eq!(problem(api_version, kind), expected, "{api_version} {kind}");
        }
        for (api_version, kind) in [
            ("v1", "ConfigMap"),
            ("apps/v1", "Deployment"),
            ("rules.example.com/v1", "ReplicaLimit"),
            ("gateway.networking.k8s.io/v1", "Gateway"),
        ] {
            assert_eq!(problem(api_version, kind), None, "{api_version} {kind}");
        }
    }

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
