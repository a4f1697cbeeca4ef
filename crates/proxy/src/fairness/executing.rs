//! A request that executes, and what it holds until the upstream is known to be done with it.
//!
//! If the client disconnects, or the request exceeds its deadline, while the upstream may be working on it, the
//! request is not cancelled: it continues in the background and keeps what it holds, until its response has
//! ended. See [`super::abandoned`] for the reasons.
//!
//! A request whose body the client did not complete is another case: the upstream was told that the request is incomplete,
//! which it cannot have carried out, as an API server reads a whole body before it does anything. So what such a request holds
//! is free once it has been reset upstream, unless its response had begun.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use tower::Service;

use super::{
    abandoned::{AbandonedRequest, MAX_DISCARDED_BYTES},
    list_observer::ListObserver,
    long_running::LongRunningEntry,
    long_running_guard::LongRunningGuard,
    seat::{Seat, SeatGuard, monitor_reply},
    watch_init::{WatchGuard, WatchTransport},
};
use fairgate_call::{
    BodyEnd, BodyError, Call, Refusal, Reply, ReplyGuard, RequestContext, RequestProgress,
};
use fairgate_core::digest::Verb;

/// A request that executes.
pub(super) struct ExecutingRequest<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    future: Option<F>,
    held: HeldResources,
    /// For a watch: its entry among the watches.
    watch: Option<LongRunningEntry>,
    context: Rc<RequestContext>,
    is_list: bool,
}

/// What a request holds while it executes.
pub(super) enum HeldResources {
    Nothing,
    Seat(Seat),
    Watch(Box<WatchGuard>),
    LongRunning(LongRunningGuard),
}

impl<F> ExecutingRequest<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    /// Sends `call` to `inner`, with what it holds. A watch holds an entry among the watches as well.
    pub(super) fn start<S>(
        inner: &mut S,
        call: Call,
        held: HeldResources,
        watch: Option<LongRunningEntry>,
    ) -> Self
    where
        S: Service<Call, Response = Reply, Error = Refusal, Future = F>,
    {
        let context = Rc::clone(&call.context);
        let is_list = call.digest.info.verb == Verb::List;
        Self {
            future: Some(inner.call(call)),
            held,
            watch,
            context,
            is_list,
        }
    }

    /// The request's context, as long as it has no reply.
    pub(super) fn unanswered(&self) -> Option<&RequestContext> {
        self.future.is_some().then_some(&*self.context)
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Reply, Refusal>> {
        // Taken out while it is polled: a future that panics must not be polled again.
        let Some(mut future) = self.future.take() else {
            return Poll::Ready(Err(Refusal::Internal("polled after its end".into())));
        };
        let Poll::Ready(result) = Pin::new(&mut future).poll(cx) else {
            self.future = Some(future);
            return Poll::Pending;
        };
        let held = std::mem::replace(&mut self.held, HeldResources::Nothing);
        Poll::Ready(match result {
            Ok(reply) => Ok(self.attach(reply, held)),
            Err(refusal) => {
                self.settle(&refusal, held);
                Err(refusal)
            }
        })
    }

    /// Makes the reply's body hold what the request holds.
    fn attach(&mut self, mut reply: Reply, held: HeldResources) -> Reply {
        match held {
            HeldResources::Nothing => {}
            HeldResources::Seat(seat) => self.attach_seat(&mut reply, seat),
            HeldResources::Watch(mut watch) => {
                if let Some(transport) = WatchTransport::of(&reply) {
                    watch.answered(transport);
                    reply.body_mut().hold(watch);
                } else if let Some(seat) = watch.into_seat() {
                    self.attach_seat(&mut reply, seat);
                }
            }
            HeldResources::LongRunning(guard) => reply.body_mut().hold(Box::new(guard)),
        }
        if let Some(entry) = self.watch.take() {
            let counted = CountedWatch { _entry: entry };
            reply.body_mut().hold(Box::new(counted));
        }
        reply
    }

    fn attach_seat(&self, reply: &mut Reply, seat: Seat) {
        let info = &seat.digest().info;
        let list = self
            .is_list
            .then(|| ListObserver::new(info, reply.status(), reply.headers()))
            .flatten()
            .map(Box::new);
        let guard = SeatGuard::new(seat, list);
        let contended = guard.contended_seat();
        match reply.body_mut().hold_upstream(guard) {
            Ok(pipe) => monitor_reply(contended, &pipe),
            Err(guard) => reply.body_mut().hold(Box::new(guard)),
        }
    }

    /// Decides what happens to `held` after the request failed: the upstream may still be working on it.
    fn settle(&self, refusal: &Refusal, held: HeldResources) {
        if let HeldResources::Seat(seat) = &held {
            self.context.trace.executed(seat.elapsed());
        }
        match refusal {
            Refusal::UpstreamTimeout => match self.context.timed_out.take() {
                Some(unfinished) => held.continue_abandoned(unfinished, &self.context),
                None => held.keep(),
            },
            // The upstream is done with it, or has never seen all of it.
            _ if held.is_carried_out_whole(&self.context) => {}
            // It may be working on what it got.
            _ => held.keep(),
        }
    }
}

/// Removes a watch from the count of watches when it ends.
struct CountedWatch {
    _entry: LongRunningEntry,
}

impl ReplyGuard for CountedWatch {
    fn end(self: Box<Self>, _: BodyEnd) {}
}

/// Whether the upstream may be working on the request.
fn is_in_upstream(context: &RequestContext) -> bool {
    matches!(
        context.progress.get(),
        RequestProgress::Sent | RequestProgress::Answered
    )
}

