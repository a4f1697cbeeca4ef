//! Entries, change events, and the syntax of keys.
//!
//! Entries and events are immutable and shared: a list, the history and a thousand watchers hold the same
//! entry. A [`Memo`] next to the bytes caches what a reader decoded from them.

use std::{any::Any, fmt, sync::Arc};

use bytes::Bytes;

use crate::{error::StoreError, stored_value::StoredValue};
use fairgate_core::sync::{Mutex, lock};

/// The maximum length of a value in bytes: etcd's default limit of a request.
pub(crate) const MAX_VALUE_BYTES: usize = 1_572_864;

/// The maximum length of a key in bytes: about three times a resource, a namespace and a name.
pub(crate) const MAX_KEY_BYTES: usize = 2048;

/// An object as stored.
#[derive(Debug)]
pub struct StoreEntry {
    /// The key without the prefix of the store, such as `/policy/poddisruptionbudgets/default/web`.
    pub key: Arc<str>,
    /// The value, which the store does not interpret.
    pub(crate) value: StoredValue,
    /// The revision of the write that stored the value.
    pub revision: u64,
    /// What a reader decoded from the value.
    pub memo: Memo,
}

impl StoreEntry {
    /// An entry with an empty memo.
    pub fn new(key: Arc<str>, value: Bytes, revision: u64) -> Self {
        Self {
            key,
            value: value.into(),
            revision,
            memo: Memo::default(),
        }
    }

    /// The length of the value in bytes.
    pub fn length(&self) -> usize {
        self.value.len()
    }

    /// The value. Costs an allocation if it is compressed, as it is while nobody uses it.
    pub fn bytes(&self) -> Bytes {
        self.value.bytes()
    }
}

/// One change of one key.
#[derive(Debug)]
pub struct StoreEvent {
    /// The revision of the change. A deletion has one too, though it leaves no entry.
    pub revision: u64,
    /// The changed key.
    pub key: Arc<str>,
    /// The entry before the change; `None` for a creation.
    pub before: Option<Arc<StoreEntry>>,
    /// The entry after the change; `None` for a deletion.
    pub after: Option<Arc<StoreEntry>>,
    /// What a reader encoded of the change.
    pub memo: Memo,
}

impl StoreEvent {
    /// A change with an empty memo.
    pub fn new(
        revision: u64,
        key: Arc<str>,
        before: Option<Arc<StoreEntry>>,
        after: Option<Arc<StoreEntry>>,
    ) -> Self {
        Self {
            revision,
            key,
            before,
            after,
            memo: Memo::default(),
        }
    }

    /// The length in bytes of the values before and after.
    pub fn bytes(&self) -> usize {
        let entries = self.before.iter().chain(&self.after);
        entries.map(|entry| entry.length()).sum()
    }

    /// The approximate memory in bytes that the event keeps beyond the present entry: mostly the entry
    /// before.
    pub(crate) fn cost(&self) -> usize {
        const OVERHEAD: usize = 256;
        let before = self.before.as_ref().map_or(0, |before| before.value.len());
        OVERHEAD + self.key.len() + before
    }
}

/// A cached value derived from the entry or event that holds it, of a type that only the reader knows. It
/// can take many times the memory of the bytes, so it is dropped once nobody has used it for a while.
#[derive(Default)]
pub struct Memo(Mutex<Option<CachedValue>>);

struct CachedValue {
    made: Made,
    /// Whether it was read since the last [sweep](Memo::sweep).
    is_used: bool,
}

/// The value of a memo.
pub(super) type Made = Arc<dyn Any + Send + Sync>;

