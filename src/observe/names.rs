//! Every metric and log target by name.
//!
//! What Kubernetes has, too, keeps its name there, so that dashboards and alerts work; `fairgate_*`
//! is the gateway's own. Label names stand where they are used.

use super::text::{Family, Kind};

/// Target of the events that tell of each request.
pub const ACCESS_LOG: &str = "fairgate::access";

macro_rules! families {
    ($($(#[$doc:meta])* $id:ident: $kind:ident = $name:literal, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $id: Family = Family { name: $name, kind: Kind::$kind, help: $help };
        )*
        /// All metrics that are kept in cells.
        pub const CELLS: &[Family] = &[$($id),*];
    };
}

families! {
    REJECTED: Counter = "apiserver_flowcontrol_rejected_requests_total",
        "[BETA] Requests refused by flow control, by priority level, flow schema and reason.";
    DISPATCHED: Counter = "apiserver_flowcontrol_dispatched_requests_total",
        "[BETA] Requests whose execution began.";
    INQUEUE_REQUESTS: Gauge = "apiserver_flowcontrol_current_inqueue_requests",
        "[BETA] Requests waiting in queues.";
    INQUEUE_SEATS: Gauge = "apiserver_flowcontrol_current_inqueue_seats",
        "[ALPHA] Seats of the requests waiting in queues, each at its widest.";
    EXECUTING_REQUESTS: Gauge = "apiserver_flowcontrol_current_executing_requests",
        "[BETA] Requests executing; a watch, while it is initialised.";
    EXECUTING_SEATS: Gauge = "apiserver_flowcontrol_current_executing_seats",
        "[BETA] Seats held by requests, by those that linger after their answer, too.";
    IN_USE: Gauge = "apiserver_flowcontrol_request_concurrency_in_use",
        "[ALPHA] An older name of `current_executing_seats`.";
    QUEUE_LENGTH: Histogram = "apiserver_flowcontrol_request_queue_length_after_enqueue",
        "[ALPHA] Requests in a queue, seen by each request that joins it, itself included.";
    WAIT: Histogram = "apiserver_flowcontrol_request_wait_duration_seconds",
        "[BETA] Time that requests waited for seats, by whether they then executed.";
    EXECUTION: Histogram = "apiserver_flowcontrol_request_execution_seconds",
        "[ALPHA] Time that requests executed; of a watch, until it was initialised.";
    WATCH_COUNT: Histogram = "apiserver_flowcontrol_watch_count_samples",
        "[ALPHA] Watchers that a mutating request concerned.";
    SEATS: Histogram = "apiserver_flowcontrol_work_estimated_seats",
        "[ALPHA] Seats estimated of requests, each at its widest.";
    NO_ACCOMMODATION: Counter = "apiserver_flowcontrol_request_dispatch_no_accommodation_total",
        "[ALPHA] Times that the request next in turn did not fit into the free seats.";
    EPOCHS: Counter = "apiserver_flowcontrol_epoch_advance_total",
        "[ALPHA] Times that virtual time was set back, by whether all went well.";
    NOMINAL_LIMIT: Gauge = "apiserver_flowcontrol_nominal_limit_seats",
        "[BETA] Seats that a priority level has by its shares.";
    CONCURRENCY_LIMIT: Gauge = "apiserver_flowcontrol_request_concurrency_limit",
        "[ALPHA] An older name of `nominal_limit_seats`.";
    LOWER_LIMIT: Gauge = "apiserver_flowcontrol_lower_limit_seats",
        "[ALPHA] Seats left to a priority level that lends all it may.";
    UPPER_LIMIT: Gauge = "apiserver_flowcontrol_upper_limit_seats",
        "[ALPHA] Seats of a priority level that borrows all it may.";
    DEMAND_HIGH: Gauge = "apiserver_flowcontrol_demand_seats_high_watermark",
        "[ALPHA] Greatest demand for seats of the last period.";
    DEMAND_AVERAGE: Gauge = "apiserver_flowcontrol_demand_seats_average",
        "[ALPHA] Mean demand for seats of the last period, weighted by time.";
    DEMAND_STDEV: Gauge = "apiserver_flowcontrol_demand_seats_stdev",
        "[ALPHA] Standard deviation of the demand for seats of the last period.";
    DEMAND_SMOOTHED: Gauge = "apiserver_flowcontrol_demand_seats_smoothed",
        "[ALPHA] Demand for seats, smoothed: rises at once, decays slowly.";
    TARGET: Gauge = "apiserver_flowcontrol_target_seats",
        "[ALPHA] Seats that a priority level should have by its demand.";
    FAIR_FRACTION: Gauge = "apiserver_flowcontrol_seat_fair_frac",
        "[ALPHA] Fraction of its target that each priority level was granted.";
    CURRENT_LIMIT: Gauge = "apiserver_flowcontrol_current_limit_seats",
        "[ALPHA] Seats that a priority level has at present.";
    CURRENT_R: Gauge = "apiserver_flowcontrol_current_r",
        "[ALPHA] Virtual time, in seat-seconds.";
    DISPATCH_R: Gauge = "apiserver_flowcontrol_dispatch_r",
        "[ALPHA] Virtual time at the last dispatch, in seat-seconds.";
    LATEST_S: Gauge = "apiserver_flowcontrol_latest_s",
        "[ALPHA] Virtual start of the last dispatched request, in seat-seconds.";
    NEXT_S: Gauge = "apiserver_flowcontrol_next_s_bounds",
        "[ALPHA] Least and greatest virtual start over queues with requests, in seat-seconds.";
    NEXT_DISCOUNTED_S: Gauge = "apiserver_flowcontrol_next_discounted_s_bounds",
        "[ALPHA] The same, less the assumed work of the seats in use.";
    SEAT_UTILIZATION: Histogram = "apiserver_flowcontrol_priority_level_seat_utilization",
        "[ALPHA] Seats in use over the current limit, observed every nanosecond.";
    REQUEST_UTILIZATION: Histogram = "apiserver_flowcontrol_priority_level_request_utilization",
        "[ALPHA] Requests waiting over the places in all queues, and executing over the current limit, observed every nanosecond.";
    READ_VS_WRITE: Histogram = "apiserver_flowcontrol_read_vs_write_current_requests",
        "[ALPHA] Requests waiting over the places in all queues of all levels, and executing over all nominal limits, weighted by nanoseconds.";
    DEMAND: Histogram = "apiserver_flowcontrol_demand_seats",
        "[ALPHA] Demand for seats over the current limit, observed every nanosecond.";
    INFLIGHT: Gauge = "apiserver_current_inflight_requests",
        "[STABLE] Most requests executing in the last second.";
    INQUEUE: Gauge = "apiserver_current_inqueue_requests",
        "[ALPHA] Most requests waiting in queues in the last second.";
    REQUESTS: Counter = "apiserver_request_total",
        "[STABLE] Requests whose user and meaning were found out, by what they asked for and the status of the answer.";
    TERMINATIONS: Counter = "apiserver_request_terminations_total",
        "[ALPHA] Requests that the gateway refused or ended in self-defence.";
    FILTER: Histogram = "apiserver_request_filter_duration_seconds",
        "[ALPHA] Time spent in a filter before the upstream was asked.";
    SLI: Histogram = "apiserver_request_sli_duration_seconds",
        "[ALPHA] Time from a request to the end of its answer, less the wait for seats.";
    REFUSALS: Counter = "fairgate_refusals_total",
        "Requests answered by the gateway itself, by the reason it gave.";
    REQUEST_KINDS: Gauge = "fairgate_request_kinds",
        "Kinds of request told apart by `apiserver_request_total`; further ones are counted as other.";
    ABANDONED: Gauge = "fairgate_abandoned_requests",
        "Requests whose client has left or was cut, and that still run upstream with what they hold.";
    ABANDONED_TOTAL: Counter = "fairgate_abandoned_requests_total",
        "Requests whose client left or was cut, by how they ended: ended by the upstream, or cancelled because their time or the bytes that are read for nobody were used up.";
    SPOOL_BYTES: Gauge = "fairgate_spool_bytes",
        "Memory taken by answers whose clients read slowly.";
    SPOOLED: Counter = "fairgate_spooled_answers_total",
        "Answers read ahead of clients that read slowly.";
    CUT: Counter = "fairgate_cut_answers_total",
        "Answers ended because their clients read too slowly: no seat of their level was free, or the spool was full.";
}

/// A metric that goes through the `metrics` facade.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The name.
    pub name: &'static str,
    /// What it tells, in one line.
    pub help: &'static str,
}

