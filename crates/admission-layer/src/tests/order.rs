//! What kube-apiserver finds out before it asks policies, and what only afterwards.

use fairgate_admission::{AdmissionDecision, AdmissionMode};
use std::rc::Rc;

use bytes::Bytes;
use fairgate_objects::codec::yaml;
use http::Response;
use serde_json::{Value, json};

use super::world::{Answer, Sent, World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const PODS: &str = "/api/v1/namespaces/ns/pods";

/// An upstream that answers all requests with this `Status`.
fn refusing(code: u16, reason: &'static str, details: Value) -> Rc<Answer> {
    Rc::new(move |_| {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "of the upstream", "reason": reason, "details": details, "code": code});
        let response = Response::builder().status(code);
        let response = response.header("warning", "299 - \"w\"");
        response.body(status.to_string()).unwrap()
    })
}

fn in_dry_run(mut policy: Value) -> Value {
    policy["fidelity"] = json!("dryRun");
    policy
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// An upstream in which objects named `m` exist, and that fills in a default.
fn with_m(sent: &Sent) -> Response<String> {
    let read = yaml::parse(&sent.body).unwrap();
    let mut object: Value = read.value;
    if object["metadata"]["name"] == "m" {
        return refusing(409, "AlreadyExists", json!({}))(sent);
    }
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    object["metadata"]["labels"] = json!({"name": format!("is {name}")});
    object["data"]["default"] = json!("there");
    Response::new(object.to_string())
}

#[test]
fn that_an_object_exists_comes_after_the_policies() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(with_m);
        let seen = "object.metadata.name == 'm' && object.metadata.labels.name == 'is m' && \
                    object.data.default == 'there' && object.data.a != ";
        let deny = in_dry_run(policy("a", " configmaps", &format!("{seen}'bad'")));
        let mut warn = in_dry_run(policy("b", " configmaps", "object.data.a != 'odd'"));
        warn["actions"] = json!(["Warn"]);
        world.enforce(&[deny, warn]);
        for content_type in ["application/json", "application/yaml"] {
            let post = |a: &str| {
                let body = map("m", &json!({"a": a})).to_string();
                world.send(world.call("POST", MAPS, content_type, body.into()))
            };
            let got = post("bad").await;
            assert_eq!((got.code, got.warnings()), (422, vec!["299 - \"w\""]));
            let got = post("odd").await;
            assert_eq!((got.code, &*got.message()), (409, "of the upstream"));
            let own = "299 - \"Validation failed for ValidatingAdmissionPolicy 'b' with binding 'b-b': \
                       failed expression: object.data.a != 'odd'\"";
            assert_eq!(got.warnings(), ["299 - \"w\"", own]);
        }
        // The object may be gone by now: the request itself is not sent.
        let dry = format!("POST {MAPS}?dryRun=All");
        assert!(world.targets().iter().all(|target| *target == dry));
        for sent in world.sent() {
            assert_eq!(sent.headers["content-type"], "application/json");
        }
        let decisions: Vec<_> = world.records.all().iter().map(|one| one.decision).collect();
        let (denied, allowed) = (AdmissionDecision::Denied, AdmissionDecision::Allowed);
        assert_eq!(decisions, [denied, allowed, denied, allowed]);
    });
}

#[test]
fn an_object_that_exists_and_cannot_be_seen_is_not_evaluated() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = refusing(409, "AlreadyExists", json!({}));
        world.enforce(&[in_dry_run(policy("p", " configmaps", "false"))]);
        let got = world.json("POST", MAPS, &map("m", &json!({}))).await;
        assert_eq!((got.code, got.warnings()), (409, vec!["299 - \"w\""]));
        assert_eq!(world.sent().len(), 2);
    });
}

#[test]
fn other_conflicts_come_before_the_policies() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = refusing(409, "Conflict", json!({}));
        world.enforce(&[in_dry_run(policy("p", " configmaps", "false"))]);
        let got = world.json("POST", MAPS, &map("m", &json!({}))).await;
        assert_eq!((got.code, &*got.message()), (409, "of the upstream"));
    });
}

