//! What all cores share: the dispatcher, the upstream's object counts, and each other's mailboxes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::HeaderValue;
use tokio::sync::Notify;

use super::{
    abandoned::Abandoned,
    gate::Letter,
    long_running::{Caps, LongRunning},
    premature::UserResets,
    slots::Waiter,
};
use fairgate_call::{FlowUids, ResetLimits, Spool, SpoolLimits};
use fairgate_core::{
    apf::{
        Semantics, Work,
        counts::{CountSettings, Counts},
        dispatcher::{Dispatcher, LimitChange, PolicyView},
        level::Decisions,
        policy::{Policy, Schema},
        scope::StatsScope,
        watchers::Watchers,
        work::{EstimateInput, EstimatorSettings, ObjectStats, WidthCap},
    },
    cells::{CoreCells, FlowCells, Window},
    digest::RequestInfo,
    mailbox::Mailbox,
    sync::{Mutex, lock},
    time::Time,
};

/// Different watches told apart; further ones are not counted.
const MAX_WATCH_KEYS: usize = 100_000;
/// How long a level that needs seats waits at most for others' to be lent to it, or its own given back.
const SOON: Duration = Duration::from_millis(50);

/// What is done about the dispatcher's decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// They are carried out.
    #[default]
    Enforce,
    /// They are counted; every request goes ahead.
    Observe,
    /// None are asked for.
    Off,
}

/// Settings of the hub.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// What is done about decisions.
    pub enforcement: Enforcement,
    /// A request's time limit; a quarter of it may be spent in a queue.
    pub request_timeout: Duration,
    /// Requests that may wait, all levels together.
    pub max_queued: u32,
    /// How costs are estimated.
    pub estimator: EstimatorSettings,
    /// How often seats are lent and borrowed; not zero.
    pub borrowing_period: Duration,
    /// How many long-running requests that are no watches may run.
    pub long_running: Caps,
    /// How many watches may run.
    pub watches: Caps,
    /// How many requests a user may reset before they are answered. Stays as it is at first.
    pub resets: ResetLimits,
    /// How much of answers whose clients read slowly may be spooled, and how many bytes such a client
    /// has to take in a second.
    pub spool: SpoolLimits,
}

/// What all cores share.
#[derive(Debug)]
pub struct Hub {
    dispatcher: Dispatcher<Waiter>,
    mailboxes: Box<[Mailbox<Letter>]>,
    settings: Mutex<HubSettings>,
    cells: Mutex<CellRegistry>,
    core_cells: Box<[Arc<CoreCells>]>,
    window: Arc<Window>,
    counts: Mutex<Counts>,
    watchers: Mutex<Watchers>,
    queued: AtomicU32,
    /// Policies that cores no longer follow; whoever holds one last must not be a data core.
    retired: Mutex<Vec<Arc<CorePolicy>>>,
    /// A request had to wait since seats were last lent and borrowed.
    pressed: AtomicBool,
    press: Notify,
    /// Long-running requests that flow control lets pass.
    pub long_running: Arc<LongRunning>,
    /// Watches, initialised or not.
    pub watches: Arc<LongRunning>,
    /// Requests reset before they were answered.
    pub premature: UserResets,
    /// Requests whose clients have left.
    pub abandoned: Arc<Abandoned>,
    /// Answers whose clients read slowly.
    pub spool: Arc<Spool>,
}

/// Each flow schema's cells, one per core, by level and schema name.
type CellRegistry = BTreeMap<(Arc<str>, Arc<str>), Box<[Arc<FlowCells>]>>;

/// The policy as one core sees it, with all that a request needs of it at hand.
#[derive(Debug)]
pub struct CorePolicy {
    /// Policy and levels.
    pub view: Arc<PolicyView<Waiter>>,
    /// What is done about decisions.
    pub enforcement: Enforcement,
    /// A request's time limit.
    pub request_timeout: Duration,
    /// Requests that may wait, all levels together.
    pub max_queued: u32,
    /// How costs are estimated.
    pub estimator: EstimatorSettings,
    /// How much of slowly read answers may be spooled.
    pub spool: SpoolLimits,
    flows: Box<[FlowFacts]>,
    cells_by_id: Vec<Option<Arc<FlowCells>>>,
}

/// What a request needs of the schema it matched.
#[derive(Clone, Debug)]
pub struct FlowFacts {
    /// Where it is counted.
    pub cells: Arc<FlowCells>,
    /// Name of the schema.
    pub schema: Arc<str>,
    /// Name of its level.
    pub level: Arc<str>,
    /// UIDs of schema and level, ready to be put into headers.
    pub uids: FlowUids,
}

