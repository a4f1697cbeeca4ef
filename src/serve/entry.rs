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
use tower::Service;

use super::{
    core::Shared,
    drain::{Phase, WatchEnder},
    head::{self, Asks},
    premature::PrematureResets,
    wire::Http1Head,
};
use crate::apf::Time;
use crate::call::{
    BodyError, ClientBody, Inbound, Peer, Refusal, Reply, ReplyBody, RequestKind, Trace, answer,
};

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
    pub(super) head: Option<Arc<Http1Head>>,
    /// Requests in hand.
    pub(super) active: Cell<usize>,
    /// Requests ever.
    pub(super) total: Cell<u64>,
    pub(super) premature: PrematureResets,
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
        let trace = Rc::new(Trace::new(
            request.method().clone(),
            request.uri().path_and_query().cloned(),
            given_id(&request).unwrap_or_else(|| self.core.new_id()),
        ));
        // HTTP/2 bounds the bytes of a head, not its lines, of which short ones are very many.
        if request.headers().len() > self.core.settings.header_lines {
            return Enters::Answered(self.refuse(&Refusal::HeadersTooLarge, &trace));
        }
        let checked = match &self.connection.head {
            None => head::check(&request, None),
            Some(head) => {
                let bytes = head.take(|bytes| head::check(&request, Some(bytes)));
                bytes.unwrap_or_else(|| head::check(&request, None))
            }
        };
        match checked {
            Ok(Asks::Request) => {}
            Ok(Asks::IsAnybodyThere) => return Enters::Answered(Response::new(ReplyBody::empty())),
            Err(refusal) => return Enters::Answered(self.refuse(&refusal, &trace)),
        }
        Enters::Stack(Inbound {
            request: request
                .map_body(|headers, body| self.body(headers.contains_key(EXPECT), body)),
            peer: self.connection.peer.clone(),
            received: self.core.clock.now(),
            trace,
        })
    }

    fn refuse(&self, refusal: &Refusal, trace: &Trace) -> Reply {
        let mut reply = answer::reply(refusal, trace);
        if self.connection.head.is_some() {
            reply
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply
    }

    /// A body that waits for our word is not read ahead: reading is the word.
    fn body(&self, waits: bool, body: Incoming) -> ClientBody {
        let mut body = ClientBody::incoming(body, (!waits).then(|| self.core.budget.clone()));
        if let Some(head) = &self.connection.head
            && !body.is_end_stream()
        {
            body.tell_if_unread(head.unread.clone());
        }
        body
    }
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

fn parse_uuid(text: &[u8]) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    let mut id = 0;
    for (i, byte) in text.iter().enumerate() {
        match (i, byte) {
            (8 | 13 | 18 | 23, b'-') => {}
            (8 | 13 | 18 | 23, _) => return None,
            (_, digit) => id = id << 4 | u128::from(char::from(*digit).to_digit(16)?),
        }
    }
    Some(id)
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
                trace: None,
                received: Time::ZERO,
                version,
            },
            Enters::Stack(inbound) => Entered {
                trace: Some(inbound.trace.clone()),
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
        trace: Option<Rc<Trace>>,
        received: Time,
        version: Version,
    }

    impl<F> PinnedDrop for Entered<F> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Not answered yet, and this is no connection of which that is the end.
            if let (Some(life), Some(trace)) = (&this.life, &this.trace)
                && life.connection.head.is_none()
            {
                life.reset(trace, *this.received);
            }
        }
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F> {
        Answered { reply: Option<Reply> },
        Serving { #[pin] future: F },
    }
}

impl<F> Future for Entered<F>
where
    F: Future<Output = Result<Reply, Infallible>>,
{
    type Output = Result<Response<Outgoing>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut reply = match this.state.project() {
            StateProjection::Answered { reply } => reply.take().unwrap_or_else(polled_again),
            StateProjection::Serving { future } => match ready!(future.poll(cx)) {
                Ok(reply) => reply,
                Err(never) => match never {},
            },
        };
        if let (Some(life), Some(trace)) = (&this.life, this.trace.take()) {
            life.see_out(&mut reply, trace, *this.version);
        }
        let life = this.life.take();
        Poll::Ready(Ok(reply.map(|body| Outgoing { body, _life: life })))
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
    fn reset(&self, trace: &Trace, received: Time) {
        let premature = &self.connection.premature;
        premature.note_user(trace.user.get());
        premature.note(received, self.core.clock.now());
    }

    /// What an answer gets on its way out: its bytes are counted, a watch can be ended, and during
    /// the drain an HTTP/1 client is told to close.
    fn see_out(&self, reply: &mut Reply, trace: Rc<Trace>, version: Version) {
        if self.connection.head.is_none() {
            self.connection.premature.note_user(trace.user.get());
        }
        if trace.kind.get() == RequestKind::Watch && reply.status() == StatusCode::OK {
            let spread = self.core.settings.drain.watch_spread;
            let ender = WatchEnder::new(self.core.phases.clone(), spread, &self.core.turn);
            reply.body_mut().hold(Box::new(ender));
        }
        reply.body_mut().count_in(trace);
        if version < Version::HTTP_2
            && self.core.phase.get() >= Phase::Stopping
            && reply.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            reply
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.core.load.end();
        self.connection.active.set(self.connection.active.get() - 1);
        if let Some(head) = &self.connection.head {
            head.answered();
        }
    }
}

/// The body of an answer as hyper sends it.
pub struct Outgoing {
    body: ReplyBody,
    _life: Option<Life>,
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
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
