//! What the layers tell of, counted in the gateway's own metrics.

use std::sync::Arc;

use crate::observe::{Abandoned, Own, Reviewed, UpstreamError, names};
use fairgate_apiserver::access::AccessEnd;
use fairgate_base::events::EventSink;
use fairgate_proxy::{
    auth::token_review::ReviewEnd,
    forward::{ConnectionEvent, ConnectionLimit, Lane},
    serve::ClientEvent,
};

/// Counts connections to the upstream.
pub(super) fn connections(own: &Arc<Own>) -> EventSink<ConnectionEvent> {
    let own = Arc::clone(own);
    EventSink::new(move |event| match event {
        ConnectionEvent::Opened => own.upstream_opened(),
        ConnectionEvent::NotOpened => own.upstream_failed(UpstreamError::Connect),
        ConnectionEvent::Lost => own.upstream_failed(UpstreamError::Lost),
        ConnectionEvent::Closed => own.upstream_closed(),
        ConnectionEvent::RanOut => own.upstream_abandoned(Abandoned::RanOut),
        ConnectionEvent::Reset => own.upstream_abandoned(Abandoned::Reset),
        ConnectionEvent::SentAgain => own.upstream_sent_again(),
    })
}

/// Shows how many streams there are to the upstream, and may be.
pub(super) fn streams(own: &Own, limit: &Arc<ConnectionLimit>) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let number = |count: usize| count as f64;
    for (lane, name) in [
        (Lane::Watches, "watches"),
        (Lane::LongRunning, "long-running"),
    ] {
        let label = Some(("carry", name));
        let of = Arc::clone(limit);
        let used = move || number(of.streams(lane));
        own.pull_labelled(&names::UPSTREAM_STREAMS, label, used);
        let of = Arc::clone(limit);
        let most = move || number(of.most_streams());
        own.pull_labelled(&names::UPSTREAM_STREAMS_LIMIT, label, most);
    }
}

/// Counts what is done about clients.
pub(super) fn clients(own: &Arc<Own>) -> EventSink<ClientEvent> {
    let resets = own.labelled_counter(&names::CLIENTS_ENDED, "reason", "resets");
    EventSink::new(move |event| match event {
        ClientEvent::EndedForResets => resets.increment(1),
    })
}

/// Counts what the upstream is asked about tokens.
pub(super) fn token_reviews(own: &Arc<Own>) -> EventSink<ReviewEnd> {
    let own = Arc::clone(own);
    EventSink::new(move |end| {
        own.token_reviewed(match end {
            ReviewEnd::Accepted => Reviewed::Yes,
            ReviewEnd::Refused => Reviewed::No,
            ReviewEnd::Failed => Reviewed::Failed,
        });
    })
}

/// Counts what the upstream is asked about what users may do.
pub(super) fn access_reviews(own: &Arc<Own>) -> EventSink<AccessEnd> {
    let own = Arc::clone(own);
    EventSink::new(move |end| {
        own.access_reviewed(match end {
            AccessEnd::Allowed => Reviewed::Yes,
            AccessEnd::Denied => Reviewed::No,
            AccessEnd::Failed => Reviewed::Failed,
        });
    })
}
