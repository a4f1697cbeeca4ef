//! Sets up the evictor, which carries out or checks evictions.

pub(super) mod disruption;

use std::{sync::Arc, time::Duration};

use tokio::runtime;

use super::{
    Gateway, access_reviews, event_metrics,
    hosted_api::HostedApi,
    settings::{self, UpstreamClients},
};
use fairgate_base::{clock::Clock, events::EventSink, tasks};
use fairgate_config::{Config, DisruptionControllerMode, EvictionWaitConfig};
use fairgate_disruption::{EvictionMode, waiting::WaitLimits};
use fairgate_disruption_controller::EventRecorder;
use fairgate_eviction_layer::{EvictionWaitRules, Evictor, EvictorSettings, WaitingEviction};
use fairgate_gotext::GoDuration;
use fairgate_observe::{AlignedTable, GatewayMetrics, Telemetry};
use fairgate_proxy::serve::DrainPhase;

/// The component that reports events of evictions.
const EVENT_SOURCE: &str = "fairgate";

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
    let wait = wait_rules(&config.eviction.wait);
    let may_wait = mode == EvictionMode::Authoritative && !wait.limit.is_zero();
    let announcements = if may_wait && config.eviction.wait.events {
        let (recorder, events) = EventRecorder::new(clients.budgets.clone(), clock, EVENT_SOURCE);
        tasks::spawn(control, recorder.run());
        events
    } else {
        EventSink::default()
    };
    let evictor = Evictor::new(EvictorSettings {
        mode,
        access: access_reviews::reviews(config, clients, clock, metrics, control),
        client: clients.budgets.clone(),
        budgets: hosting.and_then(HostedApi::budgets),
        clock: clock.clone(),
        seed: settings::random(),
        events: event_metrics::evictions(metrics, mode),
        wait,
        wait_events: event_metrics::eviction_waits(metrics),
        announcements,
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
        exempt_users: wait.exempt_users.iter().cloned().collect(),
        places: WaitLimits {
            per_budget: wait.per_budget as usize,
            total: wait.total as usize,
        },
    }
}

/// Shows operators which evictions wait, and answers those when the gateway begins to stop.
pub(super) fn attach(evictor: Option<&Arc<Evictor>>, gateway: &Gateway, telemetry: &Telemetry) {
    show_waiting(evictor, telemetry);
    if let Some(evictor) = evictor {
        end_waits_with(Arc::clone(evictor), gateway);
    }
}

fn show_waiting(evictor: Option<&Arc<Evictor>>, telemetry: &Telemetry) {
    let of = evictor.map(Arc::downgrade).unwrap_or_default();
    let dump = move || {
        let waiting = of.upgrade().map(|evictor| evictor.waiting_evictions());
        table(waiting.unwrap_or_default())
    };
    // Called once.
    let _ = telemetry
        .provided_dumps()
        .waiting_evictions
        .set(Box::new(dump));
}

/// Evictions that wait, one row each.
fn table(evictions: Vec<WaitingEviction>) -> String {
    let mut table = AlignedTable::new(&[
        "Namespace",
        "PodDisruptionBudget",
        "Position",
        "Pod",
        "UserName",
        "Age",
        "TimeLeft",
        "HasTurn",
        "Reason",
    ]);
    let seconds = |time: Duration| GoDuration(Duration::from_secs(time.as_secs())).to_string();
    for eviction in evictions {
        table.row([
            eviction.budget.namespace,
            eviction.budget.name,
            eviction.position.to_string(),
            eviction.pod,
            eviction.user,
            seconds(eviction.age),
            seconds(eviction.left),
            eviction.has_turn.to_string(),
            eviction.reason,
        ]);
    }
    table.to_text()
}

fn end_waits_with(evictor: Arc<Evictor>, gateway: &Gateway) {
    let mut phases = gateway.drain().subscribe();
    tasks::spawn(&gateway.control(), async move {
        let stopping = phases.wait_for(|now| *now >= DrainPhase::Stopping);
        // Once the gateway is gone, no wait is left to end.
        if stopping.await.is_ok() {
            evictor.end_waits();
        }
    });
}
