//! New objects whose name the server generates, for policies that read it.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use bytes::Bytes;
use fairgate_admission::{AdmissionDecision, AdmissionMode};
use fairgate_objects::{
    codec::{envelope, protobuf},
    schema::{core_v1, meta_v1},
};
use http::Response;
use serde_json::{Value, json};

use super::world::{Got, Sent, World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What the server generates of `m-`.
const READS_NAME: &str = "object.metadata.name.matches('^m-[bcdfghjklmnpqrstvwxz2456789]{5}$') && \
     request.name == object.metadata.name && object.metadata.generateName == 'm-'";

fn unnamed() -> Value {
    json!({"metadata": {"generateName": "m-"}, "data": {"a": "b"}})
}

fn reads_name() -> Value {
    policy("p", " configmaps", READS_NAME)
}

/// The length of a name that begins with `m-`.
const GENERATED: usize = 7;

/// A world whose upstream has objects of the first `taken` names that are generated.
fn with_taken(mode: AdmissionMode, taken: usize) -> World {
    let mut world = World::new(mode);
    let seen = RefCell::new(BTreeSet::new());
    world.inside.answer = Rc::new(move |sent: &Sent| {
        let object: Value = serde_json::from_slice(&sent.body).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let is_generated = name.len() == GENERATED;
        if is_generated {
            seen.borrow_mut().insert(name.clone());
        }
        if is_generated && seen.borrow().len() <= taken {
            return taken_name(&name);
        }
        Response::new(object.to_string())
    });
    world
}

fn taken_name(name: &str) -> Response<String> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("configmaps \"{name}\" already exists, the server was not able to generate a unique name for the object"),
        "reason": "AlreadyExists", "details": {"name": name, "kind": "configmaps", "retryAfterSeconds": 1},
        "code": 409});
    let response = Response::builder().status(409);
    response.body(status.to_string()).unwrap()
}

fn names(world: &World) -> Vec<String> {
    let name = |sent: &Sent| {
        let object: Value = serde_json::from_slice(&sent.body).unwrap();
        object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    world.sent().iter().map(name).collect()
}

async fn create(world: &World) -> Got {
    world.json("POST", MAPS, &unnamed()).await
}

#[test]
fn the_name_that_policies_read_is_sent_with_the_request() {
    World::run(|| async {
        for fidelity in ["asSent", "completed"] {
            let world = World::new(AdmissionMode::Enforce);
            let mut one = reads_name();
            one["fidelity"] = json!(fidelity);
            world.enforce(&[one]);
            let got = create(&world).await;
            assert_eq!(got.code, 200, "{got:?}");
            let sent: Value = serde_json::from_slice(&world.sent()[0].body).unwrap();
            let name = &sent["metadata"]["name"];
            assert_eq!(
                sent,
                json!({"metadata": {"generateName": "m-", "name": name}, "data": {"a": "b"}})
            );
            let record = world.records.all().pop().unwrap();
            assert_eq!(*name, record.request.name);
        }
    });
}

#[test]
fn a_long_prefix_is_cut_and_an_empty_name_is_none() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let expression = "object.metadata.name.size() == 63";
        world.enforce(&[policy("p", " configmaps", expression)]);
        let body = json!({"metadata": {"generateName": "a".repeat(80), "name": ""}});
        assert_eq!(world.json("POST", MAPS, &body).await.code, 200);
        assert_eq!(names(&world)[0].len(), 63);
        // A name of its own is kept.
        let body = json!({"metadata": {"generateName": "a-", "name": "b".repeat(63)}});
        assert_eq!(world.json("POST", MAPS, &body).await.code, 200);
        assert_eq!(names(&world)[1], "b".repeat(63));
    });
}

#[test]
fn a_name_that_is_taken_is_replaced_as_often_as_the_server_does() {
    World::run(|| async {
        for fidelity in ["completed", "dryRun"] {
            for taken in [1, 7] {
                let world = with_taken(AdmissionMode::Enforce, taken);
                let mut one = reads_name();
                one["fidelity"] = json!(fidelity);
                world.enforce(&[one]);
                let got = create(&world).await;
                assert_eq!(got.code, 200, "{fidelity} {taken}: {got:?}");
                // A dry run of an object that exists is made under a longer name, too.
                let mut all = names(&world);
                all.retain(|name| name.len() == GENERATED);
                assert_eq!(BTreeSet::from_iter(&all).len(), taken + 1, "{fidelity}");
                assert_eq!(*all.last().unwrap(), got.json()["metadata"]["name"]);
                let records = world.records.all();
                assert_eq!(records.len(), 1);
                assert_eq!(records[0].request.name, *all.last().unwrap());
            }
        }
        let world = with_taken(AdmissionMode::Enforce, 100);
        world.enforce(&[reads_name()]);
        let got = create(&world).await;
        let all = names(&world);
        assert_eq!((got.code, all.len()), (409, 8));
        assert!(got.message().contains(&all[7]), "{}", got.message());
    });
}

