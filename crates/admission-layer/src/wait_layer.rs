//! The layer in front of flow control: until the policies are known, requests that may be subject to them wait here, where
//! they hold no seat. So do those for resources that are not known, which may be new versions of those that policies are about.

use std::{
    rc::Rc,
    task::{Context, Poll},
};

use tower::{Layer, Service};

use crate::{
    layer::AdmissionLayer,
    limits::lack::Lack,
    plan,
    replies::responses::{RefusedRequest, reasons},
    request::write_request::Subject,
    side::{AdmissionSide, Concern, output},
};
use fairgate_admission::AdmissionMode;
use fairgate_apihttp::status_error::StatusError;
use fairgate_call::{Call, PassingOrBoxed, Refusal, Reply};

/// Makes requests wait until the policies, and their resources, are known.
#[derive(Clone, Debug)]
pub struct AdmissionWaitLayer {
    shared: Option<Rc<AdmissionSide>>,
}

impl AdmissionWaitLayer {
    /// The layer that belongs to `admission`, which is inside flow control. In audit mode nothing waits.
    pub fn of(admission: &AdmissionLayer) -> Self {
        let shared = admission.side();
        let waits = |side: &&Rc<AdmissionSide>| side.evaluator.mode == AdmissionMode::Enforce;
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
    type Future = PassingOrBoxed<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let waiting = self
            .shared
            .as_ref()
            .filter(|shared| shared.awaited(&call).is_some());
        match waiting {
            None => PassingOrBoxed::passing(self.inner.call(call)),
            Some(shared) => {
                PassingOrBoxed::boxed(wait(Rc::clone(shared), call, self.inner.clone()))
            }
        }
    }
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Policies,
    /// Policies that are confirmed: the request is refused.
    Confirmation,
    /// The resources of the upstream.
    Resources,
}

impl AdmissionSide {
    /// What must be known before a request can be evaluated, and is not.
    fn awaited(&self, call: &Call) -> Option<Awaited> {
        let Subject::Write(write) = Subject::of(&call.digest.info) else {
            return None;
        };
        // Most requests need no more than this.
        let are_known = self.evaluator.policies.borrowed().is_some();
        if are_known && !self.are_stale() && plan::is_known(&*self.evaluator.cluster, &write) {
            return None;
        }
        match self.concern(call) {
            Concern::NotReady => Some(Awaited::Policies),
            Concern::Stale => Some(Awaited::Confirmation),
            Concern::UnknownResource => Some(Awaited::Resources),
            Concern::None | Concern::Evaluate(_) | Concern::Disguised => None,
        }
    }
}

async fn wait<S>(shared: Rc<AdmissionSide>, call: Call, mut inner: S) -> Result<Reply, Refusal>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    let evaluator = &shared.evaluator;
    if shared.awaited(&call) == Some(Awaited::Policies) {
        let known = evaluator.policies.known();
        if tokio::time::timeout(evaluator.ready_limit, known)
            .await
            .is_err()
        {
            return Ok(AdmissionSide::refusal(&call, false));
        }
    }
    if shared.awaited(&call) == Some(Awaited::Confirmation) {
        return Ok(AdmissionSide::stale(&call));
    }
    if shared.awaited(&call) == Some(Awaited::Resources) {
        let Some(_place) = evaluator.waiting.take(&call.digest.user.name) else {
            return Ok(unknown_resource(&call, &Lack::Place.status()));
        };
        let read = evaluator.cluster.resources_read();
        match tokio::time::timeout(evaluator.ready_limit, read).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                let why = format!("fairgate: the resources of the upstream cannot be read: {why}");
                return Ok(unknown_resource(&call, &StatusError::unavailable(why)));
            }
            Err(_elapsed) if evaluator.cluster.are_resources_known() => {
                return Ok(unknown_resource(&call, &Lack::Time.status()));
            }
            Err(_elapsed) => return Ok(AdmissionSide::unread(&call)),
        }
        if shared.awaited(&call) == Some(Awaited::Resources) {
            // The upstream does not serve it. Forwarded, it would be carried out if it was defined just now.
            return Ok(unknown_resource(&call, &StatusError::no_route()));
        }
    }
    inner.call(call).await
}

/// The reply to a request for a resource that is not known.
fn unknown_resource(call: &Call, error: &StatusError) -> Reply {
    RefusedRequest::error(error, reasons::FAILED, output(call)).reply(&[], &call.context)
}
