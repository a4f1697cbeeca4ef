//! The asynchronous side of the dispatcher, one for each data core.
//!
//! The gate knows the core's waiting and executing requests. It hands each decision of the dispatcher to the
//! request that it is about, on whichever core; if the request no longer exists, the gate returns its ticket.
//!
//! Not here: how a request is admitted (`admission`), and what the core's task does (`gate_task`).

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
    time::Duration,
};

use super::{
    core_policy::CorePolicy,
    delayed_starts::{DelayedStarts, Start},
    flow_control::FlowControl,
    message::GateMessage,
    settings::Enforcement,
    waiters::{BodyInProgress, ReplyInProgress, Waiter, WaiterTable},
};
use fairgate_base::clock::Clock;
use fairgate_call::{BodyProgress, Call, ReplyPipe};
use fairgate_core::{
    apf::{
        Semantics,
        level::{Decisions, Level, QueuePlace, Ticket},
    },
    cells::CoreCells,
    digest::RequestDigest,
    time::Time,
};

/// Flow control for the requests of one data core.
#[derive(Debug)]
pub struct Gate {
    flow_control: Arc<FlowControl>,
    core: u16,
    clock: Clock,
    policy: RefCell<Arc<CorePolicy>>,
    pub(super) waiters: RefCell<WaiterTable>,
    starts: DelayedStarts,
    pub(super) cells: Arc<CoreCells>,
    random: Cell<u64>,
    /// Empty boxes for calls whose bodies are read before they ask for a seat.
    #[expect(clippy::vec_box, reason = "the boxes themselves are kept")]
    boxes: RefCell<Vec<Box<Option<Call>>>>,
}

/// How many empty boxes are kept: more than requests arrive in one turn of a busy core.
const SPARE_BOXES: usize = 64;

impl Gate {
    /// The gate of core `core`. [`Gate::run`] must be spawned on that core.
    ///
    /// # Panics
    ///
    /// If flow control has not sent this core its policy, which it does when it is created.
    pub fn new(flow_control: Arc<FlowControl>, core: u16, clock: Clock, seed: u64) -> Rc<Self> {
        let mut messages = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        let _ = flow_control
            .mailbox(core)
            .poll_fetch(&mut cx, &mut messages);
        let policy = messages
            .into_iter()
            .rev()
            .find_map(|message| match message {
                GateMessage::Policy(policy) => Some(policy),
                GateMessage::Granted(..) | GateMessage::Replaced(_) | GateMessage::Describe(..) => {
                    None
                }
            });
        Rc::new(Self {
            cells: Arc::clone(&flow_control.core_cells()[core as usize]),
            flow_control,
            core,
            clock,
            policy: RefCell::new(policy.expect("flow control sends each core its policy first")),
            waiters: RefCell::new(WaiterTable::new(core)),
            starts: DelayedStarts::default(),
            // A state of zero would stay zero.
            random: Cell::new(seed | 1),
            boxes: RefCell::default(),
        })
    }

    /// A call in a box. Boxes are used again: a write whose body is there costs no allocation.
    pub(super) fn boxed(&self, call: Call) -> Box<Option<Call>> {
        let mut empty = self.boxes.borrow_mut().pop().unwrap_or_default();
        *empty = Some(call);
        empty
    }

    /// The call of a box, which is kept for another one.
    pub(super) fn unboxed(&self, mut boxed: Box<Option<Call>>) -> Option<Call> {
        let call = boxed.take();
        let mut boxes = self.boxes.borrow_mut();
        if boxes.len() < SPARE_BOXES {
            boxes.push(boxed);
        }
        call
    }

