//! Where requests enter the stack: one service for each connection, called by hyper.

use std::{cell::RefCell, convert::Infallible, rc::Rc};

use http::{Request, Response, Uri};
use http_body::Body as _;
use hyper::body::Incoming;
use tower::Service;
use uuid::{Uuid, fmt::Hyphenated};

use super::{
    client_connection::ClientConnection,
    request_future::{ActiveRequest, OutgoingBody, RequestFuture, close_connection},
};
use crate::serve::{
    serve_context::ServeContext,
    wire::defence::Offence,
    wire::head_check::{self, CheckedLines, RequestTarget},
    wire::head_scan::HeadFacts,
    wire::message_state::{Framing, HeadCheck},
};
use fairgate_call::{
    ClientBody, Inbound, Refusal, Reply, ReplyBody, RequestContext, refusal_reply,
};

/// Hands the requests of one connection to the stack.
pub(super) struct ConnectionService<S> {
    core: Rc<ServeContext>,
    connection: Rc<ClientConnection>,
    stack: RefCell<S>,
}

/// A request whose head was checked.
enum Checked {
    /// It goes through the stack.
    Request(Inbound),
    /// The response does not need the stack.
    Answered(Reply),
}

/// What a head takes in memory: its texts and lines, and of HTTP/1 all that was received, which is kept as a whole.
fn head_bytes(uri: &Uri, lines: &CheckedLines<'_>, head: HeadCheck) -> usize {
    let received = match head {
        HeadCheck::Scanned(facts) => facts.bytes,
        HeadCheck::TooLarge => 0,
    };
    let authority = uri
        .authority()
        .map_or(0, |authority| authority.as_str().len());
    let target = uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    received.max(lines.bytes + authority + target)
}

impl<S> ConnectionService<S> {
    pub(super) fn new(core: Rc<ServeContext>, connection: Rc<ClientConnection>, stack: S) -> Self {
        Self {
            core,
            connection,
            stack: RefCell::new(stack),
        }
    }

    /// Refuses malformed requests, responds to those that need no stack, and turns the others into an [`Inbound`].
    fn enter(&self, request: Request<Incoming>) -> (Rc<RequestContext>, Checked) {
        let lines = CheckedLines::of(request.headers());
        let audit_id = lines.audit_id.and_then(|id| parse_uuid(id.as_bytes()));
        let head = match &self.connection.messages {
            None => HeadCheck::Scanned(HeadFacts::default()),
            Some(messages) => messages.parsed(framing(request.body())),
        };
        let mut context = RequestContext::new(
            request.method().clone(),
            request.uri().path_and_query().cloned(),
            // The client's own, if that is a UUID.
            audit_id.unwrap_or_else(|| self.core.new_id()),
        );
        context.head_bytes = head_bytes(request.uri(), &lines, head);
        let context = Rc::new(context);
        match &self.connection.messages {
            // hyper spawns the stream's task right after this call, in the same poll.
            None => *self.connection.starting.borrow_mut() = Some(context.clone()),
            Some(_) => *self.connection.in_progress.borrow_mut() = Some(context.clone()),
        }
        let checked = self.check(&request, &lines, head);
        let expects_continue = lines.expects_continue();
        let (parts, body) = request.into_parts();
        let body = self.body(expects_continue, body);
        let checked = match checked {
            Ok(RequestTarget::Path) => Checked::Request(Inbound {
                request: Box::new(Request::from_parts(parts, body)),
                peer: self.connection.peer.clone(),
                received: self.core.clock.turn(),
                context: context.clone(),
            }),
            Ok(RequestTarget::ServerWide) => Checked::Answered(Response::new(ReplyBody::empty())),
            Err(refusal) => Checked::Answered(self.refuse(&refusal, &context)),
        };
        (context, checked)
    }

    fn check<B>(
        &self,
        request: &Request<B>,
        lines: &CheckedLines<'_>,
        head: HeadCheck,
    ) -> Result<RequestTarget, Refusal> {
        let HeadCheck::Scanned(facts) = head else {
            // It was counted when it was found too large.
            return Err(Refusal::HeadersTooLarge);
        };
        // HTTP/2 limits the bytes of a head, but not the number of its fields: very many short ones would fit. Each name in `Connection` is
        // looked for among the fields.
        let most = self.core.settings.header_lines;
        let checked = if request.headers().len() > most || lines.connection_names > most {
            Err(Refusal::HeadersTooLarge)
        } else {
            head_check::check(request, lines, facts)
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
        let mut reply = refusal_reply::reply(refusal, context);
        if self.connection.messages.is_some() {
            close_connection(&mut reply);
        }
        reply
    }

    /// The body of a request. With `Expect: 100-continue` it is not read ahead: the first read asks the
    /// client to continue.
    fn body(&self, expects_continue: bool, body: Incoming) -> ClientBody {
        let mut body =
            ClientBody::incoming(body, (!expects_continue).then(|| self.core.budget.clone()));
        if self.connection.messages.is_some() {
            self.connection.unread_bodies.begin(expects_continue);
            // With `Expect: 100-continue`, reading the rest would ask the client to send it.
            if !expects_continue && !body.is_end_stream() {
                body.hand_unread_to(self.connection.clone());
            }
            return body;
        }
        body.on_stream_of(&self.core.windows)
    }
}

impl<S> hyper::service::Service<Request<Incoming>> for ConnectionService<S>
where
    S: Service<Inbound, Response = Reply, Error = Infallible>,
{
    type Response = Response<OutgoingBody>;
    type Error = Infallible;
    type Future = RequestFuture<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let active = ActiveRequest::begin(self.core.clone(), self.connection.clone());
        let version = request.version();
        let (context, checked) = self.enter(request);
        match checked {
            Checked::Answered(reply) => RequestFuture::answered(reply, active, context, version),
            Checked::Request(inbound) => {
                let received = inbound.received;
                let future = self.stack.borrow_mut().call(inbound);
                RequestFuture::serving(future, active, context, received, version)
            }
        }
    }
}

/// Where the body ends, as hyper read it in the head.
fn framing(body: &Incoming) -> Framing {
    if body.is_end_stream() {
        return Framing::Length(0);
    }
    let length = body.size_hint().exact();
    length.map_or(Framing::Chunked, Framing::Length)
}

/// Parses a UUID in the form with hyphens; other forms are not accepted.
fn parse_uuid(text: &[u8]) -> Option<u128> {
    if text.len() != Hyphenated::LENGTH {
        return None;
    }
    Some(Uuid::try_parse_ascii(text).ok()?.as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_hyphenated_uuid_is_accepted_as_audit_id() {
        let id = parse_uuid(b"01234567-89ab-4def-8123-456789ABcdef");
        assert_eq!(id, Some(0x0123_4567_89ab_4def_8123_4567_89ab_cdef));
        assert_eq!(parse_uuid(b"01234567089ab-4def-8123-456789abcdef"), None);
        assert_eq!(parse_uuid(b"01234567-89ab-4def-8123-456789abcde "), None);
        assert_eq!(parse_uuid(b""), None);
    }
}
