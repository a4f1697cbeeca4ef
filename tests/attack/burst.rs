//! What a request costs the gateway, before a burst and after it.

use std::{net::SocketAddr, time::Duration};

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
    about: "1 024 requests at once over HTTP/1.1 upstream; what a request on 8 connections costs afterwards",
    play: burst,
}];

const BURST: usize = 1024;
const PER_CONNECTION: usize = 128;
const CLIENTS: usize = 8;
/// The number of measurement windows, and how long each is. The cheapest counts: whatever else the machine does
/// makes requests more expensive, never cheaper.
const WINDOWS: usize = 10;
const WINDOW: Duration = ms(300);
/// What a request may cost after the burst, in percent of its cost before.
const MOST_PERCENT: u64 = 115;

fn burst() -> Outcome {
    let setup = Setup {
        attacked_level: true,
        // 20 of 125 shares are 1 280 seats.
        config: json!({
            "flowControl": {"totalSeats": 8000},
            "upstream": {"protocol": "http1"},
            // One core has all upstream connections.
            "dataCores": 1,
        }),
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::NOBODY).play(async |scene| {
        let mut clients = clients(scene.gateway.address).await;
        let before = least_cost(&scene.gateway, &mut clients).await;
        let opened = scene.upstream.connections();
        let served = all_at_once(scene.gateway.address).await;
        let opened = scene.upstream.connections() - opened;
        let after = least_cost(&scene.gateway, &mut clients).await;
        (before, after, served, opened)
    });
    let (before, after, served, opened) = played.found;
    let outcome = &mut played.outcome;
    outcome.check(
        "the burst is served",
        served == BURST as u64,
        format!("{served} of {BURST} were"),
    );
    let micros = |nanos: u64| format!("{:.1} µs", Duration::from_nanos(nanos).as_secs_f64() * 1e6);
    outcome.check(
        "a request is at most 15 % more expensive after the burst",
        after * 100 <= before * MOST_PERCENT,
        format!("{} before, {} after", micros(before), micros(after)),
    );
    outcome.note(format!(
        "a request costs {} before the burst, {} after it; it opened {opened} upstream connections",
        micros(before),
        micros(after)
    ));
    played.outcome
}

/// Clients with a connection each, the same before and after, so that they are on the same cores.
async fn clients(address: SocketAddr) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::connect(address, false).await.unwrap());
    }
    clients
}

/// The lowest cost of a request in any of several windows.
async fn least_cost(gateway: &Gateway, clients: &mut [Client]) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..WINDOWS {
        least = least.min(cost(gateway, clients).await);
    }
    least
}

/// The gateway's processor time for one request of the clients in a closed loop, in nanoseconds.
async fn cost(gateway: &Gateway, clients: &mut [Client]) -> u64 {
    let (cpu, begun) = (gateway.cpu(), now());
    let ask = |client| async move {
        let client: &mut Client = client;
        let mut count = 0_u64;
        while begun.elapsed() < WINDOW {
            let path = "/api/v1/namespaces/v/pods/p";
            let answer = client.send(Method::GET, path, Some(VICTIM)).await;
            let whole = answer.unwrap().into_body().collect().await;
            count += u64::from(whole.is_ok());
        }
        count
    };
    let counts = futures_util::future::join_all(clients.iter_mut().map(ask)).await;
    let spent = gateway.cpu().saturating_sub(cpu).as_nanos();
    let each = spent / u128::from(counts.iter().sum::<u64>().max(1));
    u64::try_from(each).unwrap_or(u64::MAX)
}

/// Sends the burst. Returns how many of its requests were served.
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
