//! Metrics of admission policies.
//!
//! They are counted by the thread that writes the audit log, not on the data cores.

use std::{collections::BTreeSet, sync::Arc};

use fairgate_admission::AdmissionRecord;

use super::{
    catalogue,
    check_durations::{CheckDurations, CheckLabels, MAX_SERIES, own_labels},
    gateway_metrics::GatewayMetrics,
};

/// Counts what policies do.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    metrics: Arc<GatewayMetrics>,
    durations: Arc<CheckDurations>,
    /// The policies whose costs are counted.
    policies: BTreeSet<String>,
}

impl AdmissionMetrics {
    /// Counts into `metrics`.
    pub(crate) fn new(metrics: &Arc<GatewayMetrics>) -> Self {
        Self {
            durations: metrics.check_durations(),
            metrics: Arc::clone(metrics),
            policies: BTreeSet::new(),
        }
    }

    /// Counts a judged request.
    pub(crate) fn count(&mut self, record: &AdmissionRecord) {
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
            if self.durations.observe(&values, check.took) {
                let metric = &catalogue::ADMISSION_CHECKS;
                let labels = own_labels(metric).zip(values);
                let checks = self.metrics.counter_of_labels(metric, labels);
                checks.increment(1);
            }
        }
        for (policy, cost) in &record.costs {
            if !self.policies.contains(policy) {
                if self.policies.len() >= MAX_SERIES {
                    continue;
                }
                self.policies.insert(policy.clone());
            }
            let labels = [("policy", policy.clone())].into_iter();
            let costs = self
                .metrics
                .counter_of_labels(&catalogue::ADMISSION_COST, labels);
            costs.increment(*cost);
        }
    }
}
