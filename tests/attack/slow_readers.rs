//! Clients that do not read their responses, and so occupy all seats of a level.
//!
//! If a client stalls, the gateway can read the rest of the response into a spool, if it fits,
//! and free the seat. Otherwise the client loses its response, and the seat is free, within seconds.

use std::time::Duration;

use crate::{
    Attack,
    frames::{INITIAL_WINDOW_SIZE, RawConnection},
    gateway::{ATTACKED_SEATS, ATTACKER, NEIGHBOUR, Setup},
    others::Mix,
    report::Outcome,
    scene::Scene,
    time::{LIVENESS, ms, until},
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

fn small() -> Outcome {
    /// Bytes of one response, and what may be spooled of all by default (`limits.spoolTotal`).
    const RESPONSE: u64 = 65_536;
    const SPOOL: u64 = 64 << 20;
    let mut played = scene().play(async |scene| {
        attack(scene, "/api/v1/namespaces/a/pods/t0b65536", ms(4000)).await;
    });
    played.check_other_clients();
    let [spooled, cut] = played.rises([
        "fairgate_spooled_answers_total",
        "fairgate_cut_answers_total",
    ]);
    played.outcome.check(
        "responses of clients that do not read them are spooled, and none is cut",
        spooled >= f64::from(ATTACKED_SEATS) && cut == 0.0,
        format!("{spooled} were spooled, {cut} cut"),
    );
    let metrics = ("fairgate_spool_bytes", "fairgate_spool_peak_bytes");
    played.budget_is_kept(metrics, SPOOL, RESPONSE * u64::from(ATTACKED_SEATS) / 2);
    played.report_memory(128 << 20);
    played.a_metric_shows_it(&["spool", "stall", "slow"]);
    played.outcome
}

fn large() -> Outcome {
    let mut played = scene().play(async |scene| {
        attack(scene, "/api/v1/namespaces/a/pods/t0b16777216", ms(12_000)).await;
    });
    let stats = &played.outcome.during;
    let longest = stats.percentile(100);
    played.check_other_clients();
    let [cut] = played.rises(["fairgate_cut_answers_total"]);
    played.outcome.check(
        "responses that fit into no spool are cut while no seat is free",
        cut > 0.0,
        "none was",
    );
    played.outcome.figure(
        "longest request of others",
        (longest.as_secs_f64(), "s"),
        format!(
            "the longest request of others took {:.1} s, 10 at most are expected",
            longest.as_secs_f64()
        ),
    );
    played.report_memory(256 << 20);
    played.a_metric_shows_it(&["spool", "stall", "slow"]);
    played.outcome
}

/// The others are neighbours in the attackers' level.
fn scene() -> Scene {
    let setup = Setup {
        attacked_level: true,
        ..Setup::default()
    };
    let mix = Mix {
        watches: 0,
        user: NEIGHBOUR,
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
    // The first have taken all seats, or given them back.
    let begun = || open.iter().map(|c| c.seen().answers()).sum::<u64>();
    until(LIVENESS, || begun() >= u64::from(ATTACKED_SEATS)).await;
    scene.goal(lasts).reach().await;
}
