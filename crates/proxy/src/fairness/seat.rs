//! A seat, and the guard that holds it until the upstream's response ends.
//!
//! However a request ends (answered, refused, panicked, abandoned), its seat is dropped exactly once, which returns
//! it.

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body::Body as _;

use super::{
    abandoned::AbandonedRequest, gate::Gate, list_observer::ListObserver,
    shadow::ShadowedExecution, waiters::Waiter,
};
use fairgate_call::{
    BodyEnd, ClientBody, ReplyGuard, ReplyPipe, RequestContext, RequestKind, UpstreamGuard,
};
use fairgate_core::{
    apf::{level::Ticket, scope::StatsScope},
    cells::{Access, FlowCells},
    digest::RequestDigest,
    time::Time,
};

/// What a seat is backed by.
#[derive(Debug)]
pub(super) enum Hold {
    /// The right to execute, and until when it may be kept.
    Ticket(Ticket<Waiter>, Time),
    /// Nothing: the request executes although it would have to wait, and its shadow waits.
    Shadow(Rc<ShadowedExecution>),
    /// Nothing: the request executes although it would have been rejected.
    Nothing,
}

/// The seats of one executing request, or none because decisions are not enforced. Dropping it returns them.
#[derive(Debug)]
pub struct Seat {
    gate: Rc<Gate>,
    /// Whether it has seats.
    is_seated: bool,
    /// The request as the shadow that waits for its seats sees it.
    shadowed: Option<Rc<ShadowedExecution>>,
    /// As the dispatcher knows the request; of no use without seats.
    waiter: Waiter,
    cells: Arc<FlowCells>,
    digest: Arc<RequestDigest>,
    context: Rc<RequestContext>,
    kind: RequestKind,
    since: Time,
    limited: bool,
}

impl Seat {
    #[expect(
        clippy::too_many_arguments,
        reason = "a seat has this many independent properties, and two callers"
    )]
    pub(super) fn new(
        gate: Rc<Gate>,
        hold: Hold,
        limited: bool,
        waiter: Waiter,
        cells: Arc<FlowCells>,
        digest: &Arc<RequestDigest>,
        context: &Rc<RequestContext>,
        kind: RequestKind,
        since: Time,
    ) -> Self {
        let mut seats = context.seats.get();
        let (is_seated, shadowed) = match hold {
            Hold::Ticket(ticket, until) => {
                if seats.width > 1 {
                    // A request that is wider than its level counts as wide as that.
                    seats.width = ticket.seats().clamp(1, seats.width);
                }
                // Kept in the core's table, so that it can be taken away from a request that keeps it for too long.
                gate.hold(waiter, ticket, until);
                (true, None)
            }
            Hold::Shadow(execution) => (false, Some(execution)),
            Hold::Nothing => (false, None),
        };
        let access = Access::of(&digest.info.verb);
        gate.cells.executing(access).enter();
        let limited = limited && is_seated;
        seats.is_limited = limited;
        context.seats.set(seats);
        Self {
            gate,
            limited,
            is_seated,
            shadowed,
            waiter,
            cells,
            digest: Arc::clone(digest),
            context: Rc::clone(context),
            kind,
            since,
        }
    }

    /// The request as the shadow that waits for its seats sees it, if one does.
    pub(super) fn shadowed(&self) -> Option<&Rc<ShadowedExecution>> {
        self.shadowed.as_ref()
    }

    /// Whether the request only executes because its refusal is not enforced.
    pub(super) fn is_refused(&self) -> bool {
        !self.is_seated && self.shadowed.is_none()
    }

    /// How long the request has been executing, as of the last reading of the clock in this turn.
    pub fn elapsed(&self) -> Duration {
        self.gate.turn().since(self.since)
    }

    /// Notes for the trace how long the request has been executing.
    fn note_executed(&self) {
        self.context.trace.executed(self.elapsed());
    }

    /// The gate of its core.
    pub fn gate(&self) -> &Rc<Gate> {
        &self.gate
    }

    /// The request.
    pub fn digest(&self) -> &Arc<RequestDigest> {
        &self.digest
    }

    /// Registers the body of the request with the gate, which checks how fast the client sends it, if it is not complete and
    /// other requests could use the seat.
    pub(super) fn observe_body(&self, body: &mut ClientBody) {
        if self.limited && !body.is_end_stream() {
            self.gate.set_body(self.waiter, &body.observe());
        }
    }

    /// How much longer the request may execute at most.
    pub(super) fn time_left(&self) -> Duration {
        self.gate
            .policy()
            .request_timeout
            .saturating_sub(self.elapsed())
    }

    /// To be called when the client disconnected; `None` if the request is to be cancelled, because it counts against
    /// no limit and there are too many of those.
    pub(super) fn abandon(&self) -> Option<AbandonedRequest> {
        self.gate.flow_control().abandoned.begin(self.limited)
    }

    /// To be called when the client disconnected before it had a reply.
    pub(super) fn client_gone(&self) {
        if let Some(execution) = &self.shadowed {
            execution.client_gone();
        }
    }

    /// Sets until when the seat may be kept.
    pub(super) fn set_deadline(&self, until: Time) {
        if self.is_seated {
            self.gate.set_deadline(self.waiter, until);
        }
    }

    /// Keeps the seat until the request's time limit, because nothing will show its end.
    pub(super) fn keep(self) {
        let rest = self.time_left();
        if !(self.limited || self.shadowed.is_some()) || rest.is_zero() {
            return;
        }
        let until = self.gate.clock().instant(self.gate.now().plus(rest));
        fairgate_base::turns::spawn_local_boxed(async move {
            tokio::time::sleep_until(until).await;
            drop(self);
        });
    }
}

