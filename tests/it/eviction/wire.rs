//! Bodies, formats, methods and paths.

use fairgate_objects::codec;
use http::Method;
use serde_json::{Value, json};

use super::{
    GRANTED,
    cluster::{Cluster, budget, pod},
    gateway::{Gateway, eviction, path},
};

#[tokio::test]
async fn w01_all_versions_and_formats_of_the_body_get_the_same_response() {
    let cluster = Cluster::start()
        .with_ready_pods(1)
        .with_budget(budget(1, 2, 1));
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    for version in ["policy/v1", "policy/v1beta1", ""] {
        let mut body = json!({"metadata": {"name": "p0"}});
        if !version.is_empty() {
            body["apiVersion"] = json!(version);
            body["kind"] = json!("Eviction");
        }
        let target = format!("{}?dryRun=All", path("p0"));
        let json = alice.post(&target, &body).await;
        assert_eq!((json.code, &*json.text()), (201, GRANTED), "{version}");
        assert_eq!(json.header("content-type"), "application/json");
        assert_eq!(json.header("x-fairgate-reason"), "");
        assert_eq!(json.header("audit-id").len(), 36);
        let yaml = [("content-type", "application/yaml")];
        let text = codec::yaml::encode(&body);
        let yaml = alice.ask(Method::POST, &target, &yaml, text).await;
        assert_eq!((yaml.code, &*yaml.text()), (201, GRANTED), "{version}");
    }
    // An `Eviction` with `metadata.name`, as protobuf.
    let message = b"\x0a\x04\x0a\x02p0";
    let sealed = codec::envelope::seal("policy/v1", "Eviction", message);
    let kind = "application/vnd.kubernetes.protobuf";
    let headers = [("content-type", kind), ("accept", kind)];
    let target = format!("{}?dryRun=All", path("p0"));
    let got = alice.ask(Method::POST, &target, &headers, sealed).await;
    assert_eq!((got.code, got.header("content-type")), (201, kind));
    assert!(got.body.starts_with(b"k8s\0"));
    // The deletions are dry runs.
    assert_eq!(cluster.writes(), cluster.count("DELETE pod"));
    assert_eq!((cluster.allowed("foo"), cluster.pods()), (1, 1));
}

#[tokio::test]
async fn w02_other_versions_are_refused() {
    let cluster = Cluster::start().with_ready_pods(1);
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut body = eviction("p0", &Value::Null);
    body["apiVersion"] = json!("policy/v2");
    let got = gateway.alice().await.post(&path("p0"), &body).await;
    assert_eq!(
        (got.code, &got.json()["reason"]),
        (400, &json!("BadRequest"))
    );
    assert!(got.text().contains("policy/v2"), "{}", got.text());
    assert_eq!(cluster.pods(), 1);
}

#[tokio::test]
async fn w03_the_subresource_is_write_only() {
    let cluster = Cluster::start().with_ready_pods(1);
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    let json = "application/json";
    let requests = [
        (Method::GET, ""),
        (Method::PUT, json),
        (Method::DELETE, json),
        (Method::PATCH, ""),
        (Method::PATCH, json),
        (Method::PATCH, "application/json-patch+json"),
        (Method::PATCH, "application/merge-patch+json"),
        (Method::PATCH, "application/strategic-merge-patch+json"),
        (Method::PATCH, "application/apply-patch+yaml"),
        (Method::PATCH, "application/apply-patch+cbor"),
    ];
    for (method, content_type) in requests {
        let headers = [("content-type", content_type)];
        let headers = if content_type.is_empty() {
            &[][..]
        } else {
            &headers[..]
        };
        let body = if headers.is_empty() { "" } else { "{}" };
        let got = alice.ask(method.clone(), &path("p0"), headers, body).await;
        assert_eq!(got.code, 405, "{method} {content_type}");
        assert_eq!(got.json()["reason"], "MethodNotAllowed");
    }
    assert_eq!((cluster.pods(), cluster.writes()), (1, 0));
}

