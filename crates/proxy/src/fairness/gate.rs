//! The asynchronous face of the dispatcher, one for each data core.
//!
//! A request asks [`Gate::admit`] and gets a seat, a place to wait in, or a refusal. The gate takes
//! decisions from its mailbox and from the calls its own core makes, and gives each to the request
//! it concerns. A decision for a request that has gone is found out here, and its ticket finished.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{sync::oneshot, time::Sleep};

use super::{
    hub::{CorePolicy, Enforcement, Hub},
    seat::{Hold, Seat},
    slots::{OnItsWay, Slots, Waiter},
    slow_readers::SlowReaders,
    starts::Starts,
    wait::wait_deadline,
};
use fairgate_base::clock::Clock;
use fairgate_call::{Call, Pipe, RequestKind, refusal::Rejection};
use fairgate_core::{
    apf::{
        Flow, SchemaIndex, Semantics, Work,
        level::{Arrival, Decisions, Level, QueuePlace, Ticket},
    },
    cells::{Access, CoreCells},
    digest::RequestDigest,
    rejection::RejectReason,
    time::Time,
};

/// How often seats are looked for whose time has passed, and clients that read slowly.
pub(super) const SWEEP: Duration = Duration::from_millis(250);
/// How long after its time limit a request loses its seat.
const OVERDUE: Duration = Duration::from_secs(1);

/// What arrives in a core's mailbox.
#[derive(Debug)]
pub enum Letter {
    /// A waiting request may execute.
    Granted(Waiter, Ticket<Waiter>),
    /// The policy or a setting has changed.
    Policy(Arc<CorePolicy>),
    /// Somebody wants to know who these are, for a dump.
    Describe(
        Vec<Waiter>,
        oneshot::Sender<Vec<Option<Arc<RequestDigest>>>>,
    ),
}

/// The requests of one data core, before the dispatcher.
#[derive(Debug)]
pub struct Gate {
    hub: Arc<Hub>,
    core: u16,
    clock: Clock,
    policy: RefCell<Arc<CorePolicy>>,
    slots: RefCell<Slots>,
    pub(super) slow_readers: SlowReaders,
    pub(super) starts: Starts,
    pub(super) cells: Arc<CoreCells>,
    random: Cell<u64>,
}

/// What becomes of a request that asks to be admitted.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It executes, holding a seat.
    Execute(Seat),
    /// It waits.
    Wait(Box<Waiting>),
    /// It is refused.
    Refuse(Rejection),
    /// Flow control does not look at it.
    Unlimited,
}

/// A request in a queue. Dropped, it gives its place up at once.
#[derive(Debug)]
pub(super) struct Waiting {
    gate: Rc<Gate>,
    policy: Arc<CorePolicy>,
    schema: SchemaIndex,
    waiter: Waiter,
    /// `None` once it was granted or given up.
    place: Option<QueuePlace<Waiter>>,
    digest: Arc<RequestDigest>,
    kind: RequestKind,
    since: Time,
    timer: Pin<Box<Sleep>>,
}

impl Gate {
    /// The gate of core `core`. [`Gate::run`] must be spawned on that core.
    ///
    /// # Panics
    ///
    /// If the hub has not sent this core its policy; it does so when it is made.
    pub fn new(hub: Arc<Hub>, core: u16, clock: Clock, seed: u64) -> Rc<Self> {
        let mut letters = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let _ = hub.mailbox(core).poll_fetch(&mut cx, &mut letters);
        let policy = letters.into_iter().rev().find_map(|letter| match letter {
            Letter::Policy(policy) => Some(policy),
            Letter::Granted(..) | Letter::Describe(..) => None,
        });
        Rc::new(Self {
            cells: Arc::clone(&hub.core_cells()[core as usize]),
            hub,
            core,
            clock,
            policy: RefCell::new(policy.expect("a hub sends each core its policy first")),
            slots: RefCell::new(Slots::new(core)),
            slow_readers: SlowReaders::default(),
            starts: Starts::default(),
            random: Cell::new(seed | 1),
        })
    }

