//! What the controller asks for, and what it tells about itself.

use std::time::Duration;

use fairgate_core::time::Time;
use serde_json::Value;

use super::object_key::ObjectKey;
use crate::pod::ControllerRef;

/// A sync that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncReport {
    /// How it ended.
    pub ending: SyncEnding,
    /// How long it took, lookups and writes included.
    pub took: Duration,
}

/// How a sync of a budget ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEnding {
    /// The status was written.
    Written,
    /// The status was up to date, or the budget was deleted.
    Unchanged,
    /// The budget changed during the sync, and will be synced again.
    Conflict,
    /// The status could not be computed or written.
    Failed,
}

impl SyncEnding {
    /// All endings.
    pub const ALL: [Self; 4] = [Self::Written, Self::Unchanged, Self::Conflict, Self::Failed];

    /// The name of the ending in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Unchanged => "unchanged",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
        }
    }
}

/// The number of cached objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerCounts {
    /// The number of pods.
    pub pods: usize,
    /// The number of budgets.
    pub budgets: usize,
    /// The number of budgets that allow no disruption now.
    pub exhausted: usize,
    /// The number of budgets that select nothing because the selectors of their namespace exceed the limit.
    pub over_limit: usize,
}

/// The operation that the controller needs next.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerStep {
    /// Look up the scale of an owner in this namespace, then call
    /// [`DisruptionController::looked_up`](super::DisruptionController::looked_up).
    LookUp(Box<str>, ControllerRef),
    /// PUT the object to `/status` of the budget, then call [`DisruptionController::written`](super::DisruptionController::written).
    WriteStatus(ObjectKey, Value),
    /// PATCH `/status` of the pod with this strategic merge patch, then call [`DisruptionController::patched`](super::DisruptionController::patched).
    PatchPod(ObjectKey, Value),
    /// There is more to compute: ask again, after other work of the thread.
    Continue,
    /// Nothing to do before this time, unless an object changes.
    Wait(Option<Time>),
}

/// The outcome of a status write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusWriteOutcome {
    /// The status was stored.
    Written,
    /// 409: the budget has changed. The new version arrives by watch.
    Conflict,
    /// Any other error, with its message. The status may have been stored.
    Failed(String),
}
