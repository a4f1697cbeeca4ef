//! Requests to the writer thread, and those that it commits together.
//!
//! The outcome of each is decided at its turn, on top of those before it in the batch.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::{
    entry::{StoreEntry, StoreEvent},
    error::StoreError,
    mirror::Mirror,
    types::{Precondition, WriteOutcome},
    usage::{PendingChanges, UsageChange, WriteBounds},
};

/// A queued request, and its permit of the queue.
pub(super) struct Op {
    pub(super) request: WriteRequest,
    pub(super) room: OwnedSemaphorePermit,
}

/// The channel for the result of a request.
pub(super) type ResultSender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A request to the writer thread.
pub(super) enum WriteRequest {
    /// See [`Store::write_within`](crate::Store::write_within).
    Write(PendingWrite),
    /// Drop the history up to `floor`.
    Raise { floor: u64, reply: ResultSender<()> },
}

/// A write whose outcome is not decided yet.
pub(super) struct PendingWrite {
    pub(super) key: Arc<str>,
    pub(super) expected: Precondition,
    pub(super) value: Option<Bytes>,
    pub(super) bounds: WriteBounds,
    pub(super) reply: ResultSender<WriteOutcome>,
}

impl WriteRequest {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Write(write) => write.value.as_ref().map_or(0, Bytes::len),
            Self::Raise { .. } => 0,
        }
    }

    /// Whether the request makes the store larger.
    pub(super) fn adds(&self, mirror: &Mirror) -> bool {
        let Self::Write(write) = self else {
            return false;
        };
        let before = mirror.get(&write.key).ok().flatten();
        let before = before.map_or(0, |before| before.length());
        write
            .value
            .as_ref()
            .is_some_and(|value| value.len() > before)
    }

    /// Whether the request may use the reserve although it adds something.
    pub(super) fn is_essential(&self) -> bool {
        matches!(self, Self::Write(write) if write.bounds.is_essential)
    }
}

/// Requests with a decided outcome that is not durable yet.
#[derive(Default)]
pub(super) struct Batch {
    /// The changes, in order.
    pub(super) events: Vec<Arc<StoreEvent>>,
    /// The entries of the changed keys after the batch.
    staged: BTreeMap<Arc<str>, Option<Arc<StoreEntry>>>,
    /// What the batch changes in the usage.
    changes: PendingChanges,
    /// The floor to raise that of the history to.
    pub(super) floor: u64,
    written: Vec<(PendingWrite, WriteOutcome)>,
    raised: Vec<(u64, ResultSender<()>)>,
}

impl Batch {
    /// Decides the outcome of `request` at its turn.
    pub(super) fn take(&mut self, mirror: &Mirror, request: WriteRequest) {
        match request {
            WriteRequest::Write(write) => match self.decide(mirror, &write) {
                Ok(written) => self.written.push((write, written)),
                Err(error) => drop(write.reply.send(Err(error))),
            },
            WriteRequest::Raise { floor, reply } => {
                self.floor = self.floor.max(floor);
                self.raised.push((floor, reply));
            }
        }
    }

    /// By how many bytes values become shorter.
    pub(super) fn freed(&self) -> u64 {
        let length = |entry: &Option<Arc<StoreEntry>>| entry.as_ref().map_or(0, |e| e.length());
        let freed = |event: &Arc<StoreEvent>| {
            let freed = length(&event.before).saturating_sub(length(&event.after));
            freed as u64
        };
        self.events.iter().map(freed).sum()
    }

    /// Replies to all requests.
    pub(super) fn reply(self, outcome: &Result<(), StoreError>) {
        // Writes that lost or changed nothing fail too: they were decided on top of changes of the batch.
        for (write, written) in self.written {
            // The caller may have stopped waiting.
            let _ = write.reply.send(outcome.clone().map(|()| written));
        }
        for (_, reply) in self.raised {
            let _ = reply.send(outcome.clone());
        }
    }

    /// The requests, of which none was carried out.
    pub(super) fn into_requests(self) -> Vec<WriteRequest> {
        let written = self.written.into_iter();
        let writes = written.map(|(write, _)| WriteRequest::Write(write));
        let raised = self.raised.into_iter();
        let raised = raised.map(|(floor, reply)| WriteRequest::Raise { floor, reply });
        writes.chain(raised).collect()
    }

    /// Whether nothing was changed or raised.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.raised.is_empty()
    }

    fn decide(
        &mut self,
        mirror: &Mirror,
        write: &PendingWrite,
    ) -> Result<WriteOutcome, StoreError> {
        let PendingWrite {
            key,
            expected,
            value,
            bounds,
            ..
        } = write;
        let before = match self.staged.get(key) {
            Some(staged) => staged.clone(),
            None => mirror.get(key)?,
        };
        if !expected.holds(before.as_ref()) {
            return Ok(WriteOutcome::Lost(before));
        }
        let newest = self.events.last().map(|event| event.revision);
        let newest = newest.unwrap_or_else(|| mirror.revision());
        if before.as_ref().map(|before| before.bytes()).as_ref() == value.as_ref() {
            return Ok(WriteOutcome::Done {
                revision: before.as_ref().map_or(newest, |before| before.revision),
                after: before.clone(),
                before,
            });
        }
        let length = value.as_ref().map(Bytes::len);
        let change = UsageChange::between(before.as_ref().map(|before| before.length()), length);
        for limit in &bounds.limits {
            let used = mirror.usage(&limit.prefix);
            let used = used.after(self.changes.below(&limit.prefix));
            limit.check(used, change).map_err(StoreError::OverLimit)?;
        }
        self.changes.add(key, change);
        let revision = newest + 1;
        // All versions share one copy of the key.
        let key = before
            .as_ref()
            .map_or_else(|| Arc::clone(key), |before| Arc::clone(&before.key));
        let value = value.clone();
        let after = value.map(|value| Arc::new(StoreEntry::new(key.clone(), value, revision)));
        self.staged.insert(key.clone(), after.clone());
        let event = StoreEvent::new(revision, key, before.clone(), after.clone());
        self.events.push(Arc::new(event));
        Ok(WriteOutcome::Done {
            revision,
            before,
            after,
        })
    }
}
