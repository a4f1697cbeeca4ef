//! The catalogue of metrics: every metric with its type, unit, stability, labels and help.
//!
//! What Kubernetes has, too, keeps its name and labels, so that dashboards and alerts work; `fairgate_*`
//! is the gateway's own. `docs/reference/metrics.md` is generated from this file.
//!
//! Not here: values. [`CELL_METRICS`] are kept in cells (`super::cell_metrics`), [`FACADE_METRICS`] are
//! recorded by the `metrics` facade (`super::gateway_metrics`).

/// The type of a metric, as in the `# TYPE` line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// Only rises, until the process restarts.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Cumulative buckets, a sum and a count.
    Histogram,
}

impl MetricType {
    /// The word of the text format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// How reliable a metric is, in the terms of Kubernetes: a stable one keeps its name, labels and type, a
/// beta one at least its labels, an alpha one may change or go in any release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "explained above")]
pub enum Stability {
    Alpha,
    Beta,
    Stable,
}

impl Stability {
    /// The word that Kubernetes puts in front of the help text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
        }
    }
}

/// What a value counts or measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Unit {
    Boolean,
    Bytes,
    Count,
    Ratio,
    SeatSeconds,
    Seats,
    Seconds,
}

impl Unit {
    /// The unit as documents name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Boolean => "0 or 1",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Ratio => "ratio",
            Self::SeatSeconds => "seat-seconds",
            Self::Seats => "seats",
            Self::Seconds => "seconds",
        }
    }
}

/// Target of the access log's events.
pub(crate) const ACCESS_LOG: &str = "fairgate::access";

/// A metric: what is exposed under one name.
#[derive(Clone, Copy, Debug)]
pub struct MetricDef {
    /// The full name.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub metric_type: MetricType,
    /// What a value counts or measures.
    pub unit: Unit,
    /// How reliable name, labels and type are.
    pub stability: Stability,
    /// The names of all its labels, in alphabetical order.
    pub labels: &'static [&'static str],
    /// What it tells, in one line and without the stability.
    pub help: &'static str,
}

impl MetricDef {
    /// Whether Kubernetes has it, too.
    pub fn is_of_kubernetes(&self) -> bool {
        self.name.starts_with("apiserver_")
    }
}

