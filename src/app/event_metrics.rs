//! Sinks for the events of the layers, which count them in the gateway's metrics.

use std::sync::{Arc, LazyLock};

use fairgate_base::{account::ByteBudget, events::EventSink};
use fairgate_eviction_layer::{
    EvictionEvent, EvictionMode, EvictionOutcome, EvictionWaitEvent, Evictor,
};
use fairgate_observe::{AbandonedStreamEnd, GatewayMetrics, MetricDef, UpstreamFailure, catalogue};
use fairgate_proxy::{
    forward::{ConnectionEvent, ConnectionLimit, Lane},
    serve::ClientEvent,
};
use fairgate_upstream::{
    lookup::LookupOutcome, target::UpstreamTarget, token_review::TokenReviews,
};

/// Counts connections to the upstream.
pub(super) fn connections(metrics: &Arc<GatewayMetrics>) -> EventSink<ConnectionEvent> {
    let metrics = Arc::clone(metrics);
    EventSink::new(move |event| match event {
        ConnectionEvent::Opened => metrics.upstream_opened(),
        ConnectionEvent::NotOpened => metrics.upstream_failed(UpstreamFailure::Connect),
        ConnectionEvent::Lost => metrics.upstream_failed(UpstreamFailure::Lost),
        ConnectionEvent::Closed => metrics.upstream_closed(),
        ConnectionEvent::Completed => metrics.upstream_abandoned(AbandonedStreamEnd::Completed),
        ConnectionEvent::Reset => metrics.upstream_abandoned(AbandonedStreamEnd::Reset),
        ConnectionEvent::SentAgain => metrics.upstream_retried(),
    })
}

/// Registers the metric of whether the upstream can be reached, if it is one server. It says what the health check says.
pub(super) fn upstream_up(metrics: &GatewayMetrics, target: UpstreamTarget) {
    metrics.observe_gauge(&catalogue::UPSTREAM_UP, move || {
        f64::from(u8::from(target.problem().is_none()))
    });
}

/// Registers the metrics of upstream streams and their limit.
pub(super) fn streams(metrics: &GatewayMetrics, limit: &Arc<ConnectionLimit>) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |count: usize| count as f64;
    for (lane, name) in [
        (Lane::Watches, "watches"),
        (Lane::LongRunning, "long-running"),
    ] {
        let label = ("carry", name);
        let of = Arc::clone(limit);
        let used = move || number(of.streams(lane));
        metrics.observe_labelled_gauge(&catalogue::UPSTREAM_STREAMS, label, used);
        let of = Arc::clone(limit);
        let most = move || number(of.streams_limit());
        metrics.observe_labelled_gauge(&catalogue::UPSTREAM_STREAMS_LIMIT, label, most);
    }
}

/// Counts client connections that the gateway ends to protect itself, and failed handshakes.
pub(super) fn clients(metrics: &Arc<GatewayMetrics>) -> EventSink<ClientEvent> {
    let resets = metrics.labelled_counter(&catalogue::CLIENTS_ENDED, "reason", "resets");
    let handshakes = metrics.unlabelled_counter(&catalogue::HANDSHAKE_ERRORS);
    EventSink::new(move |event| match event {
        ClientEvent::EndedForResets => resets.increment(1),
        ClientEvent::HandshakeFailed => handshakes.increment(1),
    })
}

/// Counts evictions, which `mode` decides about.
pub(super) fn evictions(
    metrics: &Arc<GatewayMetrics>,
    mode: EvictionMode,
) -> EventSink<EvictionEvent> {
    let metrics = Arc::clone(metrics);
    let counters = LazyLock::new(move || {
        EvictionOutcome::ALL.map(|outcome| {
            let labels = [("mode", mode.as_str()), ("outcome", outcome.as_str())];
            metrics.counter_of_two_labels(&catalogue::EVICTIONS, labels)
        })
    });
    // Exposed from the first eviction on: most gateways see none.
    EventSink::new(move |event: EvictionEvent| counters[event.outcome as usize].increment(1))
}

/// Measures how long evictions wait for their budgets.
pub(super) fn eviction_waits(metrics: &Arc<GatewayMetrics>) -> EventSink<EvictionWaitEvent> {
    let metrics = Arc::clone(metrics);
    let outcomes = EvictionOutcome::ALL.map(EvictionOutcome::as_str);
    let waits = LazyLock::new(move || metrics.histogram(&catalogue::EVICTION_WAIT, &outcomes));
    // Exposed from the first wait on.
    EventSink::new(move |event: EvictionWaitEvent| {
        waits.observe(event.outcome.as_str(), event.waited);
    })
}

/// Shows how many evictions wait, where any may.
pub(super) fn waiting_evictions(metrics: &GatewayMetrics, evictor: &Arc<Evictor>) {
    if !evictor.may_wait() {
        return;
    }
    let of = Arc::downgrade(evictor);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let waiting = move || of.upgrade().map_or(0, |evictor| evictor.waiting()) as f64;
    metrics.observe_gauge(&catalogue::EVICTIONS_WAITING, waiting);
}

/// Counts token reviews.
pub(super) fn token_reviews(metrics: &Arc<GatewayMetrics>) -> EventSink<LookupOutcome> {
    let metrics = Arc::clone(metrics);
    EventSink::new(move |outcome| metrics.token_reviewed(outcome))
}

/// Shows what clients of queued requests may have sent.
pub(super) fn stream_windows(metrics: &GatewayMetrics, windows: &Arc<ByteBudget>) {
    let of = [&catalogue::STREAM_WINDOWS, &catalogue::STREAM_WINDOWS_PEAK];
    held_bytes(metrics, of, windows);
}

/// Shows what requests take whose tokens are being reviewed.
pub(super) fn token_review_bytes(metrics: &GatewayMetrics, waiting: &Arc<ByteBudget>) {
    let of = [
        &catalogue::TOKEN_REVIEW_BYTES,
        &catalogue::TOKEN_REVIEW_BYTES_PEAK,
    ];
    held_bytes(metrics, of, waiting);
}

/// Shows what is held of a budget, and the most that ever was.
fn held_bytes(metrics: &GatewayMetrics, of: [&'static MetricDef; 2], budget: &Arc<ByteBudget>) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |bytes: usize| bytes as f64;
    let [now, most] = [(); 2].map(|()| Arc::clone(budget));
    metrics.observe_gauge(of[0], move || number(now.held().now));
    metrics.observe_gauge(of[1], move || number(most.held().most));
}

/// Shows how many token reviews run or wait.
pub(super) fn pending_token_reviews(metrics: &GatewayMetrics, reviews: &TokenReviews) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |count: usize| count as f64;
    for (at, metric) in [
        &catalogue::TOKEN_REVIEWS_PENDING,
        &catalogue::TOKEN_REVIEWS_PENDING_PEAK,
    ]
    .into_iter()
    .enumerate()
    {
        let reviews = reviews.clone();
        metrics.observe_gauge(metric, move || number(reviews.pending()[at]));
    }
}

/// Counts access reviews.
pub(super) fn access_reviews(metrics: &Arc<GatewayMetrics>) -> EventSink<LookupOutcome> {
    let metrics = Arc::clone(metrics);
    EventSink::new(move |outcome| metrics.access_reviewed(outcome))
}
