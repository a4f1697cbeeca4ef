//! How the upstream is asked what users may do: as it is asked about their tokens, in the gateway's own
//! name, on connections apart from those of requests.

use std::sync::Arc;

use bytes::Bytes;

use super::{counting, settings::UpstreamClients};
use crate::{config::Config, observe::GatewayMetrics};
use fairgate_apiserver::access::{AccessSettings, AskAccess, AskFuture, NotAsked, SubjectAccess};
use fairgate_base::clock::Clock;
use fairgate_upstream::review::{ReviewClient, ReviewTransport as _};

/// The upstream's word on who may do what.
pub(super) fn of_upstream(
    config: &Config,
    clients: &UpstreamClients,
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
) -> SubjectAccess {
    let upstream = Upstream(ReviewClient::access(clients.reviews.clone()));
    let settings = AccessSettings {
        allowed_ttl: config.hosted_api.authorized_ttl,
        denied_ttl: config.hosted_api.unauthorized_ttl,
        events: counting::access_reviews(metrics),
        ..AccessSettings::default()
    };
    SubjectAccess::new(upstream, settings, clock.clone())
}

struct Upstream(ReviewClient);

impl AskAccess for Upstream {
    fn ask(&self, review: Bytes) -> AskFuture<'_> {
        Box::pin(async move {
            let answer = self.0.post(review).await;
            answer.map_err(|error| NotAsked {
                reason: error.to_string(),
                again: error.retry_delay(),
            })
        })
    }
}
