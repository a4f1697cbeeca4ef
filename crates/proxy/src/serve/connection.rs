//! Serves one client connection: handshake, requests, idle timeout, drain.

use std::{
    error::Error as _,
    future::{Future, poll_fn},
    io,
    net::{SocketAddr, TcpStream},
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tower::Service;

use super::{
    checked_socket::{CheckedSocket, HttpReader},
    client_connection::ClientConnection,
    client_connections::CountedConnection,
    connection_service::ConnectionService,
    defence::Offence,
    disconnect::ClientDisconnect,
    drain::DrainPhase,
    event::ClientEvent,
    frame_credits::FrameCredits,
    head_limits::HeadLimits,
    http1::Http1Reader,
    http2::Http2Reader,
    serve_context::ServeContext,
    shared_socket::SharedSocket,
    stream_executor::StreamExecutor,
};
use fairgate_base::socket::{Socket, set_up};
use fairgate_call::{Inbound, Peer, PeerTls, Reply};

/// The bytes that every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that a client may send on one stream before they are read.
const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes that a client may send on all streams together before they are read.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// How many resets h2 accepts on streams that it has not passed to hyper yet (its default).
const H2_RESETS: u32 = 20;

/// Serves a connection until it ends.
pub(super) async fn serve<S>(
    core: Rc<ServeContext>,
    stream: TcpStream,
    from: SocketAddr,
    mut counted: CountedConnection,
    stack: S,
) where
    S: Service<Inbound, Response = Reply, Error = std::convert::Infallible> + 'static,
    S::Future: 'static,
{
    let hangup = match core.watcher.watch(&stream) {
        Ok(hangup) => hangup,
        Err(error) => {
            tracing::warn!(%error, "cannot detect when a client disconnects; its connection is closed");
            return;
        }
    };
    let opening = tokio::time::timeout(core.settings.handshake_timeout, open(&core, stream, from));
    let opened = tokio::select! {
        opened = opening => opened,
        () = counted.given_up() => {
            count_handshake_failure(&core);
            tracing::debug!(%from, "a connection without a handshake was closed for another one");
            return;
        }
    };
    counted.opened();
    let opened = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            count_handshake_failure(&core);
            tracing::debug!(%error, %from, "a handshake failed");
            return;
        }
        Err(_) => {
            count_handshake_failure(&core);
            tracing::debug!(%from, "a handshake took too long");
            return;
        }
    };
    let http2 = opened.http2;
    let connection = Rc::new(ClientConnection::new(
        opened.peer,
        http2,
        core.settings.resets,
        core.clock.turn(),
    ));
    let reader = reader(&core, &connection, opened.first);
    let stall_timeout = core.settings.stall_timeout;
    let is_writing = Arc::clone(&connection.is_writing);
    let socket = CheckedSocket::new(opened.socket, reader, stall_timeout, is_writing, counted);
    let service = ConnectionService::new(core.clone(), connection.clone(), stack);
    let client_disconnected = ClientDisconnect::new(&hangup, &connection);
    if http2 {
        serve_http2(&core, socket, service, &connection, client_disconnected).await;
    } else {
        serve_http1(&core, socket, service, &connection, client_disconnected).await;
    }
}

fn count_handshake_failure(core: &ServeContext) {
    if core.tls.is_some() {
        core.settings.events.send(ClientEvent::HandshakeFailed);
    }
}

/// The reader for a connection from which `first` was already read.
fn reader(core: &ServeContext, connection: &ClientConnection, first: Bytes) -> HttpReader {
    let limits = HeadLimits {
        bytes: core.settings.head_bytes.max(8192),
        timeout: core.settings.head_timeout,
    };
    let (defence, remote) = (Arc::clone(&core.defence), connection.peer.remote);
    if let Some(messages) = &connection.messages {
        let messages = Arc::clone(messages);
        return HttpReader::Http1(Http1Reader::new(messages, defence, remote, limits, &first));
    }
    let credits = Arc::clone(&connection.credits);
    HttpReader::Http2(Http2Reader::new(first, credits, defence, remote, limits))
}

/// A connection ready to be served.
struct Opened {
    socket: Socket,
    peer: Peer,
    http2: bool,
    /// The bytes that were read already.
    first: Bytes,
}

async fn open(core: &ServeContext, stream: TcpStream, from: SocketAddr) -> io::Result<Opened> {
    set_up(&stream)?;
    let stream = tokio::net::TcpStream::from_std(stream)?;
    let Some(tls) = &core.tls else {
        return open_plain(stream, from).await;
    };
    let stream = tls.accept(stream).await?;
    let session = stream.get_ref().1;
    let http2 = session.alpn_protocol() == Some(b"h2");
    let peer_tls = PeerTls {
        certificates: session
            .peer_certificates()
            .map(|chain| chain.iter().map(|c| c.clone().into_owned()).collect())
            .unwrap_or_default(),
        server_name: session.server_name().map(ToOwned::to_owned),
    };
    let peer = Peer::new(from, Some(peer_tls));
    Ok(Opened {
        socket: Socket::Tls(Box::new(stream.into())),
        peer,
        http2,
        first: Bytes::new(),
    })
}