impl Memo {
    /// The cached value, or the result of `make`, which is cached.
    ///
    /// If two threads call this at once, both get the same value. A memo holds one type: a call with
    /// another type returns the result of `make` and leaves the memo as it is.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(found) = self.get() {
            return found;
        }
        // Without the lock, since it may take milliseconds. Two threads may make it; one of both is kept.
        let made = Arc::new(make());
        let kept = lock(&self.0)
            .get_or_insert_with(|| CachedValue {
                made: made.clone(),
                is_used: true,
            })
            .made
            .clone();
        kept.downcast().unwrap_or(made)
    }

    /// The cached value, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let made = lock(&self.0).as_mut().map(|cached| {
            cached.is_used = true;
            cached.made.clone()
        });
        made?.downcast().ok()
    }

    /// Removes and returns the cached value, so that the caller can drop it without holding a lock.
    pub(super) fn forget(&self) -> Option<Made> {
        lock(&self.0).take().map(|cached| cached.made)
    }

    /// Removes and returns the cached value if nobody has used it since the last sweep.
    pub(super) fn sweep(&self) -> Option<Made> {
        let mut slot = lock(&self.0);
        let cached = slot.as_mut()?;
        if std::mem::take(&mut cached.is_used) {
            return None;
        }
        slot.take().map(|cached| cached.made)
    }
}

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if lock(&self.0).is_some() {
            "Memo(made)"
        } else {
            "Memo(none)"
        })
    }
}

/// Checks a key: it begins with `/`, has no empty segment, no segment that begins with `.` (reserved for
/// the stores), no NUL, and at most [`MAX_KEY_BYTES`].
///
/// # Errors
///
/// [`StoreError::BadKey`].
pub(crate) fn check_key(key: &str) -> Result<(), StoreError> {
    let fits = key.len() <= MAX_KEY_BYTES && !key.contains('\0');
    match key.strip_prefix('/') {
        Some(path) if fits && path.split('/').all(is_segment) => Ok(()),
        _ => Err(StoreError::bad_key(key)),
    }
}

/// Checks a prefix: `/`, or a key and a trailing `/`. Without the trailing slash a list of one resource
/// would include other resources whose names begin with the same text.
///
/// # Errors
///
/// [`StoreError::BadKey`].
pub(crate) fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    match prefix.strip_suffix('/') {
        Some("") => Ok(()),
        Some(key) => check_key(key),
        None => Err(StoreError::bad_key(prefix)),
    }
}

/// Checks a value against [`MAX_VALUE_BYTES`].
pub(crate) fn check_size(key: &str, value: Option<&Bytes>) -> Result<(), StoreError> {
    let bytes = value.map_or(0, Bytes::len);
    if bytes > MAX_VALUE_BYTES {
        return Err(StoreError::TooLarge {
            key: key.to_owned(),
            bytes,
            limit: MAX_VALUE_BYTES,
        });
    }
    Ok(())
}

fn is_segment(segment: &str) -> bool {
    !segment.is_empty() && !segment.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_is_made_once_and_keeps_its_type() {
        let memo = Memo::default();
        assert_eq!(memo.get::<u32>(), None);
        assert_eq!(*memo.get_or_make(|| 7_u32), 7);
        assert_eq!(*memo.get_or_make(|| 8_u32), 7);
        assert_eq!(*memo.get_or_make(|| "another type"), "another type");
        assert_eq!(memo.get::<u32>().as_deref(), Some(&7));
        assert!(memo.forget().is_some() && memo.forget().is_none());
        assert_eq!(*memo.get_or_make(|| 8_u32), 8);
    }

    #[test]
    fn a_sweep_removes_values_unused_since_the_last_one() {
        let memo = Memo::default();
        assert!(memo.sweep().is_none());
        memo.get_or_make(|| 7_u32);
        assert!(memo.sweep().is_none(), "it was just made");
        assert_eq!(memo.get::<u32>().as_deref(), Some(&7));
        assert!(memo.sweep().is_none(), "it was used");
        assert!(memo.sweep().is_some());
        assert_eq!(memo.get::<u32>(), None);
    }

    #[test]
    fn keys_and_prefixes_are_paths_without_empty_or_hidden_segments() {
        for key in ["/a", "/a/b", "/a/b/c.d"] {
            check_key(key).unwrap();
            check_prefix(&format!("{key}/")).unwrap();
        }
        check_prefix("/").unwrap();
        let long = format!("/{}", "a".repeat(MAX_KEY_BYTES));
        for key in ["", "/", "a", "/a/", "//a", "/.a", "/a/.b", "/a\0", &long] {
            assert!(check_key(key).is_err(), "{key:?}");
        }
        for prefix in ["", "/a", "//", "/a//", "/.a/"] {
            assert!(check_prefix(prefix).is_err(), "{prefix:?}");
        }
    }
}
