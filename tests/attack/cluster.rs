//! What the fake upstream tells the gateway of itself: which resources it has, which namespaces, and who may do what.

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

/// The response to a request that the gateway makes for itself, and how long it takes; `None` for every other request.
pub(crate) fn respond(target: &Uri, body: &[u8]) -> Option<(Bytes, Duration)> {
    if target.path() == WIDE {
        return Some((WIDE_OBJECT.clone(), Duration::ZERO));
    }
    let response = describe(target)?.to_string().into();
    let is_slow = target.path() == ACCESS_REVIEWS
        && String::from_utf8_lossy(body).contains(&format!("\"{SLOWLY_REVIEWED}\""));
    Some((response, if is_slow { SLOW } else { Duration::ZERO }))
}

/// What the server says of itself.
fn describe(target: &Uri) -> Option<Value> {
    let is_watch = target.query().is_some_and(|query| query.contains("watch="));
    match target.path() {
        "/api" => Some(groups(
            "",
            &[("v1", "configmaps", "ConfigMap"), ("v1", "pods", "Pod")],
        )),
        "/apis" => Some(groups(
            "x.io",
            &[("v1", "widgets", "Widget"), ("v1", "texts", "Text")],
        )),
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
