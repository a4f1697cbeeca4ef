//! Patches, dry runs, and how faithful objects are.

use fairgate_admission::{AdmissionDecision, AdmissionMode, AdmissionRecord, Fidelity};
use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use fairgate_base::clock::Clock;
use http::Response;
use serde_json::{Value, json};

use super::world::{Got, Sent, World, policy};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/ns/deployments";

fn deployment(spec: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
}

/// The upstream's answer to a dry run: the body with a default.
fn defaulted(sent: &Sent) -> Response<String> {
    let mut object: Value = serde_json::from_slice(&sent.body).unwrap();
    if object["spec"]["replicas"].is_null() {
        object["spec"]["replicas"] = json!(1);
    }
    let response = Response::builder().header("warning", "299 - \"w\"");
    response.body(object.to_string()).unwrap()
}

/// A policy that refuses the result of each dry run.
fn refusal_by_dry_run() -> Value {
    let mut one = policy("p", "apps deployments", "false");
    one["fidelity"] = json!("dryRun");
    one
}

/// Creates a deployment.
async fn create(world: &World) -> Got {
    let body = deployment(&json!({}));
    world.json("POST", DEPLOYMENTS, &body).await
}

#[test]
fn g01_defaults_are_shown_unless_the_object_is_evaluated_as_it_was_sent() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(defaulted);
        for (fidelity, code, requests) in [
            ("asSent", 422, 0),
            ("completed", 200, 1),
            ("dryRun", 200, 2),
        ] {
            world.inside.sent.borrow_mut().clear();
            let mut one = policy("p", "apps deployments", "object.spec.replicas == 1");
            one["fidelity"] = json!(fidelity);
            world.enforce(&[one]);
            let got = create(&world).await;
            assert_eq!(got.code, code, "{fidelity}: {got:?}");
            assert_eq!(world.sent().len(), requests, "{fidelity}");
        }
        let sent = world.sent();
        assert_eq!(sent[0].target, format!("{DEPLOYMENTS}?dryRun=All"));
        assert_eq!(sent[0].headers["accept"], "application/json");
        assert_eq!(sent[1].target, DEPLOYMENTS);
        assert_eq!(sent[0].body, sent[1].body);
        assert_eq!(world.records.all()[2].fidelity, Some(Fidelity::DryRun));
    });
}

#[test]
fn a_request_is_evaluated_with_the_greatest_fidelity_that_a_policy_asks_for() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(defaulted);
        let mut one = policy("a", "apps deployments", "true");
        one["fidelity"] = json!("asSent");
        let mut two = policy("b", "apps deployments", "has(object.spec.replicas)");
        two["fidelity"] = json!("dryRun");
        world.enforce(&[one, two]);
        let got = create(&world).await;
        assert_eq!((got.code, got.warnings()), (200, vec!["299 - \"w\""]));
    });
}

#[test]
fn g03_an_apply_is_evaluated_by_its_result() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(|sent: &Sent| {
            let merged = deployment(&json!({"replicas": 9, "paused": true}));
            assert_eq!(sent.method, "PATCH");
            Response::new(merged.to_string())
        });
        let path = format!("{DEPLOYMENTS}/d");
        let expression = "object.spec.replicas != 9 || oldObject == null";
        world.enforce(&[policy("p", "apps deployments", expression)]);
        let body = Bytes::from(deployment(&json!({"paused": true})).to_string());
        let target = format!("{path}?fieldManager=me");
        let apply = || {
            world.call(
                "PATCH",
                &target,
                "application/apply-patch+yaml",
                body.clone(),
            )
        };
        assert_eq!(world.send(apply()).await.code, 200, "it creates the object");
        world.store(&path, deployment(&json!({"replicas": 9})));
        assert_eq!(world.send(apply()).await.code, 422);
        let targets = world.targets();
        let dry = format!("PATCH {target}&dryRun=All");
        assert_eq!(targets, [dry.clone(), format!("PATCH {target}"), dry]);
    });
}

