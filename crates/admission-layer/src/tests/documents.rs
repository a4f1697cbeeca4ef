//! What is evaluated is what is forwarded, however the body can be read.

use bytes::Bytes;
use fairgate_admission::AdmissionMode;
use fairgate_objects::{
    codec::{envelope, protobuf},
    schema::{core_v1, meta_v1},
};
use http::Response;
use serde_json::{Value, json};
use std::rc::Rc;

use super::world::{Got, Sent, World, policy};

const PODS: &str = "/api/v1/namespaces/ns/pods";
const POD: &str = "/api/v1/namespaces/ns/pods/p";
const APPLIED_POD: &str = "/api/v1/namespaces/ns/pods/p?fieldManager=me";
const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn world(mode: AdmissionMode, fidelity: &str) -> World {
    let mut policies = vec![
        policy("p", " pods", "!object.?spec.hostNetwork.orValue(false)"),
        policy("m", " configmaps", "!has(object.data.bad)"),
        policy("w", "x.io widgets", "!has(object.spec.bad)"),
    ];
    for one in &mut policies {
        one["fidelity"] = json!(fidelity);
        one["spec"]["matchConstraints"]["resourceRules"][0]["operations"] =
            json!(["CREATE", "UPDATE"]);
    }
    let world = World::new(mode);
    world.enforce(&policies);
    let stored = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    world.store(POD, stored);
    world
}

async fn send(world: &World, method: &str, target: &str, media: &str, body: &[u8]) -> Got {
    let call = world.call(method, target, media, Bytes::copy_from_slice(body));
    world.send(call).await
}

/// The only request that was forwarded since the last time: its body, and its content type.
fn forwarded(world: &World) -> (Value, String) {
    let mut sent = world.inside.sent.borrow_mut();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let one = sent.remove(0);
    let header = |name| {
        one.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    };
    if let Some(length) = one.headers.get("content-length") {
        assert_eq!(length.to_str().unwrap(), one.body.len().to_string());
    }
    let value =
        serde_json::from_slice(&one.body).unwrap_or_else(|_| json!(format!("{:?}", one.body)));
    (value, header("content-type").to_owned())
}

#[test]
fn yaml_that_go_reads_otherwise_is_refused() {
    World::run(|| async {
        let binary = "{spec: {!!binary aG9zdE5ldHdvcms=: true, containers: [{name: c, image: !!binary ZXZpbC94}]}}";
        for fidelity in ["asSent", "completed", "dryRun"] {
            let world = world(AdmissionMode::Enforce, fidelity);
            for (method, target, media) in [
                ("POST", PODS, YAML),
                ("PUT", POD, YAML),
                ("PATCH", APPLIED_POD, APPLY),
                ("POST", WIDGETS, YAML),
            ] {
                for body in [
                    binary,
                    "{yes: a, \"true\": b}",
                    "metadata: &a {name: p}\nx: *a\n",
                    "a: {<<: {b: c}}",
                    "? a\n: b\n",
                    "a: 1\n---\nb: 1\n",
                    "1.5: a",
                    "KIND: Pod",
                    "a: .inf",
                    "{",
                ] {
                    let got = send(&world, method, target, media, body.as_bytes()).await;
                    assert_eq!(got.code, 400, "{fidelity} {method} {media} {body}: {got:?}");
                    assert_eq!(got.reason(), "admission-malformed");
                }
            }
            assert!(world.sent().is_empty());
        }
    });
}

#[test]
fn yaml_is_forwarded_as_json_of_what_was_evaluated() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce, "completed");
        let yaml = b"metadata: {name: p}\nspec:\n  hostNetwork: no # YAML 1.1\n  priority: 010\n";
        let json =
            json!({"metadata": {"name": "p"}, "spec": {"hostNetwork": false, "priority": 8}});
        for (method, target) in [("POST", PODS), ("PUT", POD)] {
            assert_eq!(send(&world, method, target, YAML, yaml).await.code, 200);
            assert_eq!(forwarded(&world), (json.clone(), JSON.to_owned()));
        }
        let denied = b"metadata: {name: p}\nspec:\n  hostNetwork: yes\n";
        assert_eq!(send(&world, "POST", PODS, YAML, denied).await.code, 422);
        assert!(world.sent().is_empty());
    });
}