/// It is evaluated again under its other name.
#[test]
fn another_name_may_be_denied() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        let first = Rc::new(RefCell::new(String::new()));
        let seen = Rc::clone(&first);
        let policies = Rc::new(RefCell::new(None));
        let published = Rc::clone(&policies);
        world.inside.answer = Rc::new(move |sent: &Sent| {
            let object: Value = serde_json::from_slice(&sent.body).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap();
            name.clone_into(&mut seen.borrow_mut());
            let publish: Box<dyn Fn()> = published.borrow_mut().take().unwrap();
            publish();
            taken_name(name)
        });
        let expression = "params.data.open == 'yes' || request.name == ''";
        let mut keep = policy("p", " configmaps", expression);
        keep["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        keep["paramRef"] = json!({"name": "state", "parameterNotFoundAction": "Deny"});
        world.enforce(&[keep]);
        let param = |open: &str| json!({"metadata": {"namespace": "ns", "name": "state"}, "data": {"open": open}});
        world.cluster.params.lock().unwrap().push(param("yes"));
        let (cluster, closed) = (world.cluster.clone(), param("no"));
        *policies.borrow_mut() = Some(Box::new(move || {
            *cluster.params.lock().unwrap() = vec![closed.clone()];
        }) as Box<dyn Fn()>);
        let got = create(&world).await;
        assert_eq!((got.code, world.sent().len()), (422, 1), "{got:?}");
        assert!(!got.message().contains(&*first.borrow()));
    });
}

#[test]
fn other_conflicts_are_the_clients() {
    World::run(|| async {
        for (reason, name) in [("Conflict", None), ("AlreadyExists", Some("other"))] {
            let mut world = World::new(AdmissionMode::Enforce);
            world.inside.answer = Rc::new(move |sent: &Sent| {
                let object: Value = serde_json::from_slice(&sent.body).unwrap();
                let own = object["metadata"]["name"].as_str().unwrap();
                let response = taken_name(name.unwrap_or(own));
                response.map(|text| text.replace("AlreadyExists", reason))
            });
            world.enforce(&[reads_name()]);
            let got = create(&world).await;
            assert_eq!((got.code, world.sent().len()), (409, 1));
            assert_eq!(got.json()["reason"], reason);
        }
    });
}

#[test]
fn a_name_that_no_policy_reads_is_left_to_the_server() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "object.data.a == 'b'")]);
        assert_eq!(create(&world).await.code, 200);
        assert_eq!(world.sent()[0].body, unnamed().to_string());
        assert_eq!(world.records.all()[0].request.name, "");
        let mut body = unnamed();
        body["data"]["a"] = json!("c");
        let denied = world.json("POST", MAPS, &body).await;
        let message = denied.message();
        let name = message
            .strip_prefix("configmaps \"m-")
            .and_then(|rest| rest.split_once("\" is forbidden"));
        assert!(
            name.is_some_and(|(suffix, _)| suffix.len() == 5),
            "{message}"
        );
    });
}

#[test]
fn protobuf_gets_a_name_too() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        let asked = Rc::new(RefCell::new(0));
        let count = Rc::clone(&asked);
        world.inside.answer = Rc::new(move |sent: &Sent| {
            let name = decoded(&sent.body)["metadata"]["name"].clone();
            *count.borrow_mut() += 1;
            if *count.borrow() == 1 {
                return taken_name(name.as_str().unwrap());
            }
            Response::new("{}".to_owned())
        });
        world.enforce(&[reads_name()]);
        let body: Bytes = sealed(&unnamed()).into();
        let call = world.call("POST", MAPS, PROTOBUF, body);
        let got = world.send(call).await;
        assert_eq!((got.code, *asked.borrow()), (200, 2), "{got:?}");
        let sent = world.sent();
        let objects: Vec<_> = sent.iter().map(|one| decoded(&one.body)).collect();
        let name = |at: usize| &objects[at]["metadata"]["name"];
        assert_ne!(name(0), name(1));
        assert_eq!(objects[1]["metadata"]["generateName"], "m-");
        assert_eq!(objects[1]["data"], json!({"a": "b"}));
        assert_eq!(sent[1].headers["content-type"], PROTOBUF);
        assert_eq!(*name(1), world.records.all()[0].request.name);
    });
}

