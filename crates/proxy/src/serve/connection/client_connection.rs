//! The state of one client connection that its requests share.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use hyper::body::Incoming;

use super::{
    premature_resets::PrematureResets, stall_limits::WriteState, unread_bodies::UnreadBodies,
};
use crate::serve::{wire::frame_credits::FrameCredits, wire::message_state::MessageState};
use fairgate_call::{Peer, RequestContext, ResetLimits, UnreadBodyHandler};
use fairgate_core::time::Time;

/// The state of one client connection; used on its own thread only.
pub(super) struct ClientConnection {
    pub(super) peer: Rc<Peer>,
    /// Present on HTTP/1 only.
    pub(super) messages: Option<Arc<MessageState>>,
    /// The request in progress, on HTTP/1.
    pub(super) in_progress: RefCell<Option<Rc<RequestContext>>>,
    /// The request of the stream that is being started, on HTTP/2.
    pub(super) starting: RefCell<Option<Rc<RequestContext>>>,
    /// The body of a request that got its response before the body was read to its end, on HTTP/1.
    pub(super) unread_bodies: UnreadBodies,
    /// Credits for frames that carry no request, on HTTP/2.
    pub(super) credits: Arc<FrameCredits>,
    /// Requests in progress.
    pub(super) active: Cell<usize>,
    /// Requests since the connection began.
    pub(super) total: Cell<u64>,
    /// When the last request ended, or the connection began.
    pub(super) idle_since: Cell<Time>,
    /// What waits for the client to read.
    pub(super) writes: Arc<WriteState>,
    /// Requests that the client reset before they got a response, on HTTP/2.
    pub(super) premature: PrematureResets,
}

impl ClientConnection {
    /// A connection with `peer` on which no request has arrived yet at `now`.
    pub(super) fn new(peer: Peer, http2: bool, resets: ResetLimits, now: Time) -> Self {
        Self {
            peer: Rc::new(peer),
            messages: (!http2).then(Arc::default),
            in_progress: RefCell::default(),
            starting: RefCell::default(),
            unread_bodies: UnreadBodies::default(),
            credits: Arc::default(),
            active: Cell::new(0),
            total: Cell::new(0),
            idle_since: Cell::new(now),
            writes: Arc::default(),
            premature: PrematureResets::new(resets),
        }
    }
}

impl ClientConnection {
    /// Whether no request is in progress, and the client has got all of its last response.
    pub(super) fn is_idle(&self) -> bool {
        self.active.get() == 0 && !self.is_writing()
    }

    /// Whether a write waits for the client to read, whose request may have ended before, or the connection is being closed.
    pub(super) fn is_writing(&self) -> bool {
        self.writes.is_writing()
    }

    /// Whether no byte of another request has arrived on an HTTP/1 connection since the last one.
    pub(super) fn is_between_messages(&self) -> bool {
        let messages = self.messages.as_ref();
        messages.is_some_and(|messages| messages.is_between())
    }

    /// Whether the head of a request waits for a parser with more room.
    pub(super) fn needs_large_parser(&self) -> bool {
        let messages = self.messages.as_ref();
        messages.is_some_and(|messages| messages.needs_large_parser())
    }

    /// From now on the parser has room for all lines that a head may have.
    pub(super) fn set_large_parser(&self) {
        if let Some(messages) = &self.messages {
            messages.set_large_parser();
        }
    }

    /// Whether the parser has room for all lines that a head may have.
    pub(super) fn has_large_parser(&self) -> bool {
        let messages = self.messages.as_ref();
        messages.is_some_and(|messages| messages.has_large_parser())
    }
}

impl UnreadBodyHandler for ClientConnection {
    fn take_unread(&self, rest: Incoming) {
        self.unread_bodies.take(rest);
    }
}
