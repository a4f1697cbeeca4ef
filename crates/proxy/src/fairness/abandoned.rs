//! Requests that continue upstream after their client has disconnected.
//!
//! When a request is cancelled, nothing shows whether the upstream stops working on it, and clients decide how many
//! requests they abandon. So a request that counts against a limit is not cancelled: it continues in the background,
//! with what it holds, until its response has ended, or until its time limit. Only the end of the response shows
//! that the upstream is done, and no client can fake it. The seats and places that such requests hold limit
//! their number.
//!
//! A request that counts against no limit continues too, because servers close a connection after many resets, but
//! within separate limits ([`MAX_DISCARDED_BYTES`], [`MAX_UNSEATED`]).

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Bytes of a response that are read and discarded if it may be endless, or if the request counts against no limit.
pub(super) const MAX_DISCARDED_BYTES: u64 = 1 << 20;
/// Bytes of a response that are read and discarded if the request counts against a limit: more than all but the longest
/// lists have. The request is then cancelled, and keeps what it holds until its time limit.
const MANY_BYTES: u64 = 128 << 20;
/// How many requests that count against no limit may continue at a time, all cores together.
const MAX_UNSEATED: u32 = 4096;

/// Counters of abandoned requests, all cores together.
#[derive(Debug, Default)]
pub struct AbandonedRequests {
    running: AtomicU32,
    unseated: AtomicU32,
    ended: AtomicU64,
    cancelled: AtomicU64,
}

/// A request that continues without its client. When dropped, it counts as cancelled unless
/// [`ended`](Self::ended) was called.
#[derive(Debug)]
pub(super) struct AbandonedRequest {
    of: Arc<AbandonedRequests>,
    seated: bool,
    ended: bool,
}

impl AbandonedRequests {
    /// How many continue now.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// How many have continued to their end, since the start.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// How many were cancelled, since the start.
    pub fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Counts a request whose client has disconnected. `seated` is whether it counts against a limit. `None` if
    /// too many requests that do not are already counted: then the request is to be cancelled.
    pub(super) fn begin(self: &Arc<Self>, seated: bool) -> Option<AbandonedRequest> {
        self.running.fetch_add(1, Ordering::Relaxed);
        let others = if seated {
            0
        } else {
            self.unseated.fetch_add(1, Ordering::Relaxed)
        };
        // Counts as cancelled when it is dropped here.
        let request = AbandonedRequest {
            of: Arc::clone(self),
            seated,
            ended: false,
        };
        (others < MAX_UNSEATED).then_some(request)
    }
}

impl AbandonedRequest {
    /// Records that the response has ended.
    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    /// How many bytes of its response may be read.
    pub(super) fn bytes(&self) -> u64 {
        if self.seated {
            MANY_BYTES
        } else {
            MAX_DISCARDED_BYTES
        }
    }
}

impl Drop for AbandonedRequest {
    fn drop(&mut self) {
        self.of.running.fetch_sub(1, Ordering::Relaxed);
        if !self.seated {
            self.of.unseated.fetch_sub(1, Ordering::Relaxed);
        }
        let outcome = if self.ended {
            &self.of.ended
        } else {
            &self.of.cancelled
        };
        outcome.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_seat_are_limited() {
        let abandoned = Arc::<AbandonedRequests>::default();
        let mut running: Vec<_> = (0..MAX_UNSEATED)
            .map(|_| abandoned.begin(false).unwrap())
            .collect();
        assert!(abandoned.begin(false).is_none());
        let seated = abandoned.begin(true).unwrap();
        assert_eq!(abandoned.running(), MAX_UNSEATED + 1);
        assert_eq!(abandoned.cancelled(), 1);
        running.pop().unwrap().ended();
        assert!(abandoned.begin(false).is_some());
        drop((running, seated));
        assert_eq!((abandoned.running(), abandoned.ended()), (0, 1));
    }
}
