//! The service behind a measured stack of layers.

use std::{
    future::{Ready, ready},
    task::{Context, Poll},
};

use fairgate_call::{Call, Refusal, Reply, ReplyBody};
use tower::Service;

/// A leaf that responds at once.
#[derive(Clone)]
pub(crate) struct Leaf;

impl Service<Call> for Leaf {
    type Response = Reply;
    type Error = Refusal;
    type Future = Ready<Result<Reply, Refusal>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Call) -> Self::Future {
        ready(Ok(Reply::new(ReplyBody::full("ok"))))
    }
}
