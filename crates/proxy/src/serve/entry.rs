//! Where a request enters the stack, and where its answer leaves.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode, Version,
    header::{CONNECTION, EXPECT},
};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower::Service;
use uuid::{Uuid, fmt::Hyphenated};

use super::{
    core::Shared,
    defence::Offence,
    drain::{Phase, WatchEnder},
    head::{self, Asks},
    head_scan::HeadFacts,
    http2::Credits,
    messages::{Framing, Looked, Messages},
    premature::PrematureResets,
    upload::{Ruling, Uploads},
};
use fairgate_call::{
    BodyError, ClientBody, Inbound, Peer, Refusal, Reply, ReplyBody, RequestContext, RequestKind,
    ResetLimits, UnreadHeir, answer,
};
use fairgate_core::time::Time;

/// One connection's way into the stack.
pub(super) struct Entry<S> {
    core: Rc<Shared>,
    connection: Rc<Connection>,
    stack: RefCell<S>,
}

/// What the requests of one connection share.
pub(super) struct Connection {
    pub(super) peer: Rc<Peer>,
    /// Present on HTTP/1.
    pub(super) messages: Option<Arc<Messages>>,
    /// The request in hand, on HTTP/1.
    pub(super) in_hand: RefCell<Option<Rc<RequestContext>>>,
    /// What is left of bodies, on HTTP/1.
    pub(super) uploads: Uploads,
    /// What the client may send beside requests, on HTTP/2.
    pub(super) credits: Arc<Credits>,
    /// Requests in hand.
    pub(super) active: Cell<usize>,
    /// Requests ever.
    pub(super) total: Cell<u64>,
    pub(super) premature: PrematureResets,
}

impl Connection {
    /// A connection with `peer` that has brought nothing yet.
    pub(super) fn new(peer: Peer, http2: bool, resets: ResetLimits) -> Self {
        Self {
            peer: Rc::new(peer),
            messages: (!http2).then(Arc::default),
            in_hand: RefCell::default(),
            uploads: Uploads::default(),
            credits: Arc::default(),
            active: Cell::new(0),
            total: Cell::new(0),
            premature: PrematureResets::new(resets),
        }
    }
}

impl UnreadHeir for Connection {
    fn inherit(&self, rest: Incoming) {
        self.uploads.take(rest);
    }
}

impl<S> Entry<S> {
    pub(super) fn new(core: Rc<Shared>, connection: Rc<Connection>, stack: S) -> Self {
        Self {
            core,
            connection,
            stack: RefCell::new(stack),
        }
    }

    /// Refuses a malformed request, answers what needs no stack, and makes an `Inbound` of the rest.
    fn enter(&self, request: Request<Incoming>) -> Enters {
        let context = Rc::new(RequestContext::new(
            request.method().clone(),
            request.uri().path_and_query().cloned(),
            given_id(&request).unwrap_or_else(|| self.core.new_id()),
        ));
        let looked = match &self.connection.messages {
            None => Looked::Head(HeadFacts::default()),
            Some(messages) => {
                *self.connection.in_hand.borrow_mut() = Some(context.clone());
                messages.parsed(framing(request.body()))
            }
        };
        let checked = self.check(&request, looked);
        let request =
            request.map_body(|headers, body| self.body(headers.contains_key(EXPECT), body));
        match checked {
            Ok(Asks::Request) => {}
            Ok(Asks::IsAnybodyThere) => return Enters::Answered(Response::new(ReplyBody::empty())),
            Err(refusal) => return Enters::Answered(self.refuse(&refusal, &context)),
        }
        Enters::Stack(Inbound {
            request,
            peer: self.connection.peer.clone(),
            received: self.core.clock.now(),
            context,
        })
    }

    fn check<B>(&self, request: &Request<B>, looked: Looked) -> Result<Asks, Refusal> {
        let Looked::Head(facts) = looked else {
            // Counted where it was found out.
            return Err(Refusal::HeadersTooLarge);
        };
        // HTTP/2 bounds the bytes of a head, not its lines, of which short ones are very many.
        let checked = if request.headers().len() > self.core.settings.header_lines {
            Err(Refusal::HeadersTooLarge)
        } else {
            head::check(request, facts)
        };
        checked.inspect_err(|refusal| {
            let offence = match refusal {
                Refusal::Malformed(_) => Offence::Malformed,
                Refusal::HeadersTooLarge => Offence::TooLarge,
                _ => Offence::Protocol,
            };
            let remote = self.connection.peer.remote;
            self.core
                .defence
                .record(offence, remote, &refusal.to_string());
        })
    }

