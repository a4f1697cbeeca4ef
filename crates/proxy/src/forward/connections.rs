//! Open upstream connections, as they are lent to requests.
//!
//! An HTTP/2 connection is shared: its streams are counted, and resets of them are limited. An HTTP/1
//! connection is used by one request at a time and goes back to the pool when the response was read to
//! its end.

use std::{
    cell::{Cell, RefCell},
    error::Error,
    rc::{Rc, Weak},
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};

use super::{
    UpstreamSettings,
    connection_event::ConnectionEvent,
    connection_limit::ConnectionLimitGuard,
    idle_connections::{Condition, IdleConnection},
    resets::{self, LimitsResets, ResetOutcome, Resets},
    retryable_body::RetryableBody,
};
use fairgate_base::{clock::Clock, events::EventSink};
use fairgate_call::{AbandonedResponse, ResetTurn, UpstreamConnection};
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

/// Keeps HTTP/1 connections for the next request.
pub(super) trait KeepsIdle {
    /// Keeps a connection that no request uses now.
    fn keep(&self, connection: Rc<Http1Connection>);
}

/// An HTTP/1 connection, used by one request at a time.
pub(super) struct Http1Connection {
    sender: RefCell<http1::SendRequest<RetryableBody>>,
    /// The pool that it returns to after a request.
    pool: Weak<dyn KeepsIdle>,
}

impl Http1Connection {
    pub(super) fn new(
        sender: http1::SendRequest<RetryableBody>,
        pool: Weak<dyn KeepsIdle>,
    ) -> Rc<Self> {
        Rc::new(Self {
            sender: RefCell::new(sender),
            pool,
        })
    }
}

impl IdleConnection for Rc<Http1Connection> {
    fn condition(&self) -> Condition {
        let sender = self.sender.borrow();
        if sender.is_ready() {
            Condition::Ready
        } else if sender.is_closed() {
            Condition::Closed
        } else {
            Condition::Busy
        }
    }
}

impl UpstreamConnection for Http1Connection {
    fn release(self: Rc<Self>, clean: bool) {
        if clean
            && !self.sender.borrow().is_closed()
            && let Some(pool) = self.pool.upgrade()
        {
            pool.keep(self);
        }
    }
}

/// A connection lent to one request. If it is dropped without a response, an HTTP/1 connection is closed,
/// and the stream of an HTTP/2 connection is free again.
pub(super) struct LeasedConnection {
    kind: LeaseKind,
    /// `None` once the body of the response holds the connection.
    connection: Option<Rc<dyn UpstreamConnection>>,
}

enum LeaseKind {
    Http1 {
        connection: Rc<Http1Connection>,
        used: bool,
    },
    Http2(Rc<Http2Connection>),
}

impl LeasedConnection {
    /// Lends an HTTP/1 connection. `used` is whether it served a request before.
    pub(super) fn http1(connection: Rc<Http1Connection>, used: bool) -> Self {
        Self {
            connection: Some(connection.clone()),
            kind: LeaseKind::Http1 { connection, used },
        }
    }

    /// Lends one stream of an HTTP/2 connection.
    pub(super) fn http2(connection: Rc<Http2Connection>) -> Self {
        connection.active.set(connection.active.get() + 1);
        connection.counted.begin_stream();
        Self {
            connection: Some(connection.clone()),
            kind: LeaseKind::Http2(connection),
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.kind, LeaseKind::Http2(_))
    }

    /// Whether `error` means that a connection kept for reuse had been closed meanwhile.
    pub(super) fn is_stale(&self, error: &hyper::Error) -> bool {
        matches!(self.kind, LeaseKind::Http1 { used: true, .. })
            && (error.is_incomplete_message() || error.is_closed() || is_io(error))
    }

    pub(super) async fn send(
        &self,
        request: Request<RetryableBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RetryableBody>>> {
        match &self.kind {
            LeaseKind::Http1 { connection, .. } => {
                let sent = connection.sender.borrow_mut().try_send_request(request);
                sent.await
            }
            LeaseKind::Http2(connection) => {
                let sent = connection.sender.borrow_mut().try_send_request(request);
                sent.await
            }
        }
    }

    /// The connection, if other requests share it.
    pub(super) fn shared(&self) -> Option<Rc<dyn UpstreamConnection>> {
        match &self.kind {
            LeaseKind::Http1 { .. } => None,
            LeaseKind::Http2(connection) => Some(connection.clone()),
        }
    }

    /// Leaves the connection to the body of the response.
    pub(super) fn into_connection(mut self) -> Rc<dyn UpstreamConnection> {
        match self.connection.take() {
            Some(connection) => connection,
            None => unreachable!("a lease gives its connection away once"),
        }
    }
}

impl Drop for LeasedConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.release(false);
        }
    }
}

/// Whether the upstream said that it has not processed the request: the stream was refused
/// (`REFUSED_STREAM`), or its number is above the last one in the upstream's `GOAWAY`, whatever its reason.
/// (Streams up to that number continue; if they fail, it is because the connection itself does.)
pub(super) fn was_refused(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|e| e.downcast_ref::<h2::Error>()) else {
        return false;
    };
    error.is_remote() && (error.reason() == Some(h2::Reason::REFUSED_STREAM) || error.is_go_away())
}

fn is_io(error: &hyper::Error) -> bool {
    error
        .source()
        .is_some_and(|e| e.downcast_ref::<std::io::Error>().is_some())
}
