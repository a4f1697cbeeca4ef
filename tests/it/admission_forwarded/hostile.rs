//! Hostile requests to a gateway that enforces policies.

use http::Method;
use serde_json::{Value, json};

use super::{MAPS, World, policy, policy_file};

const WIDGETS: &str = "/apis/x.io/v1/namespaces/ns/widgets";
const WIDGETS_DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.x.io";
const SECRETS: &str = "/api/v1/namespaces/ns/secrets";

/// A gateway with policies about all resources, some of which use as much as they may.
fn world(name: &str) -> World {
    let regex = "object.data.a.matches('(a*)*b')";
    let loops =
        "object.data.l.all(a, object.data.l.all(b, object.data.l.all(c, a == b || b == c)))";
    let all = [
        policy([
            "plain",
            "*",
            "object.metadata.name != 'denied'",
            "Deny",
            "completed",
        ]),
        policy(["regex", "configmaps", regex, "Warn", "completed"]),
        policy(["loops", "widgets", loops, "Deny", "asSent"]),
    ];
    let more = json!({"admission": {"mode": "enforce", "bodyBudget": "8Mi", "workers": 1,
        "policies": {"files": [policy_file(name)]}}});
    let world = World::with("enforce", name, &all, more);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
    world.store(WIDGETS_DEFINITION, json!({"spec": {"versions": [version]}}));
    world
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn bodies() -> Vec<(&'static str, &'static str, String, u16)> {
    let many = 1_000_000;
    let (json, yaml) = ("application/json", "application/yaml");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let nested = |open: &str, close: &str| format!("{}{}", open.repeat(many), close.repeat(many));
    let inside = format!("{{\"a\":{}}}", nested("[", "]"));
    vec![
        ("lists", json, nested("[", "]"), 400),
        ("objects", json, "{\"a\":".repeat(many / 2), 400),
        ("lists in an object", json, inside, 400),
        ("yaml lists", yaml, nested("[", "]"), 400),
        ("yaml blocks", yaml, "- ".repeat(many), 400),
        ("protobuf", protobuf, "k8s\0\x0a".repeat(1000), 400),
        ("too long", json, "x".repeat((3 << 20) + 1), 413),
        ("too long yaml", yaml, "x".repeat((3 << 20) + 1), 413),
        ("cbor", "application/cbor", "x".to_owned(), 415),
        ("text", "text/plain", "x".to_owned(), 415),
        ("no media type", "/;;/", "{}".to_owned(), 415),
        ("empty", json, String::new(), 400),
    ]
}

#[tokio::test]
async fn hostile_bodies_get_a_clear_status_and_are_not_forwarded() {
    let world = world("hostile-bodies");
    for (name, content_type, body, code) in bodies() {
        // A request that is refused before its body was sent may end its connection.
        let mut bob = world.gateway.user("bob").await;
        let headers = [("content-type", content_type)];
        let got = bob.ask(Method::POST, MAPS, &headers, body).await;
        assert_eq!(got.code, code, "{name}: {}", got.text());
        assert_eq!(got.json()["kind"], "Status", "{name}");
    }
    assert!(world.writes().is_empty());
}

/// The threads of a gateway have the stack for what a server takes, and for reading, patching, evaluating and dropping it.
#[tokio::test]
async fn bodies_as_deep_as_a_server_takes_them_are_evaluated_and_forwarded() {
    let world = world("deep-bodies");
    let (json, merge) = ("application/json", "application/merge-patch+json");
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        for (levels, is_refused) in [(9_996, false), (10_002, true)] {
            let times = levels / open.matches(['[', '{']).count();
            let deep = format!("{}0{}", open.repeat(times), close.repeat(times));
            let body = format!("{{\"metadata\":{{\"name\":\"w\"}},\"data\":{{\"l\":{deep}}}}}");
            for (method, path, content_type) in [
                (Method::POST, WIDGETS.to_owned(), json),
                (Method::POST, MAPS.to_owned(), json),
                (Method::PATCH, format!("{WIDGETS}/w"), merge),
            ] {
                let mut bob = world.gateway.user("bob").await;
                let headers = [("content-type", content_type)];
                let got = bob.ask(method, &path, &headers, body.clone()).await;
                let text = got.text();
                assert!(got.code < 500, "{path}: {text:.300}");
                assert_eq!(
                    text.contains("exceeded max depth"),
                    is_refused,
                    "{path}: {text:.300}"
                );
            }
        }
    }
    // The gateway still serves.
    let mut alice = world.alice().await;
    assert_eq!(alice.post(SECRETS, &secret("first")).await.code, 201);
}

