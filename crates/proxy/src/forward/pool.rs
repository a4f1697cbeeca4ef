//! The upstream connections of one core.
//!
//! HTTP/2 connections are shared: streams are counted, and the next connection is opened when the
//! best one is 80 % full, before anybody has to wait for it. HTTP/1 connections are used by one
//! request at a time and kept for the next. Traffic that could harm other traffic has a [`Lane`] of
//! its own: watches occupy streams for an hour, and a server ends a whole connection over one
//! anonymous request.
//!
//! What a request pays does not depend on how many connections there are: it takes the one that was used
//! last, and a timer looks for those that are closed or long unused.
//!
//! Nothing here is shared between cores, so there is no lock.

use std::{
    cell::{Cell, RefCell},
    error::Error,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;

use super::{
    UpstreamSettings,
    ceiling::Place,
    connect::{ConnectError, Connector, Opened, Spoken},
    connection_event::{ConnectionEvent, Open},
    idle::{Condition, Idle, Waits},
    lent::Lent,
    resets::{self, End, Limited, Resets},
};
use fairgate_base::{clock::Clock, events::EventSink, local::LocalExecutor, socket::Socket};
use fairgate_call::{Lender, RequestKind, Unwanted, lender::Turn};
use fairgate_core::time::Time;

/// Requests that may share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Requests with an end in sight.
    Ordinary,
    /// Logs, proxied services.
    LongRunning,
    /// Watches.
    Watches,
    /// Requests of whoever has not proven who they are.
    Anonymous,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 4] = [
        Self::Ordinary,
        Self::LongRunning,
        Self::Watches,
        Self::Anonymous,
    ];
}

/// The upstream connections of one core.
pub(super) struct Pool {
    lanes: [Rc<Connections>; Lane::ALL.len()],
    pub(super) connector: Rc<Connector>,
}

impl Pool {
    pub(super) fn new(settings: &Arc<UpstreamSettings>, clock: &Clock) -> Self {
        let connector = Rc::new(Connector::new(settings.clone()));
        let lane = |lane| {
            Rc::new_cyclic(|this| Connections {
                this: this.clone(),
                lane,
                settings: settings.clone(),
                connector: connector.clone(),
                clock: clock.clone(),
                spoken: Cell::new(None),
                shared: RefCell::default(),
                current: RefCell::default(),
                idle: RefCell::default(),
                swept: Cell::new(false),
                attempt: RefCell::default(),
                failing: Cell::new(false),
            })
        };
        Self {
            lanes: Lane::ALL.map(lane),
            connector,
        }
    }

    /// A connection to send one request on; with `fresh`, not an HTTP/1 connection used before. When all there
    /// may be are full, what has an end in sight waits for a stream, and what has none is refused.
    pub(super) async fn acquire(
        &self,
        lane: Lane,
        kind: RequestKind,
        fresh: bool,
    ) -> Result<Leased, ConnectError> {
        let may_wait = !kind.is_long_running();
        self.lanes[lane as usize].acquire(may_wait, fresh).await
    }
}

/// The connections of one lane.
struct Connections {
    this: Weak<Self>,
    lane: Lane,
    settings: Arc<UpstreamSettings>,
    connector: Rc<Connector>,
    clock: Clock,
    /// What the upstream spoke last time; `None` before the first connection.
    spoken: Cell<Option<Spoken>>,
    shared: RefCell<Vec<Rc<Http2>>>,
    /// That of the shared connections which takes new requests, until it is nearly full.
    current: RefCell<Option<Rc<Http2>>>,
    idle: RefCell<Idle<Rc<Http1>>>,
    /// Whether a timer looks after the connections.
    swept: Cell<bool>,
    /// The connection being opened for everybody, if one is.
    attempt: RefCell<Option<Rc<Attempt>>>,
    /// Whether the last attempt failed: failures are told once, not once a request.
    failing: Cell<bool>,
}

/// What the shared connections of a lane have for a request.
enum Shared {
    /// A stream.
    Stream(Leased),
    /// Nothing until one more connection is open.
    Opening,
    /// Nothing, and there may be no more connections. This one is the least loaded.
    Full(Rc<Http2>),
}

/// A connection being opened for everybody who waits for one.
#[derive(Default)]
struct Attempt {
    done: Notify,
    outcome: RefCell<Option<Result<(), ConnectError>>>,
}

impl Attempt {
    async fn wait(&self) -> Result<(), ConnectError> {
        loop {
            if let Some(outcome) = &*self.outcome.borrow() {
                return outcome.clone();
            }
            self.done.notified().await;
        }
    }

    fn finish(&self, outcome: Result<(), ConnectError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.done.notify_waiters();
    }
}

