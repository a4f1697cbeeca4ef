//! Writes to etcd: transactions that compare the revision of a key and check the marker.
//!
//! # When a write is repeated
//!
//! An attempt without a response may have taken place, and may still take place much later: in a member that was frozen, or
//! in the log of a leader that was replaced. So an attempt is repeated only after what makes sure that the write takes place
//! once, and a response says what has happened:
//!
//! - A member that refused to begin has written nothing: the write is repeated.
//! - A write that expects a revision of the key can take place once, however many attempts are on their way: each changes
//!   the revision, and no revision of a key comes back. It is repeated. If an attempt then finds another revision, an earlier
//!   one may have been the cause. The changes of the key since the beginning of the call tell, which the watch brings.
//! - A write that expects no entry could take place twice, if somebody deletes the entry in between. So it also compares the
//!   revision of the marker, the *fence*. After an attempt without a response, the marker is written again with the same
//!   value. From then on no earlier attempt can take place. Whether one has, the changes of the key tell; if not, the write
//!   is repeated with the new fence. Creations of others that have met the new fence have changed nothing, and are repeated.
//!
//! A change is taken for the one of this call if it replaces what the call expects by the bytes of the call. Another writer
//! of the same bytes is not told apart, nor does the difference show anywhere: the entry is what both want. A deletion has
//! no bytes. If the entry was deleted while an attempt had no response, it is not known by whom, and the call fails, as it
//! does when its time is over.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use etcd_client::{
    Compare, CompareOp, DeleteOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::{
    Shared,
    attempts::Attempts,
    failures::CallFailure,
    keys::{FORMAT, Keys},
    revision_of, unsigned,
};
use crate::{
    entry::{StoreEntry, StoreEvent},
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

/// A write in progress.
struct PendingWrite<'a> {
    key: &'a str,
    expected: Precondition,
    value: Option<Bytes>,
    /// The revision of the mirror at the beginning, and so less than that of the change.
    seen: u64,
}

