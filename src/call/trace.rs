//! What the layers note of one request, for the access log and for each other.
//!
//! Plain cells: a request lives on one core, and every layer writes its own cells once.

use std::{
    cell::{Cell, OnceCell},
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Method, uri::PathAndQuery};

use super::{Refusal, Reply, RequestKind};
use crate::digest::User;

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

    /// Notes that the request got at least as far as `progress`.
    pub fn reached(&self, progress: Progress) {
        if self.progress.get() < progress {
            self.progress.set(progress);
        }
    }
}
