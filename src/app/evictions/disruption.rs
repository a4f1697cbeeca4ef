//! The disruption controller of a gateway: what it needs, its metrics, and its end.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::app::{
    hosted_api::HostedApi,
    runtimes::Gateway,
    settings::{self, UpstreamClients},
};
use fairgate_base::{clock::Clock, events::EventSink, tasks};
use fairgate_config::{Config, DisruptionControllerMode, StoreConfig};
use fairgate_disruption::controller::SyncEnding;
use fairgate_disruption_controller::{
    BudgetFeed, ControllerStatus, DisruptionRunner, RunnerSettings,
};
use fairgate_eviction_layer::Evictor;
use fairgate_observe::{HealthChecks, Telemetry, catalogue};
use fairgate_proxy::serve::DrainPhase;

/// The name of the lease of gateways that compute the status of the upstream's budgets.
const LEASE: &str = "fairgate-disruption-controller";

/// Reads a gauge.
type ReadGauge = fn(&ControllerStatus) -> f64;

/// A controller that was configured, and its status.
pub(crate) struct Disruption {
    runner: DisruptionRunner,
    status: Arc<ControllerStatus>,
}

impl Disruption {
    /// The controller, if it is switched on. It counts the budgets of `hosting`, if that has any, and tells `evictor` what
    /// it wrote.
    pub(crate) fn new(
        config: &Config,
        hosting: Option<&HostedApi>,
        clients: &UpstreamClients,
        clock: &Clock,
        evictor: Option<Arc<Evictor>>,
    ) -> Option<Self> {
        if config.eviction.controller == DisruptionControllerMode::Off || !config.has_upstream {
            return None;
        }
        let budgets = hosting.and_then(HostedApi::budget_feed);
        let status = Arc::new(ControllerStatus::new(clock.clone()));
        let server_clock = evictor.as_ref().map(|evictor| evictor.server_clock());
        let runner = DisruptionRunner::new(RunnerSettings {
            client: clients.budgets.clone(),
            streams: clients.streams.clone(),
            lease: lease(config, budgets.as_ref()),
            budgets,
            identity: format!("fairgate-{:016x}", settings::random()),
            clock: clock.clone(),
            server_clock: server_clock.unwrap_or_default(),
            seed: settings::random(),
            selector_terms: u64::from(config.eviction.selector_terms),
            status: Arc::clone(&status),
            written: match evictor {
                Some(evictor) => EventSink::new(move |budget| evictor.budget_written(budget)),
                None => EventSink::default(),
            },
        });
        Some(Self { runner, status })
    }

    /// Adds the controller to the health checks.
    pub(crate) fn add_health_check(&self, checks: HealthChecks) -> HealthChecks {
        let status = Arc::clone(&self.status);
        checks.note("disruption-controller", move || status.problem())
    }

    /// Registers the controller's metrics, and starts it. It runs until the gateway drains; then the lease is released.
    pub(crate) fn start(self, telemetry: &Telemetry, gateway: &mut Gateway) {
        self.register_metrics(telemetry);
        let mut phases = gateway.drain().subscribe();
        let drains = async move {
            let _ = phases.wait_for(|phase| *phase != DrainPhase::Serving).await;
        };
        let running = tasks::spawn(&gateway.budgets(), self.runner.run(drains));
        gateway.wait_for(running);
    }

    fn register_metrics(&self, telemetry: &Telemetry) {
        let metrics = telemetry.metrics();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let gauges: [(_, ReadGauge); 8] = [
            (&catalogue::DISRUPTION_LEADER, |s| {
                f64::from(u8::from(s.leads()))
            }),
            (&catalogue::DISRUPTION_PODS, |s| s.counts().pods as f64),
            (&catalogue::DISRUPTION_BUDGETS, |s| {
                s.counts().budgets as f64
            }),
            (&catalogue::DISRUPTION_EXHAUSTED, |s| {
                s.counts().exhausted as f64
            }),
            (&catalogue::DISRUPTION_OVER_LIMIT, |s| {
                s.counts().over_limit as f64
            }),
            (&catalogue::DISRUPTION_LONGEST_SLICE, |s| {
                s.work().longest_slice as f64
            }),
            (&catalogue::DISRUPTION_SYNC_DURATION, |s| {
                s.last_duration().as_secs_f64()
            }),
            (&catalogue::DISRUPTION_SYNC_AGE, |s| {
                s.last_age().as_secs_f64()
            }),
        ];
        for (metric, read) in gauges {
            let status = Arc::clone(&self.status);
            metrics.observe_gauge(metric, move || read(&status));
        }
        let status = Arc::clone(&self.status);
        metrics.observe_counter(&catalogue::DISRUPTION_LOOK_UPS, move || {
            status.work().look_ups
        });
        for ending in SyncEnding::ALL {
            let status = Arc::clone(&self.status);
            let label = ("outcome", ending.as_str());
            metrics.observe_labelled_counter(&catalogue::DISRUPTION_SYNCS, label, move || {
                status.syncs(ending)
            });
        }
    }
}

/// The name of the lease by which the gateways that have the same budgets elect a leader. A gateway whose budgets are
/// in a file of its own has no need of one.
fn lease(config: &Config, hosted: Option<&Arc<dyn BudgetFeed>>) -> Option<String> {
    match (&config.store, hosted) {
        (_, None) => Some(LEASE.to_owned()),
        (StoreConfig::Local { .. }, Some(_)) => None,
        (StoreConfig::Etcd(etcd), Some(_)) => {
            Some(shared_lease(etcd.endpoints.clone(), &etcd.prefix))
        }
    }
}

/// The lease of gateways that share an etcd. Others before the same upstream may have another etcd, and other budgets.
fn shared_lease(mut endpoints: Vec<String>, prefix: &str) -> String {
    endpoints.sort();
    endpoints.push(prefix.to_owned());
    let digest = Sha256::digest(endpoints.join("\n"));
    let digest = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    format!("{LEASE}-{digest:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_with_the_same_etcd_have_the_same_lease() {
        let lease = |endpoints: &[&str], prefix| {
            shared_lease(endpoints.iter().map(ToString::to_string).collect(), prefix)
        };
        let one = lease(&["http://a", "http://b"], "/fairgate");
        assert_eq!(one, lease(&["http://b", "http://a"], "/fairgate"));
        assert_ne!(one, lease(&["http://a", "http://b"], "/other"));
        assert_ne!(one, lease(&["http://c"], "/fairgate"));
        assert!(one.starts_with("fairgate-disruption-controller-"));
        assert_eq!(one.len(), LEASE.len() + 9);
    }
}
