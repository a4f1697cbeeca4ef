//! Sends calls to the upstream and returns its responses: the innermost service of the request path.
//!
//! What was classified is what is sent: the target's bytes are forwarded unchanged, and the headers are copied one
//! by one (`headers`), and the user's identity is added (`identity_writer`). Connections
//! come from the core's own pool (`pool`).
//!
//! A request is sent again only when the upstream cannot have processed it, or when it is a read: on a connection
//! that was idle before, or, where there are several servers, at one that did not answer. When a response, or the wait for it, is dropped, the upstream's connection is closed
//! (HTTP/1), or its stream is reset when its turn comes (HTTP/2, `resets`): too many resets at a time would make
//! the upstream close the connection, with the streams of other requests. Only reads that waited at a server that was ejected are all
//! reset at once: its other requests do not get on either. A reset does not show whether the
//! upstream stops working on the request. So a request that exceeds its deadline is not dropped here, but left to
//! the layer that holds its seat ([`fairgate_call::RequestContext`]).
//!
//! Not here: flow control (`fairness`), what errors look like ([`fairgate_call::refusal_reply`]).

mod connect;
mod connection_event;
mod connection_limit;
mod connections;
mod failure_log;
mod headers;
pub mod http1;
mod huffman;
mod identity_writer;
mod idle_connections;
mod lane;
mod outgoing_lines;
mod pool;
mod resets;
mod retryable_body;
mod route;
mod send_failure;
mod server_choice;
pub mod settings;
mod tunnel;

use std::{
    borrow::Cow,
    cell::Cell,
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use fairgate_http1::RequestHeaderLines;
use http::{
    HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, uri::PathAndQuery,
};
use pin_project_lite::pin_project;
use smallvec::SmallVec;
use tokio::time::Sleep;
use tower::Service;

pub use connection_event::ConnectionEvent;
pub use connection_limit::ConnectionLimit;
pub use identity_writer::WriteIdentity;
pub use lane::Lane;
pub use settings::{ReservedHeaders, UpstreamProtocol, UpstreamSettings};

use connections::{Http1Head, LeasedConnection, RequestHead, UnreadResponse};
use fairgate_base::clock::Clock;
use fairgate_call::{
    AbandonedResponse, Call, ClientBody, OnFailure, Refusal, Reply, ReplyBody, RequestContext,
    RequestKind, RequestProgress, Trace, UnfinishedRequest, identity_headers::IdentityError,
};
use fairgate_core::digest::User;
use fairgate_upstream::{endpoint::Endpoint, servers::UpstreamServer};
use outgoing_lines::OutgoingLines;
use retryable_body::{BodyRecovery, RecoveredBody, RetryableBody};
use route::ServerRoute;
use send_failure::{AttemptFailure, Blame, Unanswered, may_be_passing, not_connected};
use server_choice::{ChosenServer, LongRunningReply, ServerChoice};

/// The maximum number of attempts to send a request, if sending it again is safe. More than two, because an upstream
/// may close several connections at the same time.
const MAX_ATTEMPTS: u32 = 4;

/// Sends calls to the upstream. One per core; clones share the core's pool.
#[derive(Clone)]
pub struct Forward {
    forwarder: Rc<Forwarder>,
}

struct Forwarder {
    settings: Arc<UpstreamSettings>,
    identity: Rc<dyn WriteIdentity>,
    target: Target,
    clock: Clock,
    /// Memory for the header lines of an HTTP/1 request.
    lines: Cell<RequestHeaderLines>,
    /// A header of the gateway itself that the upstream would take for a part of an identity.
    mixed_name: Option<HeaderName>,
}

/// Where calls go.
enum Target {
    /// To the one upstream.
    One(ServerRoute),
    /// To one of several servers.
    Several(ServerChoice),
}

/// How much memory is kept for the header lines of the next request, in bytes.
const LINES_KEPT: usize = 16 << 10;

impl Forward {
    /// A service for the calling core, with an empty pool.
    pub fn new(
        settings: Arc<UpstreamSettings>,
        identity: Rc<dyn WriteIdentity>,
        clock: Clock,
    ) -> Self {
        let target = match &settings.servers {
            None => Target::One(ServerRoute::new(Arc::clone(&settings), &clock)),
            Some(servers) => {
                let (servers, settings) = (Arc::clone(servers), Arc::clone(&settings));
                Target::Several(ServerChoice::new(servers, settings, clock.clone()))
            }
        };
        Self {
            forwarder: Rc::new(Forwarder {
                target,
                lines: Cell::default(),
                mixed_name: headers::own_identity_name(&*identity),
                settings,
                identity,
                clock,
            }),
        }
    }
}

impl Service<Call> for Forward {
    type Response = Reply;
    type Error = Refusal;
    type Future = Forwarding;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Forwarding {
        let forwarder = self.forwarder.clone();
        let context = call.context.clone();
        let upgrade = headers::requested_upgrade(&call);
        let until = call.deadline.filter(|_| upgrade.is_none());
        let until = until.map(|deadline| {
            let until = forwarder.settings.wait_until(call.received, deadline);
            forwarder.clock.instant(until)
        });
        if let Target::One(route) = &forwarder.target {
            context.trace.set_upstream(&route.name);
        }
        let answer = async move {
            match upgrade {
                // Boxed, so that other requests do not carry the size of its future.
                Some(upgrade) => Box::pin(forwarder.tunnel(call, upgrade)).await,
                None => forwarder.forward(call).await,
            }
        };
        Forwarding {
            answer: Some(Box::pin(Timed {
                answer,
                timer: until.map(tokio::time::sleep_until),
            })),
            context,
        }
    }
}

/// The response to a call that was sent upstream.
pub struct Forwarding {
    // Boxed, because its size differs much from step to step.
    answer: Option<UnfinishedRequest>,
    context: Rc<RequestContext>,
}

impl Future for Forwarding {
    type Output = Result<Reply, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Taken out while it is polled, so that a future that panics is dropped and never polled again.
        let Some(mut answer) = this.answer.take() else {
            return Poll::Ready(Err(Refusal::Internal("polled after its end".into())));
        };
        let polled = answer.as_mut().poll(cx);
        match polled {
            Poll::Pending => this.answer = Some(answer),
            Poll::Ready(Err(Refusal::UpstreamTimeout)) => {
                let rest = Self {
                    answer: Some(answer),
                    context: this.context.clone(),
                };
                this.context.timed_out.set(Box::pin(rest));
                let trace = &this.context.trace;
                let upstream = trace.upstream.borrow();
                failure_log::timed_out(
                    trace.received.get(),
                    upstream.as_deref().unwrap_or_default(),
                );
            }
            Poll::Ready(_) => {}
        }
        polled
    }
}

