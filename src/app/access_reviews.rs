//! Authorization by the upstream of calls to the hosted API, in `mode: overlay`.

use std::sync::Arc;

use tokio::runtime;

use super::{event_metrics, settings::UpstreamClients};
use fairgate_base::clock::Clock;
use fairgate_config::Config;
use fairgate_observe::GatewayMetrics;
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
    let mut settings = AccessReviewSettings {
        allowed_ttl: config.hosted_api.authorized_ttl,
        denied_ttl: config.hosted_api.unauthorized_ttl,
        ..AccessReviewSettings::default()
    };
    settings.lookups.events = event_metrics::access_reviews(metrics);
    let transport = ReviewClient::access(clients.reviews.clone());
    AccessReviews::new(settings, transport, clock.clone(), control.clone())
}
