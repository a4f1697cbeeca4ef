//! The part of flow control that all cores share: the dispatcher, the settings, the counters, and the cores'
//! mailboxes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    abandoned::AbandonedRequests,
    borrowing_trigger::BorrowingTrigger,
    core_policy::{CellsOfCores, CorePolicy, PolicyFlows},
    long_heads::LongHeads,
    long_running::LongRunning,
    message::GateMessage,
    premature_resets::UserResets,
    settings::{Enforcement, FlowControlSettings},
    unfinished_bodies::UnfinishedBodies,
    wait_limit::wait_limit,
    waiters::Waiter,
    work_estimates::WorkEstimates,
};
use fairgate_call::Spool;
use fairgate_core::{
    apf::{
        counts::Counts,
        dispatcher::{Dispatcher, LimitChange, PolicyView, SharedSeats},
        level::Decisions,
        policy::{Policy, Schema},
        queueset::LevelElsewhere,
        watchers::Watchers,
    },
    cells::{CoreCells, FlowCells, Window},
    mailbox::Mailbox,
    sync::{Mutex, lock},
    time::Time,
};

/// The part of flow control that all cores share.
#[derive(Debug)]
pub struct FlowControl {
    dispatcher: Dispatcher<Waiter>,
    mailboxes: Box<[Mailbox<GateMessage>]>,
    settings: Mutex<FlowControlSettings>,
    cells: Mutex<CellRegistry>,
    core_cells: Box<[Arc<CoreCells>]>,
    window: Arc<Window>,
    estimates: WorkEstimates,
    queued: AtomicU32,
    /// Policies that cores no longer use. Kept until no core holds one, because dropping a large policy takes
    /// long, which must not happen on a data core.
    retired: Mutex<Vec<Arc<CorePolicy>>>,
    borrowing: BorrowingTrigger,
    /// Long-running requests, which flow control does not limit.
    pub long_running: Arc<LongRunning>,
    /// Watches, initialised or not.
    pub watches: Arc<LongRunning>,
    /// Requests that were reset before they got a response.
    pub premature: UserResets,
    /// Requests that continue after their clients have disconnected.
    pub abandoned: Arc<AbandonedRequests>,
    /// Memory for replies whose clients read slowly.
    pub spool: Arc<Spool>,
    /// Requests that wait for their bodies before they ask for a seat.
    pub bodies: UnfinishedBodies,
    /// Long heads of requests in progress.
    pub long_heads: LongHeads,
}

/// The cells of each FlowSchema, by the names of its level and of itself.
type CellRegistry = BTreeMap<(Arc<str>, Arc<str>), CellsOfCores>;

impl FlowControl {
    /// Flow control for `cores` data cores under `policy`, from `now` on.
    pub fn new(
        cores: u16,
        policy: Arc<Policy>,
        settings: FlowControlSettings,
        now: Time,
    ) -> Arc<Self> {
        let semantics = policy.settings().semantics;
        let window = Arc::new(Window::default());
        let core_cells = (0..cores).map(|_| Arc::new(CoreCells::new(&window)));
        let flow_control = Arc::new(Self {
            dispatcher: Dispatcher::new(policy, now),
            mailboxes: (0..cores).map(|_| Mailbox::default()).collect(),
            long_running: Arc::new(LongRunning::new(settings.long_running)),
            watches: Arc::new(LongRunning::new(settings.watches)),
            premature: UserResets::new(settings.resets),
            abandoned: Arc::default(),
            spool: Arc::new(Spool::new(settings.spool.total)),
            bodies: UnfinishedBodies::new(settings.bodies),
            long_heads: LongHeads::new(settings.long_head_bytes),
            settings: Mutex::new(settings),
            cells: Mutex::default(),
            core_cells: core_cells.collect(),
            window,
            estimates: WorkEstimates::new(semantics),
            queued: AtomicU32::new(0),
            retired: Mutex::default(),
            borrowing: BorrowingTrigger::default(),
        });
        flow_control.publish();
        flow_control
    }

    /// Changes the policy, on all cores.
    pub fn apply(&self, now: Time, policy: Arc<Policy>) {
        let mut out = Decisions::default();
        let semantics = policy.settings().semantics;
        self.dispatcher.apply(now, policy, &mut out);
        self.with_counts(|counts| counts.set_semantics(semantics));
        self.publish();
        self.deliver(out);
    }

    /// Changes the settings, on all cores.
    pub fn configure(&self, settings: FlowControlSettings) {
        self.long_running.set_caps(settings.long_running);
        self.watches.set_caps(settings.watches);
        self.spool.set_total(settings.spool.total);
        self.long_heads.set_total(settings.long_head_bytes);
        *lock(&self.settings) = settings;
        self.publish();
    }

    /// Completes when seats should be lent and borrowed the next time, counted from the call: after
    /// [`FlowControl::borrowing_period`], or sooner once a request has to wait or is rejected for lack of seats.
    pub async fn borrowing_due(&self) {
        let semantics = self.dispatcher.view().policy().settings().semantics;
        self.borrowing.due(self.borrowing_period(), semantics).await;
    }

