//! What is left of a request's body when its answer is there already.
//!
//! An upstream may answer before it has read a body, and we may refuse a request without reading it.
//! The rest has to be read off an HTTP/1 connection before the next request can be, as Go's server
//! does: up to 256 KiB of it are read and forgotten. Where more is to come, or it is not known how
//! much, the answer says that the connection will be closed, so that nobody sends another request
//! into it. A client that waits to be told to continue is never told; its connection is closed, too.

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

use super::message_state::{MessageState, UnreadBody};

/// Bytes of an unwanted body that are read and forgotten: Go's `maxPostHandlerReadBytes`.
const DRAINED_BYTES: u64 = 256 << 10;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(30);
/// How long an answer waits for the end of a chunked body, so that its connection need not be closed.
const CHUNKS_TIME: Duration = Duration::from_secs(1);

/// The unread bodies of one HTTP/1 connection: there is one at a time.
#[derive(Default)]
pub(super) struct UnreadBodies {
    unwanted: RefCell<Option<DrainedBody>>,
    /// The connection's task.
    task: RefCell<Option<Waker>>,
    /// Whether the present request's client waits to be told to continue.
    expects: Cell<bool>,
}

struct DrainedBody {
    body: Incoming,
    left: u64,
    /// Set by the first poll: the runtime may be gone before.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What is to be done with an answer.
pub(super) enum SendReply {
    /// It can be sent as it is.
    Now,
    /// It has to say that the connection will be closed.
    AndClose,
    /// It should wait for this long, and be ruled about again whenever the connection is polled.
    Later(Duration),
}

impl UnreadBodies {
    /// A request begins; its client waits to be told to continue, or not.
    pub(super) fn begin(&self, expects: bool) {
        self.expects.set(expects);
    }

    /// Takes a body that nobody wants.
    pub(super) fn take(&self, body: Incoming) {
        let unwanted = DrainedBody {
            body,
            left: DRAINED_BYTES,
            timer: None,
        };
        *self.unwanted.borrow_mut() = Some(unwanted);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Reads on in a body that nobody wants, and gives it up when there is too much of it. To be
    /// polled by the connection's task.
    pub(super) fn poll(&self, cx: &mut Context<'_>) {
        let mut unwanted = self.unwanted.borrow_mut();
        if let Some(body) = &mut *unwanted
            && body.poll(cx).is_ready()
        {
            *unwanted = None;
        }
        match &mut *self.task.borrow_mut() {
            Some(task) => task.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// What to do with the answer to the present request.
    pub(super) fn when_to_send(&self, messages: &MessageState) -> SendReply {
        match messages.left() {
            UnreadBody::Nothing => SendReply::Now,
            _ if self.expects.get() => SendReply::AndClose,
            UnreadBody::Bytes(left) if left <= DRAINED_BYTES => SendReply::Now,
            // What the upstream still reads may be endless.
            UnreadBody::Unknown if self.unwanted.borrow().is_some() => {
                SendReply::Later(CHUNKS_TIME)
            }
            UnreadBody::Bytes(_) | UnreadBody::Unknown => SendReply::AndClose,
        }
    }
}

impl DrainedBody {
    /// Ready at the end, or when it is given up.
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
