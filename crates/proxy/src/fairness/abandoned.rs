//! Requests that go on upstream after their client has left.
//!
//! A cancel hides whether the upstream heeds it, and a client decides how many requests it leaves. So a
//! request that holds something of a limit is not cancelled: it runs on unseen, with what it holds,
//! until its answer has ended, which is the only evidence of the upstream's end that a client cannot
//! fake, or until its time limit. The seats and places themselves bound how many there are.
//!
//! A request that holds nothing of a limit runs on, too, since servers close a connection over many
//! resets, but within bounds of its own.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// Bytes of an answer that are read and thrown away where it may go on for ever, or where no limit
/// bounds how many there are.
pub(super) const FEW_BYTES: u64 = 1 << 20;
/// Bytes of an answer that are read and thrown away while the request holds something of a limit: more
/// than any answer has that comes to an end. It is then cancelled, and keeps what it holds.
const MANY_BYTES: u64 = 128 << 20;
/// Requests that run on at a time without holding anything of a limit, all cores together.
const MAX_UNSEATED: u32 = 4096;

/// What is counted of such requests, all cores together.
#[derive(Debug, Default)]
pub struct AbandonedRequests {
    running: AtomicU32,
    unseated: AtomicU32,
    ended: AtomicU64,
    cancelled: AtomicU64,
}

/// One that runs on. Dropped, it counts as cancelled unless [`ended`](Self::ended) was called.
#[derive(Debug)]
pub(super) struct AbandonedRequest {
    of: Arc<AbandonedRequests>,
    seated: bool,
    ended: bool,
}

impl AbandonedRequests {
    /// How many run on.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// How many have run to their end, ever.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// How many were cancelled, ever.
    pub fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// A client has left. `seated` tells that the request holds something of a limit. `None` if it is
    /// one too many of those that do not: it is to be cancelled.
    pub(super) fn begin(self: &Arc<Self>, seated: bool) -> Option<AbandonedRequest> {
        self.running.fetch_add(1, Ordering::Relaxed);
        let others = if seated {
            0
        } else {
            self.unseated.fetch_add(1, Ordering::Relaxed)
        };
        // Counts as cancelled when it is dropped here.
        let runs_on = AbandonedRequest {
            of: Arc::clone(self),
            seated,
            ended: false,
        };
        (others < MAX_UNSEATED).then_some(runs_on)
    }
}

impl AbandonedRequest {
    /// Its answer has ended.
    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    /// How many bytes of its answer may be read.
    pub(super) fn bytes(&self) -> u64 {
        if self.seated { MANY_BYTES } else { FEW_BYTES }
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
    fn those_that_hold_nothing_are_bounded() {
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
