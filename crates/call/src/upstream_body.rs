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

use super::{AbandonedResponse, BodyError, UpstreamConnection};

/// How the body ends for the client when the upstream fails within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// An incomplete body: a reset stream, or a closed connection.
    Error,
    /// A clean end, only for watches that have begun: their clients watch again.
    EndCleanly,
}

/// The body of a response, and the connection that it is read from.
pub(super) struct UpstreamBody {
    /// `None` once the rest was abandoned.
    body: Option<Incoming>,
    connection: Option<Rc<dyn UpstreamConnection>>,
    on_failure: OnFailure,
    /// How long the upstream may send nothing; `None` for any time.
    silence: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the upstream has ended it, or it failed.
    ended: bool,
}

impl UpstreamBody {
    /// `silence` bounds the time between two frames; `None` for streams that may pause for any time.
    pub(super) fn new(
        body: Incoming,
        connection: Rc<dyn UpstreamConnection>,
        on_failure: OnFailure,
        silence: Option<Duration>,
    ) -> Self {
        Self {
            body: Some(body),
            connection: Some(connection),
            on_failure,
            silence,
            timer: None,
            ended: false,
        }
    }

    /// Whether the body has ended, completely or with a failure.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the upstream will send nothing more.
    pub(super) fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }

    /// From now on the upstream may be silent for any time.
    pub(super) fn allow_silence(&mut self) {
        self.silence = None;
        self.timer = None;
    }

    /// Releases the connection, with the rest of the response if there is one.
    pub(super) fn release(&mut self, clean: bool) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match self
            .body
            .take_if(|body| !self.ended && !body.is_end_stream())
        {
            Some(rest) => connection.abandon(AbandonedResponse::Body(rest)),
            None => connection.release(clean),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        match Pin::new(body).poll_frame(cx) {
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
                self.release(false);
                Poll::Ready(match self.on_failure {
                    OnFailure::Error => Some(Err(BodyError::Upstream(error))),
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