    /// Reads this core's mailbox, and looks after its seats, for ever.
    pub async fn run(self: Rc<Self>) {
        let mut letters = Vec::new();
        let mut sweeps = tokio::time::interval(SWEEP);
        loop {
            let mailbox = self.hub.mailbox(self.core);
            tokio::select! {
                () = poll_fn(|cx| mailbox.poll_fetch(cx, &mut letters)) => {}
                _ = sweeps.tick() => self.sweep(),
            }
            for letter in letters.drain(..) {
                self.read(letter);
            }
        }
    }

    fn read(self: &Rc<Self>, letter: Letter) {
        match letter {
            Letter::Granted(waiter, ticket) => self.start(waiter, ticket),
            Letter::Policy(policy) => {
                let enforces = policy.enforcement == Enforcement::Enforce;
                let old = self.policy.replace(policy);
                self.hub.retire(old);
                self.starts.forget();
                if !enforces {
                    // Nobody is held back any more.
                    self.slots.borrow_mut().wake_all();
                }
            }
            Letter::Describe(waiters, answer) => {
                let slots = self.slots.borrow();
                let known = waiters
                    .into_iter()
                    .map(|waiter| slots.digest(waiter))
                    .collect();
                // Whoever asked may have stopped waiting for the answer.
                let _ = answer.send(known);
            }
        }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The clock, to set timers by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What all cores share.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// The present policy.
    pub fn policy(&self) -> Arc<CorePolicy> {
        Arc::clone(&self.policy.borrow())
    }

    /// Asks for a seat. Classifies the request, estimates what it costs, and lets the dispatcher
    /// decide. O(1) in the number of schemas, O(log queues) in that of queues.
    pub(super) fn admit(self: &Rc<Self>, call: &Call) -> Verdict {
        let policy = self.policy();
        if policy.enforcement == Enforcement::Off || call.kind == RequestKind::LongRunning {
            return Verdict::Unlimited;
        }
        let now = self.now();
        let flow = policy.view.policy().classify(&call.digest);
        let work = self.estimate(now, call, &policy, &flow);
        let waiter = self.slots.borrow_mut().take(&call.digest, now);
        let until = wait_deadline(call.received, call.deadline, policy.request_timeout);
        let mut out = Decisions::default();
        let arrival = policy
            .view
            .arrive(now, &flow, work, until, waiter, &mut out);
        let queue_length = out.queue_length;
        self.deliver(out);

        let facts = policy.flow(flow.schema);
        if let Some(length) = queue_length {
            facts.cells.queue_length.observe(f64::from(length));
        }
        match arrival {
            Arrival::Execute(ticket) => {
                if !policy.view.is_exempt(flow.level) {
                    facts.cells.wait_executed.observe(0.0);
                }
                self.cells.filter.observe_duration(self.now().since(now));
                Verdict::Execute(self.seat(
                    Hold::Ticket(ticket, overdue_at(call.kind, now, &policy)),
                    waiter,
                    call,
                    &policy,
                    flow.schema,
                    now,
                ))
            }
            Arrival::Wait(place) if policy.enforcement == Enforcement::Observe => {
                Verdict::Execute(self.seat(
                    Hold::QueuePlace(place),
                    waiter,
                    call,
                    &policy,
                    flow.schema,
                    now,
                ))
            }
            Arrival::Wait(place) => self.wait(place, waiter, call, policy, flow, now, until),
            Arrival::Reject(reason) => {
                if reason == RejectReason::ConcurrencyLimit {
                    self.hub.press();
                }
                facts.cells.rejected(reason).increment();
                facts.cells.wait_refused.observe(0.0);
                if policy.enforcement == Enforcement::Observe {
                    return Verdict::Execute(self.seat(
                        Hold::Nothing,
                        waiter,
                        call,
                        &policy,
                        flow.schema,
                        now,
                    ));
                }
                self.slots.borrow_mut().give_back(waiter);
                Verdict::Refuse(self.refuse(&policy, flow.schema, reason))
            }
        }
    }

    /// Estimates what a request costs, and notes its flow and cost.
    fn estimate(&self, now: Time, call: &Call, policy: &CorePolicy, flow: &Flow) -> Work {
        let cap = policy.view.width_cap(flow.level);
        let (work, watchers) = self
            .hub
            .estimate(now, &call.digest.info, policy.estimator, cap);
        let facts = policy.flow(flow.schema);
        facts.cells.seats.observe(f64::from(work.max_seats()));
        if let Some(watchers) = watchers {
            facts.cells.watch_count.observe(f64::from(watchers));
        }
        let context = &call.context;
        let _ = context.trace.schema.set(Arc::clone(&facts.schema));
        let _ = context.trace.level.set(Arc::clone(&facts.level));
        let _ = context.flow_uids.set(facts.uids.clone());
        context.trace.initial_seats.set(work.initial_seats);
        context.trace.final_seats.set(work.final_seats);
        context
            .trace
            .additional_latency
            .set(work.additional_latency);
        work
    }

    fn seat(
        self: &Rc<Self>,
        hold: Hold,
        waiter: Waiter,
        call: &Call,
        policy: &Arc<CorePolicy>,
        schema: SchemaIndex,
        now: Time,
    ) -> Seat {
        let cells = Arc::clone(&policy.flow(schema).cells);
        let level = policy.view.policy().schemas()[schema.0 as usize].level;
        Seat::new(
            Rc::clone(self),
            hold,
            !policy.view.is_exempt(level),
            waiter,
            cells,
            &call.digest,
            call.kind,
            now,
        )
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "all there is to know of one arrival, in one place"
    )]
    fn wait(
        self: &Rc<Self>,
        place: QueuePlace<Waiter>,
        waiter: Waiter,
        call: &Call,
        policy: Arc<CorePolicy>,
        flow: Flow,
        since: Time,
        until: Time,
    ) -> Verdict {
        let waiting = Box::new(Waiting {
            gate: Rc::clone(self),
            schema: flow.schema,
            waiter,
            place: Some(place),
            digest: Arc::clone(&call.digest),
            kind: call.kind,
            since,
            timer: Box::pin(tokio::time::sleep_until(self.clock.instant(until))),
            policy,
        });
        if self.hub.enter_queue(waiting.policy.max_queued) {
            self.cells.waiting(waiting.access()).enter();
            return Verdict::Wait(waiting);
        }
        let (policy, schema) = (Arc::clone(&waiting.policy), waiting.schema);
        waiting.give_up_without_count();
        let reason = RejectReason::QueueFull;
        policy.flow(schema).cells.rejected(reason).increment();
        Verdict::Refuse(self.refuse(&policy, schema, reason))
    }

