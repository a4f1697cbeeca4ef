//! What decides about evictions.

use std::sync::Arc;

use tokio::runtime;

use super::{
    access_reviews, event_metrics,
    hosted_api::HostedApi,
    settings::{self, UpstreamClients},
};
use crate::{config::Config, observe::GatewayMetrics};
use fairgate_base::clock::Clock;
use fairgate_evictor::{Evictor, EvictorSettings};

/// The evictor of a gateway that has an upstream. Budgets are those of `hosting`, if it has any. The caller's
/// rights are reviewed on `control`.
pub(super) fn evictor(
    config: &Config,
    hosting: Option<&HostedApi>,
    clients: &UpstreamClients,
    clock: &Clock,
    metrics: &Arc<GatewayMetrics>,
    control: &runtime::Handle,
) -> Option<Arc<Evictor>> {
    if !config.has_upstream {
        return None;
    }
    let mode = config.eviction.mode;
    Some(Evictor::new(EvictorSettings {
        mode,
        access: access_reviews::reviews(config, clients, clock, metrics, control),
        client: clients.reviews.clone(),
        budgets: hosting.and_then(HostedApi::budgets),
        clock: clock.clone(),
        seed: settings::random(),
        events: event_metrics::evictions(metrics, mode),
    }))
}
