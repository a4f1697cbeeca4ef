//! Three members, of which one is killed, frozen or cut off: no call fails, and the history stays linear.
//!
//! Two stores write, read and watch the same keys while a fault begins and ends. How long a call takes is printed and
//! not evaluated.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::MutexGuard, task::JoinSet};

use super::{
    create,
    history::{Call, Change, Recorder, Request, Response, change, check, text},
    open, settings,
};
use crate::{Precondition, ReadRevision, Store, StoreEntry, StoreError, Watch, WriteOutcome};
use fairgate_base::clock::Clock;
use fairgate_testkit::{client::soon, etcd::EtcdServer, relay::TcpRelay};

/// The phases of a test: before the fault, its first second (in which there is a leader), the rest of it, and after it.
const BEFORE: usize = 0;
const FIRST_SECOND: usize = 1;
const DURING: usize = 2;
const AFTER: usize = 3;

/// An etcd of three members, reached through relays, with two stores.
pub(super) struct Cluster {
    members: Vec<EtcdServer>,
    pub(super) relays: Vec<TcpRelay>,
    pub(super) stores: Vec<Arc<dyn Store>>,
    /// Clusters take turns: an etcd that gets no CPU time for a second loses its leader.
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let turn = TURN.lock().await;
        let members = EtcdServer::cluster(3);
        let mut relays = Vec::new();
        for member in &members {
            member.client().await;
            let address = SocketAddr::from(([127, 0, 0, 1], member.ports.0));
            relays.push(TcpRelay::to(address).await);
        }
        let mut stores = Vec::new();
        for _ in 0..2 {
            let mut settings = settings(String::new(), "/fairgate");
            let urls = relays
                .iter()
                .map(|relay| format!("http://{}", relay.address));
            settings.endpoints = urls.collect();
            stores.push(open(settings).await);
        }
        Self {
            members,
            relays,
            stores,
            _turn: turn,
        }
    }

    /// Waits until another member than this one leads.
    async fn until_led_by_another(&self, than: usize) {
        soon(async {
            loop {
                for (index, member) in self.members.iter().enumerate() {
                    if index != than && Box::pin(member.is_leader()).await {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// The index of a member that leads, or of one that follows.
    async fn member(&self, leads: bool) -> usize {
        for (index, member) in self.members.iter().enumerate() {
            if member.is_leader().await == leads {
                return index;
            }
        }
        panic!("no such member")
    }
}

/// A client of a store, which records its calls.
#[derive(Clone)]
struct Client {
    store: Arc<dyn Store>,
    recorder: Arc<Recorder>,
    name: String,
}

impl Client {
    async fn get(&self, key: &str) -> Result<Option<Arc<StoreEntry>>, StoreError> {
        let (begun, clock) = (self.recorder.begin(), Clock::system());
        let from = clock.now();
        let found = self.store.get(key, ReadRevision::Newest).await;
        let response = match &found {
            Ok(entry) => Response::Found(entry.iter().map(shown).collect(), None),
            Err(error) => Response::Failed(error.to_string()),
        };
        let millis = clock.now().since(from).as_millis();
        self.recorder
            .end(&begun, key, Request::Get, response, millis);
        found
    }

    async fn list(&self) -> Result<(), StoreError> {
        let (begun, clock) = (self.recorder.begin(), Clock::system());
        let from = clock.now();
        let page = self.store.list("/a/", None, None, ReadRevision::Newest);
        let page = page.await;
        let response = match &page {
            Ok(page) => Response::Found(
                page.entries.iter().map(shown).collect(),
                Some(page.revision),
            ),
            Err(error) => Response::Failed(error.to_string()),
        };
        let millis = clock.now().since(from).as_millis();
        self.recorder
            .end(&begun, "/a/", Request::List, response, millis);
        page.map(drop)
    }

    async fn write(
        &self,
        key: &str,
        expected: Precondition,
        value: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        let (begun, clock) = (self.recorder.begin(), Clock::system());
        let from = clock.now();
        let bytes = value.clone().map(Bytes::from);
        let written = self.store.write(key, expected, bytes).await;
        let response = match &written {
            Ok(WriteOutcome::Done { revision, .. }) => Response::Written(*revision),
            Ok(WriteOutcome::Lost(_)) => Response::Lost,
            Err(error) => Response::Failed(error.to_string()),
        };
        let (request, millis) = (
            Request::Write(expected, value),
            clock.now().since(from).as_millis(),
        );
        self.recorder.end(&begun, key, request, response, millis);
        written
    }

    /// Creates, changes and deletes a key that others change too, after it has read it.
    async fn swap(&self, round: usize) -> Result<(), StoreError> {
        let key = format!("/a/shared{}", round % 3);
        let found = self.get(&key).await?;
        let expected = found.as_ref();
        let expected = expected.map_or(Precondition::Absent, |e| Precondition::At(e.revision));
        let value = (found.is_none() || !round.is_multiple_of(5))
            .then(|| format!("{} swaps {round}", self.name));
        self.write(&key, expected, value).await.map(drop)
    }

    /// Creates a key of its own, and deletes it.
    async fn come_and_go(&self, round: usize) -> Result<(), StoreError> {
        let key = format!("/a/own-{}", self.name);
        let found = self.get(&key).await?;
        if let Some(found) = found {
            let at = Precondition::At(found.revision);
            return self.write(&key, at, None).await.map(drop);
        }
        let value = Some(format!("{} creates {round}", self.name));
        let created = self.write(&key, Precondition::Absent, value).await?;
        if let WriteOutcome::Done { revision, .. } = created {
            let at = Precondition::At(revision);
            self.write(&key, at, None).await?;
        }
        Ok(())
    }

    async fn run(self, kind: usize) {
        for round in 0.. {
            // Errors are recorded.
            let _ = match kind {
                0 => self.list().await,
                1 | 2 => self.come_and_go(round).await,
                _ => self.swap(round).await,
            };
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn shown(entry: &Arc<StoreEntry>) -> (String, u64, String) {
    (entry.key.to_string(), entry.revision, text(&entry.bytes()))
}

/// Waits until so many calls that began in a phase have ended.
async fn ended(recorder: &Recorder, phase: usize, calls: usize) {
    soon(async {
        while recorder.ended(phase) < calls {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// All changes below `/a/` up to `until`.
async fn changes(mut watch: Watch, until: u64) -> Vec<Change> {
    let mut seen: Vec<Change> = Vec::new();
    while seen.last().is_none_or(|(_, revision, _)| *revision < until) {
        let events = soon(watch.next()).await.unwrap();
        seen.extend(events.iter().map(|event| change(event)));
    }
    // What a client that was stopped had begun may follow.
    seen.retain(|(_, revision, _)| *revision <= until);
    seen
}

/// Runs clients of both stores while a fault begins and ends; returns their calls, after checking the history.
async fn history_under(
    cluster: &mut Cluster,
    member: usize,
    begin: impl FnOnce(&mut Cluster),
    end: impl FnOnce(&mut Cluster),
) -> Vec<Call> {
    let recorder = Arc::new(Recorder::default());
    let start = cluster.stores[0].revision().await.unwrap();
    let watches = cluster.stores.iter().map(|store| store.watch("/a/", start));
    let watches: Vec<_> = watches.map(Result::unwrap).collect();
    let mut clients = JoinSet::new();
    for (number, store) in cluster.stores.iter().enumerate() {
        for kind in 0..6 {
            let client = Client {
                store: Arc::clone(store),
                recorder: Arc::clone(&recorder),
                name: format!("{number}-{kind}"),
            };
            clients.spawn(client.run(kind));
        }
    }
    let enter = |phase: usize| {
        let phase = u64::try_from(phase).unwrap();
        recorder.phase.store(phase, Ordering::SeqCst);
    };
    ended(&recorder, BEFORE, 200).await;
    enter(FIRST_SECOND);
    begin(cluster);
    cluster.until_led_by_another(member).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    enter(DURING);
    // Long enough for what gives up after some seconds.
    tokio::time::sleep(Duration::from_secs(6)).await;
    ended(&recorder, DURING, 200).await;
    enter(AFTER);
    end(cluster);
    ended(&recorder, AFTER, 200).await;
    clients.shutdown().await;

    let last = create(&*cluster.stores[1], "/a/last", "last").await;
    let mut seen = Vec::new();
    for watch in watches {
        seen.push(changes(watch, last).await);
    }
    let differs = seen[0]
        .iter()
        .zip(&seen[1])
        .find(|(one, other)| one != other);
    assert_eq!(differs, None, "the watches differ");
    assert_eq!(seen[0].len(), seen[1].len());
    let calls = recorder.calls();
    check(&seen[0], &calls);
    calls
}

/// How many calls failed that began in a phase. Prints that, and how long the others took.
fn failed(fault: &str, calls: &[Call], phase: usize) -> usize {
    let calls: Vec<_> = calls.iter().filter(|call| call.phase == phase).collect();
    let mut whys = std::collections::BTreeMap::new();
    for call in &calls {
        if let Response::Failed(why) = &call.response {
            *whys.entry(why).or_insert(0) += 1;
        }
    }
    let failed = whys.values().sum();
    let slowest = calls.iter().map(|call| call.millis).max().unwrap_or(0);
    let name = ["before", "first second", "during", "after"][phase];
    println!(
        "{fault}, {name}: {failed} of {} calls failed, the slowest took {slowest} ms {whys:?}",
        calls.len()
    );
    failed
}

/// Checks that no call failed that began later than a second after the fault, or after the election that it caused.
fn none_failed(fault: &str, calls: &[Call]) {
    let failed = [BEFORE, FIRST_SECOND, DURING, AFTER].map(|phase| failed(fault, calls, phase));
    assert_eq!((failed[BEFORE], failed[DURING], failed[AFTER]), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_follower_is_dead_no_call_fails() {
    let mut cluster = Cluster::start().await;
    let follower = cluster.member(false).await;
    let kill = |cluster: &mut Cluster| cluster.members[follower].stop();
    let restart = |cluster: &mut Cluster| cluster.members[follower].restart();
    let calls = history_under(&mut cluster, follower, kill, restart).await;
    none_failed("dead follower", &calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_follower_is_frozen_no_call_fails() {
    let mut cluster = Cluster::start().await;
    let follower = cluster.member(false).await;
    let freeze = |cluster: &mut Cluster| cluster.members[follower].freeze();
    let thaw = |cluster: &mut Cluster| cluster.members[follower].thaw();
    let calls = history_under(&mut cluster, follower, freeze, thaw).await;
    none_failed("frozen follower", &calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_member_is_cut_off_no_call_fails() {
    let mut cluster = Cluster::start().await;
    let follower = cluster.member(false).await;
    let cut = |cluster: &mut Cluster| cluster.relays[follower].cut();
    let mend = |cluster: &mut Cluster| cluster.relays[follower].mend();
    let calls = history_under(&mut cluster, follower, cut, mend).await;
    none_failed("cut member", &calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_leader_was_killed_no_call_fails() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.member(true).await;
    let kill = |cluster: &mut Cluster| cluster.members[leader].stop();
    let restart = |cluster: &mut Cluster| cluster.members[leader].restart();
    let calls = history_under(&mut cluster, leader, kill, restart).await;
    none_failed("dead leader", &calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_leader_was_frozen_no_call_fails() {
    let mut cluster = Cluster::start().await;
    let leader = cluster.member(true).await;
    let freeze = |cluster: &mut Cluster| cluster.members[leader].freeze();
    let thaw = |cluster: &mut Cluster| cluster.members[leader].thaw();
    let calls = history_under(&mut cluster, leader, freeze, thaw).await;
    none_failed("frozen leader", &calls);
}