macro_rules! own {
    ($all:ident: $($id:ident = $name:literal, $help:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $id: Own = Own { name: $name, help: $help };
        )*
        /// All of this kind.
        pub const $all: &[Own] = &[$($id),*];
    };
}

own! { OWN_GAUGES:
    BUILD_INFO = "fairgate_build_info",
        "1, labelled with the version of the gateway.";
    UPTIME = "fairgate_uptime_seconds",
        "Time since the gateway started.";
    CONNECTIONS = "fairgate_connections",
        "Client connections open now.";
    STREAMS = "fairgate_streams",
        "Requests in hand, from head to the end of the answer; long-running ones, too.";
    QUEUED = "fairgate_queued_requests",
        "Requests waiting for seats, all priority levels together.";
    UNFINISHED_HEADS = "fairgate_unfinished_head_bytes",
        "Memory taken by request heads that are not complete, beyond 8 KiB of each.";
    LONG_RUNNING = "fairgate_long_running_requests",
        "Long-running requests, watches not counted, which no priority level holds back.";
    WATCHES = "fairgate_watches",
        "Watches that run, initialised or not.";
    WATCHES_LIMIT = "fairgate_watches_limit",
        "How many watches may run.";
    UPSTREAM_STREAMS = "fairgate_upstream_streams",
        "Streams of HTTP/2 connections to the upstream that are in use, by what they carry.";
    UPSTREAM_STREAMS_LIMIT = "fairgate_upstream_streams_limit",
        "How many there may be, by what they carry.";
    ENFORCEMENT = "fairgate_enforcement",
        "1 for what is done about the decisions of flow control, 0 for the rest.";
    SEMANTICS = "fairgate_semantics",
        "1 for whose behaviour flow control follows, 0 for the other.";
    TOTAL_SEATS = "fairgate_total_seats",
        "The server concurrency limit, shared out among the priority levels.";
    POLICY_GENERATION = "fairgate_policy_generation",
        "How many sets of policy objects were taken on since the start.";
    POLICY_AGE = "fairgate_policy_age_seconds",
        "Time since a set of policy objects was taken on.";
    POLICY_WARNINGS = "fairgate_policy_warnings",
        "What is probably not meant in the policy objects in force; the log and `fairgate check` say what.";
    SOURCE_AGE = "fairgate_source_age_seconds",
        "Time since the policy objects were last known to be those of the upstream that is followed; 0 while they are.";
    STORE_UP = "fairgate_store_up",
        "Whether reads and writes get through to the store of the hosted API.";
    STORE_REVISION = "fairgate_store_revision",
        "The newest revision of that store that was seen.";
    BOOTSTRAP_ENSURED = "fairgate_bootstrap_ensured",
        "Whether the built-in objects were seen to be in that store since the start.";
    UPSTREAM_CONNECTIONS = "fairgate_upstream_connections",
        "Connections to the upstream open now.";
}

