//! What one client makes the gateway do is no burden to the others: no memory before it is known that
//! the client may, no long work where others wait.

use std::time::Duration;

use fairgate_base::clock::Clock;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
};

use super::{Home, LEVELS, SCHEMAS, Server, api::JSON, level, ms, schema};
use crate::client::soon;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// The head of the answer to a request that promises a body of 3 MiB and sends nothing of it.
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
async fn no_body_is_waited_for_that_is_not_wanted() {
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
async fn a_review_is_short() {
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
    let told = alice.post(REVIEWS, &review(30 << 10)).await;
    assert_eq!(told.status, 201);
    let told = alice.post(REVIEWS, &review(32 << 10)).await;
    let message = told.refused(413, "RequestEntityTooLarge");
    assert!(message.ends_with("limit is 32768"), "{message}");
}

#[tokio::test]
async fn a_watch_may_be_asked_to_last_for_ever() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let target = format!("{LEVELS}?watch=1&timeoutSeconds={}", i64::MAX);
    let mut watch = api.watch(&target).await;
    assert_eq!(watch.event().await.0, "ADDED");
}

#[tokio::test]
async fn what_is_there_many_times_is_found_in_little_time() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    let many = 20_000;
    let owner = |i: usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": format!("{}", i % (many - 1))});
    let mut owned = schema("owned", "exempt", 9, "x");
    owned["metadata"]["ownerReferences"] = (0..many).map(owner).collect();
    let target = format!("{SCHEMAS}?dryRun=All");
    let told = tokio::time::timeout(ms(8000), api.post(&target, &owned)).await;
    let told = told.unwrap();
    let made = told.object();
    let kept = made["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(kept.len(), many - 1);
    let warning = told.warnings()[0].to_owned();
    assert!(
        warning.contains("duplicate UID(s) observed: 0"),
        "{warning}"
    );

    let condition = |i: usize| json!({"type": format!("c{}", i % (many - 1)), "status": "True"});
    let conditions: Value = (0..many).map(condition).collect();
    let patch = json!({"status": {"conditions": conditions}});
    let target = format!("{SCHEMAS}/exempt/status?dryRun=All");
    let told = tokio::time::timeout(ms(8000), api.merge(&target, &patch)).await;
    let message = told.unwrap().refused(422, "Invalid");
    assert!(message.contains("Duplicate value: \"c0\""), "{message}");
}

#[tokio::test]
async fn long_work_keeps_nobody_waiting() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    // A MiB that takes long to read, and is nothing.
    let body = format!("a: &a {{}}\nb:\n{}", "- {<<: *a}\n".repeat(90_000));
    let clock = Clock::system();
    let started = clock.now();
    let long: Vec<_> = (0..12)
        .map(|_| {
            let (api, body) = (api.clone(), body.clone());
            tokio::spawn(async move {
                api.call(Method::POST, SCHEMAS, "application/yaml", body)
                    .await
            })
        })
        .collect();
    let other = server.as_user("reader").await;
    let mut waited = Vec::new();
    while !long.iter().all(JoinHandle::is_finished) {
        let asked = clock.now();
        assert_eq!(other.get("/readyz").await.status, 200);
        waited.push(clock.now().since(asked));
    }
    let all = clock.now().since(started);
    // Where one waits for the other, nearly all of the time is long waits.
    let long_waits = waited.iter().filter(|wait| **wait * 20 > all);
    let lost: Duration = long_waits.sum();
    assert!(lost * 2 < all, "{lost:?} of {all:?}");
    for one in long {
        assert_eq!(one.await.unwrap().status, 400);
    }
}

#[tokio::test]
async fn what_is_no_longer_said_to_be_built_in_stays() {
    let home = Home::new();
    let server = home.start().await;
    let api = server.root().await;
    for i in 0..60 {
        let mut mine = level(&format!("mine-{i}"), 1);
        let said = |maintained: &str| json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": maintained}}});
        mine["metadata"]["annotations"] = said("true")["metadata"]["annotations"].clone();
        let item = format!("{LEVELS}/mine-{i}");
        api.post(LEVELS, &mine).await.object();
        // Most of the time it is there still; then it has to stay.
        let told = api.merge(&item, &said("false")).await;
        if told.status == 200 {
            tokio::time::sleep(ms(20)).await;
            api.get(&item).await.object();
        }
    }
}

#[tokio::test]
async fn anybody_else_has_an_answer_while_a_body_is_on_its_way() {
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
