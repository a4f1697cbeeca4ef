//! The layer that admits calls: the only place where requests wait for seats.
//!
//! A call waits here until its body is complete, if that is short, and then until it has a seat; the body of its reply holds the
//! seat to its end.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tower::{Layer, Service};

use super::{
    admission::AdmissionOutcome,
    executing::{ExecutingRequest, HeldResources},
    gate::Gate,
    long_heads::NoRoomForHead,
    long_running::LongRunningEntry,
    long_running_guard::LongRunningGuard,
    queued::QueuedRequest,
    receiving::{self, ReceivingBody},
    seat::Seat,
    settings::Enforcement,
    watch_init::WatchGuard,
};
use fairgate_call::{Call, Refusal, Reply, RequestKind, UnenforcedDecision};
use fairgate_core::time::Time;

/// Seconds after which a client with too many long-running requests should retry.
const LONG_RUNNING_RETRY_AFTER: u32 = 5;

/// Puts a core's gate in front of a service.
#[derive(Clone, Debug)]
pub struct FairnessLayer {
    gate: Rc<Gate>,
}

impl FairnessLayer {
    /// A layer that admits calls through `gate`.
    pub fn new(gate: Rc<Gate>) -> Self {
        Self { gate }
    }
}

impl<S> Layer<S> for FairnessLayer {
    type Service = Fairness<S>;

    fn layer(&self, inner: S) -> Fairness<S> {
        Fairness {
            gate: Rc::clone(&self.gate),
            inner,
        }
    }
}

/// A service before which calls wait for a seat.
#[derive(Clone, Debug)]
pub struct Fairness<S> {
    gate: Rc<Gate>,
    inner: S,
}

impl<S> Service<Call> for Fairness<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
    S::Future: Unpin + 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = Admitted<S>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        // Only the dispatcher makes requests wait.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Admitted<S> {
        let received = call.received;
        let limited = self.gate.limit(&call);
        let is_beyond = matches!(limited, Ok(Limited::Beyond));
        let state = match limited {
            Ok(Limited::Within(entry)) => self.receive(call, entry),
            Ok(Limited::Beyond) => self.execute_beyond(call),
            Err(refusal) => State::Refused(Some(refusal)),
        };
        Admitted {
            state,
            gate: Rc::clone(&self.gate),
            received,
            is_beyond,
        }
    }
}

impl<S> Fairness<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
    S::Future: Unpin + 'static,
{
    /// Executes a call that is beyond a limit which is not enforced. With enforcement it would be refused, so flow control is
    /// not asked about it: it takes no seat from others, and counts against no limit.
    fn execute_beyond(&mut self, call: Call) -> State<S> {
        let flow_control = self.gate.flow_control();
        match call.kind {
            RequestKind::Watch => {
                let entry = flow_control.watches.enter_beyond(&call.digest);
                State::execute(&mut self.inner, call, None, Some(entry))
            }
            RequestKind::LongRunning => {
                let entry = flow_control.long_running.enter_beyond(&call.digest);
                State::execute_long_running(&self.gate, &mut self.inner, call, entry)
            }
            _ => State::execute(&mut self.inner, call, None, None),
        }
    }

    /// Reads the body of a call if that comes before its seat.
    fn receive(&mut self, call: Call, entry: Option<LongRunningEntry>) -> State<S> {
        if receiving::comes_first(&call, &self.gate) {
            return State::Receiving {
                receiving: ReceivingBody::default(),
                entry,
                call: self.gate.boxed(call),
                inner: self.inner.clone(),
            };
        }
        State::admit(&self.gate, &mut self.inner, call, entry)
    }
}

