//! Admission policies and their bindings, as objects.

use http::Method;
use serde_json::{Value, json};

use super::{
    Home, Server,
    api::{APPLY, Api, JSON},
    format::Format,
    name, until, version,
};
use fairgate_admission::kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A policy about objects of the kind `ConfigMap`.
fn policy(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "size(object.data) < 10"}],
    });
    for (member, value) in spec.as_object().unwrap() {
        whole[member] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": whole,
    })
}

fn binding(name: &str, spec: &Value) -> Value {
    let mut whole = json!({"policyName": name, "validationActions": ["Deny"]});
    for (member, value) in spec.as_object().unwrap() {
        whole[member] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": whole,
    })
}

/// A policy once the type checker has written its status.
async fn type_checked(api: &Api, name: &str) -> Value {
    let target = format!("{POLICIES}/{name}");
    until(async || {
        let policy = api.get(&target).await.object();
        policy["status"]["observedGeneration"] == policy["metadata"]["generation"]
    })
    .await;
    api.get(&target).await.object()
}

/// Checks that both stores must pass.
pub async fn supports_policy_operations(server: &Server) {
    let api = server.root().await;
    let from = version(&api.get(POLICIES).await.object());
    let watch = format!("{POLICIES}?watch=true&resourceVersion={from}");
    let mut watch = api.watch(&watch).await;
    let target = format!("{POLICIES}/a");

    let mut sent = policy("a", &json!({}));
    sent["status"] = json!({"observedGeneration": 7});
    let created = api.post(POLICIES, &sent).await;
    assert_eq!(created.status, 201, "{created:?}");
    let created = created.object();
    assert_eq!(created["status"], json!({}));
    assert_eq!(created["metadata"]["generation"], 1);
    let defaulted = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["configmaps"], "scope": "*"}]},
        "validations": [{"expression": "size(object.data) < 10"}],
    });
    assert_eq!(created["spec"], defaulted);
    let checked = type_checked(&api, "a").await;
    assert_eq!(checked["spec"], created["spec"]);

    let mut changed = checked.clone();
    changed["spec"]["failurePolicy"] = json!("Ignore");
    let changed = api.put(&target, &changed).await.object();
    assert_eq!(changed["metadata"]["generation"], 2);
    let mut status = type_checked(&api, "a").await;
    status["spec"]["failurePolicy"] = json!("Fail");
    status["metadata"]["labels"]["b"] = json!("c");
    let written = json!({"observedGeneration": 2, "typeChecking": {
        "expressionWarnings": [{"fieldRef": "spec.validations[0].expression", "warning": "w"}]}});
    status["status"] = written.clone();
    let status = api.put(&format!("{target}/status"), &status).await.object();
    assert_eq!(status["status"], written);
    assert_eq!(status["spec"], changed["spec"]);
    assert_eq!(status["metadata"]["labels"], changed["metadata"]["labels"]);

    let bound = api
        .post(BINDINGS, &binding("a", &json!({"matchResources": {}})))
        .await;
    assert_eq!(bound.status, 201, "{bound:?}");
    let bound = bound.object();
    assert!(bound.get("status").is_none());
    let matches =
        json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}});
    assert_eq!(bound["spec"]["matchResources"], matches);
    let listed = api.get(BINDINGS).await.object();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(name(&listed["items"][0]), "a");
    let none = api.get(&format!("{BINDINGS}/a/status")).await;
    assert_eq!(none.status, 404, "{none:?}");

    assert_eq!(api.delete(&format!("{BINDINGS}/a")).await.status, 200);
    let deleted = api.delete(&format!("{POLICIES}?labelSelector=app=a")).await;
    assert_eq!(deleted.object()["items"].as_array().map(Vec::len), Some(1));
    api.get(&target).await.refused(404, "NotFound");
    // Twice the type checker wrote.
    for expected in [
        "ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED",
    ] {
        let (ty, object) = watch.next().await.unwrap();
        assert_eq!((ty.as_str(), name(&object)), (expected, "a"));
    }
}

#[tokio::test]
async fn policies_and_bindings_are_stored_with_their_defaults() {
    let home = Home::new();
    supports_policy_operations(&home.start().await).await;
}

