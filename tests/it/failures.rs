//! Upstreams that are down, slow, or break off their responses.

use std::{
    io::{self, Read as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate_call::{Call, FlowRejection, Refusal};
use fairgate_core::rejection::RejectReason;
use fairgate_proxy::forward::{UpstreamProtocol, UpstreamSettings};
use http::{Method, StatusCode};
use tokio::sync::mpsc;

use crate::{
    client::{TestClient, body_text, piece, soon, status},
    gate::{Gate, Leaf},
    ports,
    rules::Rules,
    upstream::{Speaks, TestUpstream, full, streamed, text},
};

/// A gateway whose upstream does not listen.
fn before_closed_port() -> Gate {
    let address = ports::unused();
    let to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
    Gate::towards(to, |_, _| {})
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_503_to_all_but_watches() {
    let gate = before_closed_port();
    for mut client in TestClient::both(gate.address()).await {
        let response = client.get("/api/v1/pods").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(
            response.headers()["x-fairgate-reason"],
            "upstream-unreachable"
        );
        assert!(
            body_text(response)
                .await
                .contains(r#""reason":"ServiceUnavailable""#)
        );

        let response = client.post("/api/v1/namespaces/a/pods", full("{}")).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1", "nothing was sent");

        let response = client.get("/api/v1/pods?watch=1").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(gate.limit.free(), 1000, "every seat is free again");
}

#[tokio::test]
async fn a_mutating_request_that_may_have_run_is_refused_without_retry_after() {
    for http2 in [false, true] {
        // Takes every connection, reads, and closes it.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    use tokio::io::AsyncReadExt as _;
                    if http2 {
                        let mut builder = hyper::server::conn::http2::Builder::new(
                            hyper_util::rt::TokioExecutor::new(),
                        );
                        builder.timer(hyper_util::rt::TokioTimer::new());
                        let (close, closed) = tokio::sync::oneshot::channel::<()>();
                        let close = std::sync::Mutex::new(Some(close));
                        let service = hyper::service::service_fn(move |_| {
                            drop(close.lock().unwrap().take());
                            std::future::pending::<
                                Result<crate::upstream::TestReply, std::convert::Infallible>,
                            >()
                        });
                        let io = hyper_util::rt::TokioIo::new(stream);
                        tokio::select! {
                            _ = builder.serve_connection(io, service) => {}
                            _ = closed => {}
                        }
                    } else {
                        let _ = stream.read(&mut [0; 4096]).await;
                    }
                });
            }
        });
        let mut to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
        if http2 {
            to.protocol = UpstreamProtocol::Http2;
        }
        let gate = Gate::towards(to, |_, _| {});
        let mut client = TestClient::http1(gate.address()).await;
        let response = client.post("/api/v1/namespaces/a/pods", full("{}")).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert!(!response.headers().contains_key("retry-after"));
        assert_eq!(accepted.load(Ordering::SeqCst), 1, "it is sent once");
        assert!(
            body_text(response)
                .await
                .contains(r#""reason":"InternalError""#)
        );

        let response = client.get("/api/v1/pods").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()["retry-after"], "1");
    }
}

#[tokio::test]
async fn a_response_that_does_not_begin_in_time_is_a_504() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| std::future::pending());
    let gate = Gate::governed_with(&upstream, &impatient(), |_, to| {
        to.deadline_grace = Duration::ZERO;
    });
    let mut client = TestClient::http2(gate.address()).await;
    for request in [
        client.request(Method::GET, "/api/v1/pods?timeout=500ms"),
        client.request(Method::DELETE, "/api/v1/namespaces/a/pods/p?timeout=500ms"),
    ] {
        let response = soon(client.send(request.body(full("")).unwrap()))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert!(!response.headers().contains_key("retry-after"));
        let body = body_text(response).await;
        assert!(body.contains(r#""message":"Timeout: "#), "{body}");
        assert!(body.contains(r#""reason":"Timeout""#), "{body}");
    }
    until(|| gate.limit.free() == 1000).await;
}

/// Rules under which a request may take no longer than 3 s, whether or not its client has disconnected. Even on
/// a loaded machine, a request reaches the upstream sooner.
fn impatient() -> Rules {
    Rules::new().set(|settings| settings.request_timeout = Duration::from_secs(3))
}

/// An upstream whose responses the test sends, piece by piece.
fn by_hand(speaks: Speaks) -> (TestUpstream, mpsc::UnboundedReceiver<Pieces>) {
    let (hand, hands) = mpsc::unbounded_channel();
    let upstream = TestUpstream::start(speaks, move |_| {
        let (send, answer) = streamed();
        hand.send(send).unwrap();
        async move { http::Response::new(answer) }
    });
    (upstream, hands)
}

type Pieces = mpsc::UnboundedSender<io::Result<bytes::Bytes>>;

#[tokio::test]
async fn an_incomplete_list_is_an_error_for_the_client() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, mut hands) = by_hand(speaks);
        let gate = Gate::before(&upstream);
        for mut client in TestClient::both(gate.address()).await {
            let mut list = client.get("/api/v1/pods").await.into_body();
            let send = soon(hands.recv()).await.unwrap();
            send.send(Ok("half".into())).unwrap();
            assert_eq!(piece(&mut list).await.unwrap().unwrap(), "half");
            send.send(Err(io::Error::other("broken"))).unwrap();
            assert!(piece(&mut list).await.unwrap().is_err());
        }
        until(|| gate.limit.free() == 1000).await;
    }
}

