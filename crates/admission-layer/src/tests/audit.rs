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

/// Only a dry run would tell what the server makes of it.
#[test]
fn in_audit_mode_kinds_without_a_table_are_forwarded_and_not_judged() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy("p", "apiregistration.k8s.io apiservices", "false")]);
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        let body = json!({"metadata": {"name": "v1.x.io"}, "spec": {"caBundle": null}});
        let got = world.json("POST", services, &body).await;
        assert_eq!(got.code, 200, "{got:?}");
        assert_eq!(world.targets(), [format!("POST {services}")]);
        let record = recorded(&world, 1).await;
        assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
    });
}

#[test]
fn audit_annotations_are_in_the_line_of_each_request_whatever_the_mode_and_the_verdict() {
    World::run(|| async {
        for mode in [AdmissionMode::Audit, AdmissionMode::Enforce] {
            let world = World::new(mode);
            let mut one = policy("p", " configmaps", "object.data.a == 'x'");
            one["spec"]["auditAnnotations"] = json!([
                {"key": "size", "valueExpression": "'a is ' + object.data.a"},
                {"key": "none", "valueExpression": "null"},
            ]);
            world.enforce(&[one]);
            for (number, a, decision) in [(1, "x", "allowed"), (2, "y", "denied")] {
                let body = json!({"metadata": {"name": "m"}, "data": {"a": a}});
                world.json("POST", MAPS, &body).await;
                let record = recorded(&world, number).await;
                let entry = AuditEntry::of(record, String::new()).unwrap();
                let line: Value = serde_json::from_slice(&entry.line()).unwrap();
                assert_eq!(line["decision"], decision);
                let annotations = json!({"p/size": format!("a is {a}")});
                assert_eq!(line["annotations"], annotations, "{line}");
            }
        }
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

/// A policy about tolerations, which a plugin of the server adds, and one about images, which it leaves.
#[test]
fn a_verdict_about_what_only_the_server_sets_is_marked() {
    const PODS: &str = "/api/v1/namespaces/ns/pods";
    World::run(|| async {
        let fields = |record: AdmissionRecord| {
            let entry = AuditEntry::of(record, String::new()).unwrap();
            assert_eq!(entry.policies.len(), 3);
            entry.set_by_server
        };
        let world = World::new(AdmissionMode::Audit);
        let policies = |fidelity: &str| {
            let about = [
                ("images", "object.spec.containers.all(c, c.image == 'good')"),
                ("priority", "object.?spec.?priority.orValue(0) > 5"),
                (
                    "tolerations",
                    "size(object.spec.?tolerations.orValue([])) > 5",
                ),
            ];
            about.map(|(name, expression)| {
                let mut one = policy(name, " pods", expression);
                one["fidelity"] = json!(fidelity);
                one
            })
        };
        world.enforce(&policies("completed"));
        let spec = json!({"priority": 1, "containers": [{"name": "c", "image": "evil"}]});
        let body =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        assert_eq!(world.json("POST", PODS, &body).await.code, 200);
        let of = |name: &str, field: &str| (name.to_owned(), vec![field.to_owned()]);
        let tolerations = of("tolerations", "spec.tolerations");
        let all = [tolerations.clone()].into();
        assert_eq!(fields(recorded(&world, 1).await), all);
        let mut without = body.clone();
        without["spec"].as_object_mut().unwrap().remove("priority");
        assert_eq!(world.json("POST", PODS, &without).await.code, 200);
        let all = [of("priority", "spec.priority"), tolerations].into();
        assert_eq!(fields(recorded(&world, 2).await), all);
        // The response to a dry run has what the server sets. In audit mode there are none.
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&policies("dryRun"));
        assert_eq!(world.json("POST", PODS, &body).await.code, 422);
        assert!(fields(recorded(&world, 1).await).is_empty());
    });
}

#[test]
fn in_audit_mode_an_update_is_evaluated_by_what_was_stored_before_it() {
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
        world.inside.answers_when_idle.set(true);
        let body = json!({"metadata": {"name": "m"}, "data": {"a": "2"}});
        assert_eq!(world.json("PUT", &path, &body).await.code, 200);
        assert_eq!(
            recorded(&world, 1).await.decision,
            AdmissionDecision::Denied
        );
        // The upstream is faster than the read of the object.
        world.inside.answers_when_idle.set(false);
        let held = world.reading.lock().await;
        assert_eq!(world.json("PUT", &path, &body).await.code, 200);
        drop(held);
        let record = recorded(&world, 2).await;
        assert_eq!(
            record.decision,
            AdmissionDecision::NotEvaluated,
            "{}",
            record.failure
        );
    });
}

