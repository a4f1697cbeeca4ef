//! Metrics of admission policies.
//!
//! They are counted by the thread that writes the audit log, not on the data cores.

use std::sync::Arc;

use fairgate_admission::AdmissionRecord;

use super::{
    catalogue,
    check_durations::{CheckDurations, CheckLabels},
    gateway_metrics::GatewayMetrics,
};

/// Counts what policies do.
#[derive(Debug)]
pub struct AdmissionMetrics {
    metrics: Arc<GatewayMetrics>,
    durations: Arc<CheckDurations<4>>,
    /// Those of all evaluations, by policy.
    policy_durations: Arc<CheckDurations<1>>,
}

impl AdmissionMetrics {
    /// Counts into `metrics`.
    pub fn new(metrics: &Arc<GatewayMetrics>) -> Self {
        Self {
            durations: metrics.check_durations(),
            policy_durations: metrics.policy_durations(),
            metrics: Arc::clone(metrics),
        }
    }

    /// Counts an evaluated request.
    pub fn count(&self, record: &AdmissionRecord) {
        let labels = [
            ("decision", record.decision.as_str()),
            ("mode", record.mode.as_str()),
        ];
        self.metrics
            .counter_of_two_labels(&catalogue::ADMISSION_REQUESTS, labels)
            .increment(1);
        if let Some(guard) = record.guard {
            let labels = [("guard", guard.as_str().to_owned())].into_iter();
            let guards = (self.metrics).counter_of_labels(&catalogue::ADMISSION_GUARDS, labels);
            guards.increment(1);
        }
        for check in &record.checks {
            let Some(action) = check.action else {
                continue;
            };
            let values: CheckLabels = [
                action.label().to_owned(),
                check.error_type.to_owned(),
                check.policy.clone(),
                check.binding.clone(),
            ];
            self.durations.observe(&values, check.took, 1);
        }
        for usage in &record.usage {
            let policy = [usage.policy.clone()];
            self.policy_durations
                .observe(&policy, usage.took, usage.cost);
        }
    }
}
