//! Objects and options that can be read but are not allowed.

use http::Method;
use serde_json::{Value, json};

use super::super::{
    Home, LEVELS, SCHEMAS,
    api::{APPLY, JSON, MERGE},
    level, schema,
};

#[tokio::test]
async fn unknown_fields_are_treated_as_the_parameter_field_validation_says() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let mut object = schema("fields", "exempt", 9, "x");
    object["spec"]["wings"] = json!(2);
    object["spec"]["rules"][0]["subjects"][0]["beak"] = json!(true);
    let mut text = object.to_string();
    text.insert_str(1, "\"kind\":\"FlowSchema\",");
    let problems = [
        "duplicate field \"kind\"",
        "unknown field \"spec.rules[0].subjects[0].beak\"",
        "unknown field \"spec.wings\"",
    ];
    let target = |mode: &str| format!("{SCHEMAS}?dryRun=All{mode}");
    let post = async |mode: &str| {
        let target = target(mode);
        api.call(Method::POST, &target, JSON, text.clone()).await
    };
    for mode in ["", "&fieldValidation=Warn"] {
        let response = post(mode).await;
        let object = response.object();
        assert!(object["spec"].get("wings").is_none());
        let mut warnings = response.warnings();
        warnings.sort_unstable();
        let expected = problems.map(|problem| {
            let escaped = problem.replace('"', "\\\"");
            format!("299 - \"{escaped}\"")
        });
        assert_eq!(warnings, expected, "{mode}");
    }
    let response = post("&fieldValidation=Ignore").await;
    response.object();
    assert_eq!(response.warnings(), [""; 0]);
    let response = post("&fieldValidation=Strict").await;
    let message = response.refused(400, "BadRequest");
    assert!(message.contains("strict decoding error: "), "{message}");
    for problem in problems {
        assert!(message.contains(problem), "{message}");
    }
    let response = post("&fieldValidation=Loose").await;
    response.refused(422, "Invalid");

    // Server-side apply refuses unknown fields in any mode.
    object["metadata"]["name"] = json!("applied");
    for mode in ["Ignore", "Warn", "Strict"] {
        let target = format!("{SCHEMAS}/applied?fieldManager=me&fieldValidation={mode}");
        let response = api
            .call(Method::PATCH, &target, APPLY, object.to_string())
            .await;
        assert!(
            response.json()["message"]
                .as_str()
                .unwrap()
                .contains("field not declared in schema")
        );
    }
    let patch = json!({"spec": {"wings": 2}}).to_string();
    let target = format!("{SCHEMAS}/probes?dryRun=All&fieldValidation=Strict");
    let response = api.call(Method::PATCH, &target, MERGE, patch).await;
    let message = response.refused(422, "Invalid");
    assert!(
        message.contains("unknown field \"spec.wings\""),
        "{message}"
    );
}

#[tokio::test]
async fn a_new_object_must_not_have_a_resource_version() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let mut object = level("versioned", 1);
    object["metadata"]["resourceVersion"] = json!("5");
    let message = api.post(LEVELS, &object).await.refused(500, "");
    assert_eq!(
        message,
        "resourceVersion should not be set on objects to be created"
    );
    let target = format!("{LEVELS}?dryRun=All");
    let dry_run = api.post(&target, &object).await;
    assert_eq!(dry_run.status, 201);
    assert_eq!(dry_run.object()["metadata"]["resourceVersion"], "5");
    object["metadata"]["resourceVersion"] = json!("0");
    assert_eq!(api.post(LEVELS, &object).await.status, 201);
}

#[tokio::test]
async fn finalizers_need_a_qualified_or_a_standard_name() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let text = "name is neither a standard finalizer name nor is it fully qualified";
    for (finalizers, refused) in [
        (json!(["x"]), Some(0)),
        (json!(["x/y", "z"]), Some(1)),
        (json!(["x/y", "kubernetes", "orphan"]), None),
    ] {
        let mut object = level("final", 1);
        object["metadata"]["finalizers"] = finalizers.clone();
        let target = format!("{LEVELS}?dryRun=All");
        let created = api.post(&target, &object).await;
        let patch = json!({"metadata": {"finalizers": finalizers}});
        let target = format!("{LEVELS}/workload-low?dryRun=All");
        for response in [created, api.merge(&target, &patch).await] {
            match refused {
                None => drop(response.object()),
                Some(index) => {
                    let message = response.refused(422, "Invalid");
                    let expected = format!("metadata.finalizers[{index}]: Invalid value: ");
                    assert!(message.contains(&expected), "{message}");
                    assert!(message.ends_with(text), "{message}");
                }
            }
        }
    }
}