    fn refuse(&self, refusal: &Refusal, context: &RequestContext) -> Reply {
        let mut reply = answer::reply(refusal, context);
        if self.connection.messages.is_some() {
            close(&mut reply);
        }
        reply
    }

    /// A body that waits for our word is not read ahead: reading is the word.
    fn body(&self, waits: bool, body: Incoming) -> ClientBody {
        let mut body = ClientBody::incoming(body, (!waits).then(|| self.core.budget.clone()));
        if self.connection.messages.is_some() {
            self.connection.uploads.begin(waits);
            // Reading on would tell the client to continue.
            if !waits && !body.is_end_stream() {
                body.leave_to(self.connection.clone());
            }
        }
        body
    }
}

/// Where the body ends, as hyper sees it.
fn framing(body: &Incoming) -> Framing {
    if body.is_end_stream() {
        return Framing::Length(0);
    }
    let length = body.size_hint().exact();
    length.map_or(Framing::Chunked, Framing::Length)
}

/// Says that the connection will be closed.
fn close(reply: &mut Reply) {
    let close = HeaderValue::from_static("close");
    reply.headers_mut().insert(CONNECTION, close);
}

/// Where a request goes.
enum Enters {
    Stack(Inbound),
    Answered(Reply),
}

/// The id the client gave its request, if it is a UUID.
fn given_id(request: &Request<Incoming>) -> Option<u128> {
    parse_uuid(request.headers().get("audit-id")?.as_bytes())
}

/// Reads a UUID in its form with hyphens; there are others.
fn parse_uuid(text: &[u8]) -> Option<u128> {
    if text.len() != Hyphenated::LENGTH {
        return None;
    }
    Some(Uuid::try_parse_ascii(text).ok()?.as_u128())
}

trait MapBody<B> {
    fn map_body<C>(self, f: impl FnOnce(&http::HeaderMap, B) -> C) -> Request<C>;
}

impl<B> MapBody<B> for Request<B> {
    fn map_body<C>(self, f: impl FnOnce(&http::HeaderMap, B) -> C) -> Request<C> {
        let (parts, body) = self.into_parts();
        let body = f(&parts.headers, body);
        Request::from_parts(parts, body)
    }
}

impl<S> hyper::service::Service<Request<Incoming>> for Entry<S>
where
    S: Service<Inbound, Response = Reply, Error = Infallible>,
{
    type Response = Response<Outgoing>;
    type Error = Infallible;
    type Future = Entered<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let life = Life::begin(self.core.clone(), self.connection.clone());
        let version = request.version();
        match self.enter(request) {
            Enters::Answered(reply) => Entered {
                state: State::Answered { reply: Some(reply) },
                life: Some(life),
                context: None,
                received: Time::ZERO,
                version,
            },
            Enters::Stack(inbound) => Entered {
                context: Some(inbound.context.clone()),
                received: inbound.received,
                state: State::Serving {
                    future: self.stack.borrow_mut().call(inbound),
                },
                life: Some(life),
                version,
            },
        }
    }
}

pin_project! {
    /// The future of a request.
    pub(super) struct Entered<F> {
        #[pin]
        state: State<F>,
        life: Option<Life>,
        context: Option<Rc<RequestContext>>,
        received: Time,
        version: Version,
    }

    impl<F> PinnedDrop for Entered<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Not answered yet, and this is no connection of which that is the end.
            if let (Some(life), Some(context)) = (&this.life, &this.context)
                && life.connection.messages.is_none()
            {
                life.reset(context, *this.received);
            }
        }
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Answered { reply: Option<Reply> },
        Serving { #[pin] future: F },
        Waiting { reply: Option<Reply>, timer: Pin<Box<Sleep>> },
    }
}

