//! What the layers pass to each other about one request, besides the request and its reply.
//!
//! Inner layers write it, and outer layers base decisions on it. For example, `forward` records how far the
//! request got, and `fairness` keeps the seat if the upstream may still be working on it. It is one
//! allocation, shared by all layers, together with the [`Trace`], which is only observed.

use std::{
    any::Any,
    cell::{Cell, OnceCell, RefCell},
    fmt,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Method, uri::PathAndQuery};

use super::{
    BodyEnd, RequestKind, Trace, unfinished_request::TimedOutRequest,
    upstream_connection::AwaitedConnection,
};
use fairgate_base::account::ByteShare;
use fairgate_core::digest::User;

/// How far a request got on its way upstream. It only moves forward, except that a request that the
/// upstream certainly has not received goes back to [`NotSent`](Self::NotSent).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestProgress {
    /// Nothing was sent upstream: any request can be refused safely.
    #[default]
    NotSent,
    /// It was handed to an upstream connection: the upstream may be working on it, even after a
    /// cancel.
    Sent,
    /// The upstream's response has begun.
    Answered,
    /// The upstream's response has ended, including its body.
    Done,
}

/// What the last poll of a reply's body returned. After [`Data`](Self::Data) the body is not
/// polled again until the client has taken the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyActivity {
    /// The body was not polled.
    #[default]
    NotPolled,
    /// A frame was handed to the client's connection.
    Data,
    /// There was nothing to hand over.
    Pending,
}

/// The seats with which a request executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionSeats {
    /// How many, at least 1.
    pub width: u32,
    /// Whether flow control limits them: not in an exempt level, and not where decisions are not enforced.
    pub is_limited: bool,
}

impl Default for ExecutionSeats {
    fn default() -> Self {
        Self {
            width: 1,
            is_limited: false,
        }
    }
}

/// UIDs of a FlowSchema and its priority level, as header values; never empty.
#[derive(Clone, Debug)]
pub struct FlowUids {
    /// UID of the FlowSchema.
    pub schema: HeaderValue,
    /// UID of the priority level.
    pub level: HeaderValue,
}

/// What flow control decided about a request without enforcing it, where that was not to let it pass at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnenforcedDecision {
    /// How long it would have waited.
    pub wait: Duration,
    /// Why it would have been refused, as [`Refusal::reason`](crate::Refusal::reason) has it; `None` if it would have executed.
    pub refused: Option<&'static str>,
}

/// Is notified when requests end, and of what was not done with them.
pub trait RequestObserver: fmt::Debug {
    /// A decision about the request is not enforced. The request may have ended before.
    fn not_enforced(&self, request: &RequestContext, decision: &UnenforcedDecision);

    /// The request has ended: its reply including the body, or, while the trace has no status, because
    /// the client disconnected before there was one.
    fn ended(&self, request: &RequestContext, how: BodyEnd);
}

/// What the layers know about one request; shared by all of them.
#[derive(Debug, Default)]
pub struct RequestContext {
    /// The request's id, sent upstream as `Audit-ID`: the client's own if that is a UUID, else random.
    pub id: u128,
    /// The HTTP method.
    pub method: Method,
    /// The target as received.
    pub target: Option<PathAndQuery>,
    /// What the head takes in memory as received, in bytes; 0 for a request that the gateway made.
    pub head_bytes: usize,
    /// What a long head is charged for, until the request ends. Of an HTTP/1 request, the target alone keeps all of the head.
    pub head_share: OnceCell<ByteShare>,
    /// The kind; `Unknown` until the request is parsed.
    pub kind: Cell<RequestKind>,
    /// The user, once authenticated.
    pub user: OnceCell<Arc<User>>,
    /// UIDs of the matching FlowSchema and its level, for the reply's headers.
    pub flow_uids: OnceCell<Arc<FlowUids>>,
    /// How far the request got.
    pub progress: Cell<RequestProgress>,
    /// Whether the request was not carried out, although it held a seat: a layer inside flow control refused it, it ended before it
    /// was sent upstream, or its client did not send the whole body. Its duration says nothing about others, and it causes no watch
    /// events.
    pub is_refused: Cell<bool>,
    /// Whether the gateway itself carries the request out. Then its [progress](Self::progress) does not show how far it got.
    pub is_served_here: Cell<bool>,
    /// Whether the client did not send its whole body, which also truncated what the upstream was sent.
    /// The gateway then resets the request itself. If the response had begun, its failure after that does not show that the
    /// upstream is done with it.
    pub client_body_failed: Cell<bool>,
    /// Bytes of the reply's body that were handed to the client's connection.
    pub reply_bytes: Cell<u64>,
    /// What the last poll of the reply's body returned; taken by the task of an HTTP/2 stream.
    pub reply_activity: Cell<BodyActivity>,
    /// The seats with which it executes.
    pub seats: Cell<ExecutionSeats>,
    /// What is charged to the server that the request was sent to, where there are several. Dropping it takes the charge back.
    pub server_charge: RefCell<Option<Box<dyn Any>>>,
    /// The shared upstream connection on which the response is awaited.
    pub awaited: AwaitedConnection,
    /// The request itself, once it exceeded its deadline.
    pub timed_out: TimedOutRequest,
    /// What is only observed of the request.
    pub trace: Trace,
    /// The observer that is notified, once, of the end.
    observer: RefCell<Option<Rc<dyn RequestObserver>>>,
    /// Whether the request has ended.
    ended: Cell<bool>,
}

impl RequestContext {
    /// The context of a request for `target`.
    pub fn new(method: Method, target: Option<PathAndQuery>, id: u128) -> Self {
        Self {
            id,
            method,
            target,
            ..Self::default()
        }
    }

    /// Notifies `observer` of the end. It replaces an earlier observer.
    pub fn notify(&self, observer: Rc<dyn RequestObserver>) {
        *self.observer.borrow_mut() = Some(observer);
    }

    /// The request has ended. Only the first call has an effect.
    pub fn end(&self, how: BodyEnd) {
        if self.ended.replace(true) {
            return;
        }
        let observer = self.observer.borrow().clone();
        if let Some(observer) = observer {
            observer.ended(self, how);
        }
    }

    /// Notifies the observer of a decision that is not enforced.
    pub fn not_enforced(&self, decision: &UnenforcedDecision) {
        let observer = self.observer.borrow().clone();
        if let Some(observer) = observer {
            observer.not_enforced(self, decision);
        }
    }

    /// Whether the request has ended for its client. Work that continues after that has no recipient.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Records that the request got at least as far as `progress`.
    pub fn reached(&self, progress: RequestProgress) {
        if self.progress.get() < progress {
            self.progress.set(progress);
        }
    }
}
