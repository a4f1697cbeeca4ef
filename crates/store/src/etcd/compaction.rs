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
    sync::{Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};

use super::{Shared, revision_of, unsigned};
use crate::error::StoreError;
use fairgate_core::time::Time;

/// The state of the election, of one replica.
pub(super) struct Turn {
    interval: Duration,
    noted: Mutex<Option<Noted>>,
}

#[derive(Clone, Copy)]
struct Noted {
    at: Time,
    /// The etcd version of the shared key: the number of its writes.
    version: i64,
    revision: u64,
}

impl Turn {
    pub(super) fn every(interval: Duration) -> Self {
        Self {
            interval,
            noted: Mutex::new(None),
        }
    }

    /// Compacts if the interval has passed and this replica wins.
    pub(super) async fn take(&self, shared: &Shared, now: Time) -> Result<(), StoreError> {
        let noted = *self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.is_some_and(|noted| now.since(noted.at) < self.interval) {
            return Ok(());
        }
        shared.check_usable()?;
        let key = shared.keys.compaction();
        // The first round never compacts: there is no recorded revision yet.
        let version = noted.map_or(0, |noted| noted.version);
        let transaction = Txn::new()
            .when([Compare::version(key.clone(), CompareOp::Equal, version)])
            .and_then([TxnOp::put(key.clone(), "", None)])
            .or_else([TxnOp::get(key, None)]);
        // If it runs twice, nobody wins: the next round compacts.
        let ended = shared.link.commit(&transaction).await?;
        let found = ended.op_responses().into_iter().find_map(|op| match op {
            TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
            _ => None,
        });
        let version = match found {
            None if ended.succeeded() => version + 1,
            found => found.map_or(0, |found| found.version()),
        };
        let note = Noted {
            at: now,
            version,
            revision: revision_of(ended.header())?,
        };
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
        match noted {
            Some(noted) if ended.succeeded() => compact(shared, noted.revision).await,
            _ => Ok(()),
        }
    }
}

async fn compact(shared: &Shared, revision: u64) -> Result<(), StoreError> {
    let signed = i64::try_from(revision)
        .map_err(|_| StoreError::Failed(format!("revision {revision} is out of range for etcd")))?;
    match shared.link.compact(signed).await {
        // Another client, such as an operator, has compacted to a later revision.
        Ok(()) | Err(StoreError::Compacted { .. }) => {}
        Err(error) => return Err(error),
    }
    tracing::info!(revision, "compacted etcd");
    debug_assert_eq!(unsigned(signed).ok(), Some(revision));
    Ok(())
}
