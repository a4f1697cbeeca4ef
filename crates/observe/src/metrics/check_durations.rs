//! How long evaluating policies takes, and what is counted with it: metrics whose labels are not known before.
//!
//! Their number is bounded, and those of policies that are no longer evaluated give way to new ones. So they are not recorded by the
//! `metrics` facade, which forgets no series.

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::{
    cells::{Histogram, HistogramTotal},
    sync::{Mutex, lock},
};

use super::{
    catalogue::{APISERVER, MetricDef},
    exposition::{Exposition, LabelPairs},
};

/// Upper bounds of how long an evaluation takes, in seconds.
const BOUNDS: [f64; 12] = [
    0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0, 5.0,
];

/// The most combinations of labels of one metric. There are a few for each binding; a set of policies that changes all the
/// time would add more and more.
const MAX_SERIES: usize = 10_000;

/// How many are dropped when there are too many: those that were not counted for longest. A few at a time, since to find them takes
/// a look at all.
const DROPPED: usize = MAX_SERIES / 100;

/// Action, type of error, policy and binding: the values of the labels, in the order of the catalogue.
pub(crate) type CheckLabels = [String; 4];

/// A histogram of durations, and a counter, for each combination of so many labels.
#[derive(Debug)]
pub(crate) struct CheckDurations<const LABELS: usize>(Mutex<KnownSeries<LABELS>>);

#[derive(Debug)]
struct KnownSeries<const LABELS: usize> {
    by_labels: BTreeMap<[String; LABELS], CheckSeries>,
    /// How many durations were counted.
    observed: u64,
}

/// What is counted for a combination of labels.
#[derive(Debug)]
struct CheckSeries {
    durations: Histogram<12>,
    count: u64,
    /// The number of its last duration among all that were counted.
    last: u64,
}

impl<const LABELS: usize> Default for CheckDurations<LABELS> {
    fn default() -> Self {
        Self(Mutex::new(KnownSeries {
            by_labels: BTreeMap::new(),
            observed: 0,
        }))
    }
}

/// The labels of a metric besides that of all metrics of Kubernetes.
fn own_labels(metric: &MetricDef) -> impl Iterator<Item = &'static str> {
    let labels = metric.labels.iter().copied();
    labels.filter(|label| *label != APISERVER)
}

impl<const LABELS: usize> CheckDurations<LABELS> {
    /// Counts a duration, and adds `count` to the counter. O(log n) with n combinations of labels, and O(n) once for each [`DROPPED`]
    /// new ones beyond [`MAX_SERIES`].
    pub(crate) fn observe(&self, labels: &[String; LABELS], duration: Duration, count: u64) {
        let mut known = lock(&self.0);
        known.observed += 1;
        let number = known.observed;
        if !known.by_labels.contains_key(labels) {
            known.make_room();
            let new = CheckSeries {
                durations: Histogram::new(&BOUNDS),
                count: 0,
                last: number,
            };
            known.by_labels.insert(labels.clone(), new);
        }
        if let Some(series) = known.by_labels.get_mut(labels) {
            series.durations.observe_duration(duration);
            series.count = series.count.wrapping_add(count);
            series.last = number;
        }
    }

    /// Writes the histograms; nothing as long as nothing was counted.
    pub(crate) fn write(&self, text: &mut Exposition, metric: &MetricDef) {
        self.write_each(text, metric, |text, labels, series| {
            let mut total = HistogramTotal::default();
            series.durations.add_to(&mut total);
            text.histogram(metric, labels, &total);
        });
    }

    /// Writes the counters; nothing as long as nothing was counted.
    pub(crate) fn write_counts(&self, text: &mut Exposition, metric: &MetricDef) {
        self.write_each(text, metric, |text, labels, series| {
            text.sample(metric, labels, series.count);
        });
    }

    fn write_each(
        &self,
        text: &mut Exposition,
        metric: &MetricDef,
        write: impl Fn(&mut Exposition, LabelPairs<'_>, &CheckSeries),
    ) {
        let known = lock(&self.0);
        if known.by_labels.is_empty() {
            return;
        }
        text.family(metric);
        let write_all = |text: &mut Exposition| {
            for (values, series) in &known.by_labels {
                let values = values.iter().map(String::as_str);
                let labels: Vec<(&str, &str)> = own_labels(metric).zip(values).collect();
                write(text, &labels, series);
            }
        };
        if metric.labels.contains(&APISERVER) {
            write_all(text);
        } else {
            text.without_common_label(write_all);
        }
    }
}

impl<const LABELS: usize> KnownSeries<LABELS> {
    /// Makes room for a new combination of labels.
    fn make_room(&mut self) {
        if self.by_labels.len() < MAX_SERIES {
            return;
        }
        let mut last: Vec<u64> = self.by_labels.values().map(|series| series.last).collect();
        let (_, &mut newest_dropped, _) = last.select_nth_unstable(DROPPED - 1);
        self.by_labels
            .retain(|_, series| series.last > newest_dropped);
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::time::Time;

    use crate::metrics::gateway_metrics::GatewayMetrics;

    use super::*;

    #[test]
    fn new_policies_have_metrics_however_many_there_were_before() {
        let metrics = GatewayMetrics::new();
        let durations = metrics.policy_durations();
        let observe = |policy: &str| {
            durations.observe(&[policy.to_owned()], Duration::from_millis(1), 7);
        };
        observe("always");
        for number in 0..MAX_SERIES - 1 {
            observe(&format!("policy-{number}"));
        }
        observe("always");
        observe("new");
        let mut text = Exposition::with_label(APISERVER, "kube:6443");
        metrics.write(&mut text, Time::ZERO);
        let text = text.finish();
        let counts = |name: &str, policy: &str| {
            let sample = format!("fairgate_admission_policy_{name}{{policy=\"{policy}\"}} ");
            let mut lines = text.lines();
            lines
                .find_map(|line| line.strip_prefix(&sample))
                .map(str::to_owned)
        };
        for (policy, times) in [("always", Some(2)), ("new", Some(1)), ("policy-0", None)] {
            let count = |each: u32| times.map(|times: u32| (each * times).to_string());
            assert_eq!(
                counts("duration_seconds_count", policy),
                count(1),
                "{policy}"
            );
            assert_eq!(counts("cost_total", policy), count(7), "{policy}");
        }
        let kept = text
            .matches("fairgate_admission_policy_cost_total{")
            .count();
        assert_eq!(kept, MAX_SERIES - DROPPED + 1);
    }
}