#[tokio::test]
async fn requests_that_cost_as_much_as_they_may_do_not_keep_others_waiting() {
    let world = world("hostile-costs");
    let mut alice = world.alice().await;
    assert_eq!(alice.post(SECRETS, &secret("first")).await.code, 201);
    let long = json!({"metadata": {"name": "m"}, "data": {"a": "a".repeat(1 << 20)}});
    let list: Vec<u32> = (0..100_000).collect();
    let wide = json!({"metadata": {"name": "w"}, "data": {"l": list}});
    let mut attacks = Vec::new();
    for (path, body) in [
        (MAPS, &long),
        (WIDGETS, &wide),
        (MAPS, &long),
        (WIDGETS, &wide),
    ] {
        let mut bob = world.gateway.user("bob").await;
        let body = body.clone();
        attacks.push(tokio::spawn(async move { bob.post(path, &body).await }));
    }
    // One worker evaluates these; the core is free meanwhile.
    for number in 0..50 {
        let got = alice.post(SECRETS, &secret(&format!("m{number}"))).await;
        assert_eq!(got.code, 201, "{}", got.text());
    }
    for attack in attacks {
        let got = attack.await.unwrap();
        assert!([201, 422, 429].contains(&got.code), "{}", got.text());
        if got.code != 201 {
            assert_eq!(got.json()["kind"], "Status");
        }
    }
}

/// A user who keeps the worker busy brings about that policies are not evaluated in time. That is no error of theirs, which
/// `failurePolicy: Ignore` would pass over.
#[tokio::test]
async fn a_users_own_load_gets_no_forbidden_object_past_a_policy_that_ignores_errors() {
    let expression = "object.data.all(key, object.data[key] != 'evil')";
    let mut one = policy(["p", "configmaps", expression, "Deny", "completed"]);
    one[0]["spec"]["failurePolicy"] = json!("Ignore");
    let name = "hostile-load";
    let more = json!({"admission": {"mode": "enforce", "bodyBudget": "64Mi", "workers": 1,
        "policies": {"files": [policy_file(name)]}}});
    let world = World::with("enforce", name, &[one], more);
    let data = |keys: usize, last: &str| {
        let mut data: serde_json::Map<_, _> = (0..keys)
            .map(|number| (format!("key-{number:05}"), json!("value")))
            .collect();
        data.insert("last".to_owned(), json!(last));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data})
    };
    let large = data(24_000, "harmless").to_string();
    let json = [("content-type", "application/json")];
    let mut load = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (mut bob, body) = (world.gateway.user("bob").await, large.clone());
        load.spawn(async move { bob.ask(Method::POST, MAPS, &json, body).await.code });
    }
    let forbidden = data(1_700, "evil").to_string();
    assert!(forbidden.len() > 34_000, "{}", forbidden.len());
    let target = format!("{MAPS}?timeout=1s");
    let mut codes = Vec::new();
    for _ in 0..10 {
        let mut bob = world.gateway.user("bob").await;
        let body = forbidden.clone();
        let got = bob.ask(Method::POST, &target, &json, body).await;
        codes.push(got.code);
    }
    load.abort_all();
    assert!(
        codes.iter().all(|code| [422, 429, 504].contains(code)),
        "{codes:?}"
    );
    let writes = world.writes();
    let stored = writes.iter().filter(|write| write.contains("timeout"));
    assert_eq!(stored.count(), 0, "{writes:?}");
}
