//! Requests that the upstream may still be working on although their clients already have a reply.

use std::{cell::Cell, fmt, future::Future, pin::Pin};

use super::{Refusal, Reply};

/// A request that the upstream may still be working on although its client already has a reply.
pub type UnfinishedRequest = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

/// Where `forward` leaves a request that exceeded its deadline. The owner of the request's seat
/// takes it and runs it to its end; dropping it cancels it upstream.
#[derive(Default)]
pub struct TimedOutRequest(Cell<Option<UnfinishedRequest>>);

impl TimedOutRequest {
    /// Leaves the request.
    pub fn set(&self, unfinished: UnfinishedRequest) {
        self.0.set(Some(unfinished));
    }

    /// Takes the request, if one was left.
    pub fn take(&self) -> Option<UnfinishedRequest> {
        self.0.take()
    }
}

impl fmt::Debug for TimedOutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedOutRequest").finish_non_exhaustive()
    }
}
