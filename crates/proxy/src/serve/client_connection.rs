//! The state of one client connection that its requests share.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use hyper::body::Incoming;

use super::{
    frame_credits::FrameCredits, message_state::MessageState, premature_resets::PrematureResets,
    unread_bodies::UnreadBodies,
};
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
    /// Whether a write waits for the client to read; its request may have ended before.
    pub(super) is_writing: Arc<AtomicBool>,
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
            is_writing: Arc::default(),
            premature: PrematureResets::new(resets),
        }
    }
}

impl ClientConnection {
    /// Whether no request is in progress, and the client has got all of its last response.
    pub(super) fn is_idle(&self) -> bool {
        self.active.get() == 0 && !self.is_writing.load(Ordering::Relaxed)
    }
}

impl UnreadBodyHandler for ClientConnection {
    fn take_unread(&self, rest: Incoming) {
        self.unread_bodies.take(rest);
    }
}
