//! Credits that HTTP/2 frames without a request are paid with.
//!
//! A connection earns them with requests, with data of replies (which clients acknowledge), and over time. A
//! client that sends other frames faster than that floods the gateway.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Credits at the beginning, and after a quiet time.
pub(super) const AT_FIRST: u32 = 4096;
/// Credits for each second.
pub(super) const PER_SECOND: u32 = 512;
/// Credits for each request.
pub(super) const PER_REQUEST: u32 = 32;
/// Credits for each frame of a reply; there is one more for each 256 bytes of it.
const PER_PIECE: u32 = 8;
const PER_BYTES: usize = 256;
/// The most credits that can be saved up.
const MOST: u32 = 1 << 16;

/// How many frames without a request a connection may still send. Only the connection's own thread uses it; it is
/// atomic because hyper requires that a connection is `Send` (see `message_state`).
#[derive(Debug)]
pub(super) struct FrameCredits {
    left: AtomicU32,
    over: AtomicBool,
    /// Streams that the client has reset.
    resets: AtomicU32,
}

impl Default for FrameCredits {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(AT_FIRST),
            over: AtomicBool::new(false),
            resets: AtomicU32::new(0),
        }
    }
}

impl FrameCredits {
    /// This many bytes of a reply were sent.
    pub(super) fn earn_for_data(&self, bytes: usize) {
        let for_bytes = u32::try_from(bytes / PER_BYTES).unwrap_or(MOST);
        self.earn(PER_PIECE.saturating_add(for_bytes));
    }

    /// Whether the connection is being closed.
    pub(super) fn are_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How many streams the client has reset.
    pub(super) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// The connection is given up.
    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// The client has reset a stream.
    pub(super) fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn earn(&self, credits: u32) {
        let sum = self.left().saturating_add(credits).min(MOST);
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
        assert_eq!(credits.left(), MOST);
        for _ in 0..MOST {
            assert!(credits.spend());
        }
        assert!(!credits.spend());
        credits.earn_for_data(1024);
        assert_eq!(credits.left(), PER_PIECE + 4);
    }
}
