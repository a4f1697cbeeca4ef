//! Hosted admission policies: authors need the right to read the params that these refer to, and their types are checked.
//! Dave may do everything with policies and bindings, and read one object, "allowed".

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
        "admission": {"policies": {"source": "hosted"}},
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

async fn write(client: &mut Client, method: Method, target: &str, body: &Value) -> ClientResponse {
    let json = [("content-type", "application/json")];
    client.send(method, target, &json, body.to_string()).await
}

#[tokio::test]
async fn policies_and_bindings_need_the_right_to_read_their_params() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let (mut dave, mut root) = (
        client_of(&gateway, "dave").await,
        client_of(&gateway, "root").await,
    );
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let with_params = policy("with-params", &config_map);
    let post = Method::POST;
    let refused = write(&mut dave, post.clone(), POLICIES, &with_params).await;
    assert_eq!(refused.status, 422);
    assert_eq!(
        refused.message(),
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"with-params\" is invalid: spec.paramKind: Forbidden: \
         user &{dave dave-uid [devs system:authenticated] map[]} must have \"get\" permission on all objects of the \
         referenced paramKind (kind=ConfigMap, apiVersion=v1)"
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

    // Whoever does not change the params needs no right to read them.
    assert_eq!(write(&mut root, post, BINDINGS, &secret).await.status, 201);
    let target = format!("{BINDINGS}/secret");
    let mut changed = root.get(&target, &[]).await.json();
    changed["spec"]["validationActions"] = json!(["Warn"]);
    let put = Method::PUT;
    assert_eq!(
        write(&mut dave, put.clone(), &target, &changed)
            .await
            .status,
        200
    );
    let target = format!("{BINDINGS}/allowed");
    let mut changed = root.get(&target, &[]).await.json();
    changed["spec"]["paramRef"]["name"] = json!("secret");
    assert_eq!(write(&mut dave, put, &target, &changed).await.status, 422);
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
    let target = format!("{POLICIES}/typed");
    let checked = async {
        loop {
            let status = root.get(&target, &[]).await.json()["status"].clone();
            if status["observedGeneration"] == 1 {
                break status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(20), checked)
        .await
        .expect("the policy is checked");
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
