//! Policies that change while requests run and wait.

use std::{collections::BTreeMap, sync::atomic::AtomicBool};

use fairgate_core::apf::Semantics;
use tokio::task::JoinSet;

use super::*;
use crate::{
    client::body,
    random::{self, Below as _, Random},
    rules::{Full, Rules},
};

const USERS: [&str; 5] = ["ann", "ben", "cat", "dan", "eve"];

/// Up to four levels with the names `a` to `d`, and a FlowSchema for each user.
fn rules(random: &mut Random) -> Rules {
    let mut rules = Rules::new();
    for name in ["a", "b", "c", "d"] {
        let seats = 1 + random.below(4);
        match random.below(4) {
            0 => {}
            1 => rules = rules.level(name, seats, Full::Reject),
            _ => {
                let queues = 1 + random.below(8);
                let full = Full::Queue {
                    queues,
                    hand: 1 + random.below(queues),
                    length: 1 + random.below(20),
                };
                rules = rules.level(name, seats, full);
            }
        }
    }
    for user in USERS {
        // A FlowSchema whose level does not exist has no effect.
        let level = ["a", "b", "c", "d"][random.below(4) as usize];
        rules = rules.schema(&format!("{user}-to-{level}"), level, &[user]);
    }
    let semantics = [Semantics::Improved, Semantics::Compatible];
    rules.semantics(semantics[random.below(2) as usize])
}

/// Sends one request after the other until `stop` is set; counts the responses by status.
async fn client(
    gate: Arc<Gate>,
    number: usize,
    stop: Arc<AtomicBool>,
    responses: Arc<AtomicUsize>,
) -> BTreeMap<u16, u32> {
    let mut answers = BTreeMap::new();
    let mut client = connect(&gate, number.is_multiple_of(2)).await;
    while !stop.load(Ordering::Relaxed) {
        let method = [Method::GET, Method::POST][number % 2].clone();
        let request = of(&client, USERS[number % USERS.len()], method, PODS);
        let response = soon(client.send(request)).await.unwrap();
        *answers.entry(response.status().as_u16()).or_default() += 1;
        body(response).await;
        responses.fetch_add(1, Ordering::Relaxed);
    }
    answers
}

#[tokio::test]
async fn two_hundred_changes_under_load_lose_no_request_and_no_seat() {
    let mut random = random::seeded();
    let Stubborn { upstream, work } =
        Stubborn::start(Speaks::Http2, |number| ms([1, 3, 8, 20][number % 4]));
    let gate = Arc::new(Gate::governed(&upstream, &rules(&mut random)));
    let (stop, responses) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let mut clients = JoinSet::new();
    for number in 0..20 {
        clients.spawn(client(
            Arc::clone(&gate),
            number,
            Arc::clone(&stop),
            Arc::clone(&responses),
        ));
    }
    for change in 0..200 {
        gate.flow_control()
            .apply(now(), rules(&mut random).policy());
        if change % 10 == 0 {
            gate.flow_control().rebalance(now());
        }
        // Some requests are served or refused under each policy.
        let before = responses.load(Ordering::Relaxed);
        until(|| responses.load(Ordering::Relaxed) >= before + 5).await;
    }
    until(|| work.done() > 100).await;
    stop.store(true, Ordering::Relaxed);
    let mut answers = BTreeMap::<u16, u32>::new();
    while let Some(client) = clients.join_next().await {
        for (status, count) in client.unwrap() {
            *answers.entry(status).or_default() += count;
        }
    }
    // Every request got one response: from the upstream, which saw each request once, or a refusal.
    let served = answers.remove(&200).unwrap_or(0);
    assert_eq!(served as usize, work.done());
    assert_eq!(upstream.seen().len(), work.done());
    answers.remove(&429);
    assert!(answers.is_empty(), "{answers:?}");

    let flow_control = gate.flow_control();
    let seats = || -> u32 {
        let levels = flow_control.dispatcher().report(now());
        let held = levels.iter().map(|level| level.summary);
        held.map(|level| level.seats_in_use + level.waiting + level.executing)
            .sum()
    };
    until(|| seats() == 0 && flow_control.queued() == 0).await;
    // Levels that are no longer configured have drained and are removed.
    let last = Rules::small(1, Full::queue(10));
    flow_control.apply(now(), last.policy());
    flow_control.rebalance(now());
    let levels = flow_control.dispatcher().report(now());
    let names: Vec<&str> = levels.iter().map(|level| &*level.spec.name).collect();
    assert_eq!(names, ["catch-all", "exempt", "small"]);
    get(&gate, PODS).await.served().await;
}

#[tokio::test]
async fn requests_that_wait_in_a_removed_level_are_still_served() {
    let (upstream, mut held) = manual_upstream(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
    let first = get(&gate, PODS).await;
    let executing = soon(held.recv()).await.unwrap();
    let second = get(&gate, PODS).await;
    until(|| small(&gate) == (1, 1, 1)).await;
    let other = Rules::new().level("other", 1, Full::Reject);
    let other = other.schema("other", "other", &[]);
    gate.flow_control().apply(now(), other.policy());
    let third = get(&gate, "/api/v1/third").await;
    let in_other = soon(held.recv()).await.unwrap();
    assert_eq!(in_other.target, "/api/v1/third");
    assert_eq!(small(&gate), (1, 1, 1), "the level drains");
    executing.respond("");
    first.served().await;
    soon(held.recv()).await.unwrap().respond("");
    second.served().await;
    until(|| small(&gate) == (0, 0, 0)).await;
    in_other.respond("");
    third.served().await;
    gate.flow_control().rebalance(now());
    let levels = gate.flow_control().dispatcher().levels();
    assert!(levels.iter().all(|(name, _)| &**name != "small"));
}
