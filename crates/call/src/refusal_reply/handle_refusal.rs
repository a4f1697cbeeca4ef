//! The layer that turns refusals and panics of inner layers into replies.
//!
//! Every layer inside of it fails with a [`Refusal`]; outside of it there are only replies. A panic
//! while a request is handled becomes a reply with status 500, and the connection and all other
//! requests continue.

use std::{
    any::Any,
    convert::Infallible,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{
    Inbound, Refusal, Reply, RequestContext,
    refusal_reply::{add_flow_uids, reply},
};

/// Makes a service turn refusals and panics into replies.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandleRefusalLayer;

impl<S> Layer<S> for HandleRefusalLayer {
    type Service = HandleRefusal<S>;

    fn layer(&self, inner: S) -> HandleRefusal<S> {
        HandleRefusal { inner }
    }
}

/// See [`HandleRefusalLayer`].
#[derive(Clone, Debug)]
pub struct HandleRefusal<S> {
    inner: S,
}

impl<S> Service<Inbound> for HandleRefusal<S>
where
    S: Service<Inbound, Response = Reply, Error = Refusal>,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = HandleRefusalFuture<S::Future>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, inbound: Inbound) -> Self::Future {
        let context = inbound.context.clone();
        let called = catch_unwind(AssertUnwindSafe(|| self.inner.call(inbound)));
        let (future, panicked) = match called {
            Ok(future) => (Some(future), None),
            Err(panic) => (None, Some(panicked(&*panic))),
        };
        HandleRefusalFuture {
            future,
            panicked,
            context,
        }
    }
}

pin_project! {
    /// The future of [`HandleRefusal`].
    pub struct HandleRefusalFuture<F> {
        #[pin]
        future: Option<F>,
        panicked: Option<Refusal>,
        context: Rc<RequestContext>,
    }
}

impl<F> Future for HandleRefusalFuture<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let polled = match this.future.as_mut().as_pin_mut() {
            None => Err(this.panicked.take().unwrap_or_else(polled_again)),
            Some(future) => match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(done)) => done,
                Err(panic) => Err(panicked(&*panic)),
            },
        };
        let context = &**this.context;
        // Drop what the request holds, its seat above all, before the reply is sent. A panic in a
        // destructor must not replace a reply that is already complete.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            this.future.set(None);
            // The timed-out request holds this context. If it stayed here, the cycle of references would
            // keep both from being freed.
            drop(context.timed_out.take());
        }));
        let mut reply = polled.unwrap_or_else(|refusal| {
            if let Refusal::Internal(detail) = &refusal {
                tracing::error!(%detail, "the gateway failed to handle a request");
            }
            reply(&refusal, context)
        });
        add_flow_uids(reply.headers_mut(), context);
        context.trace.status.set(reply.status().as_u16());
        Poll::Ready(Ok(reply))
    }
}

fn polled_again() -> Refusal {
    Refusal::Internal("a finished request was polled again".into())
}

fn panicked(panic: &(dyn Any + Send)) -> Refusal {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Refusal::Internal(format!("panic: {message}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_internal_error() {
        use crate::{ClientBody, Peer};

        struct Panics;
        impl Service<Inbound> for Panics {
            type Response = Reply;
            type Error = Refusal;
            type Future = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;
            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, _: Inbound) -> Self::Future {
                Box::pin(async { panic!("on purpose") })
            }
        }

        let inbound = Inbound {
            request: Box::new(http::Request::new(ClientBody::empty())),
            peer: Rc::new(Peer::local()),
            received: fairgate_core::time::Time::ZERO,
            context: Rc::new(RequestContext::default()),
        };
        let reply = HandleRefusalLayer
            .layer(Panics)
            .call(inbound)
            .await
            .unwrap();
        assert_eq!(reply.status(), 500);
    }
}