#[test]
fn an_empty_list_that_is_applied_is_one_to_policies_although_it_is_stored_as_none() {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/roles";
    World::run(|| async {
        for body in [
            r#"{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []}"#,
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: []\n",
        ] {
            let mut world = World::new(AdmissionMode::Enforce);
            world.inside.answer = Rc::new(|_| {
                let merged = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                    "metadata": {"name": "r", "namespace": "ns"}, "rules": null});
                Response::new(merged.to_string())
            });
            let resource = "rbac.authorization.k8s.io roles";
            world.enforce(&[policy("p", resource, "object.rules == []")]);
            let apply = world.call(
                "PATCH",
                &format!("{ROLES}/r?fieldManager=me"),
                "application/apply-patch+yaml",
                Bytes::from_static(body.as_bytes()),
            );
            let got = world.send(apply).await;
            assert_eq!(got.code, 200, "{body}: {:?}", got.body);
        }
    });
}

#[test]
fn g04_what_the_upstream_refuses_in_the_dry_run_is_its_own_response() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(|_| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "invalid", "reason": "Invalid", "code": 422});
            let response = Response::builder().status(422);
            response.body(status.to_string()).unwrap()
        });
        world.enforce(&[refusal_by_dry_run()]);
        let got = create(&world).await;
        assert_eq!((got.code, got.reason()), (422, ""));
        assert_eq!(got.message(), "invalid");
        assert_eq!(world.sent().len(), 1);
    });
}

#[test]
fn g05_a_dry_run_that_fails_is_refused_whatever_the_failure_policy_says() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(|sent: &Sent| {
            let is_dry = sent.target.contains("dryRun");
            let response = Response::builder().status(if is_dry { 500 } else { 201 });
            response.body("{}".to_owned()).unwrap()
        });
        for failure_policy in ["Fail", "Ignore"] {
            let mut one = refusal_by_dry_run();
            one["spec"]["failurePolicy"] = json!(failure_policy);
            world.enforce(&[one]);
            let before = world.sent().len();
            let got = create(&world).await;
            assert_eq!((got.code, world.sent().len() - before), (500, 1));
        }
    });
}

#[test]
fn a_refusal_has_the_warnings_of_the_dry_run() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(defaulted);
        world.enforce(&[refusal_by_dry_run()]);
        let got = create(&world).await;
        assert_eq!((got.code, got.warnings()), (422, vec!["299 - \"w\""]));
    });
}

#[test]
fn a_body_that_the_dry_run_does_not_accept_is_refused_in_the_words_of_the_upstream() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(|_| {
            let status =
                json!({"kind": "Status", "apiVersion": "v1", "code": 400, "message": "mine"});
            let response = Response::builder().status(400);
            let response = response.header("warning", "299 - \"w\"");
            response.body(status.to_string()).unwrap()
        });
        world.enforce(&[refusal_by_dry_run()]);
        for content_type in ["application/json", "application/yaml"] {
            let body = r#"{"spec": {"replicas": "many"}}"#;
            let call = world.call("POST", DEPLOYMENTS, content_type, body.into());
            let got = world.send(call).await;
            assert_eq!((got.code, got.warnings()), (400, vec!["299 - \"w\""]));
            assert_eq!(got.json()["message"], "mine");
            assert_eq!(got.reason(), "");
        }
        assert_eq!(world.sent().len(), 2);
        // What is no document here is not left to the upstream, which might find one in it.
        for (content_type, code) in [("application/json", 400), ("text/plain", 415)] {
            let call = world.call("POST", DEPLOYMENTS, content_type, "{".into());
            let got = world.send(call).await;
            assert_eq!((got.code, got.reason()), (code, "admission-malformed"));
        }
        assert_eq!(world.sent().len(), 2);
    });
}

#[test]
fn a_clients_own_dry_run_is_sent_once() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(defaulted);
        let mut one = policy(
            "p",
            "apps deployments",
            "request.dryRun && object.spec.replicas == 1",
        );
        one["fidelity"] = json!("dryRun");
        world.enforce(&[one]);
        let target = format!("{DEPLOYMENTS}?dryRun=All");
        let got = world.json("POST", &target, &deployment(&json!({}))).await;
        assert_eq!((got.code, got.warnings()), (200, vec!["299 - \"w\""]));
        assert_eq!(got.json()["spec"]["replicas"], 1);
        assert_eq!(world.targets(), [format!("POST {target}")]);
    });
}

