//! Expensive calls of one client do not slow down others: no body is read before the call is authorized, and long calls
//! do not block short ones.

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::{JoinHandle, JoinSet},
};

use super::{
    Home, LEVELS, SCHEMAS, Server,
    api::{Api, JSON},
    level, schema,
};
use crate::client::soon;

const BUDGETS: &str = "/apis/policy/v1/namespaces/a/poddisruptionbudgets";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The head of the response to a request that announces a body of 3 MiB and sends nothing of it.
async fn head_without_body(server: &Server, user: &str, method: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(server.0.address()).await.unwrap();
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer {user}\r\n\
         Content-Type: application/json\r\nContent-Length: 3145728\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    soon(async {
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
    })
    .await;
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn a_body_that_is_not_needed_is_not_waited_for() {
    let home = Home::new();
    let server = home.start().await;
    let watch = format!("{SCHEMAS}?watch=1");
    for (user, method, target, status) in [
        ("reader", "POST", SCHEMAS, 403),
        ("alice", "PATCH", LEVELS, 403),
        ("alice", "DELETE", watch.as_str(), 403),
        ("alice", "GET", watch.as_str(), 403),
        ("alice", "GET", "/livez", 200),
        ("alice", "POST", "/apis", 403),
        ("root", "POST", "/apis", 200),
        ("root", "GET", SCHEMAS, 200),
        ("root", "GET", watch.as_str(), 200),
        ("root", "POST", "/nowhere", 404),
    ] {
        let head = head_without_body(&server, user, method, target).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(
            head.starts_with(&expected),
            "{user} {method} {target}: {head}"
        );
    }
}

#[tokio::test]
async fn the_body_of_a_review_is_limited_to_32_kib() {
    let home = Home::new();
    let server = home.start().await;
    let alice = server.as_user("alice").await;
    let review = |length: usize| {
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"nonResourceAttributes": {"verb": "get", "path": "/".repeat(length)}},
        })
    };
    let response = alice.post(REVIEWS, &review(30 << 10)).await;
    assert_eq!(response.status, 201);
    let response = alice.post(REVIEWS, &review(32 << 10)).await;
    let message = response.refused(413, "RequestEntityTooLarge");
    assert!(message.ends_with("limit is 32768"), "{message}");
}

/// Each of its characters is wrong, and an error shows all of it.
#[tokio::test]
async fn a_long_field_manager_is_refused_in_few_words() {
    let home = Home::new();
    let server = home.start().await;
    let alice = server.as_user("alice").await;
    let target = format!("{REVIEWS}?fieldManager={}", "%7F".repeat(20_000));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"verb": "get", "path": "/"}},
    });
    let response = alice.post(&target, &review).await;
    let message = response.refused(422, "Invalid");
    let end = "fieldManager: Too long: may not be more than 128 bytes";
    assert!(message.ends_with(end), "{} bytes", message.len());
}

#[tokio::test]
async fn a_watch_may_have_the_longest_possible_timeout() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{LEVELS}?watch=1&timeoutSeconds={}", i64::MAX);
    let mut watch = api.watch(&target).await;
    assert_eq!(watch.event().await.0, "ADDED");
}

#[tokio::test]
async fn a_watch_with_a_negative_timeout_ends_before_any_event() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for more in [
        "",
        "&resourceVersion=0",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ] {
        let target = format!("{LEVELS}?watch=1&timeoutSeconds=-1{more}");
        let mut watch = api.watch(&target).await;
        assert_eq!(watch.next().await, None, "{target}");
    }
}

#[tokio::test]
async fn duplicates_among_very_many_elements_are_found_in_less_than_quadratic_time() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    // So many that comparing each with each would take longer than a test waits for any response.
    let many = 40_000;
    let owner = |i: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": format!("{}", i % (many - 1))});
    let mut owned = schema("owned", "exempt", 9, "x");
    owned["metadata"]["ownerReferences"] = (0..many).map(owner).collect();
    let target = format!("{SCHEMAS}?dryRun=All");
    let response = api.post(&target, &owned).await;
    let made = response.object();
    let kept = made["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(kept.len(), many - 1);
    let warning = response.warnings()[0].to_owned();
    assert!(
        warning.contains("duplicate UID(s) observed: 0"),
        "{warning}"
    );

    // The first two are the same: later errors may be left out.
    let condition =
        |i: usize| json!({"type": format!("c{}", i.saturating_sub(1)), "status": "True"});
    let conditions: Value = (0..many).map(condition).collect();
    let patch = json!({"status": {"conditions": conditions}});
    let target = format!("{SCHEMAS}/exempt/status?dryRun=All");
    let message = api.merge(&target, &patch).await.refused(422, "Invalid");
    assert!(message.contains("Duplicate value: \"c0\""), "{message}");
}

