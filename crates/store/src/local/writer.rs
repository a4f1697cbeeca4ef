//! The thread that writes the file.
//!
//! It takes the queued writes, checks the precondition of each against the state at its turn, commits all
//! changes at once, applies them to the mirror, and replies. After a failed commit it closes the file and
//! opens it again to see whether the commit took place; the mirror continues to serve reads.
//!
//! Opening a file costs as much as reading all of it, so once the disk was full, no write is tried that would fail again:
//! until there is room, only those are written that make some, and essential ones, from the reserve (`disk`).

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use super::{
    batch::{Batch, Op, WriteRequest},
    disk::{Disk, ReserveUse},
    file::{Contents, StoreFile},
    settings::LocalSettings,
};
use crate::{entry::StoreEvent, error::StoreError, mirror::Mirror, types::StoreHealth};
use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// How many bytes of values a commit combines, in [pieces](Disk::piece): 8 MiB; it has at least one write.
const BATCH_PIECES: u64 = 4;
/// How often a file that could not be opened or written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many values of the maximum length must be deleted on a full disk before something may be added again at once.
const ENOUGH_FREED: u64 = 2;
/// How many writes a commit combines that may use the reserve.
const FRUGAL_WRITES: usize = 64;
/// After so many of them for which there is no room even alone, no larger one is tried.
const FRUGAL_FAILURES: usize = 2;

/// The state of the writer thread.
pub(super) struct WriterThread {
    disk: Arc<dyn Disk>,
    settings: LocalSettings,
    clock: Clock,
    mirror: Arc<Mirror>,
    /// `None` before it could be opened, and after a failure.
    file: Option<StoreFile>,
    /// Set while the disk is full.
    full: Option<FullDisk>,
}

/// The disk was full when something was added.
struct FullDisk {
    error: StoreError,
    /// When that was tried for the last time.
    tried: Time,
    /// The bytes of the values that were deleted since then.
    freed: u64,
    /// Set while the reserve has no room for what is essential.
    spent: Option<SpentReserve>,
}

/// An essential write found no room in the reserve.
struct SpentReserve {
    error: StoreError,
    tried: Time,
    /// What was [freed](FullDisk::freed) by then.
    freed: u64,
}

