//! Requests that clients reset: what the upstream sees of them, and how the gateway treats the client.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate::app::AppSettings;
use fairgate_base::{clock::Clock, events::EventSink};
use fairgate_proxy::{
    forward::{UpstreamProtocol, UpstreamSettings},
    serve::ClientEvent,
};
use http::{Method, StatusCode};

use crate::{
    client::{HANG, TestClient, body_text, soon},
    failures::until,
    frames::{self, ByHand, ENHANCE_YOUR_CALM, RST_STREAM, Tap},
    gate::Gate,
    rules::{Full, Rules},
    upstream::{Speaks, TestBody, TestUpstream, full, streamed, text},
};

const LOG: &str = "/api/v1/namespaces/a/pods/p/log";
const LONG: Duration = Duration::from_secs(600);
const SLOW: &str = "/api/v1/namespaces/a/pods/slow";

/// A gateway of one core in front of `address`, which speaks HTTP/2.
fn before(address: std::net::SocketAddr) -> Gate {
    let mut to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
    to.protocol = UpstreamProtocol::Http2;
    Gate::towards(to, |settings, _| settings.cores = NonZero::<usize>::MIN)
}

/// The same, with a time limit of 300 ms: a request continues for that long after its client has disconnected.
fn hasty(address: std::net::SocketAddr) -> Gate {
    let mut to = UpstreamSettings::new(address.to_string().parse().unwrap(), None);
    to.protocol = UpstreamProtocol::Http2;
    let rules = Rules::new().set(|set| set.request_timeout = Duration::from_millis(300));
    let one_core = |settings: &mut AppSettings, _: &mut UpstreamSettings| {
        settings.cores = NonZero::<usize>::MIN;
    };
    Gate::towards_under(|cores| rules.flow_control(cores), to, one_core)
}

/// Sends `number` requests, and resets them as soon as they have reached the upstream.
async fn reset(
    upstream: &TestUpstream,
    client: &mut TestClient,
    user: &str,
    target: &str,
    number: usize,
) {
    let before = upstream.seen().len();
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..number {
        let request = client.request(Method::GET, target).header("x-user", user);
        requests.spawn(client.start(request.body(full("")).unwrap()));
    }
    until(|| upstream.seen().len() >= before + number).await;
    requests.shutdown().await;
}

/// A gateway that counts resets as premature for a minute, because the machine may be busy.
fn slow(upstream: &TestUpstream) -> Gate {
    let rules = Rules::small(1000, Full::Reject).set(|settings| {
        settings.resets.premature_within = LONG;
        settings.resets.interval = LONG;
    });
    Gate::governed_with(upstream, &rules, |settings, _| {
        settings.serve.resets.premature_within = LONG;
        settings.serve.resets.interval = LONG;
    })
}

fn get(client: &TestClient, user: &str) -> http::Request<TestBody> {
    let request = client.request(Method::GET, "/api/v1/pods");
    request.header("x-user", user).body(full("")).unwrap()
}

/// An upstream that serves all but [`SLOW`].
fn half_slow() -> TestUpstream {
    TestUpstream::start(Speaks::Http2, |request| async move {
        match request.uri().path() {
            SLOW => std::future::pending().await,
            _ => text("served"),
        }
    })
}

#[tokio::test]
async fn an_abandoned_response_that_ends_soon_is_read_to_its_end() {
    let (release, released) = tokio::sync::watch::channel(false);
    let upstream = TestUpstream::start(Speaks::Http2, move |_| {
        let mut released = released.clone();
        async move {
            released.wait_for(|released| *released).await.unwrap();
            text("read by the gateway alone")
        }
    });
    let tap = Tap::before(upstream.address).await;
    let mut to = UpstreamSettings::new(tap.address.to_string().parse().unwrap(), None);
    to.protocol = UpstreamProtocol::Http2;
    to.abandoned_linger = HANG;
    let gate = Gate::towards(to, |settings, _| settings.cores = NonZero::<usize>::MIN);
    for target in [LOG, "/readyz?verbose", "/api/v1/namespaces/a/pods"] {
        let mut client = TestClient::http2(gate.address()).await;
        reset(&upstream, &mut client, "alice", target, 30).await;
    }
    release.send(true).unwrap();
    let mut client = TestClient::http2(gate.address()).await;
    assert_eq!(client.get("/api/v1/pods").await.status(), 200);
    until(|| gate.gateway.gauges().1() == 0).await;
    assert_eq!(tap.total(RST_STREAM), 0);
}

