//! What a data core does for an eviction: it authorizes the caller, reads the body, and waits for the procedure.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};

use crate::{
    attempt::{BudgetRefusal, EvictionAttempt, FailedAttempt},
    body::{self, BodyRefusal, DecodedBody},
    client_link::{self, ProcedureEnd, RequestEnd},
    events::EvictionOutcome,
    evictor::Evictor,
    path::{MAX_NAME, PodPlace},
    responses::{EvictionEnd, reply, reply_unchanged},
};
use fairgate_apihttp::{
    access,
    negotiate::Output,
    posted::{self, PostOptions},
    request::{ApiRequest, MAX_BODY},
    status_error::StatusError,
};
use fairgate_base::{clock::Clock, tasks};
use fairgate_call::{Call, ClientBody, ReadAhead, Refusal, Reply, RequestContext, RequestProgress};
use fairgate_core::digest::User;
use fairgate_disruption::procedure::{
    machine::EvictionResult, precheck::is_certain, refusal::EvictionRefusal,
    request::EvictionRequest,
};
use fairgate_upstream::access_review::Attributes;

/// The longest time that a client waits for an eviction, as in kube-apiserver.
const EVICTION_LIMIT: Duration = Duration::from_secs(34);
/// The longest time that the reads of a check may delay a request before it is forwarded.
const CHECK_LIMIT: Duration = Duration::from_secs(5);
/// The size in bytes above which a body is decoded on a separate thread.
const LARGE_BODY: usize = 32 << 10;

/// What the evictions of one core share.
#[derive(Debug)]
pub(crate) struct DataSide {
    pub(crate) evictor: Arc<Evictor>,
    pub(crate) control: Handle,
    pub(crate) clock: Clock,
}

/// An eviction that may be carried out.
struct PreparedEviction {
    eviction: EvictionRequest,
    /// Set if the eviction may wait, with the body to be sent again then.
    attempt: Option<(EvictionAttempt, Bytes)>,
    user: Arc<User>,
    output: Output,
    warnings: Vec<String>,
}

/// Why there is no eviction: the request is refused, or already answered.
enum NotPrepared {
    Refused(Refusal),
    Answered(Box<EvictionEnd>),
}

impl From<Refusal> for NotPrepared {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<EvictionEnd> for NotPrepared {
    fn from(end: EvictionEnd) -> Self {
        Self::Answered(Box::new(end))
    }
}

impl DataSide {
    /// When the client of a call stops waiting.
    fn deadline(&self, call: &Call) -> Instant {
        let limit = call.received.plus(EVICTION_LIMIT);
        let deadline = call.deadline.map_or(limit, |deadline| deadline.min(limit));
        self.clock.instant(deadline)
    }

    /// Carries out the eviction that `call` requests.
    pub(crate) async fn evict(
        self: Rc<Self>,
        mut call: Call,
        place: PodPlace,
    ) -> Result<Reply, Refusal> {
        let deadline = self.deadline(&call);
        let preparing = self.prepare(&mut call, &place);
        let end = match tokio::time::timeout_at(deadline, preparing).await {
            Ok(Ok(prepared)) => return self.carry_out(prepared, &call.context, deadline).await,
            Ok(Err(NotPrepared::Answered(end))) => *end,
            Ok(Err(NotPrepared::Refused(refusal))) => {
                self.evictor.count(match refusal {
                    Refusal::ClientGone => EvictionOutcome::Abandoned,
                    _ => EvictionOutcome::Failed,
                });
                return Err(refusal);
            }
            Err(_elapsed) => timed_out(Output::JSON),
        };
        self.evictor.count(end.outcome);
        Ok(reply_unchanged(end.response, &call.context))
    }

