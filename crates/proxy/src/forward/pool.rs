//! The upstream connections of one core.
//!
//! HTTP/2 connections are shared: the next one is opened when the best one is 80 % full, before any request has to
//! wait for it. HTTP/1 connections are used by one request at a time and kept for the next. Each [`Lane`] has
//! separate connections.
//!
//! The cost of a request does not depend on how many connections there are: it takes the connection that was
//! used last, and a task removes connections that are long unused, or that the upstream has closed.
//!
//! Nothing here is shared between cores, so there is no lock.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    sync::Arc,
    task::{Wake, Waker},
    time::Duration,
};

use fairgate_http1::ResponseHeadLimits;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Notify;

use super::{
    UpstreamSettings,
    connect::{ConnectError, Connector, NewConnection},
    connection_event::OpenConnection,
    connections::{Http2Connection, LeasedConnection},
    http1::{Http1Connection, KeepsIdle, ReadBuffer, SharedByConnections},
    idle_connections::IdleConnections,
    lane::Lane,
};
use fairgate_base::{
    clock::Clock, gathered_writes::GatheredWrites, local::LocalExecutor, socket::Socket,
};
use fairgate_call::RequestKind;
use fairgate_upstream::{dial::HttpVersion, dial_error::DialError};

/// Idle connections that the upstream closes within this time are removed together.
const TOGETHER: Duration = Duration::from_millis(10);
/// A response has at most so many header lines.
const MOST_HEADER_LINES: usize = 512;

/// The upstream connections of one core.
pub(super) struct Pool {
    lanes: [Rc<LanePool>; Lane::ALL.len()],
    pub(super) connector: Rc<Connector>,
}

impl Pool {
    pub(super) fn new(settings: &Arc<UpstreamSettings>, clock: &Clock) -> Self {
        let connector = Rc::new(Connector::new(settings.clone()));
        let buffer = Rc::<ReadBuffer>::default();
        let lane = |lane| {
            Rc::new_cyclic(|this| LanePool {
                this: this.clone(),
                lane,
                settings: settings.clone(),
                connector: connector.clone(),
                clock: clock.clone(),
                negotiated: Cell::new(None),
                shared: RefCell::default(),
                current: RefCell::default(),
                idle: RefCell::default(),
                swept: Cell::new(false),
                changed: Arc::default(),
                buffer: Rc::clone(&buffer),
                attempt: RefCell::default(),
                failing: Cell::new(false),
            })
        };
        Self {
            lanes: Lane::ALL.map(lane),
            connector,
        }
    }

    /// A connection that can be used at once, if there is one; with `fresh`, not an HTTP/1 connection that was used before.
    pub(super) fn take(&self, lane: Lane, fresh: bool) -> Option<LeasedConnection> {
        let lane = &self.lanes[lane as usize];
        if lane.negotiated.get() == Some(HttpVersion::Http1) {
            let idle = (!fresh).then(|| lane.take_idle()).flatten()?;
            return Some(LeasedConnection::http1(idle, true));
        }
        match lane.take_shared() {
            StreamSearch::Stream(leased) => Some(leased),
            StreamSearch::Opening | StreamSearch::Full(_) => None,
        }
    }

    /// A connection to send one request on; with `fresh`, not an HTTP/1 connection that was used before. When all
    /// connections are full and there may be no more, a long-running request is refused, and others wait for a
    /// stream.
    pub(super) async fn acquire(
        &self,
        lane: Lane,
        kind: RequestKind,
        fresh: bool,
    ) -> Result<LeasedConnection, ConnectError> {
        let may_wait = !kind.is_long_running();
        self.lanes[lane as usize].acquire(may_wait, fresh).await
    }
}

/// The connections of one lane.
struct LanePool {
    this: Weak<Self>,
    lane: Lane,
    settings: Arc<UpstreamSettings>,
    connector: Rc<Connector>,
    clock: Clock,
    /// The HTTP version of the last connection; `None` before the first connection.
    negotiated: Cell<Option<HttpVersion>>,
    shared: RefCell<Vec<Rc<Http2Connection>>>,
    /// The shared connection that takes new requests, until it is nearly full.
    current: RefCell<Option<Rc<Http2Connection>>>,
    idle: RefCell<IdleConnections<Rc<Http1Connection>>>,
    /// Whether a task sweeps the connections.
    swept: Cell<bool>,
    /// Tells that task that an idle connection may have been closed.
    changed: Arc<IdleChange>,
    /// What HTTP/1 connections read into.
    buffer: Rc<ReadBuffer>,
    /// The connection that is being opened for all waiting requests, if one is.
    attempt: RefCell<Option<Rc<Attempt>>>,
    /// Whether the last attempt failed: failures are logged once, not for each request.
    failing: Cell<bool>,
}