/// How many streams the gateway may reset on a connection in this time: a slow machine allows more, never fewer.
fn most_resets(passed: Duration) -> usize {
    20 + 5 * usize::try_from(passed.as_secs() + 1).unwrap()
}

#[tokio::test]
async fn no_more_streams_are_reset_than_a_server_tolerates() {
    let upstream = TestUpstream::start(Speaks::Http2Streams(100), |_| std::future::pending());
    let tap = Tap::before(upstream.address).await;
    let gate = hasty(tap.address);
    let clock = Clock::system();
    let started = clock.now();
    for user in ["a", "b", "c", "d"] {
        let mut client = TestClient::http2(gate.address()).await;
        reset(&upstream, &mut client, user, LOG, 60).await;
    }
    // All of them are abandoned. Some are reset after a while, the others wait for their turn.
    until(|| tap.total(RST_STREAM) >= 60).await;
    let resets = tap.count(RST_STREAM);
    let most = most_resets(clock.now().since(started));
    assert!(
        resets.iter().all(|resets| *resets <= most),
        "{resets:?} of {most}"
    );
    assert!(tap.count(RST_STREAM).len() <= 5);
}

#[tokio::test]
async fn the_rest_of_an_abandoned_response_is_read_up_to_a_limit() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| async {
        let (send, answer) = streamed();
        tokio::spawn(async move {
            let piece = bytes::Bytes::from(vec![b'x'; 64 << 10]);
            while send.send(Ok(piece.clone())).is_ok() {
                // Nearly as fast as the gateway reads it.
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        });
        http::Response::new(answer)
    });
    let tap = Tap::before(upstream.address).await;
    let gate = before(tap.address);
    let mut client = TestClient::http2(gate.address()).await;
    let answer = client.get(LOG).await;
    drop(answer);
    // The gateway cancels it after a second.
    until(|| tap.total(RST_STREAM) == 1).await;
}

#[tokio::test]
async fn a_client_whose_body_breaks_off_does_not_reset_more_than_others() {
    let upstream = TestUpstream::start(Speaks::Http2Streams(100), |_| std::future::pending());
    let tap = Tap::before(upstream.address).await;
    let gate = hasty(tap.address);
    let clock = Clock::system();
    let started = clock.now();
    let mut client = TestClient::http2(gate.address()).await;
    let mut bodies = Vec::new();
    for _ in 0..60 {
        let (send, body) = streamed();
        send.send(Ok("half".into())).unwrap();
        let request = client.request(Method::POST, LOG).body(body).unwrap();
        bodies.push((send, tokio::spawn(client.start(request))));
    }
    until(|| tap.total(frames::HEADERS) == 60).await;
    for (send, request) in bodies {
        request.abort();
        drop(send);
    }
    until(|| tap.total(RST_STREAM) >= 20).await;
    let resets = tap.total(RST_STREAM);
    let most = most_resets(clock.now().since(started));
    assert!(resets <= most, "{resets} of {most}");
}