#[test]
fn in_audit_mode_slow_writes_keep_no_other_from_being_evaluated() {
    const SLOW: usize = 600;
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy("p", " configmaps", "false")]);
        let path = format!("{MAPS}/m");
        let body = json!({"metadata": {"name": "m", "resourceVersion": "5"}});
        world.store(&path, body.clone());
        world.user.name = "bob".to_owned();
        let json = "application/json";
        let other = world.call("PUT", &path, json, body.to_string().into());
        world.user.name = "slow".to_owned();
        world.inside.takes.set(std::time::Duration::from_secs(3600));
        let slow = (0..SLOW).map(|_| Box::pin(world.json("PUT", &path, &body)));
        let mut slow = futures_util::future::join_all(slow);
        let quick = async {
            while world.sent().len() < SLOW || world.inside.is_busy() {
                tokio::task::yield_now().await;
            }
            world.inside.takes.set(std::time::Duration::ZERO);
            assert_eq!(world.send(other).await.code, 200);
            recorded(&world, 1).await
        };
        tokio::select! {
            biased;
            record = quick => {
                assert_eq!(&*record.request.user, "bob");
                assert_eq!(record.decision, AdmissionDecision::Denied, "{record:?}");
            }
            _ = &mut slow => panic!("slow writes are not answered"),
        }
    });
}

/// A server asks its policies before it finds that there is an object with the name, and after it found the object invalid.
#[test]
fn in_audit_mode_the_reason_of_a_refusal_says_whether_policies_were_asked() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy("p", " configmaps", "false")]);
        let invalid = json!([{"field": "metadata.name", "message": "no"}]);
        let denied = json!([{"message": "failed expression: false"}]);
        let refusals = [
            (409, "AlreadyExists", json!([]), AdmissionDecision::Denied),
            (409, "Conflict", json!([]), AdmissionDecision::NotEvaluated),
            (422, "Invalid", invalid, AdmissionDecision::NotEvaluated),
            (422, "Invalid", denied, AdmissionDecision::Denied),
            (404, "NotFound", json!([]), AdmissionDecision::NotEvaluated),
            (
                401,
                "Unauthorized",
                json!([]),
                AdmissionDecision::NotEvaluated,
            ),
            (403, "Forbidden", json!([]), AdmissionDecision::NotEvaluated),
            (403, "PodSecurity", json!([]), AdmissionDecision::Denied),
            (413, "TooLarge", json!([]), AdmissionDecision::NotEvaluated),
            (429, "TooMany", json!([]), AdmissionDecision::NotEvaluated),
        ];
        for (number, (code, reason, causes, decision)) in refusals.into_iter().enumerate() {
            let (reason, message) = match reason {
                "Forbidden" => (
                    reason,
                    r#"configmaps is forbidden: User "bob" cannot create resource "configmaps" in API group """#,
                ),
                "PodSecurity" => (
                    "Forbidden",
                    r#"configmaps "User cannot" is forbidden: it must not"#,
                ),
                other => (other, ""),
            };
            let status = json!({"apiVersion": "v1", "kind": "Status", "reason": reason, "message": message, "details": {"causes": causes}});
            world.inside.answer = std::rc::Rc::new(move |_| {
                let response = http::Response::builder().status(code);
                response.body(status.to_string()).unwrap()
            });
            let body = json!({"metadata": {"name": "m", "resourceVersion": "5"}});
            assert_eq!(world.json("POST", MAPS, &body).await.code, code);
            let record = recorded(&world, number + 1).await;
            assert_eq!(record.decision, decision, "{code} {reason}");
        }
    });
}

