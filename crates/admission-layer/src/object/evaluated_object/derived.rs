//! Fields of an object that the server fills from others when it is written, so that older and newer clients find the same there.
//!
//! Source: Kubernetes `pkg/registry/core/pod/strategy.go` (`applyAppArmorVersionSkew`, `mutatePodAffinity`,
//! `mutateTopologySpreadConstraints`), `pkg/api/persistentvolumeclaim/util.go` (`EnforceDataSourceBackwardsCompatibility`,
//! `NormalizeDataSources`), `pkg/registry/discovery/endpointslice/strategy.go` (`dropTopologyOnV1`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// How many requirements the selectors of a pod may get. Each takes much more memory than the key in the body that asks for it.
const MAX_REQUIREMENTS: usize = 1_000;
/// The longest value of a label, in bytes. A pod with a longer one is not stored.
const LONGEST_LABEL: usize = 63;

/// Fills them in an object, of which `old` is what is stored. What has the wrong type stays, which the server refuses. Costs time and
/// memory linear in the size of both.
///
/// # Errors
///
/// The selectors of a pod would get too many requirements.
pub(super) fn fill(
    object: &mut Value,
    old: Option<&Value>,
    group: &str,
    resource: &str,
) -> Result<(), TooManyRequirements> {
    match (group, resource) {
        ("", "pods") if old.is_none() => {
            app_armor_profiles(object);
            selected_label_keys(object)?;
        }
        ("", "persistentvolumeclaims") => data_sources(object, old),
        ("discovery.k8s.io", "endpointslices") => topologies(object, old),
        _ => {}
    }
    Ok(())
}

/// The keys of labels in a pod stand for more than [`MAX_REQUIREMENTS`] requirements of its selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the matchLabelKeys and mismatchLabelKeys of the pod have more than {MAX_REQUIREMENTS} keys of its labels"
)]
pub(crate) struct TooManyRequirements;

/// The list at a path.
fn list_mut<'a>(object: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.pointer_mut(path).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// A text that is neither missing nor empty.
pub(super) fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    let text = object.pointer(path).and_then(Value::as_str);
    text.filter(|text| !text.is_empty())
}

/// Whether a member is missing or null.
fn lacks(members: &Map<String, Value>, name: &str) -> bool {
    members.get(name).is_none_or(Value::is_null)
}

/// Changed endpoints have no `deprecatedTopology`. What it said of their node is kept if it was stored already.
fn topologies(slice: &mut Value, old: Option<&Value>) {
    const NODE: &str = "/deprecatedTopology/kubernetes.io~1hostname";
    let stored = old.map_or(&Value::Null, |old| &old["endpoints"]);
    if old.is_some() && *stored == slice["endpoints"] {
        return;
    }
    let stored = stored.as_array().into_iter().flatten();
    let known: BTreeSet<&str> = stored.filter_map(|one| text(one, NODE)).collect();
    for endpoint in list_mut(slice, "/endpoints") {
        let node = text(endpoint, NODE).filter(|node| known.contains(node));
        let node = node.map(|node| json!(node));
        let Some(endpoint) = endpoint.as_object_mut() else {
            continue;
        };
        endpoint.remove("deprecatedTopology");
        if let Some(node) = node.filter(|_| lacks(endpoint, "nodeName")) {
            endpoint.insert("nodeName".to_owned(), node);
        }
    }
}

/// Containers have the profile of their annotation, the former name of the field, unless they or the pod have it already.
fn app_armor_profiles(pod: &mut Value) {
    const PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    if pod["spec"]["os"]["name"] == "windows" {
        return;
    }
    let Some(annotations) = pod["metadata"]["annotations"].as_object() else {
        return;
    };
    // Nearly no pod has any, so the others are not copied.
    let profiles = annotations.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(PREFIX)?;
        Some((name.to_owned(), value.clone()))
    });
    let mut profiles: BTreeMap<String, Value> = profiles.collect();
    if profiles.is_empty() {
        return;
    }
    let of_pod = pod.pointer("/spec/securityContext/appArmorProfile");
    let of_pod = of_pod.cloned();
    for list in [
        "/spec/containers",
        "/spec/initContainers",
        "/spec/ephemeralContainers",
    ] {
        for container in list_mut(pod, list) {
            let name = container["name"].as_str().unwrap_or_default();
            // No other container of a pod that is stored has the name.
            let annotation = profiles.remove(name);
            let profile = annotation.as_ref().and_then(Value::as_str);
            let profile = profile.and_then(profile_of);
            let Some(profile) = profile.filter(|found| Some(found) != of_pod.as_ref()) else {
                continue;
            };
            let Some(container) = container.as_object_mut() else {
                continue;
            };
            if lacks(container, "securityContext") {
                container.insert("securityContext".to_owned(), json!({}));
            }
            let context = container["securityContext"].as_object_mut();
            if let Some(context) = context.filter(|context| lacks(context, "appArmorProfile")) {
                context.insert("appArmorProfile".to_owned(), profile);
            }
        }
    }
}

