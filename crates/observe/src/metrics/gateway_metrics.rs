//! The metrics that are recorded by the `metrics` facade: what is counted rarely.
//!
//! Only counters and gauges: neither grows, however long nobody scrapes. Histograms are cells of our own
//! ([`SharedHistogram`]) for the same reason. What is counted on every
//! request is kept in cells instead ([`crate::counting::cell_metrics`]). Values that another part of the gateway
//! keeps are *observed*: read at each scrape. Code without a [`GatewayMetrics`] at hand uses the facade's
//! macros with the names of the [`super::catalogue`], once [`GatewayMetrics::install`] was called.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
};

use metrics::{Counter, Gauge, Label, SharedString, counter, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;

use super::{
    catalogue::{self, MetricDef},
    check_durations::CheckDurations,
    exposition::Exposition,
    policy_warnings::WarningGauges,
    shared_histogram::SharedHistogram,
};
use fairgate_core::{
    finding::Finding,
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_upstream::lookup::LookupOutcome;

/// The metrics of the gateway that are recorded by the `metrics` facade.
pub struct GatewayMetrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    policy_loads: [Counter; 2],
    policy_generation: Gauge,
    policy_warnings: Gauge,
    warning_reasons: WarningGauges,
    policy_applied_at: Mutex<Option<Time>>,
    policy_age: Gauge,
    config_reloads: [Counter; 2],
    config_reloaded: Gauge,
    // Exposed from the first event on: a gateway without an upstream does not show them.
    token_reviews: LazyLock<[Counter; 3], Register<[Counter; 3]>>,
    access_reviews: LazyLock<[Counter; 3], Register<[Counter; 3]>>,
    upstream: LazyLock<UpstreamMetrics, Register<UpstreamMetrics>>,
    panics: Counter,
    log_dropped: Counter,
    admin_cut: [Counter; 2],
    /// Whether it is the recorder of the process.
    is_global: AtomicBool,
    observed: Mutex<Vec<Observed>>,
    histograms: Mutex<BTreeMap<&'static str, Arc<SharedHistogram>>>,
    check_durations: Arc<CheckDurations<4>>,
    policy_durations: Arc<CheckDurations<1>>,
}

type Read<T> = Box<dyn Fn() -> T + Send + Sync>;

/// A metric whose value is read at each scrape.
enum Observed {
    Gauge(Gauge, Read<f64>),
    Counter(Counter, Read<u64>),
}

/// Why a connection of the admin port was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminConnectionCut {
    /// The limit was reached, and a new connection took its place.
    Crowded,
    /// It sent no complete request in time.
    TooSlow,
}

/// The position of an outcome among the counters of a kind of reviews.
fn position(outcome: LookupOutcome) -> usize {
    match outcome {
        LookupOutcome::Positive => 0,
        LookupOutcome::Negative => 1,
        LookupOutcome::Failed => 2,
    }
}

type Register<T> = Box<dyn FnOnce() -> T + Send>;

struct UpstreamMetrics {
    connections: Gauge,
    opened: Counter,
    errors: [Counter; 2],
    abandoned: [Counter; 2],
    retries: Counter,
}

/// How an upstream response ended whose client had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonedStreamEnd {
    /// The upstream completed it.
    Completed,
    /// The gateway reset the stream.
    Reset,
}

/// What failed about an upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// It could not be opened.
    Connect,
    /// It broke.
    Lost,
}

