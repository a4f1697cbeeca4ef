//! Limits that all connections share, and counters of clients that violate HTTP or exceed limits.
//!
//! Such clients are cut off before their requests reach the stack, which counts and logs requests. So these events
//! are counted here, and logged at a bounded rate.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::head_budget::HeadBudget;
use fairgate_base::{clock::Clock, log_limit::LogLimit};

/// Log lines in 10 s.
const LINES: u32 = 10;

/// Why a client was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// A head or body was malformed or ambiguous.
    Malformed,
    /// A head was larger than is allowed.
    TooLarge,
    /// A head took too long.
    TooSlow,
    /// The unfinished heads of all clients took too much memory, and this one most of it.
    Memory,
    /// Another violation of the protocol.
    Protocol,
    /// Too many `WINDOW_UPDATE` frames.
    WindowUpdates,
    /// Too many `PING` frames.
    Pings,
    /// Too many `SETTINGS` frames.
    Settings,
    /// Too many `PRIORITY` frames.
    Priorities,
    /// Too many `RST_STREAM` frames.
    Resets,
    /// Too many `CONTINUATION` frames.
    Continuations,
    /// Too many frames of unknown types.
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

    /// The type of the frames that were too many, as in RFC 9113; `None` for other offences.
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

    /// The offence in one word.
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

/// Limits and counters that the connections of all cores share.
#[derive(Debug)]
pub struct Defence {
    /// The memory of unfinished heads.
    pub heads: Arc<HeadBudget>,
    counts: [AtomicU64; Offence::ALL.len()],
    log: LogLimit,
    clock: Clock,
}

impl Defence {
    /// Unfinished heads may take up to `head_bytes` of memory in total.
    pub fn new(head_bytes: usize, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            heads: HeadBudget::new(head_bytes),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            log: LogLimit::new(LINES),
            clock,
        })
    }

    /// How often it happened.
    pub fn count(&self, offence: Offence) -> u64 {
        self.counts[offence as usize].load(Ordering::Relaxed)
    }

    /// Counts an offence of the client at `remote`, and logs it unless there are too many. `detail` is only
    /// logged.
    pub fn record(&self, offence: Offence, remote: SocketAddr, detail: &str) {
        self.counts[offence as usize].fetch_add(1, Ordering::Relaxed);
        let Some(left_out) = self.log.next_line(self.clock.now()) else {
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

    /// The time, for budgets.
    pub(super) fn now(&self) -> tokio::time::Instant {
        self.clock.instant(self.clock.now())
    }
}