#[test]
fn json_is_forwarded_as_it_was_read() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce, "completed");
        let numbers =
            br#"{ "spec": {"a": 12345678901234567890, "b": 1.50, "c": 1e2, "d": "\u00e9"} }"#;
        assert_eq!(send(&world, "POST", WIDGETS, "", numbers).await.code, 200);
        let text = r#"{"spec":{"a":12345678901234567890,"b":1.50,"c":1e2,"d":"é"}}"#;
        assert_eq!(world.sent()[0].body, text);
        world.inside.sent.borrow_mut().clear();
        // Bytes that are not UTF-8 are what Go makes of them, also in what is forwarded.
        let bytes = b"{\"spec\": {\"a\": \"x\xff\"}}";
        assert_eq!(send(&world, "POST", WIDGETS, JSON, bytes).await.code, 200);
        assert_eq!(forwarded(&world).0, json!({"spec": {"a": "x\u{fffd}"}}));
        // Only the type of an object is looked for without regard to case.
        let kind = br#"{"KIND": "Secret", "spec": {}}"#;
        assert_eq!(send(&world, "POST", PODS, JSON, kind).await.code, 400);
        let case = br#"{"SPEC": {"hostNetwork": true}, "spec": {"HostNetwork": true}}"#;
        assert_eq!(send(&world, "POST", PODS, JSON, case).await.code, 200);
        assert_eq!(forwarded(&world).0["SPEC"], json!({"hostNetwork": true}));
    });
}

#[test]
fn duplicate_fields_are_evaluated_and_forwarded_once() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce, "completed");
        // Go's decoder merges both: the object has `bad`.
        let merged = br#"{"metadata":{"name":"m"},"data":{"bad":"x"},"data":{"good":"y"}}"#;
        let got = send(&world, "POST", MAPS, JSON, merged).await;
        assert_eq!(got.code, 422);
        assert_eq!(got.warnings(), [r#"299 - "duplicate field \"data\"""#]);
        // In objects of kinds without a table, the last one counts.
        let last = br#"{"spec":{"bad":1},"spec":{"good":[1,2.50]}}"#;
        for (query, warnings) in [("", 1), ("?fieldValidation=Ignore", 0)] {
            let target = format!("{WIDGETS}{query}");
            let got = send(&world, "POST", &target, JSON, last).await;
            assert_eq!((got.code, got.warnings().len()), (200, warnings), "{got:?}");
            assert_eq!(forwarded(&world).0, json!({"spec": {"good": [1, 2.50]}}));
        }
        let other = br#"{"metadata":{"name":"m"},"data":{"a":"x"},"data":{"b":"y"},"unknown":1}"#;
        let got = send(&world, "POST", MAPS, JSON, other).await;
        assert_eq!(
            got.warnings(),
            [
                r#"299 - "duplicate field \"data\"""#,
                r#"299 - "unknown field \"unknown\"""#
            ]
        );
        assert_eq!(forwarded(&world).0["data"], json!({"a": "x", "b": "y"}));
        let yaml = b"metadata: {name: m}\ndata: {a: x}\ndata: {b: z}\n";
        let got = send(&world, "POST", MAPS, YAML, yaml).await;
        assert_eq!(
            got.warnings(),
            [r#"299 - "line 3: key \"data\" already set in map""#]
        );
        assert_eq!(forwarded(&world).0["data"], json!({"b": "z"}));
    });
}

#[test]
fn strict_validation_refuses_duplicate_fields() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce, "completed");
        for (method, target, media, body, code, message) in [
            (
                "POST",
                MAPS,
                JSON,
                r#"{"data":{},"data":{}}"#,
                400,
                r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: duplicate field "data""#,
            ),
            (
                "POST",
                MAPS,
                YAML,
                "data: {}\ndata: {}\n",
                400,
                "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal \
                 errors:\n  line 2: key \"data\" already set in map",
            ),
            (
                "POST",
                WIDGETS,
                JSON,
                r#"{"spec":{},"spec":{}}"#,
                400,
                r#"strict decoding error: duplicate field "spec""#,
            ),
            (
                "PATCH",
                POD,
                MERGE,
                r#"{"spec":{},"spec":{}}"#,
                422,
                r#"strict decoding error: duplicate field "spec""#,
            ),
            (
                "PATCH",
                APPLIED_POD,
                APPLY,
                "spec: {}\nspec: {}\n",
                400,
                "error strict decoding YAML",
            ),
        ] {
            let join = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{join}fieldValidation=Strict");
            let got = send(&world, method, &target, media, body.as_bytes()).await;
            assert_eq!(got.code, code, "{got:?}");
            assert!(got.message().contains(message), "{}", got.message());
        }
        // An apply that fails for another reason does not say that.
        let is_dry = |target: &String| target.contains("dryRun=All");
        assert!(world.targets().iter().all(is_dry) && world.sent().len() == 1);
    });
}

