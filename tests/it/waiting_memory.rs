//! Memory of requests that wait: for a review of their tokens, and in a queue.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    abuse::{allowing_descriptors, gateway},
    client::{HANG, connect_from_elsewhere, soon},
    process::{GatewayProcess, ProcessOptions, wait_until},
    upstream::{Speaks, TestUpstream, full, streamed},
};

/// Sends a head of 500 KiB with an unknown token, and a body that is not complete.
fn with_large_head(stream: TcpStream) -> TcpStream {
    send_large_head(stream, "same", 9)
}

/// Sends a head of 500 KiB with a token, for a body of so many bytes.
fn send_large_head(mut stream: TcpStream, token: &str, length: usize) -> TcpStream {
    let lines = format!("X: {}\r\n", "a".repeat(8000)).repeat(64);
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n{lines}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

/// The beginning of the response.
fn response_head(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut response = vec![0; 4096];
    let read = stream.read(&mut response).unwrap();
    String::from_utf8_lossy(&response[..read]).to_lowercase()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_a_review_take_bounded_memory() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let limits = json!({"tokenReviewBytes": "4Mi"});
    let process = gateway(&upstream, &limits, &allowing_descriptors(1024));
    let held = || process.metric("fairgate_token_review_bytes").unwrap_or(0);
    // One token has one review, however many requests wait for it. An address may have half of the memory, which are four such heads.
    let mut waiting: Vec<_> = (0..4)
        .map(|_| with_large_head(TcpStream::connect(process.address).unwrap()))
        .collect();
    wait_until("four wait", || held() > 4 * 500_000);
    for _ in 0..20 {
        let mut refused = with_large_head(TcpStream::connect(process.address).unwrap());
        let response = response_head(&mut refused);
        assert!(response.starts_with("http/1.1 429 "), "{response}");
        assert!(
            response.contains("x-fairgate-reason: too-many-token-reviews"),
            "{response}"
        );
    }
    assert!(held() < 2 << 20, "{}", held());
    // Another address has its part, and is charged for what its HTTP/2 streams may hold.
    let before = held();
    let elsewhere = connect_from_elsewhere(process.address).await;
    let elsewhere = elsewhere.into_std().unwrap();
    elsewhere.set_nonblocking(false).unwrap();
    waiting.push(with_large_head(elsewhere));
    wait_until("another address waits", || held() > before + 500_000);
    let before = held();
    let stream = connect_from_elsewhere(process.address).await;
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post("http://gate/a").header("authorization", "Bearer same");
    let unfinished = client.send_request(request.body(()).unwrap(), false);
    wait_until("a stream waits", || held() > before + (256 << 10));
    drop((unfinished, client, waiting));
    wait_until("all is given back", || held() == 0);
    let most = process.metric("fairgate_token_review_peak_bytes").unwrap();
    assert!((5 * 500_000..=4 << 20).contains(&most), "{most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_of_queued_requests_may_have_sent_is_as_configured() {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {},
        "status": {"authenticated": true, "user": {"username": "eve", "groups": ["system:authenticated"]}},
    });
    let upstream = TestUpstream::start(Speaks::Http1, move |sent| {
        let path = sent.uri().path();
        let reply = path.ends_with("/tokenreviews").then(|| review.to_string());
        async move {
            match reply {
                Some(reply) => http::Response::new(full(reply)),
                None => std::future::pending().await,
            }
        }
    });
    let configuration = json!({
        "upstream": {"url": format!("http://{}", upstream.address)},
        "limits": {"queuedBodyBytes": "1Mi"}, "flowControl": {"totalSeats": 1},
    });
    let process = GatewayProcess::with(configuration, &allowing_descriptors(1024));
    let stream = tokio::net::TcpStream::connect(process.address).await;
    let (client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let mut open = Vec::new();
    // Two may wait: then a user has half of the memory.
    for _ in 0..24 {
        let request = http::Request::post("http://gate/api/v1/namespaces/a/configmaps")
            .header("authorization", "Bearer eve")
            .header("content-length", 1 << 20);
        let (response, body) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        open.push((tokio::spawn(response), body));
        client = soon(client.ready()).await.unwrap();
    }
    let is_refused = |(response, _): &(JoinHandle<_>, _)| response.is_finished();
    wait_until("some are refused", || open.iter().any(is_refused));
    for (response, _body) in open.into_iter().filter(is_refused) {
        assert_eq!(response.await.unwrap().unwrap().status(), 429);
    }
    assert_eq!(
        process.metric("fairgate_stream_window_peak_bytes"),
        Some(2 * (256 << 10))
    );
}

/// A gateway with two users, whose upstream answers nothing.
fn gateway_of_two(upstream: &TestUpstream, seats: u32) -> GatewayProcess {
    let configuration = json!({
        "upstream": {"url": format!("http://{}", upstream.address)},
        "authentication": {"tokenFile": "tokens"},
        "limits": {"longHeaderBytes": "2Mi"}, "flowControl": {"totalSeats": seats},
        "timeouts": {"request": "20m"},
    });
    let options = ProcessOptions {
        tokens: "eve-token,eve,1\nmallory-token,mallory,2\n",
        ..allowing_descriptors(1024)
    };
    GatewayProcess::with(configuration, &options)
}

fn long_head_bytes(process: &GatewayProcess) -> u64 {
    process.metric("fairgate_long_head_bytes").unwrap_or(0)
}

/// Opens requests with heads of 500 KiB until their users have what they may, and checks that further ones are refused. `send` sends one for
/// the user of a token.
fn assert_long_heads_are_bounded(
    process: &GatewayProcess,
    send: impl Fn(TcpStream, &str) -> TcpStream,
) {
    let held = || long_head_bytes(process);
    let large = |token| send(TcpStream::connect(process.address).unwrap(), token);
    // A user may have half of the memory, which are two such heads.
    let mut open: Vec<_> = (0..2).map(|_| large("eve-token")).collect();
    wait_until("two are in progress", || held() > 2 * 490_000);
    let two = held();
    assert!(two < 1 << 20, "{two}");
    for _ in 0..10 {
        let response = response_head(&mut large("eve-token"));
        assert!(response.starts_with("http/1.1 429 "), "{response}");
        let reason = "x-fairgate-reason: too-many-long-heads";
        assert!(response.contains(reason), "{response}");
    }
    // Another user has a part.
    open.push(large("mallory-token"));
    wait_until("one of another user is", || held() > two + 490_000);
    drop(open);
    wait_until("all is given back", || held() == 0);
    let most = process.metric("fairgate_long_head_peak_bytes").unwrap();
    assert!((3 * 490_000..=2 << 20).contains(&most), "{most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heads_of_queued_requests_take_bounded_memory() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let process = gateway_of_two(&upstream, 1);
    // Some hold all the seats that their level can have, others with heads of usual size wait before those that follow.
    let _open: Vec<_> = (0..30)
        .map(|_| {
            let mut stream = TcpStream::connect(process.address).unwrap();
            let head = "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer eve-token\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let queued = || process.metric("fairgate_queued_requests").unwrap_or(0);
    wait_until("most of them wait", || queued() > 20);
    assert_eq!(long_head_bytes(&process), 0);
    assert_long_heads_are_bounded(&process, |stream, token| send_large_head(stream, token, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_of_requests_whose_bodies_have_not_arrived_take_bounded_memory() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let process = gateway_of_two(&upstream, 100);
    assert_long_heads_are_bounded(&process, |stream, token| send_large_head(stream, token, 9));
}

/// Spaces around a value are removed from it, and stay in memory as a part of the head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_long_by_spaces_take_bounded_memory() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let process = gateway_of_two(&upstream, 100);
    assert_long_heads_are_bounded(&process, |mut stream, token| {
        let spaces = " ".repeat(500 << 10);
        let head = format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\nX:{spaces}a\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
}

/// The name of the server is no header over HTTP/2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_authority_over_http2_is_charged() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let process = gateway_of_two(&upstream, 100);
    let stream = tokio::net::TcpStream::connect(process.address).await;
    let (client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://{}/a", "a".repeat(40_000)))
        .header("authorization", "Bearer eve-token");
    let open = client.send_request(request.body(()).unwrap(), false);
    wait_until("it is charged", || {
        (30_000..40_000).contains(&long_head_bytes(&process))
    });
    drop((open, client));
    wait_until("it is given back", || long_head_bytes(&process) == 0);
}

/// A watch gives its seat back, and lasts for hours. The gateway removes the long line: its memory stays, as a part of the head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_of_watches_take_bounded_memory_though_their_headers_are_removed() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        let (send, answer) = streamed();
        send.send(Ok("{}\n".into())).unwrap();
        tokio::spawn(async move { send.closed().await });
        http::Response::new(answer)
    });
    let process = gateway_of_two(&upstream, 100);
    assert_long_heads_are_bounded(&process, |mut stream, token| {
        let line = format!("X-Forwarded-A: {}\r\n", "a".repeat(500 << 10));
        let head = format!(
            "GET /api/v1/pods?watch=1&resourceVersion=5 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n{line}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    });
}
