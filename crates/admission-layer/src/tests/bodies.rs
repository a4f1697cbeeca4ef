//! Bodies in all formats, and hostile ones.

use fairgate_admission::AdmissionMode;
use std::{pin::pin, sync::mpsc};

use bytes::Bytes;
use fairgate_gotext::LONGEST_MEDIA_TYPE;
use fairgate_objects::{
    codec::{envelope, protobuf, yaml},
    schema::core_v1,
};
use serde_json::{Value, json};

use super::world::{World, policy};
use crate::limits::workers::LARGE;

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";

#[test]
fn g10_bodies_are_read_in_every_format() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let expression = "object.kind == 'ConfigMap' && object.data.a == 'x' && object.metadata.namespace == 'ns'";
        world.enforce(&[policy("p", " configmaps", expression)]);
        for (value, code) in [("x", 200), ("y", 422)] {
            let body = json!({"metadata": {"name": "m"}, "data": {"a": value}});
            let sealed = protobuf::encode(&core_v1::CONFIG_MAP, &body);
            for (content_type, bytes) in [
                ("application/json", body.to_string().into_bytes()),
                (
                    "application/json; charset=utf-8",
                    body.to_string().into_bytes(),
                ),
                ("", body.to_string().into_bytes()),
                ("application/yaml", yaml::encode(&body).into_bytes()),
                (
                    "application/vnd.kubernetes.protobuf",
                    envelope::seal("v1", "ConfigMap", &sealed),
                ),
            ] {
                let call = world.call("POST", MAPS, content_type, bytes.into());
                let got = world.send(call).await;
                assert_eq!(got.code, code, "{content_type}: {got:?}");
            }
        }
    });
}

#[test]
fn unknown_content_types_are_refused_only_if_a_policy_may_match() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[
            policy("p", " configmaps", "true"),
            policy("q", "x.io widgets", "true"),
        ]);
        for (path, content_type, code) in [
            (MAPS, "application/cbor", 415),
            (MAPS, "text/plain", 415),
            (WIDGETS, "application/vnd.kubernetes.protobuf", 415),
            ("/api/v1/namespaces/ns/secrets", "application/cbor", 200),
        ] {
            let call = world.call("POST", path, content_type, "x".into());
            let got = world.send(call).await;
            assert_eq!(got.code, code, "{path} {content_type}: {got:?}");
        }
    });
}

/// A server reads the media type however long it is, so what is forwarded would be carried out.
#[test]
fn in_either_mode_a_write_whose_media_type_is_too_long_to_be_read_is_refused() {
    for mode in [AdmissionMode::Audit, AdmissionMode::Enforce] {
        World::run(|| async {
            let world = World::new(mode);
            world.enforce(&[policy("p", " configmaps", "false")]);
            let map = format!("{MAPS}/m");
            world.store(&map, json!({"metadata": {"name": "m"}, "data": {}}));
            for (method, path, kind) in [
                ("POST", MAPS, "application/json"),
                ("PUT", &map, "application/json"),
                ("PATCH", &map, "application/merge-patch+json"),
                ("PATCH", &map, "application/apply-patch+yaml"),
                ("DELETE", &map, "application/json"),
                ("DELETE", MAPS, "application/json"),
            ] {
                let long = format!("{kind};a={}", "a".repeat(LONGEST_MEDIA_TYPE));
                let call = world.call(method, path, &long, "{}".into());
                let got = world.send(call).await;
                let found = (got.code, got.reason());
                assert_eq!(
                    found,
                    (415, "admission-malformed"),
                    "{mode:?} {method} {kind}"
                );
                let failure = world.records.all().pop().map(|record| record.failure);
                assert_eq!(failure.as_deref(), Some("admission-malformed (415)"));
            }
            assert!(world.sent().is_empty(), "{:?}", world.targets());
        });
    }
}

/// A dry run of it would be taken for one of an ordinary patch. Where there is a body, that was refused before.
#[test]
fn a_server_side_apply_whose_media_type_is_too_long_to_be_read_is_not_tried() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy("p", " configmaps", "true");
        one["fidelity"] = json!("dryRun");
        world.enforce(&[one]);
        let map = format!("{MAPS}/m");
        world.store(&map, json!({"metadata": {"name": "m"}, "data": {}}));
        let apply = "application/apply-patch+yaml";
        let long = format!("{apply};a={}", "a".repeat(LONGEST_MEDIA_TYPE));
        let target = format!("{map}?fieldManager=f");
        let got = world.send(world.call("PATCH", &target, &long, Bytes::new()));
        let got = got.await;
        assert_eq!((got.code, got.reason()), (415, "admission-malformed"));
        assert!(world.sent().is_empty(), "{:?}", world.targets());
    });
}

