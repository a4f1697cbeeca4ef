//! Clients that do not read their responses, and so occupy all seats of a level.
//!
//! If a client stalls, the gateway can read the rest of the response into a spool, if it fits,
//! and free the seat. Otherwise the client loses its response, and the seat is free, within seconds.

use std::time::Duration;

use crate::{
    Attack,
    frames::{INITIAL_WINDOW_SIZE, RawConnection},
    gateway::{ATTACKER, NEIGHBOUR, Setup},
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::ms,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "slow-readers",
        point: "B.7",
        about: "40 responses of 64 KiB, windows of one byte; the others share the level of 20 seats",
        play: small,
    },
    Attack {
        name: "slow-readers-large",
        point: "B.7",
        about: "40 responses of 16 MiB, windows of one byte; seats are lost within 10 s",
        play: large,
    },
];

const STREAMS: usize = 40;
/// How long a client that reads nothing of a large response may keep a seat.
const STALL: Duration = ms(10_000);

fn small() -> Outcome {
    let mut played = scene(ms(3000)).play(async |scene| {
        attack(scene, "/api/v1/namespaces/a/pods/t0b65536", ms(4000)).await;
    });
    played.check_other_clients();
    played.memory_is_bounded(128 << 20);
    played.a_metric_shows_it(&["spool", "stall", "slow"]);
    played.outcome
}

fn large() -> Outcome {
    let mut played = scene(ms(11_000)).play(async |scene| {
        attack(scene, "/api/v1/namespaces/a/pods/t0b16777216", ms(12_000)).await;
    });
    let stats = &played.outcome.during;
    let (failures, longest) = (stats.failures, stats.percentile(100));
    let any_response = stats.requests() > failures;
    let first = stats.first.clone().unwrap_or_default();
    played.outcome.check(
        "no request of others fails",
        failures == 0,
        format!("{failures} failures ({first})"),
    );
    played.outcome.check(
        format!("no request of others waits over {} s", STALL.as_secs()),
        any_response && longest <= STALL,
        if any_response {
            format!("{:.1} s", longest.as_secs_f64())
        } else {
            "none got a response".to_owned()
        },
    );
    played.memory_is_bounded(256 << 20);
    played.a_metric_shows_it(&["spool", "stall", "slow"]);
    played.outcome
}

/// The others are neighbours in the attackers' level.
fn scene(limit: Duration) -> Scene {
    let setup = Setup {
        attacked_level: true,
        ..Setup::default()
    };
    let mix = Mix {
        watches: 0,
        user: NEIGHBOUR,
        limit,
        ..Mix::default()
    };
    Scene::new(&setup, mix)
}

/// Requests responses and reads one byte of each.
async fn attack(scene: &Scene, path: &str, lasts: Duration) {
    let mut open = Vec::new();
    for _ in 0..2 {
        let window = [(INITIAL_WINDOW_SIZE, 1)];
        let mut connection = RawConnection::open(scene.gateway.address, &window)
            .await
            .unwrap();
        for _ in 0..STREAMS / 2 {
            let _ = connection.get(path, Some(ATTACKER)).await;
        }
        open.push(connection);
    }
    tokio::time::sleep(lasts).await;
}