#[test]
fn patches_are_applied_to_the_stored_object() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let path = format!("{DEPLOYMENTS}/d");
        let image = |image: &str| json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}});
        let mut old = deployment(&image("old"));
        old["spec"]["replicas"] = json!(3);
        world.store(&path, old);
        let expression = "object.spec.replicas == oldObject.spec.replicas && \
             object.spec.template.spec.containers.all(c, c.image != 'bad' && c.name == 'c')";
        world.enforce(&[policy("p", "apps deployments", expression)]);
        let json_patch = |value: &str| json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": value}]);
        let strategic = |value: &str| json!({"spec": image(value)});
        for (content_type, good, bad) in [
            (
                "application/json-patch+json",
                json_patch("good"),
                json_patch("bad"),
            ),
            (
                "application/strategic-merge-patch+json",
                strategic("good"),
                strategic("bad"),
            ),
            (
                "application/merge-patch+json",
                json!({"spec": {"paused": true}}),
                json!({"spec": {"replicas": 4}}),
            ),
        ] {
            for (patch, code) in [(good, 200), (bad, 422)] {
                let call = world.call("PATCH", &path, content_type, patch.to_string().into());
                let got = world.send(call).await;
                assert_eq!(got.code, code, "{content_type} {patch}: {got:?}");
            }
        }
        let call = world.call("PATCH", &path, "application/json-patch+json", "{".into());
        assert_eq!(world.send(call).await.code, 400);
        let call = world.call("PATCH", &path, "text/plain", "{}".into());
        let got = world.send(call).await;
        assert_eq!((got.code, got.reason()), (415, "admission-malformed"));
        let absent = format!("{DEPLOYMENTS}/absent");
        let got = world
            .json("PATCH", &absent, &json!({"spec": {"replicas": 4}}))
            .await;
        assert_eq!(got.code, 404);
        // What is wrong with the request comes first, as in a server.
        let wrong = format!("{absent}?fieldValidation=wrong");
        let got = world
            .json("PATCH", &wrong, &json!({"spec": {"replicas": 4}}))
            .await;
        assert_eq!(got.code, 422, "{got:?}");
        let absent = |sent: &Sent| sent.target.contains("/absent");
        assert!(
            !world.sent().iter().any(absent),
            "it might change an object that is created meanwhile"
        );
    });
}

#[test]
fn status_and_the_servers_metadata_are_not_the_clients() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let path = format!("{DEPLOYMENTS}/d");
        let mut old = deployment(&json!({"replicas": 3}));
        old["status"] = json!({"replicas": 2});
        old["metadata"]["uid"] = json!("u");
        world.store(&path, old);
        let expression = "object.status.replicas == 2 && object.metadata.uid == 'u' && \
             object.metadata.namespace == 'ns'";
        world.enforce(&[policy("p", "apps deployments", expression)]);
        let mut body = deployment(&json!({"replicas": 3}));
        body["status"] = json!({"replicas": 7});
        let got = world.json("PUT", &path, &body).await;
        assert_eq!(got.code, 200, "{got:?}");
        let expression = "object.spec.replicas == 3 && object.status.replicas == 7";
        world.enforce(&[policy("p", "apps deployments/status", expression)]);
        let path = format!("{path}/status");
        let mut old = deployment(&json!({"replicas": 3}));
        old["status"] = json!({"replicas": 2});
        world.store(&path, old);
        body["spec"]["replicas"] = json!(9);
        let got = world.json("PUT", &path, &body).await;
        assert_eq!(got.code, 200, "{got:?}");
    });
}

/// The record of an apply to a stored object.
async fn audited(world: &World, target: &str, stored: &Value, applied: &Value) -> AdmissionRecord {
    let path = target.split('?').next().unwrap_or_default();
    world.store(path, stored.clone());
    let before = world.records.all().len();
    let body = Bytes::from(applied.to_string());
    let call = world.call("PATCH", target, "application/apply-patch+yaml", body);
    assert_eq!(world.send(call).await.code, 200);
    world.records.at_least(before + 1).await;
    world.records.all().pop().unwrap()
}