    /// Authorizes the caller, and only then reads the body.
    async fn prepare(
        &self,
        call: &mut Call,
        place: &PodPlace,
    ) -> Result<PreparedEviction, NotPrepared> {
        let mut request = ApiRequest::of(call);
        let attempt = call.request.extensions_mut().remove::<EvictionAttempt>();
        let attributes = Attributes::of(&call.digest.info);
        let allowed = access::authorize(&self.evictor.authorizer, &request, &attributes).await;
        allowed.map_err(|response| EvictionEnd::answered(response, "forbidden"))?;
        // After authorization, as in kube-apiserver, whose router is behind it.
        if request.method != Method::POST {
            let error = StatusError::method_not_allowed();
            let mut end = EvictionEnd::failed(&error, "method-not-allowed", Output::JSON);
            if request.method == Method::HEAD {
                end.response = end.response.without_body();
            }
            return Err(end.into());
        }
        let failed = |error: &StatusError, output| EvictionEnd::failed(error, "malformed", output);
        let output = posted::output(&request).map_err(|error| failed(&error, Output::JSON))?;
        let (read, is_whole) = read(call.request.body_mut()).await?;
        request.body = is_whole.then(|| joined(&read));
        let options = PostOptions::read(&request).map_err(|error| failed(&error, output))?;
        let body = request.body.unwrap_or_default();
        let decoded = self.decode(options, place.clone(), body.clone()).await?;
        let eviction = decoded.request.map_err(|refusal| {
            let mut end = EvictionEnd::bad_body(&refusal, output);
            end.response = end.response.warn(&decoded.warnings);
            end
        })?;
        if place.pod.len() > MAX_NAME || place.namespace.len() > MAX_NAME {
            // No object has such a name, and it may not fit into a request line.
            let pod = place.pod.clone();
            return Err(EvictionEnd::refused(&EvictionRefusal::PodGone { pod }, output).into());
        }
        Ok(PreparedEviction {
            attempt: attempt
                .filter(|_| !eviction.is_dry_run())
                .map(|attempt| (attempt, body)),
            eviction,
            user: Arc::clone(&call.digest.user),
            output,
            warnings: decoded.warnings,
        })
    }

    /// Decodes a body, on a separate thread if it is so large that other requests of the core would wait.
    async fn decode(
        &self,
        options: PostOptions,
        place: PodPlace,
        body: Bytes,
    ) -> Result<DecodedBody, Refusal> {
        if body.len() <= LARGE_BODY {
            return Ok(body::decode(&options, &place, &body));
        }
        let _turn = self.evictor.decoding.acquire().await;
        let decoding = self
            .control
            .spawn_blocking(move || body::decode(&options, &place, &body));
        decoding.await.map_err(|error| internal(&error))
    }

    /// Starts the procedure on the control runtime, and waits for its end.
    async fn carry_out(
        &self,
        prepared: PreparedEviction,
        context: &Rc<RequestContext>,
        deadline: Instant,
    ) -> Result<Reply, Refusal> {
        let output = prepared.output;
        let body = prepared.attempt.as_ref().map(|(attempt, body)| {
            attempt.carry_out();
            body.clone()
        });
        let (link, procedure) = client_link::link();
        let evictor = Arc::clone(&self.evictor);
        let running = async move { prepared.run(&evictor, procedure).await };
        let task = tasks::spawn_with_result(&self.control, running);
        let mut waiting = Waiting {
            task,
            link,
            context: Rc::clone(context),
        };
        let waited = tokio::time::timeout_at(deadline, waiting.end()).await;
        if let Ok(ended) = waited {
            return ended.map(|end| {
                let mut reply = reply(end.response, context.id);
                if let Some(((budget, cause), body)) = end.refused_by.zip(body) {
                    let refusal = BudgetRefusal {
                        budget,
                        cause,
                        body,
                    };
                    reply.extensions_mut().insert(refusal);
                }
                if end.waits_on {
                    reply.extensions_mut().insert(FailedAttempt);
                }
                reply
            });
        }
        // A procedure that has changed nothing yet changes nothing from now on.
        waiting.link.leave();
        if context.progress.get() == RequestProgress::NotSent {
            // Nothing was changed, and nothing will be.
            return Ok(reply_unchanged(timed_out(output).response, context));
        }
        // The seat is kept until the procedure has ended.
        let id = context.id;
        context.timed_out.set(Box::pin(async move {
            let ended = waiting.end().await;
            ended.map(|end| reply(end.response, id))
        }));
        Err(Refusal::UpstreamTimeout)
    }

