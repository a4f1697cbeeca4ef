//! Policies that change while requests run and wait.

use std::collections::BTreeMap;

use fairgate_core::apf::Semantics;
use tokio::task::JoinSet;

use super::*;
use crate::{
    client::body,
    random::{self, Below as _, Random},
    rules::{Full, Rules},
};

const USERS: [&str; 5] = ["ann", "ben", "cat", "dan", "eve"];

/// Up to four levels of the names `a` to `d`, and a level for each user, or none.
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
        // One of a level that is not there takes no part.
        let level = ["a", "b", "c", "d"][random.below(4) as usize];
        rules = rules.schema(&format!("{user}-to-{level}"), level, &[user]);
    }
    let semantics = [Semantics::Improved, Semantics::Compatible];
    rules.semantics(semantics[random.below(2) as usize])
}

/// Asks one time after the other until told to stop; counts the answers by status.
async fn client(gate: Arc<Gate>, number: usize, stop: Time) -> BTreeMap<u16, u32> {
    let mut answers = BTreeMap::new();
    let mut client = connect(&gate, number.is_multiple_of(2)).await;
    while now() < stop {
        let method = [Method::GET, Method::POST][number % 2].clone();
        let request = of(&client, USERS[number % USERS.len()], method, PODS);
        let response = soon(client.send(request)).await.unwrap();
        *answers.entry(response.status().as_u16()).or_default() += 1;
        body(response).await;
    }
    answers
}

#[tokio::test]
async fn two_hundred_changes_under_load_lose_no_request_and_no_seat() {
    let mut random = random::seeded();
    let Stubborn { upstream, work } =
        Stubborn::start(Speaks::Http2, |number| ms([1, 3, 8, 20][number % 4]));
    let gate = Arc::new(Gate::governed(&upstream, &rules(&mut random)));
    let stop = now().plus(ms(1500));
    let mut clients = JoinSet::new();
    for number in 0..20 {
        clients.spawn(client(Arc::clone(&gate), number, stop));
    }
    for change in 0..200 {
        gate.flow_control()
            .apply(now(), rules(&mut random).policy());
        if change % 10 == 0 {
            gate.flow_control().rebalance(now());
        }
        tokio::time::sleep(ms(6)).await;
    }
    let mut answers = BTreeMap::<u16, u32>::new();
    while let Some(client) = clients.join_next().await {
        for (status, count) in client.unwrap() {
            *answers.entry(status).or_default() += count;
        }
    }
    // Every request was answered once: by the upstream, which saw each once, or by a refusal.
    let served = answers.remove(&200).unwrap_or(0);
    assert_eq!(served as usize, work.done());
    assert_eq!(upstream.seen().len(), work.done());
    assert!(served > 100, "{served}");
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
    // What is no longer wanted has drained, and goes.
    let last = Rules::small(1, Full::queue(10));
    flow_control.apply(now(), last.policy());
    flow_control.rebalance(now());
    let levels = flow_control.dispatcher().report(now());
    let names: Vec<&str> = levels.iter().map(|level| &*level.spec.name).collect();
    assert_eq!(names, ["catch-all", "exempt", "small"]);
    get(&gate, PODS).await.served().await;
}

#[tokio::test]
async fn what_waits_in_a_level_that_goes_is_served_all_the_same() {
    let (upstream, mut asked) = by_hand(Speaks::Http1);
    let gate = Gate::governed(&upstream, &Rules::small(1, Full::queue(10)));
    let first = get(&gate, PODS).await;
    let executing = soon(asked.recv()).await.unwrap();
    let second = get(&gate, PODS).await;
    until(|| small(&gate) == (1, 1, 1)).await;
    let other = Rules::new().level("other", 1, Full::Reject);
    let other = other.schema("other", "other", &[]);
    gate.flow_control().apply(now(), other.policy());
    let third = get(&gate, "/api/v1/third").await;
    let in_other = soon(asked.recv()).await.unwrap();
    assert_eq!(in_other.target, "/api/v1/third");
    assert_eq!(small(&gate), (1, 1, 1), "it drains");
    executing.say("");
    first.served().await;
    soon(asked.recv()).await.unwrap().say("");
    second.served().await;
    until(|| small(&gate) == (0, 0, 0)).await;
    in_other.say("");
    third.served().await;
    gate.flow_control().rebalance(now());
    let levels = gate.flow_control().dispatcher().levels();
    assert!(levels.iter().all(|(name, _)| &**name != "small"));
}
