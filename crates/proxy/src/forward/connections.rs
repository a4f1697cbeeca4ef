//! Open upstream connections, as they are lent to requests.
//!
//! An HTTP/2 connection is shared: its streams are counted, and resets of them are limited. An HTTP/1
//! connection (`http1`) is used by one request at a time and goes back to the pool when the response was read to
//! its end.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    error::Error as _,
    rc::Rc,
    time::Duration,
};

use fairgate_http1::RequestHeaderLines;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::client::conn::http2;

use super::{
    UpstreamSettings,
    connection_event::ConnectionEvent,
    connection_limit::ConnectionLimitGuard,
    http1::{ExchangeError, Http1Connection, OutgoingHead},
    resets::{self, LimitsResets, ResetOutcome, Resets},
    retryable_body::RetryableBody,
};
use fairgate_base::{clock::Clock, events::EventSink};
use fairgate_call::{AbandonedResponse, BodyReader, ResetTurn, UpstreamConnection};
use fairgate_core::time::Time;

/// An HTTP/2 connection, shared by many requests.
pub(super) struct Http2Connection {
    sender: RefCell<http2::SendRequest<RetryableBody>>,
    /// Streams in use.
    active: Cell<usize>,
    /// Streams that the upstream allows (`SETTINGS_MAX_CONCURRENT_STREAMS`).
    allowed: Cell<usize>,
    own_limit: usize,
    idle_since: Cell<Time>,
    clock: Clock,
    resets: Resets,
    linger: Duration,
    counted: ConnectionLimitGuard,
    events: EventSink<ConnectionEvent>,
}

impl Http2Connection {
    pub(super) fn new(
        sender: http2::SendRequest<RetryableBody>,
        allowed: usize,
        counted: ConnectionLimitGuard,
        settings: &UpstreamSettings,
        clock: &Clock,
    ) -> Rc<Self> {
        Rc::new(Self {
            sender: RefCell::new(sender),
            active: Cell::new(0),
            allowed: Cell::new(allowed),
            own_limit: settings.streams_per_connection.max(1),
            idle_since: Cell::new(clock.now()),
            clock: clock.clone(),
            resets: Resets::default(),
            linger: settings.abandoned_linger,
            counted,
            events: settings.events.clone(),
        })
    }

    /// The upstream now allows this many streams.
    pub(super) fn set_allowed(&self, allowed: usize) {
        if self.allowed.replace(allowed) != allowed {
            self.counted.set_streams_each(self.limit());
        }
    }

    fn limit(&self) -> usize {
        self.allowed.get().min(self.own_limit)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.borrow().is_closed()
    }

    pub(super) fn is_full(&self) -> bool {
        self.active.get() >= self.limit()
    }

    /// Whether 80 % of its streams are in use. Then another connection is opened.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.active.get() * 5 >= self.limit() * 4
    }

    /// Sorts connections by preference, the best one first: the fullest of those that are not nearly full,
    /// so that the others become idle and are closed; then the emptiest of the rest.
    pub(super) fn load(&self) -> (bool, usize) {
        let active = self.active.get();
        if self.is_nearly_full() {
            (true, active)
        } else {
            (false, usize::MAX - active)
        }
    }

    pub(super) fn unused_for(&self, now: Time, limit: Duration) -> bool {
        self.active.get() == 0 && now.since(self.idle_since.get()) > limit
    }
}

impl UpstreamConnection for Http2Connection {
    fn release(self: Rc<Self>, _: bool) {
        let active = self.active.get().saturating_sub(1);
        self.active.set(active);
        self.counted.end_stream();
        if active == 0 {
            self.idle_since.set(self.clock.now());
        }
    }

    /// Other requests share the connection, and the upstream closes it when too many of its streams are
    /// reset: so the stream is not reset immediately.
    fn abandon(self: Rc<Self>, response: AbandonedResponse) {
        let is_body = matches!(response, AbandonedResponse::Body(_));
        fairgate_base::turns::spawn_local_boxed(async move {
            let end = resets::finish_or_reset(self.clone(), response).await;
            self.events.send(match end {
                ResetOutcome::Completed => ConnectionEvent::Completed,
                ResetOutcome::Reset => ConnectionEvent::Reset,
            });
            if is_body {
                self.release(false);
            }
        });
    }

    fn reset_turn(self: Rc<Self>) -> Option<ResetTurn> {
        Some(Box::pin(resets::turn(self)))
    }
}

impl LimitsResets for Http2Connection {
    fn resets(&self) -> &Resets {
        &self.resets
    }

    fn streams(&self) -> usize {
        self.limit()
    }

    fn linger(&self) -> Duration {
        self.linger
    }
}

/// The head of a request, for the protocol of its connection.
pub(super) enum RequestHead<'a> {
    Http1(Http1Head<'a>),
    // Boxed, so that other requests do not carry its size.
    Http2(Box<Request<()>>),
}

/// The head of an HTTP/1 request.
pub(super) struct Http1Head<'a> {
    pub(super) method: &'a Method,
    /// Path and query.
    pub(super) target: Cow<'a, str>,
    pub(super) lines: RequestHeaderLines,
    /// Where their memory goes back to once a connection has them, for the next request.
    pub(super) spare: &'a Cell<RequestHeaderLines>,
}

/// A response whose body is still to be read.
pub(super) struct UnreadResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: BodyReader,
}

/// Why a request got no response.
#[derive(Debug)]
pub(super) struct SendFailure {
    pub(super) error: SendError,
    /// Whether nothing of the request has left.
    pub(super) nothing_sent: bool,
    /// Whether the connection was kept from an earlier request, and had been closed meanwhile.
    pub(super) is_stale: bool,
}

