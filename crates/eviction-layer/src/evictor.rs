//! What all data cores share: the settings of evictions, and what their procedures need.

use std::{fmt, sync::Arc, time::Duration};

use fairgate_apihttp::authorize::Authorizer;
use fairgate_base::{clock::Clock, events::EventSink, log_limit::LogLimit};
use fairgate_core::{
    digest::User,
    random::Random,
    sync::{Mutex, lock},
};
use fairgate_disruption::{
    EvictionMode,
    controller::{ObjectKey, events::DisruptionEvent},
    procedure::server_clock::ServerClock,
    waiting::BudgetName,
};
use fairgate_upstream::{access_review::AccessReviews, client::ApiClient};
use tokio::sync::Semaphore;
use tracing::Level;

use crate::{
    budget_api::BudgetApi,
    budget_queue::BudgetQueues,
    events::{EvictionEvent, EvictionOutcome, EvictionWaitEvent},
    responses::EvictionEnd,
    upstream_objects::UpstreamObjects,
    wait_rules::EvictionWaitRules,
    waits::BudgetWaits,
};

/// The maximum number of procedures that continue after their clients have disconnected.
const MAX_WITHOUT_CLIENT: usize = 1024;
/// The longest part of a user's name that is logged, in bytes.
const MAX_SHOWN: usize = 256;
/// How many budgets are announced in 10 s. Each costs the upstream a write.
const ANNOUNCEMENTS: u32 = 50;
/// The log target of evictions that the gateway carries out.
const LOG: &str = "fairgate::evictions";
/// The maximum number of large bodies that are decoded at a time.
const DECODED_AT_ONCE: usize = 2;

/// What an [`Evictor`] needs.
pub struct EvictorSettings {
    /// Who decides about evictions.
    pub mode: EvictionMode,
    /// Reviews the callers' right to evict.
    pub access: AccessReviews,
    /// Makes the gateway's own calls.
    pub client: ApiClient,
    /// The budgets, if they are not the upstream's.
    pub budgets: Option<Arc<dyn BudgetApi>>,
    /// The local clock.
    pub clock: Clock,
    /// The seed of the random part of pauses.
    pub seed: u64,
    /// Receives the end of each eviction.
    pub events: EventSink<EvictionEvent>,
    /// Which evictions may wait for their budgets; has an effect only if the gateway decides.
    pub wait: EvictionWaitRules,
    /// Receives the end of each eviction that has waited.
    pub wait_events: EventSink<EvictionWaitEvent>,
    /// Receives that evictions begin to wait for a budget, to be recorded as an event on it: at most 50 in 10 s.
    pub announcements: EventSink<(ObjectKey, DisruptionEvent)>,
}

/// Carries out or checks evictions, for all data cores.
pub struct Evictor {
    pub(crate) mode: EvictionMode,
    pub(crate) authorizer: Authorizer,
    pub(crate) pods: UpstreamObjects,
    pub(crate) budgets: Arc<dyn BudgetApi>,
    pub(crate) clock: Clock,
    /// The estimate of the upstream's clock, corrected by every response.
    pub(crate) server_clock: Arc<Mutex<ServerClock>>,
    random: Mutex<Random>,
    pub(crate) queues: BudgetQueues,
    pub(crate) without_client: Arc<Semaphore>,
    pub(crate) decoding: Semaphore,
    pub(crate) failures: LogLimit,
    pub(crate) clock_warnings: LogLimit,
    pub(crate) wait: EvictionWaitRules,
    pub(crate) waits: Arc<BudgetWaits>,
    wait_lines: LogLimit,
    /// Bounds the announcements of all budgets together.
    pub(crate) announced: LogLimit,
    pub(crate) announcements: EventSink<(ObjectKey, DisruptionEvent)>,
    events: EventSink<EvictionEvent>,
    wait_events: EventSink<EvictionWaitEvent>,
}

