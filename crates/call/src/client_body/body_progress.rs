//! How fast a client sends the body of a request that holds a seat.
//!
//! The body counts what arrives, and whether its reader waits for more. `fairness` looks at it at regular intervals
//! ([`BodyProgress::is_slow`]), and may end a body whose client is too slow.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    task::Waker,
};

/// The number of checks over which a client's rate is measured.
const CHECKS: u32 = 8;

/// What is known of a body whose client has not sent all of it.
#[derive(Debug, Default)]
pub struct BodyProgress {
    /// Bytes that have arrived.
    arrived: Cell<u64>,
    /// Whether the last poll found nothing, so that the reader waits for the client.
    is_awaited: Cell<bool>,
    is_cut: Cell<bool>,
    /// The reader's task, while it waits.
    reader: RefCell<Option<Waker>>,
    /// Bytes that had arrived when the measurement began, and checks since.
    seen: Cell<u64>,
    checks: Cell<u32>,
}

impl BodyProgress {
    /// To be called at regular intervals. Returns whether the client has sent less than `min_bytes` for each of the last checks,
    /// at each of which the reader waited for it. With 0 it never is slow.
    pub fn is_slow(&self, min_bytes: u64) -> bool {
        if !self.is_awaited.get() {
            self.begin_measurement();
            return false;
        }
        self.checks.set(self.checks.get() + 1);
        if self.checks.get() < CHECKS {
            return false;
        }
        let bytes = self.arrived.get() - self.seen.get();
        self.begin_measurement();
        bytes < min_bytes.saturating_mul(CHECKS.into())
    }

    fn begin_measurement(&self) {
        self.seen.set(self.arrived.get());
        self.checks.set(0);
    }

    /// Ends the body with an error: its client is too slow.
    pub fn cut(&self) {
        self.is_cut.set(true);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Something has arrived.
    pub(super) fn arrived(&self, bytes: usize) {
        self.arrived.set(self.arrived.get() + bytes as u64);
        self.is_awaited.set(false);
    }

    /// Nothing has arrived, and the reader waits.
    pub(super) fn awaited_by(&self, reader: &Waker) {
        self.is_awaited.set(true);
        let mut known = self.reader.borrow_mut();
        if !known.as_ref().is_some_and(|known| known.will_wake(reader)) {
            *known = Some(reader.clone());
        }
    }
}

/// The progress of a body, while it is observed.
pub(super) type Observed = Option<Rc<BodyProgress>>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight checks, before each of which so many bytes arrive.
    fn measured(progress: &BodyProgress, bytes: usize, is_awaited: bool) -> bool {
        let check = |_| {
            progress.arrived(bytes);
            if is_awaited {
                progress.awaited_by(Waker::noop());
            }
            progress.is_slow(100)
        };
        (0..CHECKS).map(check).fold(false, |any, slow| any | slow)
    }

    #[test]
    fn only_a_client_that_is_waited_for_is_slow() {
        let progress = BodyProgress::default();
        assert!(measured(&progress, 99, true));
        assert!(!measured(&progress, 100, true));
        assert!(!measured(&progress, 0, false));
        assert!(measured(&progress, 0, true));
    }

    #[test]
    fn a_pause_between_two_measurements_is_not_slow() {
        let progress = BodyProgress::default();
        for _ in 0..10 {
            for _ in 1..CHECKS {
                progress.awaited_by(Waker::noop());
                assert!(!progress.is_slow(100));
            }
            progress.arrived(1);
            assert!(!progress.is_slow(100), "the upstream is the slow side");
        }
    }
}
