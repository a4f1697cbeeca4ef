//! What the fake upstream tells the gateway of itself: which resources it has, which namespaces, pods and params, and who may do what.

use std::{sync::LazyLock, time::Duration};

use bytes::Bytes;
use http::Uri;
use serde_json::{Value, json};

use crate::time::ms;

/// Whether a user may make a request: every user may.
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The name of the resource for which that takes [`SLOW`].
pub(crate) const SLOWLY_REVIEWED: &str = "slowly";
const SLOW: Duration = ms(200);

/// The path of a stored object that takes much memory once it is decoded.
pub(crate) const WIDE: &str = "/apis/x.io/v1/namespaces/a/widgets/wide";
/// The object: about as long as etcd lets one be.
static WIDE_OBJECT: LazyLock<Bytes> = LazyLock::new(|| {
    let list = "0,".repeat(700_000);
    let metadata = json!({"name": "wide", "namespace": "a", "resourceVersion": "1"});
    format!(
        "{{\"apiVersion\":\"x.io/v1\",\"kind\":\"Widget\",\"metadata\":{metadata},\"l\":[{list}0]}}"
    )
    .into()
});

/// The definitions of custom resources.
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/";
/// The custom resources: version, name and kind of each, and the group of all.
const CUSTOM_RESOURCES: [(&str, &str, &str); 2] =
    [("v1", "widgets", "Widget"), ("v1", "texts", "Text")];
const CUSTOM_GROUP: &str = "x.io";

/// Resources of which there is nothing.
const EMPTY: [&str; 4] = [
    "/api/v1/replicationcontrollers",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
];

/// The config maps, which policies have as params.
const CONFIG_MAPS: &str = "/api/v1/configmaps";
/// How many there are in the namespace `a`, and the entries of each. One is as large as etcd lets it be.
pub(crate) const SMALL_PARAMS: usize = 300;
const ENTRIES: usize = 100;
const LARGE: usize = 1_000_000;
static PARAMS: LazyLock<Bytes> = LazyLock::new(|| {
    let param = |name: String, data: Value| {
        json!({
            "metadata": {"name": name, "namespace": "a", "resourceVersion": "1", "labels": {"param": "true"}},
            "data": data,
        })
    };
    let mut items: Vec<_> = (0..SMALL_PARAMS)
        .map(|number| {
            let data: serde_json::Map<_, _> = (0..ENTRIES)
                .map(|entry| {
                    (
                        format!("k{entry}"),
                        json!(format!("value-{number}-{entry}")),
                    )
                })
                .collect();
            param(format!("small-{number}"), Value::Object(data))
        })
        .collect();
    items.push(param(
        "large".to_owned(),
        json!({"long": "x".repeat(LARGE)}),
    ));
    let list = json!({
        "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items,
    });
    list.to_string().into()
});

fn is_watch(target: &Uri) -> bool {
    target.query().is_some_and(|query| query.contains("watch="))
}

/// The response to a request that the gateway makes for itself, and how long it takes; `None` for every other request.
pub(crate) fn respond(target: &Uri, body: &[u8]) -> Option<(Bytes, Duration)> {
    if target.path() == WIDE {
        return Some((WIDE_OBJECT.clone(), Duration::ZERO));
    }
    if target.path() == CONFIG_MAPS && !is_watch(target) {
        return Some((PARAMS.clone(), Duration::ZERO));
    }
    let response = describe(target)?.to_string().into();
    let is_slow = target.path() == ACCESS_REVIEWS
        && String::from_utf8_lossy(body).contains(&format!("\"{SLOWLY_REVIEWED}\""));
    Some((response, if is_slow { SLOW } else { Duration::ZERO }))
}

/// What the server says of itself.
fn describe(target: &Uri) -> Option<Value> {
    let is_watch = is_watch(target);
    if let Some(name) = target.path().strip_prefix("/api/v1/namespaces/")
        && !name.contains('/')
    {
        let metadata =
            json!({"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "1"});
        return Some(json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "status": {"phase": "Active"},
        }));
    }
    if let Some(name) = target.path().strip_prefix(DEFINITIONS) {
        return definition(name);
    }
    match target.path() {
        path if EMPTY.contains(&path) && !is_watch => Some(json!({
            "kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [],
        })),
        "/api" => Some(groups(
            "",
            &[("v1", "configmaps", "ConfigMap"), ("v1", "pods", "Pod")],
        )),
        "/apis" => Some(groups(CUSTOM_GROUP, &CUSTOM_RESOURCES)),
        "/api/v1/namespaces" if !is_watch => {
            let item = |name| json!({"metadata": {"name": name, "resourceVersion": "1"}});
            Some(json!({
                "kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                "items": [item("a"), item("v")],
            }))
        }
        ACCESS_REVIEWS => Some(json!({
            "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {},
            "status": {"allowed": true},
        })),
        _ => None,
    }
}

/// The definition of a custom resource whose objects may have any members.
fn definition(name: &str) -> Option<Value> {
    let resource = name.strip_suffix(CUSTOM_GROUP)?.strip_suffix('.')?;
    let (version, plural, kind) = CUSTOM_RESOURCES
        .into_iter()
        .find(|(_, plural, _)| *plural == resource)?;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
    });
    Some(json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "1"},
        "spec": {
            "group": CUSTOM_GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [version],
        },
    }))
}

/// The resources of a group: version, name and kind of each.
fn groups(group: &str, resources: &[(&str, &str, &str)]) -> Value {
    let listed = resources.iter().map(|(version, resource, kind)| {
        json!({
            "resource": resource, "scope": "Namespaced", "singularResource": "",
            "responseKind": {"group": group, "version": version, "kind": kind},
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        })
    });
    let version = json!({"version": "v1", "resources": listed.collect::<Vec<_>>()});
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": group}, "versions": [version]}],
    })
}