impl Evictor {
    /// An evictor for one upstream.
    pub fn new(settings: EvictorSettings) -> Arc<Self> {
        let pods = UpstreamObjects::new(settings.client, settings.clock.clone());
        let budgets = settings.budgets;
        Arc::new(Self {
            mode: settings.mode,
            authorizer: Authorizer::Upstream(settings.access),
            budgets: budgets.unwrap_or_else(|| Arc::new(pods.clone())),
            pods,
            clock: settings.clock,
            server_clock: Arc::default(),
            random: Mutex::new(Random::seeded(settings.seed)),
            queues: BudgetQueues::default(),
            without_client: Arc::new(Semaphore::new(MAX_WITHOUT_CLIENT)),
            decoding: Semaphore::new(DECODED_AT_ONCE),
            failures: LogLimit::new(10),
            clock_warnings: LogLimit::new(1),
            waits: BudgetWaits::new(settings.wait.places),
            wait: settings.wait,
            wait_lines: LogLimit::new(10),
            announced: LogLimit::new(ANNOUNCEMENTS),
            announcements: settings.announcements,
            events: settings.events,
            wait_events: settings.wait_events,
        })
    }

    /// The estimate of the upstream's clock, which the times of evictions are recorded by. The controller of the budgets must compare
    /// them by the same.
    pub fn server_clock(&self) -> Arc<Mutex<ServerClock>> {
        Arc::clone(&self.server_clock)
    }

    /// The number of evictions that now wait for their budgets.
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }

    /// Answers all waiting evictions, and lets no others wait. Called when the gateway shuts down.
    pub fn end_waits(&self) {
        self.waits.end();
    }

    /// Whether any eviction may wait.
    pub fn may_wait(&self) -> bool {
        self.mode == EvictionMode::Authoritative && !self.wait.limit.is_zero()
    }

    /// Reports the end of an eviction that has waited.
    pub(crate) fn waited(&self, outcome: EvictionOutcome, waited: Duration) {
        self.wait_events.send(EvictionWaitEvent { outcome, waited });
    }

    /// Logs that an eviction begins to wait.
    pub(crate) fn log_wait(&self, user: &User, pod: &str, budget: &BudgetName) {
        if let Some(left_out) = self.wait_lines.next_line(self.clock.now()) {
            let user = shown(&user.name, MAX_SHOWN);
            tracing::info!(
                target: LOG,
                user,
                namespace = budget.namespace,
                pod,
                budget = budget.name,
                left_out,
                "eviction waits for its budget"
            );
        }
    }

    /// Reports the end of an eviction.
    pub(crate) fn count(&self, outcome: EvictionOutcome) {
        let mode = self.mode;
        self.events.send(EvictionEvent { mode, outcome });
    }

    /// Logs the end of an eviction that the gateway was to carry out.
    pub(crate) fn log(
        &self,
        user: &User,
        namespace: &str,
        pod: &str,
        dry_run: bool,
        end: &EvictionEnd,
    ) {
        let user = shown(&user.name, MAX_SHOWN);
        // The level of an event must be a constant, hence a macro.
        macro_rules! log {
            ($level:expr, $left_out:expr, $text:literal) => {
                tracing::event!(
                    target: LOG,
                    $level,
                    user,
                    namespace,
                    pod,
                    dry_run,
                    reason = end.reason,
                    status = end.response.status.as_u16(),
                    left_out = $left_out,
                    $text
                )
            };
        }
        match end.outcome {
            EvictionOutcome::Granted => log!(Level::INFO, None::<u64>, "pod evicted"),
            EvictionOutcome::Failed => {
                if let Some(left_out) = self.failures.next_line(self.clock.now()) {
                    log!(Level::WARN, Some(left_out), "eviction failed");
                }
            }
            _ => log!(Level::DEBUG, None::<u64>, "eviction refused"),
        }
    }

    /// A random number below `limit`, which must not be 0.
    pub(crate) fn random_below(&self, limit: u64) -> u64 {
        lock(&self.random).within(0..limit)
    }
}

/// The first `most` bytes of a user's name, cut at a character boundary.
pub(crate) fn shown(name: &str, most: usize) -> &str {
    let mut end = name.len().min(most);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

impl fmt::Debug for Evictor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evictor")
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