    fn refuse(&self, policy: &CorePolicy, schema: SchemaIndex, reason: RejectReason) -> Rejection {
        let level = policy.view.policy().schemas()[schema.0 as usize].level;
        let unix_seconds = self.clock.unix_seconds();
        let semantics = policy.view.policy().settings().semantics;
        let retry_after =
            policy
                .view
                .level(level)
                .retry_after(semantics, unix_seconds, self.next_random());
        Rejection {
            reason,
            retry_after,
        }
    }

    /// A pseudo-random number; good enough to spread clients out.
    fn next_random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Gives decisions to whoever they concern: requests of this core at once, others by letter.
    pub(super) fn deliver(self: &Rc<Self>, out: Decisions<Waiter>) {
        if !out.blocked.is_empty() {
            let policy = self.policy.borrow();
            for schema in &out.blocked {
                if let Some(cells) = policy.cells_of(*schema) {
                    cells.no_accommodation.increment();
                }
            }
        }
        if out.dispatched.is_empty() {
            return;
        }
        let mut away: Vec<(Waiter, Ticket<Waiter>)> = Vec::new();
        for (waiter, ticket) in out.dispatched {
            if waiter.core == self.core {
                self.start(waiter, ticket);
            } else {
                away.push((waiter, ticket));
            }
        }
        away.sort_by_key(|(waiter, _)| waiter.core);
        while let Some(core) = away.last().map(|(waiter, _)| waiter.core) {
            let from = away.partition_point(|(waiter, _)| waiter.core < core);
            let letters = away
                .drain(from..)
                .map(|(waiter, ticket)| Letter::Granted(waiter, ticket));
            self.hub.mailbox(core).post(letters);
        }
    }