    /// Checks an eviction before it is forwarded. Returns the reply if it is refused; otherwise `call` is
    /// as it was.
    pub(crate) async fn check(
        &self,
        call: &mut Call,
        place: &PodPlace,
    ) -> Result<Option<Reply>, Refusal> {
        let deadline = self.deadline(call);
        let checking = self.refusal_of(call, place);
        let end = match tokio::time::timeout_at(deadline, checking).await {
            Ok(end) => end?,
            // The body did not come in time.
            Err(_elapsed) => Some(timed_out(Output::JSON)),
        };
        let context = Rc::clone(&call.context);
        Ok(end.map(|end| {
            self.evictor.count(end.outcome);
            reply_unchanged(end.response, &context)
        }))
    }

    async fn refusal_of(
        &self,
        call: &mut Call,
        place: &PodPlace,
    ) -> Result<Option<EvictionEnd>, Refusal> {
        let mut request = ApiRequest::of(call);
        let Ok(output) = posted::output(&request) else {
            return Ok(None);
        };
        let (user, attributes) = (&call.digest.user, Attributes::of(&call.digest.info));
        let allowed = self.evictor.authorizer.decide(user, &attributes).await;
        // Forwarded, so that the message is the upstream's own.
        if !allowed.is_ok_and(|decision| decision.allowed) {
            return Ok(None);
        }
        let (read, is_whole) = read(call.request.body_mut()).await?;
        request.body = is_whole.then(|| joined(&read));
        // The upstream gets the body as the client sent it, whatever was read of it here.
        call.request.body_mut().put_back(read);
        let Ok(options) = PostOptions::read(&request) else {
            return Ok(None);
        };
        let body = request.body.unwrap_or_default();
        let decoded = self.decode(options, place.clone(), body).await?;
        let refusal = match decoded.request {
            Ok(eviction) => self.checked(eviction).await,
            Err(BodyRefusal::Eviction(refusal)) => Some(refusal).filter(is_certain),
            Err(BodyRefusal::Undecodable(_)) => None,
        };
        Ok(refusal.map(|refusal| {
            let mut end = EvictionEnd::refused(&refusal, output);
            end.response = end.response.warn(&decoded.warnings);
            end
        }))
    }

    async fn checked(&self, eviction: EvictionRequest) -> Option<EvictionRefusal> {
        let evictor = Arc::clone(&self.evictor);
        let checking = async move { evictor.check(eviction).await };
        let task = tasks::spawn_until_dropped(&self.control, checking);
        let checked = tokio::time::timeout(CHECK_LIMIT, task).await;
        // In any uncertain case the upstream decides.
        checked.ok()?.ok()?
    }
}

impl PreparedEviction {
    /// Runs the eviction, and counts and logs its end. On the control runtime.
    async fn run(self, evictor: &Evictor, link: ProcedureEnd) -> EvictionEnd {
        let (namespace, pod) = (self.eviction.namespace.clone(), self.eviction.pod.clone());
        let dry_run = self.eviction.is_dry_run();
        let attempt = self.attempt.map(|(attempt, _)| attempt);
        let may_wait = attempt.is_some();
        let has_waited = attempt
            .as_ref()
            .is_some_and(|attempt| attempt.place.is_some());
        let Some(finished) = evictor.run(self.eviction, link, attempt).await else {
            evictor.count(EvictionOutcome::Abandoned);
            return timed_out(self.output);
        };
        let mut end = EvictionEnd::of(&finished.result, finished.has_changed, self.output);
        if has_waited && !finished.has_changed && finished.result.may_pass() {
            end.waits_on = true;
            return end;
        }
        end.response = end.response.warn(&self.warnings);
        let refusal = match &finished.result {
            EvictionResult::Refused(refusal) if may_wait => Some(refusal),
            _ => None,
        };
        // One that waits already has seen another number of pods. It may be back in a moment.
        let in_vain = refusal
            .and_then(EvictionRefusal::never)
            .filter(|never| never.is_by_spec() || !has_waited);
        if let Some(never) = in_vain {
            end = end.waits_in_vain(never);
        }
        if let Some(refusal) = refusal
            && end.outcome == EvictionOutcome::Refused
            && in_vain.is_none()
        {
            end.refused_by = finished.budget.map(|budget| (budget, refusal.cause()));
            return end;
        }
        evictor.count(end.outcome);
        evictor.log(&self.user, &namespace, &pod, dry_run, &end);
        end
    }
}

/// A request that waits for its procedure.
struct Waiting {
    task: JoinHandle<EvictionEnd>,
    link: RequestEnd,
    context: Rc<RequestContext>,
}

impl Waiting {
    /// Waits for the end of the procedure, and permits it to change something while the client is there.
    async fn end(&mut self) -> Result<EvictionEnd, Refusal> {
        poll_fn(|cx| {
            let context = &self.context;
            if context.has_ended() {
                self.link.leave();
            }
            // From now on the seat is kept if the client disconnects.
            self.link
                .poll_permit(cx, || context.reached(RequestProgress::Sent));
            let ended = std::task::ready!(Pin::new(&mut self.task).poll(cx));
            if context.progress.get() == RequestProgress::NotSent {
                // It was refused, or is a dry run.
                context.is_refused.set(true);
            }
            context.reached(RequestProgress::Done);
            Poll::Ready(ended.map_err(|error| internal(&error)))
        })
        .await
    }
}

fn internal(error: &tokio::task::JoinError) -> Refusal {
    Refusal::Internal(error.to_string().into())
}

fn timed_out(output: Output) -> EvictionEnd {
    EvictionEnd::failed(&StatusError::timeout(), "eviction-timeout", output)
}

/// Reads a body, and returns what was read, and whether that is all. Of a body that is too long, a part
/// remains unread.
async fn read(body: &mut ClientBody) -> Result<(Vec<Bytes>, bool), Refusal> {
    let mut read = ReadAhead::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::ClientGone)?;
        if let Ok(data) = frame.into_data() {
            let is_last = body.has_arrived() && body.ahead_bytes() == 0;
            read.push(data, is_last);
        }
        if read.bytes() > MAX_BODY {
            return Ok((read.into_chunks().collect(), false));
        }
    }
    Ok((read.into_chunks().collect(), true))
}