impl Hub {
    /// A hub for `cores` data cores that follows `policy` from `now` on.
    pub fn new(cores: u16, policy: Arc<Policy>, settings: HubSettings, now: Time) -> Arc<Self> {
        let semantics = policy.settings().semantics;
        let window = Arc::new(Window::default());
        let core_cells = (0..cores).map(|_| Arc::new(CoreCells::new(&window)));
        let hub = Arc::new(Self {
            dispatcher: Dispatcher::new(policy, now),
            mailboxes: (0..cores).map(|_| Mailbox::default()).collect(),
            long_running: Arc::new(LongRunning::new(settings.long_running)),
            watches: Arc::new(LongRunning::new(settings.watches)),
            premature: UserResets::new(settings.resets),
            abandoned: Arc::default(),
            spool: Arc::default(),
            settings: Mutex::new(settings),
            cells: Mutex::default(),
            core_cells: core_cells.collect(),
            window,
            counts: Mutex::new(Counts::new(CountSettings::of(semantics))),
            watchers: Mutex::new(Watchers::new(MAX_WATCH_KEYS)),
            queued: AtomicU32::new(0),
            retired: Mutex::default(),
            pressed: AtomicBool::new(false),
            press: Notify::new(),
        });
        hub.publish();
        hub
    }

    /// Takes on another policy, on all cores.
    pub fn apply(&self, now: Time, policy: Arc<Policy>) {
        let mut out = Decisions::default();
        let semantics = policy.settings().semantics;
        self.dispatcher.apply(now, policy, &mut out);
        self.with_counts(|counts| counts.set_semantics(semantics));
        self.publish();
        self.deliver(out);
    }

    /// Takes on other settings, on all cores. The number of cores stays.
    pub fn configure(&self, settings: HubSettings) {
        self.long_running.set_caps(settings.long_running);
        self.watches.set_caps(settings.watches);
        *lock(&self.settings) = settings;
        self.publish();
    }

    /// Waits until seats should be lent and borrowed again, the last time having just been: for
    /// [`Hub::borrowing_period`], or less once a request has to wait or is refused. The original lets demand that
    /// rises wait for the whole period, and so does [`Semantics::Compatible`].
    pub async fn borrowing_due(&self) {
        let period = self.borrowing_period();
        let semantics = self.dispatcher.view().policy().settings().semantics;
        if semantics == Semantics::Compatible {
            return tokio::time::sleep(period).await;
        }
        let soon = (period / 2).min(SOON);
        tokio::time::sleep(soon).await;
        let rest = tokio::time::timeout(period.saturating_sub(soon), self.press.notified());
        // Either way it is due.
        let _ = rest.await;
        self.pressed.store(false, Ordering::Relaxed);
    }

    /// A core follows another policy than `old` from now on.
    pub(super) fn retire(&self, old: Arc<CorePolicy>) {
        lock(&self.retired).push(old);
    }

    /// Drops the policies that nobody needs any more. That can take long: not for a data core.
    fn drop_retired(&self) {
        let is_needed = |policy: &mut Arc<CorePolicy>| Arc::strong_count(policy) > 1;
        let unneeded: Vec<_> = lock(&self.retired)
            .extract_if(.., |policy| !is_needed(policy))
            .collect();
        drop(unneeded);
    }

    /// A request has to wait, or is refused for want of seats.
    pub(super) fn press(&self) {
        if !self.pressed.swap(true, Ordering::Relaxed) {
            self.press.notify_one();
        }
    }

    /// Lends and borrows seats; to be called when [`Hub::borrowing_due`] says so.
    pub fn rebalance(&self, now: Time) -> Vec<LimitChange> {
        self.drop_retired();
        let mut out = Decisions::default();
        let changes = self.dispatcher.rebalance(now, &mut out);
        self.deliver(out);
        changes
    }

    /// How often seats are lent and borrowed.
    pub fn borrowing_period(&self) -> Duration {
        lock(&self.settings).borrowing_period
    }

    /// The dispatcher, for metrics and dumps.
    pub fn dispatcher(&self) -> &Dispatcher<Waiter> {
        &self.dispatcher
    }

    /// Data cores.
    pub fn cores(&self) -> usize {
        self.mailboxes.len()
    }

    /// The mailbox of a core.
    pub fn mailbox(&self, core: u16) -> &Mailbox<Letter> {
        &self.mailboxes[core as usize]
    }

