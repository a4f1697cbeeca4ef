//! The layer that admits calls: the one place where a request is held back.
//!
//! A call waits here until it has a seat; its answer's body then holds the seat to its end. If the
//! client leaves, or its time is up, while the upstream may be working on the request, it runs on
//! unseen, and keeps its seat until the upstream is known to be done; so do long-running requests with
//! their places.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use tower::{Layer, Service};

use super::{
    abandoned::{FEW_BYTES, RunsOn},
    gate::{Gate, Verdict, Waiting},
    hub::Enforcement,
    learn::ListObserver,
    long_running,
    place::PlaceGuard,
    seat::{Seat, SeatGuard, look_after},
    watch_init::{WatchGuard, is_watch},
};
use fairgate_call::{
    BodyEnd, BodyError, Call, Progress, Refusal, Reply, ReplyGuard, RequestContext, RequestKind,
};
use fairgate_core::{digest::Verb, time::Time};

/// Seconds until a client with too many long-running requests should ask again.
const LONG_RUNNING_RETRY_AFTER: u32 = 5;

/// Puts a core's gate in front of a service.
#[derive(Clone, Debug)]
pub struct FairnessLayer {
    gate: Rc<Gate>,
}

impl FairnessLayer {
    /// A layer before which calls wait at `gate`.
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
        // Only the dispatcher holds a request back.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Admitted<S> {
        let received = call.received;
        let state = match self.refused_at_once(&call) {
            Some(refusal) => State::Refused(Some(refusal)),
            None => self.admit(call),
        };
        Admitted {
            state,
            gate: Rc::clone(&self.gate),
            received,
        }
    }
}

impl<S> Fairness<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone,
    S::Future: Unpin + 'static,
{
    /// Whether a call is refused for what its user did before.
    fn refused_at_once(&self, call: &Call) -> Option<Refusal> {
        let resets = &self.gate.hub().premature;
        let retry_after = resets.refuses(&call.digest.user, || self.gate.now())?;
        let enforced = self.gate.policy().enforcement == Enforcement::Enforce;
        enforced.then_some(Refusal::TooManyResets { retry_after })
    }

    fn admit(&mut self, call: Call) -> State<S> {
        if call.kind != RequestKind::Watch {
            return self.admit_in(call, None);
        }
        // Only enforced caps hold anybody back; who runs is counted in any case.
        let enforced = self.gate.policy().enforcement == Enforcement::Enforce;
        match (self.gate.hub().watches).enter(&call.digest.user, enforced) {
            Some(place) => self.admit_in(call, Some(place)),
            None => State::Refused(Some(Refusal::TooManyWatches {
                retry_after: LONG_RUNNING_RETRY_AFTER,
            })),
        }
    }

    fn admit_in(&mut self, call: Call, place: Option<long_running::Place>) -> State<S> {
        match self.gate.admit(&call) {
            Verdict::Execute(seat) => State::serve(&mut self.inner, call, Some(seat), place),
            Verdict::Wait(waiting) => State::Waiting {
                waiting,
                place,
                call: Box::new(call),
                inner: self.inner.clone(),
            },
            Verdict::Refuse(rejection) => {
                State::Refused(Some(Refusal::TooManyRequests(Box::new(rejection))))
            }
            Verdict::Unlimited if call.kind == RequestKind::LongRunning => {
                // Only enforced caps hold anybody back; who runs is counted in any case.
                let enforced = self.gate.policy().enforcement == Enforcement::Enforce;
                match (self.gate.hub().long_running).enter(&call.digest.user, enforced) {
                    Some(place) => {
                        let held = Held::Place(PlaceGuard::new(
                            place,
                            &self.gate,
                            &call.context,
                            enforced,
                        ));
                        State::serve_holding(&mut self.inner, call, held, None)
                    }
                    None => State::Refused(Some(Refusal::TooManyLongRunning {
                        retry_after: LONG_RUNNING_RETRY_AFTER,
                    })),
                }
            }
            Verdict::Unlimited => State::serve(&mut self.inner, call, None, place),
        }
    }
}

