//! What operators see of a gateway that follows the policy objects of its upstream.

use std::sync::Arc;

use crate::{
    observe::{HealthChecks, Telemetry, catalogue},
    source::kube::SyncStatus,
};

/// Whether the policy is in sync with the upstream.
#[derive(Clone, Debug)]
pub(super) struct SourceStatus {
    status: Arc<SyncStatus>,
}

impl SourceStatus {
    pub(super) fn new(status: Arc<SyncStatus>) -> Self {
        Self { status }
    }

    /// Adds what is to be known of it to the checks.
    pub(super) fn check(&self, checks: HealthChecks) -> HealthChecks {
        let status = Arc::clone(&self.status);
        checks.note("source", move || status.problem())
    }

    /// Has the metrics show it.
    pub(super) fn measure(&self, telemetry: &Telemetry) {
        let status = Arc::clone(&self.status);
        telemetry
            .metrics()
            .observe_gauge(&catalogue::SOURCE_AGE, move || status.age().as_secs_f64());
    }

    /// What is wrong, if anything is.
    pub(super) fn trouble(&self) -> Option<String> {
        self.status.problem()
    }
}
