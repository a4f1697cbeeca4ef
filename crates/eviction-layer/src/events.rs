//! What is counted: how evictions end.

use std::time::Duration;

use fairgate_disruption::EvictionMode;

/// How an eviction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionOutcome {
    /// The pod is being deleted, or would be but for the dry run.
    Granted,
    /// Not now: a budget does not allow it, or its status is not up to date.
    Refused,
    /// A retry would not help: the request is forbidden or invalid, or the pod does not exist.
    Rejected,
    /// The upstream, or the state of the objects there, did not permit a decision.
    Failed,
    /// The client disconnected before anything was changed.
    Abandoned,
}

impl EvictionOutcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [
        Self::Granted,
        Self::Refused,
        Self::Rejected,
        Self::Failed,
        Self::Abandoned,
    ];

    /// The outcome's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }

    /// The outcome that the HTTP status of a response shows.
    pub(crate) fn of_status(code: u16) -> Self {
        match code {
            200..=299 => Self::Granted,
            429 => Self::Refused,
            400..=499 => Self::Rejected,
            _ => Self::Failed,
        }
    }
}

/// An eviction that has waited for its budget has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionWaitEvent {
    /// How it ended.
    pub outcome: EvictionOutcome,
    /// The time from the first refusal to the end.
    pub waited: Duration,
}

/// An eviction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionEvent {
    /// Who decided.
    pub mode: EvictionMode,
    /// How it ended.
    pub outcome: EvictionOutcome,
}