/// Detects by its first bytes whether a plain connection uses HTTP/2.
async fn open_plain(mut stream: tokio::net::TcpStream, from: SocketAddr) -> io::Result<Opened> {
    let mut first = BytesMut::with_capacity(4096);
    while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
        if stream.read_buf(&mut first).await? == 0 {
            break;
        }
    }
    Ok(Opened {
        socket: Socket::Plain(stream),
        peer: Peer::plain(from),
        http2: first.starts_with(PREFACE),
        first: first.freeze(),
    })
}

async fn serve_http1<S>(
    core: &ServeContext,
    socket: CheckedSocket,
    service: ConnectionService<S>,
    requests: &ClientConnection,
    mut client_disconnected: ClientDisconnect<'_>,
) where
    S: Service<Inbound, Response = Reply, Error = std::convert::Infallible> + 'static,
    S::Future: 'static,
{
    let settings = &core.settings;
    let mut connection = pin!(
        // Without a timer of hyper's, which would be set anew for each request: `drive_until_idle` has one.
        http1::Builder::new()
            // A half-close does not end the connection here: `client_disconnected` decides whether the client
            // disconnected.
            .half_close(true)
            .max_headers(settings.header_lines)
            .max_buf_size(settings.head_bytes.max(8192))
            .serve_connection(TokioIo::new(socket), service)
            .with_upgrades()
    );
    let client_disconnected = &mut client_disconnected;
    match drive_until_idle(core, client_disconnected, requests, connection.as_mut()).await {
        DriveEnd::Ended => return,
        DriveEnd::Idle => {
            connection.as_mut().graceful_shutdown();
            let closed = drive(
                core,
                DrainPhase::Ended,
                client_disconnected,
                requests,
                connection,
            );
            ends_within(settings.handshake_timeout, closed).await;
            return;
        }
        DriveEnd::Draining => {}
    }
    // Clients that have just connected, or just sent a request, are still served; replies now say `close`.
    let grace = settings.drain.idle_grace;
    let last = drive(
        core,
        DrainPhase::Ended,
        client_disconnected,
        requests,
        connection.as_mut(),
    );
    if ends_within(grace, last).await {
        return;
    }
    connection.as_mut().graceful_shutdown();
    drive(
        core,
        DrainPhase::Ended,
        client_disconnected,
        requests,
        connection,
    )
    .await;
}

/// Serves an HTTP/2 connection until it ends, or its client resets too many requests.
async fn serve_http2<S>(
    core: &ServeContext,
    socket: CheckedSocket,
    service: ConnectionService<S>,
    requests: &Rc<ClientConnection>,
    client_disconnected: ClientDisconnect<'_>,
) where
    S: Service<Inbound, Response = Reply, Error = std::convert::Infallible> + 'static,
    S::Future: 'static,
{
    let socket = SharedSocket::new(socket);
    let too_many_resets = tokio::select! {
        () = serve_streams(core, socket.clone(), service, requests, client_disconnected) => false,
        () = requests.premature.too_many() => true,
    };
    if too_many_resets {
        core.settings.events.send(ClientEvent::EndedForResets);
        tracing::debug!(from = %requests.peer.remote, "a client reset too many requests; its connection is ended");
        socket.send_enhance_your_calm().await;
    }
}

async fn serve_streams<S>(
    core: &ServeContext,
    socket: SharedSocket,
    service: ConnectionService<S>,
    requests: &Rc<ClientConnection>,
    mut client_disconnected: ClientDisconnect<'_>,
) where
    S: Service<Inbound, Response = Reply, Error = std::convert::Infallible> + 'static,
    S::Future: 'static,
{
    let settings = &core.settings;
    let executor = StreamExecutor::new(Rc::clone(requests), settings.stall_timeout);
    let mut connection = pin!(
        http2::Builder::new(executor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(settings.streams_per_connection)
            .max_header_list_size(u32::try_from(settings.head_bytes).unwrap_or(u32::MAX))
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(settings.keep_alive_interval)
            .keep_alive_timeout(settings.keep_alive_timeout)
            .serve_connection(TokioIo::new(socket), service)
    );
    let client_disconnected = &mut client_disconnected;
    let end = drive_until_idle(core, client_disconnected, requests, connection.as_mut()).await;
    if end == DriveEnd::Ended {
        return;
    }
    // Idle for too long, or the gateway is shutting down.
    connection.as_mut().graceful_shutdown();
    if requests.active.get() == 0 && core.phase.get() < DrainPhase::Stopping {
        let last = drive(
            core,
            DrainPhase::Ended,
            client_disconnected,
            requests,
            connection,
        );
        ends_within(settings.handshake_timeout, last).await;
    } else {
        drive(
            core,
            DrainPhase::Ended,
            client_disconnected,
            requests,
            connection,
        )
        .await;
    }
}

/// Why [`drive_until_idle`] has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriveEnd {
    /// The connection has ended, or the client has disconnected.
    Ended,
    /// The gateway is to stop.
    Draining,
    /// There was no request for the idle timeout.
    Idle,
}