/// The answer to a call that may have to wait for its seat.
pub struct Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    state: State<S>,
    gate: Rc<Gate>,
    received: Time,
}

/// The client has left before it was answered.
impl<S> Drop for Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    fn drop(&mut self) {
        let context = match &self.state {
            State::Waiting { call, .. } => &call.context,
            State::Serving(serving) if serving.future.is_some() => &serving.context,
            State::Serving(_) | State::Refused(_) | State::Over => return,
        };
        if let Some(user) = context.user.get() {
            let resets = &self.gate.hub().premature;
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
    Waiting {
        waiting: Box<Waiting>,
        place: Option<long_running::Place>,
        call: Box<Call>,
        inner: S,
    },
    Serving(Serving<S::Future>),
    Over,
}

/// A request that executes.
struct Serving<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    future: Option<F>,
    held: Held,
    /// Of a watch: its place among them.
    watch: Option<long_running::Place>,
    context: Rc<RequestContext>,
    is_list: bool,
}

/// What a request holds while it executes.
enum Held {
    Nothing,
    Seat(Seat),
    Watch(WatchGuard),
    Place(PlaceGuard),
}

impl<S> State<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    fn serve(
        inner: &mut S,
        call: Call,
        seat: Option<Seat>,
        place: Option<long_running::Place>,
    ) -> Self {
        let held = match seat {
            None => Held::Nothing,
            Some(seat) if call.kind == RequestKind::Watch => {
                Held::Watch(WatchGuard::new(seat, Rc::clone(&call.context)))
            }
            Some(seat) => Held::Seat(seat),
        };
        Self::serve_holding(inner, call, held, place)
    }

    fn serve_holding(
        inner: &mut S,
        call: Call,
        held: Held,
        watch: Option<long_running::Place>,
    ) -> Self {
        let context = Rc::clone(&call.context);
        let is_list = call.digest.info.verb == Verb::List;
        Self::Serving(Serving {
            future: Some(inner.call(call)),
            held,
            watch,
            context,
            is_list,
        })
    }
}

