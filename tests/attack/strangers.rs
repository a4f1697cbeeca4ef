//! Clients that are not authenticated yet: many tokens that nobody knows, and TLS connections on which nothing comes.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use fairgate_testkit::pki::{Authority, Leaf};
use http::{Method, Request};
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

fn token_flood(addresses: u8, at_once: usize) -> Outcome {
    const CONNECTIONS: usize = 6;
    /// Two of each connection, and what begins while the good token and its review are on their way. Without turns all that wait
    /// come before: some 500 of one address, and 1000 of many.
    const ON_THE_WAY: usize = 64;
    let allowed = 2 * usize::from(addresses) * CONNECTIONS + ON_THE_WAY;
    let setup = Setup {
        config: json!({"authentication": {"tokenReview": {"enabled": true}}}),
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let (goal, refused) = (scene.goal(ms(4000)), Arc::<AtomicUsize>::default());
        let mut attackers = JoinSet::new();
        for number in 0..addresses {
            for _ in 0..CONNECTIONS {
                let counts = Arc::clone(&refused);
                let from = FIRST + number;
                attackers.spawn(flood(
                    from,
                    scene.gateway.address,
                    at_once,
                    goal.clone(),
                    counts,
                ));
            }
        }
        while scene.upstream.reviews().bogus() < 100 && goal.has_time() {
            tokio::time::sleep(ms(10)).await;
        }
        let mut found = Vec::new();
        for from in [OTHER, FIRST] {
            for number in 0..TRIES {
                found.push(good_token(scene, from, number).await);
            }
        }
        goal.reach().await;
        attackers.join_all().await;
        (found, refused.load(Ordering::Relaxed))
    });
    played.check_other_clients();
    played.control_is_free();
    let (found, refused) = std::mem::take(&mut played.found);
    let accepted: Vec<_> = found.iter().filter_map(|one| one.as_ref().ok()).collect();
    let failure = found.iter().find_map(|one| one.as_ref().err());
    let outcome = &mut played.outcome;
    outcome.check(
        format!("all {} new tokens are accepted", 2 * TRIES),
        accepted.len() == found.len(),
        failure.cloned().unwrap_or_default(),
    );
    let most = accepted
        .iter()
        .map(|found| found.0)
        .max()
        .unwrap_or(usize::MAX);
    outcome.check(
        format!("at most {allowed} reviews of unknown tokens begin before that of a good one"),
        most <= allowed,
        format!("{most} did"),
    );
    let longest = accepted.iter().map(|found| found.1.as_millis()).max();
    outcome.note(format!(
        "{refused} unknown tokens were refused; reviews that began before those of good tokens: {:?}; a good one took {} ms at most",
        accepted.iter().map(|found| found.0).collect::<Vec<_>>(),
        longest.unwrap_or_default()
    ));
    outcome.check("unknown tokens are refused", refused > 0, "none was");
    played.memory_is_bounded(128 << 20);
    played.outcome
}

/// Sends different unknown tokens on a connection, so many at a time, until the attack is over.
async fn flood(
    from: u8,
    address: SocketAddr,
    at_once: usize,
    goal: Goal,
    refused: Arc<AtomicUsize>,
) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    while goal.is_open() {
        let Ok(stream) = connect_from(from, address).await else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        let Ok(client) = Client::over(stream, true).await else {
            continue;
        };
        let mut sending = JoinSet::new();
        for _ in 0..at_once {
            let (Some(mut client), goal) = (client.share(), goal.clone()) else {
                continue;
            };
            let refused = Arc::clone(&refused);
            sending.spawn(async move {
                while goal.is_open() {
                    let token = format!("{BOGUS}{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                    let sent = client.send(Method::GET, "/api/v1/pods", Some(&token)).await;
                    let Ok(response) = sent else {
                        return;
                    };
                    refused.fetch_add(
                        usize::from(response.status().is_client_error()),
                        Ordering::Relaxed,
                    );
                    let _ = response.into_body().collect().await;
                }
            });
        }
        sending.join_all().await;
    }
}

/// Sends a good token that is new, on a new connection. Returns how many reviews of unknown ones began before its own, and how
/// long it took.
async fn good_token(
    scene: &Scene,
    from: u8,
    number: usize,
) -> Result<(usize, std::time::Duration), String> {
    let stream = connect_from(from, scene.gateway.address).await?;
    let mut client = Client::over(stream, false).await?;
    let reviews = scene.upstream.reviews();
    let (before, begun) = (reviews.bogus(), now());
    let token = format!("{GOOD}{from}-{number}");
    let sent = client.send(Method::GET, "/api/v1/namespaces/v/pods/p", Some(&token));
    let sent = tokio::time::timeout(LIVENESS, sent).await;
    let response = sent.map_err(|_| "no response in time".to_owned())??;
    if response.status().is_success() {
        Ok((reviews.before_good() - before, begun.elapsed()))
    } else {
        Err(format!("{}", response.status()))
    }
}

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
        tokio::time::sleep(ms(300)).await;
        let mut found = [0; 2];
        for _ in 0..TRIES {
            for (attempts, from) in found.iter_mut().zip([OTHER, FIRST]) {
                *attempts += scrape(&connector, from, secure, &goal).await;
            }
        }
        goal.reach().await;
        attackers.join_all().await;
        (found, closed.load(Ordering::Relaxed))
    });
    played.check_other_clients();
    played.control_is_free();
    let (tries, closed) = std::mem::take(&mut played.found);
    let outcome = &mut played.outcome;
    outcome.check(
        format!("a client of another address is served {TRIES} times, at once"),
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
    played.memory_is_bounded(64 << 20);
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
