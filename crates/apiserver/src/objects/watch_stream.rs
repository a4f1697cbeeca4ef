//! A running watch: initial objects, changes and bookmarks, as a stream of bytes.
//!
//! The connection that sends the bytes polls it; there is no task and no queue. Changes are read from the
//! history of the store, which all watches share, and so is the JSON of every object: a thousand watches of
//! one kind encode a change once.
//!
//! Objects are decoded one by one, when their turn has come to be sent: a watch that nobody reads has none of them decoded. A
//! large one is decoded and encoded elsewhere ([`HeavyWork`]), and what is sent of its change is kept with it (`large_change`).

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};

use super::{
    heavy_work::HeavyWork, initial_objects::InitialObjects, large_change,
    object_writer::ObjectWriter, stored, watch_events::EventWriter,
};
use fairgate_apihttp::{
    list_parameters::ListParameters, negotiate::Representation, status_error::StatusError,
};
use fairgate_base::clock::Clock;
use fairgate_call::ResponseShare;
use fairgate_store::{FanOut, FollowedWatch, StoreEntry, StoreError, StoreEvent, Watch};

/// The interval of bookmarks while nothing changes.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long before the end the last bookmark is sent.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The approximate number of bytes sent at once, and of bytes of objects looked at in one turn.
const BATCH: usize = 64 << 10;

/// How a watch begins.
#[derive(Debug)]
pub(crate) enum WatchStart {
    /// With changes.
    Live {
        /// The changes.
        watch: Watch,
    },
    /// With the present objects.
    Initial {
        /// The objects that are still to be sent.
        objects: InitialObjects,
        /// Counts those that are sent.
        sent: Arc<AtomicU64>,
        /// The changes after that revision.
        watch: Watch,
    },
    /// With an error, which ends it.
    Failed(StatusError),
}

/// A running watch.
#[derive(Debug)]
pub struct WatchStream {
    events: Arc<EventWriter>,
    /// The present objects that were not looked at yet, until the last of them was.
    initial: Option<Box<InitialObjects>>,
    /// The changes that were not looked at yet.
    unsent: VecDeque<Arc<StoreEvent>>,
    /// Counts the present objects that were sent.
    initial_sent: Option<Arc<AtomicU64>>,
    /// The revision of the bookmark that ends the initial events, until it was sent.
    initial_end: Option<u64>,
    changes: Option<Changes>,
    failed: Option<StatusError>,
    duration: Duration,
    /// Set at the first poll, because the timers belong to the runtime that polls.
    times: Option<Times>,
    /// Whether an object was sent: the first table of a watch has the column definitions.
    head_sent: bool,
    /// Where large objects are decoded; `None`: here.
    heavy: Option<HeavyWork>,
    /// The room of the large event that was sent last. The connection has it in memory until it asks for the next one.
    sent: Option<ResponseShare>,
}

/// An event that a watch may have to send.
#[derive(Clone, Debug)]
enum UnsentEvent {
    /// An object that exists when the watch begins.
    Present(Arc<StoreEntry>),
    Change(Arc<StoreEvent>),
}

impl UnsentEvent {
    /// Whether it takes long to encode.
    fn is_large(&self) -> bool {
        match self {
            Self::Present(entry) => stored::is_large(entry),
            Self::Change(event) => large_change::is_large(event),
        }
    }

    /// How many bytes have to be looked at to encode it.
    fn length(&self) -> usize {
        match self {
            Self::Present(entry) => entry.length(),
            Self::Change(event) => event.bytes(),
        }
    }

    /// About how many bytes it has.
    fn encoded_length(&self) -> usize {
        match self {
            Self::Present(entry) => entry.length(),
            Self::Change(event) => {
                let entry = event.after.as_ref().or(event.before.as_ref());
                entry.map_or(0, |entry| entry.length())
            }
        }
    }

    /// Appends it, if the selectors match it, and returns whether they do. `head` adds the column definitions to a table.
    fn encode(
        &self,
        events: &EventWriter,
        head: bool,
        bytes: &mut BytesMut,
    ) -> Result<bool, StatusError> {
        match self {
            Self::Present(entry) => events.present(entry, head, bytes),
            Self::Change(event) => events.change(event, head, bytes),
        }
    }
}

/// Where the changes of a watch come from.
#[derive(Debug)]
enum Changes {
    /// It waits for those of the store itself.
    Own(Watch),
    /// The task of its thread tells it of them.
    Followed(FollowedWatch),
}

