//! Requests that become tunnels, such as exec, and watches over the WebSocket protocol.

use std::time::Duration;

use fairgate_core::{apf::Semantics, digest::RequestInfo};
use http::{Method, Request, Response, StatusCode};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    client::{TestClient, body_text, soon},
    failures::until,
    gate::Gate,
    rules::{Full, Rules},
    upstream::{Speaks, TestReply, TestUpstream, full, text},
};

const EXEC: &str = "/api/v1/namespaces/a/pods/p/exec?command=sh";

/// A request to switch to a WebSocket.
pub fn upgrade(client: &TestClient, target: &str) -> Request<crate::upstream::TestBody> {
    client
        .request(Method::GET, target)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-protocol", "v5.channel.k8s.io")
        .body(full(""))
        .unwrap()
}

/// Switches protocols, and echoes everything in upper case.
pub async fn echoes(mut request: Request<Incoming>) -> TestReply {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let mut bytes = [0; 64];
        while let Ok(n @ 1..) = stream.read(&mut bytes).await {
            bytes[..n].make_ascii_uppercase();
            stream.write_all(&bytes[..n]).await.unwrap();
        }
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(full(""))
        .unwrap()
}

#[tokio::test]
async fn an_exec_becomes_a_tunnel_that_ends_with_either_side() {
    let upstream = TestUpstream::start(Speaks::Http1, echoes);
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http1(gate.address()).await;
    let request = upgrade(&client, EXEC);
    let mut response = client.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "websocket");
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    for word in ["hello", "world"] {
        tunnel.write_all(word.as_bytes()).await.unwrap();
        let mut said = [0; 5];
        soon(tunnel.read_exact(&mut said)).await.unwrap();
        assert_eq!(said.as_slice(), word.to_uppercase().as_bytes());
    }
    let seen = upstream.only();
    assert_eq!(seen.headers["x-remote-user"], "alice");
    assert_eq!(seen.headers["connection"], "Upgrade");
    assert_eq!(seen.headers["sec-websocket-protocol"], "v5.channel.k8s.io");
    assert_eq!(gate.gateway.connections(), 1, "a tunnel is a connection");
    drop(tunnel);
    until(|| gate.gateway.connections() == 0).await;
}

#[tokio::test]
async fn a_refused_upgrade_closes_the_upstreams_connection() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        let mut answer = text("no");
        *answer.status_mut() = StatusCode::FORBIDDEN;
        answer
    });
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http1(gate.address()).await;
    for _ in 0..2 {
        let request = upgrade(&client, EXEC);
        let response = client.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(body_text(response).await, "no");
    }
    assert_eq!(upstream.connections(), 2, "no connection is used twice");
}

#[tokio::test]
async fn an_upgrade_of_an_ordinary_request_is_ignored() {
    let upstream = TestUpstream::saying(Speaks::Http1, "plain");
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http1(gate.address()).await;
    let request = upgrade(&client, "/api/v1/pods");
    let response = client.send(request).await.unwrap();
    assert_eq!(body_text(response).await, "plain");
    let seen = upstream.only();
    assert!(!seen.headers.contains_key("upgrade"));
    assert!(!seen.headers.contains_key("connection"));
}

#[tokio::test]
async fn an_unrequested_protocol_switch_is_an_upstream_failure() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .body(full(""))
            .unwrap()
    });
    let gate = Gate::before(&upstream);
    for mut client in TestClient::both(gate.address()).await {
        let response = client.get("/api/v1/pods").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let response = client.post("/api/v1/namespaces/a/pods", full("")).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    }
}

#[tokio::test]
async fn a_tunnel_that_carries_nothing_for_too_long_is_closed() {
    let upstream = TestUpstream::start(Speaks::Http1, echoes);
    let gate = Gate::with(&upstream, |_, to| {
        // Long enough for the client to send something, however loaded the machine is.
        to.tunnel_idle = Duration::from_secs(2);
    });
    let mut client = TestClient::http1(gate.address()).await;
    let request = upgrade(&client, EXEC);
    let mut response = client.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    tunnel.write_all(b"hello").await.unwrap();
    let mut said = Vec::new();
    let _ = soon(tunnel.read_to_end(&mut said)).await;
    assert_eq!(said, b"HELLO");
}

/// Opens a watch as browsers do, and returns its tunnel.
async fn watch(gate: &Gate, target: &str) -> TokioIo<Upgraded> {
    let mut client = TestClient::http1(gate.address()).await;
    let mut request = upgrade(&client, target);
    let origin = http::HeaderValue::from_static("http://localhost");
    request.headers_mut().insert("origin", origin);
    let mut response = soon(client.send(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    TokioIo::new(soon(hyper::upgrade::on(&mut response)).await.unwrap())
}

#[tokio::test]
async fn watches_in_tunnels_leave_their_seats_to_others_and_count_as_watchers_until_they_end() {
    const SEATS: u32 = 3;
    let upstream = TestUpstream::start(Speaks::Http1, echoes);
    let write = RequestInfo::from_target("POST", "/api/v1/namespaces/a/pods").unwrap();
    for semantics in [Semantics::Improved, Semantics::Compatible] {
        let rules = Rules::small(SEATS, Full::Reject).semantics(semantics);
        let gate = Gate::governed(&upstream, &rules);
        let watchers = || {
            let flow_control = gate.flow_control();
            flow_control.with_watchers(|watchers| watchers.interested(&write))
        };
        let mut tunnels = Vec::new();
        for _ in 0..=SEATS {
            let tunnel = watch(&gate, "/api/v1/pods?watch=1&resourceVersion=5").await;
            assert_eq!(gate.level("small").seats_in_use, 0, "{semantics:?}");
            tunnels.push(tunnel);
        }
        assert_eq!(watchers(), SEATS + 1);
        drop(tunnels);
        until(|| watchers() == 0).await;
        assert_eq!(gate.level("small").seats_in_use, 0);
    }
}
