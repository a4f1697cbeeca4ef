//! A plain concurrency limit, until the dispatcher holds requests back.
//!
//! It does what the API server does without priorities: a request that finds the limit reached is
//! turned away at once. Long-running requests pass.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{Layer, Service};

use crate::call::{BodyEnd, Call, Refusal, Reply, ReplyGuard, refusal::Rejection};

/// Lets so many requests execute at a time, on all cores together. Clones share the limit.
#[derive(Clone, Debug)]
pub struct LimitLayer {
    seats: Arc<Semaphore>,
}

impl LimitLayer {
    /// A limit of `seats` requests.
    pub fn new(seats: usize) -> Self {
        Self {
            seats: Arc::new(Semaphore::new(seats)),
        }
    }

    /// Requests that could execute now.
    pub fn free(&self) -> usize {
        self.seats.available_permits()
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Limit<S> {
        Limit {
            seats: self.seats.clone(),
            inner,
        }
    }
}

/// See [`LimitLayer`].
#[derive(Clone, Debug)]
pub struct Limit<S> {
    seats: Arc<Semaphore>,
    inner: S,
}

impl<S> Service<Call> for Limit<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = Limited<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let seat = if call.kind.is_long_running() {
            None
        } else {
            match self.seats.clone().try_acquire_owned() {
                Ok(seat) => Some(seat),
                Err(_) => return Limited::default(),
            }
        };
        Limited {
            executing: Some(self.inner.call(call)),
            seat,
        }
    }
}

pin_project! {
    /// The future of [`Limit`].
    pub struct Limited<F> {
        // `None`: turned away.
        #[pin]
        executing: Option<F>,
        seat: Option<OwnedSemaphorePermit>,
    }
}

impl<F> Default for Limited<F> {
    fn default() -> Self {
        Self {
            executing: None,
            seat: None,
        }
    }
}

impl<F> Future for Limited<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(executing) = this.executing.as_pin_mut() else {
            return Poll::Ready(Err(Refusal::TooManyRequests(Box::new(Rejection {
                reason: "concurrency-limit",
                retry_after: 1,
            }))));
        };
        let mut reply = ready!(executing.poll(cx))?;
        if let Some(seat) = this.seat.take() {
            reply.body_mut().hold(Box::new(Seat { _seat: seat }));
        }
        Poll::Ready(Ok(reply))
    }
}

/// Held by the reply's body to its end.
struct Seat {
    _seat: OwnedSemaphorePermit,
}

impl ReplyGuard for Seat {
    fn end(self: Box<Self>, _: BodyEnd) {}
}
