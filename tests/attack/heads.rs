//! Request heads that are never finished: they cost memory, and need no credential.

use std::{net::SocketAddr, time::Duration};

use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};

use crate::{
    Attack,
    frames::{END_HEADERS, RawConnection, block, frame, header, kind},
    gateway::Setup,
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::ms,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "unfinished-heads",
        point: "B.3",
        about: "600 connections with a head of nearly 1 MiB each that does not end",
        play: || play(http1),
    },
    Attack {
        name: "unfinished-heads-h2",
        point: "B.3",
        about: "the same over HTTP/2: HEADERS and CONTINUATION without END_HEADERS",
        play: || play(http2),
    },
];

const CONNECTIONS: usize = 600;
/// Bytes of each head, a little less than what a head may have.
const HEAD: usize = (1 << 20) - (16 << 10);
/// How long an attacker tries to send its head, of which the gateway does not read all, and how long all are then kept open
/// at least where figures are measured.
const SENDING: Duration = ms(4000);
const HELD: Duration = ms(1500);
/// The resident memory that all unfinished heads together may cost: a third of the bytes sent.
const MEMORY: u64 = 200 << 20;
/// The budget of unfinished heads by default (`limits.unfinishedHeaderBytes`).
const BUDGET: u64 = 64 << 20;
const METRICS: (&str, &str) = (
    "fairgate_unfinished_head_bytes",
    "fairgate_unfinished_head_peak_bytes",
);

fn play<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    one: fn(SocketAddr) -> F,
) -> Outcome {
    let mut played = Scene::new(&Setup::default(), Mix::default()).play(async |scene| {
        let mut attackers = JoinSet::new();
        for _ in 0..CONNECTIONS {
            attackers.spawn(one(scene.gateway.address));
        }
        // They keep their connections open.
        let _open = attackers.join_all().await;
        scene.goal(HELD).reach().await;
    });
    played.check_other_clients();
    played.report_memory(MEMORY);
    played.budget_is_kept(METRICS, BUDGET, BUDGET / 2);
    played.a_metric_shows_it(&["head"]);
    played.outcome
}

/// Sends a head over HTTP/1.1. Returns the connection.
async fn http1(address: SocketAddr) -> Option<TcpStream> {
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return None;
    };
    let sending = async {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: gate\r\nX-Long: ")
            .await?;
        let piece = [b'a'; 8 << 10];
        for _ in 0..HEAD / piece.len() {
            stream.write_all(&piece).await?;
        }
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(SENDING, sending).await;
    Some(stream)
}

/// Sends a head over HTTP/2. Returns the connection.
async fn http2(address: SocketAddr) -> Option<RawConnection> {
    let Ok(mut connection) = RawConnection::open(address, &[]).await else {
        return None;
    };
    let stream = connection.stream();
    let first = frame(kind::HEADERS, 0, stream, &block("GET", "/livez", None));
    let more = header("x-long", &"a".repeat(16_000));
    let more = frame(kind::CONTINUATION, 0, stream, &more);
    assert_eq!(more[4] & END_HEADERS, 0, "the head goes on");
    let sending = async {
        connection.send(&first).await?;
        for _ in 0..HEAD / more.len() {
            connection.send(&more).await?;
        }
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(SENDING, sending).await;
    Some(connection)
}