fn sealed(object: &Value) -> Vec<u8> {
    let message = protobuf::encode(&core_v1::CONFIG_MAP, object);
    envelope::seal("v1", "ConfigMap", &message)
}

fn decoded(body: &[u8]) -> Value {
    let opened = envelope::open(body).unwrap();
    protobuf::decode(&core_v1::CONFIG_MAP, opened.raw).unwrap()
}

/// The controllers of Kubernetes ask for protobuf.
#[test]
fn a_taken_name_is_recognized_in_protobuf() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Enforce);
        let asked = Rc::new(RefCell::new(0));
        let count = Rc::clone(&asked);
        world.inside.answer = Rc::new(move |sent: &Sent| {
            let object: Value = serde_json::from_slice(&sent.body).unwrap();
            *count.borrow_mut() += 1;
            if *count.borrow() == 2 {
                return Response::new("{}".to_owned());
            }
            let name = object["metadata"]["name"].as_str().unwrap();
            let mut status: Value = serde_json::from_str(taken_name(name).body()).unwrap();
            // Its bytes are text then.
            (status["message"], status["code"]) = (json!("taken"), json!(9));
            let message = protobuf::encode(&meta_v1::STATUS, &status);
            let body = envelope::seal("v1", "Status", &message);
            let text = String::from_utf8(body).expect("the lengths are below 128");
            Response::builder().status(409).body(text).unwrap()
        });
        world.enforce(&[reads_name()]);
        let got = create(&world).await;
        assert_eq!((got.code, world.sent().len()), (200, 2), "{got:?}");
    });
}

#[test]
fn the_dry_run_and_the_write_have_the_same_name() {
    World::run(|| async {
        let world = with_taken(AdmissionMode::Enforce, 0);
        let mut one = reads_name();
        one["fidelity"] = json!("dryRun");
        world.enforce(&[one]);
        assert_eq!(create(&world).await.code, 200);
        let all = names(&world);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], all[1]);
    });
}

/// What changes nothing is not changed. The name is the one that the upstream generates.
#[test]
fn a_clients_dry_run_and_an_audited_request_stay_as_they_are() {
    World::run(|| async {
        for (mode, target) in [
            (AdmissionMode::Enforce, format!("{MAPS}?dryRun=All")),
            (AdmissionMode::Audit, MAPS.to_owned()),
        ] {
            for in_protobuf in [false, true] {
                if in_protobuf && mode == AdmissionMode::Enforce {
                    continue; // dry runs ask for JSON
                }
                let mut world = World::new(mode);
                world.inside.answer = Rc::new(move |sent: &Sent| {
                    let mut object: Value = serde_json::from_slice(&sent.body).unwrap();
                    object["metadata"]["name"] = json!("m-serve");
                    if in_protobuf {
                        return Response::new(String::from_utf8(sealed(&object)).unwrap());
                    }
                    Response::new(object.to_string())
                });
                let expression = "object.metadata.name == 'm-serve' && request.name == 'm-serve'";
                world.enforce(&[policy("p", " configmaps", expression)]);
                let got = world.json("POST", &target, &unnamed()).await;
                assert_eq!(got.code, 200, "{got:?}");
                assert_eq!(world.sent()[0].body, unnamed().to_string());
                assert_eq!(world.sent().len(), 1);
                world.records.at_least(1).await;
                let record = world.records.all().pop().unwrap();
                assert_eq!(record.decision, AdmissionDecision::Allowed, "{record:?}");
                assert_eq!(record.request.name, "m-serve");
            }
        }
    });
}

/// The server would have generated some name before it refuses the object.
#[test]
fn an_audited_request_that_is_refused_is_evaluated_under_another_name() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        world.inside.answer = Rc::new(|_: &Sent| {
            let response = Response::builder().status(403);
            response.body("{\"kind\":\"Status\"}".to_owned()).unwrap()
        });
        world.enforce(&[reads_name()]);
        assert_eq!(create(&world).await.code, 403);
        world.records.at_least(1).await;
        let record = world.records.all().pop().unwrap();
        assert_eq!(record.decision, AdmissionDecision::Allowed, "{record:?}");
    });
}

