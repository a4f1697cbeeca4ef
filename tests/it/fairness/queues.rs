//! Requests in queues: which ones wait, which one is next, and what happens when a client disconnects.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
};

use super::{
    seats::{counted, values},
    *,
};
use crate::{
    rules::{Full, Rules},
    upstream::streamed,
};

#[tokio::test]
async fn five_waiting_requests_execute_once_five_others_have_ended() {
    let (upstream, mut held) = manual_upstream(Speaks::Http2);
    let gate = Gate::governed(&upstream, &Rules::small(5, Full::queue(10)));
    let mut first = Vec::new();
    for number in 0..5 {
        let pending = start_request(&gate, number % 2 == 0, "alice", Method::GET, PODS).await;
        first.push((pending, soon(held.recv()).await.unwrap()));
    }
    let mut second = Vec::new();
    for number in 0..5 {
        second.push(start_request(&gate, number % 2 == 0, "bob", Method::GET, PODS).await);
    }
    until(|| small(&gate) == (5, 5, 5) && gate.flow_control().queued() == 5).await;
    for (pending, upstream) in first {
        upstream.respond("");
        pending.served().await;
    }
    until(|| small(&gate) == (5, 0, 5) && gate.flow_control().queued() == 0).await;
    for _ in &second {
        soon(held.recv()).await.unwrap().respond("");
    }
    for pending in second {
        pending.served().await;
    }
    until(|| small(&gate) == (0, 0, 0)).await;
}

/// One request executes, one waits until its client disconnects, and the one behind it is next.
struct Line {
    upstream: TestUpstream,
    held: mpsc::UnboundedReceiver<HeldRequest>,
    gate: Gate,
    first: PendingRequest,
    executing: HeldRequest,
}

impl Line {
    async fn form(read_ahead: bool) -> Self {
        let (upstream, mut held) = manual_upstream(Speaks::Http1);
        let rules = Rules::small(1, Full::queue(10));
        let gate = Gate::governed_with(&upstream, &rules, |settings, _| {
            if !read_ahead {
                settings.serve.read_ahead_small_bytes = 0;
                settings.serve.read_ahead_large_bytes = 0;
            }
        });
        let first = get(&gate, "/api/v1/first").await;
        let executing = soon(held.recv()).await.unwrap();
        Self {
            upstream,
            held,
            gate,
            first,
            executing,
        }
    }

    /// Sends another request behind the waiting one. Then `leave` disconnects the client of the waiting request,
    /// which must free its place.
    async fn serves_the_next_after<F: Future>(mut self, leave: F) {
        until(|| small(&self.gate) == (1, 1, 1)).await;
        let next = get(&self.gate, "/api/v1/next").await;
        until(|| small(&self.gate) == (1, 2, 1)).await;
        let left = leave.await;
        until(|| small(&self.gate) == (1, 1, 1)).await;
        until(|| self.gate.flow_control().queued() == 1).await;
        self.executing.respond("");
        self.first.served().await;
        let held = soon(self.held.recv()).await.unwrap();
        assert_eq!(held.target, "/api/v1/next");
        held.respond("");
        next.served().await;
        until(|| small(&self.gate) == (0, 0, 0)).await;
        assert_eq!(self.gate.flow_control().queued(), 0);
        assert_eq!(
            self.upstream.seen().len(),
            2,
            "the abandoned request is not sent upstream"
        );
        drop(left);
    }
}

/// Sends `head` and `bytes` of body on a bare socket, and disconnects when all of it is sent.
async fn leaves(read_ahead: bool, head: String, bytes: usize) {
    let line = Line::form(read_ahead).await;
    let mut stream = TcpStream::connect(line.gate.address()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let sender = tokio::task::spawn_blocking(move || {
        stream.write_all(&vec![b'x'; bytes]).unwrap();
        stream
    });
    line.serves_the_next_after(async { drop(soon(sender).await.unwrap()) })
        .await;
}

fn post(bytes: usize, more: &str) -> String {
    format!("POST {PODS} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n{more}\r\n")
}

#[tokio::test]
async fn a_get_whose_client_disconnects_frees_its_place() {
    leaves(true, format!("GET {PODS} HTTP/1.1\r\nHost: a\r\n\r\n"), 0).await;
}

#[tokio::test]
async fn a_post_of_1_mib_whose_client_disconnects_frees_its_place() {
    leaves(true, post(1 << 20, ""), 1 << 20).await;
}

#[tokio::test]
async fn a_post_of_10_mib_whose_client_disconnects_frees_its_place() {
    leaves(true, post(10 << 20, ""), 10 << 20).await;
}

#[tokio::test]
async fn a_post_broken_off_half_way_frees_its_place() {
    leaves(true, post(10 << 20, ""), 3 << 20).await;
}

#[tokio::test]
async fn a_post_that_nobody_reads_frees_its_place() {
    leaves(false, post(100 << 10, ""), 100 << 10).await;
}

#[tokio::test]
async fn a_post_that_waits_for_100_continue_frees_its_place() {
    let line = Line::form(true).await;
    let mut stream = TcpStream::connect(line.gate.address()).unwrap();
    let head = post(20 << 10, "Expect: 100-continue\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    line.serves_the_next_after(async {
        stream.shutdown(Shutdown::Write).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        assert!(said.is_empty(), "{:?}", String::from_utf8_lossy(&said));
    })
    .await;
}

