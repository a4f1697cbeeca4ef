//! Bodies that are slow or never complete: their requests keep no seats from others.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
};

use bytes::Bytes;
use fairgate_base::account::ByteBudget;
use fairgate_proxy::fairness::{BodyLimits, LateBody};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;

use super::*;
use crate::{
    rules::{Full, Rules},
    upstream::streamed,
};

/// What an upstream got that reads bodies to their end before it does anything, as API servers do.
#[derive(Default)]
struct Bodies {
    begun: AtomicUsize,
    complete: AtomicUsize,
    broken: AtomicUsize,
}

impl Bodies {
    fn upstream(speaks: Speaks) -> (TestUpstream, Arc<Self>) {
        let bodies = Arc::<Self>::default();
        let noted = Arc::clone(&bodies);
        let upstream = TestUpstream::start(speaks, move |request| {
            let noted = Arc::clone(&noted);
            noted.begun.fetch_add(1, Ordering::Relaxed);
            async move {
                let Ok(body) = request.into_body().collect().await else {
                    noted.broken.fetch_add(1, Ordering::Relaxed);
                    return text("broken");
                };
                noted.complete.fetch_add(1, Ordering::Relaxed);
                http::Response::new(full(body.to_bytes()))
            }
        });
        (upstream, bodies)
    }

    fn counts(&self) -> [usize; 3] {
        [&self.begun, &self.complete, &self.broken].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A request whose client has sent a part of the body.
enum Unfinished {
    Http1(TcpStream),
    Http2(
        mpsc::UnboundedSender<std::io::Result<Bytes>>,
        JoinHandle<hyper::Result<StatusCode>>,
    ),
}

impl Unfinished {
    /// Sends 8 of `length` bytes.
    async fn post(gate: &Gate, http2: bool, user: &str, length: usize) -> Self {
        Self::post_to(gate.address(), http2, user, PODS, length).await
    }

    async fn post_to(
        address: SocketAddr,
        http2: bool,
        user: &str,
        target: &str,
        length: usize,
    ) -> Self {
        if !http2 {
            let mut stream = TcpStream::connect(address).unwrap();
            let head = format!(
                "POST {target} HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\nContent-Length: {length}\r\n\r\n12345678"
            );
            stream.write_all(head.as_bytes()).unwrap();
            return Self::Http1(stream);
        }
        let mut client = TestClient::http2(address).await;
        let (send, body) = streamed();
        send.send(Ok("12345678".into())).unwrap();
        let request = client
            .request(Method::POST, target)
            .header("x-user", user)
            .header("content-length", length)
            .body(body)
            .unwrap();
        let response = tokio::spawn(async move { Ok(client.send(request).await?.status()) });
        Self::Http2(send, response)
    }

    /// Sends the rest of a body of 1000 bytes, and returns the status of the response.
    async fn finish(mut self) -> u16 {
        let rest = vec![b'x'; 992];
        match &mut self {
            Self::Http1(stream) => stream.write_all(&rest).unwrap(),
            Self::Http2(send, _) => {
                send.send(Ok(rest.into())).unwrap();
                *send = mpsc::unbounded_channel().0;
            }
        }
        self.status().await
    }

    /// The status of the response.
    async fn status(self) -> u16 {
        match self {
            Self::Http1(mut stream) => {
                let reading = tokio::task::spawn_blocking(move || {
                    let mut head = [0; 12];
                    stream.set_read_timeout(Some(HANG)).unwrap();
                    stream.read_exact(&mut head).unwrap();
                    crate::client::status(std::str::from_utf8(&head).unwrap())
                });
                soon(reading).await.unwrap()
            }
            Self::Http2(_send, response) => soon(response).await.unwrap().unwrap().as_u16(),
        }
    }

    /// The client disconnects, or resets the stream.
    fn abort(self) {
        match self {
            Self::Http1(stream) => stream.shutdown(Shutdown::Both).unwrap(),
            Self::Http2(_, response) => response.abort(),
        }
    }
}

fn limits(unfinished_bytes: usize) -> BodyLimits {
    BodyLimits {
        unfinished_bytes,
        min_send_rate: 64 << 10,
    }
}

/// Two seats.
fn rules(unfinished_bytes: usize) -> Rules {
    Rules::small(2, Full::queue(100)).set(|set| set.bodies = limits(unfinished_bytes))
}

fn waiting(gate: &Gate) -> u32 {
    gate.flow_control().bodies.waiting()
}

#[tokio::test]
async fn requests_whose_bodies_have_not_arrived_hold_no_seats() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, bodies) = Bodies::upstream(speaks);
        let gate = Gate::governed(&upstream, &rules(1 << 20));
        let mut all = Vec::new();
        for number in 0..20 {
            let user = ["mallory", "eve"][number % 2];
            all.push(Unfinished::post(&gate, number % 4 < 2, user, 1000).await);
        }
        until(|| waiting(&gate) == 20).await;
        assert_eq!(small(&gate), (0, 0, 0));
        for mut client in TestClient::both(gate.address()).await {
            let answer = client.post(PODS, full("{}")).await;
            assert_eq!(answer.status(), StatusCode::OK);
        }
        assert_eq!(bodies.counts(), [2, 2, 0]);
        for aborted in all.drain(..10) {
            aborted.abort();
        }
        until(|| waiting(&gate) == 10).await;
        for complete in all {
            assert_eq!(complete.finish().await, 200);
        }
        assert_eq!(waiting(&gate), 0);
        assert_eq!(gate.flow_control().bodies.budget().held().now, 0);
        assert_eq!(bodies.counts(), [12, 12, 0]);
        assert!(upstream.seen().iter().all(|seen| seen.target == PODS));
    }
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused_when_its_request_may_not_wait_any_longer() {
    let (upstream, bodies) = Bodies::upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &rules(1 << 20));
    for http2 in [false, true] {
        let target = format!("{PODS}?timeout=100ms");
        let late = Unfinished::post_to(gate.address(), http2, "eve", &target, 1000).await;
        assert_eq!(late.status().await, 408);
    }
    assert_eq!(gate.flow_control().bodies.late(LateBody::WaitLimit), 2);
    assert_eq!((bodies.counts(), waiting(&gate)), ([0; 3], 0));
    assert_eq!(gate.flow_control().bodies.budget().held().now, 0);
}

