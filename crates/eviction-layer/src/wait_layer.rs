//! The layer that holds evictions until their budgets allow them.
//!
//! The layer is outside of flow control. An eviction that is refused by its budget releases its seat with its reply,
//! and waits here. When its turn comes, the layer sends it again as a complete request: it waits for a seat like any
//! other, is authorized again, and runs the whole procedure. So waiting evictions hold no seats, and no inner layer
//! calls an outer one.
//!
//! Not here: the order of waiting evictions ([`fairgate_disruption::waiting`]), and the reads of their budgets
//! (`budget_reader`).

use std::{
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::WARNING, request::Parts, response};
use http_body_util::BodyExt as _;
use tower::{Layer, Service};

use crate::{
    attempt::{BudgetRefusal, EvictionAttempt, FailedAttempt},
    data_side::DataSide,
    events::EvictionOutcome,
    layer::EvictionLayer,
    path::PathMatch,
    waits::{EvictionWait, HeldPlace},
};
use fairgate_apihttp::response::warning_headers;
use fairgate_base::tasks;
use fairgate_call::{
    Call, ClientBody, Identity, PassingOrBoxed, Peer, Refusal, Reply, ReplyBody, RequestContext,
    RequestKind, RequestProgress,
};
use fairgate_core::{digest::RequestDigest, time::Time};
use fairgate_disruption::waiting::BudgetName;

/// How long an eviction waits at most before it is tried again although its budget allows nothing: its pod may be gone,
/// or need no budget any more.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// The largest request that may wait, in bytes: its head as received, and its body.
const MAX_KEPT: usize = 16 << 10;

/// Makes evictions wait in front of flow control.
#[derive(Clone, Debug)]
pub struct EvictionWaitLayer {
    shared: Option<Rc<DataSide>>,
}

impl EvictionWaitLayer {
    /// The layer that belongs to `eviction`, which is inside flow control.
    pub fn of(eviction: &EvictionLayer) -> Self {
        let shared = eviction.data_side();
        Self {
            shared: shared.filter(|shared| shared.evictor.may_wait()).cloned(),
        }
    }
}

impl<S> Layer<S> for EvictionWaitLayer {
    type Service = EvictionWaitService<S>;

    fn layer(&self, inner: S) -> EvictionWaitService<S> {
        EvictionWaitService {
            shared: self.shared.clone(),
            inner,
        }
    }
}

/// See [`EvictionWaitLayer`].
#[derive(Clone, Debug)]
pub struct EvictionWaitService<S> {
    shared: Option<Rc<DataSide>>,
    inner: S,
}

impl<S> Service<Call> for EvictionWaitService<S>
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
        let PathMatch::Eviction(place) = PathMatch::of(&call.digest.info) else {
            return PassingOrBoxed::passing(self.inner.call(call));
        };
        match shared.evictor.wait.limit_of(&call) {
            Ok(None) => PassingOrBoxed::passing(self.inner.call(call)),
            Ok(Some(limit)) if limit.is_zero() || call.context.head_bytes > MAX_KEPT => {
                PassingOrBoxed::boxed(try_once(Rc::clone(shared), call, self.inner.clone()))
            }
            Ok(Some(limit)) => {
                let wait = Wait {
                    until: call.received.plus(limit),
                    request: KeptRequest::of(&call),
                    shared: Rc::clone(shared),
                    pod: place.pod,
                };
                let answer = wait.evict(call, self.inner.clone());
                PassingOrBoxed::boxed(answer)
            }
            Err(refusal) => PassingOrBoxed::ready(Err(refusal)),
        }
    }
}

/// A copy of the request, from which a call is made for each attempt.
struct KeptRequest {
    head: Parts,
    digest: Arc<RequestDigest>,
    identity: Option<Arc<Identity>>,
    kind: RequestKind,
    peer: Rc<Peer>,
    context: Rc<RequestContext>,
    /// The time limit of each attempt.
    time_limit: Option<Duration>,
    /// When the client stops waiting, if its request says so.
    deadline: Option<Time>,
}

impl KeptRequest {
    fn of(call: &Call) -> Self {
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = call.request.method().clone();
        head.uri = call.request.uri().clone();
        head.version = call.request.version();
        head.headers = call.request.headers().clone();
        let is_own = matches!(&call.digest.info.timeout, Some(Ok(timeout)) if !timeout.is_zero());
        Self {
            head,
            digest: Arc::clone(&call.digest),
            identity: call.identity.clone(),
            kind: call.kind,
            peer: Rc::clone(&call.peer),
            context: Rc::clone(&call.context),
            time_limit: call.deadline.map(|deadline| deadline.since(call.received)),
            deadline: call.deadline.filter(|_| is_own),
        }
    }

