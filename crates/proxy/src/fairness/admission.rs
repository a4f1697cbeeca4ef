//! Admits requests: each gets a seat, waits for one in a queue, or is rejected.

use std::{rc::Rc, sync::Arc, time::Duration};

use super::{
    core_policy::{CorePolicy, FlowFacts},
    gate::Gate,
    queued::{QueuedRequest, overdue_at},
    seat::{Hold, Seat},
    settings::Enforcement,
    wait_limit::wait_deadline,
    waiters::Waiter,
};
use fairgate_call::{Call, ExecutionSeats, FlowRejection, RequestKind, UnenforcedDecision};
use fairgate_core::{
    apf::{
        Flow, SchemaIndex, Work,
        level::{Arrival, Decisions, QueuePlace},
    },
    rejection::RejectReason,
    time::Time,
};

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

/// A request as the dispatcher knows it, and the policy under which it arrived.
struct NewRequest<'a> {
    call: &'a Call,
    policy: &'a Arc<CorePolicy>,
    flow: Flow,
    /// What the core knows of its FlowSchema.
    facts: &'a FlowFacts,
    waiter: Waiter,
    /// When it arrived at the gate.
    now: Time,
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
        let facts = policy.flow(flow.schema);
        let work = self.estimate(now, call, &policy, &flow, facts);
        // Before the request arrives: once it waits, another core may grant it a seat at any time, and the
        // message names this entry.
        let waiter = self.waiters.borrow_mut().insert(&call.digest, now);
        let mut out = Decisions::default();
        // Who would then be refused after all must not take the place of another.
        let may_wait = || call.request.body().may_wait(&call.digest.user);
        let arrival = (policy.view).arrive_with_check(now, &flow, work, waiter, may_wait, &mut out);
        let (queue_length, replaces) = (out.queue_length, out.replaced.is_some());
        // An arrival can dispatch others as well, to seats whose additional latency has just passed. They are
        // woken here, after the level's lock was released, whether or not this request is admitted.
        self.deliver(out);

        if let Some(length) = queue_length {
            let queue_length = &facts.cells.queue_length;
            queue_length.observe(f64::from(length));
        }
        let request = NewRequest {
            call,
            policy: &policy,
            flow,
            facts,
            waiter,
            now,
            replaces,
        };
        self.decide(arrival, &request)
    }

    /// Carries out what the dispatcher decided. With [`Enforcement::Observe`] the request always executes, and a shadow of it
    /// does what was decided.
    fn decide(
        self: &Rc<Self>,
        arrival: Arrival<Waiter>,
        request: &NewRequest<'_>,
    ) -> AdmissionOutcome {
        let policy = request.policy;
        let observes = policy.enforcement == Enforcement::Observe;
        let cells = &request.facts.cells;
        match arrival {
            Arrival::Execute(ticket) => {
                cells.dispatched.increment();
                if !policy.view.is_exempt(request.flow.level) {
                    cells.wait_executed.observe(0.0);
                }
                self.cells
                    .filter
                    .observe_duration(self.now().since(request.now));
                let until = overdue_at(request.call.kind, request.now, policy);
                AdmissionOutcome::Execute(self.seat(Hold::Ticket(ticket, until), request))
            }
            Arrival::Wait(place) => match self.queue(place, request) {
                Ok(queued) if observes => {
                    let execution = queued.into_shadow();
                    AdmissionOutcome::Execute(self.seat(Hold::Shadow(execution), request))
                }
                Ok(queued) => AdmissionOutcome::Queued(queued),
                Err(reason) => self.refuse(reason, request),
            },
            Arrival::Reject(reason) => {
                if reason == RejectReason::ConcurrencyLimit {
                    self.flow_control().report_contention();
                }
                self.waiters.borrow_mut().remove(request.waiter);
                self.refuse(reason, request)
            }
        }
    }

    /// Counts a request, which the dispatcher no longer knows, as rejected.
    fn refuse(self: &Rc<Self>, reason: RejectReason, request: &NewRequest<'_>) -> AdmissionOutcome {
        let NewRequest { policy, flow, .. } = request;
        let cells = &request.facts.cells;
        cells.rejected(reason).increment();
        cells.wait_refused.observe(0.0);
        if policy.enforcement == Enforcement::Observe {
            request.call.context.not_enforced(&UnenforcedDecision {
                wait: Duration::ZERO,
                refused: Some(reason.as_str()),
            });
            return AdmissionOutcome::Execute(self.seat(Hold::Nothing, request));
        }
        AdmissionOutcome::Reject(self.rejection(policy, flow.schema, reason))
    }

    /// Estimates what a request costs, and records its flow and cost.
    fn estimate(
        &self,
        now: Time,
        call: &Call,
        policy: &CorePolicy,
        flow: &Flow,
        facts: &FlowFacts,
    ) -> Work {
        let cap = policy.view.width_cap(flow.level);
        let (work, watchers) =
            self.flow_control()
                .estimates()
                .estimate(now, &call.digest.info, policy.estimator, cap);
        let cells = &facts.cells;
        cells.seats.observe(f64::from(work.max_seats()));
        if let Some(watchers) = watchers {
            cells.watch_count.observe(f64::from(watchers));
        }
        let context = &call.context;
        let _ = context.trace.schema.set(Arc::clone(&facts.schema));
        let _ = context.trace.level.set(Arc::clone(&facts.level));
        let _ = context.flow_uids.set(Arc::clone(&facts.uids));
        context.trace.initial_seats.set(work.initial_seats);
        context.seats.set(ExecutionSeats {
            width: work.initial_seats,
            is_limited: false,
        });
        context.trace.final_seats.set(work.final_seats);
        context
            .trace
            .additional_latency
            .set(work.additional_latency);
        work
    }

    fn seat(self: &Rc<Self>, hold: Hold, request: &NewRequest<'_>) -> Seat {
        let is_exempt = request.policy.view.is_exempt(request.flow.level);
        Seat::new(
            Rc::clone(self),
            hold,
            !is_exempt,
            request.waiter,
            Arc::clone(&request.facts.cells),
            &request.call.digest,
            &request.call.context,
            request.call.kind,
            request.now,
        )
    }

    /// Lets a request wait in the queue in which it has a `place`, unless too many wait in all levels together, or their bodies
    /// that are not complete take too much memory.
    fn queue(
        self: &Rc<Self>,
        place: QueuePlace<Waiter>,
        request: &NewRequest<'_>,
    ) -> Result<Box<QueuedRequest>, RejectReason> {
        let call = request.call;
        let (has_room, most_queued) = if request.replaces {
            // It was checked before. And it waits in the stead of the other, not in addition to it.
            (true, u32::MAX)
        } else {
            let has_room = call.request.body().may_wait(&call.digest.user);
            (has_room, request.policy.max_queued)
        };
        let timeout = request.policy.request_timeout;
        let until = wait_deadline(call.received, call.deadline, timeout);
        let queued = Box::new(QueuedRequest {
            gate: Rc::clone(self),
            policy: Arc::clone(request.policy),
            schema: request.flow.schema,
            waiter: request.waiter,
            place: Some(place),
            digest: Arc::clone(&request.call.digest),
            context: Rc::clone(&request.call.context),
            kind: request.call.kind,
            since: request.now,
            timer: Box::pin(tokio::time::sleep_until(self.clock().instant(until))),
        });
        // The limit of waiting requests over all levels is checked last, because only here it is certain that
        // the request has to wait: most requests never touch the counter that all cores share.
        if has_room && self.flow_control().enter_queue(most_queued) {
            self.cells.waiting(queued.access()).enter();
            return Ok(queued);
        }
        queued.cancel_uncounted();
        Err(RejectReason::QueueFull)
    }

    /// The rejection for `reason`, with the time after which the client should retry.
    pub(super) fn rejection(
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
