//! The calls to the upstream that an eviction makes, and their outcomes.
//!
//! All calls are made with the gateway's own identity. Reads must be linearizable, which means without a
//! resource version, because nothing may be granted from a cache.

use jiff::Timestamp;
use serde_json::Value;

/// A call to the upstream. The namespace is that of the eviction's pod.
#[derive(Clone, Debug, PartialEq)]
pub enum UpstreamCall {
    /// GET the pod.
    GetPod {
        /// The name of the pod.
        name: String,
    },
    /// LIST the budgets of the namespace, or the next page of the list.
    ListBudgets {
        /// The continue token of the previous page; `None` for the first page.
        continue_token: Option<String>,
    },
    /// GET the budget.
    GetBudget {
        /// The name of the budget.
        name: String,
    },
    /// PUT this object to `/status` of the budget. It contains the resource version that was read; without
    /// it the call would overwrite concurrent changes.
    PutBudgetStatus {
        /// The name of the budget.
        name: String,
        /// The body: the whole budget.
        object: Value,
    },
    /// PATCH `/status` of the pod: a strategic merge patch.
    PatchPodStatus {
        /// The name of the pod.
        name: String,
        /// The body of the patch.
        patch: Value,
    },
    /// DELETE the pod.
    DeletePod {
        /// The name of the pod.
        name: String,
        /// The body: `DeleteOptions`.
        options: Value,
        /// Whether this is a dry run. The query must then also have `dryRun=All`, for upstreams that ignore the body of
        /// a DELETE.
        dry_run: bool,
    },
}

impl UpstreamCall {
    /// Whether the call cannot change anything.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::GetPod { .. } | Self::ListBudgets { .. } | Self::GetBudget { .. } => true,
            Self::PutBudgetStatus { .. } | Self::PatchPodStatus { .. } => false,
            Self::DeletePod { dry_run, .. } => *dry_run,
        }
    }
}

/// The outcome of a call, with its times.
#[derive(Clone, Debug, PartialEq)]
pub struct CallReply<R> {
    /// The outcome.
    pub outcome: CallOutcome<R>,
    /// When the call was sent, by the local clock.
    pub sent: Timestamp,
    /// When the response arrived or the call was given up, by the local clock.
    pub received: Timestamp,
    /// The header `Date` of the response, if there was one.
    pub date: Option<Timestamp>,
}

/// The outcome of a call. `R` is the caller's response, which is returned unchanged.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome<R> {
    /// A 2xx status with the decoded body. Only the bodies of reads and patches are used.
    Success(Value),
    /// Any other status.
    Failure {
        /// The HTTP status.
        code: u16,
        /// The response of the upstream.
        response: R,
    },
    /// The call was not sent, so it cannot have been executed.
    NotSent,
    /// The call may have been executed: the connection broke, or the call timed out.
    Unknown,
}
