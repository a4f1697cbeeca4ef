//! Very many admission policies, which come into force while others write.

use std::{cell::Cell, fs, rc::Rc, time::Duration};

use http::Method;
use serde_json::json;

use crate::{
    Attack,
    gateway::Gateway,
    hard_bodies::{JSON, MAPS},
    hostile::{HostileClients, HostileRequest, Responses},
    mode,
    policies::{
        BUDGET, METRICS, USERS, are_in_force, cheap, count, median, policy, scene_with, setup,
        wait_until_in_force,
    },
    report::Outcome,
    time::{LOW_PRIORITY_LIVENESS, ms, now},
    upstream::{FakeUpstream, STREAMS},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "policy-files",
        point: "policies",
        about: "20 MB of policies come into force, 5 MB where only counts decide, then invalid ones are to, while others write",
        play: || median(|| files(2, 1)),
    },
    Attack {
        name: "policy-files-users",
        point: "policies",
        about: "the same in 20 files, while 20 users write objects of 1 MB",
        play: || median(|| files(20, 20)),
    },
];

/// How long policies should take to come into force, by the time that they take in a gateway that serves nobody.
const TIMES_ELSEWHERE: u32 = 2;

/// Policies in so many files, while so many users write objects that policies evaluate.
fn files(files: usize, users: usize) -> Outcome {
    // Resident memory: each byte of policies is held as text, as an object and compiled, while the former set still is.
    let memory = 30 * bytes() as u64;
    // Before anything is measured: in service, policies are not made here.
    let all: Vec<String> = (0..files).map(|file| many(file, files)).collect();
    let elsewhere = all.clone();
    let took_elsewhere = Rc::new(Cell::new(ms(0)));
    let noted = Rc::clone(&took_elsewhere);
    let scene = scene_with(cheap(), users).beside(move || noted.set(load_elsewhere(&elsewhere)));
    let writers = HostileClients {
        clients: users,
        users,
        requests: users,
    };
    let played = scene.play(async |scene| {
        let (begun, goal) = (now(), scene.goal(ms(0)));
        let writing = writers.send(scene.gateway.address, vec![long_map()], goal.clone());
        let loading = async {
            for (number, policies) in all.iter().enumerate() {
                place(&scene.gateway, &format!("part-{number}.yaml"), policies);
            }
            let count = 1 + all.iter().map(|policies| count(policies)).sum::<u32>();
            let are_used = until_seen(|| are_in_force(&scene.gateway, count)).await;
            let took = begun.elapsed();
            place(&scene.gateway, "invalid.yaml", &cheap().repeat(3));
            let is_refused = until_seen(|| says(&scene.gateway, REFUSED)).await;
            goal.reach().await;
            (count, are_used, took, is_refused)
        };
        let (responses, (count, are_used, took, is_refused)) = tokio::join!(writing, loading);
        FilesFound {
            responses,
            count,
            are_used,
            took,
            is_refused,
            remain: are_in_force(&scene.gateway, count),
        }
    });
    let mut played = played;
    played.check_policies();
    played.report_growth(memory);
    // Files are the operator's, and charged to nobody; the bodies that their policies evaluate are.
    played.budget_is_kept(METRICS, BUDGET, 1 << 20);
    let FilesFound {
        responses,
        count,
        are_used,
        took,
        is_refused,
        remain,
    } = &played.found;
    let outcome = &mut played.outcome;
    responses.check(outcome);
    outcome.check(
        format!("{} MB of policies come into force", bytes() / 1_000_000),
        *are_used,
        "they do not",
    );
    in_force_after(outcome, *took, took_elsewhere.get());
    outcome.check(
        "the log says why further ones are refused",
        *is_refused,
        "it does not",
    );
    outcome.check("the last good ones stay in force", *remain, "they do not");
    outcome.note(format!("{count} policies came into force"));
    played.outcome
}