#[test]
fn whether_a_pod_can_be_evicted_comes_after_the_policies() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        let expression = "object.metadata.name != 'kept'";
        world.enforce(&[in_dry_run(policy("p", " pods/eviction", expression))]);
        let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let pod = json!({"name": "kept", "kind": "pods"});
        for (code, reason) in [
            (404, "NotFound"),
            (429, "TooManyRequests"),
            (409, "Conflict"),
            (500, ""),
        ] {
            world.inside.answer = refusing(code, reason, pod.clone());
            let got = world
                .json("POST", &format!("{PODS}/kept/eviction"), &eviction("kept"))
                .await;
            assert_eq!(got.code, 422, "{code}");
            let got = world
                .json("POST", &format!("{PODS}/free/eviction"), &eviction("free"))
                .await;
            assert_eq!((got.code, &*got.message()), (code, "of the upstream"));
        }
        for (code, details) in [
            (400, pod),
            (404, json!({"name": "ns", "kind": "namespaces"})),
        ] {
            world.inside.answer = refusing(code, "", details);
            let got = world
                .json("POST", &format!("{PODS}/kept/eviction"), &eviction("kept"))
                .await;
            assert_eq!(got.code, code);
        }
    });
}

#[test]
fn what_the_upstream_fails_at_in_the_dry_run_is_its_own_response() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = refusing(500, "InternalError", json!({}));
        world.enforce(&[in_dry_run(policy("p", " configmaps", "false"))]);
        let got = world.json("POST", MAPS, &map("m", &json!({}))).await;
        assert_eq!((got.code, &*got.message()), (500, "of the upstream"));
        assert_eq!(world.sent().len(), 1);
        let record = world.records.all().pop().unwrap();
        assert_eq!(record.decision, AdmissionDecision::Failed);
        assert!(record.failure.contains("500"), "{}", record.failure);
    });
}

#[test]
fn the_name_that_a_dry_run_generates_is_the_name_of_the_request() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.inside.answer = Rc::new(|sent: &Sent| {
            let mut object: Value = serde_json::from_slice(&sent.body).unwrap();
            object["metadata"]["name"] = json!("m-x1");
            Response::new(object.to_string())
        });
        world.enforce(&[in_dry_run(policy(
            "p",
            " configmaps",
            "request.name != 'm-x1'",
        ))]);
        let body = json!({"metadata": {"generateName": "m-"}});
        let got = world.json("POST", MAPS, &body).await;
        assert_eq!(got.code, 422);
        assert!(
            got.message()
                .starts_with("configmaps \"m-x1\" is forbidden")
        );
    });
}

#[test]
fn the_options_of_a_deletion_are_checked_before_the_policies() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "false")]);
        let path = format!("{MAPS}/m");
        let mut stored = map("m", &json!({}));
        stored["metadata"]["uid"] = json!("u");
        stored["metadata"]["resourceVersion"] = json!("7");
        world.store(&path, stored);
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "items": []});
        world.store(MAPS, list);
        for target in [&*path, MAPS] {
            for (options, message) in [
                (
                    json!({"propagationPolicy": "x"}),
                    "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"x\": \
                     supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
                ),
                (
                    json!({"dryRun": ["x"]}),
                    "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: \
                     supported values: \"All\"",
                ),
            ] {
                let got = world.json("DELETE", target, &options).await;
                assert_eq!((got.code, &*got.message()), (422, message));
                assert_eq!(got.reason(), "admission-malformed");
            }
        }
        let wrong = "Operation cannot be fulfilled on ConfigMap \"m\": the UID in the precondition (w) does not match \
                     the UID in record (u). The object might have been deleted and then recreated";
        for (preconditions, code, message) in [
            (json!({"uid": "w"}), 409, Some(wrong)),
            (json!({"resourceVersion": "6"}), 409, None),
            (json!({"uid": "u", "resourceVersion": "7"}), 422, None),
        ] {
            let options = json!({"preconditions": preconditions});
            let got = world.json("DELETE", &path, &options).await;
            assert_eq!(got.code, code, "{preconditions}");
            if let Some(message) = message {
                assert_eq!(got.message(), message);
            }
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn a_user_who_may_not_delete_an_object_does_not_learn_its_uid() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        world.user.name = "mallory".to_owned();
        world.enforce(&[policy("p", " configmaps", "true")]);
        let path = format!("{MAPS}/m");
        let stored = json!({"kind": "ConfigMap", "metadata": {"name": "m", "uid": "u"}});
        world.store(&path, stored);
        for options in [
            json!({"preconditions": {"uid": "w"}}),
            json!({"propagationPolicy": "x"}),
        ] {
            let got = world.json("DELETE", &path, &options).await;
            assert_eq!((got.code, got.reason()), (403, "forbidden"), "{options}");
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn options_in_a_body_are_all_that_counts() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "request.dryRun")]);
        let path = format!("{MAPS}/m");
        world.store(&path, map("m", &json!({})));
        let target = format!("{path}?dryRun=All");
        let got = world.json("DELETE", &target, &json!({})).await;
        assert_eq!(got.code, 422, "the upstream would delete the object");
        let got = world.json("DELETE", &target, &Value::Null).await;
        assert_eq!(got.code, 200);
        let options = json!({"dryRun": ["All"]});
        assert_eq!(world.json("DELETE", &path, &options).await.code, 200);
    });
}