    /// Grants a waiting request its ticket, at once or a little later.
    fn start(self: &Rc<Self>, waiter: Waiter, ticket: Ticket<Waiter>) {
        let spreads = {
            let policy = self.policy.borrow();
            policy.enforcement == Enforcement::Enforce
                && policy.view.policy().settings().semantics == Semantics::Improved
        };
        let since = self.slots.borrow().since(waiter).filter(|_| spreads);
        let now_granted = match since {
            Some(since) => {
                let now = self.now();
                let waited = now.since(since);
                self.starts.hold_back(self, now, waited, waiter, ticket)
            }
            None => Some(ticket),
        };
        if let Some(ticket) = now_granted {
            self.grant(waiter, ticket);
        }
    }

    pub(super) fn grant(self: &Rc<Self>, waiter: Waiter, ticket: Ticket<Waiter>) {
        let granted = self.slots.borrow_mut().grant(waiter, ticket);
        match granted {
            Ok(Some(waker)) => waker.wake(),
            Ok(None) => {}
            // It has gone: whoever finds that gives the seat back.
            Err(ticket) => self.finish(ticket),
        }
    }

    /// Gives a seat back.
    pub(super) fn finish(self: &Rc<Self>, ticket: Ticket<Waiter>) {
        let level = ticket.level().clone();
        let mut out = Decisions::default();
        let release = ticket.finish(self.now(), &mut out);
        self.deliver(out);
        if let Some(at) = release {
            self.tick_at(level, at);
        }
    }

    /// Sees to it that seats which linger until `at` are given on then.
    fn tick_at(&self, level: Level<Waiter>, at: Time) {
        let (hub, clock) = (Arc::clone(&self.hub), self.clock.clone());
        tokio::task::spawn_local(async move {
            tokio::time::sleep_until(clock.instant(at)).await;
            let mut out = Decisions::default();
            level.tick(clock.now().max(at), &mut out);
            hub.deliver(out);
        });
    }

    /// Leaves a slot, and a queue if it still stands there. Returns a ticket that came meanwhile.
    pub(super) fn leave(
        self: &Rc<Self>,
        waiter: Waiter,
        place: Option<QueuePlace<Waiter>>,
    ) -> bool {
        let unfetched = self.slots.borrow_mut().give_back(waiter);
        let mut cancelled = false;
        if let Some(ticket) = unfetched {
            self.finish(ticket);
        } else if let Some(place) = place {
            let mut out = Decisions::default();
            cancelled = place.cancel(self.now(), &mut out);
            self.deliver(out);
        }
        cancelled
    }

    /// Keeps the ticket of a request that executes, at most until `until`.
    pub(super) fn hold(self: &Rc<Self>, waiter: Waiter, ticket: Ticket<Waiter>, until: Time) {
        let held = self.slots.borrow_mut().hold(waiter, ticket, until);
        if let Err(ticket) = held {
            self.finish(ticket);
        }
    }

    /// The ticket a request executes by, or was granted meanwhile; `None` once it was taken from it.
    pub(super) fn take_ticket(&self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        let mut slots = self.slots.borrow_mut();
        slots.take_held(waiter).or_else(|| slots.fetch_now(waiter))
    }

    /// A request may keep its ticket until `until`.
    pub(super) fn hold_until(&self, waiter: Waiter, until: Time) {
        self.slots.borrow_mut().hold_until(waiter, until);
    }