/// Counts how long a request held its seats.
pub(super) fn observe_execution(cells: &FlowCells, kind: RequestKind, took: Duration) {
    let histogram = match kind {
        RequestKind::Watch => &cells.watch_init,
        _ => &cells.execution,
    };
    histogram.observe_duration(took);
}

impl Drop for Seat {
    fn drop(&mut self) {
        let took = self.elapsed();
        let access = Access::of(&self.digest.info.verb);
        self.gate.cells.executing(access).leave();
        // Before the seats, so that what is charged to servers is never more than the seats in use.
        drop(self.context.server_charge.borrow_mut().take());
        let is_refused = self.context.is_refused.get();
        if let Some(execution) = self.shadowed.take() {
            execution.ended(took, is_refused);
        } else if self.is_seated {
            observe_execution(&self.cells, self.kind, took);
            self.gate.end_execution(self.waiter, took, is_refused);
        }
    }
}

/// Holds the seat of an ordinary request until the upstream is done with it.
pub(super) struct SeatGuard {
    seat: Option<Seat>,
    /// In a box, because few requests are lists, and the guard of each request is copied.
    list: Option<Box<ListObserver>>,
    abandoned: Option<AbandonedRequest>,
}

impl SeatGuard {
    pub(super) fn new(seat: Seat, list: Option<Box<ListObserver>>) -> Self {
        Self {
            seat: Some(seat),
            list,
            abandoned: None,
        }
    }

    /// The gate and the request, if it holds a seat that other requests could use.
    pub(super) fn contended_seat(&self) -> Option<(Rc<Gate>, Waiter)> {
        let seat = self.seat.as_ref().filter(|seat| seat.limited)?;
        Some((Rc::clone(&seat.gate), seat.waiter))
    }

    fn record_list(&mut self, seat: &Seat, complete: bool) {
        let Some(observation) = self.list.take().and_then(|list| list.finish(complete)) else {
            return;
        };
        let scope = StatsScope::of(&seat.digest().info);
        let gate = seat.gate();
        gate.flow_control()
            .with_counts(|counts| counts.observe_list(gate.now(), &scope, &observation));
    }
}

impl UpstreamGuard for SeatGuard {
    fn data(&mut self, data: &Bytes) {
        if let Some(list) = &mut self.list {
            list.data(data);
        }
    }

    fn client_disconnected(&mut self) -> Option<u64> {
        let seat = self.seat.as_ref()?;
        seat.note_executed();
        // A request past its time limit does not continue.
        self.abandoned = seat.abandon().filter(|_| !seat.time_left().is_zero());
        self.abandoned.as_ref().map(AbandonedRequest::bytes)
    }

    fn end(&mut self, how: BodyEnd) {
        let Some(seat) = self.seat.take() else {
            return;
        };
        match self.abandoned.take() {
            None => seat.note_executed(),
            Some(mut abandoned) if how != BodyEnd::Abandoned => abandoned.ended(),
            Some(_) => {}
        }
        self.record_list(&seat, how == BodyEnd::Complete);
        let is_known = match how {
            BodyEnd::Complete => true,
            BodyEnd::Failed => !seat.context.client_body_failed.get(),
            BodyEnd::Abandoned => false,
        };
        if !is_known && !std::thread::panicking() {
            seat.keep();
        }
    }

    fn made(&mut self, is_read: bool) {
        // The upstream does not work on it, so the seat is free even if the client disconnects.
        if let Some(seat) = self.seat.take() {
            seat.note_executed();
            self.record_list(&seat, is_read);
        }
    }
}

/// A short reply that does not come from the upstream holds the seat until it is sent.
impl ReplyGuard for SeatGuard {
    fn data(&mut self, data: &Bytes) {
        UpstreamGuard::data(self, data);
    }

    fn end(mut self: Box<Self>, how: BodyEnd) {
        self.made(how == BodyEnd::Complete);
    }
}

/// Registers a reply with the gate, which checks how fast the client reads it if other requests could use its
/// seat.
pub(super) fn monitor_reply(seat: Option<(Rc<Gate>, Waiter)>, reply: &Rc<ReplyPipe>) {
    if let Some((gate, waiter)) = seat {
        gate.set_reply(waiter, reply);
    }
}