macro_rules! metrics {
    ($(#[$doc:meta])* $all:ident:
     $($id:ident: $ty:ident, $unit:ident, $stability:ident, [$($label:literal),*] = $name:literal, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub(crate) const $id: MetricDef = MetricDef {
                name: $name,
                metric_type: MetricType::$ty,
                unit: Unit::$unit,
                stability: Stability::$stability,
                labels: &[$($label),*],
                help: $help,
            };
        )*
        $(#[$doc])*
        pub const $all: &[MetricDef] = &[$($id),*];
    };
}

metrics! {
    /// The metrics that are kept in cells, in the order they are exposed. All have the label `apiserver`.
    CELL_METRICS:
    REJECTED: Counter, Count, Beta, ["apiserver", "flow_schema", "priority_level", "reason"] = "apiserver_flowcontrol_rejected_requests_total",
        "Requests refused by flow control, by priority level, flow schema and reason.";
    DISPATCHED: Counter, Count, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_dispatched_requests_total",
        "Requests whose execution began.";
    INQUEUE_REQUESTS: Gauge, Count, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_inqueue_requests",
        "Requests waiting in queues.";
    INQUEUE_SEATS: Gauge, Seats, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_inqueue_seats",
        "Seats of the requests waiting in queues, each at its widest.";
    EXECUTING_REQUESTS: Gauge, Count, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_executing_requests",
        "Requests executing; a watch, while it is initialised.";
    EXECUTING_SEATS: Gauge, Seats, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_executing_seats",
        "Seats held by requests, by those that linger after their answer, too.";
    IN_USE: Gauge, Seats, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_concurrency_in_use",
        "An older name of `current_executing_seats`.";
    QUEUE_LENGTH: Histogram, Count, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_queue_length_after_enqueue",
        "Requests in a queue, seen by each request that joins it, itself included.";
    WAIT: Histogram, Seconds, Beta, ["apiserver", "execute", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_wait_duration_seconds",
        "Time that requests waited for seats, by whether they then executed.";
    EXECUTION: Histogram, Seconds, Alpha, ["apiserver", "flow_schema", "priority_level", "type"] = "apiserver_flowcontrol_request_execution_seconds",
        "Time that requests executed; of a watch, until it was initialised.";
    WATCH_COUNT: Histogram, Count, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_watch_count_samples",
        "Watchers that a mutating request concerned.";
    SEATS: Histogram, Seats, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_work_estimated_seats",
        "Seats estimated of requests, each at its widest.";
    NO_ACCOMMODATION: Counter, Count, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
        "Times that the request next in turn did not fit into the free seats.";
    EPOCHS: Counter, Count, Alpha, ["apiserver", "priority_level", "success"] = "apiserver_flowcontrol_epoch_advance_total",
        "Times that virtual time was set back, by whether all went well.";
    NOMINAL_LIMIT: Gauge, Seats, Beta, ["apiserver", "priority_level"] = "apiserver_flowcontrol_nominal_limit_seats",
        "Seats that a priority level has by its shares.";
    CONCURRENCY_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_request_concurrency_limit",
        "An older name of `nominal_limit_seats`.";
    LOWER_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_lower_limit_seats",
        "Seats left to a priority level that lends all it may.";
    UPPER_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_upper_limit_seats",
        "Seats of a priority level that borrows all it may.";
    DEMAND_HIGH: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_high_watermark",
        "Greatest demand for seats of the last period.";
    DEMAND_AVERAGE: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_average",
        "Mean demand for seats of the last period, weighted by time.";
    DEMAND_STDEV: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_stdev",
        "Standard deviation of the demand for seats of the last period.";
    DEMAND_SMOOTHED: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_smoothed",
        "Demand for seats, smoothed: rises at once, decays slowly.";
    TARGET: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_target_seats",
        "Seats that a priority level should have by its demand.";
    FAIR_FRACTION: Gauge, Ratio, Alpha, ["apiserver"] = "apiserver_flowcontrol_seat_fair_frac",
        "Fraction of its target that each priority level was granted.";
    CURRENT_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_current_limit_seats",
        "Seats that a priority level has at present.";
    CURRENT_R: Gauge, SeatSeconds, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_current_r",
        "Virtual time, in seat-seconds.";
    DISPATCH_R: Gauge, SeatSeconds, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_dispatch_r",
        "Virtual time at the last dispatch, in seat-seconds.";
    LATEST_S: Gauge, SeatSeconds, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_latest_s",
        "Virtual start of the last dispatched request, in seat-seconds.";
    NEXT_S: Gauge, SeatSeconds, Alpha, ["apiserver", "bound", "priority_level"] = "apiserver_flowcontrol_next_s_bounds",
        "Least and greatest virtual start over queues with requests, in seat-seconds.";
    NEXT_DISCOUNTED_S: Gauge, SeatSeconds, Alpha, ["apiserver", "bound", "priority_level"] = "apiserver_flowcontrol_next_discounted_s_bounds",
        "The same, less the assumed work of the seats in use.";
    SEAT_UTILIZATION: Histogram, Ratio, Alpha, ["apiserver", "phase", "priority_level"] = "apiserver_flowcontrol_priority_level_seat_utilization",
        "Seats in use over the current limit, observed every nanosecond.";
    REQUEST_UTILIZATION: Histogram, Ratio, Alpha, ["apiserver", "phase", "priority_level"] = "apiserver_flowcontrol_priority_level_request_utilization",
        "Requests waiting over the places in all queues, and executing over the current limit, observed every nanosecond.";
    READ_VS_WRITE: Histogram, Ratio, Alpha, ["apiserver", "phase", "request_kind"] = "apiserver_flowcontrol_read_vs_write_current_requests",
        "Requests waiting over the places in all queues of all levels, and executing over all nominal limits, weighted by nanoseconds.";
    DEMAND: Histogram, Ratio, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats",
        "Demand for seats over the current limit, observed every nanosecond.";
    INFLIGHT: Gauge, Count, Stable, ["apiserver", "request_kind"] = "apiserver_current_inflight_requests",
        "Most requests executing in the last second.";
    INQUEUE: Gauge, Count, Alpha, ["apiserver", "request_kind"] = "apiserver_current_inqueue_requests",
        "Most requests waiting in queues in the last second.";
    REQUESTS: Counter, Count, Stable, ["apiserver", "code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_total",
        "Requests whose user and meaning were found out, by what they asked for and the status of the answer.";
    TERMINATIONS: Counter, Count, Alpha, ["apiserver", "code", "component", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_terminations_total",
        "Requests that the gateway refused or ended in self-defence.";
    FILTER: Histogram, Seconds, Alpha, ["apiserver", "filter"] = "apiserver_request_filter_duration_seconds",
        "Time spent in a filter before the upstream was asked.";
    SLI: Histogram, Seconds, Alpha, ["apiserver", "component", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_sli_duration_seconds",
        "Time from a request to the end of its answer, less the wait for seats.";
    REFUSALS: Counter, Count, Alpha, ["apiserver", "reason"] = "fairgate_refusals_total",
        "Requests answered by the gateway itself, by the reason it gave.";
    REQUEST_KINDS: Gauge, Count, Alpha, ["apiserver"] = "fairgate_request_kinds",
        "Kinds of request told apart by `apiserver_request_total`; further ones are counted as other.";
    ABANDONED: Gauge, Count, Alpha, ["apiserver"] = "fairgate_abandoned_requests",
        "Requests whose client has left or was cut, and that still run upstream with what they hold.";
    ABANDONED_TOTAL: Counter, Count, Alpha, ["apiserver", "outcome"] = "fairgate_abandoned_requests_total",
        "Requests whose client left or was cut, by how they ended: ended by the upstream, or cancelled because their time or the bytes that are read for nobody were used up.";
    SPOOL_BYTES: Gauge, Bytes, Alpha, ["apiserver"] = "fairgate_spool_bytes",
        "Memory taken by answers whose clients read slowly.";
    SPOOLED: Counter, Count, Alpha, ["apiserver"] = "fairgate_spooled_answers_total",
        "Answers read ahead of clients that read slowly.";
    CUT: Counter, Count, Alpha, ["apiserver", "reason"] = "fairgate_cut_answers_total",
        "Answers ended because their clients read too slowly: no seat of their level was free, or the spool was full.";
}

metrics! {
    /// The metrics that go through the `metrics` facade. They are exposed in alphabetical order.
    FACADE_METRICS:
    BUILD_INFO: Gauge, Boolean, Alpha, ["version"] = "fairgate_build_info",
        "1, labelled with the version of the gateway.";
    UPTIME: Gauge, Seconds, Alpha, [] = "fairgate_uptime_seconds",
        "Time since the gateway started.";
    CONNECTIONS: Gauge, Count, Alpha, [] = "fairgate_connections",
        "Client connections open now.";
    STREAMS: Gauge, Count, Alpha, [] = "fairgate_streams",
        "Requests in hand, from head to the end of the answer; long-running ones, too.";
    QUEUED: Gauge, Count, Alpha, [] = "fairgate_queued_requests",
        "Requests waiting for seats, all priority levels together.";
    UNFINISHED_HEADS: Gauge, Bytes, Alpha, [] = "fairgate_unfinished_head_bytes",
        "Memory taken by request heads that are not complete, beyond 8 KiB of each.";
    LONG_RUNNING: Gauge, Count, Alpha, [] = "fairgate_long_running_requests",
        "Long-running requests, watches not counted, which no priority level holds back.";
    WATCHES: Gauge, Count, Alpha, [] = "fairgate_watches",
        "Watches that run, initialised or not.";
    WATCHES_LIMIT: Gauge, Count, Alpha, [] = "fairgate_watches_limit",
        "How many watches may run.";
    UPSTREAM_STREAMS: Gauge, Count, Alpha, ["carry"] = "fairgate_upstream_streams",
        "Streams of HTTP/2 connections to the upstream that are in use, by what they carry.";
    UPSTREAM_STREAMS_LIMIT: Gauge, Count, Alpha, ["carry"] = "fairgate_upstream_streams_limit",
        "How many there may be, by what they carry.";
    ENFORCEMENT: Gauge, Boolean, Alpha, ["mode"] = "fairgate_enforcement",
        "1 for what is done about the decisions of flow control, 0 for the rest.";
    SEMANTICS: Gauge, Boolean, Alpha, ["semantics"] = "fairgate_semantics",
        "1 for whose behaviour flow control follows, 0 for the other.";
    TOTAL_SEATS: Gauge, Seats, Alpha, [] = "fairgate_total_seats",
        "The server concurrency limit, shared out among the priority levels.";
    POLICY_GENERATION: Gauge, Count, Alpha, [] = "fairgate_policy_generation",
        "How many sets of policy objects were taken on since the start.";
    POLICY_AGE: Gauge, Seconds, Alpha, [] = "fairgate_policy_age_seconds",
        "Time since a set of policy objects was taken on.";
    POLICY_WARNINGS: Gauge, Count, Alpha, [] = "fairgate_policy_warnings",
        "What is probably not meant in the policy objects in force; the log and `fairgate check` say what.";
    SOURCE_AGE: Gauge, Seconds, Alpha, [] = "fairgate_source_age_seconds",
        "Time since the policy objects were last known to be those of the upstream that is followed; 0 while they are.";
    STORE_UP: Gauge, Boolean, Alpha, [] = "fairgate_store_up",
        "Whether reads and writes get through to the store of the hosted API.";
    STORE_REVISION: Gauge, Count, Alpha, [] = "fairgate_store_revision",
        "The newest revision of that store that was seen.";
    BOOTSTRAP_ENSURED: Gauge, Boolean, Alpha, [] = "fairgate_bootstrap_ensured",
        "Whether the built-in objects were seen to be in that store since the start.";
    UPSTREAM_CONNECTIONS: Gauge, Count, Alpha, [] = "fairgate_upstream_connections",
        "Connections to the upstream open now.";
    POLICY_LOADS: Counter, Count, Alpha, ["outcome"] = "fairgate_policy_loads_total",
        "Sets of policy objects read, by whether they were taken on.";
    CONFIG_RELOADS: Counter, Count, Alpha, ["outcome"] = "fairgate_config_reloads_total",
        "Reloads of the configuration, by whether it was taken on.";
    TOKEN_REVIEWS: Counter, Count, Alpha, ["outcome"] = "fairgate_token_reviews_total",
        "Token reviews that the upstream was asked for, by outcome.";
    ACCESS_REVIEWS: Counter, Count, Alpha, ["outcome"] = "fairgate_access_reviews_total",
        "SubjectAccessReviews that the upstream was asked for, by outcome.";
    EVICTIONS: Counter, Count, Alpha, ["mode", "outcome"] = "fairgate_evictions_total",
        "Evictions, by who decides about them (eviction.mode) and by how they ended. In mode authoritative these are the gateway's own decisions, otherwise mostly the status of the upstream's response.";
    UPSTREAM_OPENED: Counter, Count, Alpha, [] = "fairgate_upstream_connections_opened_total",
        "Connections opened to the upstream.";
    UPSTREAM_ERRORS: Counter, Count, Alpha, ["outcome"] = "fairgate_upstream_errors_total",
        "Failures of the upstream, by what failed.";
    UPSTREAM_ABANDONED: Counter, Count, Alpha, ["outcome"] = "fairgate_upstream_abandoned_total",
        "Streams of shared upstream connections whose answer nobody wanted any more, by whether they ended by themselves or were reset.";
    UPSTREAM_SENT_AGAIN: Counter, Count, Alpha, [] = "fairgate_upstream_retries_total",
        "Requests sent once more, because the upstream had not looked at them or because they only read.";
    HELD_BACK: Counter, Count, Alpha, [] = "fairgate_held_back_starts_total",
        "Requests whose start was held back for a moment, so that seats do not come free in groups.";
    PREMATURE_RESETS: Counter, Count, Alpha, [] = "fairgate_premature_resets_total",
        "Requests that their client reset within a second of their arrival, before they were answered.";
    PREMATURE_REFUSED: Counter, Count, Alpha, [] = "fairgate_premature_reset_refusals_total",
        "Requests refused because their user had made too many premature resets.";
    CLIENTS_ENDED: Counter, Count, Alpha, ["reason"] = "fairgate_client_connections_ended_total",
        "Client connections ended in self-defence, by the reason.";
    REFUSED_HEADS: Counter, Count, Alpha, ["reason"] = "fairgate_refused_heads_total",
        "Requests refused, or connections ended, before a request could be read, by reason.";
    HTTP2_FLOODS: Counter, Count, Alpha, ["frame"] = "fairgate_http2_floods_total",
        "HTTP/2 connections ended because of too many frames that carry no request, by their type.";
    CONNECTIONS_REJECTED: Counter, Count, Alpha, [] = "fairgate_connections_turned_away_total",
        "Client connections closed at once because file descriptors were short.";
    ADMIN_CUT: Counter, Count, Alpha, ["reason"] = "fairgate_admin_connections_cut_total",
        "Connections of the port for operators that were cut, by reason.";
    PANICS: Counter, Count, Alpha, [] = "fairgate_panics_total",
        "Panics; each ended one request or task at most.";
    LOG_DROPPED: Counter, Count, Alpha, [] = "fairgate_log_lines_dropped_total",
        "Log lines lost because they could not be written fast enough.";
}
