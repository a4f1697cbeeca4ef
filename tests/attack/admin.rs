//! The admin port, whose health endpoints decide whether the gateway is restarted.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    Attack,
    gateway::{Setup, http_get},
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::{ms, now},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "admin-incomplete-heads",
        point: "B.8",
        about: "160 connections to the admin port that send an incomplete head; /livez must respond",
        play: incomplete_heads,
    },
    Attack {
        name: "no-descriptors",
        point: "B.11",
        about: "more clients than the process has descriptors; /livez must respond",
        play: no_descriptors,
    },
];

/// How long a probe waits: the kubelet's default is 1 s.
const PROBE: Duration = ms(1000);
/// How long a connection with an incomplete head may stay open.
const HEAD: Duration = ms(12_000);

fn incomplete_heads() -> Outcome {
    const CONNECTIONS: usize = 160;
    let mut played = Scene::new(&Setup::default(), Mix::default()).play(async |scene| {
        let admin = scene.gateway.admin;
        let begun = now();
        let open: Vec<_> = (0..CONNECTIONS)
            .map(|_| tokio::spawn(send_incomplete_head(admin, begun)))
            .collect();
        tokio::time::sleep(ms(300)).await;
        let probed = probe(admin, ms(4000)).await;
        let mut cut = 0;
        for connection in open {
            cut += usize::from(connection.await.unwrap());
        }
        (probed, cut)
    });
    let ((answered, probes), cut) = played.found;
    played.check_other_clients();
    played.outcome.check(
        "/livez responds within 1 s",
        answered == probes,
        format!("{answered} of {probes} do"),
    );
    played.outcome.check(
        "connections with an incomplete head are closed within 12 s",
        cut == CONNECTIONS,
        format!("{cut} of {CONNECTIONS} were"),
    );
    played.outcome
}

/// Sends an incomplete request head. Returns whether the gateway closes the connection in time.
async fn send_incomplete_head(admin: SocketAddr, begun: Instant) -> bool {
    let closed = async {
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost:").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await
    };
    let left = HEAD.saturating_sub(begun.elapsed());
    tokio::time::timeout(left, closed).await.is_ok()
}

/// Probes again and again, 100 ms after each response. Returns the number of probes with a response in time, and of all probes.
async fn probe(admin: SocketAddr, lasts: Duration) -> (usize, usize) {
    let (begun, mut answered, mut probes) = (now(), 0, 0);
    while begun.elapsed() < lasts {
        let probe = tokio::task::spawn_blocking(move || http_get(admin, "/livez", PROBE));
        probes += 1;
        answered += usize::from(probe.await.unwrap().is_some());
        tokio::time::sleep(ms(100)).await;
    }
    (answered, probes)
}

fn no_descriptors() -> Outcome {
    const DESCRIPTORS: u32 = 128;
    let setup = Setup {
        descriptors: Some(DESCRIPTORS),
        ..Setup::default()
    };
    // The attacker keeps its connections open.
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let mut open = Vec::new();
        for _ in 0..DESCRIPTORS * 2 {
            if let Ok(stream) = TcpStream::connect(scene.gateway.address).await {
                open.push(stream);
            }
        }
        tokio::time::sleep(ms(500)).await;
        probe(scene.gateway.admin, ms(3000)).await
    });
    let (answered, probes) = played.found;
    played.check_other_clients();
    played.outcome.check(
        "/livez responds within 1 s",
        answered == probes,
        format!("{answered} of {probes} do"),
    );
    played.outcome
}
