//! Clients that read slowly, or not at all: they keep no seat that other requests need, and use bounded memory.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use bytes::Bytes;
use fairgate_call::{CutReason, SpoolLimits};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::*;
use crate::rules::{Full, Rules};

/// More than the buffers on the way hold.
const LARGE: usize = 24 << 20;

/// One seat, and a spool of these bounds.
fn rules(per_answer: u64, total: u64) -> Rules {
    Rules::small(1, Full::queue(100)).set(|set| {
        set.spool = SpoolLimits {
            per_answer,
            total,
            min_read_bytes: 128 << 10,
        };
    })
}

fn upstream_of(speaks: Speaks, bytes: usize) -> TestUpstream {
    TestUpstream::start(speaks, move |_| async move {
        http::Response::new(full(vec![b'x'; bytes]))
    })
}

/// Asks until the request is served: on a busy machine it may be longer than any wait until a seat is free.
async fn served_at_last(gate: &Gate, user: &str) {
    loop {
        let asked = start_request(gate, false, user, Method::GET, PODS).await;
        let response = asked.response().await;
        if response.status != StatusCode::TOO_MANY_REQUESTS {
            assert_eq!(response.status, StatusCode::OK, "{response:?}");
            return;
        }
    }
}

/// A client that sends a request over HTTP/1 and reads nothing until the test calls `read`.
struct Raw(TcpStream);

impl Raw {
    fn get(address: SocketAddr) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        let head = format!("GET {PODS} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        Self(socket)
    }

    /// Reads the response until it ends or breaks off, and returns the length of its body.
    async fn read(mut self) -> usize {
        let reading = tokio::task::spawn_blocking(move || {
            self.0.set_read_timeout(Some(crate::client::HANG)).unwrap();
            let mut all = Vec::new();
            let _ = self.0.read_to_end(&mut all);
            let head = memchr::memmem::find(&all, b"\r\n\r\n").unwrap();
            all.len() - head - 4
        });
        soon(reading).await.unwrap()
    }
}

/// Sends a request over HTTP/2, with this window for each stream.
async fn get_http2(address: SocketAddr, window: u32) -> Incoming {
    get_http2_as(address, window, "alice").await
}

/// The same as `user`.
async fn get_http2_as(address: SocketAddr, window: u32, user: &str) -> Incoming {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let request = Request::get(format!("http://gate{PODS}")).header("x-user", user);
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let response = soon(sender.send_request(request)).await.unwrap();
    // The connection ends with its last sender.
    tokio::spawn(async move {
        let _sender = sender;
        std::future::pending::<()>().await;
    });
    response.into_body()
}

#[tokio::test]
async fn a_response_that_fits_the_spool_is_read_to_its_end_and_its_seat_becomes_free() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = upstream_of(speaks, LARGE);
        let gate = Gate::governed(&upstream, &rules(64 << 20, 128 << 20));
        let spool = &gate.flow_control().spool;
        let http1 = Raw::get(gate.address());
        until(|| spool.answers() == 1).await;
        until(|| small(&gate) == (0, 0, 0)).await;
        let http2 = get_http2(gate.address(), 65_535).await;
        until(|| spool.answers() == 2).await;
        until(|| small(&gate) == (0, 0, 0)).await;
        assert!(spool.bytes() > 0);

        // The clients get the whole response, however late they read it.
        let all = soon(http2.collect()).await.unwrap().to_bytes();
        assert_eq!(all.len(), LARGE);
        assert_eq!(http1.read().await, LARGE);
        until(|| spool.bytes() == 0).await;
        assert_eq!(CutReason::ALL.map(|why| spool.cut(why)), [0, 0]);
    }
}

/// The gateway has all of it at once, and hyper passes it on at once: it is not forgotten before the client has read it.
#[tokio::test]
async fn a_short_response_counts_for_its_user_until_it_is_read() {
    // Of which the window takes 64 KiB.
    const SHORT: usize = 200 << 10;
    const LEFT: u64 = 128 << 10;
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = upstream_of(speaks, SHORT);
        let gate = Gate::governed(&upstream, &rules(64 << 20, 128 << 20));
        let spool = &gate.flow_control().spool;
        let unread = get_http2(gate.address(), 65_535).await;
        until(|| spool.answers() == 1 && small(&gate) == (0, 0, 0)).await;
        until(|| spool.bytes_of("alice") >= LEFT).await;
        let all = soon(unread.collect()).await.unwrap().to_bytes();
        assert_eq!(all.len(), SHORT);
        until(|| spool.bytes() == 0).await;
    }
}

#[tokio::test]
async fn the_spool_of_a_client_that_disconnects_is_freed() {
    let upstream = upstream_of(Speaks::Http2, LARGE);
    let gate = Gate::governed(&upstream, &rules(64 << 20, 128 << 20));
    let spool = &gate.flow_control().spool;
    let leaves = get_http2(gate.address(), 1).await;
    until(|| spool.answers() == 1 && small(&gate) == (0, 0, 0)).await;
    assert!(spool.bytes() > 0);
    drop(leaves);
    until(|| spool.bytes() == 0).await;
}

