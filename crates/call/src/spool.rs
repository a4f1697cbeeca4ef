//! The memory for answers whose clients read too slowly, and what is counted of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// How much may be spooled, and how fast a client has to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Bytes of one answer.
    pub per_answer: u64,
    /// Bytes of all answers, on all cores.
    pub total: u64,
    /// Bytes a client has to take between two looks.
    pub min_read_bytes: u64,
}

impl SpoolLimits {
    /// Nothing is spooled.
    pub const NONE: Self = Self {
        per_answer: 0,
        total: 0,
        min_read_bytes: 0,
    };
}

/// What is spooled now, all cores together, and what has been.
#[derive(Debug, Default)]
pub struct Spool {
    bytes: AtomicU64,
    answers: AtomicU64,
    cut: [AtomicU64; 2],
}

/// Why a client was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// Its answer did not fit the spool, it read too slowly, and no seat of its level was free.
    NoSeatFree,
    /// It read too slowly from the spool, and the spool was full.
    SpoolFull,
}

impl CutReason {
    /// Both.
    pub const ALL: [Self; 2] = [Self::NoSeatFree, Self::SpoolFull];

    /// In one word, for metrics and the log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSeatFree => "no-seat-free",
            Self::SpoolFull => "spool-full",
        }
    }
}

impl Spool {
    /// Bytes of memory taken now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Answers of which anything was spooled, ever.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    /// One more answer is spooled.
    pub fn count_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Answers cut, ever.
    pub fn cut(&self, why: CutReason) -> u64 {
        self.cut[why as usize].load(Ordering::Relaxed)
    }

    /// One more answer was cut.
    pub fn count_cut(&self, why: CutReason) {
        self.cut[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// What one answer has taken of the spool; dropping it gives that back.
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

    /// Whether it may take another piece. Cores that ask at the same time, and the length of a piece,
    /// may bring the total over its limit, by a piece for each core.
    pub(super) fn may_grow(&self, limits: SpoolLimits) -> bool {
        self.bytes < limits.per_answer && self.spool.bytes() < limits.total
    }

    pub(super) fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.spool.bytes.fetch_add(bytes, Ordering::Relaxed);
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