/// The profile that an annotation names, if it is valid.
fn profile_of(annotation: &str) -> Option<Value> {
    /// The length of a path.
    const LONGEST: usize = 4095;
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let local = annotation.strip_prefix("localhost/")?;
            let is_valid = !local.is_empty() && local.trim() == local && local.len() <= LONGEST;
            is_valid.then(|| json!({"type": "Localhost", "localhostProfile": local}))
        }
    }
}

/// Selectors select by the labels of the pod that their `matchLabelKeys` and `mismatchLabelKeys` name.
fn selected_label_keys(pod: &mut Value) -> Result<(), TooManyRequirements> {
    let has = |name: &str| !pod["spec"][name].is_null();
    if !has("affinity") && !has("topologySpreadConstraints") {
        // There are no selectors, and the labels need not be copied.
        return Ok(());
    }
    let labels = pod.pointer("/metadata/labels").cloned();
    let Some(Value::Object(labels)) = labels else {
        return Ok(());
    };
    let mut selecting = LabelSelecting {
        labels,
        left: MAX_REQUIREMENTS,
    };
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let path = format!("/spec/affinity/{affinity}");
        let preferred = format!("{path}/preferredDuringSchedulingIgnoredDuringExecution");
        for weighted in list_mut(pod, &preferred) {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                selecting.term(term)?;
            }
        }
        let required = format!("{path}/requiredDuringSchedulingIgnoredDuringExecution");
        for term in list_mut(pod, &required) {
            selecting.term(term)?;
        }
    }
    for constraint in list_mut(pod, "/spec/topologySpreadConstraints") {
        selecting.by_keys(constraint, "matchLabelKeys", "In")?;
    }
    Ok(())
}

/// Adds the labels of a pod to its selectors.
struct LabelSelecting {
    labels: Map<String, Value>,
    /// How many requirements may still be added.
    left: usize,
}

impl LabelSelecting {
    fn term(&mut self, term: &mut Value) -> Result<(), TooManyRequirements> {
        self.by_keys(term, "matchLabelKeys", "In")?;
        self.by_keys(term, "mismatchLabelKeys", "NotIn")
    }

    fn by_keys(
        &mut self,
        term: &mut Value,
        keys: &str,
        operator: &str,
    ) -> Result<(), TooManyRequirements> {
        let keys = term
            .get(keys)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let label = |key: &Value| {
            let (key, value) = self.labels.get_key_value(key.as_str()?)?;
            (value.as_str()?.len() <= LONGEST_LABEL)
                .then(|| json!({"key": key, "operator": operator, "values": [value]}))
        };
        let selected: Vec<Value> = keys.filter_map(label).take(self.left + 1).collect();
        let Some(Value::Object(selector)) = term.get_mut("labelSelector") else {
            return Ok(());
        };
        self.left = self
            .left
            .checked_sub(selected.len())
            .ok_or(TooManyRequirements)?;
        if selected.is_empty() {
            return Ok(());
        }
        if lacks(selector, "matchExpressions") {
            selector.insert("matchExpressions".to_owned(), json!([]));
        }
        if let Some(expressions) = selector["matchExpressions"].as_array_mut() {
            expressions.extend(selected);
        }
        Ok(())
    }
}

/// `dataSource` of a claim is the former name of `dataSourceRef`. Of sources that the former does not allow, a claim without
/// the latter has none, unless it has one already.
fn data_sources(claim: &mut Value, old: Option<&Value>) {
    const SOURCES: [&str; 2] = ["dataSource", "dataSourceRef"];
    let has_one = |claim: &Value| {
        let mut sources = SOURCES.iter();
        sources.any(|name| !claim["spec"][name].is_null())
    };
    let had_one = old.is_some_and(has_one);
    let Some(Value::Object(spec)) = claim.get_mut("spec") else {
        return;
    };
    if !had_one && lacks(spec, "dataSourceRef") && spec.get("dataSource").is_some_and(is_dropped) {
        spec.remove("dataSource");
    }
    let [source, other] = SOURCES.map(|name| spec.get(name).and_then(reference));
    match (source, other) {
        (Some(source), None) if lacks(spec, "dataSourceRef") => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(other)) if lacks(spec, "dataSource") => {
            spec.insert("dataSource".to_owned(), other);
        }
        _ => {}
    }
}

