//! What a server says before its policies, or beside their denial. `tests/cluster/admission_precedence.go` compares far more with a real one.

use fairgate_admission::{AdmissionDecision, AdmissionMode};
use serde_json::json;

use super::world::{Got, World, policy};

const MAPS: &str = "/api/v1/namespaces/ns/configmaps";
const MAP: &str = "/api/v1/namespaces/ns/configmaps/m";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A world with a stored object, in which a policy allows only what has the label `good`.
fn world(mode: AdmissionMode) -> World {
    let world = World::new(mode);
    let expression = "'good' in object.metadata.?labels.orValue({})";
    world.enforce(&[policy("p", " configmaps", expression)]);
    let stored = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "ns", "uid": "u", "resourceVersion": "7"}});
    world.store(MAP, stored);
    world
}

async fn send(world: &World, method: &str, target: &str, media: &str, body: &str) -> Got {
    world
        .send(world.call(method, target, media, body.to_owned().into()))
        .await
}

#[test]
fn a_denial_warns_of_unknown_and_duplicate_fields_in_the_order_of_the_body() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        let unknown = r#"{"metadata":{"name":"n","nope":1},"what":2}"#;
        let got = send(&world, "POST", MAPS, JSON, unknown).await;
        let warnings = [
            r#"299 - "unknown field \"metadata.nope\"""#,
            r#"299 - "unknown field \"what\"""#,
        ];
        assert_eq!((got.code, got.warnings()), (422, warnings.to_vec()));
        let patch = r#"{"data":{"a":"1","a":"2"},"what":2}"#;
        let got = send(&world, "PATCH", MAP, MERGE, patch).await;
        let warnings = [
            r#"299 - "duplicate field \"data.a\"""#,
            r#"299 - "unknown field \"what\"""#,
        ];
        assert_eq!((got.code, got.warnings()), (422, warnings.to_vec()));
        for query in ["?fieldValidation=Ignore", "?fieldValidation=x"] {
            let got = send(&world, "POST", &format!("{MAPS}{query}"), JSON, unknown).await;
            assert!(got.code == 422 && got.warnings().is_empty(), "{got:?}");
        }
    });
}

#[test]
fn strict_validation_refuses_unknown_fields_before_a_policy_does_and_leaves_them_to_the_upstream_otherwise()
 {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        let strict = format!("{MAPS}?fieldValidation=Strict");
        let got = send(
            &world,
            "POST",
            &strict,
            JSON,
            r#"{"metadata":{"name":"n"},"what":2}"#,
        )
        .await;
        let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"what\"";
        assert_eq!((got.code, &*got.message()), (400, message));
        assert!(world.sent().is_empty());
        // A newer upstream may know the field.
        let good = r#"{"metadata":{"name":"n","labels":{"good":"yes"}},"what":2}"#;
        let got = send(&world, "POST", &strict, JSON, good).await;
        assert_eq!((got.code, world.sent().len()), (200, 1));
    });
}

const NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";
const MODIFIED: &str = "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; please apply your changes to the latest version \
                        and try again";

/// Method, path and query after that of the collection, metadata of the body, and the response.
#[rustfmt::skip]
const FIRST: [(&str, &str, &str, u16, &str); 10] = [
    ("POST", "/m", r#"{"name":"m"}"#, 405, NOT_ALLOWED),
    ("POST", "/m", "", 405, NOT_ALLOWED),
    ("POST", "", r#"{"name":"n","namespace":"other"}"#, 400, "the namespace of the provided object does not match the namespace sent on the request"),
    ("POST", "", "{}", 422, "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
    ("POST", "?dryRun=x", "", 422, "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""),
    ("PUT", "/m", r#"{"name":"n"}"#, 400, "the name of the object (n) does not match the name on the URL (m)"),
    ("PUT", "/m", r#"{"name":"m","resourceVersion":"6"}"#, 409, MODIFIED),
    ("PATCH", "/m", r#"{"resourceVersion":"6"}"#, 409, MODIFIED),
    ("PATCH", "/m", r#"{"uid":"v"}"#, 422, "ConfigMap \"m\" is invalid: metadata.uid: Invalid value: \"v\": field is immutable"),
    ("PUT", "/none", r#"{"name":"none"}"#, 404, "configmaps \"none\" not found"),
];

#[test]
fn what_a_server_finds_out_first_comes_before_a_denial() {
    World::run(|| async {
        let world = world(AdmissionMode::Enforce);
        for (method, target, metadata, code, message) in FIRST {
            let media = if method == "PATCH" { MERGE } else { JSON };
            let target = format!("{MAPS}{target}");
            let body = format!("{{\"metadata\":{metadata}}}");
            let got = send(&world, method, &target, media, &body).await;
            let (found, expected) = ((got.code, &*got.message()), (code, message));
            assert_eq!(found, expected, "{method} {target} {body}");
        }
        assert!(world.sent().is_empty());
        // The records say so.
        let failed = AdmissionDecision::Failed;
        assert!(world.records.all().iter().all(|one| one.decision == failed));
        // The version of a body that policies allow is the upstream's matter.
        let old = r#"{"metadata":{"name":"m","resourceVersion":"6","labels":{"good":"yes"}}}"#;
        assert_eq!(send(&world, "PUT", MAP, JSON, old).await.code, 200);
    });
}

#[test]
fn what_a_server_finds_out_first_comes_without_the_warnings_of_policies() {
    World::run(|| async {
        let mut world = world(AdmissionMode::Enforce);
        let mut warning = policy("p", " configmaps", "false");
        warning["actions"] = json!(["Warn"]);
        world.enforce(&[warning]);
        // It may be there when the upstream looks.
        for (code, warnings) in [(404, 0), (200, 1)] {
            world.inside.answer = std::rc::Rc::new(move |_| {
                let body = json!({"kind": "Status", "code": code}).to_string();
                let response = http::Response::builder().status(code);
                response.body(body).unwrap()
            });
            let target = format!("{MAPS}/none");
            let body = r#"{"metadata":{"name":"none"}}"#;
            let got = send(&world, "PUT", &target, JSON, body).await;
            assert_eq!((got.code, got.warnings().len()), (code, warnings));
        }
    });
}