#[test]
fn a_patch_stays_a_patch() {
    World::run(|| async {
        let mut world = world(AdmissionMode::Enforce, "completed");
        let labels = |value: &str| json!({"metadata": {"labels": {"a": value}}});
        for media in [MERGE, STRATEGIC] {
            let body = br#"{"metadata":{"labels":{"a":"x"}},"metadata":{"labels":{"a":"y"}}}"#;
            let got = send(&world, "PATCH", POD, media, body).await;
            assert_eq!(got.code, 200, "{got:?}");
            assert_eq!(got.warnings(), [r#"299 - "duplicate field \"metadata\"""#]);
            assert_eq!(forwarded(&world), (labels("y"), media.to_owned()));
        }
        let body = br#"[{"op":"test","op":"add","path":"/metadata/labels","value":{"a":"x"}}]"#;
        let got = send(&world, "PATCH", POD, JSON_PATCH, body).await;
        assert_eq!(
            got.warnings(),
            [r#"299 - "json patch duplicate field \"[0].op\"""#]
        );
        let operation = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "x"}}]);
        assert_eq!(forwarded(&world), (operation, JSON_PATCH.to_owned()));
        let nested = br#"[{"op":"add","path":"/metadata/labels","value":{"a":"x","a":"y"}}]"#;
        assert_eq!(
            send(&world, "PATCH", POD, JSON_PATCH, nested).await.code,
            400
        );
        // Numbers that the patched object would not hold as they are.
        let long = br#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":1.0000000000000000001}}}]}}"#;
        for media in [MERGE, STRATEGIC] {
            assert_eq!(send(&world, "PATCH", POD, media, long).await.code, 400);
        }
        // An apply is sent twice, the same each time.
        world.inside.answer = Rc::new(|_: &Sent| {
            Response::new(json!({"kind": "Pod", "apiVersion": "v1", "spec": {}}).to_string())
        });
        let target = format!("{POD}?fieldManager=me");
        let got = send(
            &world,
            "PATCH",
            &target,
            APPLY,
            b"metadata:\n  labels: {a: yes}\n",
        )
        .await;
        assert_eq!(got.code, 200, "{got:?}");
        let sent = world.sent();
        assert_eq!(sent.len(), 2);
        for one in sent {
            assert_eq!(one.body, r#"{"metadata":{"labels":{"a":true}}}"#);
            assert_eq!(one.headers["content-type"], APPLY);
        }
    });
}

#[test]
fn the_same_bytes_are_sent_twice() {
    World::run(|| async {
        let mut world = world(AdmissionMode::Enforce, "dryRun");
        world.inside.answer =
            Rc::new(|sent: &Sent| Response::new(String::from_utf8(sent.body.to_vec()).unwrap()));
        let yaml =
            b"kind: Pod\nmetadata: {name: p}\nspec: {hostNetwork: off}\nspec: {nodeName: one}\n";
        for (method, target) in [("POST", PODS), ("PUT", POD)] {
            let got = send(&world, method, target, YAML, yaml).await;
            assert_eq!(got.code, 200, "{got:?}");
            assert_eq!(
                got.warnings(),
                [r#"299 - "line 4: key \"spec\" already set in map""#]
            );
            let sent = world.sent();
            assert_eq!((sent.len(), &sent[0].body), (2, &sent[1].body));
            assert_eq!(
                sent[0].body,
                r#"{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"one"}}"#
            );
            assert!(sent.iter().all(|one| one.headers["content-type"] == JSON));
            world.inside.sent.borrow_mut().clear();
        }
    });
}

#[test]
fn the_options_of_a_deletion_are_what_was_evaluated() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce, "completed");
        let mut one = policy(
            "p",
            " pods",
            "request.dryRun == has(request.options.dryRun)",
        );
        one["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]);
        world.enforce(&[one]);
        let hidden = b"{dryRun: [!!binary QWxs]}";
        assert_eq!(send(&world, "DELETE", POD, YAML, hidden).await.code, 400);
        assert_eq!(
            send(&world, "DELETE", POD, YAML, b"dryRun: [All]")
                .await
                .code,
            200
        );
        assert_eq!(
            forwarded(&world),
            (json!({"dryRun": ["All"]}), JSON.to_owned())
        );
        let twice = br#"{"dryRun":["All"],"gracePeriodSeconds":5,"dryRun":["All"]}"#;
        let got = send(&world, "DELETE", POD, JSON, twice).await;
        assert!(got.warnings().is_empty());
        let options = forwarded(&world).0;
        assert_eq!(
            (&options["dryRun"], &options["gracePeriodSeconds"]),
            (&json!(["All"]), &json!(5))
        );
        let mut sealed = envelope::seal(
            "meta.k8s.io/v1",
            "DeleteOptions",
            &protobuf::encode(&meta_v1::DELETE_OPTIONS, &json!({"gracePeriodSeconds": 5})),
        );
        assert_eq!(
            send(&world, "DELETE", POD, PROTOBUF, &sealed).await.code,
            200
        );
        assert_eq!(world.sent()[0].body, sealed);
        sealed.extend([0x12, 0]);
        assert_eq!(
            send(&world, "DELETE", POD, PROTOBUF, &sealed).await.code,
            400
        );
    });
}