/// Connections to objects have no body, and nothing reads its type.
#[test]
fn the_media_type_of_a_connection_may_be_of_any_length() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " pods/exec", "true")]);
        let long = format!("a/b;a={}", "a".repeat(LONGEST_MEDIA_TYPE));
        let target = "/api/v1/namespaces/ns/pods/p/exec?command=date";
        let call = world.call("POST", target, &long, Bytes::new());
        assert_eq!(world.send(call).await.code, 200);
    });
}

#[test]
fn hostile_bodies_get_a_clear_status() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[
            policy("p", " configmaps", "true"),
            policy("q", "x.io widgets", "true"),
        ]);
        let deep = format!("{}{}", "{\"a\":".repeat(1_000_000), "}".repeat(1_000_000));
        let list = format!("[{}]", "[".repeat(1_000_000));
        for path in [MAPS, WIDGETS] {
            for (body, code) in [
                ("{".to_owned(), 400),
                ("[]".to_owned(), 400),
                (deep[..3_000_000].to_owned(), 400),
                (list.clone(), 400),
                ("x".repeat((3 << 20) + 1), 413),
            ] {
                let shown = &body[..body.len().min(20)];
                for content_type in ["application/json", "application/yaml"] {
                    let call = world.call("POST", path, content_type, body.clone().into());
                    let got = world.send(call).await;
                    assert_eq!(got.code, code, "{path} {content_type} {shown}: {got:?}");
                    assert_eq!(got.json()["kind"], "Status");
                }
            }
        }
        assert!(world.sent().is_empty());
    });
}

#[test]
fn large_bodies_are_read_on_worker_threads() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "true")]);
        let (end, ends) = mpsc::channel::<()>();
        let workers = &world.layer.side().unwrap().evaluator.workers;
        let held = workers.run("bob", 0, move || ends.recv());
        let broken = |length| {
            let body = "[".repeat(length).into();
            world.send(world.call("POST", MAPS, "application/json", body))
        };
        let mut large = pin!(broken(LARGE + 1));
        let large_and_small = async {
            let got = tokio::select! {
                biased;
                got = &mut large => panic!("the only thread is held, but: {got:?}"),
                got = broken(2) => got,
            };
            assert_eq!(got.code, 400, "it is read on the core");
            end.send(()).unwrap();
            large.await
        };
        let (held, got) = tokio::join!(held, large_and_small);
        held.unwrap().unwrap();
        assert_eq!(got.code, 400);
    });
}

#[test]
fn a_member_that_is_there_twice_hides_nothing() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        for fidelity in ["asSent", "completed"] {
            let mut one = policy("p", " configmaps", "!has(object.data.bad)");
            one["fidelity"] = json!(fidelity);
            world.enforce(&[one]);
            // Go's decoder merges both values into one map.
            let body = r#"{"metadata":{"name":"m"},"data":{"bad":"x"},"data":{"good":"y"}}"#;
            let call = world.call("POST", MAPS, "application/json", Bytes::from(body));
            assert_eq!(world.send(call).await.code, 422, "{fidelity}");
        }
    });
}

#[test]
fn without_memory_for_a_body_the_client_retries() {
    World::run(|| async {
        let world = World::with_budget(AdmissionMode::Enforce, 1000);
        world.enforce(&[policy("p", " configmaps", "true")]);
        let body = json!({"metadata": {"name": "m"}, "data": {"a": "x".repeat(1000)}});
        let got = world.json("POST", MAPS, &body).await;
        assert_eq!((got.code, got.reason()), (429, "admission-memory"));
        assert_eq!(got.headers["retry-after"], "1");
        let body = json!({"metadata": {"name": "m"}});
        for _ in 0..50 {
            assert_eq!(
                world.json("POST", MAPS, &body).await.code,
                200,
                "memory is returned"
            );
        }
    });
}