    /// The longest time that a request without a deadline of its own may wait in a queue.
    pub fn wait_limit(&self) -> Duration {
        wait_limit(lock(&self.settings).request_timeout)
    }

    /// A core no longer uses `old`.
    pub(super) fn retire(&self, old: Arc<CorePolicy>) {
        lock(&self.retired).push(old);
    }

    /// Drops the policies that no core uses any more.
    fn drop_retired(&self) {
        let is_needed = |policy: &mut Arc<CorePolicy>| Arc::strong_count(policy) > 1;
        let unneeded: Vec<_> = lock(&self.retired)
            .extract_if(.., |policy| !is_needed(policy))
            .collect();
        drop(unneeded);
    }

    /// To be called when a request has to wait, or is rejected for lack of seats: seats may be lent sooner.
    pub(super) fn report_contention(&self) {
        self.borrowing.request_soon();
    }

    /// Lends and borrows seats; to be called when [`FlowControl::borrowing_due`] completes.
    pub fn rebalance(&self, now: Time) -> Vec<LimitChange> {
        self.drop_retired();
        let mut out = Decisions::default();
        let before = self.dispatcher.view();
        let changes = self.dispatcher.rebalance(now, &mut out);
        self.publish_unless(&before);
        self.deliver(out);
        changes
    }

    /// Publishes the view of the dispatcher unless it is still this one.
    fn publish_unless(&self, before: &Arc<PolicyView<Waiter>>) {
        if !Arc::ptr_eq(before, &self.dispatcher.view()) {
            self.publish();
        }
    }

    /// From now on this gateway has only these seats, of those that several gateways share.
    pub fn share_seats(&self, now: Time, seats: SharedSeats) {
        let mut out = Decisions::default();
        let before = self.dispatcher.view();
        self.dispatcher.share_seats(now, seats, &mut out);
        self.publish_unless(&before);
        self.deliver(out);
    }

    /// What happens at the other gateways in each level, by name, from `now` on.
    pub fn note_elsewhere(&self, now: Time, of_level: impl Fn(&str) -> LevelElsewhere) {
        let mut out = Decisions::default();
        self.dispatcher.note_elsewhere(now, of_level, &mut out);
        self.deliver(out);
    }

    /// How often seats are lent and borrowed.
    pub fn borrowing_period(&self) -> Duration {
        lock(&self.settings).borrowing_period
    }

    /// The dispatcher, for metrics and dumps.
    pub fn dispatcher(&self) -> &Dispatcher<Waiter> {
        &self.dispatcher
    }

    /// The number of data cores.
    pub fn cores(&self) -> usize {
        self.mailboxes.len()
    }

    /// The mailbox of a core.
    pub fn mailbox(&self, core: u16) -> &Mailbox<GateMessage> {
        &self.mailboxes[core as usize]
    }

    /// Calls `visit` with the names of level and schema and the cells of all cores that had such requests.
    pub fn visit_cells(
        &self,
        mut visit: impl FnMut(&str, &str, &mut dyn Iterator<Item = &FlowCells>),
    ) {
        for ((level, schema), cells) in &*lock(&self.cells) {
            let mut used = cells
                .iter()
                .filter_map(|cells| cells.get().map(|cells| &**cells));
            visit(level, schema, &mut used);
        }
    }

    /// The counters of each core.
    pub fn core_cells(&self) -> &[Arc<CoreCells>] {
        &self.core_cells
    }

    /// The window that the watermarks of all cores follow.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Whether decisions are enforced.
    pub fn enforcement(&self) -> Enforcement {
        lock(&self.settings).enforcement
    }

    /// Calls `act` with the object counts of the upstream, to set or to update them.
    pub fn with_counts<T>(&self, act: impl FnOnce(&mut Counts) -> T) -> T {
        self.estimates.with_counts(act)
    }

    /// Calls `act` with the running watches.
    pub fn with_watchers<T>(&self, act: impl FnOnce(&mut Watchers) -> T) -> T {
        self.estimates.with_watchers(act)
    }

    /// Waiting requests, all cores together.
    pub fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Counts one more waiting request; false if there would be more than `max`.
    pub(super) fn enter_queue(&self, max: u32) -> bool {
        self.report_contention();
        let before = self.queued.fetch_add(1, Ordering::Relaxed);
        if before >= max {
            self.leave_queue();
        }
        before < max
    }

