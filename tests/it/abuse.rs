//! Clients without credentials that abuse the protocol: their cost is bounded, other clients are served as before,
//! and metrics and logs show what the gateway did.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use fairgate_proxy::serve::Offence;
use serde_json::{Value, json};

use crate::{
    client::{HANG, TestClient, body_text, connect_from_elsewhere, raw, raw_on, soon, status},
    gate::Gate,
    process::{GatewayProcess, ProcessOptions, get, wait_until},
    upstream::{Speaks, TestUpstream, full, streamed, text},
};

/// A gateway in front of `upstream` with these limits.
pub(crate) fn gateway(
    upstream: &TestUpstream,
    limits: &Value,
    options: &ProcessOptions,
) -> GatewayProcess {
    let configuration = json!({
        "upstream": {"url": format!("http://{}", upstream.address)}, "dataCores": 2,
        "limits": limits,
    });
    GatewayProcess::with(configuration, options)
}

pub(crate) fn allowing_descriptors(number: u32) -> ProcessOptions {
    ProcessOptions {
        descriptors: Some(number),
        ..ProcessOptions::default()
    }
}

/// Opens 150 connections that each send an unfinished head of 1 MiB, while the gateway may hold 8 MiB of such heads.
fn unfinished_heads_are_bounded<C>(open: impl Fn(SocketAddr) -> C, meanwhile: impl Fn(SocketAddr)) {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let limits = json!({"unfinishedHeaderBytes": "8Mi"});
    let process = gateway(&upstream, &limits, &allowing_descriptors(4096));
    assert_eq!(status(&get(process.address, "/livez")), 200);
    let before = process.mebibytes("VmRSS");
    let mut clients = Vec::new();
    let mut most = 0;
    for round in 0..150 {
        clients.push(open(process.address));
        if round % 10 == 0 {
            most = most.max(process.mebibytes("VmRSS"));
        }
    }
    most = most.max(process.mebibytes("VmRSS"));
    assert!(
        most < before + 40,
        "{before} MiB before, {most} MiB with unfinished heads"
    );
    meanwhile(process.address);
    wait_until("most connections are cut", || {
        process.metric("fairgate_refused_heads_total{reason=\"memory\"}") > Some(100)
    });
    drop(clients);
    wait_until("the memory is given back", || {
        process.metric("fairgate_unfinished_head_bytes") == Some(0)
    });
    let after = process.mebibytes("VmRSS");
    assert!(
        after < before + 30,
        "{before} MiB before, {after} MiB after"
    );
}

#[test]
fn unfinished_http1_heads_take_bounded_memory_and_give_it_back() {
    let mut head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    head.resize((1 << 20) - 100, b'a');
    let open = |address| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        let _ = stream.write_all(&head);
        stream
    };
    unfinished_heads_are_bounded(open, |address| {
        // A large head of another address is read meanwhile, however slowly: the gateway is still reading the others.
        let large = format!("X: {}\r\n", "a".repeat(6000)).repeat(50);
        let request =
            format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{large}\r\n");
        let response = raw_on(from_elsewhere(address), request.as_bytes());
        assert_eq!(status(&response), 200);
    });
}

/// A blocking connection from 127.0.0.2.
fn from_elsewhere(address: SocketAddr) -> TcpStream {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let stream = runtime.block_on(connect_from_elsewhere(address));
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
}

#[test]
fn unfinished_http2_header_blocks_take_bounded_memory_and_give_it_back() {
    let mut value = b"\x00\x01x\x7f\x81\x7c".to_vec();
    value.resize(6 + 16_000, b'a');
    let open = |address| {
        let mut client = Frames::connect(address);
        client.0.set_write_timeout(Some(HANG)).unwrap();
        client.send(&headers(1, 1));
        for _ in 0..60 {
            client.send(&frame(9, 0, 1, &value));
        }
        client
    };
    unfinished_heads_are_bounded(open, |_| {});
}

/// A client that speaks HTTP/2 frames.
struct Frames(TcpStream);

