//! Hosted admission policies: authors need the right to read the params that these refer to, and their types are checked.
//! Dave may do everything with policies and bindings, read objects named "allowed" and those in the namespace
//! "readable", and list those in "listable".

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{Client, ClientResponse, Server, TOKENS, client_of};
use crate::process::{GatewayProcess, ProcessOptions};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn gateway_before(server: &Server) -> GatewayProcess {
    let configuration = json!({
        "mode": "overlay",
        "upstream": {"url": format!("http://{}", server.upstream.as_ref().unwrap().address)},
        "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
        "admission": {"mode": "audit", "policies": {"source": "hosted"}},
    });
    let options = ProcessOptions {
        tokens: TOKENS,
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

fn policy(name: &str, param_kind: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "paramKind": param_kind,
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": "true"}],
        },
    })
}

fn binding(name: &str, param: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": "with-params", "validationActions": ["Deny"],
            "paramRef": {"name": param, "namespace": "ns", "parameterNotFoundAction": "Deny"},
        },
    })
}

/// A reference to one object; in an empty namespace: to those of all.
fn named(name: &str, namespace: &str) -> Value {
    let mut params = json!({"name": name, "parameterNotFoundAction": "Deny"});
    if !namespace.is_empty() {
        params["namespace"] = json!(namespace);
    }
    params
}

/// A reference to objects with a label.
fn selected(namespace: &str) -> Value {
    let mut params = named("", namespace);
    params.as_object_mut().unwrap().remove("name");
    params["selector"] = json!({"matchLabels": {"a": "b"}});
    params
}

async fn write(client: &mut Client, method: Method, target: &str, body: &Value) -> ClientResponse {
    let json = [("content-type", "application/json")];
    client.send(method, target, &json, body.to_string()).await
}

