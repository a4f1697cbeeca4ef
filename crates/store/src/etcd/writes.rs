//! Writes to etcd: transactions that compare the revision of a key and check the marker.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::{
    Shared,
    keys::{FORMAT, Keys},
    link, revision_of,
};
use crate::{
    entry::StoreEntry,
    error::StoreError,
    types::{Precondition, WriteOutcome},
    usage::{UsageChange, WriteBounds},
};
use fairgate_core::sync::lock;

/// How long an acknowledged write waits for the mirror to contain it.
const MIRROR_TIMEOUT: Duration = Duration::from_secs(2);

/// A change that counts as made while it is written.
pub(super) struct PendingChange<'a> {
    shared: &'a Shared,
    key: &'a str,
    change: UsageChange,
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        lock(&self.shared.pending).add(self.key, self.change.reversed());
    }
}

impl Shared {
    /// Checks the limits of a write, and counts what it adds as used until the result is dropped.
    pub(super) fn begin_change<'a>(
        &'a self,
        key: &'a str,
        value: Option<&Bytes>,
        bounds: &WriteBounds,
    ) -> Result<PendingChange<'a>, StoreError> {
        let before = self.mirror.get(key)?;
        let before = before.as_ref().map(|before| before.length());
        let change = UsageChange::between(before, value.map(Bytes::len));
        let mut pending = lock(&self.pending);
        for limit in &bounds.limits {
            let used = self.mirror.usage(&limit.prefix);
            let used = used.after(pending.below(&limit.prefix));
            limit.check(used, change).map_err(StoreError::OverLimit)?;
        }
        let change = change.growth();
        pending.add(key, change);
        Ok(PendingChange {
            shared: self,
            key,
            change,
        })
    }

    /// Writes or deletes an object, unless that would change nothing.
    pub(super) async fn write(
        &self,
        key: &str,
        expected: Precondition,
        value: Option<Bytes>,
    ) -> Result<WriteOutcome, StoreError> {
        if let Some(same) = self.unchanged(key, expected, value.as_ref()).await? {
            return Ok(same);
        }
        let is_degraded = self.loaded()?;
        let seen = self.mirror.revision();
        let mut kv = self.link.kv().await?;
        let transaction = transaction(&self.keys, key, expected, value.as_ref());
        let ended = link::call(is_degraded, kv.txn(transaction)).await;
        // Deletions succeed in a full database.
        if value.is_some() || ended.is_err() {
            self.note_write(ended.as_ref().err());
        }
        let ended = ended?;
        self.not_before(seen, revision_of(ended.header())?)?;
        if ended.succeeded() {
            self.done(key, value, &ended).await
        } else {
            self.lost(key, &ended)
        }
    }

    /// Tries whether etcd stores anything: nobody may write for long, and an outage ends without a write, too.
    ///
    /// The transaction has a condition that never holds, so it changes nothing. etcd refuses it nevertheless while its alarm
    /// is on, and without permission to write: it looks at what a transaction would store before it compares.
    pub(super) async fn prove_room(&self) -> Result<(), StoreError> {
        let is_degraded = self.loaded()?;
        let marker = self.keys.marker();
        let never = Compare::version(marker.clone(), CompareOp::Less, 0);
        let nothing = Txn::new()
            .when([never])
            .and_then([TxnOp::put(marker, FORMAT, None)]);
        let mut kv = self.link.kv().await?;
        let ended = link::call(is_degraded, kv.txn(nothing)).await;
        self.note_write(ended.as_ref().err());
        ended.map(drop)
    }

    /// Notes whether etcd stores something.
    fn note_write(&self, failure: Option<&StoreError>) {
        match failure {
            None => {
                if self.write_error.swap(None).is_some() {
                    tracing::info!("etcd stores objects again");
                }
            }
            Some(error @ (StoreError::DatabaseFull | StoreError::Denied(_))) => {
                let error = Arc::new(error.clone());
                if self.write_error.swap(Some(Arc::clone(&error))).is_none() {
                    tracing::error!(%error, "etcd stores nothing");
                }
            }
            // What concerns reads too, or this write alone.
            Some(_) => {}
        }
    }

    /// The outcome of a write that would change nothing; `None` if it may change something.
    ///
    /// Compares with the mirror first. Only if the bytes are equal, the entry is read from etcd to check
    /// that it is still the same.
    async fn unchanged(
        &self,
        key: &str,
        expected: Precondition,
        value: Option<&Bytes>,
    ) -> Result<Option<WriteOutcome>, StoreError> {
        let same = |found: Option<&Arc<StoreEntry>>| {
            expected.holds(found) && found.map(|found| found.bytes()).as_ref() == value
        };
        let is_nothing = value.is_none() && expected == Precondition::Absent;
        if !is_nothing && !same(self.mirror.get(key)?.as_ref()) {
            return Ok(None);
        }
        let newest = self.get(key, None).await?;
        if !same(newest.as_ref()) {
            return Ok(Some(WriteOutcome::Lost(newest)));
        }
        Ok(Some(WriteOutcome::Done {
            revision: match &newest {
                Some(entry) => entry.revision,
                None => self.mirror.revision(),
            },
            before: newest.clone(),
            after: newest,
        }))
    }

    /// The outcome of a transaction that succeeded.
    async fn done(
        &self,
        key: &str,
        value: Option<Bytes>,
        ended: &TxnResponse,
    ) -> Result<WriteOutcome, StoreError> {
        let revision = revision_of(ended.header())?;
        // The write is durable, so a timeout does not matter: the feed may be down.
        let mirrored = self.mirror.wait_for(revision);
        let _ = tokio::time::timeout(MIRROR_TIMEOUT, mirrored).await;
        if let Some(event) = self.mirror.event(key, revision) {
            return Ok(WriteOutcome::Done {
                revision,
                before: event.before.clone(),
                after: event.after.clone(),
            });
        }
        let before = ended.op_responses().into_iter().find_map(|op| match op {
            TxnOpResponse::Put(mut put) => put.take_prev_key(),
            TxnOpResponse::Delete(mut deleted) => deleted.take_prev_kvs().pop(),
            _ => None,
        });
        Ok(WriteOutcome::Done {
            revision,
            before: before.map(|before| self.entry(key, before)).transpose()?,
            after: value.map(|value| Arc::new(StoreEntry::new(key.into(), value, revision))),
        })
    }

    /// The outcome of a transaction whose preconditions did not hold.
    fn lost(&self, key: &str, ended: &TxnResponse) -> Result<WriteOutcome, StoreError> {
        let mut found = ended.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
            _ => None,
        });
        let (current, marker) = (found.next().flatten(), found.next().flatten());
        match marker {
            Some(marker) if marker.value() != FORMAT.as_bytes() => {
                Err(self.keys.foreign(Some(marker.value())))
            }
            Some(_) => {
                let current = current.map(|current| self.entry(key, current));
                Ok(WriteOutcome::Lost(current.transpose()?))
            }
            None => Err(StoreError::Unavailable(
                "the keys of fairgate were removed from etcd; nothing was written".to_owned(),
            )),
        }
    }
}

/// Writes `key` if the precondition holds and the marker has the present format; otherwise reads both.
fn transaction(keys: &Keys, key: &str, expected: Precondition, value: Option<&Bytes>) -> Txn {
    let (key, marker) = (keys.full(key), keys.marker());
    let is_expected = match expected {
        Precondition::Absent => Compare::version(key.clone(), CompareOp::Equal, 0),
        Precondition::At(revision) => {
            // No etcd revision exceeds `i64::MAX`.
            let revision = i64::try_from(revision).unwrap_or(i64::MAX);
            Compare::mod_revision(key.clone(), CompareOp::Equal, revision)
        }
    };
    // Not its existence: an older fairgate must not write to keys that a newer one has migrated.
    let is_ours = Compare::value(marker.clone(), CompareOp::Equal, FORMAT);
    let change = if let Some(value) = value {
        let options = PutOptions::new().with_prev_key();
        TxnOp::put(key.clone(), &value[..], Some(options))
    } else {
        let options = DeleteOptions::new().with_prev_key();
        TxnOp::delete(key.clone(), Some(options))
    };
    Txn::new()
        .when([is_expected, is_ours])
        .and_then([change])
        .or_else([TxnOp::get(key, None), TxnOp::get(marker, None)])
}
