//! What the dispatcher does with a request that executes at once, because its decisions are not enforced.
//!
//! A shadow waits in the place of such a request. If the dispatcher starts it, it holds its seats for as long as the request
//! itself took, even if that has long ended. So what is counted, and what is decided about later requests, is the same as with
//! enforcement; only that clients then may behave otherwise is not known.
//!
//! A request that the dispatcher starts at once needs no shadow: it holds its seats itself.

use std::{cell::Cell, time::Duration};

use tokio::sync::Notify;

/// The execution of a request, as far as its shadow has to know it.
#[derive(Debug, Default)]
pub(super) struct ShadowedExecution {
    end: Cell<Option<ExecutionEnd>>,
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