#[test]
fn protobuf_is_forwarded_as_it_came_or_refused() {
    World::run(|| async {
        for fidelity in ["asSent", "completed", "dryRun"] {
            let world = world(AdmissionMode::Enforce, fidelity);
            let sealed = envelope::seal("v1", "ConfigMap", b"\x0a\x03\x0a\x01\xff");
            let got = send(&world, "POST", MAPS, PROTOBUF, &sealed).await;
            assert_eq!(got.code, 400, "{fidelity}: {got:?}");
            let got = send(&world, "POST", WIDGETS, PROTOBUF, &sealed).await;
            assert_eq!(got.code, 415, "{fidelity}: {got:?}");
            assert!(world.sent().is_empty());
        }
        let world = world(AdmissionMode::Enforce, "completed");
        let message = protobuf::encode(
            &core_v1::CONFIG_MAP,
            &json!({"metadata": {"name": "m"}, "data": {"a": "b"}}),
        );
        let sealed = envelope::seal("v1", "ConfigMap", &message);
        assert_eq!(
            send(&world, "POST", MAPS, PROTOBUF, &sealed).await.code,
            200
        );
        assert_eq!(world.sent()[0].body, sealed);
        // A second metadata, and a field that ConfigMaps do not have.
        for more in [&[0x0a, 0][..], &[0xf8, 0x01, 1]] {
            let message = [&message[..], more].concat();
            let got = send(
                &world,
                "POST",
                MAPS,
                PROTOBUF,
                &envelope::seal("v1", "ConfigMap", &message),
            )
            .await;
            assert_eq!(got.code, 400, "{got:?}");
        }
        assert_eq!(world.sent().len(), 1);
    });
}

#[test]
fn what_is_not_enforced_is_not_touched() {
    World::run(|| async {
        let odd = b"{ \"metadata\": {\"name\": \"m\"}, \"data\": {}, \"data\": {} }";
        let audited = world(AdmissionMode::Audit, "completed");
        let got = send(&audited, "POST", MAPS, JSON, odd).await;
        assert!(got.warnings().is_empty());
        let enforced = world(AdmissionMode::Enforce, "completed");
        send(
            &enforced,
            "POST",
            "/api/v1/namespaces/ns/secrets",
            JSON,
            odd,
        )
        .await;
        for world in [audited, enforced] {
            assert_eq!(world.sent()[0].body, &odd[..]);
        }
    });
}

#[test]
fn a_document_that_grows_is_counted_and_bounded() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce, "completed");
        // A control character of one byte becomes an escape of six.
        let body = format!("{{\"data\": {{\"a\": \"{}\"}}}}", "\u{7f}".repeat(600_000));
        let got = send(&world, "POST", MAPS, JSON, body.as_bytes()).await;
        assert_eq!(got.code, 413, "{}", got.code);
        assert!(world.sent().is_empty());
    });
}

/// As in a server, where only storage makes null of an empty list.
#[test]
fn an_empty_list_is_no_null() {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/roles";
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let resource = "rbac.authorization.k8s.io roles";
        for (rules, expression) in [
            (json!([]), "object.rules == []"),
            (Value::Null, "object.rules == null"),
        ] {
            world.enforce(&[policy("p", resource, &format!("!({expression})"))]);
            let body = json!({"metadata": {"name": "r"}, "rules": rules});
            assert_eq!(world.json("POST", ROLES, &body).await.code, 422, "{rules}");
        }
    });
}