/// A request to create an object that [`cheap`] evaluates, as long as the smallest of which the budget takes note.
fn long_map() -> HostileRequest {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "x".repeat(1 << 20)},
    });
    HostileRequest {
        name: "a long object",
        method: Method::POST,
        path: MAPS.into(),
        content_type: JSON.into(),
        more: None,
        body: map.to_string().into(),
        codes: &[201],
    }
}

/// How long policies took to come into force, here and in a gateway that serves nobody.
fn in_force_after(outcome: &mut Outcome, here: Duration, elsewhere: Duration) {
    let found = format!(
        "{:.1} s, and {:.1} s where nobody is served",
        here.as_secs_f64(),
        elsewhere.as_secs_f64()
    );
    outcome.figure(
        "policies in force",
        (here.as_secs_f64(), "s"),
        format!("policies came into force after {found}"),
    );
    let allowed = elsewhere * TIMES_ELSEWHERE;
    outcome.measure(
        format!("they come into force within {TIMES_ELSEWHERE} times what a gateway takes that serves nobody"),
        (here.as_secs_f64(), allowed.as_secs_f64()),
        found,
    );
}

/// Has another gateway, which serves nobody, load the policies: as much work and memory on the same machine. Returns how long
/// they took to come into force.
fn load_elsewhere(all: &[String]) -> Duration {
    let upstream = FakeUpstream::start(STREAMS);
    let gateway = Gateway::start(&setup(cheap(), USERS), upstream.address);
    wait_until_in_force(&gateway, 1, ms(20));
    let begun = now();
    for (number, policies) in all.iter().enumerate() {
        place(&gateway, &format!("part-{number}.yaml"), policies);
    }
    let count = 1 + count(&all.concat());
    wait_until_in_force(&gateway, count, PERIOD);
    begun.elapsed()
}

/// What [`files`] finds.
struct FilesFound {
    responses: Responses,
    count: u32,
    are_used: bool,
    took: Duration,
    is_refused: bool,
    remain: bool,
}

/// What the log says of invalid policies, in parts.
const REFUSED: &[&str] = &[
    "defined more than once",
    "the admission policies are invalid; the last good ones stay in force",
];
/// The size of all policies of [`files`], which are in two files at least: one must not be longer than 16 MiB. What is counted, long turns
/// of data cores, shows with a quarter, too.
fn bytes() -> usize {
    if mode::measures() {
        20_000_000
    } else {
        5_000_000
    }
}

/// One of so many parts of the policies of [`files`], each of which is about another resource.
fn many(part: usize, parts: usize) -> String {
    let mut all = String::with_capacity(bytes() / parts);
    for number in 0.. {
        let name = format!("p{part}-{number}");
        let one = policy(
            &name,
            "x.io",
            &name,
            &[
                "has(object.spec) && object.spec.?replicas.orValue(0) <= 5",
                "!has(object.metadata.labels) || object.metadata.labels.all(k, size(k) < 50)",
            ],
        );
        if all.len() + one.len() > bytes() / parts {
            return all;
        }
        all.push_str(&one);
    }
    all
}

/// Puts a file among those of the policies, in one step.
fn place(gateway: &Gateway, name: &str, content: &str) {
    let part = gateway.directory().join(name);
    fs::write(&part, content).unwrap();
    fs::rename(part, gateway.directory().join("admission").join(name)).unwrap();
}

/// How often it is looked whether policies are in force.
const PERIOD: Duration = ms(200);

/// Looks for `holds`, and not so often that looking becomes a load.
async fn until_seen(holds: impl Fn() -> bool) -> bool {
    let begun = now();
    while !holds() {
        if begun.elapsed() > LOW_PRIORITY_LIVENESS {
            return false;
        }
        tokio::time::sleep(PERIOD).await;
    }
    true
}

/// Whether the log contains all of `parts`.
fn says(gateway: &Gateway, parts: &[&str]) -> bool {
    let log = gateway.log();
    parts.iter().all(|part| log.contains(part))
}
