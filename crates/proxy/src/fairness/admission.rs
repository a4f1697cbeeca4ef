//! Admits requests: each gets a seat, waits for one in a queue, or is rejected.

use std::{
    future::Future as _,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

use super::{
    core_policy::CorePolicy,
    gate::Gate,
    seat::{Hold, Seat},
    settings::Enforcement,
    wait_limit::wait_deadline,
    waiters::{WaitDecision, Waiter},
};
use fairgate_call::{Call, FlowRejection, RequestContext, RequestKind};
use fairgate_core::{
    apf::{
        Flow, SchemaIndex, Semantics, Work,
        level::{Arrival, Decisions, QueuePlace},
    },
    cells::Access,
    digest::RequestDigest,
    rejection::RejectReason,
    time::Time,
};

/// How long after its time limit a request loses its seat.
const OVERDUE: Duration = Duration::from_secs(1);

/// The result of admission.
#[derive(Debug)]
pub(super) enum AdmissionOutcome {
    /// The request executes, holding a seat.
    Execute(Seat),
    /// The request waits in a queue.
    Queued(Box<QueuedRequest>),
    /// The request is rejected.
    Reject(FlowRejection),
    /// Flow control does not apply to the request.
    Exempt,
}

/// A request in a queue. Dropping it gives up its place.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    gate: Rc<Gate>,
    policy: Arc<CorePolicy>,
    schema: SchemaIndex,
    waiter: Waiter,
    /// `None` once the request has a seat or has given up.
    place: Option<QueuePlace<Waiter>>,
    digest: Arc<RequestDigest>,
    context: Rc<RequestContext>,
    kind: RequestKind,
    since: Time,
    timer: Pin<Box<Sleep>>,
}

/// A request as the dispatcher knows it, and the policy under which it arrived.
struct NewRequest<'a> {
    call: &'a Call,
    policy: Arc<CorePolicy>,
    flow: Flow,
    waiter: Waiter,
    /// When it arrived at the gate.
    now: Time,
    /// The time until which it may wait in a queue.
    until: Time,
    /// Whether it has taken the place of another request.
    replaces: bool,
}

impl Gate {
    /// Admits a request: classifies it, estimates what it costs, and lets the dispatcher decide.
    /// O(1) in the number of FlowSchemas, O(log queues) in the number of queues.
    pub(super) fn admit(self: &Rc<Self>, call: &Call) -> AdmissionOutcome {
        // One policy for all steps: classification, level and limits must belong together, and the mailbox
        // may bring another one as soon as this core does something else.
        let policy = self.policy();
        if policy.enforcement == Enforcement::Off || call.kind == RequestKind::LongRunning {
            return AdmissionOutcome::Exempt;
        }
        let now = self.now();
        let flow = policy.view.policy().classify(&call.digest);
        // Before the request arrives: its width decides whether it fits.
        let work = self.estimate(now, call, &policy, &flow);
        // Before the request arrives: once it waits, another core may grant it a seat at any time, and the
        // message names this entry.
        let waiter = self.waiters.borrow_mut().insert(&call.digest, now);
        let until = wait_deadline(call.received, call.deadline, policy.request_timeout);
        let mut out = Decisions::default();
        let arrival = policy.view.arrive(now, &flow, work, waiter, &mut out);
        let (queue_length, replaces) = (out.queue_length, out.replaced.is_some());
        // An arrival can dispatch others as well, to seats whose additional latency has just passed. They are
        // woken here, after the level's lock was released, whether or not this request is admitted.
        self.deliver(out);

        if let Some(length) = queue_length {
            let cells = policy.cells(flow.schema);
            cells.queue_length.observe(f64::from(length));
        }
        let request = NewRequest {
            call,
            policy,
            flow,
            waiter,
            now,
            until,
            replaces,
        };
        self.decide(arrival, request)
    }

