//! Serves one client connection, from its handshake to its end.
//!
//! hyper reads a socket that shows the bytes to [`wire`](super::wire) first (`checked_socket`); what is particular to HTTP/1 is in
//! `http1_connection`. A request's way begins in `connection_service`, and `request_future` holds it. A client that stalls is cut off (`checked_socket`,
//! `stream_executor`), as is one that keeps resetting its requests (`premature_resets`).

mod checked_socket;
mod client_connection;
mod connection_service;
mod disconnect;
mod driving;
mod held_tail;
mod http1_connection;
mod lent_socket;
mod premature_resets;
mod request_future;
mod shared_socket;
mod stall_limits;
mod stream_executor;
mod unread_bodies;

use std::{
    io,
    net::{SocketAddr, TcpStream},
    pin::pin,
    rc::Rc,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tower::Service;

use self::{
    checked_socket::{CheckedSocket, HttpReader},
    client_connection::ClientConnection,
    connection_service::ConnectionService,
    disconnect::ClientDisconnect,
    driving::{DriveEnd, drive, drive_until_idle},
    http1_connection::serve_http1,
    shared_socket::SharedSocket,
    stall_limits::StallLimits,
    stream_executor::StreamExecutor,
};
use super::{
    client_connections::CountedConnection, drain::DrainPhase, event::ClientEvent,
    serve_context::ServeContext, wire::head_limits::HeadLimits, wire::http1::Http1Reader,
    wire::http2::Http2Reader,
};
use fairgate_base::socket::{Socket, set_up};
use fairgate_call::{Inbound, Peer, PeerTls, Reply};
use fairgate_core::time::Time;

/// The bytes that every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that a client may send on one stream before they are read.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes that a client may send on all streams together before they are read.
const CONNECTION_WINDOW: u32 = 4 << 20;

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
    // In a box, whose memory is free afterwards.
    let opening = Box::pin(open(&core, stream, from));
    let opening = tokio::time::timeout(core.settings.handshake_timeout, opening);
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
    let limits = StallLimits::of(&core.settings);
    let writes = Arc::clone(&connection.writes);
    let socket = CheckedSocket::new(opened.socket, reader, limits, writes, counted);
    let service = ConnectionService::new(core.clone(), connection.clone(), stack);
    let client_disconnected = ClientDisconnect::new(&hangup, &connection);
    if http2 {
        // In a box, so that a connection over HTTP/1 does not take the memory that this one needs.
        let served = serve_http2(&core, socket, service, &connection, client_disconnected);
        Box::pin(served).await;
    } else {
        serve_http1(
            &core,
            Box::new(socket),
            service,
            &connection,
            client_disconnected,
        )
        .await;
    }
}

fn count_handshake_failure(core: &ServeContext) {
    if core.settings.tls.is_some() {
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
    let Some(tls) = &core.settings.tls else {
        return open_plain(stream, from).await;
    };
    let stream = tls.acceptor().accept(stream).await?;
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
    let executor = StreamExecutor::new(Rc::clone(requests), StallLimits::of(settings));
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
    let end = drive_until_idle(
        core,
        client_disconnected,
        requests,
        connection.as_mut(),
        settings.idle_timeout,
        Time::ZERO,
    )
    .await;
    if end == DriveEnd::Ended {
        return;
    }
    // Idle for too long, or the gateway is shutting down.
    connection.as_mut().graceful_shutdown();
    // Until the client has confirmed that, it may send requests. They are served to their end, and it has as long again after each.
    let end = drive_until_idle(
        core,
        client_disconnected,
        requests,
        connection.as_mut(),
        settings.handshake_timeout,
        core.clock.now(),
    )
    .await;
    if end == DriveEnd::Draining {
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

#[cfg(test)]
mod idle_tests;