#[tokio::test]
async fn who_is_rejected_at_once_is_not_asked_for_the_body() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    let executing = get(&gate, PODS).await;
    let answer = soon(held.recv()).await.unwrap();
    for more in ["Expect: 100-continue\r\n\r\n", "\r\n12345678"] {
        let mut stream = TcpStream::connect(gate.address()).unwrap();
        let head = format!("POST {PODS} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n{more}");
        stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(Unfinished::Http1(stream).status().await, 429, "{more:?}");
    }
    assert_eq!(waiting(&gate), 0);
    answer.respond("");
    executing.served().await;
    // With a free seat, the body is awaited.
    let last = Unfinished::post(&gate, false, "eve", 1000).await;
    until(|| waiting(&gate) == 1).await;
    let finished = tokio::spawn(last.finish());
    soon(held.recv()).await.unwrap().respond("");
    assert_eq!(soon(finished).await.unwrap(), 200);
}

#[tokio::test]
async fn where_there_is_no_room_slow_clients_are_refused_once_others_need_their_seats() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, bodies) = Bodies::upstream(speaks);
        let rules = Rules::small(1, Full::queue(10)).set(|set| set.bodies = limits(0));
        let gate = Gate::governed(&upstream, &rules);
        for (late, http2) in (1..).zip([false, true]) {
            let slow = Unfinished::post(&gate, http2, "eve", 1000).await;
            until(|| small(&gate) == (1, 0, 1)).await;
            assert_eq!(waiting(&gate), 0);
            let next = get(&gate, PODS).await;
            assert_eq!(slow.status().await, 408);
            next.served().await;
            assert_eq!(gate.flow_control().bodies.late(LateBody::NoSeatFree), late);
            until(|| small(&gate) == (0, 0, 0)).await;
        }
        assert_eq!(bodies.counts()[1], 2, "only the others are executed");
    }
}

#[tokio::test]
async fn the_seat_of_a_long_body_that_is_aborted_is_free_once_the_request_is_reset() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, bodies) = Bodies::upstream(speaks);
        let gate = Gate::governed(&upstream, &rules(1 << 20));
        for http2 in [false, true] {
            let [before, ..] = bodies.counts();
            let long = Unfinished::post(&gate, http2, "eve", 100 << 10).await;
            until(|| bodies.counts()[0] == before + 1).await;
            assert_eq!(small(&gate), (1, 0, 1));
            long.abort();
            until(|| small(&gate) == (0, 0, 0)).await;
        }
        assert_eq!(bodies.counts()[1], 0, "nothing is executed");
    }
}

#[tokio::test]
async fn users_share_the_memory_for_bodies_that_have_not_arrived() {
    let (upstream, _) = Bodies::upstream(Speaks::Http1);
    // Room for eight requests.
    let rules = Rules::small(100, Full::queue(100)).set(|set| set.bodies = limits(17 << 10));
    let gate = Gate::governed(&upstream, &rules);
    let mut all = Vec::new();
    for _ in 0..20 {
        all.push(Unfinished::post(&gate, false, "greedy", 1000).await);
    }
    // The others get their seats first.
    until(|| small(&gate).0 == 16).await;
    assert_eq!(waiting(&gate), 4);
    for user in ["a", "b", "c", "d", "e", "f"] {
        all.push(Unfinished::post(&gate, true, user, 1000).await);
    }
    until(|| small(&gate).0 + waiting(&gate) == 26).await;
    let held = gate.flow_control().bodies.budget().held();
    assert!(held.most <= 17 << 10, "{held:?}");
    for one in all {
        assert_eq!(one.finish().await, 200);
    }
    assert_eq!(gate.flow_control().bodies.budget().held().now, 0);
}

