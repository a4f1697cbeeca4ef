//! Limits on watches, and the capacity that they leave to other requests.

use std::num::NonZero;

use fairgate_proxy::{
    fairness::Caps,
    forward::{ConnectionLimit, Lane},
};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::{
    client::{TestClient, body_text, soon},
    failures::until,
    gate::Gate,
    rules::Rules,
    upstream::{Speaks, TestBody, TestUpstream, full, streamed, text},
};

const WATCH: &str = "/api/v1/pods?watch=1&resourceVersion=7";

/// An upstream that holds every watch and every log until its client disconnects, and serves the rest.
fn holding(streams: u32) -> TestUpstream {
    TestUpstream::start(Speaks::Http2Streams(streams), |request| async move {
        let target = request.uri().to_string();
        if !target.contains("watch=1") && !target.ends_with("/log") {
            return text("served");
        }
        let (send, answer) = streamed();
        tokio::spawn(async move { send.closed().await });
        Response::new(answer)
    })
}

fn of(client: &TestClient, user: &str, method: Method, target: &str) -> Request<TestBody> {
    let request = client.request(method, target).header("x-user", user);
    request.body(full("")).unwrap()
}

async fn get(client: &mut TestClient, user: &str, target: &str) -> Response<Incoming> {
    let request = of(client, user, Method::GET, target);
    soon(client.send(request)).await.unwrap()
}

async fn is_refused(answer: Response<Incoming>, status: StatusCode, reason: &str) {
    assert_eq!(answer.status(), status);
    assert_eq!(answer.headers()["x-fairgate-reason"], reason);
    assert!(answer.headers().contains_key("retry-after"));
    let said = body_text(answer).await;
    assert!(said.contains(r#""kind":"Status""#), "{said}");
}

#[tokio::test]
async fn watches_over_the_limit_are_refused_with_a_reason() {
    let upstream = holding(100);
    let rules = Rules::new().set(|settings| {
        settings.watches = Caps {
            per_user: 3,
            total: 5,
        };
    });
    let gate = Gate::governed(&upstream, &rules);
    let mut client = TestClient::http2(gate.address()).await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(get(&mut client, "alice", WATCH).await);
    }
    let too_many = get(&mut client, "alice", WATCH).await;
    is_refused(too_many, StatusCode::TOO_MANY_REQUESTS, "too-many-watches").await;
    for _ in 0..2 {
        watches.push(get(&mut client, "bob", WATCH).await);
    }
    let too_many = get(&mut client, "carol", WATCH).await;
    is_refused(too_many, StatusCode::TOO_MANY_REQUESTS, "too-many-watches").await;
    assert!(watches.iter().all(|watch| watch.status() == 200));
    assert_eq!(
        (
            gate.flow_control().watches.running(),
            gate.flow_control().watches.limit()
        ),
        (5, 5)
    );
    // Other requests are still served, and a watch that ends makes room for another.
    assert_eq!(
        get(&mut client, "alice", "/api/v1/pods").await.status(),
        200
    );
    watches.remove(0);
    until(|| gate.flow_control().watches.running() == 4).await;
    assert_eq!(get(&mut client, "carol", WATCH).await.status(), 200);
    watches.clear();
    until(|| gate.flow_control().watches.running() == 0).await;
}

#[tokio::test]
async fn watches_that_use_all_their_streams_leave_streams_for_other_requests() {
    let upstream = holding(10);
    let ceiling = ConnectionLimit::new(3, 10);
    let theirs = ceiling.clone();
    let gate = Gate::with(&upstream, |settings, to| {
        settings.cores = NonZero::<usize>::MIN;
        to.connection_limit = theirs;
    });
    let mut client = TestClient::http2(gate.address()).await;
    let mut watches = Vec::new();
    for _ in 0..30 {
        let watch = get(&mut client, "alice", WATCH).await;
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    assert_eq!(ceiling.streams_limit(), 30);
    assert_eq!(ceiling.streams(Lane::Watches), 30);
    for _ in 0..3 {
        let refused = get(&mut client, "bob", WATCH).await;
        is_refused(refused, StatusCode::TOO_MANY_REQUESTS, "upstream-full").await;
    }
    let post = of(&client, "bob", Method::POST, "/api/v1/namespaces/a/pods");
    assert_eq!(soon(client.send(post)).await.unwrap().status(), 200);
    assert_eq!(get(&mut client, "bob", "/api/v1/pods").await.status(), 200);
    let log = get(&mut client, "bob", "/api/v1/namespaces/a/pods/p/log").await;
    assert_eq!(log.status(), 200);
    assert_eq!(ceiling.streams(Lane::LongRunning), 1);
    // A stream is free again once the upstream has ended it.
    watches.truncate(10);
    until(|| ceiling.streams(Lane::Watches) <= 29).await;
    assert_eq!(get(&mut client, "bob", WATCH).await.status(), 200);
}

#[tokio::test]
async fn long_running_requests_that_find_no_stream_are_refused_and_others_wait() {
    let upstream = holding(2);
    let gate = Gate::with(&upstream, |settings, to| {
        settings.cores = NonZero::<usize>::MIN;
        to.connection_limit = ConnectionLimit::new(1, 2);
    });
    let mut client = TestClient::http2(gate.address()).await;
    let log = "/api/v1/namespaces/a/pods/p/log";
    let _held = [
        get(&mut client, "alice", log).await,
        get(&mut client, "alice", log).await,
    ];
    let refused = get(&mut client, "bob", log).await;
    is_refused(refused, StatusCode::SERVICE_UNAVAILABLE, "upstream-full").await;
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let request = of(&client, "bob", Method::GET, "/api/v1/pods");
        answers.spawn(client.start(request));
    }
    for answer in soon(answers.join_all()).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
}