#[test]
fn in_audit_mode_what_is_not_evaluated_when_the_gateway_stops_is_recorded() {
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
    assert_eq!(records[0].decision, AdmissionDecision::NotEvaluated);
    assert_eq!(
        records[0].failure,
        "the gateway stopped before it was evaluated"
    );
}

#[test]
fn in_audit_mode_what_changes_nothing_is_evaluated_although_it_was_answered() {
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
        let answering = |code: u16| -> std::rc::Rc<super::world::Answer> {
            std::rc::Rc::new(move |_| {
                let response = http::Response::builder().status(code);
                response.body("{}".to_owned()).unwrap()
            })
        };
        world.inside.answer = answering(422);
        assert_eq!(world.json("PUT", &path, &map("2")).await.code, 422);
        recorded(&world, 3).await;
        for record in world.records.all() {
            assert_eq!(record.decision, AdmissionDecision::Denied, "{record:?}");
        }
        assert_eq!(world.records.all().len(), 3);
        // A server finds a conflict before it asks policies.
        world.inside.answer = answering(409);
        let mut body = map("2");
        body["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(world.json("PUT", &path, &body).await.code, 409);
        let record = recorded(&world, 4).await;
        assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
        // Likewise that it is no version.
        body["metadata"]["resourceVersion"] = json!("x");
        world.inside.answer = answering(500);
        assert_eq!(world.json("PUT", &dry, &body).await.code, 500);
        let record = recorded(&world, 5).await;
        assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
    });
}

/// The server marks a pod before it deletes it, so what is read then is not what its policies saw.
#[test]
fn in_audit_mode_a_deletion_of_a_pod_that_is_under_way_is_not_evaluated() {
    const PODS: &str = "/api/v1/namespaces/ns/pods";
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy("p", " pods", "false")]);
        for (number, (seconds, decision)) in [
            (0, AdmissionDecision::NotEvaluated),
            (30, AdmissionDecision::Denied),
        ]
        .into_iter()
        .enumerate()
        {
            let path = format!("{PODS}/p{seconds}");
            let metadata = json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": seconds});
            world.store(&path, json!({"metadata": metadata}));
            world.inside.answers_when_idle.set(true);
            let options = json!({"gracePeriodSeconds": 10});
            assert_eq!(world.json("DELETE", &path, &options).await.code, 200);
            let record = recorded(&world, number + 1).await;
            assert_eq!(record.decision, decision, "{record:?}");
        }
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
            assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
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
        assert_eq!(record.decision, AdmissionDecision::NotEvaluated);
    });
}

/// An upstream may know fields that the gateway does not: what it accepts is not kept from being recorded by them.
#[test]
fn in_audit_mode_what_the_upstream_accepts_is_evaluated_whatever_is_known_here() {
    const PODS: &str = "/api/v1/namespaces/ns/pods?fieldValidation=Strict";
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        world.enforce(&[policy("p", " pods", "false")]);
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "newField": 1});
        let body =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        assert_eq!(world.json("POST", PODS, &body).await.code, 200);
        let record = recorded(&world, 1).await;
        assert_eq!(record.decision, AdmissionDecision::Denied, "{record:?}");
        world.inside.answer = std::rc::Rc::new(|_| {
            let response = http::Response::builder().status(400);
            response.body("{}".to_owned()).unwrap()
        });
        assert_eq!(world.json("POST", PODS, &body).await.code, 400);
        let record = recorded(&world, 2).await;
        assert_eq!(
            record.decision,
            AdmissionDecision::NotEvaluated,
            "{record:?}"
        );
    });
}
