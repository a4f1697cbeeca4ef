//! A seat, and what holds it: the answer's body, or what goes on upstream after the client has left.
//!
//! However a request ends (answered, refused, panicked, abandoned) its seat is dropped exactly once,
//! and dropping it gives it back.

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{gate::Gate, learn::ListObserver, service_time::Kind, slots::Waiter};
use crate::{
    apf::{
        Time,
        level::{Place, Ticket},
        scope::StatsScope,
    },
    call::{BodyEnd, Progress, ReplyGuard, RequestKind, Trace},
    digest::RequestDigest,
    observe::cells::{Access, FlowCells},
};

/// What stands behind a seat.
#[derive(Debug)]
pub(super) enum Hold {
    /// The right to execute, and until when at most.
    Ticket(Ticket<Waiter>, Time),
    /// A place in a queue: the request goes ahead although it would have to wait.
    Place(Place<Waiter>),
    /// Nothing: the request goes ahead although it would have been refused.
    Nothing,
}

/// The seats one request executes with. Dropping it gives them back.
#[derive(Debug)]
pub struct Seat {
    gate: Rc<Gate>,
    hold: Option<Hold>,
    waiter: Waiter,
    cells: Arc<FlowCells>,
    digest: Arc<RequestDigest>,
    kind: RequestKind,
    since: Time,
}

impl Seat {
    pub(super) fn new(
        gate: Rc<Gate>,
        hold: Hold,
        waiter: Waiter,
        cells: Arc<FlowCells>,
        digest: &Arc<RequestDigest>,
        kind: RequestKind,
        since: Time,
    ) -> Self {
        cells.dispatched.increment();
        // A ticket is kept with the slot, so that it can be taken from who keeps it too long.
        let hold = match hold {
            Hold::Ticket(ticket, until) => {
                gate.hold(waiter, ticket, until);
                None
            }
            Hold::Place(_) | Hold::Nothing => Some(hold),
        };
        let access = Access::of(&digest.info.verb);
        gate.cells.executing(access).enter();
        Self {
            gate,
            hold,
            waiter,
            cells,
            digest: Arc::clone(digest),
            kind,
            since,
        }
    }

    /// How long the request has been executing.
    pub fn elapsed(&self) -> Duration {
        self.gate.now().since(self.since)
    }

    /// When it began to execute.
    pub fn since(&self) -> Time {
        self.since
    }

    /// The gate of its core.
    pub fn gate(&self) -> &Rc<Gate> {
        &self.gate
    }

    /// The request.
    pub fn digest(&self) -> &Arc<RequestDigest> {
        &self.digest
    }

    /// Notes how long such a request takes.
    pub(super) fn learn(&self) {
        let kind = Kind::of(&self.digest.info);
        self.gate.times.borrow_mut().learn(kind, self.elapsed());
    }

    /// How much longer the request may execute at most.
    pub(super) fn time_left(&self) -> Duration {
        self.gate
            .policy()
            .request_timeout
            .saturating_sub(self.elapsed())
    }

    /// How long to keep the seat if the request is cancelled now; `None` if it should be let run.
    pub(super) fn cancel(&self) -> Option<Duration> {
        let kind = Kind::of(&self.digest.info);
        self.gate.times.borrow_mut().cancel(kind, self.elapsed())
    }

    /// Keeps the seat of a request that has been cancelled for as long as such requests take.
    pub(super) fn keep(self) {
        let kind = Kind::of(&self.digest.info);
        let rest = self.gate.times.borrow().rest(kind, self.elapsed());
        self.keep_for(rest);
    }

    /// Keeps the seat for `rest`, at most until the request's time limit; then gives it back.
    pub(super) fn keep_for(self, rest: Duration) {
        let rest = rest.min(self.time_left());
        if rest.is_zero() {
            return;
        }
        let until = self.gate.clock().instant(self.gate.now().plus(rest));
        tokio::task::spawn_local(async move {
            tokio::time::sleep_until(until).await;
            drop(self);
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let histogram = match self.kind {
            RequestKind::Watch => &self.cells.watch_init,
            _ => &self.cells.execution,
        };
        histogram.observe_duration(self.elapsed());
        let access = Access::of(&self.digest.info.verb);
        self.gate.cells.executing(access).leave();
        let held = self.gate.take_ticket(self.waiter);
        let place = match self.hold.take() {
            Some(Hold::Place(place)) => Some(place),
            Some(Hold::Ticket(..) | Hold::Nothing) | None => None,
        };
        if let Some(ticket) = held {
            let starts = &self.gate.starts;
            starts.executed(ticket.level(), self.elapsed());
            self.gate.finish(ticket);
            self.gate.leave(self.waiter, None);
        } else {
            self.gate.leave(self.waiter, place);
        }
    }
}

/// Holds the seat of an ordinary request to the end of its answer.
pub(super) struct SeatGuard {
    seat: Option<Seat>,
    trace: Rc<Trace>,
    list: Option<ListObserver>,
    /// Whether it was served, and not refused, which takes no time.
    served: bool,
}

impl SeatGuard {
    pub(super) fn new(
        seat: Seat,
        trace: Rc<Trace>,
        list: Option<ListObserver>,
        served: bool,
    ) -> Self {
        Self {
            seat: Some(seat),
            trace,
            list,
            served,
        }
    }

    fn note_list(&mut self, seat: &Seat, complete: bool) {
        let Some(observation) = self.list.take().and_then(|list| list.finish(complete)) else {
            return;
        };
        let scope = StatsScope::of(&seat.digest().info);
        let gate = seat.gate();
        gate.hub()
            .with_counts(|counts| counts.observe_list(gate.now(), &scope, &observation));
    }
}

impl ReplyGuard for SeatGuard {
    fn data(&mut self, data: &Bytes) {
        if let Some(list) = &mut self.list {
            list.data(data);
        }
    }

    fn end(mut self: Box<Self>, how: BodyEnd) {
        let Some(seat) = self.seat.take() else {
            return;
        };
        self.trace.execution.set(Some(seat.elapsed()));
        self.note_list(&seat, how == BodyEnd::Complete);
        match how {
            BodyEnd::Complete => {
                if self.served {
                    seat.learn();
                }
                drop(seat);
            }
            // Its answer broke off: it has ended, as far as anyone can tell.
            BodyEnd::Failed => drop(seat),
            BodyEnd::Abandoned if self.trace.progress.get() == Progress::Done => drop(seat),
            // The client stopped reading, so the answer is cancelled upstream.
            BodyEnd::Abandoned => seat.keep(),
        }
    }
}
