//! The body of an upstream's response, read over the connection that it holds.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::{AbandonedResponse, BodyError, ReadsResponse, UpstreamConnection};

/// How the body ends for the client when the upstream fails within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// An incomplete body: a reset stream, or a closed connection.
    Error,
    /// A clean end, only for watches that have begun: their clients watch again.
    EndCleanly,
}

/// The body of a response, and the connection that it is read from.
pub enum BodyReader {
    /// hyper reads it. The connection is released, or gets the rest, when nobody reads the body any more.
    Hyper(Incoming, Rc<dyn UpstreamConnection>),
    /// The connection reads it.
    Own(Rc<dyn ReadsResponse>),
}

impl BodyReader {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body, _) => body.is_end_stream(),
            Self::Own(connection) => connection.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Hyper(body, _) => body.size_hint(),
            Self::Own(connection) => connection.size_hint(),
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Hyper(body, _) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|error| BodyError::Upstream(error.into())),
            Self::Own(connection) => connection.poll_frame(cx),
        }
    }
}

/// A response's body on its way to the client.
pub(super) struct UpstreamBody {
    /// `None` once the connection was released.
    body: Option<BodyReader>,
    on_failure: OnFailure,
    /// How long the upstream may send nothing; `None` for any time.
    silence: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the upstream has ended it, or it failed.
    ended: bool,
    failed: bool,
}

impl UpstreamBody {
    /// `silence` bounds the time between two frames; `None` for streams that may pause for any time.
    pub(super) fn new(body: BodyReader, on_failure: OnFailure, silence: Option<Duration>) -> Self {
        Self {
            body: Some(body),
            on_failure,
            silence,
            timer: None,
            ended: false,
            failed: false,
        }
    }

    /// Whether the body has ended, completely or with a failure.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the upstream will send nothing more.
    pub(super) fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .map_or(!self.failed, BodyReader::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), BodyReader::size_hint)
    }

    /// From now on the upstream may be silent for any time.
    pub(super) fn allow_silence(&mut self) {
        self.silence = None;
        self.timer = None;
    }

    /// Releases the connection, with the rest of the response if there is one.
    pub(super) fn release(&mut self, clean: bool) {
        let has_rest = !self.ended && !self.is_end_stream();
        match self.body.take() {
            Some(BodyReader::Hyper(rest, connection)) if has_rest => {
                connection.abandon(AbandonedResponse::Body(rest));
            }
            Some(BodyReader::Hyper(_, connection)) => connection.release(clean),
            Some(BodyReader::Own(connection)) => connection.release(clean && !has_rest),
            None => {}
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        match body.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                self.timer = None;
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.ended = true;
                self.release(true);
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                self.ended = true;
                self.failed = true;
                self.release(false);
                Poll::Ready(match self.on_failure {
                    OnFailure::Error => Some(Err(error)),
                    OnFailure::EndCleanly => None,
                })
            }
            Poll::Pending => {
                let Some(silence) = self.silence else {
                    return Poll::Pending;
                };
                let timer = self
                    .timer
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(silence)));
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // The gateway gives up here; the upstream may still be working on the response.
                Poll::Ready(Some(Err(BodyError::Idle)))
            }
        }
    }
}

/// The rest of an upstream's response whose client has disconnected. Dropping it cancels the request upstream.
pub struct RemainingReply(UpstreamBody);

impl RemainingReply {
    pub(super) fn new(body: UpstreamBody) -> Self {
        Self(body)
    }

    /// The next data; `None` once the body has ended. The upstream may be silent for any time.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.allow_silence();
        loop {
            match ready!(self.0.poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(data));
                    }
                }
                Some(Err(_)) | None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for RemainingReply {
    fn drop(&mut self) {
        self.0.release(false);
    }
}
