//! The listener, and how connections are bounded.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use fairgate::{
    app::{AppSettings, CoreContext, Gateway, StartError, runtimes::control_runtime},
    stack::stack,
};

use crate::{
    client::{Client, body, raw, soon, status},
    failures::until,
    gate::{Gate, TestAuth, fairness, hub},
    upstream::{Speaks, Upstream},
};

#[test]
fn a_second_gateway_cannot_take_the_same_address() {
    let upstream = Upstream::saying(Speaks::Http1, "");
    let gate = Gate::before(&upstream);
    let mut settings = AppSettings::default();
    settings.serve.listen = gate.address();
    let hub = hub(settings.cores.get());
    let leaf = move |core: CoreContext| stack(&TestAuth, &fairness(&hub, &core), Nowhere);
    let error = Gateway::start(settings, control_runtime().unwrap(), leaf).unwrap_err();
    assert!(matches!(error, StartError::Bind(_)), "{error}");
    assert!(error.to_string().contains(&gate.address().to_string()));
}

#[derive(Clone)]
struct Nowhere;

impl tower::Service<fairgate::call::Call> for Nowhere {
    type Response = fairgate::call::Reply;
    type Error = fairgate::call::Refusal;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: fairgate::call::Call) -> Self::Future {
        std::future::ready(Err(fairgate::call::Refusal::UpstreamUnreachable))
    }
}

#[tokio::test]
async fn beyond_the_limit_connections_wait_for_others_to_end() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| settings.serve.connections = 2);
    let address = gate.address();
    let mut first = Client::http1(address).await;
    let mut second = Client::http1(address).await;
    body(first.get("/a").await).await;
    body(second.get("/a").await).await;
    let third = tokio::task::spawn_blocking(move || {
        raw(
            address,
            b"GET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
    });
    body(second.get("/b").await).await;
    assert_eq!(gate.gateway.connections(), 2);
    assert!(upstream.seen().iter().all(|seen| seen.target != "/3"));
    first.abandon().await;
    assert_eq!(status(&soon(third).await.unwrap()), 200);
}

#[tokio::test]
async fn a_client_too_slow_with_its_head_is_cut_off() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.head_timeout = Duration::from_millis(100);
    });
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.is_empty());
    until(|| gate.gateway.connections() == 0).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let upstream = Upstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.idle_timeout = Duration::from_millis(100);
    });
    for mut client in Client::both(gate.address()).await {
        body(client.get("/a").await).await;
        soon(client.closed()).await;
    }
    until(|| gate.gateway.connections() == 0).await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    use crate::upstream::streamed;
    let upstream = Upstream::start(Speaks::Http2, |_| async {
        let (send, answer) = streamed();
        tokio::spawn(async move {
            while send.send(Ok(vec![0; 256 << 10].into())).is_ok() {
                tokio::task::yield_now().await;
                if send.is_closed() {
                    break;
                }
            }
        });
        http::Response::new(answer)
    });
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.stall_timeout = Duration::from_millis(200);
    });
    // HTTP/1: nobody reads the socket.
    let mut stream = TcpStream::connect(gate.address()).unwrap();
    stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    until(|| !upstream.seen().is_empty()).await;
    until(|| gate.limit.free() == 1000).await;
    // HTTP/2: the connection is read, one stream's window stays shut, and another stream goes on.
    let mut client = Client::http2(gate.address()).await;
    let unread = client.get("/a").await;
    until(|| gate.limit.free() == 1000).await;
    let other = client.get("/b").await;
    assert_eq!(other.status(), 200);
    drop((unread, other));
}
