//! A histogram of rare events, which any thread may record.
//!
//! The exporter of the `metrics` facade keeps every recorded value until a scrape; this keeps only counts.

use std::time::Duration;

use fairgate_core::{
    cells::{Histogram, HistogramTotal},
    sync::{Mutex, lock},
};

use super::{catalogue::MetricDef, exposition::Exposition};

/// Upper bounds of long durations, in seconds.
const BOUNDS: [f64; 12] = [
    0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0,
];

/// A histogram of durations for each value of a label.
#[derive(Debug)]
pub struct SharedHistogram {
    metric: &'static MetricDef,
    by_value: Mutex<Vec<(&'static str, Histogram<12>)>>,
}

impl SharedHistogram {
    /// Empty histograms of `metric`, which has one label, for these values of the label.
    pub(crate) fn new(metric: &'static MetricDef, values: &[&'static str]) -> Self {
        let histograms = values.iter().map(|value| (*value, Histogram::new(&BOUNDS)));
        Self {
            metric,
            by_value: Mutex::new(histograms.collect()),
        }
    }

    /// Counts a duration. Has no effect for a value that was not given at the beginning.
    pub fn observe(&self, value: &str, duration: Duration) {
        let histograms = lock(&self.by_value);
        if let Some((_, histogram)) = histograms.iter().find(|(of, _)| *of == value) {
            histogram.observe_duration(duration);
        }
    }

    /// Writes the metric.
    pub(crate) fn write(&self, text: &mut Exposition) {
        text.family(self.metric);
        let label = self.metric.labels.first().copied().unwrap_or_default();
        for (value, histogram) in &*lock(&self.by_value) {
            let mut total = HistogramTotal::default();
            histogram.add_to(&mut total);
            text.own_histogram(self.metric, &[(label, *value)], &total);
        }
    }
}