impl Changes {
    async fn next(&mut self) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        match self {
            Self::Own(watch) => watch.next().await,
            Self::Followed(watch) => watch.next().await,
        }
    }

    fn progress(&self) -> u64 {
        match self {
            Self::Own(watch) => watch.progress(),
            Self::Followed(watch) => watch.progress(),
        }
    }
}

/// The maximum duration of a watch, whatever the client requests.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);

/// When the next events of the timer are due.
#[derive(Debug)]
struct Times {
    end: Instant,
    bookmark: Instant,
    last_bookmark: Instant,
}

/// Why a waiting stream continues.
enum Wakeup {
    Events(Result<Vec<Arc<StoreEvent>>, StoreError>),
    Bookmark,
    End,
}

impl WatchStream {
    /// A watch that ends `duration` after it is polled first.
    pub(crate) fn new(
        writer: ObjectWriter,
        options: ListParameters,
        start: WatchStart,
        duration: Duration,
    ) -> Self {
        let mut stream = Self {
            events: Arc::new(EventWriter { writer, options }),
            initial: None,
            unsent: VecDeque::new(),
            initial_sent: None,
            initial_end: None,
            changes: None,
            failed: None,
            duration,
            times: None,
            head_sent: false,
            heavy: None,
            sent: None,
        };
        match start {
            WatchStart::Live { watch } => stream.changes = Some(Changes::Own(watch)),
            WatchStart::Initial {
                objects,
                sent,
                watch,
            } => {
                stream.initial_sent = Some(sent);
                // Only for clients that requested initial events and accept bookmarks.
                let options = &stream.events.options;
                let is_marked = options.initial_events == Some(true) && options.bookmarks;
                stream.initial_end = is_marked.then_some(objects.revision());
                stream.initial = Some(Box::new(objects));
                stream.changes = Some(Changes::Own(watch));
            }
            WatchStart::Failed(error) => stream.failed = Some(error),
        }
        stream
    }

    /// Waits for changes by way of `fan_out`, of the thread that polls the stream from now on.
    pub fn follow(&mut self, fan_out: &Arc<FanOut>) {
        self.changes = match self.changes.take() {
            Some(Changes::Own(watch)) => Some(Changes::Followed(fan_out.follow(watch))),
            others => others,
        };
    }

    /// Does what takes long elsewhere from now on.
    pub(crate) fn do_heavy_work_by(&mut self, heavy: HeavyWork) {
        self.heavy = Some(heavy);
    }

    /// The next bytes; `None` at the end. Cancel-safe.
    pub async fn next(&mut self, clock: &Clock) -> Option<Bytes> {
        self.sent = None;
        let times = self.times(clock);
        let (end, bookmark) = (times.end, times.bookmark.min(times.last_bookmark));
        if let Some(error) = self.failed.take() {
            return Some(self.fail(&error, BytesMut::new()));
        }
        // Also while there is something to be sent, because a client that reads slowly makes that last.
        if clock.instant(clock.now()) >= end {
            self.end();
            return None;
        }
        loop {
            if let Some(bytes) = self.unsent_bytes().await {
                return self.unless_list(bytes);
            }
            let changes = self.changes.as_mut()?;
            let wakeup = tokio::select! {
                biased;
                () = sleep_until(end) => Wakeup::End,
                events = changes.next() => Wakeup::Events(events),
                () = sleep_until(bookmark), if self.events.options.bookmarks => Wakeup::Bookmark,
            };
            match wakeup {
                Wakeup::End => {
                    self.end();
                    return None;
                }
                Wakeup::Bookmark => {
                    let revision = changes.progress();
                    self.schedule_bookmark();
                    let bytes = self.bookmark(revision, false);
                    return self.unless_list(bytes);
                }
                Wakeup::Events(Ok(events)) => self.unsent = events.into(),
                Wakeup::Events(Err(error)) => {
                    self.changes = None;
                    return Some(self.events.error(&lost(&error)));
                }
            }
        }
    }

    /// Returns `bytes`. If the client requested `PartialObjectMetadataList`, which no single object can be
    /// converted to, the stream ends instead, as in kube-apiserver.
    fn unless_list(&mut self, bytes: Bytes) -> Option<Bytes> {
        if !matches!(
            self.events.writer.output.form,
            Some(Representation::PartialList(_))
        ) {
            return Some(bytes);
        }
        self.end();
        None
    }

    /// Sends nothing more.
    fn end(&mut self) {
        self.initial = None;
        self.unsent = VecDeque::new();
        self.initial_end = None;
        self.changes = None;
    }