impl<S> State<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
    S::Future: Unpin + 'static,
{
    /// Asks for a seat.
    fn admit(
        gate: &Rc<Gate>,
        inner: &mut S,
        mut call: Call,
        entry: Option<LongRunningEntry>,
    ) -> Self {
        match gate.admit(&call) {
            AdmissionOutcome::Execute(seat) => Self::execute(inner, call, Some(seat), entry),
            AdmissionOutcome::Queued(queued) => {
                let user = &call.digest.user;
                call.request.body_mut().begin_waiting(user);
                Self::Queued {
                    queued,
                    entry,
                    call: Box::new(call),
                    inner: inner.clone(),
                }
            }
            AdmissionOutcome::Reject(rejection) => {
                Self::Refused(Some(Refusal::TooManyRequests(Box::new(rejection))))
            }
            AdmissionOutcome::Exempt => match entry {
                Some(entry) if call.kind == RequestKind::LongRunning => {
                    Self::execute_long_running(gate, inner, call, entry)
                }
                entry => Self::execute(inner, call, None, entry),
            },
        }
    }

    fn execute_long_running(
        gate: &Rc<Gate>,
        inner: &mut S,
        call: Call,
        entry: LongRunningEntry,
    ) -> Self {
        let guard = LongRunningGuard::new(entry, gate, &call.context, gate.enforces());
        let held = HeldResources::LongRunning(guard);
        Self::Executing(ExecutingRequest::start(inner, call, held, None))
    }
}

/// What the limits on resets, long heads, watches and other long-running requests say about a call.
enum Limited {
    /// The call is within them. A watch or another long-running call counts from now on, until its entry is dropped.
    Within(Option<LongRunningEntry>),
    /// It is beyond one of them, and they are not enforced.
    Beyond,
}

impl Gate {
    /// Refuses `call` for `refusal`, unless decisions are not enforced.
    fn refuse_if_enforced(&self, call: &Call, refusal: Refusal) -> Result<(), Refusal> {
        match self.policy().enforcement {
            Enforcement::Enforce => return Err(refusal),
            Enforcement::Observe => call.context.not_enforced(&UnenforcedDecision {
                wait: Duration::ZERO,
                refused: Some(refusal.reason()),
            }),
            Enforcement::Off => {}
        }
        Ok(())
    }

    /// Whether `call` is within the limits.
    ///
    /// # Errors
    ///
    /// The refusal, if it is not and they are enforced.
    fn limit(&self, call: &Call) -> Result<Limited, Refusal> {
        let flow_control = self.flow_control();
        let resets = &flow_control.premature;
        if let Some(retry_after) = resets.refuses(&call.digest.user, || self.now()) {
            self.refuse_if_enforced(call, Refusal::TooManyResets { retry_after })?;
            return Ok(Limited::Beyond);
        }
        let retry_after = LONG_RUNNING_RETRY_AFTER;
        if let Err(NoRoomForHead) = flow_control.long_heads.charge(call) {
            self.refuse_if_enforced(call, Refusal::TooManyLongHeads { retry_after })?;
            return Ok(Limited::Beyond);
        }
        let (all, too_many) = match call.kind {
            RequestKind::Watch => (
                &flow_control.watches,
                Refusal::TooManyWatches { retry_after },
            ),
            RequestKind::LongRunning => (
                &flow_control.long_running,
                Refusal::TooManyLongRunning { retry_after },
            ),
            _ => return Ok(Limited::Within(None)),
        };
        if let Some(entry) = all.enter(&call.digest) {
            return Ok(Limited::Within(Some(entry)));
        }
        self.refuse_if_enforced(call, too_many)?;
        Ok(Limited::Beyond)
    }
}

/// The reply to a call that may have to wait for its seat.
pub struct Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    state: State<S>,
    gate: Rc<Gate>,
    received: Time,
    /// Whether the call is beyond a limit that is not enforced. With enforcement its client could not have reset it: it would
    /// have had its reply at once.
    is_beyond: bool,
}

/// The client disconnected before it got a reply.
impl<S> Drop for Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    fn drop(&mut self) {
        let context = match &self.state {
            State::Receiving { call, .. } => call.as_ref().as_ref().map(|call| &*call.context),
            State::Queued { call, .. } => Some(&*call.context),
            State::Executing(executing) => executing.unanswered(),
            State::Refused(_) | State::Over => None,
        };
        let Some(context) = context.filter(|_| !self.is_beyond) else {
            return;
        };
        if let Some(user) = context.user.get() {
            let resets = &self.gate.flow_control().premature;
            resets.note(user, self.received, self.gate.now());
        }
    }
}

enum State<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    Refused(Option<Refusal>),
    Receiving {
        receiving: ReceivingBody,
        entry: Option<LongRunningEntry>,
        call: Box<Option<Call>>,
        inner: S,
    },
    Queued {
        queued: Box<QueuedRequest>,
        entry: Option<LongRunningEntry>,
        call: Box<Call>,
        inner: S,
    },
    Executing(ExecutingRequest<S::Future>),
    Over,
}