impl<S> Future for Admitted<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Nothing in here is pinned: the inner future is a box.
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Refused(refusal) => {
                    let refusal = refusal
                        .take()
                        .unwrap_or_else(|| Refusal::Internal("polled after its end".into()));
                    return Poll::Ready(Err(refusal));
                }
                State::Waiting { waiting, call, .. } => {
                    let outcome = ready!(poll_wait(waiting, call, cx));
                    this.state = this.take_outcome(outcome);
                }
                State::Serving(serving) => {
                    let answer = ready!(serving.poll(cx));
                    this.state = State::Over;
                    return Poll::Ready(answer);
                }
                State::Over => {
                    return Poll::Ready(Err(Refusal::Internal("polled after its end".into())));
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
    S: Service<Call, Response = Reply, Error = Refusal>,
    S::Future: Unpin + 'static,
{
    fn take_outcome(&mut self, outcome: Result<Seat, Refusal>) -> State<S> {
        let State::Waiting {
            waiting,
            place,
            call,
            mut inner,
        } = std::mem::replace(&mut self.state, State::Over)
        else {
            return State::Over;
        };
        call.context.trace.wait.set(Some(waiting.waited()));
        match outcome {
            Ok(seat) => State::serve(&mut inner, *call, Some(seat), place),
            Err(refusal) => State::Refused(Some(refusal)),
        }
    }
}

/// Waits for the seat, and for signs that the client has left.
fn poll_wait(
    waiting: &mut Waiting,
    call: &mut Call,
    cx: &mut Context<'_>,
) -> Poll<Result<Seat, Refusal>> {
    match waiting.poll(cx) {
        Poll::Ready(Ok(seat)) => return Poll::Ready(Ok(seat)),
        Poll::Ready(Err(rejection)) => {
            return Poll::Ready(Err(Refusal::TooManyRequests(Box::new(rejection))));
        }
        Poll::Pending => {}
    }
    // A connection that ends drops this request; an end behind unread bytes shows when they are read.
    if let Poll::Ready(Err(_)) = call.request.body_mut().poll_read_ahead(cx) {
        return Poll::Ready(Err(Refusal::ClientGone));
    }
    Poll::Pending
}

impl<F> Serving<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Refusal>> {
        // Taken out for the time being: one that panics must not be polled again.
        let Some(mut future) = self.future.take() else {
            return Poll::Ready(Err(Refusal::Internal("polled after its end".into())));
        };
        let Poll::Ready(answer) = Pin::new(&mut future).poll(cx) else {
            self.future = Some(future);
            return Poll::Pending;
        };
        let held = std::mem::replace(&mut self.held, Held::Nothing);
        Poll::Ready(match answer {
            Ok(reply) => Ok(self.attach(reply, held)),
            Err(refusal) => {
                self.settle(&refusal, held);
                Err(refusal)
            }
        })
    }

    /// Makes the answer's body hold what the request holds.
    fn attach(&mut self, mut reply: Reply, held: Held) -> Reply {
        match held {
            Held::Nothing => {}
            Held::Seat(seat) => self.attach_seat(&mut reply, seat),
            Held::Watch(mut watch) if is_watch(&reply) => {
                watch.answered();
                reply.body_mut().hold(Box::new(watch));
            }
            Held::Watch(watch) => {
                if let Some(seat) = watch.into_seat() {
                    self.attach_seat(&mut reply, seat);
                }
            }
            Held::Place(place) => reply.body_mut().hold(Box::new(place)),
        }
        if let Some(place) = self.watch.take() {
            let place = WatchPlace { _place: place };
            reply.body_mut().hold(Box::new(place));
        }
        reply
    }

    fn attach_seat(&self, reply: &mut Reply, seat: Seat) {
        let info = &seat.digest().info;
        let list = self
            .is_list
            .then(|| ListObserver::new(info, reply.status(), reply.headers()))
            .flatten();
        let guard = SeatGuard::new(seat, Rc::clone(&self.context), list);
        let wanted = guard.wanted_by_others();
        match reply.body_mut().hold_upstream(guard) {
            Ok(answer) => look_after(wanted, &answer),
            Err(guard) => reply.body_mut().hold(Box::new(guard)),
        }
    }

    /// The request was not answered by the upstream: it may be working on it all the same.
    fn settle(&self, refusal: &Refusal, held: Held) {
        if let Held::Seat(seat) = &held {
            self.context.trace.execution.set(Some(seat.elapsed()));
        }
        match refusal {
            Refusal::UpstreamTimeout => match self.context.timed_out.take() {
                Some(unfinished) => held.run_on(unfinished, &self.context),
                None => held.keep(),
            },
            // The client's body broke off half-way, and the upstream has the other half.
            Refusal::Malformed(_) if is_upstream(&self.context) => held.keep(),
            // The upstream has ended it, or has never seen it.
            _ => {}
        }
    }
}

/// Makes room for another watch when this one ends.
struct WatchPlace {
    _place: long_running::Place,
}

impl ReplyGuard for WatchPlace {
    fn end(self: Box<Self>, _: BodyEnd) {}
}

/// Whether the upstream may be working on the request.
fn is_upstream(context: &RequestContext) -> bool {
    matches!(context.progress.get(), Progress::Sent | Progress::Answered)
}

/// The client has left before its answer began. If the upstream may be working on the request, what it
/// holds is not simply free.
impl<F> Drop for Serving<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    fn drop(&mut self) {
        let held = std::mem::replace(&mut self.held, Held::Nothing);
        let Some(future) = self.future.take() else {
            return;
        };
        if !is_upstream(&self.context) || std::thread::panicking() {
            return;
        }
        if let Held::Seat(seat) = &held {
            self.context.trace.execution.set(Some(seat.elapsed()));
        }
        held.run_on(future, &self.context);
    }
}

