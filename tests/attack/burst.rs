//! Upstream connections after a burst of requests, and what a request then costs, beside a gateway without a burst.
//!
//! Counted is that the connections are used again. That a request looks at a few of them only, however many there are, is counted by
//! the unit tests of `crates/proxy/src/forward/idle_connections.rs`; here it shows in the measured processor time.

use std::{net::SocketAddr, time::Duration};

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::{
    Attack,
    frames::RawConnection,
    gateway::{ATTACKER, Gateway, Setup, VICTIM},
    mode,
    others::{Client, Mix},
    report::Outcome,
    scene::Scene,
    time::{LIVENESS, ms, now, until},
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
/// Requests of each client after the burst.
const REQUESTS: usize = 100;
/// How long a measurement window is, and how many there are of each gateway. They alternate, and the median of the ratios of two
/// windows that follow one another decides: what else the machine does changes slowly, or spoils few of them.
const WINDOW: Duration = ms(50);
const WINDOWS: usize = 20;
/// What a request may cost after the burst, by its cost without one.
const MOST: f64 = 1.15;

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
        let before = scene.upstream.connections();
        let served = all_at_once(scene.gateway.address).await;
        let opened = scene.upstream.connections() - before;
        let mut clients = Side::new(&scene.gateway).await;
        let answered = clients.send(REQUESTS).await;
        let more = scene.upstream.connections() - before - opened;
        let costs = if mode::measures() {
            let other = Gateway::start(&setup, scene.upstream.address);
            Some(costs(&scene.gateway, &other).await)
        } else {
            None
        };
        (served, opened, answered, more, costs)
    });
    played.runtimes_are_free();
    let (served, opened, answered, more, costs) = played.found;
    let outcome = &mut played.outcome;
    outcome.check(
        "the burst is served",
        served == BURST as u64,
        format!("{served} of {BURST} were"),
    );
    outcome.check(
        "later requests are served on the connections that are there",
        answered == REQUESTS * CLIENTS && more == 0,
        format!("{answered} were served, {more} more connections opened"),
    );
    if let Some([after, without, ratio]) = costs {
        let found = format!(
            "{after:.1} µs after the burst, {without:.1} µs in a gateway without one, {ratio:.2} times as much, by medians"
        );
        outcome.measure(
            "a request is at most 15 % more expensive after the burst",
            (ratio, MOST),
            found.clone(),
        );
        let note = format!("a request costs {found}");
        outcome.figure(
            "cost of a request, by that without a burst",
            (ratio, ""),
            note,
        );
    }
    outcome.note(format!("the burst opened {opened} upstream connections"));
    played.outcome
}

/// The cost of a request in a gateway after the burst and in one without a burst, in microseconds of processor time, and their
/// ratio: medians of windows that alternate, so that both meet the same machine.
async fn costs(after: &Gateway, without: &Gateway) -> [f64; 3] {
    let (mut one, mut other) = (Side::new(after).await, Side::new(without).await);
    let mut found = [const { Vec::new() }; 3];
    for window in 0..WINDOWS {
        // Each of them is the first of two as often as the other.
        let (after, without) = if window % 2 == 0 {
            let after = one.cost().await;
            (after, other.cost().await)
        } else {
            let without = other.cost().await;
            (one.cost().await, without)
        };
        for (all, value) in found.iter_mut().zip([after, without, after / without]) {
            all.push(value);
        }
    }
    found.map(|mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[WINDOWS / 2]
    })
}

/// A gateway, and clients with a connection each.
struct Side<'a> {
    gateway: &'a Gateway,
    clients: Vec<Client>,
}

impl<'a> Side<'a> {
    async fn new(gateway: &'a Gateway) -> Self {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(Client::connect(gateway.address, false).await.unwrap());
        }
        Self { gateway, clients }
    }

    /// Sends so many requests with each client. Returns how many responses there are.
    async fn send(&mut self, each: usize) -> usize {
        let ask = |client| async move {
            let client: &mut Client = client;
            let mut count = 0;
            for _ in 0..each {
                let path = "/api/v1/namespaces/v/pods/p";
                let answer = client.send(Method::GET, path, Some(VICTIM)).await;
                let whole = answer.unwrap().into_body().collect().await;
                count += usize::from(whole.is_ok());
            }
            count
        };
        let counts = futures_util::future::join_all(self.clients.iter_mut().map(ask)).await;
        counts.into_iter().sum()
    }

    /// The gateway's processor time for one request of the clients in a closed loop, in microseconds.
    async fn cost(&mut self) -> f64 {
        let (cpu, begun) = (self.gateway.cpu(), now());
        let ask = |client| async move {
            let client: &mut Client = client;
            let mut count = 0_u32;
            while begun.elapsed() < WINDOW {
                let path = "/api/v1/namespaces/v/pods/p";
                let answer = client.send(Method::GET, path, Some(VICTIM)).await;
                let whole = answer.unwrap().into_body().collect().await;
                count += u32::from(whole.is_ok());
            }
            count
        };
        let counts = futures_util::future::join_all(self.clients.iter_mut().map(ask)).await;
        let spent = self.gateway.cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
        spent / f64::from(counts.iter().sum::<u32>().max(1))
    }
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
    until(LIVENESS, || served() >= BURST as u64).await;
    served()
}
