//! A watch under way: what was there, what changes, and signs of life, as a stream of bytes.
//!
//! It runs where its bytes are sent and is moved on by that alone: no task, no queue. The changes
//! themselves lie in the history that all watches share, and so does the JSON of every object, so a
//! thousand watches of one kind encode a change once.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::{
    list_parameters::ListParameters,
    negotiate::{Media, Representation},
    object_writer::ObjectWriter,
    status_error::StatusError,
};
use fairgate_base::clock::Clock;
use fairgate_objects::{
    codec, metadata,
    object::Object,
    schema::{canonical, meta::STATUS},
};
use fairgate_store::{StoreEntry, StoreError, StoreEvent, Watch};

/// How often progress is told while nothing changes.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long before the end it is told once more.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// About how many bytes are handed out at once.
const BATCH: usize = 64 << 10;
/// The annotation of the bookmark that ends what was there.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// With what a watch begins.
#[derive(Debug)]
pub enum WatchStart {
    /// With changes.
    Live {
        /// Where they come from.
        watch: Watch,
    },
    /// With what there is.
    Initial {
        /// All of it.
        objects: VecDeque<Arc<Object>>,
        /// Of which revision.
        revision: u64,
        /// The changes after that.
        watch: Watch,
    },
    /// Not at all.
    Failed(StatusError),
}

/// A watch under way.
#[derive(Debug)]
pub struct WatchStream {
    writer: ObjectWriter,
    options: ListParameters,
    initial: VecDeque<Arc<Object>>,
    /// The revision that ends the initial events, until that was told.
    initial_end: Option<u64>,
    watch: Option<Watch>,
    failed: Option<StatusError>,
    lasts: Duration,
    /// Set when it is polled first: its clock is that of whoever sends it.
    times: Option<Times>,
    head_sent: bool,
}

/// No watch lasts longer, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// When what is due.
#[derive(Debug)]
struct Times {
    end: Instant,
    bookmark: Instant,
    last_bookmark: Instant,
}

/// What comes next in a stream that waits.
enum Next {
    Events(Result<Vec<Arc<StoreEvent>>, StoreError>),
    Bookmark,
    End,
}

/// How an object takes part in a change.
#[derive(Clone, Copy)]
enum Change {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl Change {
    fn word(self) -> &'static str {
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
    /// A watch that lasts so long from when it is first asked for bytes.
    pub fn new(
        writer: ObjectWriter,
        options: ListParameters,
        opening: WatchStart,
        lasts: Duration,
    ) -> Self {
        let mut watching = Self {
            writer,
            options,
            initial: VecDeque::new(),
            initial_end: None,
            watch: None,
            failed: None,
            lasts,
            times: None,
            head_sent: false,
        };
        match opening {
            WatchStart::Live { watch } => watching.watch = Some(watch),
            WatchStart::Initial {
                objects,
                revision,
                watch,
            } => {
                watching.initial = objects;
                // Told only to who asked for initial events and takes bookmarks.
                watching.initial_end = (watching.options.initial_events == Some(true)
                    && watching.options.bookmarks)
                    .then_some(revision);
                watching.watch = Some(watch);
            }
            WatchStart::Failed(fault) => watching.failed = Some(fault),
        }
        watching
    }

    /// The next bytes; `None` at the end. Dropping the wait loses nothing.
    pub async fn next(&mut self, clock: &Clock) -> Option<Bytes> {
        let times = self.times(clock);
        let (end, bookmark) = (times.end, times.bookmark.min(times.last_bookmark));
        if let Some(fault) = self.failed.take() {
            self.watch = None;
            self.initial.clear();
            return Some(self.error(&fault));
        }
        if let Some(bytes) = self.opening() {
            return self.told(bytes);
        }
        loop {
            let watch = self.watch.as_mut()?;
            let next = tokio::select! {
                biased;
                () = sleep_until(end) => Next::End,
                events = watch.next() => Next::Events(events),
                () = sleep_until(bookmark), if self.options.bookmarks => Next::Bookmark,
            };
            match next {
                Next::End => {
                    self.watch = None;
                    return None;
                }
                Next::Bookmark => {
                    let revision = watch.progress();
                    self.bookmark_told();
                    let bytes = self.bookmark(revision, false);
                    return self.told(bytes);
                }
                Next::Events(Ok(events)) => {
                    let bytes = self.events(&events);
                    if !bytes.is_empty() {
                        return self.told(bytes);
                    }
                }
                Next::Events(Err(error)) => {
                    self.watch = None;
                    return Some(self.error(&lost(&error)));
                }
            }
        }
    }

    /// What is sent of `bytes`; `None` where an object was asked for as a list, which it is not: the
    /// stream ends then.
    fn told(&mut self, bytes: Bytes) -> Option<Bytes> {
        if !matches!(
            self.writer.output.form,
            Some(Representation::PartialList(_))
        ) {
            return Some(bytes);
        }
        self.initial.clear();
        self.initial_end = None;
        self.watch = None;
        None
    }