#[test]
fn the_label_of_a_namespace_has_its_generated_name() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let expression = "object.metadata.labels['kubernetes.io/metadata.name'].startsWith('n-') && !has(request.namespace)";
        world.enforce(&[policy("p", " namespaces", expression)]);
        let body = json!({"metadata": {"generateName": "n-"}});
        let got = world.json("POST", "/api/v1/namespaces", &body).await;
        assert_eq!(got.code, 200, "{got:?}");
        assert_eq!(names(&world)[0].len(), 7);
    });
}

/// Each is `generateName: admin-` to a server.
#[test]
fn however_a_prefix_is_written_policies_see_the_name() {
    World::run(|| async {
        for mode in [AdmissionMode::Enforce, AdmissionMode::Audit] {
            for (media, body) in [
                (
                    "application/json",
                    r#"{"metadata":{"generate\u004eame":"admin-"}}"#,
                ),
                (
                    "application/json",
                    r#"{"metadata":{"generateName":"admin-","name":""}}"#,
                ),
                ("application/yaml", "metadata: {generateName: admin-}"),
                (
                    "application/yaml",
                    "metadata: {\"generate\\x4eame\": admin-}",
                ),
            ] {
                let world = World::new(mode);
                let of_admins = "request.name.startsWith('admin-')";
                let expression =
                    format!("{of_admins} != {of_admins} || object.metadata.name != request.name");
                world.enforce(&[policy("p", " configmaps", &expression)]);
                let call = world.call("POST", MAPS, media, body.into());
                let got = world.send(call).await;
                let expected = if mode == AdmissionMode::Enforce {
                    422
                } else {
                    200
                };
                assert_eq!(got.code, expected, "{body}: {got:?}");
                world.records.at_least(1).await;
                let record = world.records.all().pop().unwrap();
                assert_eq!(record.decision, AdmissionDecision::Denied, "{body}");
                assert!(
                    record.request.name.starts_with("admin-"),
                    "{body}: {record:?}"
                );
            }
        }
    });
}

#[test]
fn the_name_in_a_table_is_that_of_the_object() {
    World::run(|| async {
        let mut world = World::new(AdmissionMode::Audit);
        world.inside.answer = Rc::new(|_: &Sent| {
            let row = json!({"cells": [], "object": {"metadata": {"name": "m-serve"}}});
            Response::new(json!({"kind": "Table", "rows": [row]}).to_string())
        });
        world.enforce(&[policy("p", " configmaps", "request.name == 'm-serve'")]);
        assert_eq!(create(&world).await.code, 200);
        world.records.at_least(1).await;
        let record = world.records.all().pop().unwrap();
        assert_eq!(record.decision, AdmissionDecision::Allowed, "{record:?}");
    });
}

#[test]
fn a_guarded_creation_is_tried_with_another_name() {
    World::run(|| async {
        let mut world = World::guarded();
        world.inside.answer = with_taken(AdmissionMode::Enforce, 2).inside.answer;
        world.enforce(&[reads_name()]);
        let got = create(&world).await;
        assert_eq!((got.code, world.sent().len()), (200, 3), "{got:?}");
        assert_eq!(world.records.all().len(), 1);
    });
}

/// It has a name, so it is in itself, as in a server.
#[test]
fn a_prefix_does_not_hide_the_namespace_of_a_namespace() {
    World::run(|| async {
        for target in ["/api/v1/namespaces", "/api/v1/namespaces?dryRun=All"] {
            for fidelity in ["completed", "dryRun"] {
                let mut world = World::new(AdmissionMode::Enforce);
                world.inside.answer = Rc::new(|sent: &Sent| {
                    Response::new(String::from_utf8(sent.body.to_vec()).unwrap())
                });
                let mut one = policy("p", " namespaces", "request.namespace != 'prod'");
                one["fidelity"] = json!(fidelity);
                world.enforce(&[one]);
                let body = json!({"metadata": {"name": "prod", "generateName": "x-"}});
                let got = world.json("POST", target, &body).await;
                assert_eq!(got.code, 422, "{target} {fidelity}: {got:?}");
            }
        }
    });
}

/// A body that waits for a thread does not hold an audited request up.
#[test]
fn an_audited_request_is_forwarded_before_its_name_is_known() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Audit);
        world.enforce(&[reads_name()]);
        // Nobody evaluates it before it was answered.
        let mut body = unnamed();
        body["data"]["long"] = json!("x".repeat(1 << 20));
        assert_eq!(world.json("POST", MAPS, &body).await.code, 200);
        assert_eq!(world.sent().len(), 1);
        world.records.at_least(1).await;
        assert_eq!(world.records.all()[0].decision, AdmissionDecision::Allowed);
    });
}