    /// The answer to a request that executes has begun.
    pub(super) fn answered(&self, waiter: Waiter, answer: &Rc<Pipe>) {
        self.slots.borrow_mut().answered(waiter, answer);
    }

    /// The answers on their way that hold seats.
    pub(super) fn on_their_way(&self) -> Vec<OnItsWay> {
        self.slots.borrow().on_their_way()
    }

    fn sweep(self: &Rc<Self>) {
        self.release_overdue();
        self.slow_readers.look(self);
    }

    /// Gives back the seats of requests whose time limit has passed since they began to execute. The
    /// upstream has given them up by itself, as far as anybody can tell.
    pub(super) fn release_overdue(self: &Rc<Self>) {
        let overdue = self.slots.borrow_mut().take_overdue(self.now());
        for overdue in overdue {
            if let Some(answer) = overdue.answer {
                answer.time_is_up();
            }
            self.finish(overdue.ticket);
        }
    }
}

/// When a request that begins to execute at `since` loses its seat, whatever becomes of it. It counts
/// from there because the upstream knows nothing of a wait before. Once a watch is answered it has a
/// bound of its own; as the original has it, none at all.
fn overdue_at(kind: RequestKind, since: Time, policy: &CorePolicy) -> Time {
    let semantics = policy.view.policy().settings().semantics;
    if kind == RequestKind::Watch && semantics == Semantics::Compatible {
        return Time::NEVER;
    }
    since.plus(policy.request_timeout + OVERDUE)
}

impl Waiting {
    /// Waits for the seat. Ready with it, or with a refusal when the time is up.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Seat, Rejection>> {
        let granted = self.gate.slots.borrow_mut().fetch(self.waiter, cx.waker());
        if let Some(ticket) = granted {
            let until = overdue_at(self.kind, self.gate.now(), &self.policy);
            return Poll::Ready(Ok(self.take_seat(Hold::Ticket(ticket, until))));
        }
        let enforces = self.gate.policy.borrow().enforcement == Enforcement::Enforce;
        if !enforces && let Some(place) = self.place.take() {
            return Poll::Ready(Ok(self.take_seat(Hold::QueuePlace(place))));
        }
        if self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.give_up();
        Poll::Ready(Err(self.gate.refuse(
            &self.policy,
            self.schema,
            RejectReason::TimeOut,
        )))
    }

    /// How long it has waited.
    pub(super) fn waited(&self) -> std::time::Duration {
        self.gate.now().since(self.since)
    }

    fn access(&self) -> Access {
        Access::of(&self.digest.info.verb)
    }

    fn leave_queue(&self) {
        self.gate.hub.leave_queue();
        self.gate.cells.waiting(self.access()).leave();
    }

    fn take_seat(&mut self, hold: Hold) -> Seat {
        self.place = None;
        self.leave_queue();
        let now = self.gate.now();
        let cells = Arc::clone(&self.policy.flow(self.schema).cells);
        let waited = now.since(self.since);
        cells.wait_executed.observe_duration(waited);
        self.gate.cells.filter.observe_duration(waited);
        Seat::new(
            Rc::clone(&self.gate),
            hold,
            // An exempt level lets nobody wait.
            true,
            self.waiter,
            cells,
            &self.digest,
            self.kind,
            now,
        )
    }

    /// Gives the place up: the time is up, or the client has left.
    fn give_up(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        self.leave_queue();
        let cells = &self.policy.flow(self.schema).cells;
        cells.rejected(RejectReason::TimeOut).increment();
        let waited = self.waited();
        match self.policy.view.policy().settings().semantics {
            // The original says of these, too, that they executed.
            Semantics::Compatible => cells.wait_executed.observe_duration(waited),
            Semantics::Improved => cells.wait_refused.observe_duration(waited),
        }
        self.gate.leave(self.waiter, Some(place));
    }

    fn give_up_without_count(mut self) {
        let place = self.place.take();
        self.gate.leave(self.waiter, place);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}
