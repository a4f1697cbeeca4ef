//! The rest of a request's body when the response came before all of the body was read.
//!
//! An upstream may respond before it has read a body, and the gateway may refuse a request without reading it. The
//! rest has to be read from an HTTP/1 connection before the next request can be. As in Go's server, up to 256 KiB of
//! it are read and discarded. If more is to come, or its length is unknown, the reply says that the connection will
//! be closed, so that the client does not send another request on it. A client that waits for `100 Continue` does
//! not get it; its connection is closed, too.

use std::{
    cell::{Cell, RefCell},
    future::Future as _,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::serve::wire::message_state::{MessageState, UnreadBody};

/// Bytes of an unread body that are read and discarded: Go's `maxPostHandlerReadBytes`.
const DRAINED_BYTES: u64 = 256 << 10;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(30);
/// How long a reply waits for the end of a chunked body, so that its connection need not be closed.
const CHUNKS_TIME: Duration = Duration::from_secs(1);

/// The unread bodies of one HTTP/1 connection: there is one at a time.
#[derive(Default)]
pub(super) struct UnreadBodies {
    unread: RefCell<Option<DrainedBody>>,
    /// The connection's task.
    task: RefCell<Option<Waker>>,
    /// Whether the client of the current request waits for `100 Continue`.
    expects_continue: Cell<bool>,
}

struct DrainedBody {
    body: Incoming,
    left: u64,
    /// Set by the first poll, because a body can be dropped while the runtime shuts down.
    timer: Option<Pin<Box<Sleep>>>,
}

/// When, and how, a reply can be sent.
pub(super) enum SendReply {
    /// Immediately.
    Now,
    /// Immediately, and it must announce that the connection will be closed.
    AndClose,
    /// It should wait for up to this long, and be checked again whenever the connection is polled.
    Later(Duration),
}

impl UnreadBodies {
    /// A request begins; `expects_continue` is whether its client waits for `100 Continue`.
    pub(super) fn begin(&self, expects_continue: bool) {
        self.expects_continue.set(expects_continue);
    }

    /// Takes over a body that the stack no longer reads, to discard the rest of it.
    pub(super) fn take(&self, body: Incoming) {
        let unread = DrainedBody {
            body,
            left: DRAINED_BYTES,
            timer: None,
        };
        *self.unread.borrow_mut() = Some(unread);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Reads and discards the rest of a body, and drops it when there is too much. To be polled by the connection's
    /// task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) {
        let mut unread = self.unread.borrow_mut();
        if let Some(body) = &mut *unread
            && body.poll(cx).is_ready()
        {
            *unread = None;
        }
        match &mut *self.task.borrow_mut() {
            Some(task) => task.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// When the reply to the current request can be sent.
    pub(super) fn when_to_send(&self, messages: &MessageState) -> SendReply {
        match messages.unread() {
            UnreadBody::Nothing => SendReply::Now,
            _ if self.expects_continue.get() => SendReply::AndClose,
            UnreadBody::Bytes(left) if left <= DRAINED_BYTES => SendReply::Now,
            // Only if the rest is being discarded: what the upstream still reads may be endless.
            UnreadBody::Unknown if self.unread.borrow().is_some() => SendReply::Later(CHUNKS_TIME),
            UnreadBody::Bytes(_) | UnreadBody::Unknown => SendReply::AndClose,
        }
    }
}

impl DrainedBody {
    /// Ready when the body has ended, or when too much of it would have to be discarded.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let Some(Ok(frame)) = frame else {
                return Poll::Ready(());
            };
            let bytes = frame.data_ref().map_or(0, bytes::Bytes::len) as u64;
            let Some(left) = self.left.checked_sub(bytes) else {
                return Poll::Ready(());
            };
            self.left = left;
        }
        self.timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(DRAIN_TIME)))
            .as_mut()
            .poll(cx)
    }
}
