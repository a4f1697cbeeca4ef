//! Metrics of admission policies for forwarded requests.
//!
//! They are counted by the thread that writes the audit log, not on the data cores.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fairgate_admitter::AdmissionRecord;
use fairgate_core::{
    cells::{Histogram, HistogramTotal},
    sync::{Mutex, lock},
};

use super::{
    catalogue::{self, APISERVER, MetricDef},
    exposition::Exposition,
    gateway_metrics::GatewayMetrics,
};

/// Upper bounds of how long judging takes, in seconds.
const BOUNDS: [f64; 12] = [
    0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0, 5.0,
];

/// The most combinations of labels of one metric. There are a few for each binding; a set of policies that changes all the
/// time would add more and more.
const MAX_SERIES: usize = 10_000;

/// Counts what policies do.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    metrics: Arc<GatewayMetrics>,
    durations: Arc<CheckDurations>,
    /// The policies whose costs are counted.
    policies: BTreeSet<String>,
}

/// Action, type of error, policy and binding: the values of the labels, in the order of the catalogue.
type CheckLabels = [String; 4];

/// A histogram of durations for each combination of labels.
#[derive(Debug, Default)]
pub(crate) struct CheckDurations(Mutex<BTreeMap<CheckLabels, Histogram<12>>>);

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
            if self.durations.observe(&values, record.judging) {
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

/// The labels of a metric besides that of all metrics of Kubernetes.
fn own_labels(metric: &MetricDef) -> impl Iterator<Item = &'static str> {
    let labels = metric.labels.iter().copied();
    labels.filter(|label| *label != APISERVER)
}

impl CheckDurations {
    /// Counts a duration; `false` if there are too many combinations of labels.
    fn observe(&self, labels: &CheckLabels, duration: Duration) -> bool {
        let mut histograms = lock(&self.0);
        if !histograms.contains_key(labels) {
            if histograms.len() >= MAX_SERIES {
                return false;
            }
            histograms.insert(labels.clone(), Histogram::new(&BOUNDS));
        }
        if let Some(histogram) = histograms.get(labels) {
            histogram.observe_duration(duration);
        }
        true
    }

    /// Writes the metric; nothing as long as nothing was counted.
    pub(super) fn write(&self, text: &mut Exposition, metric: &MetricDef) {
        let histograms = lock(&self.0);
        if histograms.is_empty() {
            return;
        }
        text.family(metric);
        for (values, histogram) in &*histograms {
            let labels: Vec<(&str, &str)> = own_labels(metric)
                .zip(values.iter().map(String::as_str))
                .collect();
            let mut total = HistogramTotal::default();
            histogram.add_to(&mut total);
            text.histogram(metric, &labels, &total);
        }
    }
}
