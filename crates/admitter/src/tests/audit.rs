//! Audit mode, and policies that are not known yet.

use std::sync::Arc;

use fairgate_admission::{AdmissionDecision, AdmissionMode, AdmissionRecord, audit::AuditEntry};
use serde_json::{Value, json};

use super::world::{World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";

/// Waits for a record.
async fn recorded(world: &World, number: usize) -> AdmissionRecord {
    world.records.at_least(number).await;
    world.records.all().pop().unwrap()
}

#[test]
fn in_audit_mode_requests_are_forwarded_and_the_verdict_is_recorded() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        let mut one = policy("p", " configmaps", "object.data.a == 'x'");
        one["actions"] = json!(["Deny", "Audit"]);
        one["fidelity"] = json!("dryRun");
        world.enforce(&[one]);
        let body = json!({"metadata": {"name": "m"}, "data": {"a": "y"}});
        let got = world.json("POST", MAPS, &body).await;
        assert_eq!((got.code, got.warnings()), (200, vec![]));
        assert_eq!(world.targets(), [format!("POST {MAPS}")]);
        let record = recorded(&world, 1).await;
        assert_eq!(record.decision, AdmissionDecision::Denied);
        assert_eq!(
            record.annotations[0].0,
            "validation.policy.admission.k8s.io/validation_failure"
        );
        assert_eq!(record.request.name, "m");
    });
}

#[test]
fn a_record_names_the_policies_that_may_quote_a_secret() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        let mut secret = policy("secret", " configmaps", "false");
        secret["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "Secret"});
        secret["spec"]["validations"][0]["messageExpression"] = json!("params.data.key");
        secret["paramRef"] = json!({"name": "keys", "parameterNotFoundAction": "Deny"});
        let plain = policy("plain", " configmaps", "false");
        world.enforce(&[secret, plain]);
        let metadata = json!({"namespace": "ns", "name": "keys"});
        let param = json!({"metadata": metadata, "data": {"key": "topsecret"}});
        world.cluster.params.lock().unwrap().push(param);
        let body = json!({"metadata": {"name": "m"}});
        assert_eq!(world.json("POST", MAPS, &body).await.code, 200);
        let record = recorded(&world, 1).await;
        assert_eq!(record.secret_params, ["secret"]);
        assert!(record.may_quote_a_secret(Some("secret")) && record.may_quote_a_secret(None));
        assert!(!record.may_quote_a_secret(Some("plain")));
        let entry = AuditEntry::of(record, String::new()).unwrap();
        let line = String::from_utf8(entry.line()).unwrap();
        assert!(!line.contains("topsecret"), "{line}");
        assert_eq!(entry.policies.len(), 2, "{line}");
    });
}

#[test]
fn in_audit_mode_an_update_is_judged_by_what_was_stored_before_it() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "oldObject.data.a == object.data.a",
        )]);
        let path = format!("{MAPS}/m");
        world.store(
            &path,
            json!({"metadata": {"name": "m"}, "data": {"a": "1"}}),
        );
        world.inside.answers_after.set(1);
        let body = json!({"metadata": {"name": "m"}, "data": {"a": "2"}});
        assert_eq!(world.json("PUT", &path, &body).await.code, 200);
        assert_eq!(
            recorded(&world, 1).await.decision,
            AdmissionDecision::Denied
        );
        // The upstream is faster than the read of the object.
        world.inside.answers_after.set(0);
        let held = world.reading.lock().await;
        assert_eq!(world.json("PUT", &path, &body).await.code, 200);
        drop(held);
        let record = recorded(&world, 2).await;
        assert_eq!(
            record.decision,
            AdmissionDecision::NotJudged,
            "{}",
            record.failure
        );
    });
}

