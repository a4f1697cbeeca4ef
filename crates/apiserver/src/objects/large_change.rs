//! A change of a large object, as its watches need it.
//!
//! Decoded, a large object takes many times its length, so it is not cached ([`stored`]). But a thousand watches send the same
//! text of a change, and their selectors look at the same few fields. So these are kept with the change, while watches that keep
//! up read it, and as long as all that is kept takes at most [`MAX_KEPT`] bytes.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    object_writer::ObjectWriter,
    stored::{self, CacheRoom, CachedBytes},
};
use fairgate_apihttp::{
    list_parameters::ListParameters, negotiate::Media, status_error::StatusError,
};
use fairgate_core::sync::{Mutex, lock};
use fairgate_objects::{kind::Kind, metadata, object::Object};
use fairgate_store::{StoreEntry, StoreEvent};

/// The most bytes that are kept of changes of large objects. They are not among the cached objects: either would leave no room for
/// the other.
const MAX_KEPT: usize = 32 << 20;

/// What is kept in this process.
static KEPT: CachedBytes = CachedBytes::new(MAX_KEPT);

/// What is kept with the change of a large object.
#[derive(Default)]
pub(super) struct LargeChange {
    selected: OnceLock<(SelectedFields, CacheRoom<'static>)>,
    texts: Mutex<Vec<KeptText>>,
}

/// The fields that selectors look at, of the objects before and after a change.
#[derive(Clone)]
struct SelectedFields {
    before: Option<Arc<Value>>,
    after: Option<Arc<Value>>,
}

/// The object that watches send, encoded.
struct KeptText {
    version: &'static str,
    media: Media,
    /// Whether it is the last state, which watches send once the object is gone.
    is_last_state: bool,
    text: Bytes,
    _room: CacheRoom<'static>,
}

/// Whether a change is of a large object.
pub(super) fn is_large(event: &StoreEvent) -> bool {
    let mut entries = event.before.iter().chain(&event.after);
    entries.any(|entry| stored::is_large(entry))
}

/// The last state of the object of a change that has one before it, with the revision of the change. It is cached with the change,
/// as objects are with their entries.
///
/// # Errors
///
/// 500, when that is not an object of this kind.
pub(super) fn last_state(
    kind: &'static Kind,
    event: &StoreEvent,
    before: &StoreEntry,
) -> Result<Arc<Object>, StatusError> {
    stored::cached(&event.memo, before.length(), || {
        let mut value = stored::object(kind, before)?.stored().clone();
        let revision = event.revision.to_string();
        metadata::set(&mut value, "resourceVersion", json!(revision));
        Ok(Object::plain(kind, value))
    })
}

impl LargeChange {
    /// That of a change.
    pub(super) fn of(event: &StoreEvent) -> Arc<Self> {
        event.memo.get_or_make(Self::default)
    }

    /// Whether the selectors match the object before and after the change.
    ///
    /// # Errors
    ///
    /// 500, when that is not an object of this kind.
    pub(super) fn selected(
        &self,
        kind: &'static Kind,
        event: &StoreEvent,
        options: &ListParameters,
    ) -> Result<(bool, bool), StatusError> {
        if options.labels.is_everything() && options.fields.is_everything() {
            return Ok((event.before.is_some(), event.after.is_some()));
        }
        let fields = self.fields(kind, event, &KEPT)?;
        let select = |object: &Option<Arc<Value>>| {
            let object = object.as_ref();
            object.is_some_and(|object| options.select(object))
        };
        Ok((select(&fields.before), select(&fields.after)))
    }

    fn fields(
        &self,
        kind: &'static Kind,
        event: &StoreEvent,
        kept: &'static CachedBytes,
    ) -> Result<SelectedFields, StatusError> {
        if let Some((fields, _)) = self.selected.get() {
            return Ok(fields.clone());
        }
        let mut length = 0;
        let mut read = |entry: &Option<Arc<StoreEntry>>| -> Result<_, StatusError> {
            let Some(entry) = entry else { return Ok(None) };
            let object = stored::object(kind, entry)?;
            let fields = selected_fields(object.stored());
            length += fields.to_string().len();
            Ok(Some(Arc::new(fields)))
        };
        let fields = SelectedFields {
            before: read(&event.before)?,
            after: read(&event.after)?,
        };
        if let Some(room) = kept.room_decoded(length) {
            // Another thread may have been faster, with the same result.
            let _ = self.selected.set((fields.clone(), room));
        }
        Ok(fields)
    }

