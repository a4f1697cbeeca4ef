//! The layer in front of flow control: until the policies are known, requests that may be subject to them wait here, where
//! they hold no seat.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::{
    layer::AdmissionLayer,
    side::{AdmissionSide, Concern},
};
use fairgate_admission::AdmissionMode;
use fairgate_call::{Call, Refusal, Reply};

/// Makes requests wait until the policies are known.
#[derive(Clone, Debug)]
pub struct AdmissionWaitLayer {
    shared: Option<Rc<AdmissionSide>>,
}

impl AdmissionWaitLayer {
    /// The layer that belongs to `admission`, which is inside flow control. In audit mode nothing waits.
    pub fn of(admission: &AdmissionLayer) -> Self {
        let shared = admission.side();
        let waits = |side: &&Rc<AdmissionSide>| side.admitter.mode == AdmissionMode::Enforce;
        Self {
            shared: shared.filter(waits).cloned(),
        }
    }
}

impl<S> Layer<S> for AdmissionWaitLayer {
    type Service = AdmissionWaitService<S>;

    fn layer(&self, inner: S) -> AdmissionWaitService<S> {
        AdmissionWaitService {
            shared: self.shared.clone(),
            inner,
        }
    }
}

/// See [`AdmissionWaitLayer`].
#[derive(Clone, Debug)]
pub struct AdmissionWaitService<S> {
    shared: Option<Rc<AdmissionSide>>,
    inner: S,
}

impl<S> Service<Call> for AdmissionWaitService<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
    S::Future: 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = AwaitingPolicies<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let waiting = self
            .shared
            .as_ref()
            .filter(|shared| shared.must_wait(&call));
        match waiting {
            None => AwaitingPolicies::Passing {
                future: self.inner.call(call),
            },
            Some(shared) => AwaitingPolicies::Waiting {
                answer: Box::pin(wait(Rc::clone(shared), call, self.inner.clone())),
            },
        }
    }
}

impl AdmissionSide {
    /// Whether a request may be subject to policies that are not known yet.
    fn must_wait(&self, call: &Call) -> bool {
        self.admitter.policies.borrowed().is_none()
            && matches!(self.concern(call), Concern::NotReady)
    }
}

async fn wait<S>(shared: Rc<AdmissionSide>, call: Call, mut inner: S) -> Result<Reply, Refusal>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    let known = shared.admitter.policies.known();
    match tokio::time::timeout(shared.admitter.ready_limit, known).await {
        Ok(()) => inner.call(call).await,
        Err(_elapsed) => Ok(AdmissionSide::refusal(&call, false)),
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Reply, Refusal>>>>;

pin_project! {
    /// The future of [`AdmissionWaitService`].
    #[project = AwaitingProjection]
    pub enum AwaitingPolicies<F> {
        Passing { #[pin] future: F },
        Waiting { answer: Answer },
    }
}

impl<F> Future for AwaitingPolicies<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            AwaitingProjection::Passing { future } => future.poll(cx),
            AwaitingProjection::Waiting { answer } => answer.as_mut().poll(cx),
        }
    }
}