#[test]
fn what_is_read_for_a_request_counts_in_the_budget_too() {
    World::run(|| async {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "m"}, "data": {"a": "x".repeat(1000)}});
        let named = format!("{MAPS}/m");
        for mode in [AdmissionMode::Enforce, AdmissionMode::Audit] {
            let mut world = World::with_budget(mode, 1000);
            let mut one = policy("p", " configmaps", "true");
            world.enforce(std::slice::from_ref(&one));
            world.store(&named, map.clone());
            world.store(
                MAPS,
                json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [map]}),
            );
            let expected = match mode {
                AdmissionMode::Enforce => (429, "admission-memory"),
                AdmissionMode::Audit => (200, ""),
            };
            for (method, path) in [("PATCH", &*named), ("DELETE", &named), ("DELETE", MAPS)] {
                let got = world.json(method, path, &json!({})).await;
                assert_eq!((got.code, got.reason()), expected, "{method} {path}");
            }
            if mode == AdmissionMode::Enforce {
                one["fidelity"] = json!("dryRun");
                world.enforce(&[one]);
                let large = map.to_string();
                world.inside.answer = std::rc::Rc::new(move |_| http::Response::new(large.clone()));
                let body = json!({"metadata": {"name": "m"}});
                let got = world.json("POST", MAPS, &body).await;
                assert_eq!((got.code, got.reason()), expected, "dry run");
            }
        }
    });
}

#[test]
fn a_page_that_is_too_long_is_read_in_parts() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy(
            "p",
            " configmaps",
            "oldObject.metadata.name != 'i9'",
        )]);
        let item = |number: u32| json!({"metadata": {"name": format!("i{number}")}, "data": {"a": "x".repeat(1 << 20)}});
        let list = |count: u32| {
            let items: Vec<_> = (0..count).map(item).collect();
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": items})
        };
        // Twelve MiB are more than is read at once.
        for (count, code) in [(9, 200), (12, 422)] {
            world.store(MAPS, list(count));
            let got = world.json("DELETE", MAPS, &serde_json::Value::Null).await;
            assert_eq!(got.code, code, "{count}: {:?}", got.headers);
        }
    });
}

#[test]
fn evaluating_ends_soon_after_the_deadline_of_the_request() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        let mut one = policy("p", " configmaps", "true");
        one["fidelity"] = json!("dryRun");
        // It has no say in a lack of time, which a client can bring about.
        one["spec"]["failurePolicy"] = json!("Ignore");
        world.enforce(&[one]);
        // The dry run is not answered as long as nothing is recorded.
        world.inside.answers_after.set(1);
        let body = json!({"metadata": {"name": "m"}}).to_string();
        let mut call = world.call("POST", MAPS, "application/json", body.into());
        call.deadline = Some(call.received);
        let got = world.send(call).await;
        assert_eq!((got.code, got.reason()), (504, "admission-failed"));
        assert!(got.message().ends_with("in time"), "{got:?}");
    });
}

#[test]
fn paths_that_a_server_may_clean_cannot_pass_by_policies() {
    World::run(|| async {
        let world = World::new(AdmissionMode::Enforce);
        world.enforce(&[policy("p", " configmaps", "false")]);
        let body = json!({"metadata": {"name": "m"}});
        for path in [
            "//api/v1/namespaces/ns/configmaps",
            "/api/v1/namespaces//ns/configmaps",
            "/api/v1/namespaces/ns/pods/../configmaps",
            "/x/../api/v1/namespaces/ns/./configmaps",
        ] {
            let got = world.json("POST", path, &body).await;
            assert!(got.code == 404 || got.code == 422, "{path}: {got:?}");
        }
        assert!(world.sent().is_empty());
        // A GET of what is behind an object is a connection.
        world.enforce(&[policy("p", " pods/proxy", "false")]);
        for path in [
            "/api/v1/namespaces/ns//pods/p/proxy/admin",
            "/api/v1/namespaces/ns/x/../pods/p/proxy",
            "/api/v1/namespaces/ns/./pods/p/exec/../proxy",
        ] {
            let got = world.json("GET", path, &Value::Null).await;
            assert!(got.code == 404 || got.code == 422, "{path}: {got:?}");
        }
        assert!(world.sent().is_empty());
        let read = "/api/v1/namespaces/ns//pods/p";
        assert_eq!(world.json("GET", read, &Value::Null).await.code, 200);
        world.inside.sent.borrow_mut().clear();
        world.enforce(&[policy("p", " configmaps", "false")]);
        let proxied = "/api/v1/namespaces/ns/services/s/proxy//a/../b";
        assert_eq!(world.json("POST", proxied, &body).await.code, 200);
    });
}
