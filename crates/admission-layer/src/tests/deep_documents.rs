//! Bodies that nest as deep as kube-apiserver lets them are evaluated and forwarded; deeper ones are refused in its words.
//!
//! All on half of the stack that a gateway's threads have.

use std::thread;

use bytes::Bytes;
use fairgate_admission::{AdmissionDecision, AdmissionMode};
use fairgate_base::stack::STACK_BYTES;
use fairgate_objects::codec::json::{self, MAX_DEPTH};
use serde_json::{Value, json};

use super::world::{Got, World, policy};

const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";
const WIDGET: &str = "/apis/x.io/v1/namespaces/ns/widgets/w";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.x.io";
const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// The object, or that which is deleted.
const IT: &str = "(object == null ? oldObject : object)";

/// What each level of a value begins and ends with.
const LEVELS: [(&str, &str); 3] = [
    ("[", "]"),
    (r#"{"a":"#, "}"),
    (r#"[0,{"a":"#, r#","b":1}]"#),
];

fn on_half_of_the_stack<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = thread::Builder::new().stack_size(STACK_BYTES / 2);
    let run = thread.spawn(|| World::run(test)).unwrap();
    if let Err(panic) = run.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A value of this depth, or one less.
fn nested((before, after): (&str, &str), depth: usize) -> String {
    let each = before.matches(['[', '{']).count();
    format!(
        "{}0{}",
        before.repeat(depth / each),
        after.repeat(depth / each)
    )
}

/// A widget whose specification has a value of this text.
fn widget(deep: &str) -> String {
    format!(
        r#"{{"apiVersion":"x.io/v1","kind":"Widget","metadata":{{"name":"w","resourceVersion":"1"}},"spec":{{"deep":{deep}}}}}"#
    )
}

fn world(mode: AdmissionMode) -> World {
    let world = World::new(mode);
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
    world.store(
        DEFINITION,
        json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"versions": [version]}}),
    );
    // They walk all of the object: they compare it, measure it, print it and flatten it.
    let of_widgets = |name, expression: &str| {
        let expression =
            format!("variables.it == variables.it && {expression}").replace("variables.it", IT);
        policy(name, "x.io widgets", &expression)
    };
    world.enforce(&[
        of_widgets("same", "dyn(variables.it.spec) == variables.it.spec"),
        of_widgets("old", "(oldObject == null || object == null || oldObject.spec.deep == object.spec.deep)"),
        of_widgets("listed", "variables.it.spec in [dyn(0), variables.it.spec] && [variables.it.spec].indexOf(variables.it.spec) == 0"),
        of_widgets("printed", "size('%s'.format([variables.it.spec])) > 0"),
        of_widgets("flat", "[dyn(variables.it.spec.deep)].flatten(20000).size() >= 0"),
        of_widgets("no", "!has(variables.it.spec.bad)"),
        policy("maps", " configmaps", "!has(object.bad)"),
    ]);
    world
}

async fn send(world: &World, method: &str, target: &str, media: &str, body: &str) -> Got {
    let call = world.call(
        method,
        target,
        media,
        Bytes::copy_from_slice(body.as_bytes()),
    );
    world.send(call).await
}

/// The body of the only request that was forwarded since the last time.
fn forwarded(world: &World) -> Value {
    let mut sent = world.inside.sent.borrow_mut();
    assert_eq!(sent.len(), 1);
    json::parse(&sent.remove(0).body).unwrap().value
}

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap().value
}

