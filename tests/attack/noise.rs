//! What unknown clients can make the gateway write and keep: log lines and series; and what has to be logged.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
};

use http::Method;
use serde_json::json;

use crate::{
    Attack,
    frames::RawConnection,
    gateway::{ATTACKER, Setup},
    others::{Client, Mix},
    report::Outcome,
    scene::Scene,
    time::{LIVENESS, ms, now, until},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "refused-reviews",
        point: "B.11",
        about: "300 unknown tokens that the upstream refuses to review; 20 warnings at most",
        play: refused_reviews,
    },
    Attack {
        name: "kinds-of-request",
        point: "B.11",
        about: "1 200 kinds of request that succeed once; a scrape of 2 MiB at most",
        play: kinds_of_request,
    },
    Attack {
        name: "refused-heads",
        point: "B.11",
        about: "heads that cannot be parsed; the log and a metric report them",
        play: refused_heads,
    },
];

fn refused_reviews() -> Outcome {
    const TOKENS: usize = 300;
    /// In every 10 s.
    const WARNINGS: usize = 20;
    let setup = Setup {
        config: json!({"authentication": {"tokenReview": {"enabled": true}}}),
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::default()).play(async |scene| {
        let (mut reported, begun, goal) = (0, now(), scene.goal(ms(0)));
        let mut client = None;
        for number in 0..TOKENS {
            let mut connected = match client.take() {
                Some(client) => client,
                None => Client::connect(scene.gateway.address, true).await.unwrap(),
            };
            let token = format!("unknown-{number}");
            let answer = connected.send(Method::GET, "/api/v1/pods", Some(&token));
            if let Ok(answer) = answer.await {
                reported += usize::from(answer.status().as_u16() >= 400);
                client = Some(connected);
            }
        }
        goal.reach().await;
        // The log is written by another thread.
        tokio::time::sleep(ms(300)).await;
        (reported, begun.elapsed())
    });
    played.check_other_clients();
    let log = played.scene.gateway.log();
    let warnings = log.lines().filter(|l| l.contains("\"WARN\"")).count();
    let (reported, took) = played.found;
    // Further periods may have begun: the longer the requests took, the more warnings are allowed.
    let allowed = WARNINGS * (1 + usize::try_from(took.as_secs() / 10).unwrap_or(0));
    played.outcome.check(
        "every such request is refused",
        reported == TOKENS,
        format!("{reported} of {TOKENS} were"),
    );
    played.outcome.check(
        format!("at most {WARNINGS} warnings in 10 s"),
        warnings <= allowed,
        format!("{warnings} lines"),
    );
    played.a_metric_shows_it(&["token_reviews"]);
    played.outcome
}

fn kinds_of_request() -> Outcome {
    const KINDS: usize = 1200;
    const BYTES: usize = 2 << 20;
    let mut played = Scene::new(&Setup::default(), Mix::default()).play(async |scene| {
        let opened = RawConnection::open(scene.gateway.address, &[]).await;
        let mut connection = opened.unwrap();
        for number in 0..KINDS {
            let path = format!("/apis/group-{number}.example/v1/namespaces/a/things/t");
            let _ = connection.get(&path, Some(ATTACKER)).await;
            let answered = || connection.seen().answers() > number as u64;
            until(LIVENESS, answered).await;
        }
        scene.goal(ms(0)).reach().await;
        connection.seen().answers()
    });
    played.check_other_clients();
    let [before, after] = [played.metrics[0].bytes(), played.metrics[1].bytes()];
    played.outcome.check(
        "the scrape is at most 2 MiB",
        after <= BYTES,
        format!("{} KiB", after >> 10),
    );
    let answers = played.found;
    played.outcome.note(format!(
        "{answers} responses; the scrape grew from {} to {} KiB",
        before >> 10,
        after >> 10
    ));
    played.outcome
}

fn refused_heads() -> Outcome {
    const TIMES: usize = 5;
    let setup = Setup {
        config: json!({"log": {"access": true}}),
        ..Setup::default()
    };
    let mut played = Scene::new(&setup, Mix::NOBODY).play(async |scene| {
        let lines = scene.gateway.log().lines().count();
        let address = scene.gateway.address;
        let sent = tokio::task::spawn_blocking(move || {
            let each = || heads().iter().map(|head| status(address, head)).collect();
            (0..TIMES)
                .flat_map(|_| -> Vec<_> { each() })
                .collect::<Vec<_>>()
        });
        let statuses = sent.await.unwrap();
        until(LIVENESS, || scene.gateway.log().lines().count() > lines).await;
        (statuses, scene.gateway.log().lines().count() - lines)
    });
    let (statuses, lines) = std::mem::take(&mut played.found);
    let refused = (400..500).contains(statuses.iter().max().unwrap_or(&0));
    let outcome = &mut played.outcome;
    outcome.check("the requests are refused", refused, format!("{statuses:?}"));
    outcome.check("the log mentions them", lines > 0, "not a line");
    outcome.note(format!(
        "{lines} lines in the log for {} heads",
        statuses.len()
    ));
    played.a_metric_shows_it(&["head", "malformed", "protocol", "parse", "bad"]);
    played.outcome
}

/// Heads that no parser accepts.
fn heads() -> [String; 4] {
    let many = "x-same: a\r\n".repeat(600);
    [
        "GET / HTTP/1.1\r\nHost: gate\r\nBad Name: x\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: gate\r\n: x\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: gate\r\n{many}\r\n"),
        "GET /\u{7f} HTTP/1.1\r\nHost: gate\r\n\r\n".to_owned(),
    ]
}

/// The status of the response, or 0.
fn status(address: SocketAddr, head: &str) -> u16 {
    let ask = || {
        let mut stream = std::net::TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(LIVENESS)).ok()?;
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).ok()?;
        std::str::from_utf8(&answer[9..]).ok()?.parse().ok()
    };
    ask().unwrap_or(0)
}
