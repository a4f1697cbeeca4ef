//! Upgraded requests (exec, attach, port-forward, WebSocket watches), which become a tunnel of bytes.
//!
//! Each uses a separate HTTP/1.1 connection, both from the client and to the upstream. Only a `101` opens the
//! tunnel. After any other response the upstream connection is closed: otherwise the client could send more
//! requests over a connection that already carries an identity.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use hyper::{
    body::Incoming,
    client::conn::http1,
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Forwarder,
    connect::NewConnection,
    connection_event::OpenConnection,
    headers,
    outgoing_lines::OutgoingLines,
    retryable_body::{BodyRecovery, RetryableBody},
    route::ServerRoute,
    target,
};
use fairgate_base::clock::Clock;
use fairgate_call::{
    BodyReader, Call, ClientBody, OnFailure, Refusal, Reply, ReplyBody, RequestProgress,
    TunnelGuard, UpstreamConnection,
};
use fairgate_core::time::Time;

/// Sends `call` as an upgrade to `protocol`; a `101` becomes a tunnel.
pub(super) async fn open(
    forwarder: &Forwarder,
    route: &ServerRoute,
    mut call: Call,
    protocol: HeaderValue,
) -> Result<Reply, Refusal> {
    // Taken before the reply is sent: hyper gives the client's connection away once it has written the 101.
    let client = hyper::upgrade::on(&mut *call.request);
    let body = std::mem::replace(call.request.body_mut(), ClientBody::empty());
    let request = request(forwarder, route, &call, body, protocol)?;
    let (mut sender, connection, open) = connect(route).await?;
    let driver = fairgate_base::turns::spawn_local_boxed(async move {
        let _ = connection.with_upgrades().await;
    });
    let abort = CloseOnDrop(Some(Rc::new(Closer {
        driver: driver.abort_handle(),
        _open: open,
    })));
    call.context.reached(RequestProgress::Sent);
    let mut response = sender.send_request(request).await.map_err(|error| {
        tracing::debug!(%error, "the upstream failed an upgrade");
        Refusal::UpstreamFailed
    })?;
    call.context.reached(RequestProgress::Answered);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(refused(response, abort));
    }
    let guard = Rc::new(TunnelGuard::default());
    let upstream = hyper::upgrade::on(&mut response);
    let held = guard.clone();
    let (idle, clock) = (forwarder.settings.tunnel_idle, forwarder.clock.clone());
    fairgate_base::turns::spawn_local_boxed(async move {
        // Keeps the place in the connection limit until the tunnel ends: the reply ends with its head.
        let _abort = abort;
        if !carry(client, upstream, idle, &clock).await {
            // The upstream may go on with the command, so the request counts against its limits for some time.
            held.abandoned();
        }
    });
    Ok(switched(response, guard))
}

/// Copies bytes in both directions until both ends are closed, or nothing was copied for `idle`. Returns whether
/// the upstream closed its end.
async fn carry(client: OnUpgrade, upstream: OnUpgrade, idle: Duration, clock: &Clock) -> bool {
    let both: Result<(Upgraded, Upgraded), _> = tokio::try_join!(client, upstream);
    match both {
        Ok((client, upstream)) => {
            let last = Cell::new(clock.now());
            let end = |upgraded| TunnelEnd {
                io: TokioIo::new(upgraded),
                last: &last,
                ended: false,
                clock,
            };
            let (mut client, mut upstream) = (end(client), end(upstream));
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
                () = silence(&last, idle, clock) => tracing::debug!("a tunnel was closed because it was idle for too long"),
            }
            // Only the upstream's end shows that the command there is over.
            upstream.ended
        }
        Err(error) => {
            tracing::debug!(%error, "an upgrade failed");
            false
        }
    }
}

/// Completes when `last` is `idle` ago.
async fn silence(last: &Cell<Time>, idle: Duration, clock: &Clock) {
    loop {
        let seen = last.get();
        tokio::time::sleep_until(clock.instant(seen.plus(idle))).await;
        // Reads of one end are enough to look at: what is read is written to the other end.
        if last.get() == seen {
            return;
        }
    }
}