    /// The call of a further attempt, which begins `now`.
    fn call(&self, body: &Bytes, now: Time, attempt: EvictionAttempt) -> Call {
        let mut request = Request::from_parts(self.head.clone(), ClientBody::full(body.clone()));
        request.extensions_mut().insert(attempt);
        // The upstream has received requests, but none that changed anything.
        self.context.progress.set(RequestProgress::NotSent);
        self.context.is_refused.set(false);
        self.context.trace.begin_attempt();
        let limit = self.time_limit.map(|limit| now.plus(limit));
        Call {
            request: Box::new(request),
            digest: Arc::clone(&self.digest),
            identity: self.identity.clone(),
            kind: self.kind,
            peer: Rc::clone(&self.peer),
            received: now,
            deadline: self.deadline.or(limit),
            context: Rc::clone(&self.context),
        }
    }
}

/// An eviction that may wait.
struct Wait {
    shared: Rc<DataSide>,
    request: KeptRequest,
    pod: String,
    until: Time,
}

/// The result of an attempt.
enum AttemptEnd {
    /// The result for the client.
    Final(Result<Reply, Refusal>),
    /// A budget has refused it. Its reply is complete, so it holds no seat.
    Refused(RefusedAttempt),
    /// It has failed, and changed nothing.
    Failed(Reply),
}

/// The result for the client if the eviction does not wait, or waits no longer.
struct RefusedAttempt {
    refusal: BudgetRefusal,
    head: response::Parts,
    body: Bytes,
}

impl DataSide {
    /// Counts an eviction that does not wait, or waits no longer.
    fn refused(&self, attempt: RefusedAttempt) -> Reply {
        self.evictor.count(EvictionOutcome::Refused);
        Response::from_parts(attempt.head, ReplyBody::full(attempt.body))
    }
}

/// What ends a pause.
enum Wake {
    Try,
    Stop,
}

impl Wait {
    async fn evict<S>(self, call: Call, mut inner: S) -> Result<Reply, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let refused = match first_attempt(call, &mut inner).await {
            AttemptEnd::Final(result) => return result,
            AttemptEnd::Failed(reply) => return Ok(reply),
            AttemptEnd::Refused(refused) => refused,
        };
        let started = self.shared.clock.now();
        let kept = self.request.context.head_bytes + refused.refusal.body.len();
        let place = (kept <= MAX_KEPT).then(|| self.join(&refused.refusal, started));
        let Some(place) = place.flatten() else {
            return Ok(self.shared.refused(refused));
        };
        self.log_start(&refused.refusal.budget);
        let mut counted = CountedWait {
            shared: &self.shared,
            started,
            attempt: None,
            outcome: None,
        };
        let mut result = self.hold(place, refused, inner, &mut counted).await;
        if let Ok(reply) = &mut result {
            self.warn(reply, started);
        }
        counted.outcome = Some(match &result {
            Ok(reply) => EvictionOutcome::of_status(reply.status().as_u16()),
            Err(Refusal::ClientGone) => EvictionOutcome::Abandoned,
            Err(_) => EvictionOutcome::Failed,
        });
        result
    }

    /// Tries again whenever it is this eviction's turn.
    async fn hold<S>(
        &self,
        mut place: HeldPlace,
        mut refused: RefusedAttempt,
        mut inner: S,
        counted: &mut CountedWait<'_>,
    ) -> Result<Reply, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        while let Wake::Try = self.timed_pause(&place).await {
            let now = self.shared.clock.now();
            let attempt = EvictionAttempt::new(Some(place.place().clone()));
            let call = self
                .request
                .call(&refused.refusal.body, now, attempt.clone());
            counted.attempt = Some(attempt);
            let result = inner.call(call).await;
            counted.attempt = None;
            // Flow control has refused the attempt, not the eviction.
            if let Err(Refusal::TooManyRequests(_)) = result {
                place.stepped_back(self.shared.clock.now());
                continue;
            }
            match finished(result).await {
                AttemptEnd::Final(result) => {
                    if result
                        .as_ref()
                        .is_ok_and(|reply| reply.status().is_success())
                    {
                        place.granted();
                    }
                    return result;
                }
                AttemptEnd::Failed(_) => {
                    place.stepped_back(self.shared.clock.now());
                    continue;
                }
                AttemptEnd::Refused(again) => refused = again,
            }
            if refused.refusal.budget == *place.place().budget() {
                place.refused(&refused.refusal.cause);
            } else {
                // The pod's labels or the budgets have changed.
                drop(place);
                match self.join(&refused.refusal, counted.started) {
                    Some(other) => place = other,
                    None => break,
                }
            }
        }
        Ok(self.shared.refused(refused))
    }

    async fn timed_pause(&self, place: &HeldPlace) -> Wake {
        let from = self.shared.clock.now();
        let wake = self.pause(place).await;
        let paused = self.shared.clock.now().since(from);
        let total = &self.request.context.trace.eviction_wait;
        total.set(Some(total.get().unwrap_or_default() + paused));
        wake
    }

    /// Waits until the eviction is to be tried again, or has waited for long enough.
    async fn pause(&self, place: &HeldPlace) -> Wake {
        let clock = &self.shared.clock;
        let again = clock.now().plus(RETRY_AFTER);
        let until = clock.instant(self.until);
        tokio::select! {
            biased;
            () = self.shared.evictor.waits.ended() => Wake::Stop,
            () = tokio::time::sleep_until(until) => Wake::Stop,
            () = place.turn() => if place.is_lost() { Wake::Stop } else { Wake::Try },
            () = tokio::time::sleep_until(clock.instant(again)) => Wake::Try,
        }
    }

    /// Tells the client for how long its eviction has waited. No header can be sent while it waits.
    fn warn(&self, reply: &mut Reply, started: Time) {
        let waited = self.shared.clock.now().since(started).as_secs_f64();
        let pod = &self.pod;
        let text =
            format!("the eviction of pod {pod} waited {waited:.1} s for its disruption budget");
        for text in warning_headers([text.as_str()]) {
            if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
                reply.headers_mut().append(WARNING, value);
            }
        }
    }

    fn join(&self, refusal: &BudgetRefusal, since: Time) -> Option<HeldPlace> {
        let evictor = &self.shared.evictor;
        let wait = EvictionWait {
            user: self.request.digest.user.name.clone(),
            pod: self.pod.clone(),
            since,
            until: self.until,
            reason: refusal.cause.clone(),
        };
        let place = evictor.waits.join(&refusal.budget, wait)?;
        if evictor.waits.follow() {
            let reading = Arc::clone(evictor).read_budgets();
            tasks::spawn(&self.shared.control, reading);
        }
        Some(place)
    }

    fn log_start(&self, budget: &BudgetName) {
        let user = &self.request.digest.user;
        self.shared.evictor.log_wait(user, &self.pod, budget);
    }
}

