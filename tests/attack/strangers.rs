//! Clients that are not authenticated yet: many tokens that nobody knows, and TLS connections on which nothing comes.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fairgate_testkit::pki::{Authority, Leaf};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, task::JoinSet};
use tokio_rustls::TlsConnector;

use crate::{
    Attack,
    gateway::{Setup, VICTIM},
    goal::Goal,
    others::{Client, Mix, connect_from},
    report::Outcome,
    scene::Scene,
    time::{LIVENESS, ms, now},
    token_reviews::{BOGUS, GOOD},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "token-flood",
        point: "27.2.6",
        about: "480 different unknown tokens at a time on 6 connections of one address; new good tokens are reviewed meanwhile",
        play: || token_flood(1, 80),
    },
    Attack {
        name: "token-flood-users",
        point: "27.2.6",
        about: "960 unknown tokens at a time on 120 connections of 20 addresses; new good tokens are reviewed meanwhile",
        play: || token_flood(20, 8),
    },
    Attack {
        name: "silent-tls",
        point: "27.2.6",
        about: "400 TLS connections of one address to the secure admin port on which nothing comes; others connect",
        play: || silent_tls(1),
    },
    Attack {
        name: "silent-tls-users",
        point: "27.2.6",
        about: "the same from 20 addresses",
        play: || silent_tls(20),
    },
];

/// The last byte of the address of a client that attacks nobody, and of the attackers' first address.
const OTHER: u8 = 99;
const FIRST: u8 = 1;
/// How often others try.
const TRIES: usize = 10;

/// Reviews that run or wait, and those that run.
const PENDING: u64 = 1_024;
const RUNNING: u64 = 32;
const PENDING_METRICS: (&str, &str) = (
    "fairgate_token_reviews_pending",
    "fairgate_token_reviews_pending_peak",
);

fn token_flood(addresses: u8, at_once: usize) -> Outcome {
    const CONNECTIONS: usize = 6;
    let setup = Setup {
        config: json!({"authentication": {"tokenReview": {"enabled": true}}}),
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let goal = scene.goal(ms(4000));
        let flooding = Flooding {
            address: scene.gateway.address,
            goal: goal.clone(),
            refused: Arc::default(),
        };
        let mut attackers = JoinSet::new();
        for number in 0..addresses {
            for _ in 0..CONNECTIONS {
                attackers.spawn(flooding.clone().flood_from(FIRST + number, at_once));
            }
        }
        let trying = goal.lasts_for(async {
            // Until each connection has had turns.
            let at_first = 2 * usize::from(addresses) * CONNECTIONS + 100;
            while scene.upstream.reviews().bogus() < at_first && goal.has_time() {
                tokio::time::sleep(ms(10)).await;
            }
            let mut found = Vec::new();
            for from in [OTHER, FIRST] {
                for number in 0..TRIES {
                    found.push((from, good_token(scene, from, number).await));
                }
            }
            found
        });
        let found = trying.await;
        goal.reach().await;
        attackers.join_all().await;
        (found, flooding.refused.load(Ordering::Relaxed))
    });
    played.check_other_clients();
    let (found, refused) = std::mem::take(&mut played.found);
    check_good_tokens(&mut played.outcome, &found, addresses);
    played.count_is_kept(PENDING_METRICS, PENDING, RUNNING);
    let most = played.scene.upstream.reviews().most_running() as u64;
    played.outcome.check(
        format!("at most {RUNNING} reviews run at a time"),
        most <= RUNNING,
        format!("{most} did"),
    );
    let outcome = &mut played.outcome;
    outcome.note(format!("{refused} unknown tokens were refused"));
    outcome.check("unknown tokens are refused", refused > 0, "none was");
    played.report_memory(128 << 20);
    played.outcome
}

/// How many reviews of unknown tokens began before that of a good one, and how long that took; or why it was not accepted.
type GoodToken = Result<(usize, Duration), String>;

