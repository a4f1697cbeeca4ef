//! The layer inside flow control: evaluates requests before they are forwarded.

use std::{
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tower::{Layer, Service};

use crate::{
    answered_here::AnsweredHere,
    passes::request_evaluator::RequestEvaluator,
    side::{AdmissionSide, Concern},
};
use fairgate_admission::AdmissionMode;
use fairgate_call::{Call, PassingOrBoxed, Refusal, Reply};

/// Puts an [`RequestEvaluator`] in front of a service.
#[derive(Clone, Debug)]
pub struct AdmissionLayer {
    shared: Option<Rc<AdmissionSide>>,
}

impl AdmissionLayer {
    /// A layer that forwards every request unchanged.
    pub fn none() -> Self {
        Self { shared: None }
    }

    /// A layer for one data core. What the gateway answers itself is not evaluated here: the hosted API evaluates it. The
    /// gateway's own requests and its worker threads are on `control`.
    pub fn new(
        evaluator: Arc<RequestEvaluator>,
        answered_here: AnsweredHere,
        control: Handle,
    ) -> Self {
        Self {
            shared: Some(AdmissionSide::new(evaluator, answered_here, control)),
        }
    }

    pub(crate) fn side(&self) -> Option<&Rc<AdmissionSide>> {
        self.shared.as_ref()
    }
}

impl<S> Layer<S> for AdmissionLayer {
    type Service = AdmissionService<S>;

    fn layer(&self, inner: S) -> AdmissionService<S> {
        AdmissionService {
            shared: self.shared.clone(),
            inner,
        }
    }
}

/// See [`AdmissionLayer`].
#[derive(Clone, Debug)]
pub struct AdmissionService<S> {
    shared: Option<Rc<AdmissionSide>>,
    inner: S,
}

impl<S> Service<Call> for AdmissionService<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
    S::Future: 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = PassingOrBoxed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let Some(shared) = &self.shared else {
            return PassingOrBoxed::passing(self.inner.call(call));
        };
        match shared.concern(&call) {
            Concern::Evaluate(policies) => {
                let answer = Rc::clone(shared).evaluate(call, policies, self.inner.clone());
                PassingOrBoxed::boxed(answer)
            }
            Concern::NotReady if shared.evaluator.mode == AdmissionMode::Audit => {
                shared.record_unknown(&call);
                PassingOrBoxed::passing(self.inner.call(call))
            }
            concern => match shared.early_refusal(&concern, &call) {
                Some(reply) => PassingOrBoxed::ready(Ok(reply)),
                None => PassingOrBoxed::passing(self.inner.call(call)),
            },
        }
    }
}