/// A connection on its way. However that ends, those who wait hear of it.
struct Opening {
    lane: Rc<Connections>,
    attempt: Rc<Attempt>,
    outcome: Result<(), ConnectError>,
}

impl Opening {
    fn done(mut self, outcome: Result<(), ConnectError>) {
        self.outcome = outcome;
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.lane.attempt.borrow_mut().take();
        self.lane.note(&self.outcome);
        self.attempt.finish(self.outcome.clone());
    }
}

impl Connections {
    async fn acquire(&self, may_wait: bool, fresh: bool) -> Result<Leased, ConnectError> {
        loop {
            if self.spoken.get() == Some(Spoken::Http1) {
                if !fresh && let Some(idle) = self.take_idle() {
                    return Ok(Leased::http1(idle, true));
                }
                // Not shared, so each request opens its own.
                let Opened {
                    socket,
                    spoken,
                    open,
                } = self.connector.open(false).await?;
                self.spoken.set(Some(spoken));
                if spoken == Spoken::Http1 {
                    let connection = self.start_http1(socket, open).await?;
                    return Ok(Leased::http1(connection, false));
                }
                self.start_http2(socket, open).await?;
                continue;
            }
            match self.take_shared() {
                Shared::Stream(leased) => return Ok(leased),
                Shared::Full(best) if may_wait => return Ok(Leased::http2(best)),
                Shared::Full(_) => return Err(self.full()),
                Shared::Opening => {}
            }
            if let Err(error) = self.opening().wait().await {
                // Better to wait for a stream of a full connection than not to be served at all.
                let best = self
                    .least_loaded()
                    .filter(|best| may_wait || !best.is_full());
                return best.map(Leased::http2).ok_or(error);
            }
        }
    }

    /// A stream of the least loaded HTTP/2 connection with room. Opens the next connection in the
    /// background when that one is nearly full.
    fn take_shared(&self) -> Shared {
        let Some(best) = self.least_loaded() else {
            return Shared::Opening;
        };
        if best.is_nearly_full() && self.settings.ceiling.has_room(self.lane, false) {
            let _ = self.opening();
            if best.is_full() {
                return Shared::Opening;
            }
        }
        if best.is_full() {
            return Shared::Full(best);
        }
        Shared::Stream(Leased::http2(best))
    }

    fn full(&self) -> ConnectError {
        ConnectError::Full {
            name: self.settings.name.clone(),
        }
    }

    /// The connection for the next request. Looks at the others only when that of the last request is
    /// nearly full or closed.
    fn least_loaded(&self) -> Option<Rc<Http2>> {
        let mut current = self.current.borrow_mut();
        if let Some(connection) = &*current
            && !connection.is_closed()
            && !connection.is_nearly_full()
        {
            return Some(connection.clone());
        }
        let mut shared = self.shared.borrow_mut();
        shared.retain(|connection| !connection.is_closed());
        *current = shared
            .iter()
            .min_by_key(|connection| connection.load())
            .cloned();
        current.clone()
    }

    /// The connection being opened; starts opening one if none is.
    fn opening(&self) -> Rc<Attempt> {
        if let Some(attempt) = &*self.attempt.borrow() {
            return attempt.clone();
        }
        let attempt = Rc::new(Attempt::default());
        *self.attempt.borrow_mut() = Some(attempt.clone());
        if let Some(lane) = self.this.upgrade() {
            let opening = Opening {
                attempt: attempt.clone(),
                outcome: Err(ConnectError::TooSlow {
                    name: self.settings.name.clone(),
                }),
                lane,
            };
            // A task of its own: whoever asked may leave, others may be waiting.
            tokio::task::spawn_local(async move {
                let outcome = opening.lane.open_for_all().await;
                opening.done(outcome);
            });
        }
        attempt
    }

    fn note(&self, outcome: &Result<(), ConnectError>) {
        let failed = outcome.is_err();
        match (self.failing.replace(failed), outcome) {
            (false, Err(error @ ConnectError::Full { .. })) => {
                tracing::warn!(%error, "cannot open another connection");
            }
            (false, Err(error)) => tracing::warn!(%error, "cannot reach the upstream"),
            (true, Ok(())) => tracing::info!("the upstream can be reached again"),
            _ => {}
        }
    }

    async fn open_for_all(&self) -> Result<(), ConnectError> {
        let Opened {
            socket,
            spoken,
            open,
        } = self.connector.open(false).await?;
        match spoken {
            Spoken::Http2 => self.start_http2(socket, open).await?,
            Spoken::Http1 => {
                let connection = self.start_http1(socket, open).await?;
                self.keep(connection);
            }
        }
        self.spoken.set(Some(spoken));
        Ok(())
    }

