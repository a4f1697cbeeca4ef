//! How long evaluating policies takes: metrics whose labels are not known before.

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::{
    cells::{Histogram, HistogramTotal},
    sync::{Mutex, lock},
};

use super::{
    catalogue::{APISERVER, MetricDef},
    exposition::Exposition,
};

/// Upper bounds of how long an evaluation takes, in seconds.
const BOUNDS: [f64; 12] = [
    0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0, 5.0,
];

/// The most combinations of labels of one metric. There are a few for each binding; a set of policies that changes all the
/// time would add more and more.
pub(crate) const MAX_SERIES: usize = 10_000;

/// Action, type of error, policy and binding: the values of the labels, in the order of the catalogue.
pub(crate) type CheckLabels = [String; 4];

/// A histogram of durations for each combination of so many labels.
#[derive(Debug)]
pub(crate) struct CheckDurations<const LABELS: usize>(
    Mutex<BTreeMap<[String; LABELS], Histogram<12>>>,
);

impl<const LABELS: usize> Default for CheckDurations<LABELS> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// The labels of a metric besides that of all metrics of Kubernetes.
pub(crate) fn own_labels(metric: &MetricDef) -> impl Iterator<Item = &'static str> {
    let labels = metric.labels.iter().copied();
    labels.filter(|label| *label != APISERVER)
}

impl<const LABELS: usize> CheckDurations<LABELS> {
    /// Counts a duration; `false` if there are too many combinations of labels.
    pub(crate) fn observe(&self, labels: &[String; LABELS], duration: Duration) -> bool {
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
    pub(crate) fn write(&self, text: &mut Exposition, metric: &MetricDef) {
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
