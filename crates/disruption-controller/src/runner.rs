//! Runs the controller while this gateway is the leader: passes it the events of the watches, and makes the calls that
//! it requests, one at a time. What it computes it computes in slices, and between them the task yields to others.

use std::{fmt, sync::Arc, time::Duration};

use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit};
use fairgate_core::{sync::Mutex, time::Time};
use fairgate_disruption::{
    controller::{
        ControllerCounts, ControllerStep, ObjectKey, StatusWriteOutcome, scale::ScaleResult,
    },
    pod::ControllerRef,
    procedure::server_clock::ServerClock,
};
use fairgate_election::{Leadership, LeaseCandidate};
use fairgate_upstream::client::ApiClient;
use futures_util::{StreamExt as _, future::BoxFuture};
use http::Method;
use serde_json::Value;
use tokio::{sync::mpsc, task::yield_now};

use crate::{
    budget_feed::BudgetFeed,
    calls::{CallError, Calls, JSON, STRATEGIC_MERGE_PATCH, api_path, object_path},
    lookups::{self, Discovery},
    recorder::{Occurrence, Recorder},
    status::ControllerStatus,
    watches::{FollowedObjects, WatchUpdate, watches},
};

/// The interval at which all budgets are synced even without changes, as Kubernetes' controllers do.
const RESYNC: Duration = Duration::from_secs(12 * 3600);
/// The number of events after which the task yields to other tasks of the runtime.
const EVENTS_PER_TURN: u32 = 64;
/// The namespace of the lease, the same as for the leases of Kubernetes' own controllers.
const LEASE_NAMESPACE: &str = "kube-system";
/// The pause after the lease was lost.
const PAUSE: Duration = Duration::from_millis(100);

/// What a [`DisruptionRunner`] needs.
pub struct RunnerSettings {
    /// The client for all calls but watches, with the gateway's own credentials.
    pub client: ApiClient,
    /// The client for watches, which has a connection for each request.
    pub streams: ApiClient,
    /// The budgets, if they are hosted by the gateway; `None` for those of the upstream.
    pub budgets: Option<Arc<dyn BudgetFeed>>,
    /// The name of the `Lease` by which gateways elect a leader, in the namespace `kube-system`. Without one, this
    /// gateway always leads.
    pub lease: Option<String>,
    /// The identity of this gateway as the holder of the lease. It must differ from those of all other gateways.
    pub identity: String,
    /// The local clock.
    pub clock: Clock,
    /// The estimate of the upstream's clock, shared with whoever records the times of evictions in the budgets. Without a lease and with
    /// hosted budgets, the controller itself may make no call that would tell it.
    pub server_clock: Arc<Mutex<ServerClock>>,
    /// The seed of random pauses.
    pub seed: u64,
    /// How many requirements and values the selectors of the budgets of a namespace may have together. Ten more are counted for
    /// each budget.
    pub selector_terms: u64,
    /// Receives the state of the controller, for metrics.
    pub status: Arc<ControllerStatus>,
    /// Receives each budget whose status was written, with that status.
    pub written: EventSink<Value>,
}

/// The disruption controller of a gateway.
pub struct DisruptionRunner {
    settings: RunnerSettings,
    calls: Calls,
    discovery: Discovery,
    failures: LogLimit,
}

/// The outcome of a call that the controller requested.
enum Ended {
    LookUp(ControllerRef, ScaleResult),
    Write(StatusWriteOutcome),
    Patch(bool),
}

/// What the controller needs next.
enum Begun<'r> {
    Call(BoxFuture<'r, Ended>),
    /// It has more to compute.
    More,
    /// Nothing before this time.
    Nothing(Option<Time>),
}

impl DisruptionRunner {
    /// A controller that does not run yet; see [`DisruptionRunner::run`].
    pub fn new(settings: RunnerSettings) -> Self {
        Self {
            calls: Calls::sharing(
                Arc::clone(&settings.server_clock),
                settings.client.clone(),
                settings.clock.clone(),
            ),
            discovery: Discovery::new(settings.clock.clone()),
            failures: LogLimit::new(1),
            settings,
        }
    }

