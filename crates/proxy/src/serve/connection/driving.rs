//! Drives hyper's connection until something else is to be done, and records why it ended.

use std::{
    error::Error as _,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{client_connection::ClientConnection, disconnect::ClientDisconnect};
use crate::serve::{
    drain::DrainPhase, event::ClientEvent, serve_context::ServeContext, wire::defence::Offence,
    wire::frame_credits::FrameCredits,
};
use fairgate_core::time::Time;

/// How many resets h2 accepts on streams that it has not passed to hyper yet (its default).
const H2_RESETS: u32 = 20;

/// Why [`drive_until_idle`] has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriveEnd {
    /// The connection has ended, or the client has disconnected.
    Ended,
    /// The gateway is to stop.
    Draining,
    /// There was no request for so long.
    Idle,
}

/// Drives `connection` until one of these happens. One timer runs for many requests: when it fires, it is set to what is left of the
/// timeout since the last of them, or from `since` on if that is later.
pub(super) async fn drive_until_idle<F>(
    core: &ServeContext,
    client_disconnected: &mut ClientDisconnect<'_>,
    requests: &ClientConnection,
    mut connection: Pin<&mut F>,
    timeout: Duration,
    since: Time,
) -> DriveEnd
where
    F: Future<Output = hyper::Result<()>>,
{
    loop {
        let (is_idle, before) = (requests.is_idle(), requests.total.get());
        let from = if is_idle {
            requests.idle_since.get().max(since)
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
pub(super) async fn drive<F>(
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
pub(super) async fn ends_within(time: Duration, connection: impl Future<Output = bool>) -> bool {
    tokio::time::timeout(time, connection)
        .await
        .unwrap_or(false)
}