/// The error of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Http1(ExchangeError),
    #[error(transparent)]
    Http2(hyper::Error),
}

/// A connection lent to one request. If it is dropped without a response, an HTTP/1 connection is closed,
/// and the stream of an HTTP/2 connection is free again.
pub(super) struct LeasedConnection {
    /// `None` once the body of the response holds the connection, which releases it.
    lease: Option<Lease>,
}

enum Lease {
    Http1 {
        connection: Rc<Http1Connection>,
        /// Whether it served a request before.
        used: bool,
    },
    Http2(Rc<Http2Connection>),
}

impl LeasedConnection {
    /// Lends an HTTP/1 connection. `used` is whether it served a request before.
    pub(super) fn http1(connection: Rc<Http1Connection>, used: bool) -> Self {
        Self {
            lease: Some(Lease::Http1 { connection, used }),
        }
    }

    /// Lends one stream of an HTTP/2 connection.
    pub(super) fn http2(connection: Rc<Http2Connection>) -> Self {
        connection.active.set(connection.active.get() + 1);
        connection.counted.begin_stream();
        Self {
            lease: Some(Lease::Http2(connection)),
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.lease, Some(Lease::Http2(_)))
    }

    /// Sends a request, and waits for the head of its response. After an error the request's body was dropped.
    pub(super) async fn send(
        mut self,
        head: RequestHead<'_>,
        body: RetryableBody,
    ) -> Result<UnreadResponse, SendFailure> {
        let sent = match (&self.lease, head) {
            (Some(Lease::Http1 { connection, used }), RequestHead::Http1(head)) => {
                match begin_http1(connection, head, body) {
                    Ok(()) => read_http1(connection, *used).await,
                    Err(failure) => Err(http1_failure(failure, *used)),
                }
            }
            (Some(Lease::Http2(connection)), RequestHead::Http2(head)) => {
                send_http2(connection, *head, body).await
            }
            _ => unreachable!("the head is made for the connection, and sending takes the lease"),
        };
        // From here on the body of the response holds the connection.
        sent.inspect(|_| self.lease = None)
    }

    /// The connection, if other requests share it.
    pub(super) fn shared(&self) -> Option<Rc<dyn UpstreamConnection>> {
        match &self.lease {
            Some(Lease::Http2(connection)) => Some(connection.clone()),
            Some(Lease::Http1 { .. }) | None => None,
        }
    }
}

/// Gives the head to the connection.
fn begin_http1(
    connection: &Http1Connection,
    head: Http1Head<'_>,
    body: RetryableBody,
) -> Result<(), (ExchangeError, bool)> {
    let outgoing = OutgoingHead {
        method: head.method,
        target: &head.target,
        lines: &head.lines,
    };
    let begun = connection.begin(&outgoing, body);
    head.spare.set(head.lines);
    begun
}

/// Waits for the head of the response to the request that was begun.
async fn read_http1(
    connection: &Rc<Http1Connection>,
    used: bool,
) -> Result<UnreadResponse, SendFailure> {
    match connection.read_head().await {
        Ok(head) => Ok(UnreadResponse {
            status: head.status,
            headers: head.headers,
            body: BodyReader::Own(connection.clone()),
        }),
        Err(failure) => Err(http1_failure(failure, used)),
    }
}

fn http1_failure((error, nothing_sent): (ExchangeError, bool), used: bool) -> SendFailure {
    SendFailure {
        // On a new connection, the same error is about this request.
        is_stale: used && matches!(error, ExchangeError::Closed | ExchangeError::Io(_)),
        error: SendError::Http1(error),
        nothing_sent,
    }
}

async fn send_http2(
    connection: &Rc<Http2Connection>,
    head: Request<()>,
    body: RetryableBody,
) -> Result<UnreadResponse, SendFailure> {
    let request = head.map(|()| body);
    let sent = connection.sender.borrow_mut().try_send_request(request);
    match sent.await {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            Ok(UnreadResponse {
                status: parts.status,
                headers: parts.headers,
                body: BodyReader::Hyper(body, connection.clone()),
            })
        }
        Err(mut error) => Err(SendFailure {
            // hyper gives a request back only if it has not begun to send it.
            nothing_sent: error.take_message().is_some(),
            error: SendError::Http2(error.into_error()),
            is_stale: false,
        }),
    }
}

impl Drop for LeasedConnection {
    fn drop(&mut self) {
        match self.lease.take() {
            Some(Lease::Http1 { connection, .. }) => connection.release(false),
            Some(Lease::Http2(connection)) => connection.release(false),
            None => {}
        }
    }
}

/// Whether the upstream said that it has not processed the request: the stream was refused
/// (`REFUSED_STREAM`), or its number is above the last one in the upstream's `GOAWAY`, whatever its reason.
/// (Streams up to that number continue; if they fail, it is because the connection itself does.)
pub(super) fn was_refused(error: &SendError) -> bool {
    http2_error(error).is_some_and(|error| {
        let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (is_refused || error.is_go_away())
    })
}

/// Whether the upstream ended this request alone.
pub(super) fn was_reset(error: &SendError) -> bool {
    http2_error(error).is_some_and(|error| error.is_remote() && error.is_reset())
}

fn http2_error(error: &SendError) -> Option<&h2::Error> {
    let SendError::Http2(error) = error else {
        return None;
    };
    error.source()?.downcast_ref()
}
