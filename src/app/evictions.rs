//! Sets up the evictor, which carries out or checks evictions.

use std::sync::Arc;

use tokio::runtime;

use super::{
    Gateway, access_reviews, event_metrics,
    hosted_api::HostedApi,
    settings::{self, UpstreamClients},
};
use fairgate_base::{clock::Clock, tasks};
use fairgate_config::{Config, DisruptionControllerMode, EvictionWaitConfig};
use fairgate_eviction::{EvictionMode, waiting::WaitLimits};
use fairgate_evictor::{EvictionWaitRules, Evictor, EvictorSettings};
use fairgate_observe::GatewayMetrics;
use fairgate_proxy::serve::DrainPhase;

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
    let evictor = Evictor::new(EvictorSettings {
        mode,
        access: access_reviews::reviews(config, clients, clock, metrics, control),
        client: clients.budgets.clone(),
        budgets: hosting.and_then(HostedApi::budgets),
        clock: clock.clone(),
        seed: settings::random(),
        events: event_metrics::evictions(metrics, mode),
        wait: wait_rules(&config.eviction.wait),
        wait_events: event_metrics::eviction_waits(metrics),
    });
    event_metrics::waiting_evictions(metrics, &evictor);
    Some(evictor)
}

/// Whether there is work with budgets that deserves a runtime of its own.
pub(super) fn has_budgets(config: &Config) -> bool {
    let eviction = &config.eviction;
    let decides =
        eviction.mode != EvictionMode::Relay || eviction.controller == DisruptionControllerMode::On;
    config.has_upstream && decides
}

fn wait_rules(wait: &EvictionWaitConfig) -> EvictionWaitRules {
    EvictionWaitRules {
        limit: wait.limit,
        users: wait.users.iter().cloned().collect(),
        groups: wait.groups.iter().cloned().collect(),
        places: WaitLimits {
            per_budget: wait.per_budget as usize,
            total: wait.total as usize,
        },
    }
}

/// Answers the evictions that wait when the gateway begins to stop.
pub(super) fn end_waits_with(evictor: Option<Arc<Evictor>>, gateway: &Gateway) {
    let Some(evictor) = evictor else { return };
    let mut phases = gateway.drain().subscribe();
    tasks::spawn(&gateway.control(), async move {
        let stopping = phases.wait_for(|now| *now >= DrainPhase::Stopping);
        // Once the gateway is gone, no wait is left to end.
        if stopping.await.is_ok() {
            evictor.end_waits();
        }
    });
}