/// Whether the request was certainly not carried out, because nothing of it was sent.
fn is_unsent(context: &RequestContext) -> bool {
    context.progress.get() == RequestProgress::NotSent && !context.is_served_here.get()
}

/// The client disconnected before the reply began. If the upstream may be working on the request, what it holds is not
/// free yet.
impl<F> Drop for ExecutingRequest<F>
where
    F: Future<Output = Result<Reply, Refusal>> + Unpin + 'static,
{
    fn drop(&mut self) {
        let held = std::mem::replace(&mut self.held, HeldResources::Nothing);
        let Some(future) = self.future.take() else {
            return;
        };
        held.client_gone();
        if is_unsent(&self.context) {
            self.context.is_refused.set(true);
        }
        if !is_in_upstream(&self.context) || std::thread::panicking() {
            return;
        }
        if let HeldResources::Seat(seat) = &held {
            self.context.trace.executed(seat.elapsed());
        }
        held.continue_abandoned(future, &self.context);
    }
}

impl HeldResources {
    /// How much longer the request may take at most.
    fn time_left(&self) -> Duration {
        match self {
            Self::Nothing => Duration::ZERO,
            Self::Seat(seat) => seat.time_left(),
            Self::Watch(watch) => watch.time_left(),
            Self::LongRunning(guard) => guard.time_left(),
        }
    }

    /// Whether a request that failed before its response began is carried out as a whole or not at all. Then one that was not sent, or
    /// whose body the client did not complete, was not, which this notes. A stream is not: the upstream works on what has arrived of it.
    fn is_carried_out_whole(&self, context: &RequestContext) -> bool {
        let is_incomplete = context.client_body_failed.get() && is_in_upstream(context);
        match self {
            Self::LongRunning(_) => !is_incomplete,
            Self::Nothing | Self::Seat(_) | Self::Watch(_) => {
                if is_incomplete || is_unsent(context) {
                    context.is_refused.set(true);
                }
                true
            }
        }
    }

    /// The client disconnected before the reply began.
    fn client_gone(&self) {
        match self {
            Self::Seat(seat) => seat.client_gone(),
            Self::Watch(watch) => watch.client_gone(),
            Self::Nothing | Self::LongRunning(_) => {}
        }
    }

    /// To be called when the client disconnected; `None` if the request is to be cancelled.
    fn abandon(&self) -> Option<AbandonedRequest> {
        match self {
            Self::Nothing => None,
            Self::Seat(seat) => seat.abandon(),
            Self::Watch(watch) => watch.abandon(),
            Self::LongRunning(guard) => guard.abandon(),
        }
    }

    /// Lets an abandoned request continue to its end, at most until its time limit, with what it holds.
    fn continue_abandoned<F>(self, future: F, context: &Rc<RequestContext>)
    where
        F: Future<Output = Result<Reply, Refusal>> + 'static,
    {
        let Some(abandoned) = self.abandon() else {
            return;
        };
        let context = Rc::clone(context);
        fairgate_base::turns::spawn_local_boxed(async move {
            let time = self.time_left();
            let run = read_to_end(future, &self, &context, abandoned);
            match tokio::time::timeout(time, run).await {
                Ok(UpstreamState::Done) | Err(_) => drop(self),
                Ok(UpstreamState::Unknown) => self.keep(),
            }
        });
    }

    /// Keeps what is held until the time limit, because nothing will show the request's end.
    fn keep(self) {
        match self {
            Self::Nothing => {}
            Self::Seat(seat) => seat.keep(),
            Self::Watch(watch) => watch.keep(),
            Self::LongRunning(guard) => guard.keep(),
        }
    }
}

/// What the end of an abandoned request shows about the upstream.
enum UpstreamState {
    /// The upstream is done with it.
    Done,
    /// It may still be working on it.
    Unknown,
}

impl AbandonedRequest {
    /// The request has ended. `known` is whether this proves that the upstream is done with it.
    fn outcome(mut self, known: bool) -> UpstreamState {
        if !known {
            return UpstreamState::Unknown;
        }
        self.ended();
        UpstreamState::Done
    }
}

/// Reads the response of an abandoned request until the upstream is done; that of a watch, until it begins.
async fn read_to_end<F>(
    future: F,
    held: &HeldResources,
    context: &RequestContext,
    abandoned: AbandonedRequest,
) -> UpstreamState
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    let mut result = future.await;
    // The client's own time limit does not show what the upstream does.
    while let (Err(Refusal::UpstreamTimeout), Some(unfinished)) =
        (&result, context.timed_out.take())
    {
        result = unfinished.await;
    }
    let Ok(mut reply) = result else {
        return abandoned.outcome(held.is_carried_out_whole(context));
    };
    if matches!(held, HeldResources::Watch(_)) && WatchTransport::of(&reply).is_some() {
        return abandoned.outcome(true);
    }
    let mut bytes = match held {
        HeldResources::LongRunning(_) => MAX_DISCARDED_BYTES,
        HeldResources::Nothing | HeldResources::Seat(_) | HeldResources::Watch(_) => {
            abandoned.bytes()
        }
    };
    while let Some(frame) = poll_fn(|cx| Pin::new(reply.body_mut()).poll_frame(cx)).await {
        let data = match &frame {
            // The gateway stopped reading; the upstream may still be working on the request.
            Err(BodyError::Idle) => return UpstreamState::Unknown,
            Err(_) => return abandoned.outcome(!context.client_body_failed.get()),
            Ok(frame) => frame.data_ref().map_or(0, Bytes::len) as u64,
        };
        let Some(left) = bytes.checked_sub(data) else {
            return UpstreamState::Unknown;
        };
        bytes = left;
    }
    abandoned.outcome(true)
}