impl<F> Future for Entered<F>
where
    F: Future<Output = Result<Reply, Infallible>>,
{
    type Output = Result<Response<Outgoing>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut in_time = true;
        let mut reply = match this.state.as_mut().project() {
            StateProjection::Answered { reply } => reply.take().unwrap_or_else(polled_again),
            StateProjection::Serving { future } => match ready!(future.poll(cx)) {
                Ok(reply) => reply,
                Err(never) => match never {},
            },
            StateProjection::Waiting { reply, timer } => {
                in_time = timer.as_mut().poll(cx).is_pending();
                reply.take().unwrap_or_else(polled_again)
            }
        };
        let ruling = this.life.as_ref().map_or(Ruling::Send, Life::rule);
        match ruling {
            Ruling::Wait(time) if in_time => {
                if let StateProjection::Waiting { reply: kept, .. } = this.state.as_mut().project()
                {
                    *kept = Some(reply);
                } else {
                    let (reply, timer) = (Some(reply), Box::pin(tokio::time::sleep(time)));
                    this.state.set(State::Waiting { reply, timer });
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            Ruling::Send => {}
            Ruling::Wait(_) | Ruling::Close => close(&mut reply),
        }
        if let (Some(life), Some(context)) = (&this.life, this.context.take()) {
            life.see_out(&mut reply, context, *this.version);
        }
        let life = this.life.take();
        Poll::Ready(Ok(reply.map(|body| Outgoing { body, life })))
    }
}

fn polled_again() -> Reply {
    let mut reply = Response::new(ReplyBody::empty());
    *reply.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    reply
}

/// Lasts from a request's head to the end of its answer.
pub(super) struct Life {
    core: Rc<Shared>,
    connection: Rc<Connection>,
}

impl Life {
    fn begin(core: Rc<Shared>, connection: Rc<Connection>) -> Self {
        core.load.begin();
        connection.active.set(connection.active.get() + 1);
        connection.total.set(connection.total.get() + 1);
        Self { core, connection }
    }

    /// The client has reset the request, unanswered.
    fn reset(&self, context: &RequestContext, received: Time) {
        let premature = &self.connection.premature;
        premature.note_user(context.user.get());
        premature.note(received, self.core.clock.now());
    }

    /// What an answer gets on its way out: its bytes are counted, a watch can be ended, and during
    /// the drain an HTTP/1 client is told to close.
    fn see_out(&self, reply: &mut Reply, context: Rc<RequestContext>, version: Version) {
        if self.connection.messages.is_none() {
            self.connection.premature.note_user(context.user.get());
        }
        if context.kind.get() == RequestKind::Watch && reply.status() == StatusCode::OK {
            let spread = self.core.settings.drain.watch_spread;
            let ender = WatchEnder::new(self.core.phases.clone(), spread, &self.core.turn);
            reply.body_mut().hold(Box::new(ender));
        }
        reply.body_mut().count_in(context);
        if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(messages) = &self.connection.messages {
                messages.becomes_a_tunnel();
            }
        } else if version < Version::HTTP_2 && self.core.phase.get() >= Phase::Stopping {
            close(reply);
        }
    }

    /// What to do with the answer, as far as the request's body decides it.
    fn rule(&self) -> Ruling {
        let messages = self.connection.messages.as_ref();
        messages.map_or(Ruling::Send, |messages| {
            self.connection.uploads.rule(messages)
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.core.load.end();
        self.connection.active.set(self.connection.active.get() - 1);
        if let Some(messages) = &self.connection.messages {
            *self.connection.in_hand.borrow_mut() = None;
            messages.answered();
        }
    }
}

/// The body of an answer as hyper sends it.
pub(crate) struct Outgoing {
    body: ReplyBody,
    life: Option<Life>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let (Poll::Ready(Some(Ok(frame))), Some(life)) = (&polled, &self.life)
            && let Some(data) = frame.data_ref()
        {
            life.connection.credits.piece(data.len());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_uuid_is_taken_for_an_id() {
        let id = parse_uuid(b"01234567-89ab-4def-8123-456789ABcdef");
        assert_eq!(id, Some(0x0123_4567_89ab_4def_8123_4567_89ab_cdef));
        assert_eq!(parse_uuid(b"01234567089ab-4def-8123-456789abcdef"), None);
        assert_eq!(parse_uuid(b"01234567-89ab-4def-8123-456789abcde "), None);
        assert_eq!(parse_uuid(b""), None);
    }
}