impl Frames {
    fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .unwrap();
        let mut client = Self(stream);
        client.send(&frame(4, 0, 0, &[]));
        client
    }

    /// Sends as much of `bytes` as the gateway accepts.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    /// The next frame: type, flags, stream and payload. `None` at the end.
    fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let [l0, l1, l2, kind, flags, stream @ ..] = head;
        let len = u32::from_be_bytes([0, l0, l1, l2]);
        let mut payload = vec![0; len as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }

    /// The code of the `GOAWAY` that ends the connection.
    fn goaway_code(mut self) -> Option<u32> {
        let mut code = None;
        while let Some((kind, _, _, payload)) = self.next() {
            if kind == 7 {
                code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        code
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![len[1], len[2], len[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A `HEADERS` frame of a `GET` of `/a`, with these flags.
fn headers(stream: u32, flags: u8) -> Vec<u8> {
    // :method GET, :scheme http, :path /a, :authority a
    let block = b"\x82\x86\x04\x02/a\x01\x01a";
    frame(1, flags, stream, block)
}

const ENHANCE_YOUR_CALM: Option<u32> = Some(0xb);

#[test]
fn a_flood_of_control_frames_ends_only_its_own_connection() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    for (offence, flood) in [
        (Offence::WindowUpdates, frame(8, 0, 0, &[0, 0, 0, 1])),
        (Offence::Pings, frame(6, 0, 0, &[0; 8])),
        (Offence::Settings, frame(4, 0, 0, &[])),
        (Offence::Priorities, frame(2, 0, 3, &[0, 0, 0, 0, 1])),
        (Offence::Unknown, frame(0xbb, 0, 0, b"what")),
    ] {
        let mut client = Frames::connect(gate.address());
        let mut sender = Frames(client.0.try_clone().unwrap());
        client.send(&headers(1, 5));
        let sending = std::thread::spawn(move || sender.send(&flood.repeat(20_000)));
        assert_eq!(client.goaway_code(), ENHANCE_YOUR_CALM, "{offence:?}");
        sending.join().unwrap();
        assert_eq!(gate.gateway.defence().count(offence), 1, "{offence:?}");
    }
    assert_eq!(gate.gateway.defence().count(Offence::Protocol), 0);
    assert_eq!(status(&get(gate.address(), "/a")), 200, "others are served");
}

#[test]
fn h2_ends_floods_of_empty_data_frames_and_they_are_counted() {
    let upstream = TestUpstream::start(Speaks::Http2, |_| std::future::pending());
    let gate = Gate::before(&upstream);
    for (flags, payload) in [(0, &[][..]), (8, &[0][..]), (8, &[2, 0, 0][..])] {
        let before = gate.gateway.defence().count(Offence::Protocol);
        let mut client = Frames::connect(gate.address());
        let mut sender = Frames(client.0.try_clone().unwrap());
        client.send(&headers(1, 4));
        let flood = frame(0, flags, 1, payload).repeat(20_000);
        let sending = std::thread::spawn(move || sender.send(&flood));
        assert_eq!(
            client.goaway_code(),
            ENHANCE_YOUR_CALM,
            "{flags} {payload:?}"
        );
        sending.join().unwrap();
        wait_until("it is counted", || {
            gate.gateway.defence().count(Offence::Protocol) == before + 1
        });
    }
}

#[test]
fn a_flood_of_continuations_ends_its_connection_and_is_counted() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let mut client = Frames::connect(gate.address());
    client.send(&headers(1, 1));
    client.send(&frame(9, 0, 1, &[]).repeat(1000));
    assert_eq!(client.goaway_code(), ENHANCE_YOUR_CALM);
    assert_eq!(gate.gateway.defence().count(Offence::Continuations), 1);
    assert_eq!(gate.gateway.defence().count(Offence::Protocol), 0);
}

#[test]
fn a_header_block_in_pieces_of_any_size_is_served() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    // A field `x` whose value has this many bytes, for a `CONTINUATION` frame.
    let block = |value: u8| [&b"\x00\x01x"[..], &[value], &vec![b'a'; value.into()]].concat();
    for size in [1, 5, 9, 60, 1000, 20_000] {
        let mut client = Frames::connect(gate.address());
        client.0.set_nodelay(true).unwrap();
        let mut bytes = Vec::new();
        for stream in [1, 3, 5] {
            bytes.extend(headers(stream, 1));
            for value in [0, 1, 100, 126, 50, 7, 0, 99].repeat(if size < 9 { 1 } else { 8 }) {
                bytes.extend(frame(9, 0, stream, &block(value)));
            }
            bytes.extend(frame(9, 4, stream, &[]));
            bytes.extend(frame(8, 0, 0, &[0, 0, 0, 1]));
        }
        for piece in bytes.chunks(size) {
            client.send(piece);
        }
        let mut answered = Vec::new();
        while answered.len() < 3
            && let Some((kind, _, stream, payload)) = client.next()
        {
            assert_ne!(kind, 7, "in pieces of {size}: {payload:?}");
            if kind == 1 {
                assert_eq!(payload[0], 0x88, "200, in pieces of {size}");
                answered.push(stream);
            }
        }
        answered.sort_unstable();
        assert_eq!(answered, [1, 3, 5], "in pieces of {size}");
    }
    assert_eq!(gate.gateway.defence().heads.used(), 0);
}

#[test]
fn a_header_block_interrupted_by_another_frame_is_a_protocol_error() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::before(&upstream);
    let interruptions = [
        frame(6, 0, 0, &[0; 8]),
        frame(9, 4, 3, &[]),
        headers(3, 5),
        frame(0, 0, 1, &[]),
    ];
    for (number, other) in (1..).zip(interruptions) {
        let mut client = Frames::connect(gate.address());
        client.send(&headers(1, 1));
        client.send(&frame(9, 0, 1, &[]));
        client.send(&other);
        assert_eq!(client.goaway_code(), Some(1), "{other:?}");
        assert_eq!(gate.gateway.defence().count(Offence::Protocol), number);
    }
}

#[test]
fn unfinished_header_blocks_have_the_memory_and_time_limits_of_heads() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gate = Gate::with(&upstream, |settings, _| {
        settings.serve.unfinished_head_bytes = 1 << 20;
        settings.serve.head_timeout = Duration::from_secs(3);
    });
    // A literal field whose value does not end: x: aaa…
    let mut block = b"\x00\x01x\x7f\x81\xff\x3f".to_vec();
    block.resize(16_000, b'a');
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Frames::connect(gate.address());
        client.send(&frame(1, 1, 1, &block));
        for _ in 0..30 {
            client.send(&frame(9, 0, 1, &[b'a'; 16_000]));
        }
        clients.push(client);
    }
    wait_until("one connection is cut", || {
        gate.gateway.defence().count(Offence::Memory) >= 1
    });
    let codes: Vec<_> = clients.into_iter().map(Frames::goaway_code).collect();
    assert_eq!(
        codes, [ENHANCE_YOUR_CALM; 3],
        "the time limit ends the others"
    );
    let (memory, time) = (
        gate.gateway.defence().count(Offence::Memory),
        gate.gateway.defence().count(Offence::TooSlow),
    );
    assert_eq!(memory + time, 3, "{memory} {time}");
    assert_eq!(gate.gateway.defence().heads.used(), 0);
}

