//! A client's body while an upstream connection sends it, and its recovery if the request must be sent again.
//!
//! If the upstream has not processed a request (because the connection was closed meanwhile, or the upstream
//! refused the stream), the body can be recovered and the request sent again: the part that was not read, and the
//! part that was, as long as it is small.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use fairgate_call::{
    BodyError, ClientBody, ReadAhead, RequestContext, ResetTurn, UpstreamConnection,
};

/// How many bytes of a body that was sent are kept in case it has to be sent again. Objects are rarely larger.
const MOST_KEPT: usize = 32 << 10;

/// Recovers a body. Allocates nothing for a body that is empty from the start.
#[derive(Clone)]
pub(super) struct BodyRecovery(Option<Rc<Inner>>);

struct Inner {
    back: Cell<Option<ClientBody>>,
    /// What was read of it; `None` once it is too large to be kept.
    read: RefCell<Option<ReadAhead>>,
    client_failure: Cell<Option<ClientFailure>>,
}

/// Why a client's body is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientFailure {
    /// The client did not send all of it.
    Incomplete,
    /// It sent too slowly.
    TooSlow,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            back: Cell::default(),
            read: RefCell::new(Some(ReadAhead::default())),
            client_failure: Cell::default(),
        }
    }
}

impl Inner {
    /// Keeps what was read, as long as it is small; `is_last` is whether `data` completes the body.
    fn keep(&self, data: &Bytes, is_last: bool) {
        let mut read = self.read.borrow_mut();
        let Some(kept) = &mut *read else { return };
        if kept.bytes() + data.len() > MOST_KEPT {
            // Frees what was kept, and marks that there is no way back.
            *read = None;
        } else {
            kept.push(data.clone(), is_last);
        }
    }
}

/// A body after an attempt to send it.
pub(super) enum RecoveredBody {
    /// It is complete again.
    Whole(ClientBody),
    /// Part of it is lost.
    Spent,
    /// It was incomplete.
    ClientFailed(ClientFailure),
}

impl BodyRecovery {
    pub(super) fn of(body: &ClientBody) -> Self {
        Self((!body.is_end_stream()).then(Rc::default))
    }

    /// The body, once the connection has dropped it.
    pub(super) fn recover(&self) -> RecoveredBody {
        match &self.0 {
            None => RecoveredBody::Whole(ClientBody::empty()),
            Some(inner) => match (
                inner.client_failure.get(),
                inner.back.take(),
                inner.read.take(),
            ) {
                // First of all: what is left of such a body is not the body that the client meant.
                (Some(failure), ..) => RecoveredBody::ClientFailed(failure),
                (None, Some(mut body), Some(read)) => {
                    body.put_back(read.into_chunks());
                    RecoveredBody::Whole(body)
                }
                _ => RecoveredBody::Spent,
            },
        }
    }
}

/// A client's body while a connection sends it.
pub(crate) struct RetryableBody {
    body: Option<ClientBody>,
    recovery: BodyRecovery,
    context: Rc<RequestContext>,
    failing: Failing,
}

/// What happens when the client does not send all of its body: the stream is reset. On a shared connection that
/// has to wait for its turn, because the number of resets is limited.
enum Failing {
    /// Nothing has failed.
    No(Option<Rc<dyn UpstreamConnection>>),
    /// It has failed; the stream waits for its turn.
    Waiting(ResetTurn, BodyError),
    /// It has failed, and the error was returned.
    Over,
}

impl RetryableBody {
    /// A body to be sent on `shared`, if that is a connection that other requests share.
    pub(super) fn new(
        body: ClientBody,
        recovery: BodyRecovery,
        context: Rc<RequestContext>,
        shared: Option<&Rc<dyn UpstreamConnection>>,
    ) -> Self {
        let shared = shared.filter(|_| !body.is_end_stream());
        Self {
            failing: Failing::No(shared.cloned()),
            body: Some(body),
            recovery,
            context,
        }
    }

