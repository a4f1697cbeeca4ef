//! The thread that writes the file.
//!
//! It takes the queued writes, checks the precondition of each against the state at its turn, commits all
//! changes at once, applies them to the mirror, and replies. After a failed commit it closes the file and
//! opens it again to see whether the commit took place; the mirror continues to serve reads.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    file::{Contents, StoreFile},
    settings::LocalSettings,
};
use crate::{
    entry::{StoreEntry, StoreEvent},
    error::StoreError,
    mirror::Mirror,
    types::{Precondition, StoreHealth, WriteOutcome},
    usage::{PendingChanges, UsageChange, WriteBounds},
};
use fairgate_base::clock::Clock;

/// How many bytes of values a commit combines; it has at least one write.
const BATCH_BYTES: usize = 8 << 20;
/// How often a file that could not be opened or written is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A queued request, and its permit of the queue.
pub(super) struct Op {
    pub(super) request: WriteRequest,
    pub(super) room: OwnedSemaphorePermit,
}

/// The channel for the result of a request.
type ResultSender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A request to the writer thread.
pub(super) enum WriteRequest {
    /// See [`Store::write_within`](crate::Store::write_within).
    Write {
        key: Arc<str>,
        expected: Precondition,
        value: Option<Bytes>,
        bounds: WriteBounds,
        reply: ResultSender<WriteOutcome>,
    },
    /// Drop the history up to `floor`.
    Raise { floor: u64, reply: ResultSender<()> },
}

impl WriteRequest {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { value, .. } => value.as_ref().map_or(0, Bytes::len),
            Self::Raise { .. } => 0,
        }
    }
}

/// The state of the writer thread.
pub(super) struct WriterThread {
    settings: LocalSettings,
    clock: Clock,
    mirror: Arc<Mirror>,
    /// `None` before it could be opened, and after a failure.
    file: Option<StoreFile>,
}

/// Requests with a decided outcome that is not durable yet.
#[derive(Default)]
struct Batch {
    events: Vec<Arc<StoreEvent>>,
    /// The entries of the changed keys after the batch.
    staged: BTreeMap<Arc<str>, Option<Arc<StoreEntry>>>,
    /// What the batch changes in the usage.
    changes: PendingChanges,
    floor: u64,
    written: Vec<(ResultSender<WriteOutcome>, WriteOutcome)>,
    raised: Vec<ResultSender<()>>,
}

impl WriterThread {
    pub(super) fn new(settings: LocalSettings, clock: Clock, mirror: Arc<Mirror>) -> Self {
        Self {
            settings,
            clock,
            mirror,
            file: None,
        }
    }

