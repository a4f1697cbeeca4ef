//! Decodes the objects in the store, most of them once.
//!
//! What is computed from an entry (the value, the other versions, their JSON) is cached in the entry, so
//! that lists and watches of any number of clients share it. That is many times the length of the entry, so large objects are
//! not cached: decoding one takes milliseconds, and there are few of them. Nor are small ones while those that are cached take
//! [`MAX_CACHED`] bytes: they are decoded each time. What nobody uses for a while leaves the cache, which makes room.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use fairgate_objects::{kind::Kind, object::Object};
use fairgate_store::{Memo, StoreEntry};

use fairgate_apihttp::status_error::StatusError;

/// The least length in bytes of an object that is not cached.
const LARGE: usize = 32 << 10;

/// The most bytes that cached objects take, by estimate: three quarters of the default quota of all hosted objects.
const MAX_CACHED: usize = 192 << 20;

/// How many times its length a cached object takes, by estimate.
const TIMES: usize = 12;

/// What the cached objects of this process take.
static CACHED: CachedBytes = CachedBytes::new(MAX_CACHED);

/// Bytes of what is cached, of some of it by estimate.
pub(super) struct CachedBytes {
    now: AtomicUsize,
    most: usize,
}

/// An object in the cache.
struct CachedObject {
    object: Arc<Object>,
    _room: CacheRoom<'static>,
}

/// Room for something that is cached. It is returned when this is dropped.
pub(super) struct CacheRoom<'c> {
    of: &'c CachedBytes,
    bytes: usize,
}

impl CachedBytes {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            now: AtomicUsize::new(0),
            most,
        }
    }

    /// Room for what is decoded from text of this length, if there is any.
    pub(super) fn room_decoded(&self, length: usize) -> Option<CacheRoom<'_>> {
        self.room(length.saturating_mul(TIMES))
    }

    /// Room for so many bytes, if there is any.
    pub(super) fn room(&self, bytes: usize) -> Option<CacheRoom<'_>> {
        let grown = |now: usize| now.checked_add(bytes).filter(|all| *all <= self.most);
        let taken = self
            .now
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        taken.ok().map(|_| CacheRoom { of: self, bytes })
    }
}

#[cfg(test)]
impl CachedBytes {
    /// What is cached takes so many bytes.
    pub(super) fn taken(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }
}

impl Drop for CacheRoom<'_> {
    fn drop(&mut self) {
        self.of.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Whether the object of an entry is too large to be cached.
pub(crate) fn is_large(entry: &StoreEntry) -> bool {
    entry.length() >= LARGE
}

/// The object in an entry of the store.
///
/// # Errors
///
/// 500, when the entry is not an object of this kind.
pub(crate) fn object(kind: &'static Kind, entry: &StoreEntry) -> Result<Arc<Object>, StatusError> {
    object_within(kind, entry, &CACHED)
}

fn object_within(
    kind: &'static Kind,
    entry: &StoreEntry,
    cached: &'static CachedBytes,
) -> Result<Arc<Object>, StatusError> {
    cached_within(&entry.memo, entry.length(), cached, || {
        Object::decode(kind, &entry.bytes(), entry.revision)
            .map_err(|error| StatusError::internal(error.to_string()))
    })
}

/// The object in a memo, or the one that is made, which is cached there unless its length, as text, is that of a large one.
///
/// # Errors
///
/// That of `make`.
pub(super) fn cached(
    memo: &Memo,
    length: usize,
    make: impl FnOnce() -> Result<Object, StatusError>,
) -> Result<Arc<Object>, StatusError> {
    cached_within(memo, length, &CACHED, make)
}

fn cached_within(
    memo: &Memo,
    length: usize,
    cached: &'static CachedBytes,
    make: impl FnOnce() -> Result<Object, StatusError>,
) -> Result<Arc<Object>, StatusError> {
    if let Some(known) = memo.get::<CachedObject>() {
        return Ok(Arc::clone(&known.object));
    }
    let object = Arc::new(make()?);
    let room = (length < LARGE).then(|| cached.room_decoded(length));
    let Some(room) = room.flatten() else {
        return Ok(object);
    };
    let made = memo.get_or_make(|| CachedObject {
        object,
        _room: room,
    });
    Ok(Arc::clone(&made.object))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fairgate_objects::kinds::POD_DISRUPTION_BUDGET as KIND;
    use serde_json::json;

    use super::*;

    fn entry(name: &str) -> StoreEntry {
        let object = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "a"}, "spec": {"minAvailable": 1},
        });
        let key = format!("/policy/poddisruptionbudgets/a/{name}");
        StoreEntry::new(key.into(), Bytes::from(object.to_string()), 7)
    }

    #[test]
    fn small_objects_are_cached_as_long_as_they_take_so_many_bytes_and_no_longer() {
        let length = entry("a-0").length();
        let cached = Box::leak(Box::new(CachedBytes::new(3 * TIMES * length)));
        let entries: Vec<_> = (0..5).map(|number| entry(&format!("a-{number}"))).collect();
        let object = |entry: &StoreEntry| object_within(&KIND, entry, cached).unwrap();
        let shared = |entry: &StoreEntry| Arc::ptr_eq(&object(entry), &object(entry));
        let all: Vec<_> = entries.iter().map(shared).collect();
        assert_eq!(all, [true, true, true, false, false]);
        assert_eq!(cached.taken(), 3 * TIMES * length);
        // What leaves the cache makes room.
        drop(entries);
        assert_eq!(cached.taken(), 0);
        assert!(shared(&entry("b-0")));
    }
}