/// The response is no longer awaited. On a shared connection the request is not cancelled immediately.
impl Drop for Forwarding {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take()
            && let Some(connection) = self.context.awaited.take()
            && !std::thread::panicking()
        {
            connection.abandon(AbandonedResponse::Pending(answer));
        }
    }
}

pin_project! {
    /// A response that is awaited until a certain time, and then is a refusal. If it is polled again after that,
    /// it waits without a limit.
    struct Timed<F> {
        #[pin]
        answer: F,
        #[pin]
        timer: Option<Sleep>,
    }
}

impl<F: Future<Output = Result<Reply, Refusal>>> Future for Timed<F> {
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(answer) = this.answer.poll(cx) {
            return Poll::Ready(answer);
        }
        match this.timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx)) {
            Some(Poll::Ready(())) => {
                this.timer.set(None);
                Poll::Ready(Err(Refusal::UpstreamTimeout))
            }
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }
}

impl Forwarder {
    /// Refuses every request if the upstream would take a header of the gateway itself for a part of an identity.
    fn refuse_mixed_name(&self) -> Result<(), Refusal> {
        self.mixed_name.as_ref().map_or(Ok(()), |name| {
            let error = IdentityError::AlreadyPresent { name: name.clone() };
            Err(Refusal::Internal(error.to_string().into()))
        })
    }

