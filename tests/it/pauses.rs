//! Clients that pause: they leave data unread that is ready for them, and read on later.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    client::{TestClient, body, soon},
    failures::until,
    gate::Gate,
    tunnels::upgrade,
    upstream::{Speaks, TestReply, TestUpstream, full},
};

/// Many bytes: more than the buffers of all connections on their way.
const LENGTH: usize = 32 << 20;

/// Responds with many bytes, in a tunnel if that is what the client asks for.
async fn says_much(mut request: Request<Incoming>) -> TestReply {
    if !request.uri().path().ends_with("/exec") {
        return Response::new(full(vec![b'x'; LENGTH]));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let _ = stream.write_all(&vec![b'x'; LENGTH]).await;
        let _ = stream.shutdown().await;
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .body(full(""))
        .unwrap()
}

#[tokio::test]
async fn clients_of_tunnels_and_logs_may_pause_for_longer_than_others() {
    let upstream = TestUpstream::start(Speaks::Http1, says_much);
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.stall_timeout = Duration::from_millis(200);
    });
    let mut exec = TestClient::http1(gate.address()).await;
    let request = upgrade(&exec, "/api/v1/namespaces/a/pods/p/exec?command=sh");
    let mut response = exec.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    let mut clients = TestClient::both(gate.address()).await;
    let mut logs = Vec::new();
    for client in &mut clients {
        logs.push(client.get("/api/v1/namespaces/a/pods/p/log").await);
    }
    // The client of another request is cut off, which pauses no longer than these.
    let mut other = TestClient::http1(gate.address()).await;
    let unread = other.get("/api/v1/pods").await;
    until(|| gate.gateway.connections() <= 3).await;
    drop((other, unread));
    let mut said = Vec::new();
    soon(tunnel.read_to_end(&mut said)).await.unwrap();
    assert_eq!(said.len(), LENGTH);
    for log in logs {
        assert_eq!(soon(body(log)).await.len(), LENGTH);
    }
}