fn joined(read: &[Bytes]) -> Bytes {
    match read {
        [only] => only.clone(),
        many => many.concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use fairgate_base::events::EventSink;

    use super::*;
    use crate::{test_side, wait_rules::EvictionWaitRules};

    /// Otherwise it would take final seats for watch events that it does not cause.
    #[tokio::test]
    async fn flow_control_knows_that_an_eviction_has_changed_nothing() {
        let rules = EvictionWaitRules::none();
        let side = test_side::without_upstream(rules, EventSink::default());
        let call = test_side::eviction(&side);
        let context = Rc::clone(&call.context);
        let place = PodPlace {
            namespace: "ns".to_owned(),
            pod: "p".to_owned(),
        };
        let reply = side.evict(call, place).await.unwrap();
        assert!(!reply.status().is_success());
        assert!(context.is_refused.get());
    }

    /// Whether a request counts as refused after a procedure that `changes` something, or does not.
    async fn is_refused_after(changes: bool) -> bool {
        let (link, mut procedure) = client_link::link();
        let task = tokio::spawn(async move {
            assert!(!changes || procedure.may_change().await);
            timed_out(Output::JSON)
        });
        let context = Rc::new(RequestContext::default());
        let mut waiting = Waiting {
            task,
            link,
            context: Rc::clone(&context),
        };
        waiting.end().await.unwrap();
        context.is_refused.get()
    }

    #[tokio::test]
    async fn a_procedure_that_may_have_changed_something_counts_as_carried_out() {
        assert!(is_refused_after(false).await);
        assert!(!is_refused_after(true).await);
    }

    #[tokio::test]
    async fn what_is_read_of_small_pieces_holds_none_of_their_buffers() {
        let buffers = vec![b'x'; 1000].into_iter();
        let buffers: Vec<_> = buffers.map(|byte| Bytes::from(vec![byte; 8192])).collect();
        let mut body = ClientBody::empty();
        body.put_back(buffers.iter().map(|buffer| buffer.slice(..1)));
        let (pieces, is_whole) = read(&mut body).await.unwrap();
        let held = buffers.iter().filter(|buffer| !buffer.is_unique()).count();
        assert_eq!(held, 0, "buffers of 8 KiB are held for one byte each");
        assert!(is_whole);
        assert_eq!(joined(&pieces), vec![b'x'; 1000]);
    }

    #[tokio::test]
    async fn a_body_of_one_piece_is_not_copied() {
        let data = Bytes::from(vec![b'x'; 100]);
        let (pieces, _) = read(&mut ClientBody::full(data.clone())).await.unwrap();
        assert_eq!(joined(&pieces).as_ptr(), data.as_ptr());
    }
}