    /// Calls `visit` with the names of level and schema and the cells of all cores.
    pub fn visit_cells(&self, mut visit: impl FnMut(&str, &str, &[Arc<FlowCells>])) {
        for ((level, schema), cells) in &*lock(&self.cells) {
            visit(level, schema, cells);
        }
    }

    /// What each core counts of all its requests.
    pub fn core_cells(&self) -> &[Arc<CoreCells>] {
        &self.core_cells
    }

    /// The window that the watermarks of all cores follow.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// What is done about decisions.
    pub fn enforcement(&self) -> Enforcement {
        lock(&self.settings).enforcement
    }

    /// Object counts of the upstream, to be seeded or told of an answer.
    pub fn with_counts<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        act(&mut lock(&self.counts))
    }

    /// The watches that run.
    pub fn with_watchers<T>(&self, act: impl FnOnce(&mut Watchers) -> T) -> T {
        act(&mut lock(&self.watchers))
    }

    /// Requests waiting, all cores together.
    pub fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// One more request waits; false if that would be too many.
    pub(super) fn enter_queue(&self, max: u32) -> bool {
        self.press();
        let before = self.queued.fetch_add(1, Ordering::Relaxed);
        if before >= max {
            self.leave_queue();
        }
        before < max
    }

    /// One request less waits.
    pub(super) fn leave_queue(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// What a request costs, and how many watchers it wakes, if it is one that does.
    pub(super) fn estimate(
        &self,
        now: Time,
        info: &RequestInfo,
        estimator: EstimatorSettings,
        cap: WidthCap,
    ) -> (Work, Option<u32>) {
        match estimator.input(info) {
            EstimateInput::Nothing => (
                estimator.estimate(info, ObjectStats::Untracked, 0, cap),
                None,
            ),
            EstimateInput::Objects => {
                let stats = lock(&self.counts).lookup(now, &StatsScope::of(info));
                (estimator.estimate(info, stats, 0, cap), None)
            }
            EstimateInput::Watchers => {
                let watchers = lock(&self.watchers).interested(info);
                (
                    estimator.estimate(info, ObjectStats::Untracked, watchers, cap),
                    Some(watchers),
                )
            }
        }
    }

    /// Sends every core the present policy and settings.
    fn publish(&self) {
        // Held to the end: of two that publish at once the later one must send the later view.
        let mut registry = lock(&self.cells);
        let view = self.dispatcher.view();
        let settings = lock(&self.settings).clone();
        let wanted = |schema: &Schema| {
            let level = &view.policy().levels()[schema.level.0 as usize];
            (Arc::clone(&level.name), Arc::clone(&schema.name))
        };
        let keys: Vec<_> = view.policy().schemas().iter().map(wanted).collect();
        let cores = self.mailboxes.len();
        for key in &keys {
            registry
                .entry(key.clone())
                .or_insert_with(|| (0..cores).map(|_| Arc::default()).collect());
        }
        let kept: std::collections::BTreeSet<_> = keys.iter().collect();
        registry.retain(|key, _| kept.contains(key));
        for core in 0..cores {
            let cells: Vec<_> = keys
                .iter()
                .map(|key| Arc::clone(&registry[key][core]))
                .collect();
            let policy = CorePolicy::new(Arc::clone(&view), &settings, cells);
            self.mailboxes[core].post([Letter::Policy(Arc::new(policy))]);
        }
    }

    /// Delivers decisions that were made off the data cores.
    pub(super) fn deliver(&self, out: Decisions<Waiter>) {
        for (waiter, ticket) in out.dispatched {
            self.mailbox(waiter.core)
                .post([Letter::Granted(waiter, ticket)]);
        }
    }
}

impl CorePolicy {
    fn new(
        view: Arc<PolicyView<Waiter>>,
        settings: &HubSettings,
        cells: Vec<Arc<FlowCells>>,
    ) -> Self {
        let policy = Arc::clone(view.policy());
        let mut cells_by_id = Vec::new();
        let mut flows = Vec::with_capacity(cells.len());
        for ((index, schema), cells) in (0..).zip(policy.schemas()).zip(cells) {
            let id = view.schema_id(fairgate_core::apf::SchemaIndex(index)).0 as usize;
            if cells_by_id.len() <= id {
                cells_by_id.resize(id + 1, None);
            }
            cells_by_id[id] = Some(Arc::clone(&cells));
            let level = &policy.levels()[schema.level.0 as usize];
            flows.push(FlowFacts {
                cells,
                schema: Arc::clone(&schema.name),
                level: Arc::clone(&level.name),
                uids: FlowUids {
                    schema: uid_header(&schema.uid),
                    level: uid_header(&level.uid),
                },
            });
        }
        Self {
            view,
            enforcement: settings.enforcement,
            request_timeout: settings.request_timeout,
            max_queued: settings.max_queued,
            estimator: settings.estimator,
            spool: settings.spool,
            flows: flows.into(),
            cells_by_id,
        }
    }

