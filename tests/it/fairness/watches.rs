//! Watches hold a seat until they are initialised, and count as watchers until they end.

use bytes::Bytes;
use fairgate_core::{cells::HistogramTotal, digest::RequestInfo};
use hyper::body::Incoming;

use super::*;
use crate::{
    client::piece,
    rules::{Full, Rules},
    upstream::streamed,
};

const INITIAL_EVENTS: &str = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersion=7\
    &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const FROM_VERSION: &str = "/api/v1/pods?watch=1&resourceVersion=7";
const LEGACY: &str = "/api/v1/pods?watch=1";

const BOOKMARK: &str = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{
    "resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;

/// A watch as the upstream sees it; its head is sent when the test says so.
struct Watched {
    accept: oneshot::Sender<()>,
    events: mpsc::UnboundedSender<std::io::Result<Bytes>>,
}

fn watched(speaks: Speaks) -> (TestUpstream, mpsc::UnboundedReceiver<Watched>) {
    let (come, comes) = mpsc::unbounded_channel();
    let upstream = TestUpstream::start(speaks, move |_| {
        let (accept, accepted) = oneshot::channel();
        let (events, body) = streamed();
        let _ = come.send(Watched { accept, events });
        async move {
            let _ = accepted.await;
            http::Response::new(body)
        }
    });
    (upstream, comes)
}

/// A watch that was accepted, as its client sees it.
struct Open {
    client: TestClient,
    body: Incoming,
    events: mpsc::UnboundedSender<std::io::Result<Bytes>>,
}

impl Open {
    /// Starts a watch and accepts it.
    async fn start(
        gate: &Gate,
        http2: bool,
        target: &str,
        comes: &mut mpsc::UnboundedReceiver<Watched>,
    ) -> Self {
        let mut client = connect(gate, http2).await;
        let request = of(&client, "alice", Method::GET, target);
        let (response, events) = {
            let sending = client.send(request);
            let accepting = async {
                let watched = soon(comes.recv()).await.unwrap();
                watched.accept.send(()).unwrap();
                watched.events
            };
            tokio::join!(sending, accepting)
        };
        let response = response.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        Self {
            client,
            body: response.into_body(),
            events,
        }
    }

    /// Sends an event and waits until the client has it.
    async fn event(&mut self, event: impl Into<Bytes>) {
        let event = event.into();
        self.events.send(Ok(event.clone())).unwrap();
        let mut seen = Vec::new();
        while seen.len() < event.len() {
            seen.extend_from_slice(&piece(&mut self.body).await.unwrap().unwrap());
        }
        assert_eq!(seen, event);
    }
}

#[tokio::test]
async fn five_watches_hold_the_seats_until_their_bookmarks_and_then_five_more_are_admitted() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, mut comes) = watched(speaks);
        let gate = Gate::governed(&upstream, &Rules::small(5, Full::queue(10)));
        let mut open = Vec::new();
        for number in 0..5 {
            let watch = Open::start(&gate, number % 2 == 0, INITIAL_EVENTS, &mut comes);
            open.push(watch.await);
        }
        for watch in &mut open {
            watch.event(r#"{"type":"ADDED"}"#).await;
        }
        assert_eq!(small(&gate), (5, 0, 5));
        let mut waiting = TestClient::http1(gate.address()).await;
        let request = of(&waiting, "bob", Method::GET, FROM_VERSION);
        let waiting = tokio::spawn(async move { waiting.send(request).await.unwrap().status() });
        until(|| small(&gate) == (5, 1, 5)).await;
        assert!(comes.try_recv().is_err());

        open[0].event(BOOKMARK).await;
        let admitted = soon(comes.recv()).await.unwrap();
        admitted.accept.send(()).unwrap();
        assert_eq!(soon(waiting).await.unwrap(), StatusCode::OK);
        for watch in &mut open[1..] {
            watch.event(BOOKMARK).await;
        }
        until(|| small(&gate) == (0, 0, 0)).await;
        for number in 0..5 {
            let watch = Open::start(&gate, number % 2 == 0, INITIAL_EVENTS, &mut comes);
            open.push(watch.await);
        }
        assert_eq!(small(&gate), (5, 0, 5));
        for watch in &mut open {
            watch.event(r#"{"type":"MODIFIED"}"#).await;
        }
        drop(open);
        until(|| small(&gate) == (0, 0, 0)).await;
    }
}

