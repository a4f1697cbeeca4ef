//! When a client that sends no more counts as gone.
//!
//! A client that has closed its connection and one that closes only its own end, to say that its
//! request is complete, send the same. The second waits for its answer, and HTTP lets it. So the end
//! of what an HTTP/1 client sends does not end its request at once:
//!
//! - A request that waits has a second to be sent upstream. Then its place goes to clients that are
//!   there for certain.
//! - One that was sent has five seconds to be answered, which is ample for nearly all. If the client
//!   has gone, its seat would be kept for about as long anyhow.
//! - Once the answer has begun, sending it shows whether anybody is there. It has as long between one
//!   piece and the next.
//! - A watch, or another long-running request, ends at once: nothing else would end it.
//!
//! A reset, or an HTTP/2 client that sends no more, means that the client has gone.

use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::Sleep;

use super::{
    client_connection::ClientConnection,
    hangup_watcher::{Hangup, HungUp},
};
use fairgate_call::Progress;

/// How long a request may wait whose client sends no more.
const WAITING: Duration = Duration::from_secs(1);
/// How long the upstream may take to begin its answer, or to go on with it.
const EXECUTING: Duration = Duration::from_secs(5);

/// Finds out whether the client of a connection has left.
pub(super) struct ClientLeft<'a> {
    hangup: &'a Hangup,
    connection: &'a ClientConnection,
    /// Whether anything is known of its leaving.
    hung_up: bool,
    grace: Option<Grace>,
}

/// Which request of a connection, how far it has got, and how many bytes of its answer were sent.
type Step = (u64, Progress, u64);

/// The time that a request has.
struct Grace {
    at: Step,
    timer: Pin<Box<Sleep>>,
}

impl<'a> ClientLeft<'a> {
    pub(super) fn new(hangup: &'a Hangup, connection: &'a ClientConnection) -> Self {
        Self {
            hangup,
            connection,
            hung_up: false,
            grace: None,
        }
    }

    /// The same as [`poll_left`](Self::poll_left), once the connection was polled: a request may have
    /// begun, or got on.
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
            // Whatever else it sent is read first, to its end. If it was refused for that, hyper says so only
            // once the connection is closed, which is soon when nobody is there.
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
            Progress::NotSent => WAITING,
            Progress::Sent | Progress::Answered | Progress::Done => EXECUTING,
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
