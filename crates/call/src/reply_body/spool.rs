//! The memory for replies whose clients read too slowly, and its counters.
//!
//! Users share it: one may have at most as much as is still free ([`ByteBudget`]), so clients of one user cannot take it from others.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fairgate_base::account::{ByteBudget, ByteShare};

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
#[derive(Debug)]
pub struct Spool {
    budget: Arc<ByteBudget>,
    answers: AtomicU64,
    cut: [AtomicU64; 2],
}

/// Why the gateway ended the reply to a slow client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// Its reply did not fit into the spool, it read too slowly, and no seat of its level was free.
    NoSeatFree,
    /// It read too slowly from the spool, of which its user had as much as was left for all.
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
    /// A spool of `total` bytes ([`SpoolLimits::total`]).
    pub fn new(total: u64) -> Self {
        Self {
            budget: ByteBudget::new(bytes_of(total)),
            answers: AtomicU64::default(),
            cut: Default::default(),
        }
    }

    /// Changes the number of bytes that may be in use. What is spooled already stays.
    pub fn set_total(&self, total: u64) {
        self.budget.set_total(bytes_of(total));
    }

    /// The number of bytes in use.
    pub fn bytes(&self) -> u64 {
        self.budget.held().now as u64
    }

    /// The most bytes that were ever in use.
    pub fn most_bytes(&self) -> u64 {
        self.budget.held().most as u64
    }

    /// The number of bytes in use by replies to one user.
    pub fn bytes_of(&self, user: &str) -> u64 {
        self.budget.held_by(user) as u64
    }

    /// Whether something more may be spooled for a user.
    pub(super) fn has_room(&self, user: &str) -> bool {
        self.budget.has_room(user, 1)
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

fn bytes_of(total: u64) -> usize {
    usize::try_from(total).unwrap_or(usize::MAX)
}

/// The share of the spool that one reply uses; returned when dropped.
#[derive(Debug)]
pub(super) struct SpoolShare {
    share: ByteShare,
    /// What is spooled, in bytes.
    bytes: u64,
    /// What the client's connection has taken and not sent yet, in bytes.
    unread: usize,
}

impl SpoolShare {
    /// An empty share for a reply to `user`.
    pub(super) fn new(spool: &Spool, user: &str) -> Self {
        Self {
            share: spool.budget.share(user),
            bytes: 0,
            unread: 0,
        }
    }

    pub(super) fn user(&self) -> &str {
        self.share.payer()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether its user may have more.
    pub(super) fn has_room(&self) -> bool {
        self.share.has_room(1)
    }

    /// Whether it may take another frame. The limits are checked before the frame's length is known, and several
    /// cores may check at the same time, so a user may exceed its part by one frame for each core.
    pub(super) fn may_grow(&self, limits: SpoolLimits) -> bool {
        self.bytes < limits.per_answer && self.has_room()
    }

    /// What the client's connection has taken and not sent is so many bytes now. Not limited by what may be spooled of one reply.
    pub(super) fn set_unread(&mut self, bytes: usize) {
        self.share
            .give_back(std::mem::replace(&mut self.unread, bytes));
        self.share.take_beyond(bytes);
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.share.take_beyond(bytes);
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
        self.share.give_back(bytes);
    }

    /// Gives back what is spooled.
    pub(super) fn give_back_all(&mut self) {
        self.give_back(bytes_of(self.bytes));
    }
}