    /// The object that a watch of this form sends, encoded: the last state, or the one after the change.
    ///
    /// # Errors
    ///
    /// 500, when that is not an object of the kind.
    pub(super) fn text(
        &self,
        writer: &ObjectWriter,
        event: &StoreEvent,
        is_last_state: bool,
        head: bool,
    ) -> Result<Bytes, StatusError> {
        self.text_within(writer, event, (is_last_state, head), &KEPT)
    }

    fn text_within(
        &self,
        writer: &ObjectWriter,
        event: &StoreEvent,
        (is_last_state, head): (bool, bool),
        kept: &'static CachedBytes,
    ) -> Result<Bytes, StatusError> {
        let (version, media) = (writer.version.name, writer.output.media);
        // A table has the age of the object, and its head in the first event.
        let is_shared = writer.output.form.is_none();
        if is_shared {
            let texts = lock(&self.texts);
            let mut known = texts.iter().filter(|known| {
                (known.version, known.media, known.is_last_state) == (version, media, is_last_state)
            });
            if let Some(known) = known.next() {
                return Ok(known.text.clone());
            }
        }
        let object = match (&event.before, &event.after) {
            (Some(before), _) if is_last_state => last_state(writer.kind, event, before)?,
            (_, Some(after)) => stored::object(writer.kind, after)?,
            _ => return Err(StatusError::internal("a change without an object")),
        };
        let text = writer.streamed(&object, head);
        if is_shared && let Some(room) = kept.room(text.len()) {
            lock(&self.texts).push(KeptText {
                version,
                media,
                is_last_state,
                // Without memory that it does not need.
                text: Bytes::copy_from_slice(&text),
                _room: room,
            });
        }
        Ok(text)
    }
}

/// An object with nothing in it but what selectors look at.
fn selected_fields(object: &Value) -> Value {
    let all = metadata::of(object);
    let mut fields = json!({});
    for field in ["name", "namespace", "labels"] {
        if let Some(value) = all.get(field) {
            fields[field] = value.clone();
        }
    }
    json!({"metadata": fields})
}

#[cfg(test)]
mod tests {
    use fairgate_apihttp::negotiate::Output;
    use fairgate_objects::kinds::POD_DISRUPTION_BUDGET as KIND;

    use super::*;

    fn deletion(length: usize) -> StoreEvent {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "a", "namespace": "a", "annotations": {"note": "x".repeat(length)}},
            "spec": {"minAvailable": 1},
        });
        let key: Arc<str> = "/policy/poddisruptionbudgets/a/a".into();
        let before = StoreEntry::new(Arc::clone(&key), Bytes::from(object.to_string()), 7);
        StoreEvent::new(8, key, Some(Arc::new(before)), None)
    }

    #[test]
    fn texts_are_kept_as_long_as_there_is_room_and_no_longer_than_the_change() {
        const LENGTH: usize = 100_000;
        let kept = Box::leak(Box::new(CachedBytes::new(LENGTH * 3 / 2)));
        let event = deletion(LENGTH);
        assert!(is_large(&event));
        let text = |media: Media| {
            let output = Output {
                media,
                ..Output::JSON
            };
            let writer = ObjectWriter::plain(&KIND, &KIND.versions[0], output);
            let change = LargeChange::of(&event);
            change
                .text_within(&writer, &event, (true, false), kept)
                .unwrap()
        };
        let [_, one, other] = [Media::Json; 3].map(text);
        assert_eq!(one.as_ptr(), other.as_ptr(), "it was encoded once");
        let sent: Value = serde_json::from_slice(&one).unwrap();
        assert_eq!(sent["metadata"]["resourceVersion"], "8");
        // There is no room for another one of that length.
        let [one, other] = [text(Media::Protobuf), text(Media::Protobuf)];
        assert!(one == other && one.as_ptr() != other.as_ptr());
        assert!(kept.taken() > LENGTH);
        drop(event);
        assert_eq!(kept.taken(), 0);
    }
}