impl GatewayMetrics {
    /// All metrics at zero. They are exposed by this value alone, so one process may hold several.
    pub fn new() -> Arc<Self> {
        let recorder = Arc::new(PrometheusBuilder::new().build_recorder());
        let metrics = with_local_recorder(&recorder, || {
            gauge!(catalogue::BUILD_INFO.name, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            Self {
                handle: recorder.handle(),
                policy_loads: outcomes(&catalogue::POLICY_LOADS, ["failed", "ok"]),
                policy_generation: gauge!(catalogue::POLICY_GENERATION.name),
                policy_warnings: gauge!(catalogue::POLICY_WARNINGS.name),
                warning_reasons: WarningGauges::new(),
                policy_applied_at: Mutex::default(),
                policy_age: gauge!(catalogue::POLICY_AGE.name),
                config_reloads: outcomes(&catalogue::CONFIG_RELOADS, ["failed", "ok"]),
                config_reloaded: {
                    let gauge = gauge!(catalogue::CONFIG_RELOADED.name);
                    gauge.set(1.0);
                    gauge
                },
                token_reviews: lazily(&recorder, || {
                    outcomes(&catalogue::TOKEN_REVIEWS, ["accepted", "refused", "failed"])
                }),
                access_reviews: lazily(&recorder, || {
                    outcomes(&catalogue::ACCESS_REVIEWS, ["allowed", "denied", "failed"])
                }),
                upstream: lazily(&recorder, || UpstreamMetrics {
                    connections: gauge!(catalogue::UPSTREAM_CONNECTIONS.name),
                    opened: counter!(catalogue::UPSTREAM_OPENED.name),
                    errors: outcomes(&catalogue::UPSTREAM_ERRORS, ["connect", "lost"]),
                    abandoned: outcomes(&catalogue::UPSTREAM_ABANDONED, ["ended", "reset"]),
                    retries: counter!(catalogue::UPSTREAM_SENT_AGAIN.name),
                }),
                panics: counter!(catalogue::PANICS.name),
                log_dropped: counter!(catalogue::LOG_DROPPED.name),
                admin_cut: ["crowded", "too-slow"]
                    .map(|reason| counter!(catalogue::ADMIN_CUT.name, "reason" => reason)),
                is_global: AtomicBool::new(false),
                observed: Mutex::default(),
                histograms: Mutex::default(),
                check_durations: Arc::default(),
                policy_durations: Arc::default(),
                recorder: Arc::clone(&recorder),
            }
        });
        Arc::new(metrics)
    }

    /// Makes this the recorder of the facade's macros everywhere in the process. False if there is one
    /// already. From then on the metrics of the process are exposed, too.
    pub fn install(&self) -> bool {
        let installed = metrics::set_global_recorder(Arc::clone(&self.recorder)).is_ok();
        self.is_global.store(installed, Ordering::Relaxed);
        installed
    }

    /// Installs a panic hook that counts the panics of the process, and logs each in one line instead of printing it if
    /// there is a logger. For a program that starts gateways itself; the command `serve` does so.
    pub fn install_panic_hook(&self) {
        let panics = self.panics.clone();
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            panics.increment(1);
            if !tracing::dispatcher::has_been_set() {
                return print(info);
            }
            let payload = info.payload();
            let message = payload
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let location = info.location().map(ToString::to_string);
            tracing::error!(message, location, "panic");
        }));
    }

    /// A set of policy objects came into force at `now`, with these warnings.
    pub fn policy_applied(&self, now: Time, warnings: &[Finding]) {
        let count = u32::try_from(warnings.len()).unwrap_or(u32::MAX);
        self.policy_warnings.set(f64::from(count));
        self.warning_reasons.set(warnings);
        self.policy_loads[1].increment(1);
        self.policy_generation.increment(1.0);
        *lock(&self.policy_applied_at) = Some(now);
    }

    /// A set of policy objects was rejected; the last good one stays in force.
    pub fn policy_rejected(&self) {
        self.policy_loads[0].increment(1);
    }

    /// The configuration was read again; `applied` unless it had errors.
    pub fn config_reloaded(&self, applied: bool) {
        self.config_reloads[usize::from(applied)].increment(1);
        self.config_reloaded.set(f64::from(u8::from(applied)));
    }

    /// A `TokenReview` ended.
    pub fn token_reviewed(&self, outcome: LookupOutcome) {
        self.token_reviews[position(outcome)].increment(1);
    }

    /// A `SubjectAccessReview` ended.
    pub fn access_reviewed(&self, outcome: LookupOutcome) {
        self.access_reviews[position(outcome)].increment(1);
    }

    /// A connection to the upstream was opened.
    pub fn upstream_opened(&self) {
        self.upstream.opened.increment(1);
        self.upstream.connections.increment(1.0);
    }

    /// A connection to the upstream was closed.
    pub fn upstream_closed(&self) {
        self.upstream.connections.decrement(1.0);
    }

    /// An upstream response ended whose client had left.
    pub fn upstream_abandoned(&self, end: AbandonedStreamEnd) {
        self.upstream.abandoned[end as usize].increment(1);
    }

    /// A request was sent to the upstream a second time.
    pub fn upstream_retried(&self) {
        self.upstream.retries.increment(1);
    }

    /// An upstream connection could not be opened, or broke.
    pub fn upstream_failed(&self, failure: UpstreamFailure) {
        self.upstream.errors[failure as usize].increment(1);
    }

    /// A connection of the admin port was closed by the gateway.
    pub(crate) fn admin_connection_cut(&self, reason: AdminConnectionCut) {
        self.admin_cut[reason as usize].increment(1);
    }

    /// The counter of log lines that were dropped.
    pub(crate) fn log_dropped(&self) -> Counter {
        self.log_dropped.clone()
    }

    /// Sets the gauge `metric` to the result of `read` at each scrape. `read` must not block.
    pub fn observe_gauge(
        &self,
        metric: &MetricDef,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let gauge = with_local_recorder(&self.recorder, || gauge!(metric.name));
        lock(&self.observed).push(Observed::Gauge(gauge, Box::new(read)));
    }

    /// The same, for one value of the metric's label.
    pub fn observe_labelled_gauge(
        &self,
        metric: &MetricDef,
        (label, value): (&'static str, impl Into<SharedString>),
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let value = value.into();
        let gauge = with_local_recorder(&self.recorder, || gauge!(metric.name, label => value));
        lock(&self.observed).push(Observed::Gauge(gauge, Box::new(read)));
    }

    /// The same, for one value of each of its two labels.
    pub fn observe_gauge_of_two_labels(
        &self,
        metric: &MetricDef,
        [(first, one), (second, other)]: [(&'static str, String); 2],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let gauge = with_local_recorder(
            &self.recorder,
            || gauge!(metric.name, first => one, second => other),
        );
        lock(&self.observed).push(Observed::Gauge(gauge, Box::new(read)));
    }

    /// Sets the counter `metric` to the result of `read` at each scrape. `read` must not block.
    pub fn observe_counter(
        &self,
        metric: &MetricDef,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let counter = with_local_recorder(&self.recorder, || counter!(metric.name));
        lock(&self.observed).push(Observed::Counter(counter, Box::new(read)));
    }

    /// The same, for one value of the metric's label.
    pub fn observe_labelled_counter(
        &self,
        metric: &MetricDef,
        (label, value): (&'static str, impl Into<SharedString>),
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let value = value.into();
        let counter = with_local_recorder(&self.recorder, || counter!(metric.name, label => value));
        lock(&self.observed).push(Observed::Counter(counter, Box::new(read)));
    }

    /// The same, for one value of each of its two labels.
    pub fn observe_counter_of_two_labels(
        &self,
        metric: &MetricDef,
        labels: [(&'static str, &'static str); 2],
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let counter = self.counter_of_two_labels(metric, labels);
        lock(&self.observed).push(Observed::Counter(counter, Box::new(read)));
    }

    /// A counter of `metric`, which has no labels.
    pub fn unlabelled_counter(&self, metric: &MetricDef) -> Counter {
        with_local_recorder(&self.recorder, || counter!(metric.name))
    }

    /// A counter of `metric` for one value of its label.
    pub fn labelled_counter(
        &self,
        metric: &MetricDef,
        name: &'static str,
        value: &'static str,
    ) -> Counter {
        with_local_recorder(&self.recorder, || counter!(metric.name, name => value))
    }

    /// A counter of `metric` for one value of each of its two labels.
    pub fn counter_of_two_labels(
        &self,
        metric: &MetricDef,
        labels: [(&'static str, &'static str); 2],
    ) -> Counter {
        with_local_recorder(&self.recorder, || counter!(metric.name, &labels))
    }

    /// A counter of `metric` for values of its labels that are known only now. The caller bounds how many there are.
    pub(crate) fn counter_of_labels(
        &self,
        metric: &MetricDef,
        labels: impl Iterator<Item = (&'static str, String)>,
    ) -> Counter {
        let labels: Vec<Label> = labels
            .map(|(name, value)| Label::new(name, value))
            .collect();
        with_local_recorder(&self.recorder, || counter!(metric.name, labels))
    }

    /// The histograms and counters of the evaluations that Kubernetes counts.
    pub(crate) fn check_durations(&self) -> Arc<CheckDurations<4>> {
        Arc::clone(&self.check_durations)
    }

    /// The histograms of all evaluations, and the counters of their cost, by policy.
    pub(crate) fn policy_durations(&self) -> Arc<CheckDurations<1>> {
        Arc::clone(&self.policy_durations)
    }

    /// The histogram `metric`, with an empty one for each value of its label.
    pub fn histogram(
        &self,
        metric: &'static MetricDef,
        values: &[&'static str],
    ) -> Arc<SharedHistogram> {
        let histogram = Arc::new(SharedHistogram::new(metric, values));
        lock(&self.histograms).insert(metric.name, Arc::clone(&histogram));
        histogram
    }

    /// Frees what the exporter keeps for histograms, should a library record one. To be called every few
    /// seconds.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// Writes all metrics in alphabetical order. Those that nothing was recorded for are left out.
    pub(crate) fn write(&self, text: &mut Exposition, now: Time) {
        if let Some(since) = *lock(&self.policy_applied_at) {
            self.policy_age.set(now.since(since).as_secs_f64());
        }
        for observed in &*lock(&self.observed) {
            match observed {
                Observed::Gauge(gauge, read) => gauge.set(read()),
                Observed::Counter(counter, read) => counter.absolute(read()),
            }
        }
        if self.is_global.load(Ordering::Relaxed) {
            with_local_recorder(&self.recorder, || Collector::default().collect());
        }
        let rendered = self.handle.render();
        let mut samples = samples_by_name(&rendered);
        let histograms = lock(&self.histograms).clone();
        let mut metrics: Vec<&MetricDef> = catalogue::FACADE_METRICS.iter().collect();
        metrics.sort_unstable_by_key(|metric| metric.name);
        for metric in metrics {
            if let Some(lines) = samples.remove(metric.name) {
                text.family(metric);
                if metric.labels.contains(&catalogue::APISERVER) {
                    text.lines_with_common_label(lines);
                } else {
                    text.lines(lines);
                }
            }
            if let Some(histogram) = histograms.get(metric.name) {
                histogram.write(text);
            }
            self.write_of_policies(text, metric);
        }
        debug_assert!(
            samples.is_empty(),
            "not in the catalogue: {:?}",
            samples.keys()
        );
    }

    /// Writes a metric of the evaluation of policies; nothing if it is another one.
    fn write_of_policies(&self, text: &mut Exposition, metric: &MetricDef) {
        if metric.name == catalogue::ADMISSION_CHECKS.name {
            self.check_durations.write_counts(text, metric);
        } else if metric.name == catalogue::ADMISSION_CHECK_DURATION.name {
            self.check_durations.write(text, metric);
        } else if metric.name == catalogue::ADMISSION_COST.name {
            self.policy_durations.write_counts(text, metric);
        } else if metric.name == catalogue::ADMISSION_POLICY_DURATION.name {
            self.policy_durations.write(text, metric);
        }
    }
}

impl fmt::Debug for GatewayMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayMetrics").finish_non_exhaustive()
    }
}

/// Metrics that are registered when they are first recorded.
fn lazily<T: 'static>(
    recorder: &Arc<PrometheusRecorder>,
    register: fn() -> T,
) -> LazyLock<T, Register<T>> {
    let recorder = Arc::clone(recorder);
    LazyLock::new(Box::new(move || with_local_recorder(&recorder, register)))
}

fn outcomes<const N: usize>(metric: &MetricDef, names: [&'static str; N]) -> [Counter; N] {
    names.map(|outcome| counter!(metric.name, "outcome" => outcome))
}

/// The sample lines of the exporter's text by the name of their metric, each metric's in alphabetical
/// order: the exporter keeps them in hash maps.
fn samples_by_name(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut samples: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let is_sample = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in text.lines().filter(is_sample) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        samples.entry(name).or_default().push(line);
    }
    for lines in samples.values_mut() {
        lines.sort_unstable();
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fairgate_core::finding::Severity;

    fn written(metrics: &GatewayMetrics) -> String {
        let mut text = Exposition::default();
        metrics.write(&mut text, Time::ZERO.plus(Duration::from_secs(3)));
        text.finish()
    }

    #[test]
    fn the_last_reload_decides_whether_the_configuration_is_that_of_the_file() {
        let metrics = GatewayMetrics::new();
        let shows = |value: u8| {
            let line = format!("fairgate_config_last_reload_successful {value}");
            let text = written(&metrics);
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        };
        shows(1);
        metrics.config_reloaded(false);
        shows(0);
        metrics.config_reloaded(false);
        shows(0);
        metrics.config_reloaded(true);
        shows(1);
    }

    #[test]
    fn recorded_metrics_are_written_in_a_fixed_order() {
        let metrics = GatewayMetrics::new();
        let warning = Finding {
            severity: Severity::Warning,
            origin: "a.yaml".into(),
            kind: "FlowSchema".into(),
            name: "a".into(),
            field: "spec.rules".into(),
            message: "matches nothing".into(),
            remedy: "add a rule".into(),
        };
        metrics.policy_applied(Time::ZERO, &[warning.clone(), warning]);
        metrics.policy_rejected();
        metrics.token_reviewed(LookupOutcome::Negative);
        metrics.observe_gauge(&catalogue::CONNECTIONS, || 7.0);
        metrics.observe_labelled_gauge(&catalogue::ENFORCEMENT, ("mode", "off"), || 1.0);
        let text = written(&metrics);
        assert!(
            !text.contains("fairgate_upstream"),
            "nothing was recorded for it"
        );
        for line in [
            "# TYPE fairgate_connections gauge",
            "fairgate_connections 7",
            "fairgate_enforcement{mode=\"off\"} 1",
            "fairgate_policy_age_seconds 3",
            "fairgate_policy_generation 1",
            "fairgate_policy_loads_total{outcome=\"failed\"} 1",
            "fairgate_policy_loads_total{outcome=\"ok\"} 1",
            "fairgate_policy_warnings 2",
            "fairgate_policy_warning_reasons{reason=\"schema-unreached\"} 2",
            "fairgate_policy_warning_reasons{reason=\"other\"} 0",
            "fairgate_token_reviews_total{outcome=\"accepted\"} 0",
            "fairgate_token_reviews_total{outcome=\"refused\"} 1",
            "fairgate_panics_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text, written(&metrics));
        let names: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