#[test]
fn the_preconditions_of_a_namespace_have_words_of_their_own() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let expression = "request.options.preconditions.uid != 'u'";
        world.enforce(&[policy("p", " namespaces", expression)]);
        let path = "/api/v1/namespaces/ns";
        let stored = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns", "uid": "u"}});
        world.store(path, stored);
        let got = world.json("DELETE", path, &Value::Null).await;
        assert_eq!(got.code, 422, "the server adds the UID: {got:?}");
        let negative = policy(
            "p",
            " namespaces",
            "request.options.gracePeriodSeconds == -1",
        );
        world.enforce(&[negative]);
        let options = json!({"gracePeriodSeconds": -1});
        let got = world.json("DELETE", path, &options).await;
        assert_eq!(got.code, 200, "the server leaves the period: {got:?}");
        world.enforce(&[policy("p", " namespaces", expression)]);
        let options = json!({"preconditions": {"uid": "w"}});
        let got = world.json("DELETE", path, &options).await;
        let message = "Operation cannot be fulfilled on namespaces \"ns\": Precondition failed: UID in precondition: w, \
                       UID in object meta: u";
        assert_eq!((got.code, &*got.message()), (409, message));
    });
}

#[test]
fn policies_see_the_uid_by_which_a_server_deletes_a_definition() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let resource = "apiextensions.k8s.io customresourcedefinitions";
        world.enforce(&[policy(
            "p",
            resource,
            "request.options.preconditions.uid != 'u'",
        )]);
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
        world.store(
            path,
            json!({"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
                "metadata": {"name": "things.example.com", "uid": "u"}}),
        );
        let got = world.json("DELETE", path, &Value::Null).await;
        assert_eq!(got.code, 422, "{got:?}");
    });
}

#[test]
fn policies_see_the_grace_period_that_a_pod_gets() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy("p", " pods", "false");
        one["spec"]["validations"][0]["messageExpression"] =
            json!("'grace ' + string(request.options.?gracePeriodSeconds.orValue(-1))");
        world.enforce(&[one]);
        let path = format!("{PODS}/p");
        let pod = |spec: Value, metadata: Value, phase: &str| json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {"phase": phase}});
        let named = json!({"name": "p"});
        let ended = |seconds: u32| json!({"name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": seconds});
        let there = json!({"nodeName": "n", "terminationGracePeriodSeconds": 30});
        let waiting = json!({"terminationGracePeriodSeconds": 30});
        for (stored, options, grace) in [
            (pod(there.clone(), named.clone(), "Running"), json!({}), 30),
            (
                pod(json!({"nodeName": "n"}), named.clone(), "Running"),
                json!({}),
                0,
            ),
            (pod(waiting.clone(), named.clone(), "Pending"), json!({}), 0),
            (
                pod(waiting, named.clone(), "Pending"),
                json!({"gracePeriodSeconds": 5}),
                0,
            ),
            (
                pod(there.clone(), named.clone(), "Running"),
                json!({"gracePeriodSeconds": 5}),
                5,
            ),
            (
                pod(there.clone(), named.clone(), "Running"),
                json!({"gracePeriodSeconds": -5}),
                1,
            ),
            (pod(there.clone(), named, "Failed"), json!({}), 0),
            (pod(there.clone(), ended(0), "Running"), json!({}), -1),
            (
                pod(there.clone(), ended(9), "Running"),
                json!({"gracePeriodSeconds": 4}),
                4,
            ),
        ] {
            world.store(&path, stored.clone());
            let got = world.json("DELETE", &path, &options).await;
            let expected = format!("grace {grace}");
            assert!(
                got.message().ends_with(&expected),
                "{stored} {options}: {}",
                got.message()
            );
        }
    });
}

#[test]
fn a_selector_that_the_upstream_does_not_understand_is_refused_in_its_words() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "false")]);
        let status = json!({"kind": "Status", "apiVersion": "v1", "message": "of the upstream", "code": 400});
        world.fail(MAPS, 400, &status);
        let call = world.call(
            "DELETE",
            &format!("{MAPS}?labelSelector=x"),
            "",
            Bytes::new(),
        );
        let got = world.send(call).await;
        assert_eq!((got.code, &*got.message()), (400, "of the upstream"));
        assert!(world.sent().is_empty());
    });
}
