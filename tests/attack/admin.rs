//! The admin port, whose health endpoints decide whether the gateway is restarted.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    Attack,
    gateway::{Setup, http_get},
    others::Mix,
    report::{Outcome, millis},
    scene::Scene,
    time::{LIVENESS, ms, now},
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

/// How many probes in a row have to be answered during an attack.
const PROBES: usize = 10;
pub(crate) const LIVEZ: &str = "/livez";

fn incomplete_heads() -> Outcome {
    const CONNECTIONS: usize = 160;
    let mut played = Scene::new(&Setup::default(), Mix::default()).play(async |scene| {
        let (admin, is_on) = (scene.gateway.admin, Arc::new(AtomicBool::new(true)));
        let attack = |_| tokio::spawn(send_incomplete_heads(admin, Arc::clone(&is_on)));
        let attackers: Vec<_> = (0..CONNECTIONS).map(attack).collect();
        tokio::time::sleep(ms(300)).await;
        let probes = probe(admin, LIVEZ).await;
        scene.goal(ms(0)).reach().await;
        is_on.store(false, Ordering::Relaxed);
        let begun = now();
        let closed = futures_util::future::join_all(attackers).await;
        let closed = closed
            .into_iter()
            .filter(|closed| *closed.as_ref().unwrap());
        (probes, closed.count(), begun.elapsed())
    });
    let (probes, closed, took) = played.found;
    played.check_other_clients();
    probes.check(&mut played.outcome);
    played.outcome.check(
        "connections with an incomplete head are closed in the end",
        closed == CONNECTIONS,
        format!("{closed} of {CONNECTIONS} were"),
    );
    played.outcome.figure(
        "incomplete heads closed",
        (took.as_secs_f64(), "s"),
        format!(
            "the last connection with an incomplete head was closed after {:.1} s, 12 at most are expected",
            took.as_secs_f64()
        ),
    );
    played.outcome
}

/// Sends an incomplete request head, and another one whenever the gateway closes the connection, until the attack is over.
/// Returns whether the gateway closes the last one, too.
async fn send_incomplete_heads(admin: SocketAddr, is_on: Arc<AtomicBool>) -> bool {
    loop {
        let closed = async {
            let mut stream = TcpStream::connect(admin).await?;
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost:").await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await
        };
        let is_closed = tokio::time::timeout(2 * LIVENESS, closed).await.is_ok();
        if !is_closed || !is_on.load(Ordering::Relaxed) {
            return is_closed;
        }
        tokio::time::sleep(ms(500)).await;
    }
}

/// Probes of a path during an attack.
#[derive(Clone, Copy)]
pub(crate) struct Probes {
    path: &'static str,
    answered: usize,
    longest: Duration,
}

impl Probes {
    pub(crate) fn check(self, outcome: &mut Outcome) {
        let Self {
            path,
            answered,
            longest,
        } = self;
        outcome.check(
            format!("{path} responds {PROBES} times during the attack"),
            answered == PROBES,
            format!("{answered} times"),
        );
        outcome.figure(
            format!("longest response of {path}"),
            (millis(longest), "ms"),
            format!(
                "{path} responded within {} ms; the kubelet waits for 1000 by default",
                longest.as_millis()
            ),
        );
    }
}

/// Probes again and again, 20 ms after each response. A probe that is slow to send its head may itself be closed for a newer
/// connection, as a kubelet that tries again allows.
pub(crate) async fn probe(admin: SocketAddr, path: &'static str) -> Probes {
    let mut probes = Probes {
        path,
        answered: 0,
        longest: ms(0),
    };
    let first = now();
    while probes.answered < PROBES && first.elapsed() < LIVENESS {
        let begun = now();
        let probe = tokio::task::spawn_blocking(move || http_get(admin, path, LIVENESS));
        if probe.await.unwrap().is_some() {
            probes.answered += 1;
            probes.longest = probes.longest.max(begun.elapsed());
        }
        tokio::time::sleep(ms(20)).await;
    }
    probes
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
        let probes = probe(scene.gateway.admin, LIVEZ).await;
        scene.goal(ms(0)).reach().await;
        probes
    });
    let probes = played.found;
    played.check_other_clients();
    probes.check(&mut played.outcome);
    played.outcome
}
