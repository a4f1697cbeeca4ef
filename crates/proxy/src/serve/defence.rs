//! What the connections of all cores share to defend the gateway, and what they count of it.
//!
//! Clients that break HTTP's rules, or stretch them, are cut off before a request of theirs reaches
//! the stack that counts and logs requests. Here such events are counted, and logged at a bounded
//! rate.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::head_budget::HeadBudget;
use fairgate_base::{clock::Clock, log_limit::LogLimit};

/// Lines of the log in 10 s.
const LINES: u32 = 10;

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// A head or body was malformed or ambiguous.
    Malformed,
    /// A head was larger than is allowed.
    TooLarge,
    /// A head took too long.
    TooSlow,
    /// The heads of all clients took more memory than they may, and this one most of it.
    Memory,
    /// Something else was against the protocol.
    Protocol,
    /// Too many `WINDOW_UPDATE` frames.
    WindowUpdates,
    /// Too many `PING` frames.
    Pings,
    /// Too many `SETTINGS` frames.
    Settings,
    /// Too many `PRIORITY` frames.
    Priorities,
    /// Too many `RST_STREAM` frames beside requests.
    Resets,
    /// Too many `CONTINUATION` frames.
    Continuations,
    /// Too many frames of a type that nobody knows.
    Unknown,
}

impl Offence {
    /// All, in the order of their counts.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::TooLarge,
        Self::TooSlow,
        Self::Memory,
        Self::Protocol,
        Self::WindowUpdates,
        Self::Pings,
        Self::Settings,
        Self::Priorities,
        Self::Resets,
        Self::Continuations,
        Self::Unknown,
    ];

    /// The frames there were too many of, as RFC 9113 calls them; `None` if it was about something
    /// else.
    pub const fn frames(self) -> Option<&'static str> {
        match self {
            Self::WindowUpdates => Some("WINDOW_UPDATE"),
            Self::Pings => Some("PING"),
            Self::Settings => Some("SETTINGS"),
            Self::Priorities => Some("PRIORITY"),
            Self::Resets => Some("RST_STREAM"),
            Self::Continuations => Some("CONTINUATION"),
            Self::Unknown => Some("unknown"),
            _ => None,
        }
    }

    /// In one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::TooSlow => "too-slow",
            Self::Memory => "memory",
            Self::Protocol => "protocol",
            _ => "flood",
        }
    }
}

/// What the connections of all cores share to defend the gateway.
#[derive(Debug)]
pub struct Defence {
    /// What unfinished heads may take.
    pub heads: Arc<HeadBudget>,
    counts: [AtomicU64; Offence::ALL.len()],
    log: LogLimit,
    clock: Clock,
}

impl Defence {
    /// A defence under which unfinished heads take up to `head_bytes` of memory in all.
    pub fn new(head_bytes: usize, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            heads: HeadBudget::new(head_bytes),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            log: LogLimit::new(LINES),
            clock,
        })
    }

    /// How often it was seen.
    pub fn count(&self, offence: Offence) -> u64 {
        self.counts[offence as usize].load(Ordering::Relaxed)
    }

    /// Counts what the client at `remote` did, and logs it unless there is too much of it.
    /// `detail` is for people.
    pub fn record(&self, offence: Offence, remote: SocketAddr, detail: &str) {
        self.counts[offence as usize].fetch_add(1, Ordering::Relaxed);
        let Some(left_out) = self.log.admit(self.clock.now()) else {
            return;
        };
        tracing::warn!(
            %remote,
            reason = offence.as_str(),
            frames = offence.frames(),
            left_out,
            "a client was refused before its request could be read: {detail}"
        );
    }

    /// The time, for the budgets.
    pub(super) fn now(&self) -> tokio::time::Instant {
        self.clock.instant(self.clock.now())
    }
}
