//! A cursor into the shared history, and the wait for further changes.
//!
//! Watches have no queues. Each holds the revision up to which it has returned changes, and reads the
//! [`Mirror`]'s history from there when notified. A watch that is read too slowly falls below the floor
//! and ends.

use std::sync::Arc;

use tokio::sync::watch::Receiver;

use crate::{entry::StoreEvent, error::StoreError, mirror::Mirror};

/// Every change below a prefix, in order, without gaps.
#[derive(Debug)]
pub struct Watch {
    mirror: Arc<Mirror>,
    prefix: Box<str>,
    /// Every change up to this revision was returned.
    position: u64,
    /// Notifies of new revisions of the mirror.
    news: Receiver<u64>,
}

impl Watch {
    /// A watch of the changes below `prefix` after `after`.
    ///
    /// # Errors
    ///
    /// As [`Mirror::subscribe`].
    pub(super) fn new(mirror: &Arc<Mirror>, prefix: &str, after: u64) -> Result<Self, StoreError> {
        Ok(Self {
            news: mirror.subscribe(prefix, after)?,
            mirror: Arc::clone(mirror),
            prefix: prefix.into(),
            position: after,
        })
    }

    /// Waits for the next changes and returns at least one. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] once the floor has overtaken this watch, and ever after.
    pub async fn next(&mut self) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        loop {
            // Mark as seen first, then read: a change in between ends the wait below.
            self.news.borrow_and_update();
            let events = self.ready()?;
            if !events.is_empty() {
                return Ok(events);
            }
            self.news().await;
        }
    }

    /// Waits until the store may have changes, or only a newer revision, that [`ready`](Self::ready) has not seen. May be ready
    /// although there are none.
    pub(super) async fn news(&mut self) {
        if self.news.changed().await.is_err() {
            // Unreachable: `self.mirror` owns the sender.
            std::future::pending::<()>().await;
        }
    }

    /// Passes over changes up to `revision`, of which it is known that none are below the prefix.
    pub(super) fn skip_to(&mut self, revision: u64) {
        self.position = self.position.max(revision);
    }

    /// What it watches.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The next changes that are available without waiting: a few hundred at most, fewer if their values are long, possibly none.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn ready(&mut self) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        let mut events = Vec::new();
        loop {
            let read_to = self
                .mirror
                .events(&self.prefix, self.position, &mut events)?;
            let advanced = read_to > self.position;
            self.position = read_to;
            if !events.is_empty() || !advanced {
                return Ok(events);
            }
        }
    }

    /// The revision up to which every change below the prefix was returned. While [`next`](Self::next) is
    /// pending, it follows the revision of the store, even if nothing changes below the prefix.
    pub fn progress(&self) -> u64 {
        self.position
    }
}
