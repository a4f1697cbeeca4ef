//! The upstream connection behind a response, and what happens to an abandoned response.

use std::{
    cell::Cell,
    fmt,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::{BodyError, unfinished_request::UnfinishedRequest};

/// A response, or the rest of one, that is no longer awaited. Dropping it cancels the request
/// upstream.
pub enum AbandonedResponse {
    /// The response has not begun. Its connection is released when this completes.
    Pending(UnfinishedRequest),
    /// The rest of a response's body.
    Body(Incoming),
}

/// Completes when a stream may be reset.
pub type ResetTurn = Pin<Box<dyn Future<Output = ()>>>;

/// An upstream connection in use by a request.
///
/// The body of a reply holds it as a trait object: this crate does not depend on the pool.
pub trait UpstreamConnection {
    /// The request no longer uses the connection. `clean` is whether its response was read to the end,
    /// so that an HTTP/1 connection can be used again.
    fn release(self: Rc<Self>, clean: bool);

    /// The request no longer uses the connection and leaves a response on it. By default the request is
    /// cancelled immediately.
    fn abandon(self: Rc<Self>, response: AbandonedResponse) {
        let is_body = matches!(response, AbandonedResponse::Body(_));
        drop(response);
        if is_body {
            self.release(false);
        }
    }

    /// To be awaited before a stream of the connection is reset for any other reason; `None` if it may
    /// be reset now.
    fn reset_turn(self: Rc<Self>) -> Option<ResetTurn> {
        None
    }
}

/// An upstream connection that serves one request at a time, and reads the body of its response itself.
///
/// Once the body has ended, or when nobody wants the rest, the connection is released: see [`UpstreamConnection::release`].
pub trait ReadsResponse: UpstreamConnection {
    /// The next frame of the body; `None` at its end.
    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    /// Whether the body has ended.
    fn is_end_stream(&self) -> bool;

    /// How much of the body is to come.
    fn size_hint(&self) -> SizeHint;
}

/// The shared connection on which a response is awaited, if any.
#[derive(Default)]
pub struct AwaitedConnection(Cell<Option<Rc<dyn UpstreamConnection>>>);

impl AwaitedConnection {
    /// The response is awaited on `connection`; with `None`, no longer.
    pub fn set(&self, connection: Option<Rc<dyn UpstreamConnection>>) {
        self.0.set(connection);
    }

    /// The connection, if a response is awaited on one.
    pub fn take(&self) -> Option<Rc<dyn UpstreamConnection>> {
        self.0.take()
    }
}

impl fmt::Debug for AwaitedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitedConnection").finish_non_exhaustive()
    }
}