/// Carries out an eviction that may not wait although those of its user do: its client wants no wait, or its head is too long to be
/// kept. It gives way to evictions that wait, like any other that arrives.
async fn try_once<S>(shared: Rc<DataSide>, call: Call, mut inner: S) -> Result<Reply, Refusal>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    match first_attempt(call, &mut inner).await {
        AttemptEnd::Final(result) => result,
        AttemptEnd::Failed(reply) => Ok(reply),
        AttemptEnd::Refused(refused) => Ok(shared.refused(refused)),
    }
}

/// The attempt of an eviction that has no place.
async fn first_attempt<S>(mut call: Call, inner: &mut S) -> AttemptEnd
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    let attempt = EvictionAttempt::new(None);
    call.request.extensions_mut().insert(attempt);
    finished(inner.call(call).await).await
}

/// Reads the reply of a refused attempt to its end, which releases its seat.
async fn finished(result: Result<Reply, Refusal>) -> AttemptEnd {
    let mut reply = match result {
        Ok(reply) => reply,
        Err(refusal) => return AttemptEnd::Final(Err(refusal)),
    };
    if reply.extensions_mut().remove::<FailedAttempt>().is_some() {
        return AttemptEnd::Failed(reply);
    }
    let Some(refusal) = reply.extensions_mut().remove::<BudgetRefusal>() else {
        return AttemptEnd::Final(Ok(reply));
    };
    let (head, body) = reply.into_parts();
    match body.collect().await {
        Ok(body) => AttemptEnd::Refused(RefusedAttempt {
            refusal,
            head,
            body: body.to_bytes(),
        }),
        Err(_) => AttemptEnd::Final(Err(Refusal::ClientGone)),
    }
}

/// Counts a wait when it is dropped.
struct CountedWait<'a> {
    shared: &'a DataSide,
    started: Time,
    /// The attempt that is in progress. Once it is carried out, it counts the end of the eviction itself.
    attempt: Option<EvictionAttempt>,
    /// How the eviction has ended; `None` while it has not.
    outcome: Option<EvictionOutcome>,
}

impl Drop for CountedWait<'_> {
    fn drop(&mut self) {
        let DataSide { evictor, clock, .. } = self.shared;
        let waited = clock.now().since(self.started);
        let outcome = self.outcome.unwrap_or(EvictionOutcome::Abandoned);
        evictor.waited(outcome, waited);
        let attempt = self.attempt.as_ref();
        // The client disconnected between two attempts, or before the attempt had a seat.
        if self.outcome.is_none() && !attempt.is_some_and(EvictionAttempt::is_carried_out) {
            evictor.count(outcome);
        }
    }
}

#[cfg(test)]
mod tests;
