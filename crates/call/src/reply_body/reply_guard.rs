//! What lasts as long as the body of a reply.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{BodyEnd, RemainingReply};

/// Something that lasts as long as a reply's body.
pub trait ReplyGuard {
    /// Polled before each poll of the body, with the connection's waker, so that a guard may have timers. When
    /// it is ready, the body ends cleanly at once.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = cx;
        Poll::Pending
    }

    /// Called with data of the body, as it is sent.
    fn data(&mut self, data: &Bytes) {
        let _ = data;
    }

    /// The body has ended. Called exactly once, unless [`abandoned`](Self::abandoned) is.
    fn end(self: Box<Self>, how: BodyEnd);

    /// The client disconnected, and this is the rest of the upstream's response. By default it is cancelled.
    fn abandoned(self: Box<Self>, rest: RemainingReply) {
        drop(rest);
        self.end(BodyEnd::Abandoned);
    }
}

/// Combines two guards of one body.
pub(super) struct GuardPair {
    pub(super) outer: Box<dyn ReplyGuard>,
    pub(super) inner: Box<dyn ReplyGuard>,
}

impl ReplyGuard for GuardPair {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.outer.poll(cx).is_ready() || self.inner.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn data(&mut self, data: &Bytes) {
        self.outer.data(data);
        self.inner.data(data);
    }

    fn end(self: Box<Self>, how: BodyEnd) {
        self.outer.end(how);
        self.inner.end(how);
    }

    fn abandoned(self: Box<Self>, rest: RemainingReply) {
        self.outer.end(BodyEnd::Abandoned);
        self.inner.abandoned(rest);
    }
}
