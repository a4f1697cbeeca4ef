//! The memory for replies whose clients read too slowly, and its counters.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// How much may be spooled, and how fast clients have to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// The maximum number of bytes spooled for one reply.
    pub per_answer: u64,
    /// The maximum number of bytes spooled for all replies, on all cores.
    pub total: u64,
    /// Bytes that a client has to read between two checks. In the configuration this is a rate per second.
    pub min_read_bytes: u64,
}

impl SpoolLimits {
    /// Disables spooling.
    pub const NONE: Self = Self {
        per_answer: 0,
        total: 0,
        min_read_bytes: 0,
    };
}

/// The memory in use by spooled replies on all cores, and counters.
#[derive(Debug, Default)]
pub struct Spool {
    bytes: AtomicU64,
    most_bytes: AtomicU64,
    answers: AtomicU64,
    cut: [AtomicU64; 2],
}

/// Why the gateway ended the reply to a slow client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// Its reply did not fit into the spool, it read too slowly, and no seat of its level was free.
    NoSeatFree,
    /// It read too slowly from the spool, and the spool was full.
    SpoolFull,
}

impl CutReason {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::NoSeatFree, Self::SpoolFull];

    /// The reason in one word, for metrics and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSeatFree => "no-seat-free",
            Self::SpoolFull => "spool-full",
        }
    }
}

impl Spool {
    /// The number of bytes in use.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever in use.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// Replies that were spooled since the start, at least in part.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Counts a reply that is spooled.
    pub fn count_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Clients whose replies were ended for this reason since the start.
    pub fn cut(&self, why: CutReason) -> u64 {
        self.cut[why as usize].load(Ordering::Relaxed)
    }

    /// Counts a client whose reply was ended.
    pub fn count_cut(&self, why: CutReason) {
        self.cut[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The share of the spool that one reply uses; returned when dropped.
#[derive(Debug)]
pub(super) struct SpoolShare {
    spool: Arc<Spool>,
    bytes: u64,
}

impl SpoolShare {
    pub(super) fn new(spool: &Arc<Spool>) -> Self {
        Self {
            spool: Arc::clone(spool),
            bytes: 0,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it may take another frame. The limits are checked before the frame's length is known, and several
    /// cores may check at the same time, so the total may exceed its limit by one frame for each core.
    pub(super) fn may_grow(&self, limits: SpoolLimits) -> bool {
        self.bytes < limits.per_answer && self.spool.bytes() < limits.total
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
        let before = self.spool.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = before.saturating_add(bytes);
        self.spool.most_bytes.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.spool.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for SpoolShare {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}