#[tokio::test]
async fn the_type_checker_writes_the_status() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let rules = json!({"resourceRules": [{"apiGroups": ["flowcontrol.apiserver.k8s.io"], "apiVersions": ["v1"],
        "operations": ["CREATE"], "resources": ["flowschemas"]}]});
    let spec = json!({"matchConstraints": rules, "validations": [
        {"expression": "object.spec.matchingPrecedence > 1"}, {"expression": "object.spec.nope == 1"}]});
    api.post(POLICIES, &policy("a", &spec)).await.object();
    let warned = type_checked(&api, "a").await;
    let warning = json!({
        "fieldRef": "spec.validations[1].expression",
        "warning": "flowcontrol.apiserver.k8s.io/v1, Kind=FlowSchema: ERROR: <input>:1:12: undefined field 'nope'\n \
            | object.spec.nope == 1\n | ...........^\n",
    });
    let expected =
        json!({"observedGeneration": 1, "typeChecking": {"expressionWarnings": [warning]}});
    assert_eq!(warned["status"], expected);
    let managers = warned["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|entry| {
        entry["manager"] == "validatingadmissionpolicy-status" && entry["subresource"] == "status"
    }));

    // An apply that removes all warnings removes what was around them, as in kube-apiserver.
    let fixed =
        json!({"spec": {"validations": [{"expression": "object.spec.matchingPrecedence > 1"}]}});
    let target = format!("{POLICIES}/a");
    api.merge(&target, &fixed).await.object();
    let checked = type_checked(&api, "a").await;
    assert_eq!(checked["status"], json!({"observedGeneration": 2}));
    // Other changes are not checked again.
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    let labelled = api.merge(&target, &labels).await.object();
    // Without mistakes the result is empty.
    api.post(POLICIES, &policy("b", &json!({}))).await.object();
    let checked = type_checked(&api, "b").await;
    let expected = json!({"observedGeneration": 1, "typeChecking": {}});
    assert_eq!(checked["status"], expected);
    let stored = api.get(&target).await.object();
    assert_eq!(version(&stored), version(&labelled));
}

#[tokio::test]
async fn an_update_needs_a_version_and_a_policy_need_not_exist_for_a_binding() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let absent = format!("{POLICIES}/a");
    let response = api.put(&absent, &policy("a", &json!({}))).await;
    response.refused(404, "NotFound");
    api.post(POLICIES, &policy("a", &json!({}))).await.object();
    api.post(BINDINGS, &binding("b", &json!({}))).await.object();
    for (target, object, text) in [
        (
            absent,
            policy("a", &json!({})),
            "validatingadmissionpolicies.admissionregistration.k8s.io \"a\" is invalid: \
             metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        ),
        (
            format!("{BINDINGS}/b"),
            binding("b", &json!({})),
            "validatingadmissionpolicybindings.admissionregistration.k8s.io \"b\" is invalid: \
             metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        ),
    ] {
        let response = api.put(&target, &object).await;
        assert_eq!(response.refused(422, "Invalid"), text);
    }
}

#[tokio::test]
async fn errors_in_expressions_and_fields_are_reported_together() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let wrong = json!({
        "failurePolicy": "Never",
        "validations": [{"expression": "object.x +"}, {"expression": "1"}],
    });
    let response = api.post(POLICIES, &policy("Odd", &wrong)).await;
    response.refused(422, "Invalid");
    let status = response.json();
    let causes = status["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes
        .iter()
        .map(|cause| cause["field"].as_str().unwrap())
        .collect();
    let expected = [
        "metadata.name",
        "spec.failurePolicy",
        "spec.validations[0].expression",
        "spec.validations[1].expression",
    ];
    assert_eq!(fields, expected);
    let syntax = causes[2]["message"].as_str().unwrap();
    assert!(
        syntax.contains("compilation failed: ERROR: <input>:1:11:"),
        "{syntax}"
    );
    let result = causes[3]["message"].as_str().unwrap();
    assert_eq!(
        result,
        "Invalid value: \"1\": must evaluate to bool but got int"
    );

    let wrong = json!({"policyName": "", "validationActions": ["Deny", "Warn"]});
    let response = api.post(BINDINGS, &binding("b", &wrong)).await;
    response.refused(422, "Invalid");
    let status = response.json();
    let fields: Vec<&Value> = status["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .collect();
    assert_eq!(fields[0]["field"], "spec.policyName");
    assert_eq!(fields[1]["field"], "spec.validationActions");
}

#[tokio::test]
async fn a_name_for_policies_in_files_is_warned_about() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let warning = "299 - \"metadata.name: names ending with \\\".static.k8s.io\\\" are reserved for static \
                   manifest-based configurations and cannot be managed via the API\"";
    for (target, object) in [
        (POLICIES, policy("a.static.k8s.io", &json!({}))),
        (BINDINGS, binding("a.static.k8s.io", &json!({}))),
    ] {
        let response = api.post(target, &object).await;
        assert_eq!(response.status, 201);
        assert_eq!(response.warnings(), [warning]);
    }
}

#[tokio::test]
async fn conditions_and_variables_are_merged_by_name() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let spec = json!({
        "matchConditions": [{"name": "one", "expression": "true"}, {"name": "two", "expression": "true"}],
        "variables": [{"name": "x", "expression": "1"}],
    });
    api.post(POLICIES, &policy("a", &spec)).await.object();
    let patch = json!({"spec": {
        "matchConditions": [{"name": "two", "expression": "false"}],
        "variables": [{"name": "y", "expression": "2"}]}});
    let target = format!("{POLICIES}/a");
    let patched = api
        .call(Method::PATCH, &target, STRATEGIC, patch.to_string())
        .await
        .object();
    let merged =
        json!([{"name": "one", "expression": "true"}, {"name": "two", "expression": "false"}]);
    assert_eq!(patched["spec"]["matchConditions"], merged);
    let names = |object: &Value| -> Vec<Value> {
        let variables = object["spec"]["variables"].as_array().unwrap();
        variables.iter().map(|one| one["name"].clone()).collect()
    };
    let mut both = names(&patched);
    both.sort_by_key(ToString::to_string);
    assert_eq!(both, [json!("x"), json!("y")]);

    // Each applier owns its own items.
    let apply = async |manager: &str, spec: &Value| {
        let mut object = policy("applied", &json!({}));
        object["metadata"] = json!({"name": "applied"});
        object["spec"] = spec.clone();
        let target = format!("{POLICIES}/applied?fieldManager={manager}");
        api.call(Method::PATCH, &target, APPLY, object.to_string())
            .await
    };
    let whole = policy(
        "a",
        &json!({"variables": [{"name": "x", "expression": "1"}]}),
    )["spec"]
        .clone();
    assert_eq!(apply("one", &whole).await.status, 201);
    let more = json!({"variables": [{"name": "z", "expression": "2"}]});
    let applied = apply("two", &more).await.object();
    assert_eq!(names(&applied), [json!("x"), json!("z")]);
    let conflict = json!({"variables": [{"name": "x", "expression": "3"}]});
    let response = apply("two", &conflict).await;
    let message = response.refused(409, "Conflict");
    assert!(message.contains(".spec.variables[name=\"x\"]"), "{message}");
    let without = apply("two", &json!({})).await.object();
    assert_eq!(names(&without), [json!("x")]);
}

