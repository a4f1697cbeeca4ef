//! Serves an HTTP/1 connection: with hyper while there are requests, and with nothing but the socket while there are none.
//!
//! hyper keeps two buffers of 8 KiB for each connection, idle or not, and clients keep connections for when they need
//! them. So hyper is dropped when a connection has been idle for a while, and made again when the client sends something. The
//! reader of the connection ([`http1`](crate::serve::wire::http1)) stays: it knows what the next bytes belong to, and gives hyper none that are
//! not of the current request, so nothing is lost with hyper. hyper is made again in the same way for a head with more lines than it has
//! room for by default, since room for the most that a head may have costs every request.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tower::Service;

use super::{
    checked_socket::CheckedSocket,
    client_connection::ClientConnection,
    connection_service::ConnectionService,
    disconnect::ClientDisconnect,
    driving::{DriveEnd, drive, drive_until_idle, ends_within},
    lent_socket::{LentSocket, SocketLender},
};
use crate::serve::{drain::DrainPhase, serve_context::ServeContext, settings::ServeSettings};
use fairgate_call::{Inbound, Reply};
use fairgate_core::time::Time;

type Http1<S> = http1::UpgradeableConnection<TokioIo<LentSocket>, Rc<ConnectionService<S>>>;

/// hyper's connection, which is made again when a head has more lines than it has room for.
struct HyperConnection<'a, S>
where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    settings: &'a ServeSettings,
    requests: &'a ClientConnection,
    service: Rc<ConnectionService<S>>,
    lender: SocketLender,
    /// Present until it is taken apart.
    hyper: Option<Pin<Box<Http1<S>>>>,
}

impl<'a, S> HyperConnection<'a, S>
where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    fn new(
        core: &'a ServeContext,
        requests: &'a ClientConnection,
        service: &Rc<ConnectionService<S>>,
        socket: Box<CheckedSocket>,
    ) -> Self {
        let mut this = Self {
            settings: &core.settings,
            requests,
            service: Rc::clone(service),
            lender: SocketLender::default(),
            hyper: None,
        };
        this.build(socket);
        this
    }

    fn build(&mut self, socket: Box<CheckedSocket>) {
        let settings = self.settings;
        let mut builder = http1::Builder::new();
        // A half-close does not end the connection here: `ClientDisconnect` decides whether the client disconnected.
        builder.half_close(true);
        builder.max_buf_size(settings.head_bytes.max(8192));
        if self.requests.has_large_parser() {
            builder.max_headers(settings.header_lines);
        }
        // Without a timer of hyper's, which would be set anew for each request: `drive_until_idle` has one.
        let socket = TokioIo::new(self.lender.lend(socket));
        let hyper = builder.serve_connection(socket, Rc::clone(&self.service));
        self.hyper = Some(Box::pin(hyper.with_upgrades()));
    }

    /// The socket; `None` if the connection has become a tunnel. The connection must be between two messages.
    fn take_apart(&mut self) -> Option<Box<CheckedSocket>> {
        self.lender.take_back(self.hyper.take())
    }

    fn graceful_shutdown(&mut self) {
        if let Some(hyper) = &mut self.hyper {
            hyper.as_mut().graceful_shutdown();
        }
    }
}

