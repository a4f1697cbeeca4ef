//! The objects that watches have yet to send first, as they were when each watch began.
//!
//! Nobody pays for them, as the store has them, too: those that were replaced meanwhile are in its history. Once the history begins
//! later than a watch, the watch has missed changes, and its objects may be in memory for it alone, for as long as its client takes to
//! read them. Such objects are given up when the next watch begins that has objects to send. So what watches keep beside the store and its history is at most
//! what there was when the last of them began.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use fairgate_apihttp::status_error::StatusError;
use fairgate_core::sync::{Mutex, lock};
use fairgate_store::StoreEntry;

/// The objects of all watches that have yet to send some.
#[derive(Debug, Default)]
pub(crate) struct AllInitialObjects {
    /// By the revision at which they were listed, and a number.
    unsent: Mutex<BTreeMap<(u64, u64), Arc<Unsent>>>,
    next: AtomicU64,
}

/// Objects in the order in which they are sent; `None` once they were given up.
type Unsent = Mutex<Option<VecDeque<Arc<StoreEntry>>>>;

/// The objects of one watch.
#[derive(Debug)]
pub(crate) struct InitialObjects {
    unsent: Arc<Unsent>,
    all: Arc<AllInitialObjects>,
    /// The revision at which they were listed, and the number.
    key: (u64, u64),
}

impl AllInitialObjects {
    /// The objects of a new watch, as they were at `revision`. Gives up those of watches from before `floor`, where the history of the
    /// store begins.
    pub(crate) fn begin(
        self: &Arc<Self>,
        objects: Vec<Arc<StoreEntry>>,
        revision: u64,
        floor: u64,
    ) -> InitialObjects {
        let unsent = Arc::new(Mutex::new(Some(objects.into())));
        let key = (revision, self.next.fetch_add(1, Ordering::Relaxed));
        let mut all = lock(&self.unsent);
        let current = all.split_off(&(floor, 0));
        let overtaken = std::mem::replace(&mut *all, current);
        all.insert(key, Arc::clone(&unsent));
        drop(all);
        for unsent in overtaken.into_values() {
            let given_up = lock(&unsent).take();
            drop(given_up);
        }
        InitialObjects {
            unsent,
            all: Arc::clone(self),
            key,
        }
    }
}

impl InitialObjects {
    /// The revision at which they were listed.
    pub(crate) fn revision(&self) -> u64 {
        self.key.0
    }

    /// The next one; `None` after the last.
    ///
    /// # Errors
    ///
    /// 410, if they were given up.
    pub(crate) fn first(&self) -> Result<Option<Arc<StoreEntry>>, StatusError> {
        match &*lock(&self.unsent) {
            Some(unsent) => Ok(unsent.front().cloned()),
            None => Err(StatusError::expired(format!(
                "too old resource version: {}",
                self.revision()
            ))),
        }
    }

    /// Removes the next one.
    pub(crate) fn pop(&self) {
        if let Some(unsent) = &mut *lock(&self.unsent) {
            unsent.pop_front();
        }
    }
}

impl Drop for InitialObjects {
    fn drop(&mut self) {
        lock(&self.all.unsent).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_from_before_the_history_are_given_up_when_the_next_watch_begins() {
        let all = Arc::new(AllInitialObjects::default());
        let entry = |revision| Arc::new(StoreEntry::new("/a".into(), "1".into(), revision));
        let old = entry(3);
        let first = all.begin(vec![Arc::clone(&old), Arc::clone(&old)], 5, 1);
        let second = all.begin(vec![entry(3)], 7, 5);
        first.pop();
        assert_eq!(first.first().unwrap().unwrap().revision, 3);
        assert_eq!(Arc::strong_count(&old), 2);
        let third = all.begin(Vec::new(), 9, 7);
        assert_eq!(Arc::strong_count(&old), 1);
        let error = first.first().unwrap_err();
        assert_eq!(error.code, http::StatusCode::GONE);
        first.pop();
        assert!(second.first().unwrap().is_some());
        assert!(third.first().unwrap().is_none());
        drop((first, second, third));
        assert!(lock(&all.unsent).is_empty());
    }
}