    async fn start_http2(&self, socket: Socket, open: Open) -> Result<(), ConnectError> {
        let settings = &self.settings;
        let none = self.shared.borrow().is_empty();
        let place = settings.ceiling.enter(self.lane, none);
        let place = place.ok_or_else(|| self.full())?;
        let (sender, connection) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            // Fixed windows: with room for every stream's, a slow reader cannot stall the others.
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window())
            .max_header_list_size(settings.head_bytes)
            .keep_alive_interval(settings.keep_alive_interval)
            .keep_alive_timeout(settings.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(|error| self.http_error(error))?;
        let shared = Rc::new(Http2 {
            sender: RefCell::new(sender),
            active: Cell::new(0),
            allowed: Cell::new(connection.current_max_send_streams()),
            own_limit: settings.streams_per_connection.max(1),
            idle_since: Cell::new(self.clock.now()),
            clock: self.clock.clone(),
            resets: Resets::default(),
            place,
            events: settings.events.clone(),
        });
        self.shared.borrow_mut().push(shared.clone());
        self.start_sweeping();
        tokio::task::spawn_local(async move {
            let mut connection = connection;
            let ended = std::future::poll_fn(|cx| {
                let allowed = connection.current_max_send_streams();
                if shared.allowed.replace(allowed) != allowed {
                    shared.place.allows(shared.limit());
                }
                std::pin::Pin::new(&mut connection).poll(cx)
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "an upstream connection ended");
                open.lost();
            }
        });
        Ok(())
    }

    async fn start_http1(&self, socket: Socket, open: Open) -> Result<Rc<Http1>, ConnectError> {
        let (mut sender, connection) = http1::Builder::new()
            .max_headers(512)
            .max_buf_size(self.settings.head_bytes as usize)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(|error| self.http_error(error))?;
        tokio::task::spawn_local(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an upstream connection ended");
                open.lost();
            }
        });
        sender
            .ready()
            .await
            .map_err(|error| self.http_error(error))?;
        Ok(Rc::new(Http1 {
            sender: RefCell::new(sender),
            lane: self.this.clone(),
        }))
    }

    fn http_error(&self, error: hyper::Error) -> ConnectError {
        ConnectError::Http {
            name: self.settings.name.clone(),
            source: Arc::new(error),
        }
    }

    fn take_idle(&self) -> Option<Rc<Http1>> {
        let limit = self.settings.idle_timeout;
        self.idle.borrow_mut().take(self.clock.now(), limit)
    }

    fn keep(&self, connection: Rc<Http1>) {
        self.idle.borrow_mut().keep(self.clock.now(), connection);
        self.start_sweeping();
    }

    /// Sees to it that connections which are closed or long unused are forgotten.
    fn start_sweeping(&self) {
        if !self.swept.replace(true) {
            let period = (self.settings.idle_timeout / 4).max(Duration::from_millis(10));
            tokio::task::spawn_local(sweep(self.this.clone(), period));
        }
    }

    /// Forgets connections that are closed or long unused, but the last one of those that are shared. False
    /// when there is nothing more to look after.
    fn sweep(&self) -> bool {
        let now = self.clock.now();
        let limit = self.settings.idle_timeout;
        let mut idle = self.idle.borrow_mut();
        idle.sweep(now, limit);
        let mut shared = self.shared.borrow_mut();
        let mut kept = 0;
        shared.retain(|connection| {
            let keep = !connection.is_closed() && (kept == 0 || !connection.unused_for(now, limit));
            kept += usize::from(keep);
            keep
        });
        let mut current = self.current.borrow_mut();
        current.take_if(|current| {
            !shared
                .iter()
                .any(|connection| Rc::ptr_eq(connection, current))
        });
        let more = !idle.is_empty() || kept > 0;
        self.swept.set(more);
        more
    }
}

/// Looks after a lane's connections every now and then, until there are none.
async fn sweep(lane: Weak<Connections>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        if !lane.upgrade().is_some_and(|lane| lane.sweep()) {
            return;
        }
    }
}

/// An HTTP/2 connection, shared by many requests.
struct Http2 {
    sender: RefCell<http2::SendRequest<Lent>>,
    active: Cell<usize>,
    /// Streams the upstream allows.
    allowed: Cell<usize>,
    own_limit: usize,
    idle_since: Cell<Time>,
    clock: Clock,
    resets: Resets,
    place: Place,
    events: EventSink<ConnectionEvent>,
}

impl Http2 {
    fn limit(&self) -> usize {
        self.allowed.get().min(self.own_limit)
    }

    fn is_closed(&self) -> bool {
        self.sender.borrow().is_closed()
    }

    fn is_full(&self) -> bool {
        self.active.get() >= self.limit()
    }

