//! The schemas of kinds that policies are about, from the `OpenAPI` documents of the upstream.

use fairgate_admission::expression_warnings;

use super::*;
use crate::KindSchemas;

const INDEX: &str = "/openapi/v3";
const DOCUMENT: &str = "/openapi/v3/apis/x.io/v1";

/// Defines the resource `limits`.
fn serve(api: &StandIn, is_served: bool) {
    let resources = json!([{"resource": "limits", "scope": "Cluster",
        "responseKind": {"group": "x.io", "version": "v1", "kind": "Limit"}}]);
    let group = json!({"metadata": {"name": "x.io"}, "versions": [{"version": "v1", "resources": resources}]});
    let items = if is_served { json!([group]) } else { json!([]) };
    api.document(
        "/apis",
        json!({"kind": "APIGroupDiscoveryList", "items": items}),
    );
}

/// Publishes the schema of the kind, whose `spec` has this field.
fn publish(api: &StandIn, field: &str, hash: &str) {
    let schema = json!({"type": "object",
        "x-kubernetes-group-version-kind": [{"group": "x.io", "version": "v1", "kind": "Limit"}],
        "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}}});
    api.document(
        DOCUMENT,
        json!({"components": {"schemas": {"limit": schema}}}),
    );
    index(api, &format!("{DOCUMENT}?hash={hash}"));
}

fn index(api: &StandIn, url: &str) {
    api.document(
        INDEX,
        json!({"paths": {"apis/x.io/v1": {"serverRelativeURL": url}}}),
    );
}

fn start() -> (StandIn, TestUpstream, KindSchemas, Arc<FollowedCluster>) {
    let (api, upstream) = usual();
    let state = follow_at(&upstream, Clock::system());
    let schemas = state.kind_schemas(Vec::new());
    (api, upstream, schemas, state)
}

fn policy_about(resource: &str, expression: &str) -> Value {
    json!({"spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["x.io"], "apiVersions": ["v1"], "resources": [resource]}]},
        "validations": [{"expression": expression}]}})
}

/// The number of warnings, or why they are not known.
fn check(schemas: &KindSchemas, policy: &Value) -> Result<usize, String> {
    let kinds = schemas.kinds_of(policy)?.kinds;
    Ok(expression_warnings(policy, &*kinds).len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_of_a_custom_resource_is_read_and_followed() {
    let (api, _upstream, schemas, _state) = start();
    serve(&api, true);
    publish(&api, "size", "1");
    let policy = policy_about("limits", "object.spec.size > 1");
    until("the schema is known", || check(&schemas, &policy) == Ok(0)).await;
    let before = schemas.kinds_of(&policy).unwrap().version;
    let changes = schemas.changes();
    // Nothing is said before it is known that the document has changed.
    publish(&api, "length", "2");
    until("the change is noticed", || {
        check(&schemas, &policy) == Ok(1)
    })
    .await;
    assert!(changes.has_changed().unwrap());
    assert_ne!(schemas.kinds_of(&policy).unwrap().version, before);
    // The resource is gone: as in a server, nothing is checked.
    serve(&api, false);
    until("the resource is gone", || check(&schemas, &policy) == Ok(0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_known_of_a_resource_until_its_schema_is() {
    let (api, _upstream, schemas, state) = start();
    serve(&api, true);
    let policy = policy_about("limits", "object.spec.size > 1");
    until("the resources are known", || state.are_resources_known()).await;
    until("the upstream is asked", || {
        let why = check(&schemas, &policy).unwrap_err();
        why.contains("/openapi/v3: the upstream answered 404")
    })
    .await;
    publish(&api, "length", "1");
    until("the schema is known", || check(&schemas, &policy) == Ok(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_cannot_be_read_says_nothing() {
    let (api, _upstream, schemas, state) = start();
    serve(&api, true);
    index(&api, &format!("{DOCUMENT}?hash=1"));
    api.document(DOCUMENT, json!("this is none"));
    until("the resources are known", || state.are_resources_known()).await;
    let policy = policy_about("limits", "object.spec.size > 1");
    until("it is read", || {
        let why = check(&schemas, &policy).unwrap_err();
        why.contains("the OpenAPI document is malformed")
    })
    .await;
    publish(&api, "length", "2");
    until("the schema is known", || check(&schemas, &policy) == Ok(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_upstream_does_not_have_is_not_checked() {
    let (api, _upstream, schemas, state) = start();
    serve(&api, true);
    publish(&api, "size", "1");
    until("the resources are known", || state.are_resources_known()).await;
    let nothing = policy_about("others", "object.");
    assert_eq!(check(&schemas, &nothing), Ok(0));
    // Params of a kind that does not exist have any type, once that is known.
    let mut params = policy_about("others", "true");
    params["spec"]["paramKind"] = json!({"apiVersion": "y.io/v1", "kind": "Other"});
    until("the index is known", || check(&schemas, &params) == Ok(0)).await;
    // Built-in kinds need no document, and never change.
    let mut maps = policy_about("configmaps", "object.spec.size > 1");
    maps["spec"]["matchConstraints"]["resourceRules"][0]["apiGroups"] = json!([""]);
    assert_eq!(check(&schemas, &maps), Ok(1));
    assert_eq!(schemas.kinds_of(&maps).unwrap().version, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_without_a_schema_is_not_checked_after_a_while() {
    let (api, _upstream, schemas, state) = start();
    serve(&api, true);
    api.document(INDEX, json!({"paths": {}}));
    until("the resources are known", || state.are_resources_known()).await;
    let policy = policy_about("limits", "object.spec.size > 1");
    assert!(check(&schemas, &policy).is_err());
    until("it is given up", || check(&schemas, &policy) == Ok(0)).await;
    publish(&api, "length", "1");
    until("the schema is known", || check(&schemas, &policy) == Ok(1)).await;
}