#[tokio::test]
async fn no_request_fails_when_the_upstream_ends_a_connection() {
    for code in [0, ENHANCE_YOUR_CALM] {
        let mut upstream = ByHand::start().await;
        let gate = before(upstream.address);
        let mut client = TestClient::http2(gate.address()).await;
        let post = |client: &mut TestClient| {
            let request = client.request(Method::POST, "/api/v1/namespaces/a/pods");
            tokio::spawn(client.start(request.body(full("{}")).unwrap()))
        };
        let first = post(&mut client);
        let mut old = soon(upstream.accept()).await;
        let seen = soon(old.request()).await;
        let second = post(&mut client);
        let unseen = soon(old.request()).await;
        assert!(unseen > seen);
        old.go_away(seen, code).await;
        // On a new connection, the request that the upstream has not processed is sent again, and new ones are sent.
        let mut new = soon(upstream.accept()).await;
        let again = soon(new.request()).await;
        new.answer(again).await;
        assert_eq!(soon(second).await.unwrap().unwrap().status(), 200);
        let third = post(&mut client);
        let stream = soon(new.request()).await;
        new.answer(stream).await;
        assert_eq!(soon(third).await.unwrap().unwrap().status(), 200);
        // The request that it has processed continues on the old connection.
        old.answer(seen).await;
        assert_eq!(soon(first).await.unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_connection_of_premature_resets_is_ended_and_no_other() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| std::future::pending());
    let gate = slow(&upstream);
    let mut other = TestClient::http2(gate.address()).await;
    let request = other.request(Method::GET, LOG).header("x-user", "other");
    let waits = tokio::spawn(other.start(request.body(full("")).unwrap()));
    let stream = tokio::net::TcpStream::connect(gate.address()).await;
    let (client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
    let ended = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let before = upstream.seen().len();
    let mut answers = Vec::new();
    for n in 1..=101 {
        let uri = format!("http://gate{SLOW}");
        let request = http::Request::get(uri).body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        answers.push(answer);
        until(|| upstream.seen().len() >= before + n).await;
        if n == 60 {
            answers.clear();
            client = soon(client.ready()).await.unwrap();
        }
    }
    drop(answers);
    let error = soon(ended).await.unwrap().unwrap_err();
    assert!(error.is_go_away() && error.is_remote(), "{error:?}");
    assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM));
    assert!(!waits.is_finished());
    assert!(gate.flow_control().premature.total() > 100);
}

#[tokio::test]
async fn requests_reset_before_they_are_processed_end_the_connection_as_well() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let upstream = TestUpstream::saying(Speaks::Http2, "served");
    let ended = Arc::<AtomicUsize>::default();
    let count = ended.clone();
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.events = EventSink::new(move |event| {
            assert_eq!(event, ClientEvent::EndedForResets);
            count.fetch_add(1, Ordering::SeqCst);
        });
    });
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend_from_slice(&[0, 0, 0, frames::SETTINGS, 0, 0, 0, 0, 0]);
    for stream in (1..100_u8).step_by(2) {
        // GET, http, /, and a literal authority.
        let head = b"\x82\x86\x84\x01\x04gate";
        bytes.extend_from_slice(&[0, 0, 9, frames::HEADERS, 1 | 4, 0, 0, 0, stream]);
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(&[0, 0, 4, RST_STREAM, 0, 0, 0, 0, stream, 0, 0, 0, 8]);
    }
    let stream = tokio::net::TcpStream::connect(gate.address()).await;
    let mut stream = stream.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut said = Vec::new();
    let _ = soon(stream.read_to_end(&mut said)).await;
    until(|| ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_front_proxys_connection_is_not_ended_for_the_resets_of_one_user() {
    let upstream = half_slow();
    let gate = slow(&upstream);
    let mut proxy = TestClient::http2(gate.address()).await;
    assert_eq!(proxy.send(get(&proxy, "good")).await.unwrap().status(), 200);
    for _ in 0..3 {
        reset(&upstream, &mut proxy, "bad", SLOW, 90).await;
    }
    assert_eq!(proxy.send(get(&proxy, "good")).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_user_that_keeps_resetting_on_new_connections_is_refused_for_a_while() {
    let upstream = half_slow();
    let gate = slow(&upstream);
    for _ in 0..6 {
        let mut client = TestClient::http2(gate.address()).await;
        let before = gate.flow_control().premature.total();
        reset(&upstream, &mut client, "bad", SLOW, 90).await;
        until(|| gate.flow_control().premature.total() == before + 90).await;
    }
    let mut client = TestClient::http2(gate.address()).await;
    let refused = client.send(get(&client, "bad")).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["x-fairgate-reason"], "too-many-resets");
    assert!(refused.headers().contains_key("retry-after"));
    assert!(
        body_text(refused)
            .await
            .contains(r#""reason":"TooManyRequests""#)
    );
    let served = client.send(get(&client, "good")).await.unwrap();
    assert_eq!(served.status(), 200);
}