/// Drives `connection` until one of these happens. One timer runs for many requests: when it fires, it is set to what is left of the
/// timeout since the last of them.
async fn drive_until_idle<F>(
    core: &ServeContext,
    client_disconnected: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    mut connection: Pin<&mut F>,
) -> DriveEnd
where
    F: Future<Output = hyper::Result<()>>,
{
    let timeout = core.settings.idle_timeout;
    loop {
        let (is_idle, before) = (requests.is_idle(), requests.total.get());
        let from = if is_idle {
            requests.idle_since.get()
        } else {
            core.clock.now()
        };
        let served = drive(
            core,
            DrainPhase::Stopping,
            client_disconnected,
            requests,
            connection.as_mut(),
        );
        match tokio::time::timeout_at(core.clock.instant(from.plus(timeout)), served).await {
            Ok(true) => return DriveEnd::Ended,
            Ok(false) => return DriveEnd::Draining,
            Err(_) if is_idle && requests.is_idle() && requests.total.get() == before => {
                return DriveEnd::Idle;
            }
            Err(_) => {}
        }
    }
}

/// Drives `connection` until it ends or the client disconnects (true), or until the drain reaches `phase` (false).
async fn drive<F>(
    core: &ServeContext,
    phase: DrainPhase,
    client_disconnected: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    mut connection: Pin<&mut F>,
) -> bool
where
    F: Future<Output = hyper::Result<()>>,
{
    poll_fn(|cx: &mut Context<'_>| {
        if client_disconnected.poll_left(cx).is_ready() {
            record_protocol_error(core, requests, connection.as_mut(), cx);
            return Poll::Ready(true);
        }
        if requests.messages.is_some() {
            requests.unread_bodies.poll(cx);
        }
        if core.phase.get() >= phase {
            return Poll::Ready(false);
        }
        match connection.as_mut().poll(cx) {
            Poll::Pending => {
                ready!(client_disconnected.poll_left_meanwhile(cx));
                record_protocol_error(core, requests, connection.as_mut(), cx);
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => record(core, requests, &error),
        }
        Poll::Ready(true)
    })
    .await
}

/// Records the protocol error because of which hyper was closing the connection when the client disconnected. hyper
/// reports it only when the connection is closed.
fn record_protocol_error<F>(
    core: &ServeContext,
    requests: &ClientConnection,
    connection: Pin<&mut F>,
    cx: &mut Context<'_>,
) where
    F: Future<Output = hyper::Result<()>>,
{
    if requests.active.get() == 0
        && let Poll::Ready(Err(error)) = connection.poll(cx)
    {
        record(core, requests, &error);
    }
}

/// Logs that a connection ended with `error`, and counts it if the client violated the protocol.
fn record(core: &ServeContext, connection: &ClientConnection, error: &hyper::Error) {
    tracing::debug!(%error, "a client connection ended");
    if is_for_resets(error, &connection.credits) {
        core.settings.events.send(ClientEvent::EndedForResets);
        return;
    }
    let offence = if error.is_parse_too_large() {
        Offence::TooLarge
    } else if error.is_parse() {
        Offence::Malformed
    } else if is_refused_by_h2(error) && !connection.credits.is_closing() {
        Offence::Protocol
    } else {
        return;
    };
    let detail = error.source().unwrap_or(error).to_string();
    core.defence
        .record(offence, connection.peer.remote, &detail);
}

/// Whether h2 closed the connection because the client violated the protocol.
fn is_refused_by_h2(error: &hyper::Error) -> bool {
    let error = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
    error.is_some_and(|error| error.is_library() && error.is_go_away())
}

/// Whether h2 closed the connection because of too many resets. h2 counts resets of streams that it has not passed
/// to hyper yet, which `premature_resets` therefore never sees. h2 uses the same error code for other floods.
fn is_for_resets(error: &hyper::Error, credits: &FrameCredits) -> bool {
    let source = error.source().and_then(|e| e.downcast_ref::<h2::Error>());
    source.is_some_and(|error| {
        error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    }) && credits.resets() >= H2_RESETS
        && !credits.is_closing()
}

/// Whether `connection` ends within `time`.
async fn ends_within(time: Duration, connection: impl Future<Output = bool>) -> bool {
    tokio::time::timeout(time, connection)
        .await
        .unwrap_or(false)
}
