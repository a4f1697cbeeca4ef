//! The gateway's own metrics, `fairgate_*`, by way of the `metrics` facade.
//!
//! Only counters and gauges: neither grows, however long nobody scrapes. What is counted on every
//! request is kept in cells instead ([`super::metrics`]). Values that somebody else keeps are
//! *pulled*: asked for at each scrape. Whoever has no [`Own`] at hand counts by the facade's macros
//! under the same names, once [`Own::install`] was called.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use metrics::{
    Counter, Gauge, counter, describe_counter, describe_gauge, gauge, with_local_recorder,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::names::{self as n};
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// How a question to the upstream ended, about a token or about what somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// The token is somebody's; they may.
    Yes,
    /// It is nobody's; they may not.
    No,
    /// There was no answer.
    Failed,
}

/// The gateway's own metrics.
pub struct Own {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    policy_loads: [Counter; 2],
    policy_generation: Gauge,
    policy_warnings: Gauge,
    policy_taken_on: Mutex<Option<Time>>,
    policy_age: Gauge,
    config_reloads: [Counter; 2],
    // These show once somebody has told of them.
    token_reviews: LazyLock<[Counter; 3], Register<[Counter; 3]>>,
    access_reviews: LazyLock<[Counter; 3], Register<[Counter; 3]>>,
    upstream: LazyLock<Upstream, Register<Upstream>>,
    panics: Counter,
    log_dropped: Counter,
    admin_cut: [Counter; 2],
    pulled: Mutex<Vec<Pulled>>,
    pulled_counters: Mutex<Vec<PulledCounter>>,
}

struct PulledCounter {
    counter: Counter,
    value: Box<dyn Fn() -> u64 + Send + Sync>,
}

type Pull = Box<dyn Fn() -> f64 + Send + Sync>;

enum Pulled {
    Gauge(Gauge, Pull),
    Count(Counter, Box<dyn Fn() -> u64 + Send + Sync>),
}

/// Why a connection of the port for operators was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCut {
    /// It had to make room for another.
    Crowded,
    /// It sent no whole request in time.
    TooSlow,
}

type Register<T> = Box<dyn FnOnce() -> T + Send>;

struct Upstream {
    connections: Gauge,
    opened: Counter,
    errors: [Counter; 2],
    abandoned: [Counter; 2],
    sent_again: Counter,
}

/// How an answer that nobody wanted any more came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abandoned {
    /// By itself.
    RanOut,
    /// It was cancelled.
    Reset,
}

/// What went wrong with the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamError {
    /// No connection could be opened.
    Connect,
    /// A connection broke off.
    Lost,
}