    /// The next event that is to be sent.
    fn next_unsent(&self) -> Result<Option<UnsentEvent>, StatusError> {
        if let Some(initial) = &self.initial
            && let Some(entry) = initial.first()?
        {
            return Ok(Some(UnsentEvent::Present(entry)));
        }
        Ok(self.unsent.front().cloned().map(UnsentEvent::Change))
    }

    /// Removes it.
    fn pop_unsent(&mut self, event: &UnsentEvent) {
        match (event, &self.initial) {
            (UnsentEvent::Present(_), Some(initial)) => initial.pop(),
            _ => drop(self.unsent.pop_front()),
        }
    }

    fn times(&mut self, clock: &Clock) -> &Times {
        let duration = self.duration.min(MAX_DURATION);
        self.times.get_or_insert_with(|| {
            let now = clock.instant(clock.now());
            let end = now + duration;
            Times {
                end,
                bookmark: now + BOOKMARKS,
                last_bookmark: end - LAST_BOOKMARK.min(duration),
            }
        })
    }

    /// Sets the time of the next bookmark after one was sent.
    fn schedule_bookmark(&mut self) {
        if let Some(times) = &mut self.times {
            if times.last_bookmark <= times.bookmark {
                // That was the last one.
                times.last_bookmark = times.end + BOOKMARKS;
                times.bookmark = times.end + BOOKMARKS;
            } else {
                times.bookmark += BOOKMARKS;
            }
        }
    }

    /// Some of the events that are to be sent; after the last of the initial ones, the bookmark that ends them.
    async fn unsent_bytes(&mut self) -> Option<Bytes> {
        let mut bytes = BytesMut::new();
        let mut looked_at = 0;
        loop {
            let event = match self.next_unsent() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return Some(self.fail(&error, bytes)),
            };
            let is_large = event.is_large();
            if (is_large || looked_at >= BATCH) && !bytes.is_empty() {
                // What was encoded must not be lost with this future while it waits.
                return Some(bytes.freeze());
            }
            let encoded = if is_large {
                // On the heap: a watch that waits for changes must not take more memory for what few of them ever do.
                Box::pin(self.encode_large(event.clone(), &mut bytes)).await
            } else {
                if looked_at >= BATCH {
                    // The selectors match few objects, if any.
                    looked_at = 0;
                    yield_now().await;
                }
                looked_at += event.length();
                event.encode(&self.events, !self.head_sent, &mut bytes)
            };
            self.pop_unsent(&event);
            match encoded {
                Ok(true) => self.note_sent(&event),
                Ok(false) => {}
                Err(error) => return Some(self.fail(&error, bytes)),
            }
            if bytes.len() >= BATCH {
                return Some(bytes.freeze());
            }
        }
        // There may have been many.
        self.initial = None;
        self.unsent = VecDeque::new();
        if let Some(revision) = self.initial_end.take() {
            bytes.extend_from_slice(&self.bookmark(revision, true));
        }
        (!bytes.is_empty()).then(|| bytes.freeze())
    }

    fn note_sent(&mut self, event: &UnsentEvent) {
        self.head_sent = true;
        if let (UnsentEvent::Present(_), Some(sent)) = (event, &self.initial_sent) {
            sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has a large event encoded and appended to `bytes`. Returns whether the selectors match it.
    async fn encode_large(
        &mut self,
        event: UnsentEvent,
        bytes: &mut BytesMut,
    ) -> Result<bool, StatusError> {
        let head = !self.head_sent;
        let Some(heavy) = &self.heavy else {
            return event.encode(&self.events, head, bytes);
        };
        let events = Arc::clone(&self.events);
        let working = heavy.run(event.encoded_length(), move || {
            let mut large = BytesMut::new();
            let is_event = event.encode(&events, head, &mut large);
            is_event.map(|is_event| (is_event, large))
        });
        let (encoded, share) = working.await?;
        let (is_event, large) = encoded?;
        if is_event {
            self.sent = Some(share);
            bytes.unsplit(large);
        }
        Ok(is_event)
    }

    /// The bytes before an error, and its event, with which the stream ends.
    fn fail(&mut self, error: &StatusError, mut bytes: BytesMut) -> Bytes {
        self.end();
        bytes.extend_from_slice(&self.events.error(error));
        bytes.freeze()
    }

    /// A bookmark.
    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let head = !std::mem::replace(&mut self.head_sent, true);
        self.events.bookmark(revision, initial_end, head)
    }
}

/// Maps an error of the store to the status that a running watch sends.
fn lost(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { requested, floor } => {
            StatusError::expired(format!("too old resource version: {requested} ({floor})"))
        }
        _ => StatusError::internal(error.to_string()),
    }
}

#[cfg(test)]
#[path = "watch_stream_tests.rs"]
mod tests;
