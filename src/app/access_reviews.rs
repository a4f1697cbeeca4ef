//! Authorization by the upstream of calls to the hosted API, in `mode: overlay`.

use std::sync::Arc;

use tokio::runtime;

use super::{event_metrics, settings::UpstreamClients};
use crate::{config::Config, observe::GatewayMetrics};
use fairgate_base::clock::Clock;
use fairgate_upstream::{
    access_review::{AccessReviewSettings, AccessReviews},
    review::ReviewClient,
};

/// Access reviews by the upstream, which run on `control`.
pub(super) fn reviews(
    config: &Config,
    clients: &UpstreamClients,
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    control: &runtime::Handle,
) -> AccessReviews {
    let settings = AccessReviewSettings {
        allowed_ttl: config.hosted_api.authorized_ttl,
        denied_ttl: config.hosted_api.unauthorized_ttl,
        events: event_metrics::access_reviews(metrics),
        ..AccessReviewSettings::default()
    };
    let transport = ReviewClient::access(clients.reviews.clone());
    AccessReviews::new(settings, transport, clock.clone(), control.clone())
}
