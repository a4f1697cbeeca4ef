//! A request in progress: from its head to the end of its reply.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, Version, header::CONNECTION};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Sleep;

use super::{
    client_connection::ClientConnection, held_tail::HeldTail, stall_limits::may_pause,
    unread_bodies::SendReply,
};
use crate::serve::{
    drain::{DrainPhase, WatchEnder},
    serve_context::ServeContext,
};
use fairgate_base::clock::turn_number;
use fairgate_call::{BodyActivity, BodyError, Reply, ReplyBody, RequestContext, RequestKind};
use fairgate_core::time::Time;

pin_project! {
    /// The future of a request.
    pub(super) struct RequestFuture<F> {
        #[pin]
        state: FutureState<F>,
        active: Option<ActiveRequest>,
        context: Rc<RequestContext>,
        // Whether it went through the stack.
        in_stack: bool,
        received: Time,
        version: Version,
    }

    impl<F> PinnedDrop for RequestFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Dropped before its reply: on HTTP/2 the client reset it. On HTTP/1 the connection ended.
            if let Some(active) = &this.active
                && *this.in_stack
                && active.connection.messages.is_none()
            {
                active.reset(this.context, *this.received);
            }
        }
    }
}

pin_project! {
    #[project = StateProjection]
    enum FutureState<F> {
        Answered { reply: Option<Reply> },
        Serving { #[pin] future: F },
        Delayed { reply: Option<Reply>, timer: Pin<Box<Sleep>> },
    }
}

impl<F> RequestFuture<F> {
    /// A request whose response does not need the stack.
    pub(super) fn answered(
        reply: Reply,
        active: ActiveRequest,
        context: Rc<RequestContext>,
        version: Version,
    ) -> Self {
        Self {
            state: FutureState::Answered { reply: Some(reply) },
            active: Some(active),
            context,
            in_stack: false,
            received: Time::ZERO,
            version,
        }
    }

    /// A request that the stack serves.
    pub(super) fn serving(
        future: F,
        active: ActiveRequest,
        context: Rc<RequestContext>,
        received: Time,
        version: Version,
    ) -> Self {
        Self {
            state: FutureState::Serving { future },
            active: Some(active),
            context,
            in_stack: true,
            received,
            version,
        }
    }
}

impl<F> Future for RequestFuture<F>
where
    F: Future<Output = Result<Reply, Infallible>>,
{
    type Output = Result<Response<OutgoingBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut in_time = true;
        let mut reply = match this.state.as_mut().project() {
            StateProjection::Answered { reply } => reply.take().unwrap_or_else(polled_again),
            StateProjection::Serving { future } => match ready!(future.poll(cx)) {
                Ok(reply) => reply,
                Err(never) => match never {},
            },
            StateProjection::Delayed { reply, timer } => {
                in_time = timer.as_mut().poll(cx).is_pending();
                reply.take().unwrap_or_else(polled_again)
            }
        };
        let when = this
            .active
            .as_ref()
            .map_or(SendReply::Now, ActiveRequest::when_to_send);
        match when {
            SendReply::Later(time) if in_time => {
                if let StateProjection::Delayed { reply: kept, .. } = this.state.as_mut().project()
                {
                    *kept = Some(reply);
                } else {
                    let (reply, timer) = (Some(reply), Box::pin(tokio::time::sleep(time)));
                    this.state.set(FutureState::Delayed { reply, timer });
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            SendReply::Now => {}
            SendReply::Later(_) | SendReply::AndClose => close_connection(&mut reply),
        }
        if let Some(active) = &this.active
            && *this.in_stack
        {
            active.prepare(&mut reply, this.context.clone(), *this.version);
        }
        let (active, context) = (this.active.take(), this.context.clone());
        Poll::Ready(Ok(reply.map(|body| OutgoingBody {
            body,
            active,
            context,
            pending_in: None,
            tail: HeldTail::of(*this.version),
        })))
    }
}

fn polled_again() -> Reply {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    reply
}

/// A request in progress, from its head to the end of its reply.
pub(super) struct ActiveRequest {
    core: Rc<ServeContext>,
    connection: Rc<ClientConnection>,
}

impl ActiveRequest {
    pub(super) fn begin(core: Rc<ServeContext>, connection: Rc<ClientConnection>) -> Self {
        core.load.begin_request();
        connection.active.set(connection.active.get() + 1);
        connection.total.set(connection.total.get() + 1);
        Self { core, connection }
    }

    /// The client has reset the request before its reply began.
    fn reset(&self, context: &RequestContext, received: Time) {
        let premature = &self.connection.premature;
        premature.note_user(context.user.get());
        premature.note(received, self.core.clock.now());
    }

    /// Prepares a reply to be sent: its bytes are counted, a watch can be ended by the drain, and during the
    /// drain the reply to an HTTP/1 client has `Connection: close`.
    fn prepare(&self, reply: &mut Reply, context: Rc<RequestContext>, version: Version) {
        if self.connection.messages.is_none() {
            self.connection.premature.note_user(context.user.get());
        }
        if context.kind.get() == RequestKind::Watch && reply.status() == StatusCode::OK {
            let spread = self.core.settings.drain.watch_spread;
            let ender = WatchEnder::new(self.core.phase.subscribe(), spread, &self.core.watches);
            reply.body_mut().hold(Box::new(ender));
        }
        let is_tunnel = reply.status() == StatusCode::SWITCHING_PROTOCOLS;
        if let Some(messages) = &self.connection.messages {
            if may_pause(context.kind.get()) {
                self.connection.writes.set_may_pause(true);
            }
            if is_tunnel {
                self.connection.writes.becomes_a_tunnel();
                messages.becomes_a_tunnel();
            }
        }
        reply.body_mut().count_in(context);
        if !is_tunnel && version < Version::HTTP_2 && self.core.phase.get() >= DrainPhase::Stopping
        {
            close_connection(reply);
        }
    }

    /// When the reply can be sent, given the rest of the request's body.
    fn when_to_send(&self) -> SendReply {
        let messages = self.connection.messages.as_ref();
        messages.map_or(SendReply::Now, |messages| {
            self.connection.unread_bodies.when_to_send(messages)
        })
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.core.load.end_request();
        self.connection.active.set(self.connection.active.get() - 1);
        self.connection.idle_since.set(self.core.clock.turn());
        if let Some(messages) = &self.connection.messages {
            *self.connection.in_progress.borrow_mut() = None;
            self.connection.writes.set_may_pause(false);
            messages.answered();
        }
    }
}

/// The body of a reply as hyper sends it.
pub(crate) struct OutgoingBody {
    body: ReplyBody,
    active: Option<ActiveRequest>,
    context: Rc<RequestContext>,
    /// The turn of the connection's task in which nothing was there. What comes later wakes the task, for another turn.
    pending_in: Option<u64>,
    tail: HeldTail,
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(tail) = self.tail.take() {
            self.context.reply_activity.set(BodyActivity::Data);
            return Poll::Ready(Some(Ok(Frame::data(tail))));
        }
        // hyper asks again after it has sent what was there, in the same turn.
        let turn = turn_number();
        if turn.is_some() && turn == self.pending_in {
            return Poll::Pending;
        }
        let mut polled = Pin::new(&mut self.body).poll_frame(cx);
        match &mut polled {
            Poll::Pending => {
                self.pending_in = turn;
                self.context.reply_activity.set(BodyActivity::Pending);
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.context.reply_activity.set(BodyActivity::Data);
                if let (Some(data), Some(active)) = (frame.data_ref(), &self.active) {
                    active.connection.credits.earn_for_data(data.len());
                }
                if let Some(data) = frame.data_mut() {
                    self.tail.split_off(data);
                }
            }
            Poll::Ready(None | Some(Err(_))) => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        !self.tail.is_held() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Announces to an HTTP/1 client that the connection will be closed after this reply.
pub(super) fn close_connection(reply: &mut Reply) {
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
}
