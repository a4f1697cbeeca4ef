//! Entries, their changes, and what a key may be.
//!
//! Both are immutable and shared: a list, the history and a thousand watchers hold the same entry. A
//! [`Memo`] beside the bytes holds what a reader made of them.

use std::{any::Any, fmt, sync::Arc};

use bytes::Bytes;

use crate::error::StoreError;
use fairgate_core::sync::{Mutex, lock};

/// The longest value, in bytes: what etcd takes in one request by default.
pub const MAX_VALUE_BYTES: usize = 1_572_864;

/// The longest key, in bytes. Resource, namespace and name fit three times over.
pub const MAX_KEY_BYTES: usize = 2048;

/// An object as stored.
#[derive(Debug)]
pub struct StoreEntry {
    /// Such as `/poddisruptionbudgets/default/web`, without any prefix of the store's own.
    pub key: Arc<str>,
    /// Opaque to the store.
    pub value: Bytes,
    /// Of the write that made it so.
    pub revision: u64,
    /// What a reader made of the value.
    pub memo: Memo,
}

impl StoreEntry {
    /// An entry that nobody has read yet.
    pub fn new(key: Arc<str>, value: Bytes, revision: u64) -> Self {
        Self {
            key,
            value,
            revision,
            memo: Memo::default(),
        }
    }
}

/// One change of one key.
#[derive(Debug)]
pub struct StoreEvent {
    /// Of the change. Of a deletion too, which no entry bears.
    pub revision: u64,
    /// What was changed.
    pub key: Arc<str>,
    /// What was there; `None` when it was created.
    pub before: Option<Arc<StoreEntry>>,
    /// What is there since; `None` when it was deleted.
    pub after: Option<Arc<StoreEntry>>,
    /// What a reader made of the change.
    pub memo: Memo,
}

impl StoreEvent {
    /// A change that nobody has read yet.
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

    /// About what keeping it costs beyond the entry it led to, in bytes: mostly the entry before.
    pub fn cost(&self) -> usize {
        const OVERHEAD: usize = 256;
        let before = self.before.as_ref().map_or(0, |before| before.value.len());
        OVERHEAD + self.key.len() + before
    }
}

/// Something made once from what it lies beside, of a type that only its reader knows. It can take many
/// times the memory of that, so it is forgotten once few will ask for it.
#[derive(Default)]
pub struct Memo(Mutex<Option<Made>>);

/// What a reader made.
pub(super) type Made = Arc<dyn Any + Send + Sync>;

impl Memo {
    /// What was made before, or what `make` makes now.
    ///
    /// Of two that make it at once, one result stays and both get it. A memo holds one type: asked for
    /// another, it gives what `make` makes and keeps what it has.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(found) = self.get() {
            return found;
        }
        let made = Arc::new(make());
        let kept = lock(&self.0).get_or_insert_with(|| made.clone()).clone();
        kept.downcast().unwrap_or(made)
    }

    /// What was made before, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let made = lock(&self.0).clone();
        made?.downcast().ok()
    }

    /// Forgets what was made, and gives it: dropping it takes time.
    pub(super) fn forget(&self) -> Option<Made> {
        lock(&self.0).take()
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

/// Checks that `key` may be one: begins with `/`, has no empty segment and none that begins with `.`
/// (those are the stores' own), no NUL, and at most [`MAX_KEY_BYTES`].
///
/// # Errors
///
/// [`StoreError::BadKey`].
pub fn check_key(key: &str) -> Result<(), StoreError> {
    let fits = key.len() <= MAX_KEY_BYTES && !key.contains('\0');
    match key.strip_prefix('/') {
        Some(path) if fits && path.split('/').all(is_segment) => Ok(()),
        _ => Err(StoreError::bad_key(key)),
    }
}

/// Checks that `prefix` may be one: `/`, or a key and a `/`. Without the last, the scan of one
/// resource would run into those whose names only begin like it.
///
/// # Errors
///
/// [`StoreError::BadKey`].
pub fn check_prefix(prefix: &str) -> Result<(), StoreError> {
    match prefix.strip_suffix('/') {
        Some("") => Ok(()),
        Some(key) => check_key(key),
        None => Err(StoreError::bad_key(prefix)),
    }
}

/// Refuses a value that is too long.
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
