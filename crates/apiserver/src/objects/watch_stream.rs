//! A running watch: initial objects, changes and bookmarks, as a stream of bytes.
//!
//! The connection that sends the bytes polls it; there is no task and no queue. Changes are read from the
//! history of the store, which all watches share, and so is the JSON of every object: a thousand watches of
//! one kind encode a change once.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::object_writer::ObjectWriter;
use fairgate_apihttp::{
    list_parameters::ListParameters,
    negotiate::{Media, Representation},
    status_error::StatusError,
};
use fairgate_base::clock::Clock;
use fairgate_objects::{
    codec, metadata,
    object::Object,
    schema::{canonical, meta_v1::STATUS},
};
use fairgate_store::{FanOut, FollowedWatch, StoreEntry, StoreError, StoreEvent, Watch};

/// The interval of bookmarks while nothing changes.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long before the end the last bookmark is sent.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// The approximate number of bytes sent at once.
const BATCH: usize = 64 << 10;
/// The annotation of the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// How a watch begins.
#[derive(Debug)]
pub enum WatchStart {
    /// With changes.
    Live {
        /// The changes.
        watch: Watch,
    },
    /// With the present objects.
    Initial {
        /// The objects that are still to be sent.
        objects: VecDeque<Arc<Object>>,
        /// The revision at which the objects were listed.
        revision: u64,
        /// The changes after that revision.
        watch: Watch,
    },
    /// With an error, which ends it.
    Failed(StatusError),
}