/// Checks what came of the good tokens of each address. A try of ten may be delayed by the machine, which the turns do not
/// know of, so the median of them is evaluated.
fn check_good_tokens(outcome: &mut Outcome, found: &[(u8, GoodToken)], addresses: u8) {
    /// What begins while the good token and its review are on their way, and two turns: twice as many as run at a time. Without turns all
    /// that wait come before: 256 of one address, and 768 of many.
    const ON_THE_WAY: usize = 64;
    // A connection of one of the attackers' addresses waits for the turn of that address, at first beside all others.
    let of_attackers = ON_THE_WAY + 2 * usize::from(addresses);
    let failure = found.iter().find_map(|(_, one)| one.as_ref().err());
    outcome.check(
        format!("all {} new tokens are accepted", 2 * TRIES),
        failure.is_none(),
        failure.cloned().unwrap_or_default(),
    );
    for (from, whose, allowed) in [
        (OTHER, "another", ON_THE_WAY),
        (FIRST, "the attackers'", of_attackers),
    ] {
        let of_address = found.iter().filter(|(of, _)| *of == from);
        let accepted = of_address.filter_map(|(_, one)| one.as_ref().ok());
        let mut counts: Vec<usize> = accepted.map(|(before, _)| *before).collect();
        counts.sort_unstable();
        let median = counts.get(counts.len() / 2).copied();
        outcome.check(
            format!("at most {allowed} reviews of unknown tokens begin before that of a good one of {whose} address"),
            median.is_some_and(|median| median <= allowed),
            format!("{median:?} did, by the median of {counts:?}"),
        );
        outcome.note(format!(
            "reviews that began before those of good tokens of {whose} address: {counts:?}"
        ));
    }
    let took = found.iter().filter_map(|(_, one)| one.as_ref().ok());
    let longest = took.map(|(_, took)| took.as_millis()).max();
    let longest = longest.unwrap_or_default();
    outcome.note(format!("a good token took {longest} ms at most"));
}

/// What the senders of unknown tokens have in common.
#[derive(Clone)]
struct Flooding {
    address: SocketAddr,
    goal: Goal,
    refused: Arc<AtomicUsize>,
}

impl Flooding {
    /// Sends different unknown tokens on a connection, so many at a time, until the attack is over.
    async fn flood_from(self, from: u8, at_once: usize) {
        while self.goal.is_open() {
            let Ok(stream) = connect_from(from, self.address).await else {
                tokio::time::sleep(ms(20)).await;
                continue;
            };
            let Ok(client) = Client::over(stream, true).await else {
                continue;
            };
            let mut sending = JoinSet::new();
            for _ in 0..at_once {
                if let Some(client) = client.share() {
                    sending.spawn(self.clone().send(client));
                }
            }
            sending.join_all().await;
        }
    }

    async fn send(self, mut client: Client) {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        while self.goal.is_open() {
            let token = format!("{BOGUS}{}", NUMBER.fetch_add(1, Ordering::Relaxed));
            let sent = client.send(Method::GET, "/api/v1/pods", Some(&token)).await;
            let Ok(response) = sent else {
                return;
            };
            let is_refused = response.status() == StatusCode::UNAUTHORIZED;
            self.refused
                .fetch_add(usize::from(is_refused), Ordering::Relaxed);
            let is_full = response.status() == StatusCode::TOO_MANY_REQUESTS;
            let _ = response.into_body().collect().await;
            if is_full {
                // What is measured is the order of reviews, and not how many requests the machine refuses.
                tokio::time::sleep(ms(200)).await;
            }
        }
    }
}

/// Sends a good token that is new, on a new connection. Returns how many reviews of unknown ones began before its own, and how
/// long it took.
async fn good_token(scene: &Scene, from: u8, number: usize) -> GoodToken {
    let stream = connect_from(from, scene.gateway.address).await?;
    let mut client = Client::over(stream, false).await?;
    // The connection is open, and its user known: what begins until the gateway has read the request says nothing of turns.
    let path = "/api/v1/namespaces/v/pods/p";
    let sent = client.send(Method::GET, path, Some(VICTIM));
    let opened = tokio::time::timeout(LIVENESS, sent).await;
    let opened = opened.map_err(|_| "no response in time".to_owned())??;
    let _ = opened.into_body().collect().await;
    let reviews = scene.upstream.reviews();
    let (before, begun) = (reviews.bogus(), now());
    let token = format!("{GOOD}{from}-{number}");
    let sent = client.send(Method::GET, path, Some(&token));
    let sent = tokio::time::timeout(LIVENESS, sent).await;
    let response = sent.map_err(|_| "no response in time".to_owned())??;
    if response.status().is_success() {
        Ok((reviews.before_good() - before, begun.elapsed()))
    } else {
        Err(format!("{}", response.status()))
    }
}

/// Connections of the secure admin port: of all addresses, and of one besides those that are closed for others and have not ended yet.
const OF_ALL: u64 = 256;
const OF_AN_ADDRESS: u64 = OF_ALL / 8;
const ADMIN_METRICS: (&str, &str) = (
    "fairgate_secure_admin_connections",
    "fairgate_secure_admin_connections_peak",
);

