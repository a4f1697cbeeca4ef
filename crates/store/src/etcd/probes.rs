//! Probes the members of etcd, and logs when one goes away and when it comes back.
//!
//! A probe counts the keys of one name, linearizably: a member that has lost the others cannot answer it. So etcd has
//! four small reads per member and second from every gateway.

use std::{pin::Pin, sync::Arc, time::Duration};

use etcd_client::{Error, GetOptions, ResponseHeader};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    failures::{CallFailure, evaluate},
    link::Link,
    members::Tick,
    revision_of,
};
use crate::error::StoreError;

/// The length of a tick of [`Members`](super::members::Members).
const TICK: Duration = Duration::from_millis(250);

/// What a probe has found.
enum Found {
    /// The member has answered; the term of its leader.
    Answer(u64),
    /// The member has no leader, or is busy.
    NoAnswer,
    /// The connection has failed.
    Failure(String),
}

/// What the members are probed with.
pub(super) struct Prober {
    pub(super) link: Arc<Link>,
    /// The key that is counted.
    pub(super) key: String,
    /// The highest revision that is known: a member below it has another history than the others.
    pub(super) newest_known: Box<dyn Fn() -> u64 + Send + Sync>,
}

type Probe<'a> = Pin<Box<dyn Future<Output = Found> + Send + 'a>>;

/// Probes one member, forever.
pub(super) async fn run(prober: Arc<Prober>, member: usize) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probe: Option<Probe<'_>> = None;
    loop {
        let found = async {
            match &mut probe {
                Some(probe) => probe.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            found = found => {
                probe = None;
                prober.note(member, found);
            }
            _ = ticks.tick() => {
                if prober.tick(member) == Tick::Reconnect {
                    prober.link.reconnect(member);
                    probe = None;
                }
                if probe.is_none() {
                    probe = Some(Box::pin(prober.probe(member)));
                }
            }
        }
    }
}

impl Prober {
    async fn probe(&self, member: usize) -> Found {
        self.link.members.send_if_modified(|members| {
            members.sent(member);
            false
        });
        let seen = (self.newest_known)();
        match self.ask(member).await {
            Ok((found, _)) if found < seen => {
                // It has another history than the other members.
                Found::Failure(StoreError::WentBack { seen, found }.to_string())
            }
            Ok((_, term)) => Found::Answer(term),
            Err(error) => match evaluate(&error) {
                CallFailure::Final(_) => Found::Answer(0),
                CallFailure::NotRun(_) | CallFailure::Unfinished(_) => Found::NoAnswer,
                CallFailure::Disconnected(StoreError::Unavailable(why)) => Found::Failure(why),
                CallFailure::Disconnected(error) => Found::Failure(error.to_string()),
            },
        }
    }

    /// Reads from one member; returns its revision, and the term of its leader.
    async fn ask(&self, member: usize) -> Result<(u64, u64), Error> {
        let count = GetOptions::new().with_count_only();
        let mut kv = self.link.kv(member).await?;
        let found = kv.get(self.key.clone(), Some(count)).await?;
        let revision = revision_of(found.header()).unwrap_or(0);
        let term = found.header().map_or(0, ResponseHeader::raft_term);
        Ok((revision, term))
    }

    fn note(&self, member: usize, found: Found) {
        let url = self.link.url(member);
        let members = &self.link.members;
        match found {
            Found::Answer(term) => {
                let mut was_away = false;
                members.send_modify(|members| was_away = members.answered(member, term));
                if was_away {
                    tracing::info!(member = url, "a member of etcd answers again");
                }
            }
            Found::Failure(why) => {
                let mut is_new = false;
                members.send_modify(|members| is_new = members.failed(member, &why));
                if is_new {
                    tracing::warn!(member = url, %why, "a member of etcd is away");
                }
            }
            Found::NoAnswer => {}
        }
    }

    fn tick(&self, member: usize) -> Tick {
        let (mut tick, mut is_new) = (Tick::Wait, false);
        self.link.members.send_if_modified(|members| {
            (tick, is_new) = members.tick(member);
            is_new || tick == Tick::Reconnect
        });
        if is_new {
            let (member, why) = (self.link.url(member), "it does not answer");
            tracing::warn!(member, why, "a member of etcd is away");
        }
        tick
    }
}