    /// Counts one less waiting request.
    pub(super) fn leave_queue(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// The estimates of what requests cost.
    pub(super) fn estimates(&self) -> &WorkEstimates {
        &self.estimates
    }

    /// Sends every core the current policy and settings.
    fn publish(&self) {
        // Locked before the view is read, and to the end: of two threads that publish at the same time, the
        // second one must not send the older view.
        let mut registry = lock(&self.cells);
        let view = self.dispatcher.view();
        let settings = lock(&self.settings).clone();
        let names = |schema: &Schema| {
            let level = &view.policy().levels()[schema.level.0 as usize];
            (Arc::clone(&level.name), Arc::clone(&schema.name))
        };
        let keys: Vec<_> = view.policy().schemas().iter().map(names).collect();
        let mut before = std::mem::take(&mut *registry);
        let new = || self.mailboxes.iter().map(|_| OnceLock::new()).collect();
        let cells: Vec<CellsOfCores> = keys
            .iter()
            .map(|key| before.remove(key).unwrap_or_else(new))
            .collect();
        *registry = keys.into_iter().zip(cells.iter().cloned()).collect();
        let flows = Arc::new(PolicyFlows::new(&view, &cells));
        for (core, mailbox) in (0..).zip(&self.mailboxes) {
            let policy = CorePolicy::new(core, &view, &settings, Arc::clone(&flows));
            mailbox.post([GateMessage::Policy(Arc::new(policy))]);
        }
    }

    /// Delivers decisions that were made on a thread that is not a data core.
    pub(super) fn deliver(&self, out: Decisions<Waiter>) {
        if let Some(waiter) = out.replaced {
            self.mailbox(waiter.core)
                .post([GateMessage::Replaced(waiter)]);
        }
        for (waiter, ticket) in out.dispatched {
            self.mailbox(waiter.core)
                .post([GateMessage::Granted(waiter, ticket)]);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::fairness::{BodyLimits, Caps};
    use fairgate_call::{ResetLimits, SpoolLimits};
    use fairgate_core::apf::{
        ObjectSet, PolicySettings, Semantics,
        scope::StatsScope,
        work::{EstimatorSettings, ObjectStats},
    };

    fn policy(total_seats: u32) -> Arc<Policy> {
        policy_of(total_seats, Semantics::Improved)
    }

    fn policy_of(total_seats: u32, semantics: Semantics) -> Arc<Policy> {
        let settings = PolicySettings {
            total_seats,
            semantics,
            hash_key: [7; 16],
            tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
        };
        let compiled = Policy::compile(&ObjectSet::default(), &settings);
        Arc::new(compiled.expect("the mandatory objects compile").policy)
    }

    pub(in crate::fairness) fn settings() -> FlowControlSettings {
        FlowControlSettings {
            enforcement: Enforcement::Enforce,
            request_timeout: Duration::from_secs(60),
            max_queued: 10,
            estimator: EstimatorSettings::default(),
            borrowing_period: Duration::from_secs(1),
            long_running: Caps::NONE,
            watches: Caps::NONE,
            resets: ResetLimits::PER_USER,
            spool: SpoolLimits::NONE,
            bodies: BodyLimits::NONE,
            long_head_bytes: usize::MAX,
        }
    }

    fn latest(flow_control: &FlowControl) -> Arc<CorePolicy> {
        let mut messages = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(
            flow_control
                .mailbox(0)
                .poll_fetch(&mut cx, &mut messages)
                .is_ready()
        );
        let Some(GateMessage::Policy(policy)) = messages.pop() else {
            panic!("the last message is not a policy");
        };
        policy
    }

    #[test]
    fn settings_that_change_along_with_the_policy_do_not_bring_the_old_policy_back() {
        let flow_control = FlowControl::new(1, policy(1), settings(), Time::ZERO);
        let old = flow_control.dispatcher().view();
        std::thread::scope(|scope| {
            let held_up = lock(&flow_control.cells);
            let known = Arc::strong_count(&old);
            scope.spawn(|| flow_control.configure(settings()));
            // By now it either holds the old view, or will not take it any more.
            (0..10_000)
                .take_while(|_| Arc::strong_count(&old) == known)
                .for_each(|_| std::thread::yield_now());
            let mut decisions = Decisions::default();
            flow_control
                .dispatcher
                .apply(Time::ZERO, policy(2), &mut decisions);
            drop(held_up);
        });
        assert!(Arc::ptr_eq(
            latest(&flow_control).view.policy(),
            flow_control.dispatcher().view().policy()
        ));
    }

    #[tokio::test]
    async fn a_request_that_waits_or_is_rejected_brings_the_next_rebalancing_forward() {
        let settings = FlowControlSettings {
            borrowing_period: Duration::from_secs(3600),
            ..settings()
        };
        let flow_control = FlowControl::new(1, policy(1), settings, Time::ZERO);
        assert!(super::super::borrowing_trigger::SOON <= Duration::from_millis(50));
        for _ in 0..3 {
            flow_control.report_contention();
            // Far longer than it should take, and far shorter than the period.
            let due = tokio::time::timeout(Duration::from_secs(10), flow_control.borrowing_due());
            assert!(due.await.is_ok());
        }
    }

    #[test]
    fn object_counts_expire_as_the_new_semantics_say() {
        let flow_control = FlowControl::new(1, policy(1), settings(), Time::ZERO);
        let pods = StatsScope {
            group: b"",
            resource: b"pods",
            namespace: None,
        };
        flow_control.with_counts(|counts| counts.seed(Time::ZERO, &pods, 7, None));
        let later = Time::ZERO.plus(Duration::from_secs(600));
        let stats = || flow_control.with_counts(|counts| counts.lookup(later, &pods));
        assert!(matches!(stats(), ObjectStats::Known { count: 7, .. }));
        flow_control.apply(later, policy_of(1, Semantics::Compatible));
        assert_eq!(stats(), ObjectStats::Stale);
    }
}
