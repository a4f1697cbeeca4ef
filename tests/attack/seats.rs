//! Attempts to make the upstream execute more requests than the limits allow.
//!
//! The upstream completes every request, even if it is cancelled, and counts how many execute at a time. That must
//! never exceed the seats of the level, or the limit on long-running requests.

use std::{collections::VecDeque, time::Duration};

use serde_json::json;

use fairgate_testkit::random::Random;

use crate::{
    Attack,
    frames::{RawConnection, get, reset},
    gateway::{ATTACKED_SEATS, ATTACKER, Setup, attacker},
    goal::Goal,
    others::Mix,
    report::Outcome,
    scene::{Played, Scene},
    time::{LIVENESS, ms, now, until},
    upstream::Executing,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "poisoned-service-time",
        point: "B.4",
        about: "after 160 quick requests, from which a short service time is learned, slow ones are cancelled after 3 ms",
        play: poisoned_service_time,
    },
    Attack {
        name: "long-running-cancelled",
        point: "B.5",
        about: "pods/log of one user, cancelled after 3 ms, under a cap of 50",
        play: long_running_cancelled,
    },
    Attack {
        name: "long-running-at-once",
        point: "B.5",
        about: "pods/log of 8 users at the same moment, under a total cap of 80",
        play: long_running_at_once,
    },
    Attack {
        name: "false-watches",
        point: "B.6",
        about: "80 slow reads with ?watch=true for 13 s, with 20 seats",
        play: false_watches,
    },
    Attack {
        name: "random-schedules",
        point: "B.4-6",
        about: "quick and slow requests, false watches, time limits, cancelled at random (seed 8), with 20 seats",
        play: random_schedules,
    },
];

const SLOW: &str = "/api/v1/namespaces/a/pods/t4000";
/// Quick, but slower than the time after which requests are cancelled.
const QUICK: &str = "/api/v1/namespaces/a/pods/t15";
const LOG: &str = "/api/v1/namespaces/a/pods/t2000/log";
const LASTS: Duration = ms(3000);
/// How often requests are cancelled, and how many random ones each attacker sends, at least.
const ROUNDS: usize = 700;
const RANDOM_REQUESTS: usize = 1000;
const BATCHES: usize = 100;
const PER_USER: usize = 50;
const TOTAL: usize = 80;

fn attacked() -> Setup {
    Setup {
        attacked_level: true,
        more_attackers: 8,
        ..Setup::default()
    }
}

fn long_running() -> Setup {
    let limits = json!({"longRunningPerUser": PER_USER, "longRunningTotal": TOTAL});
    Setup {
        config: json!({"limits": limits}),
        more_attackers: 8,
        ..Setup::default()
    }
}

/// The other clients send neither long-running requests nor watches, which also count as long-running.
fn brief() -> Mix {
    Mix {
        watches: 0,
        ..Mix::default()
    }
}

/// Checks that at most `limit` requests executed at a time, and that any did.
fn within_limit<T>(mut played: Played<T>, executing: Executing, limit: usize) -> Outcome {
    played.check_other_clients();
    played.outcome.check(
        format!("at most {limit} execute at a time"),
        executing.most <= limit,
        format!("{} did", executing.most),
    );
    played.outcome.check(
        "the attack reaches the upstream",
        executing.begun > 0,
        "nothing was executed",
    );
    let (most, begun) = (executing.most, executing.begun);
    played
        .outcome
        .note(format!("at most {most} of {begun} executed at a time"));
    played.outcome
}

/// Sends `path` again and again, 5 every 4 ms, and cancels each after 3 ms.
async fn cancel_again_and_again(scene: &Scene, goal: &Goal, user: &str, path: &str) {
    let mut rounds = 0;
    let is_on = |rounds| goal.is_open() || rounds < ROUNDS && goal.has_time();
    while is_on(rounds) {
        let Ok(mut connection) = RawConnection::open(scene.gateway.address, &[]).await else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        while is_on(rounds) && !connection.seen().is_ended() {
            rounds += 1;
            let streams: Vec<u32> = (0..5).map(|_| connection.stream()).collect();
            let asks = |stream: &u32| get(*stream, path, Some(user));
            let _ = connection
                .send(&streams.iter().flat_map(asks).collect::<Vec<_>>())
                .await;
            tokio::time::sleep(ms(3)).await;
            let resets: Vec<u8> = streams.into_iter().flat_map(reset).collect();
            let _ = connection.send(&resets).await;
            tokio::time::sleep(ms(1)).await;
        }
        tokio::time::sleep(ms(20)).await;
    }
}

fn poisoned_service_time() -> Outcome {
    const QUICK_REQUESTS: u64 = 160;
    const AT_ONCE: u64 = 10;
    let played = Scene::new(&attacked(), brief()).play(async |scene| {
        // On several connections, so that every core learns.
        for _ in 0..4 {
            let mut connection = RawConnection::open(scene.gateway.address, &[])
                .await
                .unwrap();
            for batch in 0..QUICK_REQUESTS / AT_ONCE {
                for _ in 0..AT_ONCE {
                    let _ = connection.get(QUICK, Some(ATTACKER)).await;
                }
                let complete = || connection.seen().answers() >= (batch + 1) * AT_ONCE;
                until(LIVENESS, complete).await;
            }
        }
        let goal = scene.goal(LASTS);
        let each = || cancel_again_and_again(scene, &goal, ATTACKER, SLOW);
        tokio::join!(each(), each());
    });
    let executing = played.scene.upstream.executing(ATTACKER);
    within_limit(played, executing, ATTACKED_SEATS as usize)
}

