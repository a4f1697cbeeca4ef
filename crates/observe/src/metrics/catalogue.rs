//! The catalogue of metrics: every metric with its type, unit, stability, labels and help.
//!
//! What Kubernetes has, too, keeps its name and labels, so that dashboards and alerts work; `fairgate_*`
//! is the gateway's own. `docs/reference/metrics.md` is generated from this file.
//!
//! Not here: values. [`CELL_METRICS`] are kept in cells (`crate::counting::cell_metrics`), [`FACADE_METRICS`] are
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

/// The label that names the server, also of Kubernetes' own metrics.
pub(crate) const APISERVER: &str = "apiserver";

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
    /// The help text, in one line and without the stability.
    pub help: &'static str,
}

impl MetricDef {
    /// Whether Kubernetes has it, too.
    pub fn is_of_kubernetes(&self) -> bool {
        self.name.starts_with("apiserver_") || self.name.starts_with("process_")
    }
}

macro_rules! metrics {
    ($(#[$doc:meta])* $all:ident:
     $($id:ident: $ty:ident, $unit:ident, $stability:ident, [$($label:literal),*] = $name:literal, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $id: MetricDef = MetricDef {
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
        "Requests rejected by flow control.";
    DISPATCHED: Counter, Count, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_dispatched_requests_total",
        "Requests that flow control dispatched, that is, started executing.";
    INQUEUE_REQUESTS: Gauge, Count, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_inqueue_requests",
        "Requests waiting in queues now.";
    INQUEUE_SEATS: Gauge, Seats, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_inqueue_seats",
        "Seats of the requests waiting in queues now. Each counts with its maximum width.";
    EXECUTING_REQUESTS: Gauge, Count, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_executing_requests",
        "Requests executing now. A watch counts until it is initialised.";
    EXECUTING_SEATS: Gauge, Seats, Beta, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_current_executing_seats",
        "Seats in use now, including the final seats of requests whose response has ended.";
    IN_USE: Gauge, Seats, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_concurrency_in_use",
        "Deprecated name of `apiserver_flowcontrol_current_executing_seats`.";
    QUEUE_LENGTH: Histogram, Count, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_queue_length_after_enqueue",
        "Length of a queue after a request was added to it.";
    WAIT: Histogram, Seconds, Beta, ["apiserver", "execute", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_wait_duration_seconds",
        "Time that requests waited in a queue, by whether they were executed.";
    EXECUTION: Histogram, Seconds, Alpha, ["apiserver", "flow_schema", "priority_level", "type"] = "apiserver_flowcontrol_request_execution_seconds",
        "Execution time of requests; of a watch, the time until it was initialised.";
    WATCH_COUNT: Histogram, Count, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_watch_count_samples",
        "Number of watchers affected by a mutating request.";
    SEATS: Histogram, Seats, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_work_estimated_seats",
        "Estimated number of seats of a request: its maximum width.";
    NO_ACCOMMODATION: Counter, Count, Alpha, ["apiserver", "flow_schema", "priority_level"] = "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
        "Times that the next request in order needed more seats than were free.";
    EPOCHS: Counter, Count, Alpha, ["apiserver", "priority_level", "success"] = "apiserver_flowcontrol_epoch_advance_total",
        "Times that virtual time was reset to keep its precision, by whether this succeeded.";
    NOMINAL_LIMIT: Gauge, Seats, Beta, ["apiserver", "priority_level"] = "apiserver_flowcontrol_nominal_limit_seats",
        "Nominal concurrency limit of a priority level.";
    CONCURRENCY_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_request_concurrency_limit",
        "Deprecated name of `apiserver_flowcontrol_nominal_limit_seats`.";
    LOWER_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_lower_limit_seats",
        "Minimum concurrency limit of a priority level: the nominal limit less all lendable seats.";
    UPPER_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_upper_limit_seats",
        "Maximum concurrency limit of a priority level: the nominal limit and all seats it may borrow.";
    DEMAND_HIGH: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_high_watermark",
        "Maximum seat demand in the last borrowing period.";
    DEMAND_AVERAGE: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_average",
        "Time-weighted average of the seat demand in the last borrowing period.";
    DEMAND_STDEV: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_stdev",
        "Time-weighted standard deviation of the seat demand in the last borrowing period.";
    DEMAND_SMOOTHED: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats_smoothed",
        "Smoothed seat demand: rises at once, decays slowly.";
    TARGET: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_target_seats",
        "Seats that a priority level would get by its demand if there were enough for all.";
    FAIR_FRACTION: Gauge, Ratio, Alpha, ["apiserver"] = "apiserver_flowcontrol_seat_fair_frac",
        "Fraction of the target seats that each priority level got when limits were last adjusted.";
    CURRENT_LIMIT: Gauge, Seats, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_current_limit_seats",
        "Current concurrency limit of a priority level, with what it lends and borrows.";
    CURRENT_R: Gauge, SeatSeconds, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_current_r",
        "Current virtual time R of the queues, in seat-seconds.";
    DISPATCH_R: Gauge, SeatSeconds, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_dispatch_r",
        "Virtual time R at the last dispatch, in seat-seconds.";
    LATEST_S: Gauge, SeatSeconds, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_latest_s",
        "Virtual start time S of the last dispatched request, in seat-seconds.";
    NEXT_S: Gauge, SeatSeconds, Alpha, ["apiserver", "bound", "priority_level"] = "apiserver_flowcontrol_next_s_bounds",
        "Minimum and maximum virtual start time S of the next requests of all queues that are not empty, in seat-seconds.";
    NEXT_DISCOUNTED_S: Gauge, SeatSeconds, Alpha, ["apiserver", "bound", "priority_level"] = "apiserver_flowcontrol_next_discounted_s_bounds",
        "As `apiserver_flowcontrol_next_s_bounds`, less the estimated work of the executing requests.";
    SEAT_UTILIZATION: Histogram, Ratio, Alpha, ["apiserver", "phase", "priority_level"] = "apiserver_flowcontrol_priority_level_seat_utilization",
        "Seats in use divided by the current limit, weighted by time (one observation per nanosecond).";
    REQUEST_UTILIZATION: Histogram, Ratio, Alpha, ["apiserver", "phase", "priority_level"] = "apiserver_flowcontrol_priority_level_request_utilization",
        "Waiting requests divided by the capacity of the queues, and executing requests divided by the current limit, weighted by time (one observation per nanosecond).";
    READ_VS_WRITE: Histogram, Ratio, Alpha, ["apiserver", "phase", "request_kind"] = "apiserver_flowcontrol_read_vs_write_current_requests",
        "Waiting requests divided by the capacity of the queues, and executing requests divided by the nominal limits, of all levels together, weighted by time (one observation per nanosecond).";
    DEMAND: Histogram, Ratio, Alpha, ["apiserver", "priority_level"] = "apiserver_flowcontrol_demand_seats",
        "Seat demand divided by the current limit, weighted by time (one observation per nanosecond).";
    INFLIGHT: Gauge, Count, Stable, ["apiserver", "request_kind"] = "apiserver_current_inflight_requests",
        "Maximum number of requests executing at once in the last second.";
    INQUEUE: Gauge, Count, Alpha, ["apiserver", "request_kind"] = "apiserver_current_inqueue_requests",
        "Maximum number of requests waiting in queues in the last second.";
    REQUESTS: Counter, Count, Stable, ["apiserver", "code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_total",
        "Requests that were authenticated and parsed, by their attributes and the status code of the response.";
    TERMINATIONS: Counter, Count, Alpha, ["apiserver", "code", "component", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_terminations_total",
        "Requests that the gateway rejected or ended to protect itself or the upstream.";
    FILTER: Histogram, Seconds, Alpha, ["apiserver", "filter"] = "apiserver_request_filter_duration_seconds",
        "Time that requests spent in a filter of the gateway.";
    SLI: Histogram, Seconds, Alpha, ["apiserver", "component", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_sli_duration_seconds",
        "Time from a request to the end of its response, without the time in a queue. Dry runs do not count, nor requests that were refused with 429 before they executed.";
    DURATION: Histogram, Seconds, Stable, ["apiserver", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_duration_seconds",
        "Time from a request to the end of its response. Requests that were refused with 429 before they executed do not count.";
    RESPONSE_SIZES: Histogram, Bytes, Stable, ["apiserver", "component", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_response_sizes",
        "Length of the responses to GET and LIST, as sent: compressed where the upstream compresses.";
    ABORTS: Counter, Count, Alpha, ["apiserver", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_request_aborts_total",
        "Requests whose response broke off, because of a time limit, the upstream or a slow client.";
    LONGRUNNING: Gauge, Count, Stable, ["apiserver", "component", "group", "resource", "scope", "subresource", "verb", "version"] = "apiserver_longrunning_requests",
        "Long-running requests in progress: watches, exec, attach, port-forward, proxy and logs.";
    REFUSALS: Counter, Count, Alpha, ["apiserver", "reason"] = "fairgate_refusals_total",
        "Requests that the gateway refused, by reason: the value of X-Fairgate-Reason.";
    UNENFORCED_REFUSALS: Counter, Count, Alpha, ["apiserver", "reason"] = "fairgate_unenforced_refusals_total",
        "Requests that flow control would have refused, by reason, but let pass because flowControl.enforcement is observe.";
    REQUEST_PHASES: Histogram, Seconds, Alpha, ["apiserver", "forwarded", "phase"] = "fairgate_request_phase_duration_seconds",
        "Where the time of requests goes, of those that were sent upstream (forwarded) and of all others; the phases of a request add up to its duration. upstream is from sending it to the head of the response, response from there to the end, queue the wait for a seat, eviction-wait that for a disruption budget, gateway all else. Long-running requests do not count.";
    USER_REFUSALS: Counter, Count, Alpha, ["apiserver", "code", "priority_level", "reason", "user"] = "fairgate_user_refusals_total",
        "Requests that the gateway refused, by user, of the users of each level with most refusals in the last minute (admin.topFlows). Users with few are forgotten and start at 0 again.";
    USER_UNENFORCED_REFUSALS: Counter, Count, Alpha, ["apiserver", "priority_level", "reason", "user"] = "fairgate_user_unenforced_refusals_total",
        "The same of requests that flow control would have refused, but let pass because flowControl.enforcement is observe.";
    USER_SEAT_SECONDS: Counter, SeatSeconds, Alpha, ["apiserver", "priority_level", "user"] = "fairgate_user_seat_seconds_total",
        "Seats times the time for which requests held them, by user, of the users of each level with most in the last minute (admin.topFlows). A request counts when it ends. Users with little are forgotten and start at 0 again.";
    USER_FAILED_EVICTIONS: Counter, Count, Alpha, ["apiserver", "code", "reason", "user"] = "fairgate_user_failed_evictions_total",
        "Evictions that ended with a server error (5xx), by user, status and reason: the value of X-Fairgate-Reason, or upstream-error where the upstream failed; of the users with most in the last minute (admin.topFlows). Users with few are forgotten and start at 0 again.";
    USER_WATCHES: Gauge, Count, Alpha, ["apiserver", "group", "resource", "user"] = "fairgate_user_watches",
        "Open watches by user and resource, of the users with most watches (admin.topFlows). Of each user the three resources with most watches are named; the rest counts as `other`.";
    REQUEST_KINDS: Gauge, Count, Alpha, ["apiserver"] = "fairgate_request_kinds",
        "Combinations of labels that `apiserver_request_total` has. At the limit, further ones are counted as `other`.";
    ABANDONED: Gauge, Count, Alpha, ["apiserver"] = "fairgate_abandoned_requests",
        "Requests that still run upstream, with their seats, although their client disconnected or was disconnected.";
    ABANDONED_TOTAL: Counter, Count, Alpha, ["apiserver", "outcome"] = "fairgate_abandoned_requests_total",
        "Requests whose client disconnected or was disconnected, by how they ended: completed by the upstream, or cancelled at their limit of time or bytes.";
    SPOOL_BYTES: Gauge, Bytes, Alpha, ["apiserver"] = "fairgate_spool_bytes",
        "Memory that buffers responses for clients that read slowly.";
    SPOOL_PEAK: Gauge, Bytes, Alpha, ["apiserver"] = "fairgate_spool_peak_bytes",
        "Maximum of `fairgate_spool_bytes` since the gateway started.";
    SPOOLED: Counter, Count, Alpha, ["apiserver"] = "fairgate_spooled_answers_total",
        "Responses of the upstream and of the gateway that were buffered because their clients read slowly.";
    AWAITED_BODIES: Gauge, Count, Alpha, ["apiserver"] = "fairgate_awaited_bodies",
        "Requests without a seat whose bodies have not arrived yet.";
    AWAITED_BODY_BYTES: Gauge, Bytes, Alpha, ["apiserver"] = "fairgate_awaited_body_bytes",
        "Memory of requests without a seat whose bodies have not arrived yet; limited by limits.unfinishedBodyBytes.";
    AWAITED_BODY_PEAK: Gauge, Bytes, Alpha, ["apiserver"] = "fairgate_awaited_body_peak_bytes",
        "Maximum of `fairgate_awaited_body_bytes` since the gateway started.";
    LATE_BODIES: Counter, Count, Alpha, ["apiserver", "reason"] = "fairgate_late_bodies_total",
        "Requests that were refused because their clients sent the body too slowly: not within the time that a request may wait, or below limits.minSendRate while no seat of their level was free.";
    JAIN: Gauge, Ratio, Alpha, ["apiserver", "priority_level"] = "fairgate_jain_index",
        "Jain's index of the seats of the flows whose requests waited most of the last half minute: 1 if they had equally many, 1/n if one of n flows had all.";
    LARGEST_SHARE: Gauge, Ratio, Alpha, ["apiserver", "priority_level"] = "fairgate_largest_flow_share",
        "Seats of the flow that had the most in the last half minute, divided by the current limit of the level, or by its seats in use if those are more.";
    OLDEST_WAIT: Gauge, Seconds, Alpha, ["apiserver", "priority_level"] = "fairgate_oldest_wait_seconds",
        "Waiting time of the request that has waited longest; 0 if none waits.";
    BYSTANDER_WAIT: Gauge, Seconds, Alpha, ["apiserver", "priority_level"] = "fairgate_bystander_wait_seconds",
        "Longest wait in the last half minute, seen once a second, of a request of any flow but the largest, the one with most waiting requests and seats. A flow that sends more than its level serves waits behind itself; this is how long the others wait.";
    ACTIVE_QUEUES: Gauge, Count, Alpha, ["apiserver", "priority_level"] = "fairgate_active_queues",
        "Queues in which requests wait.";
    ACTIVE_FLOWS: Gauge, Count, Alpha, ["apiserver", "priority_level"] = "fairgate_active_flows",
        "Flows that have waiting or executing requests.";
    FLOW_INQUEUE: Gauge, Count, Alpha, ["apiserver", "flow", "flow_schema", "priority_level"] = "fairgate_flow_inqueue_requests",
        "Waiting requests of the flows of a level that have the most waiting requests and seats, and of those that wait longest (admin.topFlows).";
    FLOW_SEATS: Gauge, Seats, Alpha, ["apiserver", "flow", "flow_schema", "priority_level"] = "fairgate_flow_executing_seats",
        "Seats in use by the flows of a level that have the most waiting requests and seats, and by those that wait longest (admin.topFlows).";
    FLOW_OLDEST_WAIT: Gauge, Seconds, Alpha, ["apiserver", "flow", "flow_schema", "priority_level"] = "fairgate_flow_oldest_wait_seconds",
        "Waiting time of the request of a flow that has waited longest, of the flows of a level that wait longest and of those that have metrics because they are large (admin.topFlows); 0 if none waits.";
    FLOW_FAIR_SHARE: Gauge, Ratio, Alpha, ["apiserver", "flow", "flow_schema", "priority_level"] = "fairgate_flow_fair_share_ratio",
        "Seats that a flow had in the last half minute, divided by its fair share: as many as all flows of the level that waited most of that time had on average, or what it asked for if that is less. 1 is fair, below 0.5 the flow is starved. Only of such flows, if there are two, and of those that have metrics (admin.topFlows).";
    STALLED_SEATS: Gauge, Seats, Alpha, ["apiserver"] = "fairgate_stalled_seats",
        "Seats of requests whose clients read more slowly than limits.minReadRate, and whose responses do not fit into memory.";
    CUT: Counter, Count, Alpha, ["apiserver", "reason"] = "fairgate_cut_answers_total",
        "Responses that were aborted because their clients read too slowly while no seat of their level was free, or the buffer was full.";
}

metrics! {
    /// The metrics that go through the `metrics` facade. They are exposed in alphabetical order.
    FACADE_METRICS:
    BUILD_INFO: Gauge, Boolean, Alpha, ["version"] = "fairgate_build_info",
        "Always 1; the label is the version of the gateway.";
    UPTIME: Gauge, Seconds, Alpha, [] = "fairgate_uptime_seconds",
        "Time since the gateway started.";
    CONNECTIONS: Gauge, Count, Alpha, [] = "fairgate_connections",
        "Open client connections.";
    STREAMS: Gauge, Count, Alpha, [] = "fairgate_streams",
        "Requests in progress, from the head of the request to the end of the response, including long-running ones.";
    QUEUED: Gauge, Count, Alpha, [] = "fairgate_queued_requests",
        "Requests waiting for seats, in all priority levels together.";
    READ_AHEAD: Gauge, Bytes, Alpha, [] = "fairgate_read_ahead_bytes",
        "Memory of request bodies that all data cores have read before their requests were forwarded.";
    READ_AHEAD_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_read_ahead_peak_bytes",
        "Maximum since the gateway started of what one data core has read ahead. It is at most 64 MiB and what is read at a time.";
    STREAM_WINDOWS: Gauge, Bytes, Alpha, [] = "fairgate_stream_window_bytes",
        "What clients may have sent of the bodies of queued HTTP/2 requests that are not complete: the window of each stream, or the rest of its body.";
    STREAM_WINDOWS_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_stream_window_peak_bytes",
        "Maximum of `fairgate_stream_window_bytes` since the gateway started. It is at most limits.queuedBodyBytes, and a window for each data core.";
    LONG_HEAD_BYTES: Gauge, Bytes, Alpha, [] = "fairgate_long_head_bytes",
        "Memory of the heads of requests in progress, watches included, beyond 8 KiB of each.";
    LONG_HEAD_BYTES_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_long_head_peak_bytes",
        "Maximum of `fairgate_long_head_bytes` since the gateway started. It is at most the largest limits.longHeaderBytes since then.";
    TOKEN_REVIEW_BYTES: Gauge, Bytes, Alpha, [] = "fairgate_token_review_bytes",
        "Memory of requests whose bearer tokens are being reviewed: their heads, and what clients may send of HTTP/2 bodies.";
    TOKEN_REVIEW_BYTES_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_token_review_peak_bytes",
        "Maximum of `fairgate_token_review_bytes` since the gateway started. It is at most limits.tokenReviewBytes.";
    SECURE_ADMIN: Gauge, Count, Alpha, [] = "fairgate_secure_admin_connections",
        "Open connections of the secure admin port.";
    SECURE_ADMIN_PEAK: Gauge, Count, Alpha, [] = "fairgate_secure_admin_connections_peak",
        "Maximum of `fairgate_secure_admin_connections` since the gateway started. It is at most 256.";
    UNFINISHED_HEADS: Gauge, Bytes, Alpha, [] = "fairgate_unfinished_head_bytes",
        "Memory used by incomplete request heads, beyond 8 KiB for each connection.";
    UNFINISHED_HEADS_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_unfinished_head_peak_bytes",
        "Maximum of `fairgate_unfinished_head_bytes` since the gateway started. It is at most limits.unfinishedHeaderBytes.";
    TURNS: Counter, Count, Alpha, [] = "fairgate_turns_total",
        "Turns of tasks on data cores. 0 unless they are counted, which is for tests: FAIRGATE_COUNT_TURNS=1 in the environment.";
    LONG_TURNS: Counter, Count, Alpha, [] = "fairgate_long_turns_total",
        "Turns that took more than 20 ms of processor time, during which other clients of the data core waited. 0 unless turns are counted (`fairgate_turns_total`).";
    LONGEST_TURN: Gauge, Seconds, Alpha, [] = "fairgate_longest_turn_seconds",
        "Processor time of the longest turn since the gateway started. 0 unless turns are counted (`fairgate_turns_total`).";
    CONTROL_LONG_TURNS: Counter, Count, Alpha, [] = "fairgate_control_long_turns_total",
        "Turns of tasks on the control runtime that took more than 10 ms of processor time. Meanwhile reviews, hosted objects and metrics waited.";
    CONTROL_LONGEST_TURN: Gauge, Seconds, Alpha, [] = "fairgate_control_longest_turn_seconds",
        "Processor time of the longest turn of a task on the control runtime since the gateway started.";
    LONG_RUNNING: Gauge, Count, Alpha, [] = "fairgate_long_running_requests",
        "Long-running requests other than watches. Flow control does not queue them.";
    WATCHES: Gauge, Count, Alpha, [] = "fairgate_watches",
        "Open watches, initialised or not.";
    WATCHES_LIMIT: Gauge, Count, Alpha, [] = "fairgate_watches_limit",
        "Limit of open watches (limits.watchesTotal).";
    UPSTREAM_STREAMS: Gauge, Count, Alpha, ["carry"] = "fairgate_upstream_streams",
        "HTTP/2 streams to the upstream in use, by what they carry.";
    UPSTREAM_STREAMS_LIMIT: Gauge, Count, Alpha, ["carry"] = "fairgate_upstream_streams_limit",
        "Limit of HTTP/2 streams to the upstream, by what they carry.";
    ENFORCEMENT: Gauge, Boolean, Alpha, ["mode"] = "fairgate_enforcement",
        "1 for the mode of enforcement in use (flowControl.enforcement), 0 for the others.";
    SEMANTICS: Gauge, Boolean, Alpha, ["semantics"] = "fairgate_semantics",
        "1 for the semantics in use (flowControl.semantics), 0 for the other.";
    TOTAL_SEATS: Gauge, Seats, Alpha, [] = "fairgate_total_seats",
        "The server concurrency limit, which is divided among the priority levels.";
    POLICY_GENERATION: Gauge, Count, Alpha, [] = "fairgate_policy_generation",
        "Number of policies applied since the start.";
    POLICY_AGE: Gauge, Seconds, Alpha, [] = "fairgate_policy_age_seconds",
        "Time since the last policy was applied.";
    POLICY_WARNINGS: Gauge, Count, Alpha, [] = "fairgate_policy_warnings",
        "Warnings about the policy in force; the log and `fairgate check` name them.";
    POLICY_WARNING_REASONS: Gauge, Count, Alpha, ["reason"] = "fairgate_policy_warning_reasons",
        "Warnings about the policy in force, by reason: level-unused (no FlowSchema names the level), level-seats (too few for its requests, or none of its own), level-queues (far too many), schema-level-missing, schema-unreached (all its requests match earlier, or it matches none), schema-resources (a resource or a group that matches no request), annotation (without effect, or with another one than it seems), or other.";
    POLICY_SYNCED: Gauge, Boolean, Alpha, [] = "fairgate_policy_synced",
        "1 while the policy in force is that of its source, 0 while the source has errors, is not read yet, or has something else for another reason; `/readyz?verbose` names it.";
    SOURCE_AGE: Gauge, Seconds, Alpha, [] = "fairgate_source_age_seconds",
        "Time since the policy was last in sync with the upstream's objects; 0 while it is.";
    ADMISSION_POLICIES: Gauge, Count, Alpha, [] = "fairgate_admission_policies",
        "Admission policies with a binding that are in force for forwarded requests (admission.mode).";
    ADMISSION_POLICIES_AGE: Gauge, Seconds, Alpha, [] = "fairgate_admission_policies_age_seconds",
        "Time since the admission policies in force were last in sync with their source; 0 while they are.";
    ADMISSION_SYNCED: Gauge, Boolean, Alpha, [] = "fairgate_admission_synced",
        "1 while the admission policies in force are those of their source, and the namespaces, params and resources that they need are up to date, else 0.";
    ADMISSION_BODIES: Gauge, Bytes, Alpha, [] = "fairgate_admission_body_bytes",
        "Bytes of bodies and stored objects that all data cores hold for evaluating (admission.bodyBudget).";
    ADMISSION_BODIES_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_admission_body_peak_bytes",
        "Maximum since the gateway started of what one data core held for evaluating. It is at most admission.bodyBudget.";
    STORE_UP: Gauge, Boolean, Alpha, [] = "fairgate_store_up",
        "1 while the store of the hosted API can be read and written, else 0: also while it is full. A full etcd is noticed by a write, or after 10 s.";
    STORE_MEMBERS_AWAY: Gauge, Count, Alpha, [] = "fairgate_store_members_away",
        "Members of etcd (store.etcd.endpoints) that do not answer the gateway at present. While they are a minority, the store works nevertheless.";
    STORE_REVISION: Gauge, Count, Alpha, [] = "fairgate_store_revision",
        "Latest known revision of the store of the hosted API.";
    HOSTED_BODIES: Gauge, Bytes, Alpha, [] = "fairgate_hosted_body_bytes",
        "Bytes of bodies of requests for hosted objects, from their arrival to the response.";
    HOSTED_BODIES_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_hosted_body_peak_bytes",
        "Maximum of `fairgate_hosted_body_bytes` since the gateway started. It is at most `hostedApi.bodyBudget`.";
    RESPONSE_BYTES: Gauge, Bytes, Alpha, [] = "fairgate_response_bytes",
        "Memory of responses that the gateway made itself and whose clients have not read them yet (limits.responseBudget).";
    RESPONSE_PEAK: Gauge, Bytes, Alpha, [] = "fairgate_response_peak_bytes",
        "Maximum of `fairgate_response_bytes` since the gateway started.";
    RESPONSES_REFUSED: Counter, Count, Alpha, [] = "fairgate_responses_refused_total",
        "Responses and dumps of the gateway for which there was no room in memory, so that the request got 429 after 15 s at most.";
    RESPONSES_GIVEN_UP: Counter, Count, Alpha, [] = "fairgate_responses_given_up_total",
        "Responses of the gateway that were aborted for those of another user, because their clients read slowly or for long.";
    BOOTSTRAP_ENSURED: Gauge, Boolean, Alpha, [] = "fairgate_bootstrap_ensured",
        "1 once the built-in objects are known to be in the store of the hosted API, else 0.";
    UPSTREAM_UP: Gauge, Boolean, Alpha, [] = "fairgate_upstream_up",
        "0 if the last attempt to open a connection to the upstream failed, or if the server speaks TLS and upstream.url says `http://`, else 1. With upstream.servers: 0 if none of them takes requests.";
    SERVER_UP: Gauge, Boolean, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_up",
        "1 if an API server takes requests, 0 if it is ejected or not ready. Only with upstream.servers.";
    SERVER_PROBLEM: Gauge, Boolean, Alpha, ["apiserver", "reason", "server"] = "fairgate_upstream_server_problem",
        "1 for the reason why an API server takes no requests, or few; no sample without one: not-connected, no-answer, only-errors, hanging (it is ejected, or was and is tried with one request at a time), not-ready (/readyz), unlisted (no longer an address of its name), or slow (much slower than the others).";
    SERVER_SEATS: Gauge, Seats, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_seats",
        "Seats that an API server is configured with, or its part of flowControl.totalSeats.";
    SERVER_CAPACITY: Gauge, Seats, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_capacity_seats",
        "Seats that an API server may use now: fewer than its seats after its return, while it is slow, and while it takes no requests.";
    SERVER_SEATS_IN_USE: Gauge, Seats, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_seats_in_use",
        "Seats of the requests that an API server executes, exempt ones included.";
    SERVER_LONG_RUNNING: Gauge, Count, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_long_running_requests",
        "Watches and other long-running requests at an API server.";
    SERVER_CONNECTIONS: Gauge, Count, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_client_connections",
        "Client connections whose requests go to an API server while it has room (upstream.spread).";
    SERVER_ANSWERS: Counter, Count, Alpha, ["apiserver", "code", "server"] = "fairgate_upstream_server_answers_total",
        "Responses of an API server to requests that are not long-running, by status: 5xx or any other.";
    SERVER_ANSWER_SECONDS: Counter, Seconds, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_answer_seconds_total",
        "Time from sending these requests to the heads of their responses, together.";
    SERVER_EJECTIONS: Counter, Count, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_ejections_total",
        "How often an API server was ejected, because it could not be reached or failed requests.";
    SERVER_MOVED_WATCHES: Counter, Count, Alpha, ["apiserver", "server"] = "fairgate_upstream_server_moved_watches_total",
        "Watches of an API server that the gateway ended, so that their clients open them again at another server with fewer.";
    SERVER_WAITING: Gauge, Count, Alpha, ["apiserver"] = "fairgate_upstream_server_waiting_requests",
        "Requests that have seats, and wait until an API server has so much room.";
    CERTIFICATE_EXPIRY: Gauge, Seconds, Alpha, ["certificate"] = "fairgate_certificate_expiry_timestamp_seconds",
        "When a certificate expires, in seconds since 1970: the one that clients see (serving), the secure admin port's own (admin), or the one that the upstream sees (upstream).";
    WAIT_LIMIT: Gauge, Seconds, Alpha, [] = "fairgate_wait_limit_seconds",
        "The longest time that a request without a deadline of its own may wait in a queue.";
    HANDSHAKE_ERRORS: Counter, Count, Alpha, ["apiserver"] = "apiserver_tls_handshake_errors_total",
        "Client connections whose TLS handshake failed or took too long.";
    STORAGE_OBJECTS: Gauge, Count, Stable, ["apiserver", "resource"] = "apiserver_storage_objects",
        "Objects that the hosted API stores; -1 while they are not known.";
    HOSTED_BYTES: Gauge, Bytes, Alpha, ["resource"] = "fairgate_hosted_object_bytes",
        "Bytes that the objects of the hosted API take as stored.";
    HOSTED_QUOTA_OBJECTS: Gauge, Count, Alpha, ["resource"] = "fairgate_hosted_quota_objects",
        "The most objects that the hosted API stores, in each namespace if the resource has namespaces (hostedApi.quota); +Inf without a quota.";
    HOSTED_QUOTA_BYTES: Gauge, Bytes, Alpha, ["resource"] = "fairgate_hosted_quota_bytes",
        "The most bytes that these objects may take as stored (hostedApi.quota); +Inf without a quota.";
    HOSTED_QUOTA_USED: Gauge, Ratio, Alpha, ["resource"] = "fairgate_hosted_quota_used_ratio",
        "The part of the quota of objects or bytes that is used, whichever is greater, by the namespace that has used most; computed every 10 s. Over 1 if the objects were stored before the quota.";
    HOSTED_QUOTA_REFUSALS: Counter, Count, Alpha, ["group", "resource"] = "fairgate_hosted_quota_refusals_total",
        "Writes of clients to hosted objects that a quota refused.";
    INIT_EVENTS: Counter, Count, Alpha, ["apiserver", "group", "resource"] = "apiserver_init_events_total",
        "Objects of the hosted API that were sent at the beginning of watches.";
    PROCESS_CPU: Counter, Seconds, Alpha, [] = "process_cpu_seconds_total",
        "CPU time that the process has used.";
    PROCESS_FDS: Gauge, Count, Alpha, [] = "process_open_fds",
        "Open file descriptors of the process.";
    PROCESS_FDS_MAX: Gauge, Count, Alpha, [] = "process_max_fds",
        "Limit of open file descriptors.";
    PROCESS_RESIDENT: Gauge, Bytes, Alpha, [] = "process_resident_memory_bytes",
        "Resident memory of the process.";
    PROCESS_VIRTUAL: Gauge, Bytes, Alpha, [] = "process_virtual_memory_bytes",
        "Virtual memory of the process.";
    PROCESS_VIRTUAL_MAX: Gauge, Bytes, Alpha, [] = "process_virtual_memory_max_bytes",
        "Limit of virtual memory.";
    PROCESS_START: Gauge, Seconds, Alpha, [] = "process_start_time_seconds",
        "When the process started, in seconds since 1970.";
    PROCESS_THREADS: Gauge, Count, Alpha, [] = "process_threads",
        "Threads of the process.";
    MEMORY_LIMIT: Gauge, Bytes, Alpha, [] = "fairgate_memory_limit_bytes",
        "Memory that the process may use: the least limit of its cgroups, or the memory of the machine. Beyond it the kernel kills the process.";
    UPSTREAM_CONNECTIONS: Gauge, Count, Alpha, [] = "fairgate_upstream_connections",
        "Open connections to the upstream.";
    POLICY_LOADS: Counter, Count, Alpha, ["outcome"] = "fairgate_policy_loads_total",
        "Policies loaded, by whether they were applied.";
    CONFIG_RELOADS: Counter, Count, Alpha, ["outcome"] = "fairgate_config_reloads_total",
        "Reloads of the configuration, by whether it was applied.";
    CONFIG_RELOADED: Gauge, Boolean, Alpha, [] = "fairgate_config_last_reload_successful",
        "0 if the last reload of the configuration was refused, so that an earlier one stays in force, else 1.";
    TOKEN_REVIEWS: Counter, Count, Alpha, ["outcome"] = "fairgate_token_reviews_total",
        "TokenReviews sent to the upstream, by outcome.";
    ACCESS_REVIEWS: Counter, Count, Alpha, ["outcome"] = "fairgate_access_reviews_total",
        "SubjectAccessReviews sent to the upstream, by outcome.";
    EVICTIONS: Counter, Count, Alpha, ["mode", "outcome"] = "fairgate_evictions_total",
        "Evictions, by who decides about them (eviction.mode) and by how they ended. In mode authoritative these are the gateway's own decisions, otherwise mostly the status of the upstream's response.";
    TOKEN_REVIEWS_PENDING: Gauge, Count, Alpha, [] = "fairgate_token_reviews_pending",
        "Reviews of tokens that run or wait for their turns, without those that renew a result.";
    TOKEN_REVIEWS_PENDING_PEAK: Gauge, Count, Alpha, [] = "fairgate_token_reviews_pending_peak",
        "Maximum of `fairgate_token_reviews_pending` since the gateway started. It is at most 1024, of clients without a valid token 768.";
    EVICTIONS_WAITING: Gauge, Count, Alpha, [] = "fairgate_evictions_waiting",
        "Evictions that wait for their disruption budgets (eviction.wait).";
    EVICTION_WAIT: Histogram, Seconds, Alpha, ["outcome"] = "fairgate_eviction_wait_duration_seconds",
        "How long evictions waited for their disruption budgets, by how they ended: granted, refused after the longest wait, rejected or failed for another reason, or abandoned by their client.";
    ADMISSION_CHECKS: Counter, Count, Beta, ["apiserver", "enforcement_action", "error_type", "policy", "policy_binding"] = "apiserver_validating_admission_policy_check_total",
        "Failed validations and errors of admission policies, by enforcement action. With admission.mode: audit nothing is denied, and this counts what would have been denied.";
    ADMISSION_CHECK_DURATION: Histogram, Seconds, Beta, ["apiserver", "enforcement_action", "error_type", "policy", "policy_binding"] = "apiserver_validating_admission_policy_check_duration_seconds",
        "How long the expressions took that apiserver_validating_admission_policy_check_total counts; 0 for errors of a whole policy.";
    ADMISSION_REQUESTS: Counter, Count, Alpha, ["decision", "mode"] = "fairgate_admission_requests_total",
        "Requests that admission policies matched, forwarded or for hosted objects, by decision: allowed, denied, notJudged (forwarded although the policies could not be evaluated) or failed (refused, because they could not be evaluated).";
    ADMISSION_GUARDS: Counter, Count, Alpha, ["guard"] = "fairgate_admission_guarded_writes_total",
        "Writes that were forwarded after they were evaluated by the stored object, by what kept it from being changed in between: none, client (its own resourceVersion), held (the gateway's condition) or repeated (it was changed, and the write evaluated again).";
    ADMISSION_COST: Counter, Count, Alpha, ["policy"] = "fairgate_admission_policy_cost_total",
        "Cost of evaluating each admission policy, in CEL cost units.";
    ADMISSION_POLICY_DURATION: Histogram, Seconds, Alpha, ["policy"] = "fairgate_admission_policy_duration_seconds",
        "How long evaluating each admission policy took for a request, with all its bindings and params, whether it let the request pass or not. The metrics of Kubernetes have no policy that passes.";
    ADMISSION_AUDIT_DROPPED: Counter, Count, Alpha, [] = "fairgate_admission_audit_dropped_total",
        "Records of evaluated requests that were neither counted nor written to the audit log (admission.audit), because too many were waiting or the file could not be written.";
    FLEET_SEATS: Gauge, Seats, Alpha, ["fleet"] = "fairgate_fleet_seats",
        "Seats that this gateway may use of those that its fleet shares (fleet.engine): its grant, or isolatedSeats while it is cut off.";
    FLEET_HELD_SEATS: Gauge, Seats, Alpha, ["fleet"] = "fairgate_fleet_held_seats",
        "Seats that this gateway holds: those within the limits of its levels, and those still in use beyond them. Exempt levels do not count.";
    FLEET_ISOLATED: Gauge, Boolean, Alpha, ["fleet"] = "fairgate_fleet_isolated",
        "1 while this gateway has no grant, because it is cut off from its fleet or another gateway has the same name.";
    FLEET_ISOLATED_REASON: Gauge, Boolean, Alpha, ["fleet", "reason"] = "fairgate_fleet_isolated_reason",
        "1 for the reason why this gateway has no grant, while it has none: engine-no-answer, engine-forbidden, engine-failed, records-unusable (damaged, of another version, or of a gateway with other settings), not-listed (no coordinator gives it seats), no-place (fleet.maxGateways others are listed), or same-name (another gateway reports under its name).";
    FLEET_COORDINATOR_AGE: Gauge, Seconds, Alpha, ["fleet"] = "fairgate_fleet_coordinator_age_seconds",
        "Time since this gateway saw that a gateway of its fleet, itself or another one, took or renewed the coordinator's lease, or since it started if it has seen none. At most 6 s while there is a coordinator.";
    FLEET_COORDINATOR: Gauge, Boolean, Alpha, ["fleet"] = "fairgate_fleet_coordinator",
        "1 while this gateway divides the seats of its fleet, 0 while another one does.";
    FLEET_EPOCH: Gauge, Count, Alpha, ["fleet"] = "fairgate_fleet_ledger_epoch",
        "Number of the last ledger of the fleet that this gateway has read.";
    FLEET_LEDGER_AGE: Gauge, Seconds, Alpha, ["fleet"] = "fairgate_fleet_ledger_age_seconds",
        "Time since this gateway has read the ledger of its fleet, changed or not, or since it started if it has read none.";
    FLEET_LEDGER_LOST: Gauge, Boolean, Alpha, ["fleet"] = "fairgate_fleet_ledger_lost",
        "1 while the ledger of the fleet is missing, or older than one that was in force: it was deleted, or restored from a backup. No seat is divided anew then.";
    FLEET_REPORTS: Counter, Count, Alpha, ["fleet"] = "fairgate_fleet_reports_total",
        "Reports to its fleet that this gateway has stored.";
    FLEET_LEDGERS: Counter, Count, Alpha, ["fleet"] = "fairgate_fleet_ledgers_total",
        "Ledgers that this gateway has written as the coordinator of its fleet.";
    FLEET_FAILED_CALLS: Counter, Count, Alpha, ["fleet"] = "fairgate_fleet_failed_calls_total",
        "Reads and writes of the fleet's reports and ledger that failed, timed out, or returned what cannot be used.";
    DISRUPTION_LEADER: Gauge, Boolean, Alpha, [] = "fairgate_disruption_controller_leader",
        "1 while this gateway runs the disruption controller (eviction.controller), 0 while another one does.";
    DISRUPTION_SYNCS: Counter, Count, Alpha, ["outcome"] = "fairgate_disruption_syncs_total",
        "Syncs of PodDisruptionBudgets by the disruption controller: the status was written or was up to date, the budget had changed meanwhile, or the status could not be computed or written.";
    DISRUPTION_SYNC_DURATION: Gauge, Seconds, Alpha, [] = "fairgate_disruption_sync_duration_seconds",
        "Duration of the last sync of a PodDisruptionBudget that did not fail, with its reads and writes.";
    DISRUPTION_SYNC_AGE: Gauge, Seconds, Alpha, [] = "fairgate_disruption_sync_age_seconds",
        "Time since the last sync of a PodDisruptionBudget that did not fail; 0 before the first. Budgets are synced when their pods change.";
    DISRUPTION_PODS: Gauge, Count, Alpha, [] = "fairgate_disruption_pods",
        "Pods that the disruption controller has cached; 0 unless this gateway runs it.";
    DISRUPTION_BUDGETS: Gauge, Count, Alpha, [] = "fairgate_disruption_budgets",
        "PodDisruptionBudgets that the disruption controller has cached; 0 unless this gateway runs it.";
    DISRUPTION_EXHAUSTED: Gauge, Count, Alpha, [] = "fairgate_disruption_budgets_exhausted",
        "PodDisruptionBudgets that allow no disruption now; 0 unless this gateway runs the disruption controller.";
    DISRUPTION_OVER_LIMIT: Gauge, Count, Alpha, [] = "fairgate_disruption_budgets_over_limit",
        "PodDisruptionBudgets that allow no disruption because the selectors of their namespace exceed eviction.selectorTerms; 0 unless this gateway runs the disruption controller.";
    DISRUPTION_LOOK_UPS: Counter, Count, Alpha, [] = "fairgate_disruption_label_lookups_total",
        "Labels that the disruption controller has looked up to compare pods with budgets.";
    DISRUPTION_LONGEST_SLICE: Gauge, Count, Alpha, [] = "fairgate_disruption_longest_slice_lookups",
        "Most labels that the disruption controller has looked up without yielding its thread.";
    UPSTREAM_OPENED: Counter, Count, Alpha, [] = "fairgate_upstream_connections_opened_total",
        "Connections opened to the upstream.";
    UPSTREAM_ERRORS: Counter, Count, Alpha, ["outcome"] = "fairgate_upstream_errors_total",
        "Upstream connections that could not be opened, or were lost.";
    UPSTREAM_ABANDONED: Counter, Count, Alpha, ["outcome"] = "fairgate_upstream_abandoned_total",
        "HTTP/2 streams to the upstream whose response was no longer needed, by whether they completed or were reset.";
    UPSTREAM_SENT_AGAIN: Counter, Count, Alpha, [] = "fairgate_upstream_retries_total",
        "Requests sent to the upstream a second time, because it had not processed them or because they only read.";
    HELD_BACK: Counter, Count, Alpha, [] = "fairgate_held_back_starts_total",
        "Requests whose start was delayed briefly, so that seats do not become free in groups.";
    PREMATURE_RESETS: Counter, Count, Alpha, [] = "fairgate_premature_resets_total",
        "Requests that the client reset within a second of sending them, before they were answered.";
    PREMATURE_REFUSED: Counter, Count, Alpha, [] = "fairgate_premature_reset_refusals_total",
        "Requests refused because their user reset too many requests.";
    CLIENTS_ENDED: Counter, Count, Alpha, ["reason"] = "fairgate_client_connections_ended_total",
        "Client connections that the gateway closed to protect itself.";
    REFUSED_HEADS: Counter, Count, Alpha, ["reason"] = "fairgate_refused_heads_total",
        "Requests refused, or connections closed, because a request head was malformed, too large or too slow, or broke the protocol.";
    HTTP2_FLOODS: Counter, Count, Alpha, ["frame"] = "fairgate_http2_floods_total",
        "HTTP/2 connections closed because of too many frames that carry no request, by type of frame.";
    CONNECTIONS_REJECTED: Counter, Count, Alpha, [] = "fairgate_connections_turned_away_total",
        "Client connections closed at once because the process was short of file descriptors.";
    ADMIN_CUT: Counter, Count, Alpha, ["reason"] = "fairgate_admin_connections_cut_total",
        "Connections of the admin port that the gateway closed.";
    PANICS: Counter, Count, Alpha, [] = "fairgate_panics_total",
        "Panics. Each ends at most one request or task.";
    LOG_DROPPED: Counter, Count, Alpha, [] = "fairgate_log_lines_dropped_total",
        "Log lines dropped because they could not be written fast enough.";
}