#[tokio::test]
async fn short_calls_are_served_while_others_take_long() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    // 500 KB of YAML that take long to parse, and are not an object.
    let body = format!("a: &a {{}}\nb:\n{}", "- {<<: *a}\n".repeat(45_000));
    let long: Vec<_> = (0..6)
        .map(|_| {
            let (api, body) = (api.clone(), body.clone());
            tokio::spawn(async move {
                api.call(Method::POST, SCHEMAS, "application/yaml", body)
                    .await
            })
        })
        .collect();
    let other = server.as_user("reader").await;
    let mut short = 0;
    while !long.iter().all(JoinHandle::is_finished) {
        assert_eq!(other.get("/readyz").await.status, 200);
        short += 1;
    }
    // If a short call had to wait for a long one, there would be about one for each long call.
    assert!(short >= 4 * long.len(), "{short} short calls");
    for one in long {
        assert_eq!(one.await.unwrap().status, 400);
    }
}

#[tokio::test]
async fn short_calls_are_served_while_a_large_object_is_patched_and_read() {
    const CALLS: usize = 12;

    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(BUDGETS, &large_budget("large")).await.object();
    let most = most_answered(&server, 4 * CALLS, |api, round| async move {
        let large = format!("{BUDGETS}/large");
        for number in 0..CALLS / 3 {
            // The request is short, what it is about is not.
            let number = format!("{round}-{number}");
            let patch = json!({"metadata": {"annotations": {"number": number}}});
            assert_eq!(api.merge(&large, &patch).await.status, 200);
            assert_eq!(api.get(&large).await.status, 200);
            let list = format!("{BUDGETS}?limit=10");
            assert_eq!(api.get(&list).await.status, 200);
        }
    });
    // If it waited for the thread that decodes the object, it would be told once or twice for each call.
    let most = most.await;
    assert!(most >= 4 * CALLS, "{most} short calls");
}

/// A budget that takes many milliseconds to decode.
fn large_budget(name: &str) -> Value {
    let terms = (0..8000).map(|at| json!({"key": format!("k{at}"), "operator": "DoesNotExist"}));
    let terms: Vec<_> = terms.collect();
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchExpressions": terms}},
    })
}

#[tokio::test]
async fn short_calls_are_served_while_watches_begin_with_large_objects() {
    const OBJECTS: usize = 12;
    const WATCHES: usize = 8;

    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for number in 0..OBJECTS {
        let budget = large_budget(&format!("large-{number}"));
        api.post(BUDGETS, &budget).await.object();
    }
    // No object has the label of the second kind of watch: it sends nothing until all were decoded.
    for query in ["", "&labelSelector=no%3Dsuch"] {
        let most = most_answered(&server, 4 * WATCHES, move |api, _| async move {
            let target = format!("{BUDGETS}?watch=1&allowWatchBookmarks=true{query}");
            for _ in 0..WATCHES {
                let mut watch = api.watch(&target).await;
                while watch.event().await.0 != "BOOKMARK" {}
            }
        });
        // If it waited for the thread that decodes the objects, it would be told once or twice for each watch.
        let most = most.await;
        assert!(most >= 4 * WATCHES, "{query}: {most} short calls");
    }
}

