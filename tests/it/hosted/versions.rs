//! One object in two versions, where these differ in more than their names: the annotation that says how to read
//! v1beta3, and documents of another version than the path. A real server of the last release with v1beta3 responds
//! in the same way; see `tests/cluster/v1beta3`.

use http::Method;
use serde_json::{Value, json};

use super::{Home, LEVELS, api::JSON, level};

const OLD_LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1beta3/prioritylevelconfigurations";
const OLD_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1beta3";
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// A level in v1beta3 with the annotation that says that zero shares are intended.
fn meant(name: &str, shares: u32) -> Value {
    let mut level = level(name, shares);
    level["apiVersion"] = json!(OLD_VERSION);
    level["metadata"]["annotations"] = json!({PRESERVE_ZERO: ""});
    level
}

fn shares(level: &Value) -> &Value {
    &level["spec"]["limited"]["nominalConcurrencyShares"]
}

#[tokio::test]
async fn a_consumed_annotation_has_no_owner() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let owned = |level: &Value| level["metadata"]["managedFields"].to_string();

    let made = api.post(OLD_LEVELS, &meant("some", 5)).await.object();
    assert!(!owned(&made).contains(PRESERVE_ZERO), "{made}");
    let item = format!("{OLD_LEVELS}/some");
    let put = api.put(&item, &meant("some", 6)).await.object();
    assert_eq!(shares(&put), 6);
    assert!(!owned(&put).contains(PRESERVE_ZERO), "{put}");
    let patch = json!({"metadata": {"annotations": {PRESERVE_ZERO: ""}}});
    let patched = api.merge(&item, &patch).await.object();
    assert!(!owned(&patched).contains(PRESERVE_ZERO), "{patched}");

    // Where the annotation is kept, it has an owner.
    let none = api.post(OLD_LEVELS, &meant("none", 0)).await.object();
    assert_eq!(shares(&none), 0);
    assert!(owned(&none).contains(PRESERVE_ZERO), "{none}");
}

#[tokio::test]
async fn the_annotation_of_zero_shares_is_shown_only_with_the_whole_object() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(LEVELS, &level("none", 0)).await.object();
    let shown = async |query: &str, accept: &str| {
        let target = format!("{OLD_LEVELS}/none{query}");
        let request = api.request(Method::GET, &target).header("accept", accept);
        api.send(request, "").await.object()
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";

    let whole = shown("", JSON).await;
    assert_eq!(whole["metadata"]["annotations"], json!({PRESERVE_ZERO: ""}));
    let row = shown("?includeObject=Object", table).await["rows"][0]["object"].take();
    assert_eq!(row["metadata"]["annotations"], json!({PRESERVE_ZERO: ""}));

    let metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let alone = shown("", metadata).await;
    assert_eq!(alone["metadata"]["annotations"], Value::Null);
    let row = shown("", table).await["rows"][0]["object"].take();
    assert_eq!(row["metadata"]["annotations"], Value::Null);
}

#[tokio::test]
async fn a_patch_may_make_a_document_of_another_version() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(LEVELS, &level("some", 5)).await.object();

    // The rest is read in that version, in which zero shares and absent ones are the same.
    let mut patch = json!({"apiVersion": OLD_VERSION});
    patch["spec"]["limited"]["nominalConcurrencyShares"] = json!(0);
    let patched = api.merge(&format!("{LEVELS}/some"), &patch).await.object();
    assert_eq!(patched["apiVersion"], "flowcontrol.apiserver.k8s.io/v1");
    assert_eq!(shares(&patched), 30);

    patch["apiVersion"] = json!("flowcontrol.apiserver.k8s.io/v1");
    let item = format!("{OLD_LEVELS}/some");
    let patched = api.merge(&item, &patch).await.object();
    assert_eq!(patched["apiVersion"], OLD_VERSION);
    assert_eq!(shares(&patched), 0);

    patch["apiVersion"] = json!("flowcontrol.apiserver.k8s.io/v9");
    let why = api.merge(&item, &patch).await.refused(422, "Invalid");
    assert!(why.contains("no kind"), "{why}");
}

#[tokio::test]
async fn a_deprecated_version_gets_a_warning_only_if_a_route_matches() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let asked = async |accept: &str| {
        let request = api
            .request(Method::GET, OLD_LEVELS)
            .header("accept", accept);
        api.send(request, "").await
    };

    // The first media type matches no route. The second matches one, but asks for a form that does not exist.
    let unrouted = asked("text/html").await;
    unrouted.refused(406, "NotAcceptable");
    assert!(unrouted.warnings().is_empty(), "{unrouted:?}");
    let routed = asked("application/json;as=Nope;v=v1;g=meta.k8s.io").await;
    routed.refused(406, "NotAcceptable");
    assert_eq!(routed.warnings().len(), 1, "{routed:?}");

    let target = format!("{OLD_LEVELS}/exempt");
    let unrouted = api.call(Method::PATCH, &target, JSON, "{}").await;
    unrouted.refused(415, "UnsupportedMediaType");
    assert!(unrouted.warnings().is_empty(), "{unrouted:?}");
}
