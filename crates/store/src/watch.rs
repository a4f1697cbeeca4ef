//! A place in the shared history, and the wait for what comes next.
//!
//! A thousand watches have no thousand queues: each holds the revision it has handed out, and reads on
//! in the [`Mirror`]'s history when woken. One that is read too slowly falls below the floor and ends.

use std::sync::Arc;

use tokio::sync::watch::Receiver;

use crate::{entry::StoreEvent, error::StoreError, mirror::Mirror};

/// Every change below a prefix, in order, without gaps.
#[derive(Debug)]
pub struct Watch {
    mirror: Arc<Mirror>,
    prefix: Box<str>,
    /// Every change up to here was handed out.
    position: u64,
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

    /// The next changes, at least one, once there are any. Dropping the wait loses nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Compacted`] once the floor has overtaken this watch; it stays so.
    pub async fn next(&mut self) -> Result<Vec<Arc<StoreEvent>>, StoreError> {
        loop {
            // Seen before read: a change between the two wakes the wait below.
            self.news.borrow_and_update();
            let events = self.ready()?;
            if !events.is_empty() {
                return Ok(events);
            }
            if self.news.changed().await.is_err() {
                // The mirror holds the sender, and this holds the mirror.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The next changes that are there already: a few hundred at most, perhaps none.
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

    /// The revision up to which every change below the prefix was handed out. While a wait in
    /// [`next`](Self::next) is pending it goes up with the store's, changes below the prefix or not.
    pub fn progress(&self) -> u64 {
        self.position
    }
}
