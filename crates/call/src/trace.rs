//! What the layers note of one request, for the access log and for each other.
//!
//! Plain cells: a request lives on one core, and every layer writes its own cells once.

use std::{
    cell::{Cell, OnceCell, RefCell},
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Method, uri::PathAndQuery};

use super::{BodyEnd, Refusal, Reply, RequestKind, lender::Awaited};
use fairgate_core::{
    digest::{RequestDigest, User},
    time::Time,
};

/// How far a request has got. Only ever moves forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Nothing has been sent upstream: refusing it is safe whatever it is.
    #[default]
    Here,
    /// It was handed to an upstream connection: the upstream may be working on it, even after a
    /// cancel.
    Sent,
    /// The upstream's answer has begun.
    Answered,
    /// The upstream is done with it, body and all.
    Done,
}

/// UIDs of a flow schema and its priority level, as header values; never empty.
#[derive(Clone, Debug)]
pub struct FlowUids {
    /// The FlowSchema's.
    pub schema: HeaderValue,
    /// The priority level's.
    pub level: HeaderValue,
}

/// Is told when requests have ended.
pub trait Recorder: fmt::Debug {
    /// The request that `trace` is of has ended: its answer with its body, or, without a status,
    /// because the client has left before there was one.
    fn ended(&self, trace: &Trace, how: BodyEnd);
}

/// A request that the upstream may be working on although its client has its answer already.
pub type Unfinished = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

/// Where the leaf leaves a request that it refused because its time was up. Whoever holds a seat for
/// it takes it and runs it to its end; dropping it cancels it.
#[derive(Default)]
pub struct Leftover(Cell<Option<Unfinished>>);

impl Leftover {
    /// Leaves a request.
    pub fn leave(&self, unfinished: Unfinished) {
        self.0.set(Some(unfinished));
    }

    /// Takes what was left.
    pub fn take(&self) -> Option<Unfinished> {
        self.0.take()
    }
}

impl fmt::Debug for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leftover").finish_non_exhaustive()
    }
}

/// What the layers note of one request.
#[derive(Debug, Default)]
pub struct Trace {
    /// The request's id: the client's `Audit-ID` if it is a UUID, else one of our own.
    pub id: Cell<u128>,
    /// The method.
    pub method: Method,
    /// The target as received.
    pub target: Option<PathAndQuery>,
    /// When the request's head was complete.
    pub received: Cell<Time>,
    /// Who holds the other end of the connection; only where somebody wants to know.
    pub remote: Cell<Option<SocketAddr>>,
    /// What the client calls itself; only where somebody wants to know.
    pub user_agent: OnceCell<HeaderValue>,
    /// Whether it is a server-side apply.
    pub is_apply: Cell<bool>,
    /// What it asks for, once it is known who asks.
    pub digest: OnceCell<Arc<RequestDigest>>,
    /// The kind, once parsed.
    pub kind: Cell<RequestKind>,
    /// The user, once known.
    pub user: OnceCell<Arc<User>>,
    /// Name of the FlowSchema that matched.
    pub schema: OnceCell<Arc<str>>,
    /// Name of its priority level.
    pub level: OnceCell<Arc<str>>,
    /// UIDs of both, for the answer's headers.
    pub flow_uids: OnceCell<FlowUids>,
    /// Seats while executing.
    pub initial_seats: Cell<u32>,
    /// Seats lingering.
    pub final_seats: Cell<u32>,
    /// How long they linger.
    pub additional_latency: Cell<Duration>,
    /// Time spent in a queue.
    pub wait: Cell<Option<Duration>>,
    /// Time from dispatch to finish.
    pub execution: Cell<Option<Duration>>,
    /// Time from a watch's dispatch to its initialisation.
    pub watch_init: Cell<Option<Duration>>,
    /// Status of the answer; 0 until there is one.
    pub status: Cell<u16>,
    /// Whether the client broke its body off, and with that what the upstream was sent. A failure of the
    /// upstream after that is the gateway's own doing, and tells nothing of what the upstream does.
    pub broke_off: Cell<bool>,
    /// Bytes of body received from the client.
    pub request_bytes: Cell<u64>,
    /// Bytes of body sent to the client.
    pub reply_bytes: Cell<u64>,
    /// Why it was refused, in one word; also in the reply and in the metrics.
    pub reason: Cell<Option<&'static str>>,
    /// Where it was sent.
    pub upstream: OnceCell<Arc<str>>,
    /// How far it got.
    pub progress: Cell<Progress>,
    /// Who is told of the end.
    recorder: RefCell<Option<Rc<dyn Recorder>>>,
    /// The upstream connection on which its answer is awaited, where others share that.
    pub awaited: Awaited,
    /// The request itself, when it was refused for taking too long.
    pub leftover: Leftover,
}

impl Trace {
    /// A trace of a request for `target`.
    pub fn new(method: Method, target: Option<PathAndQuery>, id: u128) -> Self {
        Self {
            id: Cell::new(id),
            method,
            target,
            ..Self::default()
        }
    }

    /// Has `recorder` told of the end.
    pub fn tell(&self, recorder: Rc<dyn Recorder>) {
        *self.recorder.borrow_mut() = Some(recorder);
    }

    /// The request has ended. Only the first end counts.
    pub fn end(&self, how: BodyEnd) {
        let recorder = self.recorder.take();
        if let Some(recorder) = recorder {
            recorder.ended(self, how);
        }
    }

    /// Notes that the request got at least as far as `progress`.
    pub fn reached(&self, progress: Progress) {
        if self.progress.get() < progress {
            self.progress.set(progress);
        }
    }
}