#[tokio::test]
async fn the_bookmark_is_recognised_in_pieces_and_in_protobuf() {
    let (upstream, mut comes) = watched(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    let mut protobuf =
        b"\0\0\x01\x2c\x0a\x08BOOKMARK\x12\xf0\x01k8s\0\x0a\x09\x0a\x02v1\x12".to_vec();
    protobuf.extend_from_slice(b"\x03Pod\x62\x21\x0a\x19k8s.io/initial-events-end\x12\x04true");
    protobuf.extend_from_slice(&[0xff; 40]);
    for event in [BOOKMARK.as_bytes(), &protobuf] {
        for size in [1, 7, 1000] {
            let mut watch = Open::start(&gate, false, INITIAL_EVENTS, &mut comes).await;
            let until_sign = memchr::memmem::find(event, b"initial-events-end").unwrap();
            let (before, rest) = event.split_at(until_sign);
            for piece in before.chunks(size) {
                watch.event(Bytes::copy_from_slice(piece)).await;
            }
            assert_eq!(small(&gate), (1, 0, 1));
            for piece in rest.chunks(size) {
                watch.event(Bytes::copy_from_slice(piece)).await;
            }
            until(|| small(&gate) == (0, 0, 0)).await;
        }
    }
}

#[tokio::test]
async fn a_watch_from_a_version_holds_its_seat_until_its_head() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let (upstream, mut comes) = watched(speaks);
        let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
        for mut client in TestClient::both(gate.address()).await {
            let request = of(&client, "alice", Method::GET, FROM_VERSION);
            let watch = tokio::spawn(async move { (client.send(request).await.unwrap(), client) });
            let watched = soon(comes.recv()).await.unwrap();
            assert_eq!(small(&gate), (1, 0, 1));
            watched.accept.send(()).unwrap();
            let (response, _client) = soon(watch).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            until(|| small(&gate) == (0, 0, 0)).await;
            assert!(!watched.events.is_closed(), "the watch goes on");
        }
    }
}

#[tokio::test]
async fn a_watch_without_a_bookmark_returns_its_seat_when_its_events_pause_and_continues() {
    let (upstream, mut comes) = watched(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    let mut watch = Open::start(&gate, true, LEGACY, &mut comes).await;
    // A unit test of `watch_init` shows with a manual clock that the seat is held until the pause.
    for _ in 0..5 {
        watch.event("event").await;
    }
    until(|| small(&gate) == (0, 0, 0)).await;
    watch.event("goes on").await;
}

#[tokio::test]
async fn a_watch_whose_client_reads_nothing_does_not_keep_its_seat() {
    use std::io::Write as _;
    let (upstream, mut comes) = watched(Speaks::Http2);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    let mut client = std::net::TcpStream::connect(gate.address()).unwrap();
    let head = format!("GET {LEGACY} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let watched = soon(comes.recv()).await.unwrap();
    // More than any buffer on the way holds.
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    for _ in 0..64 {
        watched.events.send(Ok(piece.clone())).unwrap();
    }
    assert_eq!(small(&gate), (1, 0, 1));
    watched.accept.send(()).unwrap();
    until(|| small(&gate) == (0, 0, 0)).await;
    assert!(!watched.events.is_closed(), "the watch goes on");
}

#[tokio::test]
async fn a_watch_that_fails_or_is_abandoned_gives_its_seat_back() {
    let (upstream, mut comes) = watched(Speaks::Http2);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::Reject));
    for http2 in [false, true] {
        let watch = Open::start(&gate, http2, INITIAL_EVENTS, &mut comes).await;
        assert_eq!(small(&gate), (1, 0, 1));
        watch.client.abandon().await;
        drop(watch.body);
        until(|| small(&gate) == (0, 0, 0)).await;

        let mut watch = Open::start(&gate, http2, INITIAL_EVENTS, &mut comes).await;
        drop(watch.events);
        assert!(piece(&mut watch.body).await.is_none());
        until(|| small(&gate) == (0, 0, 0)).await;
    }
}