own! { OWN_COUNTERS:
    POLICY_LOADS = "fairgate_policy_loads_total",
        "Sets of policy objects read, by whether they were taken on.";
    CONFIG_RELOADS = "fairgate_config_reloads_total",
        "Reloads of the configuration, by whether it was taken on.";
    TOKEN_REVIEWS = "fairgate_token_reviews_total",
        "Token reviews that the upstream was asked for, by outcome.";
    ACCESS_REVIEWS = "fairgate_access_reviews_total",
        "SubjectAccessReviews that the upstream was asked for, by outcome.";
    UPSTREAM_OPENED = "fairgate_upstream_connections_opened_total",
        "Connections opened to the upstream.";
    UPSTREAM_ERRORS = "fairgate_upstream_errors_total",
        "Failures of the upstream, by what failed.";
    UPSTREAM_ABANDONED = "fairgate_upstream_abandoned_total",
        "Streams of shared upstream connections whose answer nobody wanted any more, by whether they ended by themselves or were reset.";
    UPSTREAM_SENT_AGAIN = "fairgate_upstream_retries_total",
        "Requests sent once more, because the upstream had not looked at them or because they only read.";
    HELD_BACK = "fairgate_held_back_starts_total",
        "Requests whose start was held back for a moment, so that seats do not come free in groups.";
    PREMATURE_RESETS = "fairgate_premature_resets_total",
        "Requests that their client reset within a second of their arrival, before they were answered.";
    PREMATURE_REFUSED = "fairgate_premature_reset_refusals_total",
        "Requests refused because their user had made too many premature resets.";
    CLIENTS_ENDED = "fairgate_client_connections_ended_total",
        "Client connections ended in self-defence, by the reason.";
    REFUSED_HEADS = "fairgate_refused_heads_total",
        "Requests refused, or connections ended, before a request could be read, by reason.";
    HTTP2_FLOODS = "fairgate_http2_floods_total",
        "HTTP/2 connections ended because of too many frames that carry no request, by their type.";
    TURNED_AWAY = "fairgate_connections_turned_away_total",
        "Client connections closed at once because file descriptors were short.";
    ADMIN_CUT = "fairgate_admin_connections_cut_total",
        "Connections of the port for operators that were cut, by reason.";
    PANICS = "fairgate_panics_total",
        "Panics; each ended one request or task at most.";
    LOG_DROPPED = "fairgate_log_lines_dropped_total",
        "Log lines lost because they could not be written fast enough.";
}
