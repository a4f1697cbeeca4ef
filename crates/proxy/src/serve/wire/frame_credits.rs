//! Limits HTTP/2 frames that carry no request: each costs a credit.
//!
//! A connection earns credits with requests, with data of replies (which clients acknowledge), and over time. A
//! client that sends other frames faster than that floods the gateway.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Credits of a new connection, and the most that it earns for the time between two refills.
pub(super) const INITIAL: u32 = 4096;
/// Credits for each second.
pub(super) const PER_SECOND: u32 = 512;
/// Credits for each request.
pub(super) const PER_REQUEST: u32 = 32;
/// Credits for each frame of a reply; there is one more for each [`PER_BYTES`] of it.
const PER_FRAME: u32 = 8;
const PER_BYTES: usize = 256;
/// The maximum number of credits of a connection.
const MAX: u32 = 1 << 16;

/// How many frames without a request a connection may still send. Only the connection's own thread uses it; it is
/// atomic because hyper requires that a connection is `Send` (see `message_state`).
#[derive(Debug)]
pub(in crate::serve) struct FrameCredits {
    left: AtomicU32,
    closing: AtomicBool,
    /// Streams that the client has reset.
    resets: AtomicU32,
}

impl Default for FrameCredits {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(INITIAL),
            closing: AtomicBool::new(false),
            resets: AtomicU32::new(0),
        }
    }
}

impl FrameCredits {
    /// This many bytes of a reply were sent.
    pub(in crate::serve) fn earn_for_data(&self, bytes: usize) {
        let for_bytes = u32::try_from(bytes / PER_BYTES).unwrap_or(MAX);
        self.earn(PER_FRAME.saturating_add(for_bytes));
    }

    /// Whether the connection is being closed.
    pub(in crate::serve) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// How many streams the client has reset.
    pub(in crate::serve) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Marks the connection as being closed.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// The client has reset a stream.
    pub(super) fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn earn(&self, credits: u32) {
        let sum = self.left().saturating_add(credits).min(MAX);
        self.left.store(sum, Ordering::Relaxed);
    }

    /// Takes one credit; false if there is none.
    pub(super) fn spend(&self) -> bool {
        let rest = self.left().checked_sub(1);
        self.left.store(rest.unwrap_or(0), Ordering::Relaxed);
        rest.is_some()
    }

    fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_bounded_on_both_sides() {
        let credits = FrameCredits::default();
        credits.earn_for_data(usize::MAX);
        assert_eq!(credits.left(), MAX);
        for _ in 0..MAX {
            assert!(credits.spend());
        }
        assert!(!credits.spend());
        credits.earn_for_data(1024);
        assert_eq!(credits.left(), PER_FRAME + 4);
    }
}
