//! A request on its way through the gateway, and its reply.
//!
//! An [`Inbound`] is a request that has not been parsed yet. A [`Call`] is one whose digest is known:
//! only `auth` makes one, so later layers need not check that the user is known. A [`Reply`] is the response, whose
//! body may hold a guard until it ends. A [`Refusal`] is why a request is not served; [`refusal_reply`]
//! alone turns one into a reply. [`RequestContext`] is what the layers pass to each other about a
//! request, and [`Trace`] is what is only observed of it.
//!
//! Everything here stays on one data core, so no type has to be `Send`.
//!
//! Not here: authentication, flow control, forwarding.

mod body_end;
mod client_body;
mod end_to_end;
mod header_lines;
mod identity;
mod passing_or_boxed;
mod peer;
mod refusal;
pub mod refusal_reply;
mod reply_body;
mod request_context;
mod request_kind;
mod reset_limits;
mod trace;
mod unfinished_request;
mod upstream_connection;

use std::{rc::Rc, sync::Arc};

pub use body_end::{BodyEnd, BodyError};
pub use client_body::{
    ClientBody, UnreadBodyHandler,
    body_progress::BodyProgress,
    read_ahead::ReadAhead,
    read_ahead_budget::{ReadAheadBudget, ReadAheadMeter},
    stream_windows::StreamWindows,
};
pub use end_to_end::end_to_end_header_in_connection;
pub use header_lines::HeaderLines;
pub use identity::{
    Identity,
    header_names::{HeaderNameError, RequestHeaderNames},
    identity_headers,
    peer_identity::{
        CachedVerification, CertificateError, ChainError, FrontProxyError, LastToken, OwnIdentity,
        PeerIdentityCache, SubjectError, Verification,
    },
};
pub use passing_or_boxed::PassingOrBoxed;
pub use peer::{Peer, PeerTls};
pub use refusal::{FlowRejection, Refusal};
pub use refusal_reply::handle_refusal;
pub use reply_body::{
    ReplyBody, TunnelGuard,
    made_body::MemoryOf,
    reply_guard::ReplyGuard,
    reply_pipe::{ReaderPace, ReplyPipe, UpstreamGuard},
    response_memory::{ResponseMemory, ResponseShare},
    spool::{CutReason, Spool, SpoolLimits},
    upstream_body::{BodyReader, OnFailure, RemainingReply},
};
pub use request_context::{
    BodyActivity, ExecutionSeats, FlowUids, RequestContext, RequestObserver, RequestProgress,
    UnenforcedDecision,
};
pub use request_kind::RequestKind;
pub use reset_limits::ResetLimits;
pub use trace::Trace;
pub use unfinished_request::UnfinishedRequest;
pub use upstream_connection::{AbandonedResponse, ReadsResponse, ResetTurn, UpstreamConnection};

use fairgate_core::{
    digest::{RequestDigest, RequestInfo},
    time::Time,
};

/// The response to a request.
pub type Reply = http::Response<ReplyBody>;

/// A well-formed request whose user is not known yet.
#[derive(Debug)]
pub struct Inbound {
    /// The request as received; its target is the client's own bytes. Boxed, because it passes through many hands.
    pub request: Box<http::Request<ClientBody>>,
    /// The client's end of the connection.
    pub peer: Rc<Peer>,
    /// When the request's head was complete.
    pub received: Time,
    /// What the layers hand over to each other, and what is observed.
    pub context: Rc<RequestContext>,
}

/// A request whose user and meaning are known.
#[derive(Debug)]
pub struct Call {
    /// The request as received; its target is the client's own bytes, to be forwarded unchanged.
    pub request: Box<http::Request<ClientBody>>,
    /// The attributes of the request that policies match.
    pub digest: Arc<RequestDigest>,
    /// The user and the headers that carry it to the upstream; `None` where `auth` is not in the stack.
    pub identity: Option<Arc<Identity>>,
    /// Whether it is a read, a watch, another long-running request, or mutating.
    pub kind: RequestKind,
    /// The client's end of the connection.
    pub peer: Rc<Peer>,
    /// When the request's head was complete.
    pub received: Time,
    /// When the client stops waiting; `None` for long-running requests.
    pub deadline: Option<Time>,
    /// What the layers hand over to each other, and what is observed.
    pub context: Rc<RequestContext>,
}

impl Inbound {
    /// Parses the attributes of the request from its method, path and query.
    ///
    /// # Errors
    ///
    /// [`Refusal::Malformed`] or [`Refusal::Unclassifiable`], in the same cases as the API server.
    pub fn info(&self) -> Result<RequestInfo, Refusal> {
        let uri = self.request.uri();
        let method = self.request.method().as_str();
        Ok(RequestInfo::parse(method, uri.path(), uri.query())?)
    }
}

impl Call {
    /// Joins a request with its digest, and sets its deadline.
    ///
    /// The deadline is the client's own (`?timeout=`) if that is positive and below
    /// `request_timeout`, which otherwise applies; it counts from the request's arrival, so the time
    /// spent in a queue counts too. Long-running requests have none.
    ///
    /// # Errors
    ///
    /// [`Refusal::BadTimeout`] when the client's own deadline is not a duration.
    pub fn new(
        inbound: Inbound,
        digest: Arc<RequestDigest>,
        request_timeout: std::time::Duration,
    ) -> Result<Self, Refusal> {
        let kind = RequestKind::of(&digest.info);
        inbound.context.kind.set(kind);
        let _ = inbound.context.user.set(digest.user.clone());
        let _ = inbound.context.trace.digest.set(digest.clone());
        let deadline = if kind.is_long_running() {
            None
        } else {
            let timeout = match &digest.info.timeout {
                None => request_timeout,
                Some(Ok(timeout)) if timeout.is_zero() || *timeout > request_timeout => {
                    request_timeout
                }
                Some(Ok(timeout)) => *timeout,
                Some(Err(error)) => return Err(Refusal::BadTimeout(error.clone())),
            };
            Some(inbound.received.plus(timeout))
        };
        let Inbound {
            request,
            peer,
            received,
            context,
        } = inbound;
        Ok(Self {
            request,
            digest,
            identity: None,
            kind,
            peer,
            received,
            deadline,
            context,
        })
    }
}