#[tokio::test]
async fn e25_to_e28_invalid_evictions_are_refused_before_anything_is_read() {
    let cluster = Cluster::start()
        .with_ready_pods(1)
        .with_budget(budget(1, 2, 1));
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    let named = |name: &str| json!({"metadata": {"name": name}});
    let options = |options: Value| eviction("p0", &options);
    let unsafe_option = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let mismatch = "name in URL does not match name in Eviction object";
    let unreadable = "Eviction in version \"v1\" cannot be handled";
    let cases = [
        ("", named("other"), 400, mismatch),
        ("", named(""), 400, mismatch),
        (
            "",
            json!({"metadata": {"name": "p0", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "?dryRun=All",
            options(json!({"dryRun": ["x"]})),
            500,
            "Non-matching dry-run options in request and content: [All] and [x]",
        ),
        (
            "",
            options(json!({unsafe_option: true})),
            422,
            "Eviction.policy \"p0\" is invalid: ",
        ),
        (
            "?dryRun=x",
            named("p0"),
            422,
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: ",
        ),
        (
            "?fieldValidation=x",
            named("p0"),
            422,
            "CreateOptions.meta.k8s.io \"\" is invalid: ",
        ),
        ("", json!({"metadata": {"name": 7}}), 400, unreadable),
        ("", options(json!([])), 400, unreadable),
    ];
    for (query, body, code, message) in cases {
        let got = alice.post(&format!("{}{query}", path("p0")), &body).await;
        assert_eq!(got.code, code, "{body}: {}", got.text());
        let text = got.json()["message"].as_str().unwrap().to_owned();
        assert!(text.starts_with(message), "{text}");
        assert_eq!(got.header("retry-after"), "");
        assert!(!got.header("x-fairgate-reason").is_empty());
    }
    only_reviews_were_sent(&cluster);
}

/// Nothing was read from the upstream or written to it.
fn only_reviews_were_sent(cluster: &Cluster) {
    let only_reviews = cluster.seen().iter().all(|what| what == "POST review");
    assert!(only_reviews, "{:?}", cluster.seen());
}

#[tokio::test]
async fn e29_bodies_that_cannot_be_read_are_refused_before_anything_is_read() {
    let cluster = Cluster::start()
        .with_ready_pods(1)
        .with_budget(budget(1, 2, 1));
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    let kind = [("content-type", "text/html")];
    let got = alice.ask(Method::POST, &path("p0"), &kind, "x").await;
    assert_eq!(
        (got.code, &got.json()["reason"]),
        (415, &json!("UnsupportedMediaType"))
    );
    let huge = vec![b' '; (3 << 20) + 1];
    let kind = [("content-type", "application/json")];
    let got = alice.ask(Method::POST, &path("p0"), &kind, huge).await;
    assert_eq!(
        (got.code, &got.json()["reason"]),
        (413, &json!("RequestEntityTooLarge"))
    );
    let mut alice = gateway.alice().await;
    let accept = [
        ("content-type", "application/json"),
        ("accept", "text/html"),
    ];
    let got = alice.ask(Method::POST, &path("p0"), &accept, "{}").await;
    assert_eq!(got.code, 406);
    only_reviews_were_sent(&cluster);
}

#[tokio::test]
async fn unknown_fields_are_warned_about_or_refused() {
    let cluster = Cluster::start().with_ready_pods(1);
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    let mut body = eviction("p0", &json!({"dryRun": ["All"]}));
    body["spec"] = json!(1);
    let got = alice.post(&path("p0"), &body).await;
    assert_eq!(
        (got.code, got.header("warning")),
        (201, "299 - \"unknown field \\\"spec\\\"\"")
    );
    let strict = format!("{}?fieldValidation=Strict", path("p0"));
    let got = alice.post(&strict, &body).await;
    assert_eq!(got.code, 400);
    assert!(got.text().contains("strict decoding error: unknown field"));
}

#[tokio::test]
async fn the_right_to_evict_is_checked_before_anything_is_read() {
    let cluster = Cluster::start().with_ready_pods(1);
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut mallory = gateway.user("mallory").await;
    let got = mallory.evict("p0", Value::Null).await;
    assert_eq!(got.code, 403);
    assert_eq!(
        got.json()["message"],
        "pods \"p0\" is forbidden: User \"mallory\" cannot create resource \"pods/eviction\" in API \
         group \"\" in the namespace \"ns\": by the test"
    );
    assert_eq!(cluster.seen(), ["POST review"]);
    let review: Value = serde_json::from_slice(&cluster.calls()[0].body).unwrap();
    assert_eq!(
        review["spec"]["resourceAttributes"],
        json!({"verb": "create", "version": "v1", "resource": "pods", "subresource": "eviction",
            "namespace": "ns", "name": "p0"})
    );
    // Nothing is read either when the access review fails.
    cluster
        .fail(|call| (call.what() == "POST review").then_some(super::cluster::Fault::Refuse(403)));
    let got = gateway.alice().await.evict("p0", Value::Null).await;
    assert_eq!(got.code, 500);
    assert!(cluster.seen().iter().all(|what| what == "POST review"));
    assert_eq!(gateway.counted("authoritative", "rejected").await, 1);
}

#[tokio::test]
async fn no_spelling_of_the_path_reaches_the_upstreams_own_subresource() {
    let cluster = Cluster::start().with_ready_pods(1);
    cluster.answer_evictions(201, GRANTED, None);
    let gateway = Gateway::deciding("authoritative", &cluster);
    let mut alice = gateway.alice().await;
    for target in [
        "//api/v1/namespaces/ns/pods/p0/eviction",
        "/api/v1/namespaces/ns/pods/./p0/eviction",
        "/api/v1//namespaces/ns/pods/p0/eviction",
        "/x/%2e%2e/api/v1/namespaces/ns/pods/p0/eviction",
    ] {
        let got = alice.post(target, &eviction("p0", &Value::Null)).await;
        assert_eq!(got.code, 404, "{target}");
    }
    let long = "x".repeat(5_000);
    let body = eviction(&long, &Value::Null);
    let got = alice.post(&path(&long), &body).await;
    assert_eq!((got.code, &got.json()["reason"]), (404, &json!("NotFound")));
    assert_eq!(
        (cluster.count("POST pod/eviction"), cluster.writes()),
        (0, 0)
    );
    let got = alice
        .post(&format!("{}/", path("p0")), &eviction("p0", &Value::Null))
        .await;
    assert_eq!((got.code, cluster.pods()), (201, 0));
}

#[tokio::test]
async fn requests_that_are_no_evictions_are_forwarded() {
    let cluster = Cluster::start().with_pod(pod("eviction", "Running", true));
    for mode in ["relay", "precheck", "authoritative"] {
        let gateway = Gateway::deciding(mode, &cluster);
        let mut alice = gateway.alice().await;
        for target in [
            "/api/v1/namespaces/ns/pods/eviction",
            "/api/v1/namespaces/eviction/x/y",
        ] {
            alice.ask(Method::GET, target, &[], "").await;
            let seen = cluster.calls().pop().unwrap();
            assert_eq!((&*seen.target, &*seen.user), (target, "alice"));
        }
    }
}