/// The status of a policy once its types are checked.
async fn checked_status(client: &mut Client, name: &str) -> Value {
    let target = format!("{POLICIES}/{name}");
    let checked = async {
        loop {
            let status = client.get(&target, &[]).await.json()["status"].clone();
            if status["observedGeneration"] == 1 {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(20), checked).await;
    status.expect("the policy is checked")
}

/// Waits until the gateway knows the kinds of the cluster. Until then, authors need more rights.
async fn kinds_are_known(dave: &mut Client) {
    let known = async {
        loop {
            let refused = write(dave, Method::POST, BINDINGS, &binding("none", "secret")).await;
            if !refused.message().contains("unable to resolve paramKind") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let known = tokio::time::timeout(Duration::from_secs(20), known).await;
    known.expect("the kinds of the cluster are read");
}

#[tokio::test]
async fn policies_and_bindings_need_the_right_to_read_their_params() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let (mut dave, mut root) = (
        client_of(&gateway, "dave").await,
        client_of(&gateway, "root").await,
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod"});
    let with_params = policy("with-params", &pod);
    let post = Method::POST;
    let refused = write(&mut dave, post.clone(), POLICIES, &with_params).await;
    assert_eq!(refused.status, 422);
    assert_eq!(
        refused.message(),
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"with-params\" is invalid: spec.paramKind: Forbidden: \
         user &{dave dave-uid [devs system:authenticated] map[]} must have \"get\" permission on all objects of the \
         referenced paramKind (kind=Pod, apiVersion=v1)"
    );
    let plain = policy("plain", &Value::Null);
    assert_eq!(
        write(&mut dave, post.clone(), POLICIES, &plain)
            .await
            .status,
        201
    );
    assert_eq!(
        write(&mut root, post.clone(), POLICIES, &with_params)
            .await
            .status,
        201
    );

    kinds_are_known(&mut dave).await;
    let secret = binding("secret", "secret");
    let refused = write(&mut dave, post.clone(), BINDINGS, &secret).await;
    assert_eq!(refused.status, 422);
    let message = refused.message();
    let detail = "spec.paramRef: Forbidden: user &{dave dave-uid [devs system:authenticated] map[]} does not have \
                  \"get\" permission on the object referenced by paramRef";
    assert!(message.ends_with(detail), "{message}");
    let allowed = binding("allowed", "allowed");
    assert_eq!(
        write(&mut dave, post.clone(), BINDINGS, &allowed)
            .await
            .status,
        201
    );

    // Every update of a binding with params needs the right, also one that leaves the params as they are.
    assert_eq!(write(&mut root, post, BINDINGS, &secret).await.status, 201);
    let target = format!("{BINDINGS}/secret");
    let mut changed = root.get(&target, &[]).await.json();
    changed["spec"]["validationActions"] = json!(["Warn"]);
    let put = Method::PUT;
    let refused = write(&mut dave, put.clone(), &target, &changed).await;
    assert_eq!(refused.status, 422);
    let message = refused.message();
    assert!(message.ends_with(detail), "{message}");
    let updated = write(&mut root, put.clone(), &target, &changed).await;
    assert_eq!(updated.status, 200);
    let target = format!("{BINDINGS}/allowed");
    let mut changed = root.get(&target, &[]).await.json();
    changed["spec"]["paramRef"]["name"] = json!("secret");
    assert_eq!(write(&mut dave, put, &target, &changed).await.status, 422);
}

#[tokio::test]
async fn an_update_of_a_policy_needs_the_right_only_if_the_kind_of_params_changes() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let (mut dave, mut root) = (
        client_of(&gateway, "dave").await,
        client_of(&gateway, "root").await,
    );
    let pod = json!({"apiVersion": "v1", "kind": "Pod"});
    let with_params = policy("with-params", &pod);
    let created = write(&mut root, Method::POST, POLICIES, &with_params).await;
    assert_eq!(created.status, 201);
    // Patches, because the status may be written meanwhile.
    let target = format!("{POLICIES}/with-params");
    let merge = [("content-type", "application/merge-patch+json")];
    let message =
        json!({"spec": {"validations": [{"expression": "true", "message": "no"}]}}).to_string();
    let updated = dave.send(Method::PATCH, &target, &merge, message).await;
    assert_eq!(updated.status, 200, "{}", updated.message());
    let kind = json!({"spec": {"paramKind": {"kind": "Secret"}}}).to_string();
    let refused = dave.send(Method::PATCH, &target, &merge, kind).await;
    assert_eq!(refused.status, 422, "{}", refused.message());
}

#[tokio::test]
async fn p27_authors_of_bindings_need_rights_on_what_they_select() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let (mut dave, mut root) = (
        client_of(&gateway, "dave").await,
        client_of(&gateway, "root").await,
    );
    for (name, kind) in [
        ("with-params", json!({"apiVersion": "v1", "kind": "Pod"})),
        (
            "unknown-kind",
            json!({"apiVersion": "v1", "kind": "Unheard"}),
        ),
    ] {
        let created = write(&mut root, Method::POST, POLICIES, &policy(name, &kind)).await;
        assert_eq!(created.status, 201);
    }
    kinds_are_known(&mut dave).await;
    let of_object = |verb: &str| {
        format!("does not have \"{verb}\" permission on the object referenced by paramRef")
    };
    let of_all = "does not have \"get\" permission for all groups, versions and resources";
    let cases = [
        ("with-params", named("secret", "ns"), Some(of_object("get"))),
        ("with-params", named("any", "readable"), None),
        ("with-params", named("allowed", "ns"), None),
        ("with-params", named("allowed", ""), None),
        ("with-params", named("any", ""), Some(of_object("get"))),
        ("with-params", selected("listable"), None),
        ("with-params", selected("readable"), Some(of_object("list"))),
        ("with-params", selected(""), Some(of_object("list"))),
        ("missing", named("secret", "ns"), Some(of_all.to_owned())),
        (
            "unknown-kind",
            named("secret", "ns"),
            Some(of_all.to_owned()),
        ),
        ("unknown-kind", named("any", "readable"), None),
    ];
    for (number, (policy, params, refused)) in cases.into_iter().enumerate() {
        let mut one = binding(&format!("b-{number}"), "");
        one["spec"]["policyName"] = json!(policy);
        one["spec"]["paramRef"] = params;
        let response = write(&mut dave, Method::POST, BINDINGS, &one).await;
        let Some(end) = refused else {
            assert_eq!(response.status, 201, "{number}: {}", response.message());
            continue;
        };
        assert_eq!(response.status, 422, "{number}");
        let dave = "user &{dave dave-uid [devs system:authenticated] map[]}";
        let start = match policy {
            "missing" => {
                "unable to get policy missing to determine minimum required permissions and "
            }
            "unknown-kind" => {
                "unable to resolve paramKind &{v1 Unheard} to determine minimum required permissions and "
            }
            _ => "",
        };
        let expected = format!("spec.paramRef: Forbidden: {start}{dave} {end}");
        let message = response.message();
        assert!(message.ends_with(&expected), "{number}: {message}");
    }
}

#[tokio::test]
async fn types_are_checked_against_the_kinds_of_the_cluster() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut root = client_of(&gateway, "root").await;
    let mut typed = policy("typed", &Value::Null);
    typed["spec"]["validations"] = json!([{"expression": "object.spec.replicas > 1"}]);
    assert_eq!(
        write(&mut root, Method::POST, POLICIES, &typed)
            .await
            .status,
        201
    );
    let status = checked_status(&mut root, "typed").await;
    let warning = &status["typeChecking"]["expressionWarnings"][0];
    assert_eq!(
        warning["fieldRef"], "spec.validations[0].expression",
        "{status}"
    );
    let text = warning["warning"].as_str().unwrap();
    assert!(
        text.starts_with("/v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'"),
        "{text}"
    );
}
