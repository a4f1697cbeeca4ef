//! Admission policies that a gateway hosts, enforced on writes to what it hosts.
//!
//! The corpus of policies (`differential`) has what they make of requests; here is what is the gateway's own.

use http::Method;
use serde_json::{Value, json};

use super::{
    Home, LEVELS, SCHEMAS, Server,
    api::{Api, JSON, MERGE},
    level, schema, until,
};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Stores a policy about flow control, and its binding.
async fn bind(api: &Api, name: &str, operations: &[&str], expression: &str, actions: &[&str]) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["flowcontrol.apiserver.k8s.io"], "apiVersions": ["v1"],
                "operations": operations, "resources": ["*/*"]}]},
            "validations": [{"expression": expression}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": actions},
    });
    api.post(POLICIES, &policy).await.object();
    api.post(BINDINGS, &binding).await.object();
}

/// Checks that both stores must pass.
pub async fn enforces_policies(server: &Server) {
    let api = server.root().await;
    let short = "size(object.metadata.name) < 5";
    bind(&api, "short-names", &["CREATE"], short, &["Deny"]).await;
    // An etcd tells a gateway of a change a moment later.
    until(async || {
        let dry = format!("{LEVELS}?dryRun=All");
        !api.post(&dry, &level("too-long", 5))
            .await
            .status
            .is_success()
    })
    .await;
    let denied = api.post(LEVELS, &level("too-long", 5)).await;
    assert_eq!(
        denied.refused(422, "Invalid"),
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io \"too-long\" is forbidden: ValidatingAdmissionPolicy \
         'short-names' with binding 'short-names' denied request: failed expression: size(object.metadata.name) < 5"
    );
    api.get(&format!("{LEVELS}/too-long"))
        .await
        .refused(404, "NotFound");
    assert_eq!(api.post(LEVELS, &level("ok", 5)).await.status, 201);
}

#[tokio::test]
async fn a_policy_is_in_force_as_soon_as_it_is_stored() {
    let home = Home::new();
    let server = home.start().await;
    enforces_policies(&server).await;
    let api = server.root().await;
    let probe = format!("{LEVELS}?dryRun=All");
    for round in 0..3 {
        let denied = api.post(&probe, &level("too-long", 5)).await;
        denied.refused(422, "Invalid");
        let binding = format!("{BINDINGS}/short-names");
        let stored = api.get(&binding).await.object();
        api.delete(&binding).await.object();
        let allowed = api.post(&probe, &level("too-long", 5)).await;
        assert_eq!(allowed.status, 201, "round {round}: {allowed:?}");
        api.post(BINDINGS, &stripped(stored)).await.object();
    }
}

/// An object as it could be created again.
fn stripped(mut object: Value) -> Value {
    object["metadata"] = json!({"name": object["metadata"]["name"]});
    object
}

#[tokio::test]
async fn the_gateways_own_writes_are_not_evaluated() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    bind(&api, "nothing", &["CREATE", "UPDATE"], "false", &["Deny"]).await;
    let refused = api.post(SCHEMAS, &schema("a", "exempt", 500, "u")).await;
    refused.refused(422, "Invalid");
    // Built-in objects and conditions are still maintained.
    server.reconciled().await;
}

#[tokio::test]
async fn a_write_is_evaluated_again_when_another_came_first() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(LEVELS, &level("a", 1)).await.object();
    let grows = "oldObject.spec.limited.nominalConcurrencyShares < object.spec.limited.nominalConcurrencyShares";
    bind(&api, "grows", &["UPDATE"], grows, &["Deny"]).await;
    // However the patches interleave, the shares only grow.
    let patches = (2..=20).map(|shares| {
        let api = api.clone();
        async move {
            let patch = json!({"spec": {"limited": {"nominalConcurrencyShares": shares}}});
            let target = format!("{LEVELS}/a");
            let response = api.call(Method::PATCH, &target, MERGE, patch.to_string());
            (shares, response.await.status.as_u16())
        }
    });
    let mut watch = api
        .watch(&format!(
            "{LEVELS}?watch=true&fieldSelector=metadata.name=a"
        ))
        .await;
    let all = futures_util::future::join_all(patches).await;
    assert!(
        all.iter().all(|(_, status)| [200, 422].contains(status)),
        "{all:?}"
    );
    let granted = all.iter().filter(|(_, status)| *status == 200).count();
    let shares = |object: &Value| object["spec"]["limited"]["nominalConcurrencyShares"].as_i64();
    let mut last = None;
    let mut seen = 0;
    while last != Some(20) {
        let (_, object) = watch.next().await.unwrap();
        assert!(shares(&object) > last, "{object}");
        last = shares(&object);
        seen += 1;
    }
    assert!(seen <= granted + 1);
}

#[tokio::test]
async fn warnings_come_with_the_response_and_change_nothing() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let expression = "object.spec.limited.nominalConcurrencyShares > 5";
    bind(
        &api,
        "many",
        &["*"],
        &format!("object == null || {expression}"),
        &["Warn", "Audit"],
    )
    .await;
    let created = api.post(LEVELS, &level("a", 1)).await;
    assert_eq!(created.status, 201);
    let warning = "299 - \"Validation failed for ValidatingAdmissionPolicy 'many' with binding 'many': failed \
                   expression: object == null || object.spec.limited.nominalConcurrencyShares > 5\"";
    assert_eq!(created.warnings(), [warning]);
    let fine = api
        .call(Method::POST, LEVELS, JSON, level("b", 9).to_string())
        .await;
    assert_eq!((fine.status.as_u16(), fine.warnings().len()), (201, 0));
    assert_eq!(api.delete(&format!("{LEVELS}/a")).await.warnings().len(), 0);
}

