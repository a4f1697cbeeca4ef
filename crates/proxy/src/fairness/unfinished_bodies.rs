//! What is held of requests that wait for their bodies before they ask for a seat, and how many were too slow.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use fairgate_base::account::ByteBudget;

/// Limits on the bodies of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Bytes that requests may take in memory, all together, while they wait for their bodies without a seat. Cannot be changed
    /// later.
    pub unfinished_bytes: usize,
    /// How many bytes per second a client has to send while its request holds a seat and no seat of the level is free.
    pub min_send_rate: u64,
}

impl BodyLimits {
    /// No body is read before its request has a seat, and clients may send as slowly as they like.
    pub const NONE: Self = Self {
        unfinished_bytes: 0,
        min_send_rate: 0,
    };
}

/// Why a request was refused because its body came too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateBody {
    /// It was not there within the time that a request may wait.
    WaitLimit,
    /// Its request held a seat, and no seat of the level was free.
    NoSeatFree,
}

impl LateBody {
    /// All reasons.
    pub const ALL: [Self; 2] = [Self::WaitLimit, Self::NoSeatFree];

    /// The reason in one word, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WaitLimit => "wait-limit",
            Self::NoSeatFree => "no-seat-free",
        }
    }
}

/// The requests that wait for their bodies, all cores together, and counters.
#[derive(Debug)]
pub struct UnfinishedBodies {
    budget: Arc<ByteBudget>,
    waiting: AtomicU32,
    late: [AtomicU64; 2],
}

impl UnfinishedBodies {
    pub(super) fn new(limits: BodyLimits) -> Self {
        Self {
            budget: ByteBudget::new(limits.unfinished_bytes),
            waiting: AtomicU32::new(0),
            late: Default::default(),
        }
    }

    /// The bytes that they take, shared fairly among users.
    pub fn budget(&self) -> &Arc<ByteBudget> {
        &self.budget
    }

    /// How many requests wait for their bodies.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Requests that were refused for this reason since the start.
    pub fn late(&self, why: LateBody) -> u64 {
        self.late[why as usize].load(Ordering::Relaxed)
    }

    pub(super) fn count_late(&self, why: LateBody) {
        self.late[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn begin_waiting(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
