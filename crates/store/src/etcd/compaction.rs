//! Compacting the cluster, by one replica at a time.
//!
//! etcd keeps every revision until somebody compacts it. Where nobody else does, replicas take turns:
//! each notes how the turn key stands and the revision of that moment; an interval later it tries to
//! change the key from exactly that. Who succeeds compacts to the revision noted, so between one and
//! two intervals of history remain, however many replicas there are.
//!
//! This drops the history of everything in the cluster, which is why it is off unless asked for.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};

use super::{Shared, link, revision_of, unsigned};
use crate::error::StoreError;
use fairgate_core::time::Time;

/// When it was our turn last, or somebody else's.
pub(super) struct Turn {
    interval: Duration,
    noted: Mutex<Option<Noted>>,
}

#[derive(Clone, Copy)]
struct Noted {
    at: Time,
    /// How often the turn key had been written.
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

    /// Compacts, if it is time and our turn.
    pub(super) async fn take(&self, shared: &Shared, now: Time) -> Result<(), StoreError> {
        let noted = *self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.is_some_and(|noted| now.since(noted.at) < self.interval) {
            return Ok(());
        }
        let away = shared.away()?;
        let mut kv = shared.link.kv().await?;
        let key = shared.keys.compaction();
        // At first nothing is compacted, whoever succeeds: there is no revision to compact to.
        let version = noted.map_or(0, |noted| noted.version);
        let transaction = Txn::new()
            .when([Compare::version(key.clone(), CompareOp::Equal, version)])
            .and_then([TxnOp::put(key.clone(), "", None)])
            .or_else([TxnOp::get(key, None)]);
        let ended = link::answer(away, kv.txn(transaction)).await?;
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
            Some(noted) if ended.succeeded() => compact(shared, away, noted.revision).await,
            _ => Ok(()),
        }
    }
}

async fn compact(shared: &Shared, away: bool, revision: u64) -> Result<(), StoreError> {
    let signed = i64::try_from(revision)
        .map_err(|_| StoreError::Failed(format!("etcd cannot count to {revision}")))?;
    let mut kv = shared.link.kv().await?;
    match link::answer(away, kv.compact(signed, None)).await {
        // Somebody else has, further: an operator.
        Ok(_) | Err(StoreError::Compacted { .. }) => {}
        Err(error) => return Err(error),
    }
    tracing::info!(revision, "compacted etcd");
    debug_assert_eq!(unsigned(signed).ok(), Some(revision));
    Ok(())
}
