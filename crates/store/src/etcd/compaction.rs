//! Compacts the etcd cluster, from one replica at a time.
//!
//! etcd keeps every revision until a client compacts it. If no other client does, the replicas elect one:
//! each records the version of a shared key and the current revision, and tries to update the key from
//! that version an interval later. The replica that succeeds compacts to its recorded revision. So
//! between one and two intervals of history remain, for any number of replicas. kube-apiserver uses the
//! same scheme.
//!
//! This drops the history of the whole cluster, so it is off by default.

use std::{
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};

use super::{Shared, link::Link, revision_of, unsigned};
use crate::error::StoreError;
use fairgate_core::time::Time;

/// One replica's part in it, by the calls of the store's maintenance.
pub(super) struct Turn {
    interval: Duration,
    began: Mutex<Option<Time>>,
    election: CompactionElection,
}

/// The state of the election, of one replica.
#[derive(Default)]
pub(super) struct CompactionElection {
    noted: Mutex<Option<Noted>>,
}

#[derive(Clone, Copy)]
struct Noted {
    /// The etcd version of the shared key: the number of its writes.
    version: i64,
    revision: u64,
}

impl Turn {
    pub(super) fn every(interval: Duration) -> Self {
        Self {
            interval,
            began: Mutex::new(None),
            election: CompactionElection::default(),
        }
    }

    /// Compacts if the interval has passed and this replica wins. The mirror need not have been loaded.
    pub(super) async fn take(&self, shared: &Shared, now: Time) -> Result<(), StoreError> {
        let began = *lock(&self.began);
        if began.is_some_and(|began| now.since(began) < self.interval) {
            return Ok(());
        }
        shared.check_usable()?;
        // The keys may belong to somebody else until they are claimed.
        if shared.fence.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let noted = self
            .election
            .note(&shared.link, shared.keys.compaction())
            .await?;
        *lock(&self.began) = Some(now);
        compact(&shared.link, noted).await
    }
}

impl CompactionElection {
    /// One round, an interval after the last one that did not fail: tries to update the shared key, and notes its version and the
    /// revision for the next round. Returns the revision to [compact] to if this replica has won.
    pub(super) async fn note(&self, link: &Link, key: String) -> Result<Option<u64>, StoreError> {
        let noted = *lock(&self.noted);
        // The first round never compacts: there is no recorded revision yet.
        let version = noted.map_or(0, |noted| noted.version);
        let transaction = Txn::new()
            .when([Compare::version(key.clone(), CompareOp::Equal, version)])
            .and_then([TxnOp::put(key.clone(), "", None)])
            .or_else([TxnOp::get(key, None)]);
        // If it runs twice, nobody wins: the next round compacts.
        let ended = link.commit(&transaction).await?;
        let found = ended.op_responses().into_iter().find_map(|op| match op {
            TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
            _ => None,
        });
        let version = match found {
            None if ended.succeeded() => version + 1,
            found => found.map_or(0, |found| found.version()),
        };
        let revision = revision_of(ended.header())?;
        *lock(&self.noted) = Some(Noted { version, revision });
        Ok(noted
            .filter(|_| ended.succeeded())
            .map(|noted| noted.revision))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compacts to the revision, if there is one.
pub(super) async fn compact(link: &Link, revision: Option<u64>) -> Result<(), StoreError> {
    let Some(revision) = revision else {
        return Ok(());
    };
    let signed = i64::try_from(revision)
        .map_err(|_| StoreError::Failed(format!("revision {revision} is out of range for etcd")))?;
    match link.compact(signed).await {
        // Another client, such as an operator, has compacted to a later revision.
        Ok(()) | Err(StoreError::Compacted { .. }) => {}
        Err(error) => return Err(error),
    }
    tracing::info!(revision, "compacted etcd");
    debug_assert_eq!(unsigned(signed).ok(), Some(revision));
    Ok(())
}
