//! Encodes the events of a watch: objects that the selectors match, changes of them, bookmarks, and an error.
//!
//! Not here: which events a watch has, and when they are sent (`watch_stream`).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde_json::json;

use super::{
    large_change::{self, LargeChange},
    object_writer::ObjectWriter,
    stored,
};
use fairgate_apihttp::{
    list_parameters::ListParameters, negotiate::Media, status_error::StatusError,
};
use fairgate_objects::{
    codec,
    object::Object,
    schema::{canonical, meta_v1::STATUS},
};
use fairgate_store::{StoreEntry, StoreEvent};

/// The annotation of the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// At least what an event has besides its object, in JSON.
const FRAME: usize = 40;

/// Encodes the events of one watch.
#[derive(Debug)]
pub(super) struct EventWriter {
    pub(super) writer: ObjectWriter,
    pub(super) options: ListParameters,
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

    /// What a change is to a watch whose selectors match the object before and after it, or not.
    fn between(before: bool, after: bool) -> Option<Self> {
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(Self::Added),
            (true, true) => Some(Self::Modified),
            (true, false) => Some(Self::Deleted),
        }
    }
}

impl EventWriter {
    /// Appends the event of an object that exists when the watch begins, if the selectors match it, and returns whether they do.
    /// `head` adds the column definitions to a table.
    ///
    /// # Errors
    ///
    /// 500, when the entry is not an object of the kind. Nothing is appended then.
    pub(super) fn present(
        &self,
        entry: &StoreEntry,
        head: bool,
        bytes: &mut BytesMut,
    ) -> Result<bool, StatusError> {
        let object = stored::object(self.writer.kind, entry)?;
        let is_selected = self.options.select(object.stored());
        if is_selected {
            self.frame(Change::Added, &self.body(&object, head), bytes);
        }
        Ok(is_selected)
    }

    /// Appends the event that a change becomes, and returns whether there is one: there is none if the selectors match the
    /// object neither before nor after. `head` and errors as in [`present`](Self::present).
    pub(super) fn change(
        &self,
        event: &StoreEvent,
        head: bool,
        bytes: &mut BytesMut,
    ) -> Result<bool, StatusError> {
        if large_change::is_large(event) {
            return self.large_change(event, head, bytes);
        }
        let read = |entry: &Option<Arc<StoreEntry>>| -> Result<Option<Arc<Object>>, StatusError> {
            let Some(entry) = entry else { return Ok(None) };
            let object = stored::object(self.writer.kind, entry)?;
            let selected = self.options.select(object.stored());
            Ok(selected.then_some(object))
        };
        let (before, after) = (read(&event.before)?, read(&event.after)?);
        let Some(change) = Change::between(before.is_some(), after.is_some()) else {
            return Ok(false);
        };
        let object = match (after, &event.before) {
            (Some(after), _) => after,
            (None, Some(before)) => large_change::last_state(self.writer.kind, event, before)?,
            (None, None) => return Ok(false),
        };
        self.frame(change, &self.body(&object, head), bytes);
        Ok(true)
    }

    /// The same for a large object, of which the text is made once for all watches.
    fn large_change(
        &self,
        event: &StoreEvent,
        head: bool,
        bytes: &mut BytesMut,
    ) -> Result<bool, StatusError> {
        let kept = LargeChange::of(event);
        let (before, after) = kept.selected(self.writer.kind, event, &self.options)?;
        let Some(change) = Change::between(before, after) else {
            return Ok(false);
        };
        let text = kept.text(&self.writer, event, !after, head)?;
        self.frame(change, &text, bytes);
        Ok(true)
    }

    /// An object, encoded.
    fn body(&self, object: &Object, head: bool) -> Bytes {
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
        // At once: it would take twice its length if the last bytes of a long one did not fit.
        bytes.reserve(FRAME + body.len());
        bytes.extend_from_slice(b"{\"type\":\"");
        bytes.extend_from_slice(change.name().as_bytes());
        bytes.extend_from_slice(b"\",\"object\":");
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(b"}\n");
    }

    /// A bookmark: an object with a resource version only. `head` as in [`present`](Self::present).
    pub(super) fn bookmark(&self, revision: u64, initial_end: bool, head: bool) -> Bytes {
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
        let body = self.body(&Object::new(kind, value), head);
        let mut bytes = BytesMut::new();
        self.frame(Change::Bookmark, &body, &mut bytes);
        bytes.freeze()
    }

    /// The event of an error. It is the last one.
    pub(super) fn error(&self, error: &StatusError) -> Bytes {
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