#[tokio::test]
async fn policies_and_bindings_are_shown_as_tables_and_in_protobuf() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    api.post(POLICIES, &policy("a", &json!({}))).await.object();
    api.post(POLICIES, &policy("b", &spec)).await.object();
    let param = json!({"paramRef": {"name": "n", "parameterNotFoundAction": "Deny"}});
    api.post(BINDINGS, &binding("a", &param)).await.object();
    let table = async |path: &str| {
        let request = api.request(Method::GET, path).header("accept", TABLE);
        api.send(request, "").await.object()
    };
    let columns = |table: &Value| -> Vec<String> {
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        columns
            .map(|column| column["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let policies = table(POLICIES).await;
    assert_eq!(
        columns(&policies),
        ["Name", "Validations", "ParamKind", "Age"]
    );
    let cells =
        |table: &Value, row: usize| table["rows"][row]["cells"].as_array().unwrap()[..3].to_vec();
    assert_eq!(
        cells(&policies, 0),
        [json!("a"), json!(1), json!("<unset>")]
    );
    assert_eq!(
        cells(&policies, 1),
        [json!("b"), json!(1), json!("v1/ConfigMap")]
    );
    let bindings = table(BINDINGS).await;
    assert_eq!(
        columns(&bindings),
        ["Name", "PolicyName", "ParamRef", "Age"]
    );
    assert_eq!(cells(&bindings, 0), [json!("a"), json!("a"), json!("*/n")]);

    for (kind, path, object) in [
        (&VALIDATING_ADMISSION_POLICY, POLICIES, policy("c", &spec)),
        (
            &VALIDATING_ADMISSION_POLICY_BINDING,
            BINDINGS,
            binding("c", &param),
        ),
    ] {
        let body = Format::Protobuf.write(kind.stored(), &object);
        let protobuf = Format::Protobuf.media_type();
        let response = api.call(Method::POST, path, protobuf, body).await;
        assert_eq!(response.status, 201, "{response:?}");
        let read = api.get(&format!("{path}/c")).await.object();
        for (member, value) in object["spec"].as_object().unwrap() {
            if member != "matchConstraints" {
                assert_eq!(read["spec"][member], *value);
            }
        }
    }
}

#[tokio::test]
async fn discovery_and_openapi_have_policies() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let list = api.get(GROUP).await.object();
    let names: Vec<&str> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    let expected = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicies/status",
        "validatingadmissionpolicybindings",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        list["resources"][0]["categories"],
        json!(["api-extensions"])
    );
    assert_eq!(list["resources"][0]["namespaced"], false);
    let v3 = api.get(&format!("/openapi/v3{GROUP}")).await.object();
    let path = format!("{POLICIES}/{{name}}/status");
    let id = &v3["paths"][&path]["patch"]["operationId"];
    assert_eq!(
        id,
        "patchAdmissionregistrationV1ValidatingAdmissionPolicyStatus"
    );
    let spec = &v3["components"]["schemas"]["io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec"];
    assert_eq!(
        spec["properties"]["variables"]["x-kubernetes-list-map-keys"],
        json!(["name"])
    );
}

#[tokio::test]
async fn readers_read_policies_and_only_masters_write_them() {
    let home = Home::new();
    let server = home.start().await;
    let reader = server.as_user("reader").await;
    assert_eq!(reader.get(POLICIES).await.status, 200);
    assert_eq!(reader.get(BINDINGS).await.status, 200);
    let response = reader.call(
        Method::POST,
        POLICIES,
        JSON,
        policy("a", &json!({})).to_string(),
    );
    response.await.refused(403, "Forbidden");
    let alice = server.as_user("alice").await;
    alice.get(POLICIES).await.refused(403, "Forbidden");
}