    async fn forward(&self, mut call: Call) -> Result<Reply, Refusal> {
        self.refuse_mixed_name()?;
        let route = match &self.target {
            Target::One(route) => route,
            // Boxed, so that requests to one upstream do not carry the size of its future.
            Target::Several(choice) => return Box::pin(self.send_to_any(choice, call)).await,
        };
        let body = std::mem::replace(call.request.body_mut(), ClientBody::empty());
        self.send(route, &call, body, None).await
    }

    /// Opens a tunnel: it stays with the server that it was opened to.
    async fn tunnel(&self, call: Call, upgrade: HeaderValue) -> Result<Reply, Refusal> {
        self.refuse_mixed_name()?;
        let choice = match &self.target {
            Target::One(route) => return tunnel::open(self, route, call, upgrade).await,
            Target::Several(choice) => choice,
        };
        let chosen = choice.choose(&call, &[]).await;
        let ChosenServer {
            server,
            route,
            long_running,
            ..
        } = chosen.ok_or(Refusal::UpstreamUnreachable)?;
        let kind = call.kind;
        let opened = tunnel::open(self, &route, call, upgrade).await;
        if matches!(opened, Err(Refusal::UpstreamUnreachable)) {
            choice.servers().not_connected(&server);
        }
        let mut reply = opened?;
        if let Some(held) = long_running {
            reply
                .body_mut()
                .hold(Box::new(LongRunningReply::new(held, kind)));
        }
        Ok(reply)
    }

    /// Sends the call to a server, and to others as long as that is safe and might help.
    async fn send_to_any(&self, choice: &ServerChoice, mut call: Call) -> Result<Reply, Refusal> {
        let mut body = std::mem::replace(call.request.body_mut(), ClientBody::empty());
        let is_empty_read = call.kind.may_repeat() && http_body::Body::is_end_stream(&body);
        let call = &call;
        let mut excluded = SmallVec::<[Arc<UpstreamServer>; 4]>::new();
        let mut refusal = Refusal::UpstreamUnreachable;
        // A read may be what makes servers fail: it is not tried at all of them.
        let mut repeated = false;
        while let Some(chosen) = choice.choose(call, &excluded).await {
            if self.has_no_time(call) {
                // Not as a time-out: after one, the call would be awaited further.
                let is_first = excluded.is_empty();
                return Err(if is_first {
                    Refusal::UpstreamFull
                } else {
                    refusal
                });
            }
            let sent_at = self.clock.turn();
            let unanswered = Unanswered::default();
            let server = &chosen.server;
            let awaited = server_choice::await_answer(server, call, &body);
            let sent = self.send(&chosen.route, call, body, Some(&unanswered));
            let sent = if is_empty_read && !repeated {
                tokio::select! {
                    biased;
                    sent = sent => sent,
                    () = choice.servers().until_ejected(server) => Err(unanswered.ejected()),
                }
            } else {
                sent.await
            };
            drop(awaited);
            refusal = match sent {
                Ok(mut reply) => {
                    let took = self.clock.turn().since(sent_at);
                    chosen.answered(call, &mut reply, took);
                    return Ok(reply);
                }
                Err(refusal) => refusal,
            };
            let blame = unanswered.blame();
            choice.note_failure(&chosen, call, blame);
            if blame == Blame::Ejected {
                // Servers that did not take it before may do so now.
                excluded.clear();
            }
            excluded.push(chosen.server);
            let is_read = matches!(blame, Blame::NotAnswered | Blame::Reset | Blame::Ejected);
            match unanswered.take_body() {
                Some(whole) if !(is_read && std::mem::replace(&mut repeated, true)) => {
                    call.context.progress.set(RequestProgress::NotSent);
                    self.settings.events.send(ConnectionEvent::SentAgain);
                    body = whole;
                }
                _ => return Err(refusal),
            }
        }
        Err(refusal)
    }

    /// Whether nobody waits for the reply any longer, or will when it comes.
    fn has_no_time(&self, call: &Call) -> bool {
        let is_over = |until| self.clock.turn() >= until;
        call.context.has_ended() || call.deadline.is_some_and(is_over)
    }

