//! The future of a layer that hands most calls on as they are.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::{Refusal, Reply};

/// A reply that a layer makes itself, or that it does something with.
type BoxedReply = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

pin_project! {
    /// The reply of the inner service, whose future is `F`, or one of the layer.
    ///
    /// A call that is handed on costs no allocation. One that the layer answers costs a box.
    pub struct PassingOrBoxed<F> {
        #[pin]
        source: ReplySource<F>,
    }
}

pin_project! {
    #[project = ReplySourceProjection]
    enum ReplySource<F> {
        Passing { #[pin] future: F },
        Boxed { reply: BoxedReply },
    }
}

impl<F> PassingOrBoxed<F> {
    /// The future of the inner service.
    pub fn passing(future: F) -> Self {
        Self {
            source: ReplySource::Passing { future },
        }
    }

    /// A future of the layer.
    pub fn boxed(reply: impl Future<Output = Result<Reply, Refusal>> + 'static) -> Self {
        let reply = Box::pin(reply);
        Self {
            source: ReplySource::Boxed { reply },
        }
    }

    /// An answer that is known already.
    pub fn ready(answer: Result<Reply, Refusal>) -> Self {
        Self::boxed(std::future::ready(answer))
    }
}

impl<F> Future for PassingOrBoxed<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().source.project() {
            ReplySourceProjection::Passing { future } => future.poll(cx),
            ReplySourceProjection::Boxed { reply } => reply.as_mut().poll(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn the_answer_is_that_of_the_inner_service_or_of_the_layer() {
        let passing = || PassingOrBoxed::passing(ready(Err(Refusal::ClientGone)));
        let own = [
            passing(),
            PassingOrBoxed::ready(Err(Refusal::UpstreamTimeout)),
        ];
        let [passed, made] = own.map(|future| async { future.await.unwrap_err() });
        assert!(matches!(passed.await, Refusal::ClientGone));
        assert!(matches!(made.await, Refusal::UpstreamTimeout));
    }
}