impl<S> State<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    fn execute(
        inner: &mut S,
        mut call: Call,
        seat: Option<Seat>,
        mut watch: Option<LongRunningEntry>,
    ) -> Self {
        if let Some(seat) = &seat {
            seat.observe_body(call.request.body_mut());
            if let Some(watch) = &mut watch {
                match seat.shadowed() {
                    Some(execution) => execution.hold_place(watch.take_place()),
                    None if seat.is_refused() => drop(watch.take_place()),
                    None => {}
                }
            }
        }
        let held = match seat {
            None => HeldResources::Nothing,
            Some(seat) if call.kind == RequestKind::Watch => {
                HeldResources::Watch(Box::new(WatchGuard::new(seat, Rc::clone(&call.context))))
            }
            Some(seat) => HeldResources::Seat(seat),
        };
        Self::Executing(ExecutingRequest::start(inner, call, held, watch))
    }
}

impl<S> Future for Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
    S::Future: Unpin + 'static,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Nothing in here is pinned: the inner future is `Unpin`.
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Refused(refusal) => {
                    let refusal = refusal.take().unwrap_or_else(|| {
                        Refusal::Internal("a finished request was polled again".into())
                    });
                    return Poll::Ready(Err(refusal));
                }
                State::Receiving {
                    receiving, call, ..
                } => {
                    let received = match &mut **call {
                        Some(call) => ready!(receiving.poll(&this.gate, call, cx)),
                        None => Ok(()),
                    };
                    this.state = this.after(EndedWait::Received(received));
                }
                State::Queued { queued, call, .. } => {
                    let outcome = ready!(poll_queued(queued, call, cx));
                    this.state = this.after(EndedWait::Queued(outcome));
                }
                State::Executing(executing) => {
                    let answer = ready!(executing.poll(cx));
                    this.state = State::Over;
                    return Poll::Ready(answer);
                }
                State::Over => {
                    return Poll::Ready(Err(Refusal::Internal(
                        "a finished request was polled again".into(),
                    )));
                }
            }
        }
    }
}

impl<S> Unpin for Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
}

impl<S> Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
    S::Future: Unpin + 'static,
{
    /// The state after what it waited for.
    fn after(&mut self, ended: EndedWait) -> State<S> {
        let state = std::mem::replace(&mut self.state, State::Over);
        match (state, ended) {
            (
                State::Receiving {
                    receiving,
                    entry,
                    call,
                    mut inner,
                },
                EndedWait::Received(received),
            ) => {
                drop(receiving);
                let call = self.gate.unboxed(call);
                match (received, call) {
                    (Ok(()), Some(call)) => State::admit(&self.gate, &mut inner, call, entry),
                    (Ok(()), None) => State::Over,
                    (Err(refusal), _) => State::Refused(Some(refusal)),
                }
            }
            (
                State::Queued {
                    queued,
                    entry,
                    call,
                    mut inner,
                },
                EndedWait::Queued(outcome),
            ) => {
                call.context.trace.waited(queued.waited());
                match outcome {
                    Ok(seat) => State::execute(&mut inner, *call, Some(seat), entry),
                    Err(refusal) => State::Refused(Some(refusal)),
                }
            }
            _ => State::Over,
        }
    }
}

/// What a request has waited for.
enum EndedWait {
    /// Its body, or that there is no room to wait for it.
    Received(Result<(), Refusal>),
    /// A seat.
    Queued(Result<Seat, Refusal>),
}

/// Waits for the seat, and checks whether the client has disconnected.
fn poll_queued(
    queued: &mut QueuedRequest,
    call: &mut Call,
    cx: &mut Context<'_>,
) -> Poll<Result<Seat, Refusal>> {
    match queued.poll(cx) {
        Poll::Ready(Ok(seat)) => return Poll::Ready(Ok(seat)),
        Poll::Ready(Err(rejection)) => {
            return Poll::Ready(Err(Refusal::TooManyRequests(Box::new(rejection))));
        }
        Poll::Pending => {}
    }
    // When the connection ends, this request is dropped. An end behind unread bytes only shows when they are read.
    if let Poll::Ready(Err(_)) = call.request.body_mut().poll_read_ahead(cx) {
        return Poll::Ready(Err(Refusal::ClientGone));
    }
    Poll::Pending
}