    /// Sends the call, again if that failed and is safe, and returns the reply. If there are other servers, `unanswered` learns what
    /// they need to know of a failure; one that could not be reached is not tried again then. An own place for that, because a result
    /// with a body in it would cost each request two copies.
    async fn send(
        &self,
        route: &ServerRoute,
        call: &Call,
        body: ClientBody,
        unanswered: Option<&Unanswered>,
    ) -> Result<Reply, Refusal> {
        let lane = lane_of(call);
        let mut body = body;
        let mut left = MAX_ATTEMPTS - 1;
        loop {
            let fresh = left < MAX_ATTEMPTS - 1;
            let acquired = match route.pool.take(lane, fresh) {
                Some(leased) => Ok(leased),
                // Boxed, so that the other requests do not carry the size of its future.
                None => Box::pin(route.pool.acquire(lane, call.kind, fresh)).await,
            };
            let leased = match acquired {
                Ok(leased) => leased,
                Err(error)
                    if left == MAX_ATTEMPTS - 1
                        && unanswered.is_none()
                        && may_be_passing(&error) =>
                {
                    left -= 1;
                    continue;
                }
                Err(error) => return Err(not_connected(&error, body, unanswered)),
            };
            let request = self.request(route, call, &leased)?;
            match self
                .attempt(call, leased, request, body, unanswered.is_some())
                .await
            {
                Ok(response) => {
                    let reply = self.reply(call, response);
                    // No upgrade was requested. A `101` must not be relayed, and the connection must not be used.
                    if reply.status() == StatusCode::SWITCHING_PROTOCOLS {
                        tracing::warn!(
                            "the upstream switched protocols although no upgrade was requested"
                        );
                        return Err(Refusal::UpstreamFailed);
                    }
                    return Ok(reply);
                }
                Err(AttemptFailure::Again(recovered)) if left > 0 => {
                    self.settings.events.send(ConnectionEvent::SentAgain);
                    left -= 1;
                    body = recovered;
                }
                Err(failed) => return Err(failed.refusal(unanswered)),
            }
        }
    }

    async fn attempt(
        &self,
        call: &Call,
        leased: LeasedConnection,
        head: RequestHead<'_>,
        body: ClientBody,
        has_others: bool,
    ) -> Result<UnreadResponse, AttemptFailure> {
        let recovery = BodyRecovery::of(&body);
        let shared = leased.shared();
        let body = RetryableBody::new(
            body,
            recovery.clone(),
            call.context.clone(),
            shared.as_ref(),
        );
        call.context.reached(RequestProgress::Sent);
        let trace = &call.context.trace;
        if trace.sent_upstream.get().is_none() {
            trace.sent_upstream.set(Some(self.clock.turn()));
        }
        call.context.awaited.set(shared);
        let sent = leased.send(head, body).await;
        call.context.awaited.set(None);
        let failure = match sent {
            Ok(response) => {
                call.context.reached(RequestProgress::Answered);
                trace.upstream_answered.set(Some(self.clock.turn()));
                return Ok(response);
            }
            Err(failure) => failure,
        };
        let (error, nothing_sent) = (failure.error, failure.nothing_sent);
        tracing::debug!(%error, nothing_sent, "the upstream failed a request");
        let unprocessed = nothing_sent || connections::was_refused(&error);
        if unprocessed {
            call.context.progress.set(RequestProgress::NotSent);
        }
        let may_repeat = call.kind.may_repeat();
        let is_safe = unprocessed || (failure.is_stale && may_repeat);
        match recovery.recover() {
            RecoveredBody::Whole(body) if is_safe => {
                call.context.trace.request_bytes.set(0);
                Err(AttemptFailure::Again(body))
            }
            RecoveredBody::Whole(body) if may_repeat && has_others => {
                call.context.trace.request_bytes.set(0);
                log_lost(trace, &error);
                Err(AttemptFailure::Elsewhere(body, blame_for(&error)))
            }
            RecoveredBody::ClientFailed(failure) => Err(AttemptFailure::Client(failure)),
            _ if unprocessed => Err(AttemptFailure::Unsent),
            _ => {
                log_lost(trace, &error);
                Err(AttemptFailure::Upstream(blame_for(&error)))
            }
        }
    }