#[tokio::test]
async fn a_long_post_gets_100_continue_when_it_is_admitted_and_not_before() {
    const LENGTH: usize = 20 << 10;
    let mut line = Line::form(true).await;
    let mut stream = TcpStream::connect(line.gate.address()).unwrap();
    let head = post(LENGTH, "Expect: 100-continue\r\nConnection: close\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    until(|| small(&line.gate) == (1, 1, 1)).await;
    stream.set_nonblocking(true).unwrap();
    let said = stream.read(&mut [0; 100]);
    assert_eq!(said.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();

    line.executing.respond("");
    line.first.served().await;
    soon(line.held.recv()).await.unwrap().respond("created");
    let answer = tokio::task::spawn_blocking(move || {
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(&vec![b'x'; LENGTH]).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = soon(answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("created"), "{answer}");
}

#[tokio::test]
async fn http2_streams_that_are_reset_free_their_places() {
    for method in [Method::GET, Method::POST] {
        for bytes in [0, 1 << 20] {
            let line = Line::form(true).await;
            let mut client = TestClient::http2(line.gate.address()).await;
            let request = client.request(method.clone(), PODS);
            let request = request.body(full(vec![0; bytes])).unwrap();
            let sending = client.start(request);
            line.serves_the_next_after(async {
                drop(sending);
                client
            })
            .await;
        }
    }
}

#[tokio::test]
async fn an_http2_connection_that_ends_frees_all_its_places() {
    let line = Line::form(true).await;
    let stream = TcpStream::connect(line.gate.address()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let io = tokio::net::TcpStream::from_std(stream.try_clone().unwrap()).unwrap();
    let mut client = TestClient::http2_over(hyper_util::rt::TokioIo::new(io)).await;
    let (sender, unfinished) = streamed();
    // A short body would be awaited before the request waits for its seat.
    sender.send(Ok(vec![b'x'; 20 << 10].into())).unwrap();
    let request = client.request(Method::POST, PODS).body(unfinished).unwrap();
    let _sending = client.start(request);
    line.serves_the_next_after(async { stream.shutdown(Shutdown::Both).unwrap() })
        .await;
}

#[tokio::test]
async fn no_more_requests_wait_in_total_than_is_allowed() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let rules = Rules::new()
        .level("small", 1, Full::queue(10))
        .level("other", 1, Full::queue(10))
        .schema("small", "small", &["alice"])
        .schema("other", "other", &["bob"])
        .set(|set| set.max_queued = 3);
    let gate = Gate::governed(&upstream, &rules);
    let mut all = Vec::new();
    for user in ["alice", "bob"] {
        all.push(start_request(&gate, false, user, Method::GET, PODS).await);
    }
    until(|| small(&gate).0 + gate.level("other").executing == 2).await;
    for user in ["alice", "bob", "bob"] {
        all.push(start_request(&gate, true, user, Method::GET, PODS).await);
    }
    until(|| gate.flow_control().queued() == 3).await;
    for user in ["alice", "bob"] {
        let response = start_request(&gate, false, user, Method::GET, PODS)
            .await
            .response()
            .await;
        assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.header("x-fairgate-reason"), "queue-full");
    }
    for (schema, refused) in [("small", 1), ("other", 1)] {
        let waits = counted(&gate, schema, |cells| values(&cells.wait_refused));
        assert_eq!(
            waits, refused,
            "{schema}: each refused request counts as not having waited"
        );
    }
    assert_eq!(small(&gate), (1, 1, 1));
    for _ in &all {
        soon(held.recv()).await.unwrap().respond("");
    }
    for pending in all {
        pending.served().await;
    }
    until(|| gate.flow_control().queued() == 0).await;
}

#[tokio::test]
async fn the_end_of_a_request_dispatches_a_request_that_waits_on_another_core() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
    let mut first = get(&gate, PODS).await;
    for _ in 0..10 {
        let executing = soon(held.recv()).await.unwrap();
        // A connection goes to the core with the fewest requests in hand: the other one.
        let second = get(&gate, PODS).await;
        until(|| small(&gate) == (1, 1, 1)).await;
        let levels = gate.flow_control().dispatcher().levels();
        let (_, level) = levels.iter().find(|(name, _)| &**name == "small").unwrap();
        let mut cores: Vec<u16> = level.inspect(|set| {
            let requests = set.requests();
            requests.iter().map(|r| r.entry.waiter.core).collect()
        });
        cores.sort_unstable();
        assert_eq!(cores, [0, 1]);
        executing.respond("");
        first.served().await;
        first = second;
    }
    soon(held.recv()).await.unwrap().respond("");
    first.served().await;
}