    /// Runs until `stop` completes. Then it releases the lease, which takes at most two seconds.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let RunnerSettings {
            clock,
            lease,
            identity,
            seed,
            status,
            ..
        } = &self.settings;
        let candidate = lease.as_ref().map(|name| LeaseCandidate {
            namespace: LEASE_NAMESPACE.to_owned(),
            name: name.clone(),
            identity: identity.clone(),
            task: "the disruption controller",
        });
        let mut leadership = Leadership::new(&self.calls, clock, candidate, *seed);
        let mut stop = std::pin::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = leadership.acquire() => {}
            }
            tracing::info!(lease, "this gateway runs the disruption controller");
            status.set_leads(true);
            let is_stopped = tokio::select! {
                () = &mut stop => true,
                () = leadership.keep() => false,
                () = self.lead() => false,
            };
            status.set_leads(false);
            status.set_counts(ControllerCounts::default());
            status.set_watches(Vec::new());
            if is_stopped {
                break;
            }
            tracing::warn!(
                lease,
                "the disruption controller stopped: its lease was lost"
            );
            tokio::time::sleep(PAUSE).await;
        }
        leadership.release().await;
    }

    /// Watches all kinds and keeps statuses up to date. Never returns.
    async fn lead(&self) {
        let (mut recorder, events) = Recorder::new(&self.calls, &self.settings.clock);
        tokio::join!(recorder.run(), self.follow(events));
    }

    async fn follow(&self, events: mpsc::Sender<Occurrence>) {
        let hosted = self
            .settings
            .budgets
            .as_ref()
            .map(|budgets| budgets.watch());
        let RunnerSettings { streams, clock, .. } = &self.settings;
        let (mut updates, health) = watches(streams, clock, hosted);
        self.settings.status.set_watches(health);
        let mut known = FollowedObjects::new(self.settings.selector_terms);
        let mut call: Option<BoxFuture<'_, Ended>> = None;
        let mut resync = self.settings.clock.now().plus(RESYNC);
        let mut turns = 0;
        loop {
            let mut until = resync;
            let mut has_more = false;
            if call.is_none() && known.is_complete() {
                match self.begin(&mut known) {
                    Begun::Call(next) => call = Some(next),
                    Begun::More => has_more = true,
                    Begun::Nothing(at) => until = until.min(at.unwrap_or(resync)),
                }
            }
            self.report(&mut known, &events);
            tokio::select! {
                Some(update) = updates.next() => self.take(&mut known, update),
                ended = join(&mut call) => {
                    call = None;
                    self.end(&mut known, ended);
                }
                () = yield_now(), if has_more => {}
                () = tokio::time::sleep_until(self.settings.clock.instant(until)) => {
                    if self.settings.clock.now() >= resync {
                        known.controller.queue_all();
                        resync = self.settings.clock.now().plus(RESYNC);
                    }
                }
            }
            turns += 1;
            if turns % EVENTS_PER_TURN == 0 {
                yield_now().await;
            }
        }
    }

    /// Has the controller compute for one slice.
    fn begin(&self, known: &mut FollowedObjects) -> Begun<'_> {
        let now = self.settings.clock.now();
        let call: BoxFuture<'_, Ended> = match known.controller.step(now, self.calls.date()) {
            ControllerStep::Continue => return Begun::More,
            ControllerStep::Wait(until) => return Begun::Nothing(until),
            ControllerStep::LookUp(namespace, owner) => {
                let lookup = lookups::begin(known, &namespace, owner.clone());
                Box::pin(async move {
                    let result = self.discovery.finish(&self.calls, &namespace, lookup);
                    Ended::LookUp(owner, result.await)
                })
            }
            ControllerStep::WriteStatus(key, object) => {
                Box::pin(async move { Ended::Write(self.write_status(&key, object).await) })
            }
            ControllerStep::PatchPod(key, patch) => {
                Box::pin(async move { Ended::Patch(self.patch_pod(&key, &patch).await) })
            }
        };
        Begun::Call(call)
    }

    fn end(&self, known: &mut FollowedObjects, ended: Ended) {
        let (now, date) = (self.settings.clock.now(), self.calls.date());
        match ended {
            Ended::LookUp(owner, result) => known.controller.looked_up(owner, result, now, date),
            Ended::Write(outcome) => known.controller.written(outcome, now, date),
            Ended::Patch(patched) => known.controller.patched(patched, now),
        }
    }

    async fn write_status(&self, key: &ObjectKey, object: Value) -> StatusWriteOutcome {
        let outcome = match &self.settings.budgets {
            Some(budgets) => budgets.write_status(key, &object).await,
            None => self.write_upstream(key, &object).await,
        };
        match &outcome {
            StatusWriteOutcome::Written => self.settings.written.send(object),
            StatusWriteOutcome::Conflict => {}
            StatusWriteOutcome::Failed(error) => {
                self.warn("the status of a budget cannot be written", key, error);
            }
        }
        outcome
    }

    /// Writes the status of a budget of the upstream.
    async fn write_upstream(&self, key: &ObjectKey, object: &Value) -> StatusWriteOutcome {
        let api = api_path("policy/v1");
        let path = object_path(&api, &key.namespace, "poddisruptionbudgets", &key.name);
        let path = format!("{path}/status");
        let written = self.calls.call(Method::PUT, &path, JSON, Some(object));
        match written.await {
            Ok(_) => StatusWriteOutcome::Written,
            Err(error) if error.code() == Some(409) => StatusWriteOutcome::Conflict,
            Err(error) => StatusWriteOutcome::Failed(error.to_string()),
        }
    }

    async fn patch_pod(&self, key: &ObjectKey, patch: &Value) -> bool {
        let path = object_path("/api/v1", &key.namespace, "pods", &key.name);
        let path = format!("{path}/status");
        let patched = self
            .calls
            .call(Method::PATCH, &path, STRATEGIC_MERGE_PATCH, Some(patch));
        match patched.await {
            Ok(_) | Err(CallError::Refused { code: 404, .. }) => true,
            // The pod has changed, and is checked again later.
            Err(CallError::Refused { code: 409, .. }) => false,
            Err(error) => {
                let text = "the condition DisruptionTarget of a pod cannot be reset";
                self.warn(text, key, &error.to_string());
                false
            }
        }
    }

    fn warn(&self, text: &str, key: &ObjectKey, why: &str) {
        if let Some(left_out) = self.failures.next_line(self.settings.clock.now()) {
            let ObjectKey { namespace, name } = key;
            tracing::warn!(%namespace, %name, why, left_out, "{text}");
        }
    }

    fn take(&self, known: &mut FollowedObjects, (kind, event): WatchUpdate) {
        let was_complete = known.is_complete();
        match event {
            Ok(event) => {
                if let Err(error) = known.take(kind, event) {
                    let (namespace, name) = ("", "");
                    self.warn(
                        "skipping an object that cannot be read",
                        &ObjectKey::new(namespace, name),
                        &error,
                    );
                }
            }
            Err(error) if error.is_absent() => known.absent(kind),
            Err(_) => {}
        }
        if !was_complete && known.is_complete() {
            let ControllerCounts { pods, budgets, .. } = known.controller.counts();
            tracing::info!(
                pods,
                budgets,
                "the disruption controller knows all pods and budgets"
            );
        }
    }

    /// Passes on the controller's events, reports and counts.
    fn report(&self, known: &mut FollowedObjects, events: &mpsc::Sender<Occurrence>) {
        for occurrence in known.controller.take_events() {
            // If events occur faster than they can be written, some are dropped. Most occur again.
            let _ = events.try_send(occurrence);
        }
        for report in known.controller.take_reports() {
            self.settings.status.synced(report);
        }
        self.settings.status.set_counts(known.controller.counts());
        self.settings.status.set_work(known.controller.work());
    }
}

/// Waits for the call, if there is one.
async fn join<T>(call: &mut Option<BoxFuture<'_, T>>) -> T {
    match call {
        Some(call) => call.await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for DisruptionRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DisruptionRunner")
            .field("lease", &self.settings.lease)
            .finish_non_exhaustive()
    }
}