#[tokio::test]
async fn short_calls_are_served_while_many_watches_send_a_change_of_a_large_object() {
    const WATCHES: usize = 20;

    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    api.post(BUDGETS, &large_budget("large")).await.object();
    let most = most_answered(&server, WATCHES / 2, |api, round| async move {
        let large = format!("{BUDGETS}/large");
        let made = api.get(&large).await.object();
        let after = made["metadata"]["resourceVersion"].as_str().unwrap();
        let target = format!("{BUDGETS}?watch=1&resourceVersion={after}");
        let mut watches = Vec::new();
        for _ in 0..WATCHES {
            watches.push(api.watch(&target).await);
        }
        let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        assert_eq!(api.merge(&large, &patch).await.status, 200);
        // All at once: what nobody reads would fill the window of the connection that they share.
        let mut events = JoinSet::new();
        for mut watch in watches {
            events.spawn(async move { watch.event().await.0 });
        }
        for event in events.join_all().await {
            assert_eq!(event, "MODIFIED");
        }
    });
    let most = most.await;
    assert!(most >= WATCHES / 2, "{most} short calls");
}

/// The most short calls of another user that were answered during one of the rounds of `long` calls, one round after the other,
/// until there are `enough`. A busy machine makes them fewer, never more, so one good round of ten suffices.
async fn most_answered<F>(server: &Server, enough: usize, long: impl Fn(Api, usize) -> F) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let other = server.as_user("reader").await;
    let mut most = 0;
    for round in 0..10 {
        let long = tokio::spawn(long(server.root().await, round));
        let mut answered = 0;
        while !long.is_finished() {
            assert_eq!(other.get("/livez").await.status, 200);
            answered += 1;
        }
        long.await.unwrap();
        most = most.max(answered);
        if most >= enough {
            break;
        }
    }
    most
}

/// A policy with fifty patterns of 25 000 instructions each, which is nearly what a policy may have. It is short.
fn heavy_policy(number: usize) -> Value {
    let pattern = "[a-z]{1000}".repeat(25);
    let validations = (0..50).map(|at| {
        let expression = format!("'a'.matches('{number}-{at}{pattern}')");
        json!({"expression": expression})
    });
    let validations: Vec<_> = validations.collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "heavy"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]},
            "validations": validations,
        },
    })
}

#[tokio::test]
async fn health_is_told_while_policies_are_compiled() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    const COMPILED: usize = 10;

    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    // After this it is known that there are no policies, which would make every write a heavy one.
    api.post(LEVELS, &level("first", 1)).await.object();
    let most = most_answered(&server, 4 * COMPILED, |api, round| {
        // No pattern is equal to one before, and no body is heavy by its length.
        let numbers = round * COMPILED..(round + 1) * COMPILED;
        let bodies: Vec<_> = numbers.map(|at| heavy_policy(at).to_string()).collect();
        assert!(bodies.iter().all(|body| body.len() < 32 << 10));
        async move {
            let target = format!("{POLICIES}?dryRun=All");
            for body in bodies {
                let response = api.call(Method::POST, &target, JSON, body).await;
                assert_eq!(response.status, 201, "{}", response.text());
            }
        }
    });
    // If it waited for the thread that compiles, it would be told once or twice for each policy.
    let most = most.await;
    assert!(most >= 4 * COMPILED, "{most} answers");
}

#[tokio::test]
async fn an_object_stays_once_its_annotation_no_longer_says_that_it_is_built_in() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let mut stay = Vec::new();
    for i in 0..60 {
        let mut mine = level(&format!("mine-{i}"), 1);
        let said = |maintained: &str| json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": maintained}}});
        mine["metadata"]["annotations"] = said("true")["metadata"]["annotations"].clone();
        let item = format!("{LEVELS}/mine-{i}");
        api.post(LEVELS, &mine).await.object();
        // If it has not been removed yet, it has to stay.
        let response = api.merge(&item, &said("false")).await;
        if response.status == 200 {
            stay.push(item);
        }
    }
    server.reconciled().await;
    for item in stay {
        api.get(&item).await.object();
    }
}

#[tokio::test]
async fn other_calls_are_served_while_a_body_is_being_received() {
    let home = Home::new();
    let server = home.start().await;
    let mut slow = TcpStream::connect(server.0.address()).await.unwrap();
    let head = format!(
        "POST {LEVELS} HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer root\r\n\
         Content-Type: {JSON}\r\nContent-Length: 3000000\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let api = server.root().await;
    api.post(LEVELS, &level("quick", 1)).await.object();
}
