//! A request that waits in a queue, itself or as the shadow of one that executes because decisions are not enforced.

use std::{
    future::{Future as _, poll_fn},
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
    seat::{Hold, Seat, observe_execution},
    shadow::ShadowedExecution,
    waiters::{WaitDecision, Waiter},
    watch_init::Watcher,
};
use fairgate_call::{FlowRejection, RequestContext, RequestKind, UnenforcedDecision};
use fairgate_core::{
    apf::{
        SchemaIndex, Semantics,
        level::{QueuePlace, Ticket},
    },
    cells::{Access, FlowCells},
    digest::RequestDigest,
    rejection::RejectReason,
    time::Time,
};

/// How long after its time limit a request loses its seat.
const OVERDUE: Duration = Duration::from_secs(1);

/// A request in a queue. Dropping it gives up its place.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) gate: Rc<Gate>,
    pub(super) policy: Arc<CorePolicy>,
    pub(super) schema: SchemaIndex,
    pub(super) waiter: Waiter,
    /// `None` once the request has a seat or has given up.
    pub(super) place: Option<QueuePlace<Waiter>>,
    pub(super) digest: Arc<RequestDigest>,
    pub(super) context: Rc<RequestContext>,
    pub(super) kind: RequestKind,
    pub(super) since: Time,
    pub(super) timer: Pin<Box<Sleep>>,
}

/// When a request that begins to execute at `since` loses its seat. The time limit counts
/// from there, because the upstream does not know how long the request waited before. A watch has another limit
/// once its response has begun, and with [`Semantics::Compatible`] no limit at all, as in kube-apiserver.
pub(super) fn overdue_at(kind: RequestKind, since: Time, policy: &CorePolicy) -> Time {
    let semantics = policy.view.policy().settings().semantics;
    if kind == RequestKind::Watch && semantics == Semantics::Compatible {
        return Time::NEVER;
    }
    since.plus(policy.request_timeout + OVERDUE)
}

impl QueuedRequest {
    /// Ready with a seat, or with a rejection once another request has taken its place or it has waited for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Seat, FlowRejection>> {
        let decision = self.poll_decision(cx);
        // The settings may have changed since it was queued.
        let enforces = self.gate.enforces();
        Poll::Ready(match decision {
            Poll::Ready(Ok(ticket)) => {
                self.begin();
                let until = overdue_at(self.kind, self.gate.now(), &self.policy);
                Ok(self.take_seat(Hold::Ticket(ticket, until)))
            }
            Poll::Ready(Err(reason)) if enforces => {
                Err(self.gate.rejection(&self.policy, self.schema, reason))
            }
            Poll::Pending if enforces => return Poll::Pending,
            Poll::Ready(Err(_)) => Ok(self.take_seat(Hold::Nothing)),
            Poll::Pending => {
                let execution = Box::new(self.successor()).into_shadow();
                Ok(self.take_seat(Hold::Shadow(execution)))
            }
        })
    }

    /// Ready with a ticket, or with the reason for which the request was counted as rejected.
    pub(super) fn poll_decision(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Ticket<Waiter>, RejectReason>> {
        let decision = self
            .gate
            .waiters
            .borrow_mut()
            .take_decision_or_register(self.waiter, cx.waker());
        if let Some(WaitDecision::Granted(ticket)) = decision {
            return Poll::Ready(Ok(ticket));
        }
        if decision.is_none() && self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let reason = self.give_up();
        Poll::Ready(Err(reason.unwrap_or(RejectReason::TimeOut)))
    }

    /// The same request in its place, which this one gives up without a trace.
    fn successor(&mut self) -> Self {
        Self {
            gate: Rc::clone(&self.gate),
            policy: Arc::clone(&self.policy),
            schema: self.schema,
            waiter: self.waiter,
            place: self.place.take(),
            digest: Arc::clone(&self.digest),
            context: Rc::clone(&self.context),
            kind: self.kind,
            since: self.since,
            timer: Box::pin(tokio::time::sleep_until(self.timer.deadline())),
        }
    }

    /// How long it has waited.
    pub(super) fn waited(&self) -> Duration {
        self.gate.now().since(self.since)
    }

    pub(super) fn access(&self) -> Access {
        Access::of(&self.digest.info.verb)
    }

    fn leave_queue(&self) {
        self.gate.flow_control().leave_queue();
        self.gate.cells.waiting(self.access()).leave();
    }

    /// Leaves the queue to execute, and counts that.
    pub(super) fn begin(&mut self) {
        self.place = None;
        self.leave_queue();
        let cells = self.cells();
        cells.dispatched.increment();
        cells.wait_executed.observe_duration(self.waited());
    }

    /// The counters of its FlowSchema.
    pub(super) fn cells(&self) -> &Arc<FlowCells> {
        self.policy.cells(self.schema)
    }

    fn take_seat(&self, hold: Hold) -> Seat {
        self.gate.cells.filter.observe_duration(self.waited());
        Seat::new(
            Rc::clone(&self.gate),
            hold,
            // Requests of an exempt level never wait.
            true,
            self.waiter,
            Arc::clone(self.cells()),
            &self.digest,
            &self.context,
            self.kind,
            self.gate.now(),
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
        let cells = self.cells();
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
    pub(super) fn cancel_uncounted(mut self) {
        let place = self.place.take();
        self.gate.remove(self.waiter, place);
    }
}

impl Drop for QueuedRequest {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl QueuedRequest {
    /// Makes it the shadow of a request that executes now.
    pub(super) fn into_shadow(self: Box<Self>) -> Rc<ShadowedExecution> {
        let execution = Rc::<ShadowedExecution>::default();
        fairgate_base::turns::spawn_local_boxed(self.follow(Rc::clone(&execution)));
        execution
    }

    async fn follow(self: Box<Self>, execution: Rc<ShadowedExecution>) {
        self.wait_and_hold(&execution).await;
        execution.leave_place();
    }

    async fn wait_and_hold(mut self: Box<Self>, execution: &ShadowedExecution) {
        let decision = tokio::select! {
            biased;
            decision = poll_fn(|cx| self.poll_decision(cx)) => decision,
            // Dropping it gives up the place.
            () = execution.until_client_is_gone() => return,
        };
        let wait = self.waited();
        let refused = decision.as_ref().err().map(|reason| reason.as_str());
        self.context
            .not_enforced(&UnenforcedDecision { wait, refused });
        if let Ok(ticket) = decision {
            self.begin();
            let since = self.gate.now();
            let is_watch = self.kind == RequestKind::Watch;
            let watcher = is_watch.then(|| Watcher::new(&self.gate, &self.digest.info));
            self.hold(ticket, since, execution).await;
            if let Some(watcher) = watcher {
                let lasted = execution.until_watch_end().await;
                self.until(since.plus(lasted)).await;
                drop(watcher);
            }
        }
    }

    /// Holds its seats for as long as the request took to execute.
    async fn hold(&self, ticket: Ticket<Waiter>, since: Time, execution: &ShadowedExecution) {
        let until = match self.kind {
            // Its own guard sees to it that its initialization ends.
            RequestKind::Watch => Time::NEVER,
            _ => overdue_at(self.kind, since, &self.policy),
        };
        self.gate.hold(self.waiter, ticket, until);
        let end = execution.until_end().await;
        self.until(since.plus(end.took)).await;
        observe_execution(self.cells(), self.kind, end.took);
        self.gate
            .end_execution(self.waiter, end.took, end.is_refused);
    }

    async fn until(&self, due: Time) {
        tokio::time::sleep_until(self.gate.clock().instant(due)).await;
    }
}