#[tokio::test]
async fn delete_options_that_make_no_sense_are_refused() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{LEVELS}/kept");
    let object = api.post(LEVELS, &level("kept", 1)).await.object();
    let delete = async |query: &str, body: Value| {
        let target = format!("{target}{query}");
        api.call(Method::DELETE, &target, JSON, body.to_string())
            .await
    };
    let other = json!({"preconditions": {"uid": "other"}});
    let message = delete("", other).await.refused(409, "Conflict");
    assert!(
        message.contains("the UID in the precondition (other)"),
        "{message}"
    );
    let other = json!({"preconditions": {"resourceVersion": "1"}});
    let message = delete("", other).await.refused(409, "Conflict");
    assert!(
        message.contains("the ResourceVersion in the precondition (1)"),
        "{message}"
    );
    let both = json!({"orphanDependents": true, "propagationPolicy": "Orphan"});
    delete("", both).await.refused(422, "Invalid");
    delete("", json!({"propagationPolicy": "Sideways"}))
        .await
        .refused(422, "Invalid");
    delete("", json!({"dryRun": ["Some"]}))
        .await
        .refused(422, "Invalid");
    delete("", json!({"gracePeriodSeconds": "x"}))
        .await
        .refused(400, "BadRequest");
    delete("", json!([])).await.refused(400, "BadRequest");
    delete("", json!({"kind": "Pod", "apiVersion": "v1"}))
        .await
        .refused(400, "BadRequest");
    let dry = delete("", json!({"dryRun": ["All"]})).await.object();
    assert_eq!(dry["status"], "Success");
    assert_eq!(api.get(&target).await.object(), object);
}

/// A schema whose owned fields nest so deep, as a client may send them.
fn with_deep_owners(name: &str, levels: usize) -> String {
    let object = schema(name, "exempt", 9, "x").to_string();
    let fields = format!("{}{{}}{}", "{\"f:a\":".repeat(levels), "}".repeat(levels));
    let owner = json!({
        "manager": "me", "operation": "Update", "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "fieldsType": "FieldsV1",
        "time": "2026-01-01T00:00:00Z",
    });
    let owner = owner
        .to_string()
        .replacen('{', &format!("{{\"fieldsV1\":{fields},"), 1);
    object.replacen(
        "\"metadata\":{",
        &format!("\"metadata\":{{\"managedFields\":[{owner}],"),
        1,
    )
}

#[tokio::test]
async fn what_is_stored_can_be_read_however_deep_its_owners_are() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for levels in [90, 99, 100, 120, 130, 5_000, 9_000] {
        let name = format!("deep-{levels}");
        let body = with_deep_owners(&name, levels);
        let posted = api.call(Method::POST, SCHEMAS, JSON, body).await;
        assert_eq!(posted.status, 201, "{levels}");
        let target = format!("{SCHEMAS}/{name}");
        assert_eq!(api.get(&target).await.object()["metadata"]["name"], *name);
        let list = api.get(SCHEMAS).await;
        assert_eq!(list.status, 200, "{levels}");
        assert_eq!(api.delete(&target).await.status, 200, "{levels}");
    }
}

#[tokio::test]
async fn a_small_body_has_no_large_answer_however_deep_and_pretty_it_is() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let body = with_deep_owners("pretty", 9_000);
    let target = format!("{SCHEMAS}?dryRun=All&pretty=true");
    let posted = api.call(Method::POST, &target, JSON, body.clone()).await;
    let length = posted.text().len();
    assert!(length < 4 * body.len(), "{length} bytes");

    let fields = format!("{}{}", "[".repeat(9_000), "]".repeat(9_000));
    let review = format!(
        r#"{{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{{"managedFields":[{{"fieldsV1":{fields}}}]}},"spec":{{"nonResourceAttributes":{{"path":"/","verb":"get"}}}}}}"#
    );
    let target = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?pretty=true";
    let answered = api.call(Method::POST, target, JSON, review.clone()).await;
    assert_eq!(answered.status, 201);
    let length = answered.text().len();
    assert!(length < review.len(), "{length} bytes");
}