    /// Serves `inbox` until all senders are dropped. `on_open` receives the result of opening the file; if
    /// it is set and opening fails, the thread ends.
    pub(super) fn run(
        &mut self,
        inbox: &Receiver<Op>,
        on_open: Option<SyncSender<Result<(), StoreError>>>,
    ) {
        let opened = self.open();
        if let Some(on_open) = on_open {
            let failed = opened.is_err();
            let _ = on_open.send(opened);
            if failed {
                return;
            }
        }
        loop {
            match self.receive(inbox) {
                Ok(first) => self.serve(first, inbox),
                Err(RecvTimeoutError::Timeout) => self.probe(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(file) = self.file.take() {
            file.close();
        }
    }

    fn receive(&self, inbox: &Receiver<Op>) -> Result<Op, RecvTimeoutError> {
        if self.file.is_some() && self.mirror.health() == StoreHealth::Ready {
            return Ok(inbox.recv()?);
        }
        inbox.recv_timeout(RETRY)
    }

    /// Checks whether a failure has passed. Needed because a store that is not ready may get no requests.
    fn probe(&mut self) {
        let Some(file) = self.file.take() else {
            // A failure is reported in the health.
            drop(self.open());
            return;
        };
        match file.commit(&[], self.mirror.floor()) {
            Ok(()) => {
                self.file = Some(file);
                self.mirror.set_health(StoreHealth::Ready);
            }
            Err(error) => {
                file.close();
                self.degrade(&error);
            }
        }
    }

    fn serve(&mut self, first: Op, inbox: &Receiver<Op>) {
        let mut bytes = first.request.bytes();
        let mut ops = vec![first];
        while bytes < BATCH_BYTES
            && let Ok(op) = inbox.try_recv()
        {
            bytes += op.request.bytes();
            ops.push(op);
        }
        let mut batch = Batch::default();
        let mut rooms = Vec::with_capacity(ops.len());
        let open = self.open();
        for op in ops {
            rooms.push(op.room);
            match &open {
                Ok(()) => batch.take(&self.mirror, op.request),
                Err(error) => refuse(op.request, error),
            }
        }
        self.finish(batch);
    }

    /// Makes `batch` durable, then visible, then replies.
    fn finish(&mut self, mut batch: Batch) {
        if self.mirror.overflows(&self.settings.limits) {
            let now = self.clock.now();
            let due = self.mirror.due_floor(now, &self.settings.limits);
            batch.floor = batch.floor.max(due);
        }
        let outcome = self.commit(&batch.events, batch.floor);
        if outcome.is_ok() {
            self.mirror.apply(self.clock.now(), &batch.events);
            self.mirror.raise_floor(batch.floor);
        }
        // Writes that lost or changed nothing fail too: they were decided on top of changes of the batch.
        for (reply, written) in batch.written {
            // The caller may have stopped waiting.
            let _ = reply.send(outcome.clone().map(|()| written));
        }
        for reply in batch.raised {
            let _ = reply.send(outcome.clone());
        }
    }

    fn commit(&mut self, events: &[Arc<StoreEvent>], floor: u64) -> Result<(), StoreError> {
        if events.is_empty() && floor <= self.mirror.floor() {
            return Ok(());
        }
        let Some(file) = self.file.take() else {
            return Err(self.mirror.not_loaded());
        };
        let Err(error) = file.commit(events, floor) else {
            self.file = Some(file);
            self.mirror.set_health(StoreHealth::Ready);
            return Ok(());
        };
        file.close();
        tracing::error!(%error, "a write to the store failed");
        self.recover(events, error)
    }

    /// Opens the file again after a commit of `events` failed with `error`, to see whether it took place.
    fn recover(&mut self, events: &[Arc<StoreEvent>], error: StoreError) -> Result<(), StoreError> {
        let before = self.mirror.revision();
        let after = events.last().map_or(before, |event| event.revision);
        let (file, contents) = match StoreFile::open(&self.settings.path) {
            Ok(opened) => opened,
            Err(unopened) => {
                self.degrade(&unopened);
                return Err(uncertain(error));
            }
        };
        if !events.is_empty() && contents.revision == after {
            // The commit took place, but may not be durable. Another commit makes it so, or fails.
            return match file.commit(&[], contents.floor) {
                Ok(()) => {
                    self.file = Some(file);
                    self.mirror.set_health(StoreHealth::Ready);
                    Ok(())
                }
                Err(again) => {
                    file.close();
                    self.degrade(&again);
                    Err(uncertain(error))
                }
            };
        }
        if contents.revision == before {
            self.file = Some(file);
            self.mirror.set_health(degraded(&error));
            return Err(error);
        }
        file.close();
        let went_back = StoreError::WentBack {
            seen: before,
            found: contents.revision,
        };
        self.degrade(&went_back);
        Err(went_back)
    }

    /// Opens the file if it is not open.
    fn open(&mut self) -> Result<(), StoreError> {
        if self.file.is_some() {
            return Ok(());
        }
        match StoreFile::open(&self.settings.path) {
            Ok((file, contents)) => self.adopt(file, contents),
            Err(error) => {
                self.degrade(&error);
                Err(error)
            }
        }
    }

    /// Loads the contents of the file into the mirror. Fails if they are older than those served before.
    fn adopt(&mut self, file: StoreFile, contents: Contents) -> Result<(), StoreError> {
        let seen = self.mirror.revision();
        let found = contents.revision;
        if found < seen {
            file.close();
            let error = StoreError::WentBack { seen, found };
            self.degrade(&error);
            return Err(error);
        }
        let now = self.clock.now();
        if seen == 0 || contents.floor > seen {
            let Contents {
                entries,
                events,
                floor,
                revision,
            } = contents;
            self.mirror.load(now, entries, events, floor, revision);
        } else {
            let missed = contents.events.partition_point(|e| e.revision <= seen);
            self.mirror.apply(now, &contents.events[missed..]);
            self.mirror.raise_floor(contents.floor);
        }
        self.file = Some(file);
        self.mirror.set_health(StoreHealth::Ready);
        Ok(())
    }

    fn degrade(&self, error: &StoreError) {
        let health = degraded(error);
        if self.mirror.health() != health {
            tracing::error!(%error, "the store is not available");
            self.mirror.set_health(health);
        }
    }
}

impl Batch {
    /// Decides the outcome of `request` at its turn.
    fn take(&mut self, mirror: &Mirror, request: WriteRequest) {
        match request {
            WriteRequest::Write {
                key,
                expected,
                value,
                bounds,
                reply,
            } => match self.decide(mirror, key, expected, value, &bounds) {
                Ok(written) => self.written.push((reply, written)),
                Err(error) => drop(reply.send(Err(error))),
            },
            WriteRequest::Raise { floor, reply } => {
                self.floor = self.floor.max(floor);
                self.raised.push(reply);
            }
        }
    }

    fn decide(
        &mut self,
        mirror: &Mirror,
        key: Arc<str>,
        expected: Precondition,
        value: Option<Bytes>,
        bounds: &WriteBounds,
    ) -> Result<WriteOutcome, StoreError> {
        let before = match self.staged.get(&key) {
            Some(staged) => staged.clone(),
            None => mirror.get(&key)?,
        };
        if !expected.holds(before.as_ref()) {
            return Ok(WriteOutcome::Lost(before));
        }
        let newest = self.events.last().map(|event| event.revision);
        let newest = newest.unwrap_or_else(|| mirror.revision());
        if before.as_ref().map(|before| before.bytes()) == value {
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
        self.changes.add(&key, change);
        let revision = newest + 1;
        // All versions share one copy of the key.
        let key = before
            .as_ref()
            .map_or(key, |before| Arc::clone(&before.key));
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

fn refuse(request: WriteRequest, error: &StoreError) {
    let error = error.clone();
    match request {
        WriteRequest::Write { reply, .. } => drop(reply.send(Err(error))),
        WriteRequest::Raise { reply, .. } => drop(reply.send(Err(error))),
    }
}

fn degraded(error: &StoreError) -> StoreHealth {
    StoreHealth::Degraded(error.to_string().into())
}

/// Converts `error` for a write that may have taken place: `Full` would say that it has not.
fn uncertain(error: StoreError) -> StoreError {
    match error {
        StoreError::Full { place } => StoreError::Unavailable(format!(
            "{place} is full, and whether the write took place is not known; make room there"
        )),
        error => error,
    }
}