    fn times(&mut self, clock: &Clock) -> &Times {
        let lasts = self.lasts.min(LONGEST);
        self.times.get_or_insert_with(|| {
            let now = clock.instant(clock.now());
            let end = now + lasts;
            Times {
                end,
                bookmark: now + BOOKMARKS,
                last_bookmark: end - LAST_BOOKMARK.min(lasts),
            }
        })
    }

    fn bookmark_told(&mut self) {
        if let Some(times) = &mut self.times {
            if times.last_bookmark <= times.bookmark {
                // Nothing is due after the last one but the end.
                times.last_bookmark = times.end + BOOKMARKS;
                times.bookmark = times.end + BOOKMARKS;
            } else {
                times.bookmark += BOOKMARKS;
            }
        }
    }

    /// A piece of what was there when the watch began, and then the mark of its end.
    fn opening(&mut self) -> Option<Bytes> {
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

    /// The changes that this watch is about, framed.
    fn events(&mut self, events: &[Arc<StoreEvent>]) -> Bytes {
        let mut bytes = BytesMut::new();
        for event in events {
            match self.seen(event) {
                Ok(Some((change, object))) => {
                    let body = self.body(&object);
                    self.frame(change, &body, &mut bytes);
                }
                Ok(None) => {}
                Err(fault) => {
                    self.watch = None;
                    bytes.extend_from_slice(&self.error(&fault));
                    break;
                }
            }
        }
        bytes.freeze()
    }

    /// How a change looks to this watch; `None` if it is not about what is watched.
    fn seen(&self, event: &StoreEvent) -> Result<Option<(Change, Arc<Object>)>, StatusError> {
        let read = |entry: &Option<Arc<StoreEntry>>| -> Result<Option<Arc<Object>>, StatusError> {
            let Some(entry) = entry else { return Ok(None) };
            let object = crate::stored::object(self.writer.kind, entry)?;
            let wanted = self.options.select(object.stored());
            Ok(wanted.then_some(object))
        };
        let (before, after) = (read(&event.before)?, read(&event.after)?);
        Ok(match (before, after) {
            (None, None) => None,
            (None, Some(after)) => Some((Change::Added, after)),
            (Some(_), Some(after)) => Some((Change::Modified, after)),
            (Some(before), None) => Some((Change::Deleted, self.last_seen(event, &before))),
        })
    }

    /// An object that is not seen any more: as it was, at the revision of the change.
    fn last_seen(&self, event: &StoreEvent, before: &Object) -> Arc<Object> {
        let kind = self.writer.kind;
        event.memo.get_or_make(|| {
            let mut value = before.stored().clone();
            let revision = event.revision.to_string();
            metadata::set(&mut value, "resourceVersion", json!(revision));
            Object::plain(kind, value)
        })
    }

    /// An object as the stream has it.
    fn body(&mut self, object: &Object) -> Bytes {
        let head = !std::mem::replace(&mut self.head_sent, true);
        if self.writer.output.media == Media::Json && self.writer.output.form.is_none() {
            return object.json(self.writer.version);
        }
        self.writer.streamed(object, head)
    }

    /// Puts one event into the stream.
    fn frame(&self, change: Change, body: &[u8], bytes: &mut BytesMut) {
        if self.writer.output.media == Media::Protobuf {
            bytes.extend_from_slice(&codec::envelope::watch_frame(change.word(), body));
            return;
        }
        bytes.extend_from_slice(b"{\"type\":\"");
        bytes.extend_from_slice(change.word().as_bytes());
        bytes.extend_from_slice(b"\",\"object\":");
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"}\n");
    }

    /// A bookmark: an object of nothing but a revision.
    fn bookmark(&mut self, revision: u64, initial_end: bool) -> Bytes {
        let kind = self.writer.kind;
        let mut value = json!({"metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            value["metadata"]["annotations"] = json!({INITIAL_END: "true"});
        }
        // A bookmark shows the zero value of what is always there.
        let mut value =
            canonical::decode(kind.stored().shape, &value).map_or(value, |decoded| decoded.value);
        value["kind"] = json!(kind.kind);
        value["apiVersion"] = json!(kind.api_version(kind.stored().name));
        let body = self.body(&Object::new(kind, value));
        let mut bytes = BytesMut::new();
        self.frame(Change::Bookmark, &body, &mut bytes);
        bytes.freeze()
    }

    /// What went wrong, as the last event.
    fn error(&self, fault: &StatusError) -> Bytes {
        let status = fault.status();
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

/// A watch that fell behind the history.
fn lost(error: &StoreError) -> StatusError {
    match error {
        StoreError::Compacted { asked, floor } => {
            StatusError::expired(format!("too old resource version: {asked} ({floor})"))
        }
        _ => StatusError::internal(error.to_string()),
    }
}
