//! How many connections the gateway opens to the upstream.

use std::num::NonZero;

use http::Method;

use crate::{
    client::{TestClient, body, soon},
    failures::until,
    gate::Gate,
    upstream::{Speaks, TestUpstream, full, streamed, text},
};

fn one_core(settings: &mut fairgate::app::AppSettings) {
    settings.cores = NonZero::<usize>::MIN;
}

#[tokio::test]
async fn sequential_requests_share_a_connection() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = TestUpstream::saying(speaks, "served");
        let gate = Gate::with(&upstream, |settings, _| one_core(settings));
        let mut client = TestClient::http2(gate.address()).await;
        for _ in 0..20 {
            body(client.get("/api/v1/pods").await).await;
        }
        assert_eq!(upstream.connections(), 1);
    }
}

#[tokio::test]
async fn many_watches_spread_over_connections_and_none_waits_for_another() {
    let upstream = TestUpstream::start(Speaks::Http2Streams(10), |_| async {
        let (send, answer) = streamed();
        tokio::spawn(async move { send.closed().await });
        http::Response::new(answer)
    });
    let gate = Gate::with(&upstream, |settings, _| one_core(settings));
    let mut client = TestClient::http2(gate.address()).await;
    let mut watches = Vec::new();
    for _ in 0..100 {
        watches.push(soon(client.get("/api/v1/pods?watch=1")).await);
    }
    assert!(watches.iter().all(|watch| watch.status() == 200));
    let connections = upstream.connections();
    assert!((10..=16).contains(&connections), "{connections}");
}

#[tokio::test]
async fn a_burst_waits_for_one_connection_instead_of_opening_many() {
    let upstream = TestUpstream::saying(Speaks::Http2, "served");
    let gate = Gate::with(&upstream, |settings, _| one_core(settings));
    let mut client = TestClient::http2(gate.address()).await;
    let requests: Vec<_> = (0..50)
        .map(|_| client.request(Method::GET, "/a").body(full("")).unwrap())
        .collect();
    let mut answers = tokio::task::JoinSet::new();
    for request in requests {
        let sent = client.start(request);
        answers.spawn(async move { sent.await.unwrap().status() });
    }
    let statuses = soon(answers.join_all()).await;
    assert!(statuses.iter().all(|status| *status == 200));
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn watches_and_anonymous_requests_have_separate_connections() {
    let upstream = TestUpstream::saying(Speaks::Http2, "served");
    let gate = Gate::with(&upstream, |settings, _| one_core(settings));
    let mut client = TestClient::http2(gate.address()).await;
    body(client.get("/api/v1/pods").await).await;
    body(client.get("/api/v1/pods?watch=1").await).await;
    let nobody = client
        .request(Method::GET, "/livez")
        .header("x-nobody", "1")
        .body(full(""))
        .unwrap();
    body(client.send(nobody).await.unwrap()).await;
    assert_eq!(upstream.connections(), 3);
}

#[tokio::test]
async fn a_connection_that_the_upstream_closes_is_replaced_without_an_error() {
    // Every response has `Connection: close`.
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        let mut answer = text("served");
        answer
            .headers_mut()
            .insert("connection", "close".parse().unwrap());
        answer
    });
    let gate = Gate::with(&upstream, |settings, _| one_core(settings));
    let mut client = TestClient::http2(gate.address()).await;
    for _ in 0..10 {
        let response = client.post("/api/v1/namespaces/a/pods", full("{}")).await;
        assert_eq!(response.status(), 200);
        body(response).await;
    }
    until(|| upstream.connections() == 10).await;
}