#[test]
fn in_audit_mode_what_is_not_judged_when_the_gateway_stops_is_recorded() {
    let mut records = None;
    World::run(async || {
        let world = World::new(AdmissionMode::Audit);
        records = Some(Arc::clone(&world.records));
        world.enforce(&[policy("p", " configmaps", "oldObject == null")]);
        let path = format!("{MAPS}/m");
        world.store(&path, json!({"metadata": {"name": "m"}}));
        // The stored object is never read.
        let _held = world.reading.lock().await;
        let body = json!({"metadata": {"name": "m"}});
        assert_eq!(world.json("PUT", &path, &body).await.code, 200);
        assert!(world.records.all().is_empty());
    });
    let records = records.unwrap().all();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].decision, AdmissionDecision::NotJudged);
    assert_eq!(
        records[0].failure,
        "the gateway stopped before it was judged"
    );
}

#[test]
fn in_audit_mode_what_changes_nothing_is_judged_although_it_was_answered() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "object != null && oldObject.data.a == object.data.a",
        )]);
        let path = format!("{MAPS}/m");
        let map = |a: &str| json!({"metadata": {"name": "m"}, "data": {"a": a}});
        world.store(&path, map("1"));
        let dry = format!("{path}?dryRun=All");
        assert_eq!(world.json("PUT", &dry, &map("2")).await.code, 200);
        let options = json!({"dryRun": ["All"]});
        assert_eq!(world.json("DELETE", &path, &options).await.code, 200);
        world.inside.answer = std::rc::Rc::new(|_| {
            let response = http::Response::builder().status(409);
            response.body("{}".to_owned()).unwrap()
        });
        assert_eq!(world.json("PUT", &path, &map("2")).await.code, 409);
        recorded(&world, 3).await;
        for record in world.records.all() {
            assert_eq!(record.decision, AdmissionDecision::Denied, "{record:?}");
        }
        assert_eq!(world.records.all().len(), 3);
    });
}

#[test]
fn in_audit_mode_wrong_bodies_are_forwarded() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy("p", " configmaps", "false")]);
        for (number, (content_type, body)) in [
            ("application/json", "{"),
            ("text/plain", "x"),
            ("application/vnd.kubernetes.protobuf", "k8s\0\u{1}"),
        ]
        .into_iter()
        .enumerate()
        {
            let call = world.call("POST", MAPS, content_type, body.into());
            assert_eq!(world.send(call).await.code, 200);
            assert_eq!(world.sent()[number].body, body);
            let record = recorded(&world, number + 1).await;
            assert_eq!(record.decision, AdmissionDecision::NotJudged);
        }
    });
}

#[test]
fn until_policies_are_known_requests_wait() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let body = json!({"metadata": {"name": "m"}});
        let waiting = world.json("POST", MAPS, &body);
        let publishing = async {
            tokio::task::yield_now().await;
            assert!(world.sent().is_empty());
            world.enforce(&[policy("p", " configmaps", "false")]);
        };
        let (got, ()) = tokio::join!(waiting, publishing);
        assert_eq!(got.code, 422);
        let got = world.json("GET", MAPS, &Value::Null).await;
        assert_eq!(got.code, 200);
    });
}

#[test]
fn x24_without_policies_requests_are_refused_in_the_end() {
    World::run(|| async {
        let world = World::impatient(AdmissionMode::Enforce);
        assert_eq!(
            world.json("GET", MAPS, &Value::Null).await.code,
            200,
            "reads do not wait"
        );
        let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        assert_eq!(
            world.json("POST", review, &json!({})).await.code,
            200,
            "it is exempt"
        );
        let got = world.json("PUT", &format!("{MAPS}/m"), &json!({})).await;
        assert_eq!((got.code, got.reason()), (403, "admission-not-ready"));
        assert_eq!(
            got.message(),
            "configmaps \"m\" is forbidden: not yet ready to handle request"
        );
        assert_eq!(got.json()["reason"], "Forbidden");
        let audit = World::impatient(AdmissionMode::Audit);
        assert_eq!(audit.json("POST", MAPS, &json!({})).await.code, 200);
        let record = audit.records.all().pop().unwrap();
        assert_eq!(record.decision, AdmissionDecision::NotJudged);
    });
}