fn long_running_cancelled() -> Outcome {
    let played = Scene::new(&long_running(), brief()).play(async |scene| {
        let goal = scene.goal(LASTS);
        let each = || cancel_again_and_again(scene, &goal, ATTACKER, LOG);
        tokio::join!(each(), each());
    });
    let executing = played.scene.upstream.executing(ATTACKER);
    within_limit(played, executing, PER_USER)
}

fn long_running_at_once() -> Outcome {
    let played = Scene::new(&long_running(), brief()).play(async |scene| {
        let goal = scene.goal(LASTS);
        let each = (0..16).map(|number| request_at_once(scene, &goal, attacker(number % 8)));
        futures_util::future::join_all(each).await;
    });
    let executing = played.scene.upstream.attackers();
    within_limit(played, executing, TOTAL)
}

/// Requests 20 short logs at a time, so that all users together reach the cap again and again.
async fn request_at_once(scene: &Scene, goal: &Goal, user: String) {
    const EACH: usize = 20;
    let opened = RawConnection::open(scene.gateway.address, &[]).await;
    let (mut connection, mut asked, mut batches) = (opened.unwrap(), 0, 0);
    // Room for all responses: the gateway closes connections that leave them unread.
    connection.widen_window().await.unwrap();
    while goal.is_open() || batches < BATCHES && goal.has_time() {
        batches += 1;
        for _ in 0..EACH {
            let path = "/api/v1/namespaces/a/pods/t5/log";
            asked += u64::from(connection.get(path, Some(&user)).await.is_ok());
        }
        until(LIVENESS, || connection.seen().answers() >= asked).await;
    }
}

fn false_watches() -> Outcome {
    const PATH: &str = "/api/v1/namespaces/t25000/pods?watch=true&resourceVersion=1";
    let played = Scene::new(&attacked(), brief()).play(async |scene| {
        let mut connection = RawConnection::open(scene.gateway.address, &[])
            .await
            .unwrap();
        for _ in 0..80 {
            let _ = connection.get(PATH, Some(ATTACKER)).await;
        }
        let goal = scene.goal(ms(13_000));
        // So long a watch would keep its seat if it were one that is never initialized, and three seconds more.
        tokio::time::sleep(ms(13_000)).await;
        goal.reach().await;
    });
    let executing = played.scene.upstream.executing(ATTACKER);
    within_limit(played, executing, ATTACKED_SEATS as usize)
}

fn random_schedules() -> Outcome {
    let played = Scene::new(&attacked(), brief()).play(async |scene| {
        let goal = scene.goal(2 * LASTS);
        let each = |number: usize| random_schedule(scene, &goal, number);
        tokio::join!(each(0), each(1), each(2), each(3));
    });
    let executing = played.scene.upstream.attackers();
    within_limit(played, executing, ATTACKED_SEATS as usize)
}

/// One attacker's random requests, each cancelled after a random time.
async fn random_schedule(scene: &Scene, goal: &Goal, number: usize) {
    let mut random = Random::seeded(8 + number as u64);
    let user = attacker(number);
    let mut requests = 0;
    let is_on = |requests| goal.is_open() || requests < RANDOM_REQUESTS && goal.has_time();
    while is_on(requests) {
        let Ok(mut connection) = RawConnection::open(scene.gateway.address, &[]).await else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        let mut open = VecDeque::new();
        while is_on(requests) && !connection.seen().is_ended() {
            requests += 1;
            let path = random_path(&mut random);
            let Ok(stream) = connection.get(&path, Some(&user)).await else {
                break;
            };
            let patience = [1, 3, 10, 100, 400][index(&mut random, 5)];
            open.push_back((now() + ms(patience), stream));
            tokio::time::sleep(ms(random.within(1..7))).await;
            let is_over = |entry: &(std::time::Instant, u32)| entry.0 <= now();
            let (over, left): (Vec<_>, Vec<_>) = open.into_iter().partition(is_over);
            open = left.into();
            for (_, stream) in over {
                let _ = connection.send(&reset(stream)).await;
            }
        }
    }
}

fn random_path(random: &mut Random) -> String {
    let time = [0, 5, 50, 400, 1500][index(random, 5)];
    match random.within(0..5) {
        0 => format!("/api/v1/namespaces/t{time}/pods?watch=true&resourceVersion=1"),
        1 => format!("/api/v1/namespaces/t{time}/pods?watch=true"),
        2 => format!("/api/v1/namespaces/a/pods/t{time}?timeout=1s"),
        _ => format!("/api/v1/namespaces/a/pods/t{time}"),
    }
}

fn index(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.within(0..bound as u64)).unwrap_or(0)
}
