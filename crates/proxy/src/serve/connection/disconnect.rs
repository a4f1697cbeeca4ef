//! Decides when a client that sends nothing more is considered gone.
//!
//! A client that closes its connection, and one that closes only its sending side to mark the end of its request
//! (half-close), look the same. The second one waits for its reply, as HTTP allows. So the end of what an HTTP/1
//! client sends does not end its request at once:
//!
//! - A queued request has a second to be sent upstream. Then its place goes to clients that are certainly still
//!   connected.
//! - A request that was sent has five seconds until its reply begins, which is enough for nearly all. If the client is
//!   gone, its seat would be kept for about as long anyway.
//! - Once the reply has begun, sending it shows whether the client is still connected. It has five seconds between one
//!   frame and the next.
//! - A watch or another long-running request ends at once: nothing else would end it.
//!
//! A reset, or the end of what an HTTP/2 client sends, means that the client is gone.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

use super::client_connection::ClientConnection;
use crate::serve::hangup_watcher::{Hangup, HungUp};
use fairgate_call::RequestProgress;

/// How long a request may stay queued after its client closed its sending side.
const WAITING: Duration = Duration::from_secs(1);
/// How long the upstream may take after that to begin its response, or to continue it.
const EXECUTING: Duration = Duration::from_secs(5);

/// Finds out whether the client of a connection has disconnected.
pub(super) struct ClientDisconnect<'a> {
    hangup: &'a Hangup,
    connection: &'a ClientConnection,
    /// Whether the client has closed at least its sending side.
    hung_up: bool,
    grace: Option<Grace>,
}

/// Which request of the connection, how far it got, and how many bytes of its reply were sent.
type Step = (u64, RequestProgress, u64);

/// The time that a request has to make its next step.
struct Grace {
    at: Step,
    timer: Pin<Box<Sleep>>,
}

impl<'a> ClientDisconnect<'a> {
    pub(super) fn new(hangup: &'a Hangup, connection: &'a ClientConnection) -> Self {
        Self {
            hangup,
            connection,
            hung_up: false,
            grace: None,
        }
    }

    /// As [`poll_left`](Self::poll_left), after the connection was polled: a request may have begun meanwhile, or
    /// made a step.
    pub(super) fn poll_left_meanwhile(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.hung_up {
            self.poll_left(cx)
        } else {
            Poll::Pending
        }
    }

    /// Ready once the client counts as gone.
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Poll::Ready(how) = self.hangup.poll_hung_up(cx) else {
            return Poll::Pending;
        };
        self.hung_up = true;
        if self.connection.messages.is_none() {
            return Poll::Ready(());
        }
        let in_progress = self.connection.in_progress.borrow();
        let Some(context) = &*in_progress else {
            // What the client sent before is read first, to its end. If it is refused, hyper reports that only
            // when the connection is closed, which happens soon.
            return Poll::Pending;
        };
        if how == HungUp::Gone {
            return Poll::Ready(());
        }
        if context.kind.get().is_long_running() {
            return Poll::Ready(());
        }
        let progress = context.progress.get();
        let limit = match progress {
            RequestProgress::NotSent => WAITING,
            RequestProgress::Sent | RequestProgress::Answered | RequestProgress::Done => EXECUTING,
        };
        let at = (
            self.connection.total.get(),
            progress,
            context.reply_bytes.get(),
        );
        let running = self.grace.take().filter(|grace| grace.at == at);
        let grace = self.grace.insert(running.unwrap_or_else(|| Grace {
            at,
            timer: Box::pin(tokio::time::sleep(limit)),
        }));
        grace.timer.as_mut().poll(cx)
    }
}