impl PendingWrite<'_> {
    /// Whether a change of the key looks like that of this write.
    fn may_be(&self, change: &StoreEvent) -> bool {
        let after = change.after.as_ref().map(|after| after.bytes());
        self.expected.holds(change.before.as_ref()) && after == self.value
    }
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
        self.check_loaded()?;
        let write = PendingWrite {
            key,
            expected,
            value,
            seen: self.mirror.revision(),
        };
        let written = self.attempt(&write).await;
        // Deletions succeed in a full database.
        if write.value.is_some() || written.is_err() {
            self.note_write(written.as_ref().err());
        }
        written
    }

    /// Attempts a write until it is known what has become of it.
    async fn attempt(&self, write: &PendingWrite<'_>) -> Result<WriteOutcome, StoreError> {
        let mut attempts = self.link.attempts();
        let mut may_have_run = false;
        loop {
            let fence = self.fence.load(Ordering::Relaxed);
            let transaction = transaction(&self.keys, write, fence);
            let ended = attempts
                .once(|used| self.link.commit_at(used, &transaction))
                .await;
            match ended {
                Ok(ended) => {
                    let revision = self.not_before(write.seen, revision_of(ended.header())?)?;
                    if ended.succeeded() {
                        return self.done(write, &ended).await;
                    }
                    match self.lost(write, fence, &ended)? {
                        None => {}
                        Some(lost) if !may_have_run => return Ok(lost),
                        Some(lost) => {
                            let run = self.find_change(&mut attempts, write, revision).await?;
                            return Ok(run.unwrap_or(lost));
                        }
                    }
                }
                Err(CallFailure::Final(error)) => return Err(error),
                Err(CallFailure::NotRun(_)) => {}
                Err(CallFailure::Unfinished(_) | CallFailure::Disconnected(_)) => {
                    match write.expected {
                        Precondition::At(_) => may_have_run = true,
                        Precondition::Absent => {
                            let moved = self.move_fence(&mut attempts, fence).await?;
                            if let Some(run) = self.find_change(&mut attempts, write, moved).await?
                            {
                                return Ok(run);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Makes sure that no transaction with this fence takes place any more. Returns the revision since when.
    async fn move_fence(&self, attempts: &mut Attempts<'_>, fence: u64) -> Result<u64, StoreError> {
        let marker = self.keys.marker();
        let is_ours = Compare::value(marker.clone(), CompareOp::Equal, FORMAT);
        let is_here = Compare::mod_revision(marker.clone(), CompareOp::Equal, signed(fence));
        // It may run twice: the fence only has to move.
        let transaction = Txn::new()
            .when([is_here, is_ours])
            .and_then([TxnOp::put(marker.clone(), FORMAT, None)])
            .or_else([TxnOp::get(marker, None)]);
        loop {
            let moved = self.fence.load(Ordering::Relaxed);
            if moved > fence {
                return Ok(moved);
            }
            let ended = attempts
                .once(|used| self.link.commit_at(used, &transaction))
                .await;
            match ended {
                Ok(ended) if ended.succeeded() => {
                    self.note_fence(revision_of(ended.header())?);
                }
                Ok(ended) => {
                    let marker = found(&ended).next().flatten();
                    self.note_fence(unsigned(self.check_marker_of(marker)?.mod_revision())?);
                }
                Err(CallFailure::Final(error)) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Notes that the marker was written at a revision.
    pub(super) fn note_fence(&self, revision: u64) {
        self.fence.fetch_max(revision, Ordering::Relaxed);
    }

    /// The change of an earlier attempt, if it has taken place up to `until`.
    async fn find_change(
        &self,
        attempts: &mut Attempts<'_>,
        write: &PendingWrite<'_>,
        until: u64,
    ) -> Result<Option<WriteOutcome>, StoreError> {
        self.request_progress(until);
        attempts.within(self.mirror.wait_for(until)).await?;
        let Ok(changes) = self.mirror.changes(write.key, write.seen) else {
            return Err(StoreError::Unavailable(
                "etcd did not respond, and its changes since then are not known".to_owned(),
            ));
        };
        let mut changes = changes.iter();
        let change = changes.find(|change| write.may_be(change));
        match change {
            Some(change) if change.after.is_none() => Err(StoreError::Unavailable(
                "etcd did not respond, and the entry was deleted, by this call or another"
                    .to_owned(),
            )),
            change => Ok(change.map(|change| WriteOutcome::Done {
                revision: change.revision,
                before: change.before.clone(),
                after: change.after.clone(),
            })),
        }
    }

    /// Tries whether etcd stores anything: nobody may write for long, and an outage ends without a write, too.
    ///
    /// The transaction has a condition that never holds, so it changes nothing. etcd refuses it nevertheless while its alarm
    /// is on, and without permission to write: it looks at what a transaction would store before it compares.
    pub(super) async fn prove_room(&self) -> Result<(), StoreError> {
        self.check_loaded()?;
        let marker = self.keys.marker();
        let never = Compare::version(marker.clone(), CompareOp::Less, 0);
        let nothing = Txn::new()
            .when([never])
            .and_then([TxnOp::put(marker, FORMAT, None)]);
        let ended = self.link.commit(&nothing).await;
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
        write: &PendingWrite<'_>,
        ended: &TxnResponse,
    ) -> Result<WriteOutcome, StoreError> {
        let key = write.key;
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
            after: write
                .value
                .clone()
                .map(|value| Arc::new(StoreEntry::new(key.into(), value, revision))),
        })
    }

    /// The outcome of a transaction whose conditions did not hold; `None` if only the fence has moved.
    fn lost(
        &self,
        write: &PendingWrite<'_>,
        fence: u64,
        ended: &TxnResponse,
    ) -> Result<Option<WriteOutcome>, StoreError> {
        let mut found = found(ended);
        let (current, marker) = (found.next().flatten(), found.next().flatten());
        let moved = unsigned(self.check_marker_of(marker)?.mod_revision())?;
        self.note_fence(moved);
        if current.is_none() && write.expected == Precondition::Absent && moved != fence {
            return Ok(None);
        }
        let current = current.map(|current| self.entry(write.key, current));
        Ok(Some(WriteOutcome::Lost(current.transpose()?)))
    }

    /// Checks the marker that a transaction has found.
    fn check_marker_of(&self, marker: Option<KeyValue>) -> Result<KeyValue, StoreError> {
        match marker {
            Some(marker) if marker.value() == FORMAT.as_bytes() => Ok(marker),
            Some(marker) => Err(self.keys.foreign(Some(marker.value()))),
            None => Err(StoreError::Unavailable(
                "the keys of fairgate were removed from etcd; nothing was written".to_owned(),
            )),
        }
    }
}

/// What the reads of a transaction have found.
fn found(ended: &TxnResponse) -> impl Iterator<Item = Option<KeyValue>> {
    ended.op_responses().into_iter().map(|op| match op {
        TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
        _ => None,
    })
}

/// A revision as etcd has it. None of its revisions exceeds `i64::MAX`.
fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// Writes the key if the precondition holds and the marker has the present format; otherwise reads both.
fn transaction(keys: &Keys, write: &PendingWrite<'_>, fence: u64) -> Txn {
    let (key, marker) = (keys.full(write.key), keys.marker());
    // Not its existence: an older fairgate must not write to keys that a newer one has migrated.
    let mut conditions = vec![Compare::value(marker.clone(), CompareOp::Equal, FORMAT)];
    match write.expected {
        Precondition::Absent => conditions.extend([
            Compare::version(key.clone(), CompareOp::Equal, 0),
            Compare::mod_revision(marker.clone(), CompareOp::Equal, signed(fence)),
        ]),
        Precondition::At(revision) => {
            let revision = signed(revision);
            conditions.push(Compare::mod_revision(
                key.clone(),
                CompareOp::Equal,
                revision,
            ));
        }
    }
    let change = if let Some(value) = &write.value {
        let options = PutOptions::new().with_prev_key();
        TxnOp::put(key.clone(), &value[..], Some(options))
    } else {
        let options = DeleteOptions::new().with_prev_key();
        TxnOp::delete(key.clone(), Some(options))
    };
    Txn::new()
        .when(conditions)
        .and_then([change])
        .or_else([TxnOp::get(key, None), TxnOp::get(marker, None)])
}