/// The result of searching for a stream on the shared connections.
enum StreamSearch {
    /// A stream.
    Stream(LeasedConnection),
    /// No stream before another connection is open.
    Opening,
    /// No stream, and there may be no more connections. This one is the least loaded.
    Full(Rc<Http2Connection>),
}

/// A connection that is being opened for all requests that wait for one.
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

/// Finishes an attempt however it ends, also when its task is dropped, so that no request waits for ever.
struct Opening {
    lane: Rc<LanePool>,
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
        self.lane.log_outcome(&self.outcome);
        self.attempt.finish(self.outcome.clone());
    }
}

impl LanePool {
    async fn acquire(&self, may_wait: bool, fresh: bool) -> Result<LeasedConnection, ConnectError> {
        loop {
            if self.negotiated.get() == Some(HttpVersion::Http1) {
                if !fresh && let Some(idle) = self.take_idle() {
                    return Ok(LeasedConnection::http1(idle, true));
                }
                // HTTP/1 connections are not shared: each request opens its own.
                let NewConnection {
                    socket,
                    version,
                    open,
                } = self.connector.open(false).await?;
                self.negotiated.set(Some(version));
                if version == HttpVersion::Http1 {
                    let connection = self.start_http1(socket, open);
                    return Ok(LeasedConnection::http1(connection, false));
                }
                self.start_http2(socket, open).await?;
                continue;
            }
            match self.take_shared() {
                StreamSearch::Stream(leased) => return Ok(leased),
                StreamSearch::Full(best) if may_wait => return Ok(LeasedConnection::http2(best)),
                StreamSearch::Full(_) => return Err(self.full()),
                StreamSearch::Opening => {}
            }
            if let Err(error) = self.opening().wait().await {
                // Waiting for a stream of a full connection is better than failing.
                let best = self
                    .least_loaded()
                    .filter(|best| may_wait || !best.is_full());
                return best.map(LeasedConnection::http2).ok_or(error);
            }
        }
    }

    /// A stream of the least loaded HTTP/2 connection with room. Opens the next connection in the
    /// background when that one is nearly full.
    fn take_shared(&self) -> StreamSearch {
        let Some(best) = self.least_loaded() else {
            return StreamSearch::Opening;
        };
        if best.is_nearly_full() && self.settings.connection_limit.has_room(self.lane, false) {
            // In advance: requests of a burst should find it open.
            let _ = self.opening();
            if best.is_full() {
                return StreamSearch::Opening;
            }
        }
        if best.is_full() {
            return StreamSearch::Full(best);
        }
        StreamSearch::Stream(LeasedConnection::http2(best))
    }

    fn full(&self) -> ConnectError {
        ConnectError::Full {
            url: Arc::clone(self.settings.endpoint.url()),
        }
    }