/// A running watch.
#[derive(Debug)]
pub struct WatchStream {
    writer: ObjectWriter,
    options: ListParameters,
    initial: VecDeque<Arc<Object>>,
    /// The revision of the bookmark that ends the initial events, until it was sent.
    initial_end: Option<u64>,
    changes: Option<Changes>,
    failed: Option<StatusError>,
    duration: Duration,
    /// Set at the first poll, because the timers belong to the runtime that polls.
    times: Option<Times>,
    /// Whether an object was sent: the first table of a watch has the column definitions.
    head_sent: bool,
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

/// The type of a watch event.
#[derive(Clone, Copy)]
enum Change {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

impl WatchStream {
    /// A watch that ends `duration` after it is polled first.
    pub fn new(
        writer: ObjectWriter,
        options: ListParameters,
        start: WatchStart,
        duration: Duration,
    ) -> Self {
        let mut stream = Self {
            writer,
            options,
            initial: VecDeque::new(),
            initial_end: None,
            changes: None,
            failed: None,
            duration,
            times: None,
            head_sent: false,
        };
        match start {
            WatchStart::Live { watch } => stream.changes = Some(Changes::Own(watch)),
            WatchStart::Initial {
                objects,
                revision,
                watch,
            } => {
                stream.initial = objects;
                // Only for clients that requested initial events and accept bookmarks.
                stream.initial_end = (stream.options.initial_events == Some(true)
                    && stream.options.bookmarks)
                    .then_some(revision);
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

    /// The next bytes; `None` at the end. Cancel-safe.
    pub async fn next(&mut self, clock: &Clock) -> Option<Bytes> {
        let times = self.times(clock);
        let (end, bookmark) = (times.end, times.bookmark.min(times.last_bookmark));
        if let Some(error) = self.failed.take() {
            self.changes = None;
            self.initial.clear();
            return Some(self.error(&error));
        }
        if let Some(bytes) = self.initial_bytes() {
            return self.unless_list(bytes);
        }
        loop {
            let changes = self.changes.as_mut()?;
            let wakeup = tokio::select! {
                biased;
                () = sleep_until(end) => Wakeup::End,
                events = changes.next() => Wakeup::Events(events),
                () = sleep_until(bookmark), if self.options.bookmarks => Wakeup::Bookmark,
            };
            match wakeup {
                Wakeup::End => {
                    self.changes = None;
                    return None;
                }
                Wakeup::Bookmark => {
                    let revision = changes.progress();
                    self.schedule_bookmark();
                    let bytes = self.bookmark(revision, false);
                    return self.unless_list(bytes);
                }
                Wakeup::Events(Ok(events)) => {
                    let bytes = self.events(&events);
                    if !bytes.is_empty() {
                        return self.unless_list(bytes);
                    }
                }
                Wakeup::Events(Err(error)) => {
                    self.changes = None;
                    return Some(self.error(&lost(&error)));
                }
            }
        }
    }

    /// Returns `bytes`. If the client requested `PartialObjectMetadataList`, which no single object can be
    /// converted to, the stream ends instead, as in kube-apiserver.
    fn unless_list(&mut self, bytes: Bytes) -> Option<Bytes> {
        if !matches!(
            self.writer.output.form,
            Some(Representation::PartialList(_))
        ) {
            return Some(bytes);
        }
        self.initial.clear();
        self.initial_end = None;
        self.changes = None;
        None
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

    /// Some of the initial objects; after the last, the bookmark that ends them.
    fn initial_bytes(&mut self) -> Option<Bytes> {
        let mut bytes = BytesMut::new();
        while let Some(object) = self.initial.pop_front() {
            let body = self.body(&object);
            self.frame(Change::Added, &body, &mut bytes);
            if bytes.len() >= BATCH {
                return Some(bytes.freeze());
            }
        }
        if let Some(revision) = self.initial_end.take() {
            bytes.extend_from_slice(&self.bookmark(revision, true));
        }
        (!bytes.is_empty()).then(|| bytes.freeze())
    }

    /// The changes that the selectors match, encoded.
    fn events(&mut self, events: &[Arc<StoreEvent>]) -> Bytes {
        let mut bytes = BytesMut::new();
        for event in events {
            match self.change(event) {
                Ok(Some((change, object))) => {
                    let body = self.body(&object);
                    self.frame(change, &body, &mut bytes);
                }
                Ok(None) => {}
                Err(error) => {
                    self.changes = None;
                    bytes.extend_from_slice(&self.error(&error));
                    break;
                }
            }
        }
        bytes.freeze()
    }

    /// The type and object of the event that a change becomes; `None` if the selectors match the object
    /// neither before nor after.
    fn change(&self, event: &StoreEvent) -> Result<Option<(Change, Arc<Object>)>, StatusError> {
        let read = |entry: &Option<Arc<StoreEntry>>| -> Result<Option<Arc<Object>>, StatusError> {
            let Some(entry) = entry else { return Ok(None) };
            let object = super::stored::object(self.writer.kind, entry)?;
            let selected = self.options.select(object.stored());
            Ok(selected.then_some(object))
        };
        let (before, after) = (read(&event.before)?, read(&event.after)?);
        Ok(match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some((Change::Added, after)),
            (Some(_), Some(after)) => Some((Change::Modified, after)),
            (Some(before), None) => Some((Change::Deleted, self.last_state(event, &before))),
        })
    }

    /// The last state of a deleted object, with the revision of its deletion.
    fn last_state(&self, event: &StoreEvent, before: &Object) -> Arc<Object> {
        let kind = self.writer.kind;
        event.memo.get_or_make(|| {
            let mut value = before.stored().clone();
            let revision = event.revision.to_string();
            metadata::set(&mut value, "resourceVersion", json!(revision));
            Object::plain(kind, value)
        })
    }

    /// An object, encoded.
    fn body(&mut self, object: &Object) -> Bytes {
        let head = !std::mem::replace(&mut self.head_sent, true);
        if self.writer.output.media == Media::Json && self.writer.output.form.is_none() {
            return object.json(self.writer.version);
        }
        self.writer.streamed(object, head)
    }

    /// Appends one event.
    fn frame(&self, change: Change, body: &[u8], bytes: &mut BytesMut) {
        if self.writer.output.media == Media::Protobuf {
            bytes.extend_from_slice(&codec::envelope::watch_frame(change.name(), body));
            return;
        }
        bytes.extend_from_slice(b"{\"type\":\"");
        bytes.extend_from_slice(change.name().as_bytes());
        bytes.extend_from_slice(b"\",\"object\":");
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"}\n");
    }

    /// A bookmark: an object with a resource version only.
    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let kind = self.writer.kind;
        let mut value = json!({"metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            value["metadata"]["annotations"] = json!({INITIAL_END: "true"});
        }
        // Fields that are always present are there with their zero values.
        let mut value =
            canonical::decode(kind.stored().shape, &value).map_or(value, |decoded| decoded.value);
        value["kind"] = json!(kind.kind);
        value["apiVersion"] = json!(kind.api_version(kind.stored().name));
        let body = self.body(&Object::new(kind, value));
        let mut bytes = BytesMut::new();
        self.frame(Change::Bookmark, &body, &mut bytes);
        bytes.freeze()
    }

    /// The event of an error. It is the last one.
    fn error(&self, error: &StatusError) -> Bytes {
        let status = error.status();
        let body = if self.writer.output.media == Media::Protobuf {
            codec::envelope::seal("v1", "Status", &codec::protobuf::encode(&STATUS, &status))
        } else {
            let mut json = codec::json::encode(&STATUS, &status, false);
            json.pop();
            json
        };
        let mut bytes = BytesMut::new();
        self.frame(Change::Error, &body, &mut bytes);
        bytes.freeze()
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