#[tokio::test]
async fn a_watch_that_is_refused_never_reaches_the_upstream() {
    for full in [Full::Reject, Full::queue(1)] {
        let (upstream, mut comes) = watched(Speaks::Http1);
        let gate = Gate::governed(&upstream, &Rules::small(1, full));
        let mut watch = Open::start(&gate, false, INITIAL_EVENTS, &mut comes).await;
        let mut waiting = None;
        if matches!(full, Full::Queue { .. }) {
            waiting = Some(get(&gate, FROM_VERSION).await);
            until(|| small(&gate) == (1, 1, 1)).await;
        }
        for http2 in [false, true] {
            let pending = start_request(&gate, http2, "bob", Method::GET, FROM_VERSION).await;
            let response = pending.response().await;
            assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(
                response.body,
                "Too many requests, please try again later.\n"
            );
            assert_eq!(
                response.uids(),
                ("uid-of-schema-small", "uid-of-level-small")
            );
        }
        assert_eq!(upstream.seen().len(), 1);
        watch.event(BOOKMARK).await;
        if let Some(waiting) = waiting {
            let watched = soon(comes.recv()).await.unwrap();
            watched.accept.send(()).unwrap();
            drop(watched.events);
            waiting.served().await;
        }
    }
}

/// The upper bound of the highest filled bucket in the histogram of seats, over all cores.
fn greatest(gate: &Gate) -> f64 {
    let mut total = HistogramTotal::default();
    gate.flow_control().visit_cells(|_, schema, cells| {
        if schema == "small" {
            for core in cells {
                core.seats.add_to(&mut total);
            }
        }
    });
    let filled = total.counts.iter().rposition(|count| *count > 0);
    total.bounds[filled.unwrap()]
}

#[tokio::test]
async fn writes_take_more_seats_while_watchers_are_interested_in_them() {
    let pods = "/api/v1/namespaces/a/pods?watch=1&resourceVersion=7";
    let write = RequestInfo::from_target("POST", PODS).unwrap();
    let upstream = TestUpstream::start(Speaks::Http2, |request| async move {
        if request.method() == Method::POST {
            return text("created");
        }
        let (events, body) = streamed();
        // The watch continues until its client disconnects.
        tokio::spawn(async move { events.closed().await });
        http::Response::new(body)
    });
    let gate = Gate::governed(&upstream, &Rules::small(100, Full::queue(10)));
    let interested = || {
        gate.flow_control()
            .with_watchers(|watchers| watchers.interested(&write))
    };
    let post = async || {
        start_request(&gate, false, "alice", Method::POST, PODS)
            .await
            .served()
            .await;
        until(|| small(&gate) == (0, 0, 0)).await;
    };
    post().await;
    assert!(greatest(&gate) <= 1.0, "nobody watches");

    let mut clients = TestClient::both(gate.address()).await;
    let mut watches = Vec::new();
    for number in 0..29 {
        // On HTTP/1 a connection carries one watch.
        let request = of(&clients[1], "alice", Method::GET, pods);
        if number == 0 {
            let request = of(&clients[0], "alice", Method::GET, pods);
            watches.push(soon(clients[0].send(request)).await.unwrap());
        } else {
            watches.push(soon(clients[1].send(request)).await.unwrap());
        }
    }
    assert_eq!(interested(), 29);
    until(|| small(&gate) == (0, 0, 0)).await;
    post().await;
    assert!((greatest(&gate) - 4.0).abs() < 0.1, "a write takes 3 seats");

    drop(watches);
    for client in clients {
        client.abandon().await;
    }
    until(|| interested() == 0).await;
}