#[tokio::test]
async fn an_incomplete_body_gets_400_and_no_seat() {
    let (upstream, bodies) = Bodies::upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &rules(1 << 20));
    let half = Unfinished::post(&gate, false, "eve", 1000).await;
    until(|| waiting(&gate) == 1).await;
    let Unfinished::Http1(stream) = &half else {
        panic!("it is HTTP/1");
    };
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(half.status().await, 400);
    assert_eq!(bodies.counts(), [0; 3]);
}

/// The windows of HTTP/2, in bytes: of a stream, and of all of a connection together.
const STREAM_WINDOW: usize = 256 << 10;
const CONNECTION_WINDOW: usize = 4 << 20;

/// A gateway with two seats, which clients hold that send nothing, and nothing of other bodies is read. Those of queued requests may
/// have sent so much.
fn without_reading(upstream: &TestUpstream, windows: usize) -> (Gate, Arc<ByteBudget>) {
    let budget = ByteBudget::new(windows);
    let shared = Arc::clone(&budget);
    let rules = Rules::small(2, Full::queue(100)).set(|set| {
        set.bodies = BodyLimits {
            unfinished_bytes: 0,
            min_send_rate: 0,
        };
    });
    let gate = Gate::governed_with(upstream, &rules, |app, _| {
        app.serve.read_ahead_bytes = 0;
        app.serve.stream_windows = shared;
    });
    (gate, budget)
}

#[tokio::test]
async fn long_bodies_of_queued_requests_are_charged_what_their_streams_may_hold() {
    let (upstream, bodies) = Bodies::upstream(Speaks::Http1);
    let (gate, budget) = without_reading(&upstream, 8 * STREAM_WINDOW);
    let mut open = Vec::new();
    for begun in 1..=2 {
        open.push(Unfinished::post(&gate, true, "holder", 1 << 20).await);
        until(|| bodies.counts()[0] == begun).await;
    }
    assert_eq!(budget.held().now, 0, "who has a seat is charged nothing");
    for queued in 1..=4 {
        open.push(Unfinished::post(&gate, true, "many", 1 << 20).await);
        until(|| budget.held().now == queued * STREAM_WINDOW).await;
    }
    // One has at most as much as is still free, and others have their part.
    let refused = Unfinished::post(&gate, true, "many", 1 << 20).await;
    assert_eq!(refused.status().await, 429);
    open.push(Unfinished::post(&gate, true, "other", 1 << 20).await);
    until(|| budget.held().now == 5 * STREAM_WINDOW).await;
    open.push(Unfinished::post(&gate, true, "other", 1000).await);
    until(|| budget.held().now == 5 * STREAM_WINDOW + 1000).await;
    // Nothing that HTTP/1 clients send is read.
    open.push(Unfinished::post(&gate, false, "many", 1 << 20).await);
    until(|| gate.limit.0.queued() == 7).await;
    assert!(budget.held().now < 6 * STREAM_WINDOW);
    for request in open {
        request.abort();
    }
    until(|| budget.held().now == 0).await;
    assert!(budget.held().most <= 8 * STREAM_WINDOW);
}

#[tokio::test]
async fn the_clients_of_queued_requests_can_send_no_more_than_their_windows() {
    let (upstream, bodies) = Bodies::upstream(Speaks::Http1);
    let (gate, budget) = without_reading(&upstream, 64 * STREAM_WINDOW);
    let mut open = Vec::new();
    for begun in 1..=2 {
        open.push(Unfinished::post(&gate, true, "holder", 1 << 20).await);
        until(|| bodies.counts()[0] == begun).await;
    }
    let stream = tokio::net::TcpStream::connect(gate.address())
        .await
        .unwrap();
    let (client, mut connection) = h2::client::handshake(stream).await.unwrap();
    let mut ping = connection.ping_pong().unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let (mut sent, mut all) = (Vec::new(), 0);
    for number in 1..=20 {
        let request = Request::post(format!("http://gate{PODS}")).header("x-user", "many");
        let (_, mut body) = client
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        body.reserve_capacity(1 << 20);
        // All that it may send, which it does: whatever the gateway allows arrives before its answer to a ping.
        loop {
            while let Some(Some(Ok(bytes))) =
                std::future::poll_fn(|cx| body.poll_capacity(cx)).now_or_never()
            {
                body.send_data(vec![b'x'; bytes].into(), false).unwrap();
                body.reserve_capacity(1 << 20);
                all += bytes;
            }
            soon(ping.ping(h2::Ping::opaque())).await.unwrap();
            if body.capacity() == 0 {
                break;
            }
        }
        until(|| gate.limit.0.queued() == number).await;
        sent.push(body);
        client = soon(client.ready()).await.unwrap();
    }
    assert_eq!(budget.held().now, 20 * STREAM_WINDOW);
    assert_eq!(all, CONNECTION_WINDOW.min(20 * STREAM_WINDOW));
    drop((sent, client));
    for request in open {
        request.abort();
    }
    until(|| budget.held().now == 0).await;
}
