//! What operators see of a gateway that follows the policy objects of its upstream.

use std::sync::Arc;

use crate::{
    observe::{HealthChecks, Telemetry, catalogue},
    source::kube::InStep,
};

/// How far the gateway is in step with its upstream.
#[derive(Clone, Debug)]
pub(super) struct Following {
    step: Arc<InStep>,
}

impl Following {
    pub(super) fn new(step: Arc<InStep>) -> Self {
        Self { step }
    }

    /// Adds what is to be known of it to the checks.
    pub(super) fn check(&self, checks: HealthChecks) -> HealthChecks {
        let step = Arc::clone(&self.step);
        checks.note("source", move || step.trouble())
    }

    /// Has the metrics show it.
    pub(super) fn measure(&self, telemetry: &Telemetry) {
        let step = Arc::clone(&self.step);
        telemetry
            .metrics()
            .observe_gauge(&catalogue::SOURCE_AGE, move || step.age().as_secs_f64());
    }

    /// What is wrong, if anything is.
    pub(super) fn trouble(&self) -> Option<String> {
        self.step.trouble()
    }
}