#[tokio::test]
async fn a_watch_that_breaks_off_ends_cleanly_for_the_client() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, mut hands) = by_hand(speaks);
        let gate = Gate::before(&upstream);
        for mut client in TestClient::both(gate.address()).await {
            let mut watch = client.get("/api/v1/pods?watch=1").await.into_body();
            let send = soon(hands.recv()).await.unwrap();
            send.send(Ok("event".into())).unwrap();
            assert_eq!(piece(&mut watch).await.unwrap().unwrap(), "event");
            send.send(Err(io::Error::other("broken"))).unwrap();
            assert!(piece(&mut watch).await.is_none(), "a clean end");
        }
    }
}

#[tokio::test]
async fn a_response_that_stalls_is_aborted() {
    // The first half follows the head at once, and nothing follows that.
    let (keep, _kept) = mpsc::unbounded_channel();
    let upstream = TestUpstream::start(Speaks::Http2, move |_| {
        let (send, answer) = streamed();
        send.send(Ok("half".into())).unwrap();
        keep.send(send).unwrap();
        async move { http::Response::new(answer) }
    });
    let gate = Gate::governed_with(&upstream, &impatient(), |_, to| {
        to.silence = Duration::from_secs(1);
    });
    let mut client = TestClient::http2(gate.address()).await;
    let mut list = client.get("/api/v1/pods").await.into_body();
    assert_eq!(piece(&mut list).await.unwrap().unwrap(), "half");
    assert!(piece(&mut list).await.unwrap().is_err());
    // Silence does not mean that the upstream is done: the time limit frees the seat.
    until(|| gate.limit.free() == 1000).await;
}

#[tokio::test]
async fn a_read_on_a_connection_that_had_gone_stale_is_sent_again() {
    // Each connection serves one request and closes without announcing it.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
                // Reads the next request, too, and closes the connection.
                let _ = stream.read(&mut [0; 4096]).await;
            });
        }
    });
    let to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
    let gate = Gate::towards(to, |settings, _| {
        settings.cores = std::num::NonZero::<usize>::MIN;
    });
    let mut client = TestClient::http1(gate.address()).await;
    for _ in 0..3 {
        let response = client.get("/api/v1/pods").await;
        assert_eq!(response.status(), 200);
        assert_eq!(body_text(response).await, "ok");
    }
}

#[tokio::test]
async fn an_endless_response_of_a_disconnected_client_is_cancelled_upstream() {
    let cancelled = async |speaks| {
        let (upstream, mut hands) = by_hand(speaks);
        let gate = Gate::governed(&upstream, &impatient());
        for mut client in TestClient::both(gate.address()).await {
            let mut list = client.get("/api/v1/pods").await.into_body();
            let send = soon(hands.recv()).await.unwrap();
            send.send(Ok("half".into())).unwrap();
            assert_eq!(piece(&mut list).await.unwrap().unwrap(), "half");
            drop(list);
            client.abandon().await;
            soon(async {
                // An upstream that does not read learns of it when it writes.
                while send.send(Ok(vec![0; 1 << 16].into())).is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
        until(|| gate.limit.free() == 1000).await;
    };
    tokio::join!(cancelled(Speaks::Http1), cancelled(Speaks::Http2));
}

#[tokio::test]
async fn a_request_of_a_disconnected_client_is_cancelled_at_its_time_limit() {
    let cancelled = async |speaks| {
        let (came, mut comes) = mpsc::unbounded_channel();
        let (went, mut goes) = mpsc::unbounded_channel();
        let upstream = TestUpstream::start(speaks, move |_| {
            came.send(()).unwrap();
            let leaving = Leaving(went.clone());
            async move {
                let _leaving = leaving;
                std::future::pending().await
            }
        });
        let gate = Gate::governed(&upstream, &impatient());
        for mut client in TestClient::both(gate.address()).await {
            let request = client
                .request(Method::GET, "/api/v1/pods")
                .body(full(""))
                .unwrap();
            client.send_until(request, comes.recv()).await.unwrap();
            client.abandon().await;
            soon(goes.recv()).await.unwrap();
        }
        until(|| gate.limit.free() == 1000).await;
    };
    tokio::join!(cancelled(Speaks::Http1), cancelled(Speaks::Http2));
}

#[tokio::test]
async fn an_error_from_the_upstream_passes_unchanged() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| async {
        let mut answer = text("{\"kind\":\"Status\"}");
        *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        answer
            .headers_mut()
            .insert("retry-after", "7".parse().unwrap());
        answer
    });
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http2(gate.address()).await;
    let response = client.get("/api/v1/pods").await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "7");
    assert!(!response.headers().contains_key("x-fairgate-reason"));
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    // More than is read of a body that nobody wants, and so little that it is sent in a part of the second in which the gateway
    // discards the rest.
    const LENGTH: usize = 1 << 20;
    let full_queue = |_: &Call| {
        Err(Refusal::TooManyRequests(Box::new(FlowRejection {
            reason: RejectReason::QueueFull,
            retry_after: 1,
        })))
    };
    let gate = Gate::around(move || Leaf(full_queue), |_| {});
    let address = gate.address();
    let answer = tokio::task::spawn_blocking(move || {
        let mut request =
            format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes();
        request.resize(request.len() + LENGTH, b'x');
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .write_all(&request)
            .expect("the gateway reads it all");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = soon(answer).await.unwrap();
    assert_eq!(status(&answer), 429, "HTTP/1");
    assert!(answer.ends_with("Too many requests, please try again later.\n"));

    let mut client = TestClient::http2(address).await;
    let response = soon(client.post("/a", full(vec![0; 8 << 20]))).await;
    assert_eq!(response.status(), 429, "HTTP/2");
    assert_eq!(response.headers()["retry-after"], "1");
    assert!(body_text(response).await.starts_with("Too many requests"));
}

/// Sends a message when it is dropped.
pub struct Leaving(pub mpsc::UnboundedSender<()>);

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Waits until `holds` returns true, which it must in the end.
pub async fn until(holds: impl Fn() -> bool) {
    soon(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
