//! The layer: recognizes evictions, and hands them to the evictor, the upstream, or both.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tower::{Layer, Service};

use crate::{
    data_side::DataSide,
    events::EvictionOutcome,
    evictor::Evictor,
    path::{PathMatch, PodPlace},
    responses::{EvictionEnd, reply_unchanged},
};
use fairgate_apihttp::{negotiate::Output, status_error::StatusError};
use fairgate_base::clock::Clock;
use fairgate_call::{Call, PassingOrBoxed, Refusal, Reply};
use fairgate_core::digest::Verb;
use fairgate_disruption::EvictionMode;

/// Puts an [`Evictor`] in front of a service.
#[derive(Clone, Debug)]
pub struct EvictionLayer {
    shared: Option<Rc<DataSide>>,
}

impl EvictionLayer {
    /// A layer that forwards every request unchanged.
    pub fn none() -> Self {
        Self { shared: None }
    }

    /// A layer for one data core. Procedures run on `control`.
    pub fn new(evictor: Arc<Evictor>, control: Handle, clock: Clock) -> Self {
        Self {
            shared: Some(Rc::new(DataSide {
                evictor,
                control,
                clock,
            })),
        }
    }

    pub(crate) fn data_side(&self) -> Option<&Rc<DataSide>> {
        self.shared.as_ref()
    }
}

impl<S> Layer<S> for EvictionLayer {
    type Service = EvictionService<S>;

    fn layer(&self, inner: S) -> EvictionService<S> {
        EvictionService {
            shared: self.shared.clone(),
            inner,
        }
    }
}

/// See [`EvictionLayer`].
#[derive(Clone, Debug)]
pub struct EvictionService<S> {
    shared: Option<Rc<DataSide>>,
    inner: S,
}

impl<S> Service<Call> for EvictionService<S>
where
    S: Service<Call, Response = Reply, Error = Refusal> + Clone + 'static,
    S::Future: 'static,
{
    type Response = Reply;
    type Error = Refusal;
    type Future = Evicting<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let Some(shared) = &self.shared else {
            return self.pass(call);
        };
        let place = PathMatch::of(&call.digest.info);
        if place == PathMatch::Other {
            return self.pass(call);
        }
        let creates = call.digest.info.verb == Verb::Create;
        match (shared.evictor.mode, place) {
            (EvictionMode::Authoritative, PathMatch::Eviction(place)) => {
                let evicting = Rc::clone(shared).evict(call, place);
                Evicting::uncounted(PassingOrBoxed::boxed(evicting))
            }
            // Not forwarded: an upstream that cleans paths would evict the pod, although the gateway decides here.
            (EvictionMode::Authoritative, _) => {
                let end = EvictionEnd::failed(&StatusError::no_route(), "malformed", Output::JSON);
                shared.evictor.count(end.outcome);
                let reply = reply_unchanged(end.response, &call.context);
                Evicting::uncounted(PassingOrBoxed::ready(Ok(reply)))
            }
            (EvictionMode::Precheck, PathMatch::Eviction(place)) if creates => {
                let checked = check(Rc::clone(shared), call, place, self.inner.clone());
                Evicting::uncounted(PassingOrBoxed::boxed(checked))
            }
            (EvictionMode::Relay, PathMatch::Eviction(_)) if creates => Evicting {
                counted: Counted::new(shared),
                reply: PassingOrBoxed::passing(self.inner.call(call)),
            },
            _ => self.pass(call),
        }
    }
}

impl<S> EvictionService<S>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    fn pass(&mut self, call: Call) -> Evicting<S::Future> {
        Evicting::uncounted(PassingOrBoxed::passing(self.inner.call(call)))
    }
}

/// Refuses an eviction, or forwards it.
async fn check<S>(
    shared: Rc<DataSide>,
    mut call: Call,
    place: PodPlace,
    mut inner: S,
) -> Result<Reply, Refusal>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    let counted = Counted::new(&shared);
    match shared.check(&mut call, &place).await {
        // `check` has counted it.
        Ok(Some(reply)) => {
            counted.forget();
            Ok(reply)
        }
        Ok(None) => counted.ended(inner.call(call).await),
        Err(refusal) => counted.ended(Err(refusal)),
    }
}

/// An eviction that the upstream decides: counted by its response, or as abandoned when dropped.
struct Counted(Option<Arc<Evictor>>);

impl Counted {
    fn new(shared: &DataSide) -> Self {
        Self(Some(Arc::clone(&shared.evictor)))
    }

    fn ended(mut self, result: Result<Reply, Refusal>) -> Result<Reply, Refusal> {
        self.end(&result);
        result
    }

    fn end(&mut self, result: &Result<Reply, Refusal>) {
        let Some(evictor) = self.0.take() else {
            return;
        };
        evictor.count(match result {
            Ok(reply) => EvictionOutcome::of_status(reply.status().as_u16()),
            Err(Refusal::ClientGone) => EvictionOutcome::Abandoned,
            Err(_) => EvictionOutcome::Failed,
        });
    }

    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(evictor) = self.0.take() {
            evictor.count(EvictionOutcome::Abandoned);
        }
    }
}

pin_project! {
    /// The future of [`EvictionService`].
    pub struct Evicting<F> {
        // Set only for what is counted by its response.
        counted: Counted,
        #[pin]
        reply: PassingOrBoxed<F>,
    }
}

impl<F> Evicting<F> {
    /// The layer counts it itself, or it is no eviction.
    fn uncounted(reply: PassingOrBoxed<F>) -> Self {
        let counted = Counted(None);
        Self { counted, reply }
    }
}

impl<F> Future for Evicting<F>
where
    F: Future<Output = Result<Reply, Refusal>>,
{
    type Output = Result<Reply, Refusal>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // A reply is long, and is written once if nobody looks at it: nearly all are not counted.
        if this.counted.0.is_none() {
            return this.reply.poll(cx);
        }
        let polled = this.reply.poll(cx);
        if let Poll::Ready(result) = &polled {
            this.counted.end(result);
        }
        polled
    }
}