/// The same, of one that was read before the upstream answered: it takes twice as long at each try.
async fn audited_in_time(
    world: &World,
    target: &str,
    stored: &Value,
    applied: &Value,
) -> AdmissionRecord {
    for tries in 0..16 {
        world.inside.takes.set(Duration::from_millis(1 << tries));
        let record = audited(world, target, stored, applied).await;
        let why = "carried out before the stored object was read";
        if !record.failure.contains(why) {
            return record;
        }
        assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
    }
    panic!("the stored object is not read within half a minute");
}

#[test]
fn in_audit_mode_an_apply_is_evaluated_by_what_is_stored_afterwards() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        let path = format!("{DEPLOYMENTS}/d");
        let of = |replicas: u32| {
            let mut object = deployment(&json!({"replicas": replicas}));
            object["metadata"]["resourceVersion"] = json!(replicas.to_string());
            object
        };
        let (objects, stored) = (Arc::clone(&world.objects), path.clone());
        world.inside.answer = Rc::new(move |_| {
            objects.lock().unwrap().insert(stored.clone(), of(2));
            Response::new(String::new())
        });
        let expression = "object.spec.replicas == oldObject.spec.replicas";
        world.enforce(&[policy("p", "apps deployments", expression)]);
        let record = audited_in_time(&world, &path, &of(1), &of(2)).await;
        assert_eq!(record.decision, AdmissionDecision::Denied);
        let applied = format!("PATCH {path}");
        assert!(
            world.targets().iter().all(|one| *one == applied),
            "no dry run"
        );
    });
}

#[test]
fn in_audit_mode_an_apply_is_not_evaluated_by_its_own_result() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        let path = format!("{DEPLOYMENTS}/d");
        let expression = "object.spec.replicas == oldObject.spec.replicas";
        world.enforce(&[policy("p", "apps deployments", expression)]);
        world.inside.answer = Rc::new(|_| Response::new(String::new()));
        let target = format!("{path}?fieldManager=me");
        let applied_by = |manager: &str, time: &str| {
            let mut object = deployment(&json!({"replicas": 2}));
            object["metadata"]["resourceVersion"] = json!("7");
            object["metadata"]["managedFields"] =
                json!([{"operation": "Apply", "manager": manager, "time": time}]);
            object
        };
        let soon = Clock::system().unix_seconds() + 600; // after each of the tries has begun
        let soon = jiff::Timestamp::from_second(soon.try_into().unwrap());
        let soon = soon.unwrap().to_string();
        // The upstream has carried the apply out, and answers later than the read of the stored object.
        for (manager, time, why) in [
            ("me", "2020-01-01T00:00:00Z", "it changes nothing"),
            ("another", &soon, "it is not of this manager"),
        ] {
            let object = applied_by(manager, time);
            let record = audited_in_time(&world, &target, &object, &object).await;
            assert_eq!(
                record.decision,
                AdmissionDecision::Allowed,
                "{why}: {}",
                record.failure
            );
        }
        // Whether it was read in time or not.
        let object = applied_by("me", &soon);
        let record = audited(&world, &target, &object, &object).await;
        assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
    });
}

#[test]
fn in_audit_mode_an_apply_that_is_refused_is_not_recorded() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        let path = format!("{DEPLOYMENTS}/d");
        world.inside.answer = Rc::new(|_| {
            let mut refused = Response::new(String::new());
            *refused.status_mut() = http::StatusCode::CONFLICT;
            refused
        });
        world.enforce(&[policy("p", "apps deployments", "false")]);
        let body = Bytes::from(deployment(&json!({})).to_string());
        let apply = "application/apply-patch+yaml";
        let call = world.call("PATCH", &path, apply, body.clone());
        assert_eq!(world.send(call).await.code, 409);
        // A dry run cannot be evaluated: its result is not stored.
        world.inside.answer = Rc::new(|_| Response::new(String::new()));
        let target = format!("{path}?dryRun=All");
        let call = world.call("PATCH", &target, apply, body);
        assert_eq!(world.send(call).await.code, 200);
        world.records.at_least(1).await;
        let records = world.records.all();
        let failures: Vec<_> = records.iter().map(|one| &*one.failure).collect();
        let why = "a dry run of server-side apply cannot be evaluated in audit mode";
        assert_eq!(failures, [why]);
    });
}