    /// The head to send: the target's bytes unchanged, and headers copied one by one.
    fn request<'a>(
        &'a self,
        route: &'a ServerRoute,
        call: &'a Call,
        leased: &LeasedConnection,
    ) -> Result<RequestHead<'a>, Refusal> {
        let (settings, identity) = (&*route.settings, &*self.identity);
        if leased.is_http2() {
            let mut head = Request::new(());
            *head.method_mut() = call.request.method().clone();
            *head.uri_mut() = target(call, Some(&route.settings.endpoint))?;
            let most = call.request.headers().len() + headers::MOST_ADDED;
            // It grows if that is too much to ask for.
            let _ = head.headers_mut().try_reserve(most);
            let lines = OutgoingLines::Http2(&mut head);
            headers::outgoing(call, settings, identity, None, lines)?;
            return Ok(RequestHead::Http2(Box::new(head)));
        }
        let mut lines = self.lines.take();
        lines.clear(LINES_KEPT);
        let out = OutgoingLines::Http1(&mut lines);
        headers::outgoing(call, settings, identity, Some(&route.host), out)?;
        let target = call.request.uri().path_and_query();
        Ok(RequestHead::Http1(Http1Head {
            method: call.request.method(),
            target: target.map_or(Cow::Borrowed("/"), origin_form),
            lines,
            spare: &self.lines,
        }))
    }

    fn reply(&self, call: &Call, response: UnreadResponse) -> Reply {
        let on_failure = if call.kind == RequestKind::Watch && response.status == StatusCode::OK {
            OnFailure::EndCleanly
        } else {
            OnFailure::Error
        };
        let silence = (!call.kind.is_long_running()).then_some(self.settings.silence);
        let body = ReplyBody::upstream(response.body, on_failure, silence);
        let mut reply = Response::new(body);
        *reply.status_mut() = response.status;
        *reply.version_mut() = Version::HTTP_11;
        *reply.headers_mut() = response.headers;
        headers::clean_reply(reply.headers_mut());
        reply
    }
}

/// The target of the request to send; with the endpoint's scheme and authority, as HTTP/2 has them there.
fn target(call: &Call, endpoint: Option<&Endpoint>) -> Result<Uri, Refusal> {
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = match call.request.uri().path_and_query() {
        // An empty path reads as "/" but would be written as nothing.
        Some(target) if target.as_str() == "/" => Some(PathAndQuery::from_static("/")),
        Some(target) => match origin_form(target) {
            Cow::Borrowed(_) => Some(target.clone()),
            Cow::Owned(target) => PathAndQuery::try_from(target).ok(),
        },
        None => None,
    };
    if let Some(endpoint) = endpoint {
        parts.scheme = Some(endpoint.scheme());
        parts.authority = Some(endpoint.authority().clone());
    }
    Uri::from_parts(parts).map_err(|_| Refusal::Malformed("the target has no path"))
}

/// A target as it is sent: it begins with a path. A query without one is that of the root, and servers do not read it otherwise.
fn origin_form(target: &PathAndQuery) -> Cow<'_, str> {
    match target.as_str() {
        path if path.starts_with('/') => Cow::Borrowed(path),
        query => Cow::Owned(format!("/{query}")),
    }
}

/// Whom to blame for a call that was sent and not answered.
fn blame_for(error: &connections::SendError) -> Blame {
    if connections::was_reset(error) {
        Blame::Reset
    } else {
        Blame::NotAnswered
    }
}

/// Logs that the upstream closed a connection before it answered.
fn log_lost(trace: &Trace, error: &(dyn std::error::Error + 'static)) {
    let upstream = trace.upstream.borrow();
    let upstream = upstream.as_deref().unwrap_or_default();
    failure_log::lost(trace.received.get(), upstream, error);
}

/// The lane of a call.
fn lane_of(call: &Call) -> Lane {
    if is_anonymous(&call.digest.user) {
        // A Kubernetes API server closes the whole HTTP/2 connection after an anonymous request.
        Lane::Anonymous
    } else if call.kind == RequestKind::Watch {
        Lane::Watches
    } else if call.kind.is_long_running() {
        Lane::LongRunning
    } else {
        Lane::Ordinary
    }
}

fn is_anonymous(user: &User) -> bool {
    user.name == User::ANONYMOUS || user.in_group(User::UNAUTHENTICATED)
}