impl Held {
    /// How much longer the request may take at most, now that nobody waits for it.
    fn time_left(&self) -> Duration {
        match self {
            Self::Nothing => Duration::ZERO,
            Self::Seat(seat) => seat.time_left(),
            Self::Watch(watch) => watch.time_left(),
            Self::Place(place) => place.time_left(),
        }
    }

    /// The client has left; `None` if the request is to be cancelled.
    fn abandon(&self) -> Option<RunsOn> {
        match self {
            Self::Nothing => None,
            Self::Seat(seat) => seat.abandon(),
            Self::Watch(watch) => watch.abandon(),
            Self::Place(place) => place.abandon(),
        }
    }

    /// Lets a request that nobody waits for run to its end, at most until its time limit, with what it
    /// holds.
    fn run_on<F>(self, future: F, context: &Rc<RequestContext>)
    where
        F: Future<Output = Result<Reply, Refusal>> + 'static,
    {
        let Some(runs_on) = self.abandon() else {
            return;
        };
        let context = Rc::clone(context);
        tokio::task::spawn_local(async move {
            let time = self.time_left();
            let run = run_to_the_end(future, &self, &context, runs_on);
            match tokio::time::timeout(time, run).await {
                Ok(HowItEnded::Known) | Err(_) => drop(self),
                Ok(HowItEnded::NotKnown) => self.keep(),
            }
        });
    }

    /// Keeps what is held until the time limit: nothing will tell of the request's end.
    fn keep(self) {
        match self {
            Self::Nothing => {}
            Self::Seat(seat) => seat.keep(),
            Self::Watch(watch) => watch.keep(),
            Self::Place(place) => place.keep(),
        }
    }
}

/// What is known of the end of a request that nobody waited for.
enum HowItEnded {
    /// The upstream is done with it.
    Known,
    /// It may still be working on it.
    NotKnown,
}

impl RunsOn {
    /// It has come to an end, which tells that the upstream is done with it, or not.
    fn outcome(mut self, known: bool) -> HowItEnded {
        if !known {
            return HowItEnded::NotKnown;
        }
        self.ended();
        HowItEnded::Known
    }
}

/// Runs a request that nobody waits for until the upstream is done; a watch, until it is answered.
async fn run_to_the_end<F>(
    future: F,
    held: &Held,
    context: &RequestContext,
    runs_on: RunsOn,
) -> HowItEnded
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    let mut answer = future.await;
    // The client's own time limit says nothing of the upstream.
    while let (Err(Refusal::UpstreamTimeout), Some(unfinished)) =
        (&answer, context.timed_out.take())
    {
        answer = unfinished.await;
    }
    let Ok(mut reply) = answer else {
        return runs_on.outcome(!context.client_body_failed.get());
    };
    if matches!(held, Held::Watch(_)) && is_watch(&reply) {
        return runs_on.outcome(true);
    }
    let mut bytes = match held {
        Held::Place(_) => FEW_BYTES,
        Held::Nothing | Held::Seat(_) | Held::Watch(_) => runs_on.bytes(),
    };
    while let Some(frame) = poll_fn(|cx| Pin::new(reply.body_mut()).poll_frame(cx)).await {
        let data = match &frame {
            // The gateway's own doing.
            Err(BodyError::Idle) => return HowItEnded::NotKnown,
            Err(_) => return runs_on.outcome(!context.client_body_failed.get()),
            Ok(frame) => frame.data_ref().map_or(0, Bytes::len) as u64,
        };
        let Some(left) = bytes.checked_sub(data) else {
            return HowItEnded::NotKnown;
        };
        bytes = left;
    }
    runs_on.outcome(true)
}