    /// Carries out what the dispatcher decided. With [`Enforcement::Observe`] the request always executes,
    /// and holds what the dispatcher gave it, so that all counts are the same as with enforcement.
    fn decide(
        self: &Rc<Self>,
        arrival: Arrival<Waiter>,
        request: NewRequest<'_>,
    ) -> AdmissionOutcome {
        let NewRequest { policy, flow, .. } = &request;
        let observes = policy.enforcement == Enforcement::Observe;
        let cells = policy.cells(flow.schema);
        match arrival {
            Arrival::Execute(ticket) => {
                if !policy.view.is_exempt(flow.level) {
                    cells.wait_executed.observe(0.0);
                }
                self.cells
                    .filter
                    .observe_duration(self.now().since(request.now));
                let until = overdue_at(request.call.kind, request.now, policy);
                AdmissionOutcome::Execute(self.seat(Hold::Ticket(ticket, until), &request))
            }
            Arrival::Wait(place) if observes => {
                AdmissionOutcome::Execute(self.seat(Hold::QueuePlace(place), &request))
            }
            Arrival::Wait(place) => self.queue(place, request),
            Arrival::Reject(reason) => {
                if reason == RejectReason::ConcurrencyLimit {
                    self.flow_control().report_contention();
                }
                cells.rejected(reason).increment();
                cells.wait_refused.observe(0.0);
                if observes {
                    return AdmissionOutcome::Execute(self.seat(Hold::Nothing, &request));
                }
                self.waiters.borrow_mut().remove(request.waiter);
                AdmissionOutcome::Reject(self.rejection(policy, flow.schema, reason))
            }
        }
    }