    /// The client did not send all of it.
    fn fail(&mut self, error: BodyError) -> Result<(), BodyError> {
        self.context.client_body_failed.set(true);
        if let BodyRecovery(Some(inner)) = &self.recovery {
            inner.client_failure.set(Some(match error {
                BodyError::SentTooSlowly => ClientFailure::TooSlow,
                _ => ClientFailure::Incomplete,
            }));
        }
        // An error of the body makes hyper reset the stream, so it is kept back until a reset has its turn.
        let failing = std::mem::replace(&mut self.failing, Failing::Over);
        let turn = match failing {
            Failing::No(Some(connection)) => connection.reset_turn(),
            Failing::No(None) | Failing::Waiting(..) | Failing::Over => None,
        };
        match turn {
            None => Err(error),
            Some(turn) => {
                self.failing = Failing::Waiting(turn, error);
                Ok(())
            }
        }
    }

    /// Waits for the turn of a body that has failed.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        if let Failing::Waiting(turn, _) = &mut self.failing {
            ready!(turn.as_mut().poll(cx));
        }
        match std::mem::replace(&mut self.failing, Failing::Over) {
            Failing::Waiting(_, error) => Poll::Ready(error),
            Failing::No(_) | Failing::Over => Poll::Ready(BodyError::Abandoned),
        }
    }
}

impl Body for RetryableBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if !matches!(this.failing, Failing::No(_)) {
            return this.poll_turn(cx).map(|error| Some(Err(error)));
        }
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match frame {
            Some(Ok(frame)) => {
                let data = frame.data_ref();
                if let (BodyRecovery(Some(inner)), Some(data)) = (&this.recovery, data) {
                    inner.keep(data, body.is_end_stream());
                }
                let bytes = data.map_or(0, Bytes::len) as u64;
                let seen = &this.context.trace.request_bytes;
                seen.set(seen.get() + bytes);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => match this.fail(error) {
                Ok(()) => self.poll_frame(cx),
                Err(error) => Poll::Ready(Some(Err(error))),
            },
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ClientBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or(SizeHint::with_exact(0), ClientBody::size_hint)
    }
}

impl Drop for RetryableBody {
    fn drop(&mut self) {
        if let BodyRecovery(Some(inner)) = &self.recovery {
            inner.back.set(self.body.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use fairgate_call::ClientBody;
    use http::Method;
    use http_body_util::BodyExt as _;

    use super::*;

    /// Sends a body, and recovers it.
    async fn recovered(body: ClientBody) -> ClientBody {
        let context = Rc::new(RequestContext::new(Method::POST, None, 0));
        let recovery = BodyRecovery::of(&body);
        let mut sent = RetryableBody::new(body, recovery.clone(), context, None);
        while let Some(frame) = sent.frame().await {
            drop(frame.unwrap());
        }
        drop(sent);
        match recovery.recover() {
            RecoveredBody::Whole(body) => body,
            RecoveredBody::Spent | RecoveredBody::ClientFailed(_) => panic!("it is lost"),
        }
    }

    #[tokio::test]
    async fn what_is_kept_of_small_pieces_holds_none_of_their_buffers() {
        let buffers = vec![b'x'; 1000].into_iter();
        let buffers: Vec<_> = buffers.map(|byte| Bytes::from(vec![byte; 8192])).collect();
        let mut body = ClientBody::empty();
        body.put_back(buffers.iter().map(|buffer| buffer.slice(..1)));
        let again = recovered(body).await;
        let held = buffers.iter().filter(|buffer| !buffer.is_unique()).count();
        assert_eq!(held, 0, "buffers of 8 KiB are held for one byte each");
        let again = again.collect().await.unwrap().to_bytes();
        assert_eq!(again, vec![b'x'; 1000]);
    }

    #[tokio::test]
    async fn a_body_of_one_piece_is_not_copied() {
        let data = Bytes::from(vec![b'x'; 100]);
        let again = recovered(ClientBody::full(data.clone())).await;
        let again = again.collect().await.unwrap().to_bytes();
        assert_eq!(again.as_ptr(), data.as_ptr());
    }
}
