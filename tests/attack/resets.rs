//! Streams that are reset right after they were opened, on requests that need no seat.
//!
//! The gateway must not forward so many resets that the upstream takes it for an attacker and closes
//! a connection that others share. It counts premature resets and ends the attacker's connection instead.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Attack,
    frames::{RawConnection, reset},
    gateway::{ATTACKER, Setup},
    goal::Goal,
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::ms,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "resets-long-running",
        point: "B.1",
        about: "pods/log, reset after 4 ms, from 4 connections",
        play: || play("/api/v1/namespaces/a/pods/t250/log", Some(ATTACKER)),
    },
    Attack {
        name: "resets-exempt",
        point: "B.1",
        about: "/readyz, exempt from flow control, reset after 4 ms, from 4 connections",
        play: || play("/readyz/t250?verbose", Some(ATTACKER)),
    },
    Attack {
        name: "resets-anonymous",
        point: "B.1",
        about: "the same without a credential",
        play: || play("/readyz/t250?verbose", None),
    },
];

const CONNECTIONS: usize = 4;
const LASTS: Duration = ms(4000);
/// Streams that all open together, at least: five times as many as one upstream connection lets the gateway reset.
const STREAMS: u64 = 5000;
/// Streams that each connection opens in each step, and the time after which it resets them.
const AT_ONCE: usize = 2;
const STEP: Duration = ms(4);
/// How often an attacker reconnects.
const RETURNS: usize = 50;

fn play(path: &'static str, user: Option<&'static str>) -> Outcome {
    let setup = Setup {
        anonymous: true,
        ..Setup::default()
    };
    let mix = Mix {
        anonymous: 2,
        ..Mix::default()
    };
    let mut played = Scene::new(&setup, mix).play(async |scene| {
        let (goal, all) = (scene.goal(LASTS), Arc::<AtomicU64>::default());
        let attack = |_| {
            let (goal, all) = (goal.clone(), Arc::clone(&all));
            tokio::spawn(attack(scene.gateway.address, path, user, goal, all))
        };
        let attackers: Vec<_> = (0..CONNECTIONS).map(attack).collect();
        let (mut opened, mut ended) = (0, 0);
        for attacker in attackers {
            let found = attacker.await.unwrap();
            (opened, ended) = (opened + found.0, ended + found.1);
        }
        (opened, ended)
    });
    played.check_other_clients();
    let upstream = &played.scene.upstream;
    let (resets, most) = upstream.resets();
    let closed = upstream.ended_connections();
    let outcome = &mut played.outcome;
    outcome.check(
        "the upstream ends no connection",
        closed == 0,
        format!("it ended {closed} connections"),
    );
    let (opened, ended) = played.found;
    outcome.check(
        "the attackers' connections are ended",
        ended > 0,
        "none was",
    );
    outcome.note(format!(
        "{opened} streams opened and reset, {ended} of the attackers' connections ended; \
         {resets} resets reached the upstream, {most} on one connection"
    ));
    played.a_metric_shows_it(&["reset"]);
    played.outcome
}

/// Opens streams and resets them. Returns how many, and how often the gateway closed the connection.
async fn attack(
    address: SocketAddr,
    path: &str,
    user: Option<&str>,
    goal: Goal,
    all: Arc<AtomicU64>,
) -> (u64, usize) {
    let (mut opened, mut ended) = (0, 0);
    let is_on = |ended| {
        let is_small = all.load(Ordering::Relaxed) < STREAMS && ended < RETURNS;
        goal.is_open() || is_small && goal.has_time()
    };
    while is_on(ended) {
        let Ok(mut connection) = RawConnection::open(address, &[]).await else {
            ended += 1;
            tokio::time::sleep(ms(50)).await;
            continue;
        };
        while is_on(ended) {
            let mut streams = Vec::new();
            let mut failed = false;
            for _ in 0..AT_ONCE {
                match connection.get(path, user).await {
                    Ok(stream) => streams.push(stream),
                    Err(_) => failed = true,
                }
            }
            opened += streams.len() as u64;
            all.fetch_add(streams.len() as u64, Ordering::Relaxed);
            tokio::time::sleep(STEP).await;
            let resets: Vec<u8> = streams.into_iter().flat_map(reset).collect();
            failed |= connection.send(&resets).await.is_err();
            if failed || connection.seen().is_ended() {
                ended += 1;
                tokio::time::sleep(ms(50)).await;
                break;
            }
        }
    }
    (opened, ended)
}