    /// Estimates what a request costs, and records its flow and cost.
    fn estimate(&self, now: Time, call: &Call, policy: &CorePolicy, flow: &Flow) -> Work {
        let cap = policy.view.width_cap(flow.level);
        let (work, watchers) =
            self.flow_control()
                .estimates()
                .estimate(now, &call.digest.info, policy.estimator, cap);
        let facts = policy.flow(flow.schema);
        let cells = policy.cells(flow.schema);
        cells.seats.observe(f64::from(work.max_seats()));
        if let Some(watchers) = watchers {
            cells.watch_count.observe(f64::from(watchers));
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

    fn seat(self: &Rc<Self>, hold: Hold, request: &NewRequest<'_>) -> Seat {
        let policy = &request.policy;
        let schema = request.flow.schema;
        let level = policy.view.policy().schemas()[schema.0 as usize].level;
        Seat::new(
            Rc::clone(self),
            hold,
            !policy.view.is_exempt(level),
            request.waiter,
            Arc::clone(policy.cells(schema)),
            &request.call.digest,
            &request.call.context,
            request.call.kind,
            request.now,
        )
    }

    /// Lets a request wait in the queue in which it has a `place`.
    fn queue(
        self: &Rc<Self>,
        place: QueuePlace<Waiter>,
        request: NewRequest<'_>,
    ) -> AdmissionOutcome {
        let schema = request.flow.schema;
        let policy = Arc::clone(&request.policy);
        // Who has taken the place of another request waits in its stead, and not in addition to it.
        let most_queued = if request.replaces {
            u32::MAX
        } else {
            policy.max_queued
        };
        let queued = Box::new(QueuedRequest {
            gate: Rc::clone(self),
            policy: request.policy,
            schema,
            waiter: request.waiter,
            place: Some(place),
            digest: Arc::clone(&request.call.digest),
            context: Rc::clone(&request.call.context),
            kind: request.call.kind,
            since: request.now,
            timer: Box::pin(tokio::time::sleep_until(
                self.clock().instant(request.until),
            )),
        });
        // The limit of waiting requests over all levels is checked last, because only here it is certain that
        // the request has to wait: most requests never touch the counter that all cores share.
        if self.flow_control().enter_queue(most_queued) {
            self.cells.waiting(queued.access()).enter();
            return AdmissionOutcome::Queued(queued);
        }
        queued.cancel_uncounted();
        let (reason, cells) = (RejectReason::QueueFull, policy.cells(schema));
        cells.rejected(reason).increment();
        cells.wait_refused.observe(0.0);
        AdmissionOutcome::Reject(self.rejection(&policy, schema, reason))
    }

    /// The rejection for `reason`, with the time after which the client should retry.
    fn rejection(
        &self,
        policy: &CorePolicy,
        schema: SchemaIndex,
        reason: RejectReason,
    ) -> FlowRejection {
        let level = policy.view.policy().schemas()[schema.0 as usize].level;
        let unix_seconds = self.clock().unix_seconds();
        let semantics = policy.view.policy().settings().semantics;
        let retry_after =
            policy
                .view
                .level(level)
                .retry_after(semantics, unix_seconds, self.next_random());
        FlowRejection {
            reason,
            retry_after,
        }
    }
}

/// When a request that begins to execute at `since` loses its seat. The time limit counts
/// from there, because the upstream does not know how long the request waited before. A watch has another limit
/// once its response has begun, and with [`Semantics::Compatible`] no limit at all, as in kube-apiserver.
fn overdue_at(kind: RequestKind, since: Time, policy: &CorePolicy) -> Time {
    let semantics = policy.view.policy().settings().semantics;
    if kind == RequestKind::Watch && semantics == Semantics::Compatible {
        return Time::NEVER;
    }
    since.plus(policy.request_timeout + OVERDUE)
}

impl QueuedRequest {
    /// Ready with a seat, or with a rejection once another request has taken its place or it has waited for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Seat, FlowRejection>> {
        let decision = self
            .gate
            .waiters
            .borrow_mut()
            .take_decision_or_register(self.waiter, cx.waker());
        if let Some(WaitDecision::Granted(ticket)) = decision {
            let until = overdue_at(self.kind, self.gate.now(), &self.policy);
            return Poll::Ready(Ok(self.take_seat(Hold::Ticket(ticket, until))));
        }
        // The settings may have changed since it was queued. If another request has taken the place, the seat counts that.
        if !self.gate.enforces()
            && let Some(place) = self.place.take()
        {
            return Poll::Ready(Ok(self.take_seat(Hold::QueuePlace(place))));
        }
        if decision.is_none() && self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let reason = self.give_up();
        let reason = reason.unwrap_or(RejectReason::TimeOut);
        let rejection = self.gate.rejection(&self.policy, self.schema, reason);
        Poll::Ready(Err(rejection))
    }

    /// How long it has waited.
    pub(super) fn waited(&self) -> Duration {
        self.gate.now().since(self.since)
    }

    fn access(&self) -> Access {
        Access::of(&self.digest.info.verb)
    }

    fn leave_queue(&self) {
        self.gate.flow_control().leave_queue();
        self.gate.cells.waiting(self.access()).leave();
    }

    fn take_seat(&mut self, hold: Hold) -> Seat {
        self.place = None;
        self.leave_queue();
        let now = self.gate.now();
        let cells = Arc::clone(self.policy.cells(self.schema));
        let waited = now.since(self.since);
        cells.wait_executed.observe_duration(waited);
        self.gate.cells.filter.observe_duration(waited);
        Seat::new(
            Rc::clone(&self.gate),
            hold,
            // Requests of an exempt level never wait.
            true,
            self.waiter,
            cells,
            &self.digest,
            &self.context,
            self.kind,
            now,
        )
    }

    /// Gives up the place: another request has taken it, the request has waited for too long, or its client disconnected.
    /// Returns the reason for which the request is counted as rejected, once.
    fn give_up(&mut self) -> Option<RejectReason> {
        let place = self.place.take()?;
        self.leave_queue();
        let is_replaced = self.gate.waiters.borrow_mut().is_replaced(self.waiter);
        let reason = if is_replaced {
            RejectReason::QueueFull
        } else {
            RejectReason::TimeOut
        };
        let cells = self.policy.cells(self.schema);
        cells.rejected(reason).increment();
        let waited = self.waited();
        match (self.policy.view.policy().settings().semantics, reason) {
            // kube-apiserver records these, too, as executed.
            (Semantics::Compatible, RejectReason::TimeOut) => {
                cells.wait_executed.observe_duration(waited);
            }
            _ => cells.wait_refused.observe_duration(waited),
        }
        self.gate.remove(self.waiter, Some(place));
        Some(reason)
    }

    /// Gives up the place of a request that was never counted as waiting.
    fn cancel_uncounted(mut self) {
        let place = self.place.take();
        self.gate.remove(self.waiter, place);
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.give_up();
    }
}