#[tokio::test]
async fn the_seats_of_a_client_that_reads_too_slowly_are_counted_as_long_as_it_does() {
    let upstream = upstream_of(Speaks::Http1, LARGE);
    // The other seat stays free, so the client is not cut off.
    let rules = Rules::small(2, Full::queue(100)).set(|set| {
        set.spool = SpoolLimits {
            per_answer: 1 << 20,
            total: 64 << 20,
            min_read_bytes: 128 << 10,
        };
    });
    let gate = Gate::governed(&upstream, &rules);
    let stalled = || -> u32 {
        let cells = gate.flow_control().core_cells().iter();
        let seats = cells.map(|core| core.stalled_seats.load(Ordering::Relaxed));
        seats.sum()
    };
    let slow = Raw::get(gate.address());
    // The rate is measured every two seconds. In between the last measurement counts, unless the buffers of the kernel, which are a
    // part of the client here, still took some of the response. They are full soon.
    let mut stays_stalled = false;
    for _ in 0..5 {
        until(|| stalled() == 1).await;
        stays_stalled = true;
        for _ in 0..50 {
            stays_stalled &= stalled() == 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if stays_stalled {
            break;
        }
    }
    assert!(stays_stalled);
    drop(slow);
    until(|| stalled() == 0).await;
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_is_disconnected_when_no_seat_is_free() {
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let upstream = upstream_of(speaks, LARGE);
        let gate = Gate::governed(&upstream, &rules(1 << 20, 64 << 20));
        let spool = &gate.flow_control().spool;
        for http2 in [false, true] {
            let before = spool.cut(CutReason::NoSeatFree);
            let (mut raw, mut stream) = (None, None);
            if http2 {
                stream = Some(get_http2(gate.address(), 1).await);
            } else {
                raw = Some(Raw::get(gate.address()));
            }
            until(|| small(&gate) == (1, 0, 1)).await;
            let next = get(&gate, PODS).await;
            next.served().await;
            assert_eq!(spool.cut(CutReason::NoSeatFree), before + 1);
            until(|| small(&gate) == (0, 0, 0)).await;
            // The response breaks off, so the client knows that it is incomplete.
            if let Some(stream) = stream {
                drop(stream);
            }
            if let Some(raw) = raw {
                assert!(raw.read().await < LARGE);
            }
            until(|| spool.bytes() == 0).await;
        }
    }
}

#[tokio::test]
async fn many_slow_readers_cost_no_more_than_the_spool_and_others_are_served() {
    const PIECE: usize = 64 << 10;
    let upstream = TestUpstream::start(Speaks::Http2, |request| async move {
        let bytes = if request.headers()["x-remote-user"] == "bob" {
            10
        } else {
            512 << 10
        };
        http::Response::new(full(vec![b'x'; bytes]))
    });
    let total = 2 << 20;
    let gate = Gate::governed(&upstream, &rules(1 << 20, total));
    let spool = &gate.flow_control().spool;
    let mut slow = Vec::new();
    for _ in 0..12 {
        slow.push(tokio::spawn(get_http2(gate.address(), 1)));
    }
    until(|| spool.answers() > 0).await;
    for _ in 0..3 {
        soon(served_at_last(&gate, "bob")).await;
        assert!(
            spool.bytes() <= total + 2 * PIECE as u64,
            "{}",
            spool.bytes()
        );
    }
    // The last of them get a seat because the first ones are disconnected.
    let mut held = Vec::new();
    for slow in slow {
        held.push(soon(slow).await.unwrap());
    }
    until(|| small(&gate) == (0, 0, 0)).await;
    assert!(spool.cut(CutReason::SpoolFull) > 0);
    assert!(spool.bytes() <= total + 2 * PIECE as u64);
    drop(held);
    until(|| spool.bytes() == 0).await;
}

#[tokio::test]
async fn the_slow_readers_of_one_user_leave_room_in_the_spool_for_those_of_others() {
    const PIECE: u64 = 64 << 10;
    let upstream = upstream_of(Speaks::Http2, 512 << 10);
    let total = 2 << 20;
    // Nobody is disconnected, so what is not spooled keeps its seat.
    let rules = Rules::small(40, Full::queue(100)).set(|set| {
        set.spool = SpoolLimits {
            per_answer: 1 << 20,
            total,
            min_read_bytes: 0,
        };
    });
    let gate = Gate::governed(&upstream, &rules);
    let spool = &gate.flow_control().spool;
    let mut held = Vec::new();
    for _ in 0..12 {
        held.push(get_http2_as(gate.address(), 1, "greedy").await);
    }
    until(|| spool.bytes_of("greedy") >= total / 2 - PIECE).await;
    let other = get_http2_as(gate.address(), 1, "other").await;
    until(|| spool.bytes_of("other") >= (512 << 10) - PIECE).await;
    let bytes = spool.bytes_of("greedy");
    assert!(bytes <= total / 2 + 2 * PIECE, "{bytes}");
    drop((held, other));
    until(|| spool.bytes() == 0).await;
    assert_eq!(CutReason::ALL.map(|why| spool.cut(why)), [0, 0]);
}
