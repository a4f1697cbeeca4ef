//! Keeps the status of hosted admission policies: what the type checker says about their expressions.

use std::{fmt, sync::Arc};

use serde_json::Value;
use tokio::{runtime::Handle, sync::watch};

use crate::app::{
    admission::UpstreamAdmission,
    hosted_api::{self, ENSURE_INTERVAL, HostedApi, RETRY_DELAY, RepeatedFailure},
    settings::UpstreamClients,
    throttle::Throttle,
};
use fairgate_admission::kinds::VALIDATING_ADMISSION_POLICY;
use fairgate_admission_cluster::KindSchemas;
use fairgate_apiserver::reconcile::{KnownPolicyKinds, PolicyKindSource, TypeCheckWriter};
use fairgate_base::{clock::Clock, tasks};
use fairgate_config::Config;
use fairgate_objects::kind::Kind;

/// The kinds that policies can be about: those of the upstream, or else those that are hosted here.
pub(crate) fn kinds(
    config: &Config,
    evaluating: Option<&UpstreamAdmission>,
    clients: &UpstreamClients,
    clock: &Clock,
    control: &Handle,
) -> Arc<dyn PolicyKindSource> {
    let own = hosted_api::hosted_kinds(config);
    match evaluating {
        _ if !config.has_upstream => Arc::new(HostedKinds::new(own)),
        Some(evaluating) => Arc::new(UpstreamKinds(evaluating.kind_schemas(own))),
        None => {
            let client = clients.reviews.clone();
            let schemas = KindSchemas::start(client, clock.clone(), control, own);
            Arc::new(UpstreamKinds(schemas))
        }
    }
}

/// The kinds of an upstream, and those that are hosted here.
#[derive(Debug)]
struct UpstreamKinds(KindSchemas);

impl PolicyKindSource for UpstreamKinds {
    fn kinds_of(&self, policy: &Value) -> Result<KnownPolicyKinds, String> {
        let named = self.0.kinds_of(policy)?;
        Ok(KnownPolicyKinds {
            kinds: named.kinds,
            version: named.version,
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes()
    }
}

/// Kinds that never change.
struct HostedKinds {
    kinds: Arc<Vec<&'static Kind>>,
    changes: watch::Sender<u64>,
}

impl HostedKinds {
    fn new(kinds: Vec<&'static Kind>) -> Self {
        Self {
            kinds: Arc::new(kinds),
            changes: watch::Sender::default(),
        }
    }
}

impl fmt::Debug for HostedKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostedKinds").finish_non_exhaustive()
    }
}

impl PolicyKindSource for HostedKinds {
    fn kinds_of(&self, _: &Value) -> Result<KnownPolicyKinds, String> {
        Ok(KnownPolicyKinds {
            kinds: Arc::<Vec<&'static Kind>>::clone(&self.kinds),
            version: None,
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// Starts the task that checks hosted policies, if there are any.
pub(crate) fn start(hosting: &HostedApi, control: &Handle) {
    if let Some(kinds) = &hosting.checked_kinds {
        tasks::spawn(control, keep(hosting.clone(), Arc::clone(kinds)));
    }
}

/// Checks the types of admission policies, after every change of them or of the kinds that they are about.
async fn keep(hosting: HostedApi, kinds: Arc<dyn PolicyKindSource>) {
    let mut checks = TypeCheckWriter::new(Arc::clone(&hosting.hosted), kinds);
    let (mut failures, mut lacks) = (RepeatedFailure::default(), RepeatedFailure::default());
    if hosting.store.wait_for(1).await.is_err() {
        return;
    }
    loop {
        // The watch starts before the objects are read, so that no change in between is missed.
        let change = hosting.change_below(&VALIDATING_ADMISSION_POLICY.key_prefix());
        let mut changes = checks.changes();
        changes.mark_unchanged();
        let pace = Throttle::begin(&hosting.clock);
        let outcome;
        (checks, outcome) = tasks::on_blocking_pool(async move {
            let outcome = checks.reconcile().await;
            (checks, outcome)
        })
        .await;
        let pause = match outcome {
            Ok(None) => {
                failures.ended();
                lacks.ended();
                ENSURE_INTERVAL
            }
            Ok(Some(why)) => {
                failures.ended();
                if lacks.is_new(&why) {
                    tracing::info!(%why, "an admission policy has no status yet");
                }
                2 * RETRY_DELAY
            }
            Err(error) => {
                if failures.is_new(&error) {
                    tracing::warn!(%error, "cannot write the status of admission policies");
                }
                RETRY_DELAY
            }
        };
        pace.rest().await;
        tokio::select! {
            () = change => {}
            Ok(()) = changes.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}
