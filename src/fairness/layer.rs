//! The layer that admits calls: the one place where a request is held back.
//!
//! A call waits here until it has a seat; its answer's body then holds the seat to its end. If the
//! client leaves, or its time is up, while the upstream may be working on the request, it is cancelled
//! upstream, and its seat kept for as long as such requests were seen to take; or, while too few were
//! seen to know that, it is let run to its end, with its seat.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use http_body::Body;
use tower::{Layer, Service};

use super::{
    gate::{Gate, Verdict, Waiting},
    hub::Enforcement,
    learn::ListObserver,
    long_running,
    seat::{Seat, SeatGuard},
    watch_init::{MAX_INITIALISATION, WatchGuard},
};
use crate::{
    apf::Time,
    call::{BodyEnd, Call, Progress, Refusal, Reply, ReplyGuard, RequestKind, Trace},
    digest::Verb,
};

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
                    Some(place) => State::serve_long(&mut self.inner, call, place),
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
        let trace = match &self.state {
            State::Waiting { call, .. } => &call.trace,
            State::Serving(serving) if serving.future.is_some() => &serving.trace,
            State::Serving(_) | State::Refused(_) | State::Over => return,
        };
        if let Some(user) = trace.user.get() {
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
    trace: Rc<Trace>,
    is_list: bool,
}

/// What a request holds while it executes.
enum Held {
    Nothing,
    Seat(Seat),
    Watch(WatchGuard),
    LongRunning(long_running::Place),
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
                Held::Watch(WatchGuard::new(seat, Rc::clone(&call.trace)))
            }
            Some(seat) => Held::Seat(seat),
        };
        Self::serve_holding(inner, call, held, place)
    }

    fn serve_long(inner: &mut S, call: Call, place: long_running::Place) -> Self {
        Self::serve_holding(inner, call, Held::LongRunning(place), None)
    }

    fn serve_holding(
        inner: &mut S,
        call: Call,
        held: Held,
        watch: Option<long_running::Place>,
    ) -> Self {
        let trace = Rc::clone(&call.trace);
        let is_list = call.digest.info.verb == Verb::List;
        Self::Serving(Serving {
            future: Some(inner.call(call)),
            held,
            watch,
            trace,
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
        call.trace.wait.set(Some(waiting.waited()));
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
        if let Some(place) = self.watch.take() {
            reply
                .body_mut()
                .hold(Box::new(PlaceGuard { _place: place }));
        }
        let trace = Rc::clone(&self.trace);
        let guard: Box<dyn ReplyGuard> = match held {
            Held::Nothing => return reply,
            Held::Seat(seat) => {
                let info = &seat.digest().info;
                let list = self
                    .is_list
                    .then(|| ListObserver::new(info, reply.status(), reply.headers()))
                    .flatten();
                let served = reply.status().is_success();
                Box::new(SeatGuard::new(seat, trace, list, served))
            }
            Held::Watch(mut watch) => {
                watch.answered(reply.status() == StatusCode::OK);
                Box::new(watch)
            }
            Held::LongRunning(place) => Box::new(PlaceGuard { _place: place }),
        };
        reply.body_mut().hold(guard);
        reply
    }

    /// The request was not answered by the upstream: it may be working on it all the same.
    fn settle(&self, refusal: &Refusal, held: Held) {
        let Held::Seat(seat) = held else {
            return;
        };
        self.trace.execution.set(Some(seat.elapsed()));
        match refusal {
            Refusal::UpstreamTimeout => match self.trace.leftover.take() {
                Some(unfinished) => give_up(unfinished, seat),
                None => seat.keep(),
            },
            // The client's body broke off half-way, and the upstream has the other half.
            Refusal::Malformed(_) if is_upstream(&self.trace) => seat.keep(),
            _ => {}
        }
    }
}

/// Whether the upstream may be working on the request.
fn is_upstream(trace: &Trace) -> bool {
    matches!(trace.progress.get(), Progress::Sent | Progress::Answered)
}

/// The client has left before its answer began. If the upstream may be working on the request, its
/// seat is not simply free.
impl<F> Drop for Serving<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    fn drop(&mut self) {
        let held = std::mem::replace(&mut self.held, Held::Nothing);
        let Some(future) = self.future.take() else {
            return;
        };
        if !is_upstream(&self.trace) || std::thread::panicking() {
            return;
        }
        match held {
            Held::Seat(seat) => {
                self.trace.execution.set(Some(seat.elapsed()));
                give_up(future, seat);
            }
            Held::Watch(watch) => {
                tokio::task::spawn_local(run_to_the_head(future, watch));
            }
            Held::Nothing | Held::LongRunning(_) => {}
        }
    }
}

/// Gives up a request that nobody waits for. It is cancelled upstream, and its seat kept for as long as
/// such requests take; or, where that is not known well, let run to its end, which tells.
fn give_up<F>(future: F, seat: Seat)
where
    F: Future<Output = Result<Reply, Refusal>> + 'static,
{
    match seat.cancel() {
        Some(rest) => {
            drop(future);
            seat.keep_for(rest);
        }
        None => drop(tokio::task::spawn_local(run_to_the_end(future, seat))),
    }
}

/// Runs a request that nobody waits for to its end, at most until its time limit, and learns how
/// long it takes.
async fn run_to_the_end<F>(future: F, seat: Seat)
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    let run = async {
        let mut reply = future.await?;
        while let Some(frame) = poll_fn(|cx| Pin::new(reply.body_mut()).poll_frame(cx)).await {
            if frame.is_err() {
                return Ok(false);
            }
        }
        Ok::<bool, Refusal>(reply.status().is_success())
    };
    match tokio::time::timeout(seat.time_left(), run).await {
        Ok(Ok(true)) => seat.learn(),
        // The rest of the client's body went with the client.
        Ok(Err(Refusal::Malformed(_))) => seat.keep(),
        Ok(Ok(false) | Err(_)) | Err(_) => {}
    }
}

/// Runs a watch that nobody waits for until it is answered, at most as long as one initialises.
async fn run_to_the_head<F>(future: F, watch: WatchGuard)
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    // What comes of it is of no interest, only when.
    let _ = tokio::time::timeout(MAX_INITIALISATION, future).await;
    drop(watch);
}

/// Makes room for another long-running request when this one ends.
struct PlaceGuard {
    _place: long_running::Place,
}

impl ReplyGuard for PlaceGuard {
    fn end(self: Box<Self>, _: BodyEnd) {}
}