#[test]
fn deep_custom_resources_are_evaluated_and_forwarded() {
    on_half_of_the_stack(|| async {
        let world = world(AdmissionMode::Enforce);
        for level in LEVELS {
            let deep = nested(level, MAX_DEPTH - 2);
            let body = widget(&deep);
            let got = send(&world, "POST", WIDGETS, JSON, &body).await;
            assert_eq!(got.code, 200, "{}", String::from_utf8_lossy(&got.body));
            assert_eq!(forwarded(&world), value(&body));
            let bad = body.replace(r#""spec":{"#, r#""spec":{"bad":1,"#);
            assert_eq!(send(&world, "POST", WIDGETS, JSON, &bad).await.code, 422);

            world.store(WIDGET, value(&body));
            let got = send(&world, "PUT", WIDGET, JSON, &body).await;
            assert_eq!(got.code, 200, "{}", String::from_utf8_lossy(&got.body));
            assert_eq!(forwarded(&world), value(&body));

            let merge = format!(r#"{{"spec":{{"other":{deep}}}}}"#);
            let patch = format!(
                r#"[{{"op":"add","path":"/spec/other","value":{}}}]"#,
                nested(level, MAX_DEPTH - 4)
            );
            for (media, body) in [(MERGE, merge), (JSON_PATCH, patch)] {
                let got = send(&world, "PATCH", WIDGET, media, &body).await;
                assert_eq!(
                    got.code,
                    200,
                    "{media}: {}",
                    String::from_utf8_lossy(&got.body)
                );
                forwarded(&world);
            }
            let got = send(&world, "DELETE", WIDGET, JSON, "").await;
            assert_eq!(got.code, 200, "{}", String::from_utf8_lossy(&got.body));
            world.inside.sent.borrow_mut().clear();
        }
    });
}

#[test]
fn deep_parts_that_built_in_kinds_do_not_have_are_forwarded_as_they_are() {
    on_half_of_the_stack(|| async {
        let world = world(AdmissionMode::Enforce);
        for level in LEVELS {
            for place in ["unknown", "data"] {
                let deep = nested(level, MAX_DEPTH - 1);
                let body = format!(r#"{{"metadata":{{"name":"m"}},"{place}":{deep}}}"#);
                let got = send(&world, "POST", MAPS, JSON, &body).await;
                let (code, sent) = if place == "data" { (400, 0) } else { (200, 1) };
                assert_eq!(got.code, code, "{}", String::from_utf8_lossy(&got.body));
                assert_eq!(world.inside.sent.borrow_mut().drain(..).count(), sent);
            }
        }
        // In raw JSON, which the server reads once more: a set of fields for each level, which nobody has.
        let fields = nested(("{\"f:a\":", "}"), MAX_DEPTH - 5).replace(":0}", ":{}}");
        let owner = format!(
            r#"{{"manager":"x","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
        );
        let body = format!(r#"{{"metadata":{{"name":"m","managedFields":[{owner}]}}}}"#);
        let got = send(&world, "POST", MAPS, JSON, &body).await;
        assert_eq!(got.code, 200, "{}", String::from_utf8_lossy(&got.body));
        assert_eq!(forwarded(&world), value(&body));
    });
}

#[test]
fn deeper_bodies_are_refused_in_the_words_of_the_server() {
    on_half_of_the_stack(|| async {
        let world = world(AdmissionMode::Enforce);
        world.store(WIDGET, value(&widget("0")));
        for (level, open) in [(LEVELS[0], '['), (LEVELS[1], '{')] {
            for depth in [MAX_DEPTH - 1, MAX_DEPTH * 30] {
                let deep = nested(level, depth);
                let patch = format!(r#"[{{"op":"add","path":"/a","value":{deep}}}]"#);
                let why = format!("invalid character '{open}' exceeded max depth");
                for (method, target, media, body) in [
                    ("POST", WIDGETS, JSON, &widget(&deep)),
                    ("POST", MAPS, JSON, &widget(&deep)),
                    ("PUT", WIDGET, JSON, &widget(&deep)),
                    ("PATCH", WIDGET, MERGE, &widget(&deep)),
                    ("PATCH", WIDGET, JSON_PATCH, &patch),
                ] {
                    let got = send(&world, method, target, media, body).await;
                    assert_eq!(got.code, 400, "{method} {media}");
                    assert!(
                        got.message().contains(&why),
                        "{method} {media}: {}",
                        got.message()
                    );
                }
            }
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn deep_bodies_are_evaluated_in_audit_mode_too() {
    on_half_of_the_stack(|| async {
        let world = world(AdmissionMode::Audit);
        for (number, level) in LEVELS.into_iter().enumerate() {
            let body =
                widget(&nested(level, MAX_DEPTH - 2)).replace(r#""spec":{"#, r#""spec":{"bad":1,"#);
            let got = send(&world, "POST", WIDGETS, JSON, &body).await;
            assert_eq!(got.code, 200);
            world.records.at_least(number + 1).await;
            let decision = world.records.all().pop().unwrap().decision;
            assert_eq!(decision, AdmissionDecision::Denied, "{level:?}");
        }
    });
}