    /// The connection for the next request. The others are only considered when the current one is nearly full or
    /// closed.
    fn least_loaded(&self) -> Option<Rc<Http2Connection>> {
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

    /// The attempt to open a connection; starts one if there is none.
    fn opening(&self) -> Rc<Attempt> {
        if let Some(attempt) = &*self.attempt.borrow() {
            return attempt.clone();
        }
        let attempt = Rc::new(Attempt::default());
        *self.attempt.borrow_mut() = Some(attempt.clone());
        if let Some(lane) = self.this.upgrade() {
            let opening = Opening {
                attempt: attempt.clone(),
                outcome: Err(ConnectError::Dial(DialError::TimedOut {
                    url: Arc::clone(self.settings.endpoint.url()),
                })),
                lane,
            };
            // A separate task: the request that started it may be dropped while others wait for it.
            fairgate_base::turns::spawn_local_boxed(async move {
                let outcome = opening.lane.open_for_all().await;
                opening.done(outcome);
            });
        }
        attempt
    }

    fn log_outcome(&self, outcome: &Result<(), ConnectError>) {
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
        let NewConnection {
            socket,
            version,
            open,
        } = self.connector.open(false).await?;
        match version {
            HttpVersion::Http2 => self.start_http2(socket, open).await?,
            HttpVersion::Http1 => {
                self.keep(self.start_http1(socket, open));
            }
        }
        self.negotiated.set(Some(version));
        Ok(())
    }

    async fn start_http2(&self, socket: Socket, open: OpenConnection) -> Result<(), ConnectError> {
        let settings = &self.settings;
        let none = self.shared.borrow().is_empty();
        let counted = settings.connection_limit.enter(self.lane, none);
        let counted = counted.ok_or_else(|| self.full())?;
        let (sender, connection) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            // The connection's window has room for those of all streams, so that a client that does not
            // read cannot stall the others.
            .initial_stream_window_size(settings.stream_window)
            .initial_connection_window_size(settings.connection_window())
            .max_header_list_size(settings.head_bytes)
            .keep_alive_interval(settings.keep_alive_interval)
            .keep_alive_timeout(settings.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(GatheredWrites::new(socket)))
            .await
            .map_err(|error| self.http_error(error))?;
        let allowed = connection.current_max_send_streams();
        let shared = Http2Connection::new(sender, allowed, counted, settings, &self.clock);
        self.shared.borrow_mut().push(shared.clone());
        self.start_sweeping();
        fairgate_base::turns::spawn_local_boxed(async move {
            let mut connection = connection;
            let ended = std::future::poll_fn(|cx| {
                shared.set_allowed(connection.current_max_send_streams());
                std::pin::Pin::new(&mut connection).poll(cx)
            });
            if let Err(error) = ended.await {
                tracing::debug!(%error, "an upstream connection ended");
                open.lost();
            }
        });
        Ok(())
    }

    fn start_http1(&self, socket: Socket, open: OpenConnection) -> Rc<Http1Connection> {
        let limits = ResponseHeadLimits {
            bytes: self.settings.head_bytes as usize,
            lines: MOST_HEADER_LINES,
        };
        let idle = Waker::from(Arc::clone(&self.changed));
        let shared = SharedByConnections {
            buffer: Rc::clone(&self.buffer),
            limits,
            idle,
        };
        Http1Connection::new(socket, open, self.this.clone(), shared)
    }

    fn http_error(&self, error: hyper::Error) -> ConnectError {
        ConnectError::Http {
            url: Arc::clone(self.settings.endpoint.url()),
            source: Arc::new(error),
        }
    }

    fn take_idle(&self) -> Option<Rc<Http1Connection>> {
        let limit = self.settings.idle_timeout;
        self.idle.borrow_mut().take(self.clock.turn(), limit)
    }

    /// Starts the timer that removes closed and long unused connections, unless it runs.
    fn start_sweeping(&self) {
        if !self.swept.replace(true) {
            let period = (self.settings.idle_timeout / 4).max(Duration::from_millis(10));
            let changed = Arc::clone(&self.changed);
            fairgate_base::turns::spawn_local_boxed(sweep(self.this.clone(), changed, period));
        }
    }

    /// Removes connections that are closed or long unused, except the last shared one. False when there are none
    /// left.
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
        // Otherwise `current` would keep a connection alive that is no longer in the list.
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

impl KeepsIdle for LanePool {
    fn keep(&self, connection: Rc<Http1Connection>) {
        self.idle.borrow_mut().keep(self.clock.turn(), connection);
        self.start_sweeping();
    }
}

/// Tells that something has happened on an idle connection: the upstream has closed it.
#[derive(Default)]
struct IdleChange(Notify);

impl Wake for IdleChange {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Sweeps a lane's connections once a `period`, and when one of them has changed, until there are none.
async fn sweep(lane: Weak<LanePool>, changed: Arc<IdleChange>, period: Duration) {
    loop {
        let change = tokio::time::timeout(period, changed.0.notified()).await;
        if change.is_ok() {
            // A server that closes one connection often closes many.
            tokio::time::sleep(TOGETHER).await;
        }
        if !lane.upgrade().is_some_and(|lane| lane.sweep()) {
            return;
        }
    }
}
