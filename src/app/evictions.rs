//! What decides about evictions.

use std::sync::Arc;

use tokio::runtime;

use super::{
    access_reviews, event_metrics,
    settings::{self, UpstreamClients},
};
use crate::{config::Config, observe::GatewayMetrics};
use fairgate_base::clock::Clock;
use fairgate_evictor::{Evictor, EvictorSettings};

/// The evictor of a gateway that has an upstream. The caller's rights are reviewed on `control`.
pub(super) fn evictor(
    config: &Config,
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
        budgets: None,
        clock: clock.clone(),
        seed: settings::random(),
        events: event_metrics::evictions(metrics, mode),
    }))
}