    /// What a request needs of the schema it matched.
    pub fn flow(&self, schema: fairgate_core::apf::SchemaIndex) -> &FlowFacts {
        &self.flows[schema.0 as usize]
    }

    /// The cells of a schema by its lasting number.
    pub(super) fn cells_of(&self, id: u32) -> Option<&FlowCells> {
        self.cells_by_id.get(id as usize)?.as_deref()
    }
}

/// A UID as a header value. What cannot be one is not passed on as it is, but is never empty.
fn uid_header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid)
        .ok()
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| HeaderValue::from_static("not-representable"))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use fairgate_core::apf::{ObjectSet, PolicySettings};

    fn policy(total_seats: u32) -> Arc<Policy> {
        policy_of(total_seats, Semantics::Improved)
    }

    fn policy_of(total_seats: u32, semantics: Semantics) -> Arc<Policy> {
        let settings = PolicySettings {
            total_seats,
            semantics,
            hash_key: [7; 16],
        };
        let compiled = Policy::compile(&ObjectSet::default(), &settings);
        Arc::new(compiled.expect("the mandatory objects compile").policy)
    }

    fn settings() -> HubSettings {
        HubSettings {
            enforcement: Enforcement::Enforce,
            request_timeout: Duration::from_secs(60),
            max_queued: 10,
            estimator: EstimatorSettings::default(),
            borrowing_period: Duration::from_secs(1),
            long_running: Caps::NONE,
            watches: Caps::NONE,
            resets: ResetLimits::PER_USER,
            spool: SpoolLimits::NONE,
        }
    }

    fn latest(hub: &Hub) -> Arc<CorePolicy> {
        let mut letters = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(hub.mailbox(0).poll_fetch(&mut cx, &mut letters).is_ready());
        let Some(Letter::Policy(policy)) = letters.pop() else {
            panic!("the last letter is no policy");
        };
        policy
    }

    #[test]
    fn settings_that_change_along_with_the_policy_do_not_bring_the_old_policy_back() {
        let hub = Hub::new(1, policy(1), settings(), Time::ZERO);
        let old = hub.dispatcher().view();
        std::thread::scope(|scope| {
            let held_up = lock(&hub.cells);
            let known = Arc::strong_count(&old);
            scope.spawn(|| hub.configure(settings()));
            // Either it has the old view in its hands by now, or will not take it any more.
            (0..10_000)
                .take_while(|_| Arc::strong_count(&old) == known)
                .for_each(|_| std::thread::yield_now());
            let mut nobody = Decisions::default();
            hub.dispatcher.apply(Time::ZERO, policy(2), &mut nobody);
            drop(held_up);
        });
        assert!(Arc::ptr_eq(&latest(&hub).view, &hub.dispatcher().view()));
    }

    #[tokio::test]
    async fn whoever_has_to_wait_or_is_refused_brings_the_next_rebalancing_forward() {
        let settings = HubSettings {
            borrowing_period: Duration::from_secs(3600),
            ..settings()
        };
        let hub = Hub::new(1, policy(1), settings, Time::ZERO);
        assert!(SOON <= Duration::from_millis(50));
        for _ in 0..3 {
            hub.press();
            // Far more than it should be, and far less than the period.
            let due = tokio::time::timeout(Duration::from_secs(10), hub.borrowing_due());
            assert!(due.await.is_ok());
        }
    }

    #[test]
    fn what_is_known_of_objects_is_believed_as_the_new_semantics_have_it() {
        let hub = Hub::new(1, policy(1), settings(), Time::ZERO);
        let pods = StatsScope {
            group: b"",
            resource: b"pods",
            namespace: None,
        };
        hub.with_counts(|counts| counts.seed(Time::ZERO, &pods, 7, None));
        let later = Time::ZERO.plus(Duration::from_secs(600));
        let stats = || hub.with_counts(|counts| counts.lookup(later, &pods));
        assert!(matches!(stats(), ObjectStats::Known { count: 7, .. }));
        hub.apply(later, policy_of(1, Semantics::Compatible));
        assert_eq!(stats(), ObjectStats::Stale);
    }
}