/// One end of a tunnel, which records when something was last read from it.
struct TunnelEnd<'a> {
    io: TokioIo<Upgraded>,
    last: &'a Cell<Time>,
    /// Whether it is closed.
    ended: bool,
    clock: &'a Clock,
}

impl AsyncRead for TunnelEnd<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if read.is_ready() {
            self.last.set(self.clock.now());
            // `copy_bidirectional` always offers room, so a read of nothing is the end.
            self.ended |= buf.filled().len() == before;
        }
        read
    }
}

impl AsyncWrite for TunnelEnd<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn request(
    forwarder: &Forwarder,
    route: &ServerRoute,
    call: &Call,
    body: ClientBody,
    protocol: HeaderValue,
) -> Result<Request<RetryableBody>, Refusal> {
    let recovery = BodyRecovery::of(&body);
    let mut request = Request::new(RetryableBody::new(
        body,
        recovery,
        call.context.clone(),
        None,
    ));
    *request.method_mut() = call.request.method().clone();
    *request.uri_mut() = target(call, None)?;
    let headers = request.headers_mut();
    let (settings, identity) = (&route.settings, &*forwarder.identity);
    let lines = OutgoingLines::Http1List(headers);
    headers::outgoing(call, settings, identity, Some(&route.host), lines)?;
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, protocol);
    Ok(request)
}

type Connected = (
    http1::SendRequest<RetryableBody>,
    http1::Connection<TokioIo<fairgate_base::socket::Socket>, RetryableBody>,
    OpenConnection,
);

async fn connect(route: &ServerRoute) -> Result<Connected, Refusal> {
    let NewConnection { socket, open, .. } =
        route.pool.connector.open(true).await.map_err(|error| {
            tracing::warn!(%error, "cannot reach the upstream");
            Refusal::UpstreamUnreachable
        })?;
    let (sender, connection) = http1::Builder::new()
        // As for other upstream connections; hyper's default is 100.
        .max_headers(512)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(|_| Refusal::UpstreamUnreachable)?;
    Ok((sender, connection, open))
}

fn switched(response: Response<Incoming>, guard: Rc<TunnelGuard>) -> Reply {
    let mut reply = Response::new(ReplyBody::tunnel(guard));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    // Cleaning removes the headers of one connection, `Upgrade` and `Connection` among them, which a 101 needs.
    let upgrade = response.headers().get(UPGRADE).cloned();
    *reply.headers_mut() = response.into_parts().0.headers;
    headers::clean_reply(reply.headers_mut());
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
    }
    reply
}

/// Relays any other response, and closes its connection after it.
fn refused(response: Response<Incoming>, mut abort: CloseOnDrop) -> Reply {
    let (parts, body) = response.into_parts();
    let mut reply = Response::new(match abort.disarm() {
        Some(closer) => {
            let body = BodyReader::Hyper(body, closer);
            ReplyBody::upstream(body, OnFailure::Error, None)
        }
        None => ReplyBody::empty(),
    });
    *reply.status_mut() = parts.status;
    *reply.headers_mut() = parts.headers;
    headers::clean_reply(reply.headers_mut());
    reply
}

/// Closes the upstream connection when it is released: it is never used again.
struct Closer {
    driver: tokio::task::AbortHandle,
    _open: OpenConnection,
}

impl UpstreamConnection for Closer {
    fn release(self: Rc<Self>, _: bool) {
        self.driver.abort();
    }
}

/// Closes the upstream connection when the request is dropped before there is a response.
struct CloseOnDrop(Option<Rc<Closer>>);

impl CloseOnDrop {
    fn disarm(&mut self) -> Option<Rc<Closer>> {
        self.0.take()
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        if let Some(closer) = &self.0 {
            closer.driver.abort();
        }
    }
}