#[test]
fn a_client_that_sends_window_updates_for_every_small_frame_is_served() {
    const PIECES: usize = 6000;
    let upstream = TestUpstream::start(Speaks::Http2, |_| async {
        let (send, answer) = streamed();
        tokio::spawn(async move {
            for _ in 0..PIECES {
                let _ = send.send(Ok("a line of a log\n".into()));
                tokio::task::yield_now().await;
            }
        });
        http::Response::new(answer)
    });
    let gate = Gate::before(&upstream);
    let mut client = Frames::connect(gate.address());
    client.send(&headers(1, 5));
    let (mut bytes, mut acknowledged) = (0, 0);
    while let Some((kind, flags, _, payload)) = client.next() {
        assert_ne!(kind, 7, "GOAWAY after {acknowledged}");
        if kind != 0 {
            continue;
        }
        bytes += payload.len();
        let size = u32::try_from(payload.len()).unwrap().max(1).to_be_bytes();
        client.send(&frame(8, 0, 0, &size));
        client.send(&frame(8, 0, 1, &size));
        acknowledged += 1;
        if flags & 1 == 1 {
            break;
        }
    }
    assert_eq!(bytes, PIECES * 16);
    assert_eq!(gate.gateway.defence().count(Offence::WindowUpdates), 0);
}

#[tokio::test]
async fn a_connection_survives_many_requests() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async { text("served") });
    let gate = Gate::before(&upstream);
    let mut client = TestClient::http2(gate.address()).await;
    for _ in 0..300 {
        assert_eq!(body_text(client.get("/a").await).await, "served");
    }
}

#[test]
fn heads_that_cannot_be_read_are_counted_and_logged_at_a_bounded_rate() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let process = gateway(&upstream, &json!({}), &allowing_descriptors(1024));
    for bad in [
        "GET / HTTP/1.1\r\nX : a\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ] {
        for _ in 0..25 {
            assert_eq!(
                status(&raw(process.address, bad.as_bytes())),
                400,
                "{bad:?}"
            );
        }
    }
    wait_until("all are counted", || {
        process.metric("fairgate_refused_heads_total{reason=\"malformed\"}") == Some(100)
    });
    let lines = process.wait_for_log("a client was refused before its request could be read", 1);
    assert!((1..=30).contains(&lines.len()), "{lines:?}");
    assert!(lines[0].contains("127.0.0.1"), "{lines:?}");
}

