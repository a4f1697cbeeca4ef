//! What a request costs the gateway, before a burst and after it.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::{
    Attack,
    frames::RawConnection,
    gateway::{ATTACKER, Gateway, Setup, VICTIM},
    others::{Client, Mix},
    report::Outcome,
    scene::Scene,
    time::{ms, now, until},
};

pub(crate) const ATTACKS: &[Attack] = &[Attack {
    name: "burst",
    point: "B.10",
    about: "1 024 requests at once over HTTP/1.1 upstream; what one of 8 connections costs then",
    play: burst,
}];

const BURST: usize = 1024;
const PER_CONNECTION: usize = 128;
const CLIENTS: usize = 8;
const MEASURED: Duration = ms(2500);
/// How much dearer a request may be after the burst, in hundredths.
const DEARER: u64 = 125;

fn burst() -> Outcome {
    let setup = Setup {
        attacked_level: true,
        // 20 of 125 shares are 1 280 seats.
        config: json!({"flowControl": {"totalSeats": 8000}, "upstream": {"protocol": "http1"}}),
        ..Setup::default()
    };
    let nobody = Mix {
        readers: 0,
        writers: 0,
        watches: 0,
        ..Mix::default()
    };
    let mut played = Scene::new(&setup, nobody).play(async |scene| {
        // Once without looking, so that all is warm.
        cost(&scene.gateway).await;
        let before = cost(&scene.gateway).await;
        let opened = scene.upstream.connections();
        let served = all_at_once(scene.gateway.address).await;
        let opened = scene.upstream.connections() - opened;
        let after = cost(&scene.gateway).await;
        (before, after, served, opened)
    });
    let (before, after, served, opened) = played.found;
    let outcome = &mut played.outcome;
    outcome.check(
        "the burst is served",
        served == BURST as u64,
        format!("{served} of {BURST} were"),
    );
    let hundredths =
        |nanos: u64| format!("{:.1} µs", Duration::from_nanos(nanos).as_secs_f64() * 1e6);
    outcome.check(
        "a request is not dearer after the burst by more than a quarter",
        after * 100 <= before * DEARER,
        format!("{} before, {} after", hundredths(before), hundredths(after)),
    );
    outcome.note(format!(
        "a request costs {} before the burst, {} after it; it opened {opened} upstream connections",
        hundredths(before),
        hundredths(after)
    ));
    played.outcome
}

/// The gateway's processor time for one request of 8 connections in a closed loop, in nanoseconds.
async fn cost(gateway: &Gateway) -> u64 {
    let count = AtomicU64::new(0);
    let address = gateway.address;
    let (cpu, begun) = (gateway.cpu(), now());
    let one = || async {
        let Ok(mut client) = Client::connect(address, false).await else {
            return;
        };
        while begun.elapsed() < MEASURED {
            let path = "/api/v1/namespaces/v/pods/p";
            let Ok(answer) = client.send(Method::GET, path, Some(VICTIM)).await else {
                return;
            };
            let _ = answer.into_body().collect().await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    futures_util::future::join_all((0..CLIENTS).map(|_| one())).await;
    let spent = gateway.cpu().saturating_sub(cpu).as_nanos();
    let each = spent / u128::from(count.into_inner().max(1));
    u64::try_from(each).unwrap_or(u64::MAX)
}

/// Sends the burst. How many of it were served.
async fn all_at_once(address: SocketAddr) -> u64 {
    let mut open = Vec::new();
    for _ in 0..BURST / PER_CONNECTION {
        open.push(RawConnection::open(address, &[]).await.unwrap());
    }
    for connection in &mut open {
        for _ in 0..PER_CONNECTION {
            let path = "/api/v1/namespaces/a/pods/t700";
            let _ = connection.get(path, Some(ATTACKER)).await;
        }
    }
    let served = || open.iter().map(|c| c.seen().served()).sum::<u64>();
    until(ms(5000), || served() >= BURST as u64).await;
    served()
}