    /// The number of the core that the gate belongs to.
    pub(super) fn core(&self) -> u16 {
        self.core
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The time as it was read last in this turn ([`Clock::turn`]).
    pub(super) fn turn(&self) -> Time {
        self.clock.turn()
    }

    /// The clock, for timers.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The flow control that all cores share.
    pub fn flow_control(&self) -> &Arc<FlowControl> {
        &self.flow_control
    }

    /// The current policy.
    pub fn policy(&self) -> Arc<CorePolicy> {
        Arc::clone(&self.policy.borrow())
    }

    /// Whether decisions are enforced under the current settings.
    pub(super) fn enforces(&self) -> bool {
        self.policy.borrow().enforcement == Enforcement::Enforce
    }

    /// Uses `policy` from now on.
    pub(super) fn set_policy(&self, policy: Arc<CorePolicy>) {
        let old = self.policy.replace(policy);
        // Freeing a large policy takes long, and is left to the control runtime.
        self.flow_control.retire(old);
        self.starts.forget_unused();
        if !self.enforces() {
            // Waiting requests then execute: they have to be polled to do so.
            self.waiters.borrow_mut().wake_all();
        }
    }

    /// The digests of these requests; `None` for those that no longer exist.
    pub(super) fn describe(&self, requests: Vec<Waiter>) -> Vec<Option<Arc<RequestDigest>>> {
        let waiters = self.waiters.borrow();
        requests
            .into_iter()
            .map(|waiter| waiters.digest(waiter))
            .collect()
    }

    /// A pseudo-random number (xorshift), good enough to spread retries.
    pub(super) fn next_random(&self) -> u64 {
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        x
    }

    /// Delivers decisions about other requests: to those of this core directly, to others by their core's
    /// mailbox, with one wake-up per core.
    #[inline]
    pub(super) fn deliver(self: &Rc<Self>, out: Decisions<Waiter>) {
        // Most events concern nobody else.
        if !out.is_empty() {
            self.deliver_some(out);
        }
    }

    #[inline(never)]
    fn deliver_some(self: &Rc<Self>, out: Decisions<Waiter>) {
        if !out.blocked.is_empty() {
            let policy = self.policy.borrow();
            for schema in &out.blocked {
                if let Some(cells) = policy.cells_of(*schema) {
                    cells.no_accommodation.increment();
                }
            }
        }
        if let Some(waiter) = out.replaced {
            if waiter.core == self.core {
                self.replace(waiter);
            } else {
                let message = GateMessage::Replaced(waiter);
                self.flow_control.mailbox(waiter.core).post([message]);
            }
        }
        if out.dispatched.is_empty() {
            return;
        }
        let mut remote: Vec<(Waiter, Ticket<Waiter>)> = Vec::new();
        for (waiter, ticket) in out.dispatched {
            if waiter.core == self.core {
                self.start(waiter, ticket);
            } else {
                remote.push((waiter, ticket));
            }
        }
        // One post for each core wakes it once, however many of its requests start.
        remote.sort_by_key(|(waiter, _)| waiter.core);
        while let Some(core) = remote.last().map(|(waiter, _)| waiter.core) {
            let from = remote.partition_point(|(waiter, _)| waiter.core < core);
            let messages = remote
                .drain(from..)
                .map(|(waiter, ticket)| GateMessage::Granted(waiter, ticket));
            self.flow_control.mailbox(core).post(messages);
        }
    }

    /// Grants a waiting request its ticket, immediately or after a short delay.
    pub(super) fn start(self: &Rc<Self>, waiter: Waiter, ticket: Ticket<Waiter>) {
        let may_delay = {
            let policy = self.policy.borrow();
            policy.enforcement != Enforcement::Off
                && policy.view.policy().settings().semantics == Semantics::Improved
        };
        let since = self.waiters.borrow().since(waiter).filter(|_| may_delay);
        let Some(since) = since else {
            return self.grant(waiter, ticket);
        };
        let now = self.now();
        match self.starts.start(now, now.since(since), waiter, ticket) {
            Start::Now(ticket) => self.grant(waiter, ticket),
            Start::Later(first) => {
                self.cells.held_back.increment();
                if let Some(delayed) = first {
                    let gate = Rc::clone(self);
                    fairgate_base::turns::spawn_local_boxed(async move {
                        while let Some((waiter, ticket)) = delayed.next(&gate.clock).await {
                            gate.grant(waiter, ticket);
                        }
                    });
                }
            }
        }
    }

    fn grant(self: &Rc<Self>, waiter: Waiter, ticket: Ticket<Waiter>) {
        let granted = self.waiters.borrow_mut().grant(waiter, ticket);
        match granted {
            Ok(Some(waker)) => waker.wake(),
            Ok(None) => {}
            // The request no longer exists, so its ticket is returned here.
            Err(ticket) => self.finish_unused(ticket),
        }
    }

    /// Tells a waiting request that another one has taken its place. If it no longer exists, it has given up meanwhile.
    pub(super) fn replace(&self, waiter: Waiter) {
        let waker = self.waiters.borrow_mut().replace(waiter);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The request has executed for `took`, or was refused before it was carried out. Returns its ticket, unless that was
    /// taken away as overdue.
    pub(super) fn end_execution(self: &Rc<Self>, waiter: Waiter, took: Duration, is_refused: bool) {
        match self.take_ticket(waiter) {
            Some(ticket) if is_refused => self.finish_unused(ticket),
            Some(ticket) => {
                self.starts.executed(ticket.level(), took);
                self.finish(ticket);
            }
            None => {}
        }
        self.remove(waiter, None);
    }

    /// Returns a ticket by which nothing was carried out.
    fn finish_unused(self: &Rc<Self>, ticket: Ticket<Waiter>) {
        self.finish_by(ticket, Ticket::finish_refused);
    }

    /// Returns the ticket of a request that has executed.
    fn finish(self: &Rc<Self>, ticket: Ticket<Waiter>) {
        self.finish_by(ticket, Ticket::finish);
    }

    fn finish_by(
        self: &Rc<Self>,
        ticket: Ticket<Waiter>,
        finish: fn(Ticket<Waiter>, Time, &mut Decisions<Waiter>) -> Option<Time>,
    ) {
        let level = ticket.level().clone();
        let mut out = Decisions::default();
        let release = finish(ticket, self.turn(), &mut out);
        self.deliver(out);
        if let Some(at) = release {
            self.tick_at(level, at);
        }
    }

    /// Dispatches waiting requests at `at`, when final seats become free.
    fn tick_at(&self, level: Level<Waiter>, at: Time) {
        let (flow_control, clock) = (Arc::clone(&self.flow_control), self.clock.clone());
        fairgate_base::turns::spawn_local(async move {
            let mut due = Some(at);
            while let Some(at) = due {
                tokio::time::sleep_until(clock.instant(at)).await;
                let mut out = Decisions::default();
                due = level.tick(clock.now().max(at), &mut out);
                flow_control.deliver(out);
            }
        });
    }

    /// Removes a request, and cancels its place if it is still in a queue. A ticket that it was granted
    /// but did not take is returned.
    pub(super) fn remove(self: &Rc<Self>, waiter: Waiter, place: Option<QueuePlace<Waiter>>) {
        let untaken = self.waiters.borrow_mut().remove(waiter);
        if let Some(ticket) = untaken {
            self.finish_unused(ticket);
        } else if let Some(place) = place {
            let mut out = Decisions::default();
            place.cancel(self.now(), &mut out);
            self.deliver(out);
        }
    }

    /// Keeps the ticket of an executing request, at most until `until`.
    pub(super) fn hold(self: &Rc<Self>, waiter: Waiter, ticket: Ticket<Waiter>, until: Time) {
        let held = self.waiters.borrow_mut().hold(waiter, ticket, until);
        if let Err(ticket) = held {
            self.finish_unused(ticket);
        }
    }

    /// The ticket by which a request executes, or which it was granted meanwhile; `None` once it was taken
    /// away as overdue.
    pub(super) fn take_ticket(&self, waiter: Waiter) -> Option<Ticket<Waiter>> {
        let mut waiters = self.waiters.borrow_mut();
        waiters
            .take_held(waiter)
            .or_else(|| waiters.take_granted(waiter))
    }

    /// Sets until when a request may keep its ticket.
    pub(super) fn set_deadline(&self, waiter: Waiter, until: Time) {
        self.waiters.borrow_mut().set_deadline(waiter, until);
    }

    /// Registers the reply of an executing request, once it has begun.
    pub(super) fn set_reply(&self, waiter: Waiter, reply: &Rc<ReplyPipe>) {
        self.waiters.borrow_mut().set_reply(waiter, reply);
    }

    /// Registers the body of an executing request, whose client still sends it.
    pub(super) fn set_body(&self, waiter: Waiter, body: &Rc<BodyProgress>) {
        self.waiters.borrow_mut().set_body(waiter, body);
    }

    /// The bodies in progress of requests that hold seats.
    pub(super) fn bodies_in_progress(&self) -> Vec<BodyInProgress> {
        self.waiters.borrow().bodies_in_progress()
    }

    /// The seats that a request of [`Gate::replies_in_progress`] holds.
    pub(super) fn seats_at(&self, index: usize) -> u32 {
        self.waiters.borrow().seats_at(index)
    }

    /// Records how many seats are held by requests whose clients read too slowly.
    pub(super) fn note_stalled_seats(&self, seats: u32) {
        self.cells.stalled_seats.store(seats, Ordering::Relaxed);
    }

    /// The replies in progress that hold seats.
    pub(super) fn replies_in_progress(&self) -> Vec<ReplyInProgress> {
        self.waiters.borrow().replies_in_progress()
    }

    /// Returns the tickets of requests that have executed for longer than their time limit. The upstream
    /// has presumably timed them out itself.
    pub(super) fn release_overdue(self: &Rc<Self>) {
        let overdue = self.waiters.borrow_mut().take_overdue(self.now());
        for overdue in overdue {
            if let Some(reply) = overdue.reply {
                reply.time_is_up();
            }
            self.finish(overdue.ticket);
        }
    }
}

#[cfg(test)]
mod tests;
