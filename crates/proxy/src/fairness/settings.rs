//! Settings of flow control.

use std::time::Duration;

use super::{long_running::Caps, unfinished_bodies::BodyLimits};
use fairgate_call::{ResetLimits, SpoolLimits};
use fairgate_core::apf::work::EstimatorSettings;

/// Whether the dispatcher's decisions are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// Decisions are enforced: requests wait, and are rejected.
    #[default]
    Enforce,
    /// Decisions are only counted; every request executes at once.
    Observe,
    /// No decisions are made.
    Off,
}

/// Settings of flow control; all may change while the gateway runs, except `resets` and the bytes of `bodies`.
#[derive(Clone, Debug)]
pub struct FlowControlSettings {
    /// Whether decisions are enforced.
    pub enforcement: Enforcement,
    /// A request's time limit; a quarter of it may be spent in a queue.
    pub request_timeout: Duration,
    /// Requests that may wait, all levels together.
    pub max_queued: u32,
    /// How costs are estimated.
    pub estimator: EstimatorSettings,
    /// How often seats are lent and borrowed; not zero.
    pub borrowing_period: Duration,
    /// Limits on long-running requests other than watches.
    pub long_running: Caps,
    /// Limits on watches.
    pub watches: Caps,
    /// How many requests a user may reset before they get a response. Cannot be changed later.
    pub resets: ResetLimits,
    /// How much of replies may be spooled whose clients read slowly, and how many bytes such a client
    /// has to read per second.
    pub spool: SpoolLimits,
    /// How much requests may take that wait for their bodies, and how fast clients have to send them.
    pub bodies: BodyLimits,
    /// Bytes that heads of requests in progress may take beyond their usual size, all levels together.
    pub long_head_bytes: usize,
}