/// Whether a claim cannot be made from this, neither from a claim nor from a snapshot.
fn is_dropped(source: &Value) -> bool {
    let group = text(source, "/apiGroup").unwrap_or_default();
    let kind = text(source, "/kind").unwrap_or_default();
    let allowed = [
        ("", "PersistentVolumeClaim"),
        ("snapshot.storage.k8s.io", "VolumeSnapshot"),
    ];
    !allowed.contains(&(group, kind))
}

/// What both names of a source have, if it is in no other namespace.
fn reference(source: &Value) -> Option<Value> {
    if !source.is_object() || text(source, "/namespace").is_some() {
        return None;
    }
    let mut reference = json!({
        "kind": text(source, "/kind").unwrap_or_default(),
        "name": text(source, "/name").unwrap_or_default(),
    });
    if let Some(group) = source.get("apiGroup").filter(|group| !group.is_null()) {
        reference["apiGroup"] = group.clone();
    }
    Some(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(resource: &str, object: &Value, old: Option<&Value>) -> Value {
        let mut object = object.clone();
        fill(&mut object, old, "", resource).unwrap();
        object
    }

    /// A pod with a container `c`, whose annotation names this profile.
    fn annotated(profile: &str, spec: &Value, container: &Value) -> Value {
        let mut pod = json!({
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": profile}},
            "spec": spec,
        });
        pod["spec"]["containers"] = json!([{"name": "b"}, container]);
        pod
    }

    #[test]
    fn containers_have_the_profile_of_their_annotation() {
        let plain = json!({"name": "c"});
        let with =
            |profile: Value| json!({"name": "c", "securityContext": {"appArmorProfile": profile}});
        let unconfined = json!({"type": "Unconfined"});
        let of_pod = json!({"securityContext": {"appArmorProfile": unconfined}});
        let nothing = json!({});
        let local = json!({"type": "Localhost", "localhostProfile": "p"});
        let longest = "p".repeat(4095);
        for (profile, spec, sent, seen) in [
            ("unconfined", &nothing, &plain, with(unconfined.clone())),
            (
                "runtime/default",
                &of_pod,
                &plain,
                with(json!({"type": "RuntimeDefault"})),
            ),
            ("localhost/p", &nothing, &plain, with(local.clone())),
            (
                &format!("localhost/{longest}"),
                &nothing,
                &plain,
                with(json!({"type": "Localhost", "localhostProfile": longest})),
            ),
            // What the pod or the container has already, and what is not valid.
            ("unconfined", &of_pod, &plain, plain.clone()),
            (
                "unconfined",
                &nothing,
                &with(local.clone()),
                with(local.clone()),
            ),
            ("localhost/", &nothing, &plain, plain.clone()),
            ("localhost/ p", &nothing, &plain, plain.clone()),
            (
                &format!("localhost/{longest}p"),
                &nothing,
                &plain,
                plain.clone(),
            ),
            ("Unconfined", &nothing, &plain, plain.clone()),
            (
                "unconfined",
                &json!({"os": {"name": "windows"}}),
                &plain,
                plain.clone(),
            ),
            // The server refuses this.
            (
                "unconfined",
                &nothing,
                &json!({"name": "c", "securityContext": 1}),
                json!({"name": "c", "securityContext": 1}),
            ),
        ] {
            let sent = annotated(profile, spec, sent);
            let seen = annotated(profile, spec, &seen);
            assert_eq!(filled("pods", &sent, None), seen, "{profile}");
            assert_eq!(filled("pods", &sent, Some(&sent)), sent, "an update");
        }
        for list in ["initContainers", "ephemeralContainers"] {
            let mut sent = annotated("unconfined", &nothing, &json!({"name": "d"}));
            sent["spec"][list] = json!([plain]);
            let seen = &filled("pods", &sent, None)["spec"][list][0];
            assert_eq!(*seen, with(unconfined.clone()), "{list}");
        }
    }

    #[test]
    fn selectors_have_the_labels_that_their_keys_name() {
        let term = json!({
            "matchLabelKeys": ["a", "missing"], "mismatchLabelKeys": ["b"],
            "labelSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]},
        });
        let constraint = json!({"matchLabelKeys": ["a"], "labelSelector": {"matchLabels": {}}});
        let without = json!({"matchLabelKeys": ["a"]});
        let pod = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {
            "affinity": {
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term, without]},
            },
            "topologySpreadConstraints": [constraint, without],
        }});
        let seen = filled("pods", &pod, None);
        let is_a = json!({"key": "a", "operator": "In", "values": ["1"]});
        let is_not_b = json!({"key": "b", "operator": "NotIn", "values": ["2"]});
        let all = json!([{"key": "k", "operator": "Exists"}, is_a, is_not_b]);
        let affinity = &seen["spec"]["affinity"];
        let preferred =
            &affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
        let required =
            &affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        for term in [&preferred["podAffinityTerm"], &required[0]] {
            assert_eq!(term["labelSelector"]["matchExpressions"], all);
        }
        let spread = &seen["spec"]["topologySpreadConstraints"];
        assert_eq!(
            spread[0]["labelSelector"],
            json!({"matchLabels": {}, "matchExpressions": [is_a]})
        );
        assert_eq!([&required[1], &spread[1]], [&without, &without]);
        assert_eq!(filled("pods", &pod, Some(&pod)), pod, "an update");
    }

    #[test]
    fn a_short_body_is_not_filled_with_much() {
        let pod = |constraints: usize, label: &str| {
            let keys = vec!["a"; 100];
            let constraint = json!({"matchLabelKeys": keys, "labelSelector": {}});
            json!({"metadata": {"labels": {"a": label}}, "spec": {"topologySpreadConstraints": vec![constraint; constraints]}})
        };
        let mut most = pod(10, "x");
        assert_eq!(fill(&mut most, None, "", "pods"), Ok(()));
        let refused = fill(&mut pod(11, "x"), None, "", "pods");
        assert_eq!(refused, Err(TooManyRequirements));
        // The server does not store such a label.
        let long = pod(1000, &"x".repeat(64));
        assert_eq!(filled("pods", &long, None), long);

        let mut containers = annotated("unconfined", &json!({}), &json!({"name": "c"}));
        containers["spec"]["containers"] = json!(vec![json!({"name": "c"}); 1000]);
        let filled = filled("pods", &containers, None);
        let has_profile = |container: &&Value| container.get("securityContext").is_some();
        let all = filled["spec"]["containers"].as_array().unwrap();
        assert_eq!(all.iter().filter(has_profile).count(), 1);
    }

    #[test]
    fn the_topology_of_endpoints_is_dropped_and_what_it_said_of_nodes_kept() {
        let on = |node: &str| json!({"addresses": ["10.0.0.1"], "deprecatedTopology": {"kubernetes.io/hostname": node}});
        let slice = |endpoint: &Value| json!({"endpoints": [endpoint]});
        let bare = json!({"addresses": ["10.0.0.1"]});
        let old = slice(&on("a"));
        let mut named = bare.clone();
        named["nodeName"] = json!("a");
        let mut more = on("a");
        more["zone"] = json!("z");
        let mut more_named = named.clone();
        more_named["zone"] = json!("z");
        for (sent, old, seen) in [
            (on("a"), None, bare.clone()),
            (on("a"), Some(&old), on("a")),
            (more, Some(&old), more_named),
            (on("b"), Some(&old), bare),
        ] {
            let mut seen_of = slice(&sent);
            let filled = fill(&mut seen_of, old, "discovery.k8s.io", "endpointslices");
            assert_eq!((filled, seen_of), (Ok(()), slice(&seen)), "{sent}");
        }
    }

    #[test]
    fn both_names_of_a_data_source_have_it() {
        let claim = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let snapshot =
            json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
        let other = json!({"apiGroup": "x.io", "kind": "Backup", "name": "b"});
        let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "n"});
        let both =
            |source: &Value| json!({"spec": {"dataSource": source, "dataSourceRef": source}});
        let source = |source: &Value| json!({"spec": {"dataSource": source}});
        let reference = |source: &Value| json!({"spec": {"dataSourceRef": source}});
        let had = both(&other);
        for (sent, old, seen) in [
            (source(&claim), None, both(&claim)),
            (source(&snapshot), None, both(&snapshot)),
            (source(&other), None, json!({"spec": {}})),
            (source(&other), Some(&had), both(&other)),
            (reference(&other), None, both(&other)),
            (reference(&claim), Some(&had), both(&claim)),
            (reference(&elsewhere), None, reference(&elsewhere)),
            (
                json!({"spec": {"dataSource": claim, "dataSourceRef": other}}),
                None,
                json!({"spec": {"dataSource": claim, "dataSourceRef": other}}),
            ),
            (json!({"spec": {}}), None, json!({"spec": {}})),
        ] {
            let seen_of = filled("persistentvolumeclaims", &sent, old);
            assert_eq!(seen_of, seen, "{sent} {old:?}");
        }
    }
}
