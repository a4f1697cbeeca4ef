//! Health and metrics of a gateway that follows the policy objects of its upstream.

use std::sync::Arc;

use fairgate_observe::{HealthChecks, Telemetry, catalogue};
use fairgate_policy_sources::kube::SyncStatus;

/// Whether the policy is in sync with the upstream.
#[derive(Clone, Debug)]
pub(crate) struct SourceStatus {
    status: Arc<SyncStatus>,
}

impl SourceStatus {
    pub(crate) fn new(status: Arc<SyncStatus>) -> Self {
        Self { status }
    }

    /// Adds the status to the health checks.
    pub(crate) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let status = Arc::clone(&self.status);
        checks.note("source", move || status.problem())
    }

    /// Registers the metric `fairgate_source_age_seconds`.
    pub(crate) fn register_metrics(&self, telemetry: &Telemetry) {
        let status = Arc::clone(&self.status);
        telemetry
            .metrics()
            .observe_gauge(&catalogue::SOURCE_AGE, move || status.age().as_secs_f64());
    }

    /// The policy in force since the start is the last good one.
    pub(crate) fn started_with_last_good(&self) {
        self.status.started_with_last_good();
    }

    /// Why the objects are out of date, if they are.
    pub(crate) fn problem(&self) -> Option<String> {
        self.status.problem()
    }
}