fn silent_tls(addresses: u8) -> Outcome {
    const CONNECTIONS: u8 = 200;
    const TIMES: u8 = 2;
    let authority = Authority::new("attack");
    let (certificate, key) = authority.issue_pem(&Leaf::named("localhost"));
    let tls = json!({"certFile": "admin.crt", "keyFile": "admin.key"});
    let setup = Setup {
        config: json!({"admin": {"secure": {"address": "127.0.0.1:0", "tls": tls}}}),
        files: vec![
            ("admin.crt".to_owned(), certificate),
            ("admin.key".to_owned(), key),
        ],
        ..Setup::default()
    };
    let connector = TlsConnector::from(authority.client(None, &[b"http/1.1"]));
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let secure = scene.gateway.secure_admin.expect("there is a secure port");
        let (goal, closed) = (scene.goal(ms(4000)), Arc::<AtomicUsize>::default());
        let mut attackers = JoinSet::new();
        for number in 0..CONNECTIONS {
            for _ in 0..TIMES {
                let from = FIRST + number % addresses;
                attackers.spawn(silent(from, secure, goal.clone(), Arc::clone(&closed)));
            }
        }
        let scraping = goal.lasts_for(async {
            tokio::time::sleep(ms(300)).await;
            let mut found = [0; 2];
            for _ in 0..TRIES {
                for (attempts, from) in found.iter_mut().zip([OTHER, FIRST]) {
                    *attempts += scrape(&connector, from, secure, &goal).await;
                }
            }
            found
        });
        let found = scraping.await;
        goal.reach().await;
        attackers.join_all().await;
        (found, closed.load(Ordering::Relaxed))
    });
    played.check_other_clients();
    let tried = (OF_ALL / 2).min(u64::from(addresses) * OF_AN_ADDRESS);
    played.count_is_kept(ADMIN_METRICS, OF_ALL, tried);
    let (tries, closed) = std::mem::take(&mut played.found);
    let outcome = &mut played.outcome;
    outcome.check(
        format!("a client of another address is served {TRIES} times, each at the first attempt"),
        tries[0] == TRIES,
        format!("{} attempts", tries[0]),
    );
    outcome.check(
        format!("a client of an address of the attackers is served {TRIES} times, with three attempts at most each on average"),
        tries[1] <= 3 * TRIES,
        format!("{} attempts", tries[1]),
    );
    outcome.note(format!(
        "attempts until {TRIES} scrapes were served: {} from another address, {} from the attackers'; {closed} silent connections were closed",
        tries[0], tries[1]
    ));
    played.report_memory(64 << 20);
    played.outcome
}

/// Opens a connection and sends nothing, and another one when that is closed, until the attack is over.
async fn silent(from: u8, address: SocketAddr, goal: Goal, closed: Arc<AtomicUsize>) {
    while goal.is_open() {
        if let Ok(mut stream) = connect_from(from, address).await {
            let mut byte = [0];
            tokio::select! {
                _ = stream.read(&mut byte) => {
                    closed.fetch_add(1, Ordering::Relaxed);
                }
                () = until_over(&goal) => {}
            }
        }
        tokio::time::sleep(ms(500)).await;
    }
}

async fn until_over(goal: &Goal) {
    while goal.is_open() {
        tokio::time::sleep(ms(50)).await;
    }
}

/// Scrapes the metrics on a new connection. Returns how many attempts it took.
async fn scrape(connector: &TlsConnector, from: u8, address: SocketAddr, goal: &Goal) -> usize {
    let mut attempts = 1;
    while let Err(error) = scrape_once(connector, from, address).await {
        if !goal.has_time() {
            return usize::MAX / TRIES / 2;
        }
        if attempts == 1 {
            eprintln!("attack:   a scrape from 127.0.0.{from}: {error}");
        }
        attempts += 1;
        tokio::time::sleep(ms(20)).await;
    }
    attempts
}

async fn scrape_once(
    connector: &TlsConnector,
    from: u8,
    address: SocketAddr,
) -> Result<(), String> {
    let scraping = async {
        let stream = connect_from(from, address).await?;
        let name = ServerName::try_from("localhost").map_err(|error| error.to_string())?;
        let opened = connector.connect(name, stream).await;
        let stream = opened.map_err(|error| format!("the handshake fails: {error}"))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let request = Request::get("/metrics")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {VICTIM}"))
            .body(Empty::<bytes::Bytes>::new())
            .unwrap();
        let sent = sender.send_request(request).await;
        let response = sent.map_err(|error| error.to_string())?;
        let status = response.status();
        let whole = response.into_body().collect().await;
        whole.map_err(|error| error.to_string())?;
        status
            .is_success()
            .then_some(())
            .ok_or_else(|| status.to_string())
    };
    let scraped = tokio::time::timeout(LIVENESS, scraping).await;
    scraped.map_err(|_| "no response in time".to_owned())?
}
