//! How long a client may leave data unread that is ready for it.
//!
//! A client that does not read keeps what its reply holds, so it is cut off soon. But people pause the output of a command,
//! a log or a forwarded port and continue it later. Such requests hold no seat, their number is limited, and while their client does
//! not read, nothing is read for them beyond the buffers of their connections. So they may pause for much longer, as long as they
//! count: the end of a response that hyper alone still holds, over HTTP/1, may wait as any other.
//!
//! A watch may not: it may hold a seat until its initial events are read, a hosted one holds the objects that it began with, and
//! kube-apiserver ends a watch whose client does not read as well.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::serve::settings::ServeSettings;
use fairgate_call::RequestKind;

/// The time limits of one listener.
#[derive(Clone, Copy, Debug)]
pub(super) struct StallLimits {
    ordinary: Duration,
    may_pause: Duration,
}

impl StallLimits {
    pub(super) fn of(settings: &ServeSettings) -> Self {
        Self {
            ordinary: settings.stall_timeout,
            may_pause: settings.pause_timeout,
        }
    }

    /// For clients that may pause, or for others.
    pub(super) fn limit(self, may_pause: bool) -> Duration {
        if may_pause {
            self.may_pause
        } else {
            self.ordinary
        }
    }
}

/// Whether the client of such a request may pause.
pub(super) fn may_pause(kind: RequestKind) -> bool {
    kind == RequestKind::LongRunning
}

/// The writes of one connection, as its socket and its requests see them. Both are on one thread; atomic only because hyper wants
/// connections that could become tunnels to be `Send`.
#[derive(Debug, Default)]
pub(super) struct WriteState {
    is_writing: AtomicBool,
    may_pause: AtomicBool,
    is_tunnel: AtomicBool,
}

impl WriteState {
    /// Whether a write waits for the client to read, or the connection is being closed.
    pub(super) fn is_writing(&self) -> bool {
        self.is_writing.load(Ordering::Relaxed)
    }

    pub(super) fn set_writing(&self, is_writing: bool) {
        self.is_writing.store(is_writing, Ordering::Relaxed);
    }

    /// Whether the client may pause, on HTTP/1.
    pub(super) fn may_pause(&self) -> bool {
        self.may_pause.load(Ordering::Relaxed) || self.is_tunnel.load(Ordering::Relaxed)
    }

    /// Whether the client may pause from now on: while the gateway has a long-running request of it. hyper may hold the end of its response for
    /// longer, when the request counts among no limit any more.
    pub(super) fn set_may_pause(&self, may_pause: bool) {
        self.may_pause.store(may_pause, Ordering::Relaxed);
    }

    /// The client of a tunnel may pause to its end.
    pub(super) fn becomes_a_tunnel(&self) {
        self.is_tunnel.store(true, Ordering::Relaxed);
    }
}