impl<S> Future for HyperConnection<'_, S>
where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    type Output = hyper::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        while let Some(hyper) = &mut self.hyper {
            let polled = hyper.as_mut().poll(cx);
            // While the end of the last response waits in hyper for a client that has not read yet, hyper stays. It is polled again
            // when that has been sent, and the head waits in the reader.
            if polled.is_ready()
                || !self.requests.needs_large_parser()
                || self.requests.is_writing()
            {
                return polled;
            }
            self.requests.set_large_parser();
            if let Some(socket) = self.take_apart() {
                self.build(socket);
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Why a connection is no longer parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParkEnd {
    /// The client has sent something, or closed the connection.
    Readable,
    /// The client has disconnected.
    Left,
    /// The gateway is to stop.
    Draining,
    /// There was no request for the idle timeout.
    Idle,
}

/// Serves an HTTP/1 connection until it ends.
pub(super) async fn serve_http1<S>(
    core: &ServeContext,
    mut socket: Box<CheckedSocket>,
    service: ConnectionService<S>,
    requests: &ClientConnection,
    mut client_disconnected: ClientDisconnect<'_>,
) where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    let (service, left) = (Rc::new(service), &mut client_disconnected);
    loop {
        let mut connection = HyperConnection::new(core, requests, &service, socket);
        match drive_until_parked(core, left, requests, &mut connection).await {
            DriveEnd::Ended => return,
            DriveEnd::Draining => return drain(core, left, requests, connection).await,
            DriveEnd::Idle if is_idle_for_too_long(core, requests) => {
                return close(core, left, requests, connection).await;
            }
            DriveEnd::Idle => {}
        }
        let Some(parked) = connection.take_apart() else {
            return;
        };
        drop(connection);
        match park(core, left, requests, &parked).await {
            ParkEnd::Left => return,
            // hyper does what is to be done: read what has come, or close the connection.
            ParkEnd::Readable | ParkEnd::Draining | ParkEnd::Idle => socket = parked,
        }
    }
}

fn is_idle_for_too_long(core: &ServeContext, requests: &ClientConnection) -> bool {
    requests.is_idle() && idle_end(core, requests) <= core.clock.now()
}

/// When the idle timeout is over.
fn idle_end(core: &ServeContext, requests: &ClientConnection) -> Time {
    requests.idle_since.get().plus(core.settings.idle_timeout)
}

/// Drives `connection` until it ends, the gateway is to stop, or the connection can be parked or has been idle for too long.
async fn drive_until_parked<S>(
    core: &ServeContext,
    left: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    connection: &mut HyperConnection<'_, S>,
) -> DriveEnd
where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    let timeout = core.settings.park_after.min(core.settings.idle_timeout);
    let mut since = Time::ZERO;
    loop {
        let driven = Pin::new(&mut *connection);
        let end = drive_until_idle(core, left, requests, driven, timeout, since).await;
        if end != DriveEnd::Idle
            || requests.is_between_messages()
            || is_idle_for_too_long(core, requests)
        {
            return end;
        }
        // A part of a head has arrived, or the rest of a body is read whose request was answered.
        since = core.clock.now();
    }
}

/// Waits for a request without hyper.
async fn park(
    core: &ServeContext,
    left: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    socket: &CheckedSocket,
) -> ParkEnd {
    let _parked = socket.park();
    let request = poll_fn(|cx: &mut Context<'_>| {
        if left.poll_left(cx).is_ready() {
            return Poll::Ready(ParkEnd::Left);
        }
        if core.phase.get() >= DrainPhase::Stopping {
            return Poll::Ready(ParkEnd::Draining);
        }
        socket.poll_readable(cx).map(|()| ParkEnd::Readable)
    });
    let end = core.clock.instant(idle_end(core, requests));
    let request = tokio::time::timeout_at(end, request);
    request.await.unwrap_or(ParkEnd::Idle)
}

/// Closes an idle connection.
async fn close<S>(
    core: &ServeContext,
    left: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    mut connection: HyperConnection<'_, S>,
) where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    connection.graceful_shutdown();
    let closed = drive(
        core,
        DrainPhase::Ended,
        left,
        requests,
        Pin::new(&mut connection),
    );
    ends_within(core.settings.handshake_timeout, closed).await;
}

/// Ends a connection because the gateway is to stop. Clients that have just connected, or just sent a request, are still served;
/// replies now say `close`.
async fn drain<S>(
    core: &ServeContext,
    left: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    mut connection: HyperConnection<'_, S>,
) where
    S: Service<Inbound, Response = Reply, Error = Infallible> + 'static,
    S::Future: 'static,
{
    let last = drive(
        core,
        DrainPhase::Ended,
        left,
        requests,
        Pin::new(&mut connection),
    );
    if ends_within(core.settings.drain.idle_grace, last).await {
        return;
    }
    connection.graceful_shutdown();
    drive(
        core,
        DrainPhase::Ended,
        left,
        requests,
        Pin::new(&mut connection),
    )
    .await;
}