impl WriterThread {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        settings: LocalSettings,
        clock: Clock,
        mirror: Arc<Mirror>,
    ) -> Self {
        Self {
            disk,
            settings,
            clock,
            mirror,
            file: None,
            full: None,
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
        self.close();
    }

    pub(super) fn close(&mut self) {
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
    pub(super) fn probe(&mut self) {
        if self.file.is_none() {
            // A failure is reported in the health.
            drop(self.open());
            return;
        }
        // It is called once in every `RETRY`.
        if self.still_full(true).is_some() {
            return;
        }
        // A failure is reported in the health.
        let _ = self.prove_room();
    }

    pub(super) fn serve(&mut self, first: Op, inbox: &Receiver<Op>) {
        let mut bytes = first.request.bytes();
        let mut ops = vec![first];
        while (bytes as u64) < BATCH_PIECES * self.disk.piece()
            && let Ok(op) = inbox.try_recv()
        {
            bytes += op.request.bytes();
            ops.push(op);
        }
        // Room in the queue is free once the requests are answered.
        let (requests, rooms): (Vec<_>, Vec<_>) =
            ops.into_iter().map(|op| (op.request, op.room)).unzip();
        match self.open() {
            Ok(()) => self.carry_out(requests),
            Err(error) => refuse(requests, &error),
        }
        drop(rooms);
    }

    /// Carries out requests together, or those that a full disk allows.
    fn carry_out(&mut self, mut requests: Vec<WriteRequest>) {
        if self.full.is_some() {
            requests = self.carry_out_frugally(requests);
            if requests.is_empty() {
                return;
            }
            if let Some(error) = self.still_full(false) {
                refuse(requests, &error);
                return;
            }
        }
        let mut batch = Batch::default();
        for request in requests {
            batch.take(&self.mirror, request);
        }
        if let Err((requests, error)) = self.finish(batch) {
            let adding = self.carry_out_frugally(requests);
            refuse(adding, &error);
        }
    }

    /// Makes `batch` durable, then visible, then replies. On a full disk it returns the requests.
    fn finish(&mut self, mut batch: Batch) -> Result<(), (Vec<WriteRequest>, StoreError)> {
        if self.mirror.overflows(&self.settings.limits) {
            let now = self.clock.now();
            let due = self.mirror.due_floor(now, &self.settings.limits);
            batch.floor = batch.floor.max(due);
        }
        if batch.events.is_empty() && batch.floor <= self.mirror.floor() {
            batch.reply(&Ok(()));
            return Ok(());
        }
        // What makes room leaves the reserve, too, as long as it writes history: it may come without any.
        let outcome = self.on_file(&batch.events, |file| {
            file.commit(&batch.events, batch.floor, ReserveUse::Nothing)
        });
        if outcome.is_ok() {
            self.mirror.apply(self.clock.now(), &batch.events);
            self.mirror.raise_floor(batch.floor);
        }
        self.note_space(outcome.as_ref().err().cloned());
        match outcome {
            Err(error @ StoreError::Full { .. }) => Err((batch.into_requests(), error)),
            outcome => {
                batch.reply(&outcome);
                Ok(())
            }
        }
    }

    /// Carries out what makes room, and what is essential, with as little space as possible. Returns the other requests.
    fn carry_out_frugally(&mut self, requests: Vec<WriteRequest>) -> Vec<WriteRequest> {
        let (mut adding, mut together) = (Vec::new(), Vec::new());
        // As many bytes of values as fit in half of what one value may take.
        let most = usize::try_from(self.disk.piece() / 2).unwrap_or(usize::MAX);
        let mut bytes = 0;
        for request in requests {
            match request.adds(&self.mirror) {
                true if request.is_essential() => self.finish_essential(request),
                true => adding.push(request),
                false => {
                    let next = request.bytes();
                    if together.len() >= FRUGAL_WRITES || bytes + next > most {
                        self.finish_frugally(std::mem::take(&mut together));
                        bytes = 0;
                    }
                    bytes += next;
                    together.push(request);
                }
            }
        }
        self.finish_frugally(together);
        adding
    }

    /// Writes what is essential, unless the reserve had no room a moment ago, and nothing was deleted since then.
    fn finish_essential(&mut self, request: WriteRequest) {
        let now = self.clock.now();
        let piece = self.disk.piece();
        let would_fail = self.full.as_ref().and_then(|full| {
            let spent = full.spent.as_ref()?;
            let waits = now.since(spent.tried) < RETRY && full.freed < spent.freed + piece;
            waits.then(|| spent.error.clone())
        });
        if let Some(error) = would_fail {
            refuse(vec![request], &error);
            return;
        }
        let error = match self.try_frugally(vec![request], ReserveUse::Part) {
            Ok(()) => None,
            Err((requests, error)) => {
                refuse(requests, &error);
                Some(error)
            }
        };
        if let Some(full) = &mut self.full {
            full.spent = error.map(|error| SpentReserve {
                error,
                tried: now,
                freed: full.freed,
            });
        }
    }

    /// Writes what makes room. The file keeps no history of it; that in memory is as ever.
    ///
    /// What there is no room for together is tried one by one, the smallest first. Each failure reads the whole file again, so
    /// their number is bounded.
    fn finish_frugally(&mut self, requests: Vec<WriteRequest>) {
        let Err((mut requests, _)) = self.try_frugally(requests, ReserveUse::All) else {
            return;
        };
        requests.sort_by_key(WriteRequest::bytes);
        let mut failures = 0;
        let mut requests = requests.into_iter();
        while let Some(request) = requests.next() {
            if let Err((refused, error)) = self.try_frugally(vec![request], ReserveUse::All) {
                refuse(refused, &error);
                failures += 1;
                if failures == FRUGAL_FAILURES {
                    refuse(requests.collect(), &error);
                    return;
                }
            }
        }
    }

    /// Commits `requests` together and replies. If there is no room for them, it returns them.
    fn try_frugally(
        &mut self,
        requests: Vec<WriteRequest>,
        takes: ReserveUse,
    ) -> Result<(), (Vec<WriteRequest>, StoreError)> {
        let mut batch = Batch::default();
        for request in requests {
            batch.take(&self.mirror, request);
        }
        let outcome = if batch.is_empty() {
            Ok(())
        } else {
            self.on_file(&batch.events, |file| {
                file.commit_frugally(&batch.events, batch.floor, takes)
            })
        };
        match outcome {
            Ok(()) => {
                self.mirror.apply(self.clock.now(), &batch.events);
                self.mirror.raise_floor(batch.floor);
                if let Some(full) = &mut self.full {
                    full.freed = full.freed.saturating_add(batch.freed());
                }
            }
            Err(error @ StoreError::Full { .. }) => return Err((batch.into_requests(), error)),
            Err(_) => {}
        }
        batch.reply(&outcome);
        Ok(())
    }

    /// Commits `events` by `commit`. If that fails, the file is opened again.
    fn on_file(
        &mut self,
        events: &[Arc<StoreEvent>],
        commit: impl FnOnce(&StoreFile) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(file) = self.file.take() else {
            return Err(self.mirror.not_loaded());
        };
        let Err(error) = commit(&file) else {
            self.file = Some(file);
            if self.full.is_none() {
                self.mirror.set_health(StoreHealth::Ready);
            }
            return Ok(());
        };
        file.close();
        tracing::error!(%error, "a write to the store failed");
        self.recover(events, error)
    }

    /// Notes whether there was room for a commit that leaves the reserve.
    fn note_space(&mut self, failure: Option<StoreError>) {
        match failure {
            None => {
                self.full = None;
                self.mirror.set_health(StoreHealth::Ready);
            }
            Some(error @ StoreError::Full { .. }) => {
                self.full = Some(FullDisk {
                    error,
                    tried: self.clock.now(),
                    freed: 0,
                    spent: None,
                });
            }
            // Whether there is room is not known.
            Some(_) => {}
        }
    }

    /// The error of what adds something, while it would only fail again.
    fn still_full(&self, has_waited: bool) -> Option<StoreError> {
        let full = self.full.as_ref()?;
        let has_waited = has_waited || self.clock.now().since(full.tried) >= RETRY;
        let can_grow = || self.file.as_ref().is_some_and(StoreFile::can_grow);
        let may_try = full.freed >= ENOUGH_FREED * self.disk.piece() || (has_waited && can_grow());
        (!may_try).then(|| full.error.clone())
    }

    /// Opens the file again after a commit of `events` failed with `error`, to see whether it took place.
    fn recover(&mut self, events: &[Arc<StoreEvent>], error: StoreError) -> Result<(), StoreError> {
        let before = self.mirror.revision();
        let after = events.last().map_or(before, |event| event.revision);
        let (file, contents) = match StoreFile::open(&self.settings.path, &self.disk) {
            Ok(opened) => opened,
            Err(unopened) => {
                self.degrade(&unopened);
                return Err(uncertain(error));
            }
        };
        if !events.is_empty() && contents.revision == after {
            // The commit took place, but may not be durable. Another commit makes it so, or fails.
            return match file.commit(&[], contents.floor, ReserveUse::All) {
                Ok(()) => {
                    self.file = Some(file);
                    if self.full.is_none() {
                        self.mirror.set_health(StoreHealth::Ready);
                    }
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
    pub(super) fn open(&mut self) -> Result<(), StoreError> {
        if self.file.is_some() {
            return Ok(());
        }
        match StoreFile::open(&self.settings.path, &self.disk) {
            Ok((file, contents)) => self.adopt(file, contents)?,
            Err(error) => {
                self.degrade(&error);
                return Err(error);
            }
        }
        // A copy, or a file of an earlier fairgate, may have no free pages. If the disk is full now, that is no reason not to
        // open it.
        match self.prove_room() {
            // Another failure has closed it again.
            Err(error) if self.file.is_none() => Err(error),
            _ => Ok(()),
        }
    }

    /// Tries whether there is room for something more, and so leaves room for deletions in the file.
    ///
    /// Unlike a write of a client, it commits although it changes nothing.
    fn prove_room(&mut self) -> Result<(), StoreError> {
        let floor = self.mirror.floor();
        let proved = self.on_file(&[], |file| file.commit(&[], floor, ReserveUse::Nothing));
        self.note_space(proved.as_ref().err().cloned());
        proved
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

fn refuse(requests: Vec<WriteRequest>, error: &StoreError) {
    for request in requests {
        let error = error.clone();
        match request {
            WriteRequest::Write(write) => drop(write.reply.send(Err(error))),
            WriteRequest::Raise { reply, .. } => drop(reply.send(Err(error))),
        }
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