#[test]
fn tokens_that_cannot_be_reviewed_do_not_fill_the_log() {
    let upstream = TestUpstream::start(Speaks::Http1, |_| async {
        let mut answer = text("no");
        *answer.status_mut() = http::StatusCode::FORBIDDEN;
        answer
    });
    let process = gateway(&upstream, &json!({}), &allowing_descriptors(1024));
    for i in 0..60 {
        let request = format!(
            "GET /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer t{i}\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(status(&raw(process.address, request.as_bytes())), 503);
    }
    let failed = "fairgate_token_reviews_total{outcome=\"failed\"}";
    wait_until("all are counted", || process.metric(failed) == Some(60));
    // Two kinds of line, five in ten seconds each.
    let lines = process.wait_for_log("could not be reviewed", 2);
    assert!((2..=40).contains(&lines.len()), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_unknown_tokens_of_an_address_than_may_wait_for_a_review_get_429_with_a_reason() {
    // No review ends.
    let upstream = TestUpstream::start(Speaks::Http1, |_| std::future::pending());
    let process = gateway(&upstream, &json!({}), &allowing_descriptors(1024));
    let mut clients = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
    let mut refused = Vec::new();
    for number in 0..1024 {
        if number % 64 == 0 {
            clients.push(TestClient::http2(process.address).await);
        }
        let client = clients.last_mut().unwrap();
        let request = client
            .request(http::Method::GET, "/a")
            .header("authorization", format!("Bearer t{number}"));
        waiting.spawn(client.start(request.body(full("")).unwrap()));
    }
    // An address that has no valid token may have a part of the places for reviews.
    while refused.len() < 256 {
        let ended = soon(waiting.join_next()).await.unwrap();
        refused.push(ended.unwrap().unwrap());
    }
    for response in refused {
        assert_eq!(response.status(), 429);
        assert_eq!(
            response.headers()["x-fairgate-reason"],
            "too-many-token-reviews"
        );
        assert_eq!(response.headers()["retry-after"], "1");
        let text = body_text(response).await;
        let status: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&status["kind"], &status["reason"]),
            (&json!("Status"), &json!("TooManyRequests"))
        );
    }
    // The gateway reads the upstream's metrics as well.
    let seen = upstream.seen().into_iter();
    let reviews = seen
        .filter(|one| one.target.ends_with("/tokenreviews"))
        .count();
    assert!((1..=24).contains(&reviews), "{reviews} at a time");
}

#[test]
fn probes_succeed_however_many_admin_connections_are_open() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let process = gateway(&upstream, &json!({}), &allowing_descriptors(1024));
    let mut open = Vec::new();
    for i in 0..400 {
        let mut stream = TcpStream::connect(process.admin).unwrap();
        let sent: &[u8] = match i % 4 {
            0 => b"",
            1 => b"GET /livez HTTP/1.1\r\n",
            2 => b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /li",
            // Its response is never read.
            _ => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        };
        let _ = stream.write_all(sent);
        open.push(stream);
        if i % 50 == 0 {
            assert_eq!(status(&get(process.admin, "/livez")), 200, "after {i}");
        }
    }
    assert_eq!(status(&get(process.admin, "/livez")), 200);
    assert_eq!(status(&get(process.admin, "/readyz")), 200);
    let crowded = "fairgate_admin_connections_cut_total{reason=\"crowded\"}";
    assert!(process.metric(crowded) > Some(300));
    drop(open);
    // A connection that sends nothing is closed after a few seconds.
    let mut silent = TcpStream::connect(process.admin).unwrap();
    silent.set_read_timeout(Some(HANG)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn probes_succeed_when_clients_use_all_descriptors() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let process = gateway(&upstream, &json!({}), &allowing_descriptors(160));
    let open: Vec<_> = (0..300)
        .map(|_| TcpStream::connect(process.address).unwrap())
        .collect();
    for _ in 0..20 {
        assert_eq!(status(&get(process.admin, "/livez")), 200);
    }
    assert!(process.metric("fairgate_connections_turned_away_total") > Some(100));
    let lines = process.wait_for_log("raise the descriptor limit", 1);
    assert!((1..=5).contains(&lines.len()), "{lines:?}");
    drop(open);
    wait_until("clients are served again", || {
        get(process.address, "/livez").starts_with("HTTP/1.1 200")
    });
}
