//! What the dispatcher does with a request that executes at once, because its decisions are not enforced.
//!
//! A shadow waits in the place of such a request. If the dispatcher starts it, it holds its seats for as long as the request
//! itself took, even if that has long ended. So what is counted, and what is decided about later requests, is the same as with
//! enforcement; only that clients then may behave otherwise is not known.
//!
//! A watch has more than seats: it is among the watchers that writes wake, and among the watches of its user, to its end. A shadow has these
//! places in its stead, from when it starts and from when it arrived, for as long as the watch lasts.
//!
//! A request that the dispatcher starts at once needs no shadow: it holds its seats itself.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use tokio::sync::Notify;

use super::long_running::LongRunningPlace;

/// The execution of a request, as far as its shadow has to know it.
#[derive(Debug, Default)]
pub(super) struct ShadowedExecution {
    end: Cell<Option<ExecutionEnd>>,
    /// How long a watch lasted, its events included.
    watch_end: Cell<Option<Duration>>,
    /// The place of a watch among those of its user.
    place: RefCell<Option<LongRunningPlace>>,
    client_gone: Cell<bool>,
    changed: Notify,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExecutionEnd {
    pub(super) took: Duration,
    /// Whether it was refused before it was carried out.
    pub(super) is_refused: bool,
}

impl ShadowedExecution {
    /// The request has ended after so long.
    pub(super) fn ended(&self, took: Duration, is_refused: bool) {
        self.end.set(Some(ExecutionEnd { took, is_refused }));
        self.changed.notify_one();
    }

    /// The watch has ended after so long.
    pub(super) fn watch_ended(&self, lasted: Duration) {
        self.watch_end.set(Some(lasted));
        self.changed.notify_one();
    }

    /// Holds the place of the watch among those of its user from now on.
    pub(super) fn hold_place(&self, place: Option<LongRunningPlace>) {
        *self.place.borrow_mut() = place;
    }

    /// Its shadow has ended, or waits no longer.
    pub(super) fn leave_place(&self) {
        let place = self.place.borrow_mut().take();
        drop(place);
    }

    /// Its client disconnected before it had a reply, so it would have left the queue.
    pub(super) fn client_gone(&self) {
        self.client_gone.set(true);
        self.changed.notify_one();
    }

    /// Completes when its client is gone.
    pub(super) async fn until_client_is_gone(&self) {
        while !self.client_gone.get() {
            self.changed.notified().await;
        }
    }

    /// Completes when the watch has ended, and says how long it lasted.
    pub(super) async fn until_watch_end(&self) -> Duration {
        loop {
            match self.watch_end.get() {
                Some(lasted) => return lasted,
                None => self.changed.notified().await,
            }
        }
    }

    /// Completes when the request has ended.
    pub(super) async fn until_end(&self) -> ExecutionEnd {
        loop {
            match self.end.get() {
                Some(end) => return end,
                None => self.changed.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests;