impl Own {
    /// Metrics that have counted nothing yet, rendered by this value alone.
    pub fn new() -> Arc<Self> {
        let recorder = Arc::new(PrometheusBuilder::new().build_recorder());
        let own = with_local_recorder(&recorder, || {
            describe();
            gauge!(n::BUILD_INFO.name, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
            Self {
                handle: recorder.handle(),
                policy_loads: outcomes(&n::POLICY_LOADS, ["failed", "ok"]),
                policy_generation: gauge!(n::POLICY_GENERATION.name),
                policy_warnings: gauge!(n::POLICY_WARNINGS.name),
                policy_taken_on: Mutex::default(),
                policy_age: gauge!(n::POLICY_AGE.name),
                config_reloads: outcomes(&n::CONFIG_RELOADS, ["failed", "ok"]),
                token_reviews: lazily(&recorder, || {
                    outcomes(&n::TOKEN_REVIEWS, ["accepted", "refused", "failed"])
                }),
                access_reviews: lazily(&recorder, || {
                    outcomes(&n::ACCESS_REVIEWS, ["allowed", "denied", "failed"])
                }),
                upstream: lazily(&recorder, || Upstream {
                    connections: gauge!(n::UPSTREAM_CONNECTIONS.name),
                    opened: counter!(n::UPSTREAM_OPENED.name),
                    errors: outcomes(&n::UPSTREAM_ERRORS, ["connect", "lost"]),
                    abandoned: outcomes(&n::UPSTREAM_ABANDONED, ["ended", "reset"]),
                    sent_again: counter!(n::UPSTREAM_SENT_AGAIN.name),
                }),
                panics: counter!(n::PANICS.name),
                log_dropped: counter!(n::LOG_DROPPED.name),
                admin_cut: ["crowded", "too-slow"]
                    .map(|reason| counter!(n::ADMIN_CUT.name, "reason" => reason)),
                pulled: Mutex::default(),
                pulled_counters: Mutex::default(),
                recorder: Arc::clone(&recorder),
            }
        });
        Arc::new(own)
    }

    /// Has the facade's macros record here, wherever they stand. False if that was done before, by
    /// this value or another.
    pub fn install(&self) -> bool {
        metrics::set_global_recorder(Arc::clone(&self.recorder)).is_ok()
    }

    /// Counts panics from now on, and has them logged in one line instead of printed.
    pub fn watch_panics(&self) {
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

    /// A set of policy objects was taken on at `now`, the first one included; so many warnings came of
    /// it.
    pub fn policy_taken_on(&self, now: Time, warnings: usize) {
        self.policy_warnings
            .set(f64::from(u32::try_from(warnings).unwrap_or(u32::MAX)));
        self.policy_loads[1].increment(1);
        self.policy_generation.increment(1.0);
        *lock(&self.policy_taken_on) = Some(now);
    }

    /// A set of policy objects was refused; the last good one stays.
    pub fn policy_refused(&self) {
        self.policy_loads[0].increment(1);
    }

    /// Whether a set of policy objects was ever taken on.
    pub fn has_policy(&self) -> bool {
        lock(&self.policy_taken_on).is_some()
    }

    /// The configuration was read again, and taken on or not.
    pub fn config_reloaded(&self, taken_on: bool) {
        self.config_reloads[usize::from(taken_on)].increment(1);
    }

    /// The upstream was asked about a token.
    pub fn token_reviewed(&self, how: Reviewed) {
        self.token_reviews[how as usize].increment(1);
    }

    /// The upstream was asked what somebody may do.
    pub fn access_reviewed(&self, how: Reviewed) {
        self.access_reviews[how as usize].increment(1);
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

    /// An answer that nobody wanted any more came to its end.
    pub fn upstream_abandoned(&self, how: Abandoned) {
        self.upstream.abandoned[how as usize].increment(1);
    }

    /// A request was sent to the upstream once more.
    pub fn upstream_sent_again(&self) {
        self.upstream.sent_again.increment(1);
    }

    /// Something went wrong with the upstream.
    pub fn upstream_failed(&self, how: UpstreamError) {
        self.upstream.errors[how as usize].increment(1);
    }

    /// A connection of the port for operators was cut.
    pub fn admin_cut(&self, why: AdminCut) {
        self.admin_cut[why as usize].increment(1);
    }

    /// Counts log lines that were lost.
    pub(super) fn log_dropped(&self) -> Counter {
        self.log_dropped.clone()
    }

    /// Has `metric` ask `value` at each scrape. `value` must not wait.
    pub fn pull(&self, metric: &n::Own, value: impl Fn() -> f64 + Send + Sync + 'static) {
        self.pull_labelled(metric, None, value);
    }

    /// The same, with a label.
    pub fn pull_labelled(
        &self,
        metric: &n::Own,
        label: Option<(&'static str, &'static str)>,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let gauge = with_local_recorder(&self.recorder, || match label {
            None => gauge!(metric.name),
            Some((name, value)) => gauge!(metric.name, name => value),
        });
        lock(&self.pulled).push(Pulled::Gauge(gauge, Box::new(value)));
    }

    /// Has the counter `metric` ask `count` at each scrape. `count` must not wait.
    pub fn pull_count(
        &self,
        metric: &n::Own,
        label: Option<(&'static str, &'static str)>,
        count: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let counter = with_local_recorder(&self.recorder, || match label {
            None => counter!(metric.name),
            Some((name, value)) => counter!(metric.name, name => value),
        });
        lock(&self.pulled).push(Pulled::Count(counter, Box::new(count)));
    }

    /// Has `metric` ask at each scrape how often something has happened. `value` must not wait.
    pub fn pull_counter(&self, metric: &n::Own, value: impl Fn() -> u64 + Send + Sync + 'static) {
        let counter = with_local_recorder(&self.recorder, || counter!(metric.name));
        lock(&self.pulled_counters).push(PulledCounter {
            counter,
            value: Box::new(value),
        });
    }

    /// A counter of `metric` for one value of its label.
    pub fn labelled_counter(
        &self,
        metric: &n::Own,
        name: &'static str,
        value: &'static str,
    ) -> Counter {
        with_local_recorder(&self.recorder, || counter!(metric.name, name => value))
    }

    /// Sheds what the facade keeps for histograms, should anybody use one. To be called now and then.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// All of it as text, in the order of the alphabet.
    pub fn render(&self, now: Time) -> String {
        if let Some(since) = *lock(&self.policy_taken_on) {
            self.policy_age.set(now.since(since).as_secs_f64());
        }
        for pulled in &*lock(&self.pulled_counters) {
            pulled.counter.absolute((pulled.value)());
        }
        for pulled in &*lock(&self.pulled) {
            match pulled {
                Pulled::Gauge(gauge, value) => gauge.set(value()),
                Pulled::Count(counter, count) => counter.absolute(count()),
            }
        }
        sorted(&self.handle.render())
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").finish_non_exhaustive()
    }
}

fn describe() {
    for metric in n::OWN_COUNTERS {
        describe_counter!(metric.name, metric.help);
    }
    for metric in n::OWN_GAUGES {
        describe_gauge!(metric.name, metric.help);
    }
}

/// Metrics that are made when they are first needed.
fn lazily<T: 'static>(
    recorder: &Arc<PrometheusRecorder>,
    register: fn() -> T,
) -> LazyLock<T, Register<T>> {
    let recorder = Arc::clone(recorder);
    LazyLock::new(Box::new(move || with_local_recorder(&recorder, register)))
}

fn outcomes<const N: usize>(metric: &n::Own, names: [&'static str; N]) -> [Counter; N] {
    names.map(|outcome| counter!(metric.name, "outcome" => outcome))
}

/// The exporter keeps its metrics in hash maps; this brings families and samples into order.
fn sorted(text: &str) -> String {
    let mut families: BTreeMap<&str, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    let mut current = "";
    for line in text.lines().filter(|line| !line.is_empty()) {
        let comment = line
            .strip_prefix("# HELP ")
            .or(line.strip_prefix("# TYPE "));
        if let Some(comment) = comment {
            current = comment.split(' ').next().unwrap_or_default();
        }
        let family = families.entry(current).or_default();
        if comment.is_some() {
            family.0.push(line);
        } else {
            family.1.push(line);
        }
    }
    let mut out = String::with_capacity(text.len());
    for (comments, samples) in families.values_mut() {
        samples.sort_unstable();
        for line in comments.iter().chain(&*samples) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_told_shows_in_the_same_order_every_time() {
        let own = Own::new();
        own.policy_taken_on(Time::ZERO, 2);
        own.policy_refused();
        own.token_reviewed(Reviewed::No);
        own.pull(&n::CONNECTIONS, || 7.0);
        own.pull_labelled(&n::ENFORCEMENT, Some(("mode", "off")), || 1.0);
        let text = own.render(Time::ZERO.plus(Duration::from_secs(3)));
        assert!(!text.contains("fairgate_upstream"), "nobody has told of it");
        for line in [
            "# TYPE fairgate_connections gauge",
            "fairgate_connections 7",
            "fairgate_enforcement{mode=\"off\"} 1",
            "fairgate_policy_age_seconds 3",
            "fairgate_policy_generation 1",
            "fairgate_policy_loads_total{outcome=\"failed\"} 1",
            "fairgate_policy_loads_total{outcome=\"ok\"} 1",
            "fairgate_policy_warnings 2",
            "fairgate_token_reviews_total{outcome=\"accepted\"} 0",
            "fairgate_token_reviews_total{outcome=\"refused\"} 1",
            "fairgate_panics_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text, own.render(Time::ZERO.plus(Duration::from_secs(3))));
        let names: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}