#[tokio::test]
async fn what_policies_find_about_hosted_objects_is_recorded_and_counted() {
    let home = Home::new();
    let audit = "admission: {audit: {file: audit.log}}\n";
    let server = Server::start(home.config_with(audit)).await;
    server.settled().await;
    let api = server.root().await;
    let short = "object == null || size(object.metadata.name) < 5";
    bind(&api, "short-names", &["*"], short, &["Deny"]).await;
    let few = "object == null || object.spec.limited.nominalConcurrencyShares < 5";
    bind(&api, "few-shares", &["*"], few, &["Warn", "Audit"]).await;
    let denied = api.post(LEVELS, &level("too-long", 1)).await;
    let id = denied.headers["audit-id"].to_str().unwrap().to_owned();
    denied.refused(422, "Invalid");
    assert_eq!(api.post(LEVELS, &level("ok", 5)).await.status, 201);
    // Nothing is to be said about this one.
    assert_eq!(api.delete(&format!("{LEVELS}/ok")).await.status, 200);
    let counted = async |policy: &str, action: &str| {
        let labels = format!(
            "enforcement_action=\"{action}\",error_type=\"invalid_error\",policy=\"{policy}\""
        );
        let name = "apiserver_validating_admission_policy_check_total";
        server.metric(name, &labels).await
    };
    // A thread of its own counts them.
    until(async || counted("few-shares", "warn").await == Some(1.0)).await;
    assert_eq!(counted("short-names", "deny").await, Some(1.0));
    // Kubernetes does not count what passes. The time of each policy is that of all three requests.
    let timed = async |policy: &str| {
        let name = "fairgate_admission_policy_duration_seconds_count";
        let labels = format!("policy=\"{policy}\"");
        server.metric(name, &labels).await
    };
    until(async || timed("few-shares").await == Some(3.0)).await;
    assert_eq!(timed("short-names").await, Some(3.0));
    assert_eq!(timed("absent").await, None);
    server.stop().await;

    let text = std::fs::read_to_string(home.path().join("audit.log")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |line: &Value| {
        json!([
            line["decision"],
            line["operation"],
            line["name"],
            line["user"],
            line["fidelity"]
        ])
    };
    assert_eq!(
        lines.iter().map(of).collect::<Vec<_>>(),
        [
            json!(["denied", "CREATE", "too-long", "root", "hosted"]),
            json!(["allowed", "CREATE", "ok", "root", "hosted"]),
        ],
        "{text}"
    );
    assert_eq!(lines[0]["auditID"], *id);
    assert_eq!(lines[0]["policies"][0]["policy"], "short-names");
    assert_eq!(lines[1]["policies"][0]["action"], "warn");
    let key = "validation.policy.admission.k8s.io/validation_failure";
    assert!(lines[1]["annotations"][key].is_string(), "{text}");
}

#[tokio::test]
async fn the_audit_id_of_a_hosted_request_is_that_of_the_gateway() {
    let server = Home::new().start().await;
    let api = server.root().await;
    // The access log has it, which takes UUIDs alone.
    let given = "01234567-89ab-4def-8123-456789abcdef";
    for (sent, is_kept) in [(given, true), ("mallory was here", false)] {
        let request = api.request(Method::GET, LEVELS).header("audit-id", sent);
        let got = api.send(request, "").await;
        let answered = got.headers["audit-id"].to_str().unwrap();
        assert_eq!(answered == sent, is_kept);
        assert_eq!(answered.len(), 36);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_policy_about_one_version_evaluates_writes_through_the_other() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    // Zero shares are kept by an annotation in v1beta3, which policies about v1 do not see.
    let expression = "request.kind.version == 'v1' && request.requestKind.version == 'v1beta3' && \
                      object.apiVersion.endsWith('/v1') && !has(object.metadata.annotations)";
    bind(&api, "shown", &["CREATE"], expression, &["Deny"]).await;
    let older = LEVELS.replace("/v1/", "/v1beta3/");
    let mut zero = level("zero", 0);
    zero["apiVersion"] = json!("flowcontrol.apiserver.k8s.io/v1beta3");
    let kept = json!({"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares": ""});
    zero["metadata"]["annotations"] = kept;
    assert_eq!(api.post(&older, &zero).await.status, 201);
    let refused = api.post(LEVELS, &level("new", 5)).await;
    refused.refused(422, "Invalid");

    // Only the requested version counts if the policy says so.
    let exact = json!({"spec": {"matchConstraints": {"matchPolicy": "Exact"},
        "validations": [{"expression": "false"}]}});
    api.merge(&format!("{POLICIES}/shown"), &exact)
        .await
        .object();
    zero["metadata"]["name"] = json!("other");
    assert_eq!(api.post(&older, &zero).await.status, 201);
    let refused = api.post(LEVELS, &level("new", 5)).await;
    refused.refused(422, "Invalid");
}