    fn is_nearly_full(&self) -> bool {
        self.active.get() * 5 >= self.limit() * 4
    }

    /// Order of preference: the fullest one that is not nearly full, so that others fall idle; then
    /// the emptiest of the rest.
    fn load(&self) -> (bool, usize) {
        let active = self.active.get();
        if self.is_nearly_full() {
            (true, active)
        } else {
            (false, usize::MAX - active)
        }
    }

    fn unused_for(&self, now: Time, limit: Duration) -> bool {
        self.active.get() == 0 && now.since(self.idle_since.get()) > limit
    }
}

impl Lender for Http2 {
    fn give_back(self: Rc<Self>, _: bool) {
        let active = self.active.get().saturating_sub(1);
        self.active.set(active);
        self.place.end();
        if active == 0 {
            self.idle_since.set(self.clock.now());
        }
    }

    /// Others share the connection, and the upstream ends it when too many of its streams are reset.
    fn abandon(self: Rc<Self>, unwanted: Unwanted) {
        let is_body = matches!(unwanted, Unwanted::Body(_));
        tokio::task::spawn_local(async move {
            let end = resets::run_out(self.clone(), unwanted).await;
            self.events.send(match end {
                End::RanOut => ConnectionEvent::RanOut,
                End::Reset => ConnectionEvent::Reset,
            });
            if is_body {
                self.give_back(false);
            }
        });
    }

    fn turn(self: Rc<Self>) -> Option<Turn> {
        Some(Box::pin(resets::turn(self)))
    }
}

impl Limited for Http2 {
    fn resets(&self) -> &Resets {
        &self.resets
    }

    fn streams(&self) -> usize {
        self.limit()
    }
}

/// An HTTP/1 connection, used by one request at a time.
struct Http1 {
    sender: RefCell<http1::SendRequest<Lent>>,
    lane: Weak<Connections>,
}

impl Waits for Rc<Http1> {
    fn condition(&self) -> Condition {
        let sender = self.sender.borrow();
        if sender.is_ready() {
            Condition::Ready
        } else if sender.is_closed() {
            Condition::Dead
        } else {
            Condition::Busy
        }
    }
}

impl Lender for Http1 {
    fn give_back(self: Rc<Self>, clean: bool) {
        if clean
            && !self.sender.borrow().is_closed()
            && let Some(lane) = self.lane.upgrade()
        {
            lane.keep(self);
        }
    }
}

/// A connection lent to one request. Dropped without an answer, the connection is not used again
/// (HTTP/1) or its stream is free again (HTTP/2).
pub(super) struct Leased {
    connection: Connection,
    lender: Option<Rc<dyn Lender>>,
}

enum Connection {
    Http1 { connection: Rc<Http1>, used: bool },
    Http2(Rc<Http2>),
}

impl Leased {
    fn http1(connection: Rc<Http1>, used: bool) -> Self {
        Self {
            lender: Some(connection.clone()),
            connection: Connection::Http1 { connection, used },
        }
    }

    fn http2(connection: Rc<Http2>) -> Self {
        connection.active.set(connection.active.get() + 1);
        connection.place.begin();
        Self {
            lender: Some(connection.clone()),
            connection: Connection::Http2(connection),
        }
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.connection, Connection::Http2(_))
    }

    /// Whether `error` means that a connection kept for reuse had been closed meanwhile.
    pub(super) fn is_stale(&self, error: &hyper::Error) -> bool {
        matches!(self.connection, Connection::Http1 { used: true, .. })
            && (error.is_incomplete_message() || error.is_closed() || is_io(error))
    }

    pub(super) async fn send(
        &self,
        request: Request<Lent>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Lent>>> {
        match &self.connection {
            Connection::Http1 { connection, .. } => {
                let sent = connection.sender.borrow_mut().try_send_request(request);
                sent.await
            }
            Connection::Http2(connection) => {
                let sent = connection.sender.borrow_mut().try_send_request(request);
                sent.await
            }
        }
    }

    /// Who lent the connection, if others share it.
    pub(super) fn sharing(&self) -> Option<Rc<dyn Lender>> {
        match &self.connection {
            Connection::Http1 { .. } => None,
            Connection::Http2(connection) => Some(connection.clone()),
        }
    }

    /// Leaves the connection to the body of the answer.
    pub(super) fn into_lender(mut self) -> Rc<dyn Lender> {
        match self.lender.take() {
            Some(lender) => lender,
            None => unreachable!("a lease is turned into its lender once"),
        }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            lender.give_back(false);
        }
    }
}

/// Whether the upstream said that it has not looked at the request: the stream was refused, or is above the
/// last one that the upstream names when it ends the connection, for whatever reason. (Streams up to that one
/// go on; if they fail it is with the connection itself.)
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
