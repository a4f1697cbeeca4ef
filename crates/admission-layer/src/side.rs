//! What a data core does with a request: it checks whether a policy matches, evaluates, and forwards or refuses it.

use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use fairgate_admission::{AdmissionMode, AdmissionRecord, Fidelity, GroupVersionKind};
use fairgate_apihttp::{
    content_type::patch_type, negotiate::Output, posted, request::ApiRequest,
    status_error::StatusError,
};
use fairgate_base::account::ByteBudget;
use fairgate_call::{Call, Refusal, Reply, refusal_reply::REASON_HEADER};
use fairgate_core::{
    digest::{RequestInfo, normalized_path, readable},
    time::Time,
};
use fairgate_gotext::LONGEST_MEDIA_TYPE;
use fairgate_objects::codec::FieldValidation;
use fairgate_upstream::path::push_segment;
use http::{Method, StatusCode, header::UPGRADE};
use tokio::{runtime::Handle, time::Instant};
use tower::Service;

use crate::{
    answered_here::AnsweredHere,
    cluster::published::ForwardedPolicies,
    evaluate::{EarlyReply, Evaluation, EvaluationEnd, Unevaluated},
    guarded::conditional::{CarriedOut, RecordAtEnd},
    limits::audit_places::AuditPlaces,
    limits::body_budget::{self, BodyShare, BufferedBody},
    limits::lack::Lack,
    object::deleted_items::DeletedItems,
    object::object_name::ObjectName,
    object::objects,
    passes::request_evaluator::RequestEvaluator,
    plan::{self, EvaluationPlan},
    recording::record_of,
    replies::dry_run::ThroughInner,
    replies::responses::{RefusedRequest, reasons},
    request::warnings,
    request::write_request::{ForwardedWrite, Subject, WriteVerb},
    upstream::old_read::OldRead,
};

/// How long a request without a deadline may be evaluated.
pub(crate) const EVALUATION_LIMIT: Duration = Duration::from_secs(30);
/// How long after its deadline a request is still evaluated: a dry run then ends at the same deadline with the answer of the
/// layers further inside, which know whether the upstream still executes it.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// What the requests of one core share.
#[derive(Debug)]
pub(crate) struct AdmissionSide {
    pub(crate) evaluator: Arc<RequestEvaluator>,
    answered_here: AnsweredHere,
    pub(crate) control: Handle,
    budget: Arc<ByteBudget>,
    /// The places of requests that are evaluated while they are already forwarded.
    pub(crate) audits: Rc<AuditPlaces>,
}

/// What policies have to do with a request.
#[derive(Debug)]
pub(crate) enum Concern {
    /// Nothing.
    None,
    /// One may match it.
    Evaluate(Arc<ForwardedPolicies>),
    /// They are not known yet.
    NotReady,
    /// Those that are known have not been confirmed for too long: others may be in force.
    Stale,
    /// Its resource is not known. It may be a new version of one that policies are about.
    UnknownResource,
    /// A server that cleans paths would understand it as another request, which policies may match.
    Disguised,
}

impl AdmissionSide {
    pub(crate) fn new(
        evaluator: Arc<RequestEvaluator>,
        answered_here: AnsweredHere,
        control: Handle,
    ) -> Rc<Self> {
        Rc::new(Self {
            budget: evaluator.new_budget(),
            evaluator,
            answered_here,
            control,
            audits: AuditPlaces::new(),
        })
    }

    /// Classifies a request. Without a match it allocates nothing.
    pub(crate) fn concern(&self, call: &Call) -> Concern {
        let info = &call.digest.info;
        let subject = Subject::of(info);
        if self.is_disguised(call, &subject) {
            return Concern::Disguised;
        }
        let Subject::Write(write) = subject else {
            return Concern::None;
        };
        let policies = self.evaluator.policies.borrowed();
        let is_exempt = |are_static| {
            let kind = GroupVersionKind::default();
            let attributes = write.attributes(write.operation, kind, &call.digest.user);
            plan::is_exempt(are_static, &attributes)
        };
        let Some(policies) = &*policies else {
            return if is_exempt(self.evaluator.policies.will_be_static()) {
                Concern::None
            } else {
                Concern::NotReady
            };
        };
        if self.are_stale() && !is_exempt(false) {
            return Concern::Stale;
        }
        let is_unknown = self.needs_discovery(policies, &write, call);
        if !(is_unknown || self.may_match(policies, &write, call)) || self.answered_here.has(call) {
            return Concern::None;
        }
        if is_unknown {
            return Concern::UnknownResource;
        }
        Concern::Evaluate(Arc::clone(policies))
    }

    /// Whether the policies in force must not be used any more. In audit mode they always are.
    pub(crate) fn are_stale(&self) -> bool {
        let evaluator = &self.evaluator;
        evaluator.mode == AdmissionMode::Enforce && evaluator.policies.are_stale(&evaluator.clock)
    }

    /// Whether the upstream must be asked for its resources before a request can be evaluated. In audit mode nothing waits for that.
    fn needs_discovery(
        &self,
        policies: &ForwardedPolicies,
        write: &ForwardedWrite<'_>,
        call: &Call,
    ) -> bool {
        self.evaluator.mode == AdmissionMode::Enforce
            && plan::needs_discovery(&self.evaluator, policies, write, &call.digest.user)
    }

    fn may_match(
        &self,
        policies: &ForwardedPolicies,
        write: &ForwardedWrite<'_>,
        call: &Call,
    ) -> bool {
        plan::may_match(&self.evaluator, policies, write, &call.digest.user)
    }

    /// Whether a server that cleans paths, or reads them differently, would execute a request that policies may match.
    fn is_disguised(&self, call: &Call, subject: &Subject<'_>) -> bool {
        let path = call.digest.info.path();
        let method = call.request.method();
        let is_odd = || {
            memchr::memmem::find(path, b"//").is_some()
                || memchr::memmem::find(path, b"/.").is_some()
        };
        if self.evaluator.mode == AdmissionMode::Audit {
            return false;
        }
        if matches!(subject, Subject::Unreadable) {
            return true;
        }
        if !is_odd() {
            return false;
        }
        let mut cleaned = String::new();
        for segment in normalized_path(&readable(path)).split('/').skip(1) {
            cleaned.push('/');
            push_segment(&mut cleaned, segment);
        }
        let Ok(info) = RequestInfo::parse(method.as_str(), cleaned.as_bytes(), None) else {
            // A GET writes only if it connects to an object, whose path can be read.
            return *method != Method::GET || call.request.headers().contains_key(UPGRADE);
        };
        let policies = self.evaluator.policies.borrowed();
        match (Subject::of(&info), subject, &*policies) {
            (Subject::Write(cleaned), Subject::Write(write), _) if cleaned == *write => false,
            (Subject::Write(cleaned), _, Some(policies)) => {
                self.may_match(policies, &cleaned, call)
                    || self.needs_discovery(policies, &cleaned, call)
            }
            (Subject::None, ..) => false,
            _ => true,
        }
    }

    /// How a request is evaluated by these policies.
    fn plan(
        &self,
        call: &Call,
        write: &ForwardedWrite<'_>,
        policies: &Arc<ForwardedPolicies>,
    ) -> EvaluationPlan {
        EvaluationPlan::new(
            policies,
            &*self.evaluator.cluster,
            write,
            &call.digest.user,
            call.request.uri().query().unwrap_or_default(),
            &objects::header(call.request.headers(), &http::header::USER_AGENT),
        )
    }

    /// Evaluates a request, and forwards or refuses it. In audit mode only one is refused whose media type is too long to be read.
    ///
    /// The body is read before anything is decided about its object. A client may take as long for it as the request may, so what
    /// policies have to do with it is asked again afterwards.
    pub(crate) async fn evaluate<S: Service<Call, Response = Reply, Error = Refusal> + 'static>(
        self: Rc<Self>,
        mut call: Call,
        policies: Arc<ForwardedPolicies>,
        mut inner: S,
    ) -> Result<Reply, Refusal> {
        let digest = Arc::clone(&call.digest);
        let Subject::Write(write) = Subject::of(&digest.info) else {
            return inner.call(call).await;
        };
        let query = call.request.uri().query().unwrap_or_default();
        let plan = self.plan(&call, &write, &policies);
        let output = output(&call);
        let mut evaluation = Evaluation {
            evaluator: Arc::clone(&self.evaluator),
            control: self.control.clone(),
            id: call.context.id,
            started: self.evaluator.clock.now(),
            plan,
            info: digest.info.clone(),
            content_type: objects::header(call.request.headers(), &http::header::CONTENT_TYPE)
                .into_owned(),
            path: call.request.uri().path().trim_end_matches('/').to_owned(),
            raw_query: query.to_owned(),
            body: Bytes::new(),
            decoded: None,
            duplicates: Vec::new(),
            are_yaml: false,
            strict_refusal: None,
            is_silent: Cell::new(false),
            has_no_path: Cell::new(false),
            output,
            share: BodyShare::new(&self.budget, &digest.user),
            evaluated_version: None,
            object_name: ObjectName::default(),
            evaluated_items: Vec::new(),
            deleted_items: DeletedItems::default(),
            dry_warnings: Vec::new(),
            is_answered: Rc::default(),
            applied: None,
        };
        if let Some(refused) = long_media_type(&evaluation) {
            return self.not_evaluated(refused.into(), call, &evaluation).await;
        }
        let until = self.deadline(&call, evaluation.started);
        let read = self.read_body(&mut call, &mut evaluation, until).await;
        match self.evaluator.mode {
            AdmissionMode::Audit => self.audit(call, evaluation, read, inner).await,
            AdmissionMode::Enforce => {
                // A client may take as long for its body as the request may, and others may be in force then.
                let concern = self.concern(&call);
                if let Some(reply) = self.early_refusal(&concern, &call) {
                    return Ok(reply);
                }
                let read = match (read, concern) {
                    (Ok(()), Concern::Evaluate(current)) => {
                        if !Arc::ptr_eq(&current, &policies) {
                            evaluation.plan = self.plan(&call, &write, &current);
                        }
                        evaluation.replace_body(&mut call, until).await
                    }
                    (Ok(()), _) => return inner.call(call).await,
                    (Err(unevaluated), _) => Err(unevaluated),
                };
                let mut reply = self.enforce(call, &mut evaluation, read, inner).await?;
                warn_of_body(&mut reply, &evaluation);
                Ok(reply)
            }
        }
    }

    /// Evaluates a request whose body was read, and forwards or refuses it.
    async fn enforce<S>(
        &self,
        mut call: Call,
        evaluation: &mut Evaluation,
        read: Result<(), Unevaluated>,
        mut inner: S,
    ) -> Result<Reply, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let until = self.deadline(&call, evaluation.started);
        let read = match read {
            Ok(()) => in_time(until, evaluation.choose_name(&mut call)).await,
            unevaluated => unevaluated,
        };
        let may_repeat = self.evaluator.guard || evaluation.chosen_name().is_some();
        let plan = may_repeat.then(|| evaluation.plan.clone());
        let mut end = if let Err(unevaluated) = read {
            Err(unevaluated)
        } else {
            let old = evaluation.start_read();
            evaluated(evaluation, old, &call, &mut inner, until).await
        };
        let mut retries = 0;
        loop {
            let mut verdict = match end {
                Ok(verdict) => verdict,
                Err(unevaluated) => {
                    return self.not_evaluated(unevaluated, call, evaluation).await;
                }
            };
            let record = self.recorded(evaluation, Ok(&mut verdict));
            let carried = self.carry_out(verdict, record, evaluation, call, &mut inner, retries);
            match carried.await? {
                CarriedOut::Reply(reply) => return Ok(reply),
                CarriedOut::Refused(call, refused) => {
                    return Ok(refused.reply(&[], &call.context));
                }
                CarriedOut::Changed(returned, old) => {
                    call = *returned;
                    retries += 1;
                    if let Some(plan) = &plan {
                        evaluation.begin_again(plan);
                    }
                    end = evaluated(evaluation, old, &call, &mut inner, until).await;
                }
                CarriedOut::NameTaken(returned) => {
                    call = *returned;
                    if let Some(plan) = &plan {
                        evaluation.begin_again(plan);
                    }
                    let choosing = evaluation.choose_another_name(&mut call);
                    end = match in_time(until, choosing).await {
                        Ok(()) => {
                            let old = OldRead::None;
                            evaluated(evaluation, old, &call, &mut inner, until).await
                        }
                        Err(unevaluated) => Err(unevaluated),
                    };
                }
            }
        }
    }

    /// Refuses or forwards a request that has been evaluated.
    async fn carry_out<S>(
        &self,
        verdict: EvaluationEnd,
        record: AdmissionRecord,
        evaluation: &mut Evaluation,
        call: Call,
        inner: &mut S,
        retries: u32,
    ) -> Result<CarriedOut, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let recorder = &*self.evaluator.recorder;
        let evaluated = verdict.evaluated;
        if let Some((code, status)) = &evaluated.refusal {
            let reply = self.deny(&call, evaluation, (*code, status), &evaluated, record);
            return Ok(CarriedOut::Reply(reply.await));
        }
        let mut record = RecordAtEnd::new(recorder, record);
        let mut reply = match verdict.reply {
            Some(EarlyReply::DryRun(reply)) => reply.into_reply(),
            Some(EarlyReply::Error(_)) if evaluation.may_choose_another_name() => {
                record.cancel();
                return Ok(CarriedOut::NameTaken(Box::new(call)));
            }
            Some(EarlyReply::Error(late)) => {
                let reply = late.reply(&evaluated.warnings, &call.context);
                return Ok(CarriedOut::Reply(reply));
            }
            None => {
                let is_collection = evaluation.plan.facts.verb == WriteVerb::DeleteCollection;
                let carried = if is_collection && self.evaluator.guard {
                    evaluation
                        .delete_items(call, inner, &mut record, retries)
                        .await
                } else {
                    evaluation.forward(call, inner, &mut record, retries).await
                };
                match carried? {
                    CarriedOut::Reply(reply) => reply,
                    CarriedOut::Refused(call, refused) => {
                        let until = self.deadline(&call, evaluation.started) + GRACE;
                        match self.authorized(&call, evaluation, until).await {
                            Ok(()) => refused.reply(&evaluated.warnings, &call.context),
                            Err(forbidden) => forbidden.reply(&[], &call.context),
                        }
                    }
                    again @ (CarriedOut::Changed(..) | CarriedOut::NameTaken(_)) => {
                        return Ok(again);
                    }
                }
            }
        };
        // A user who may not make the request learns nothing of policies.
        let refusals = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::METHOD_NOT_ALLOWED,
        ];
        // Nor is a server's policy asked about what the server finds wrong before.
        let found = evaluation.plan.facts.findings.error();
        let is_earlier = found.is_some_and(|error| error.code == reply.status());
        if !refusals.contains(&reply.status()) && !is_earlier {
            warnings::merge(reply.headers_mut(), &evaluated.warnings);
        }
        Ok(CarriedOut::Reply(reply))
    }

    /// Reads the body, which stays in the call.
    async fn read_body(
        &self,
        call: &mut Call,
        evaluation: &mut Evaluation,
        until: Instant,
    ) -> Result<(), Unevaluated> {
        let refused = |refused: RefusedRequest| Err(refused.into());
        let output = evaluation.output;
        let verb = evaluation.plan.facts.verb;
        let bad = |error: &StatusError| RefusedRequest::error(error, reasons::MALFORMED, output);
        let is_dry = evaluation.plan.fidelity == Fidelity::DryRun;
        let format = match verb {
            WriteVerb::Connect => return Ok(()),
            // The dry run tells what the upstream does not understand. It understands a media type of any length, but that was refused.
            _ if is_dry && self.evaluator.mode == AdmissionMode::Enforce => Ok(()),
            WriteVerb::Create | WriteVerb::Update => {
                objects::body_format(&evaluation.content_type).map(|_| ())
            }
            WriteVerb::Patch => patch_type(&evaluation.content_type).map(|_| ()),
            WriteVerb::Delete | WriteVerb::DeleteCollection => Ok(()),
        };
        if let Err(error) = format {
            return refused(bad(&error));
        }
        let reading = body_budget::read(call.request.body_mut(), &mut evaluation.share);
        match tokio::time::timeout_at(until, reading).await {
            Ok(BufferedBody::Whole(body)) => {
                evaluation.body = body;
                Ok(())
            }
            Ok(BufferedBody::TooLong) => refused(RefusedRequest::too_long(output)),
            Ok(BufferedBody::NoRoom) => refused(RefusedRequest::no_room(output)),
            Ok(BufferedBody::Broken) => Err(Unevaluated::Inner(Refusal::ClientGone)),
            Err(_elapsed) => refused(bad(&StatusError::timeout())),
        }
    }

    pub(crate) fn deadline(&self, call: &Call, started: Time) -> Instant {
        let until = call
            .deadline
            .unwrap_or_else(|| started.plus(EVALUATION_LIMIT));
        self.evaluator.clock.instant(until)
    }

    /// Records that a request was forwarded although the policies are not known.
    pub(crate) fn record_unknown(&self, call: &Call) {
        let Subject::Write(write) = Subject::of(&call.digest.info) else {
            return;
        };
        let policies = Arc::new(ForwardedPolicies::default());
        let (cluster, user) = (&*self.evaluator.cluster, &call.digest.user);
        let plan = EvaluationPlan::new(&policies, cluster, &write, user, "", "");
        let unevaluated = Unevaluated::Failed("the policies are not known yet".to_owned());
        let now = self.evaluator.clock.now();
        let id = call.context.id;
        let record = record_of(&self.evaluator, &plan, id, now, Err(&unevaluated));
        self.evaluator.recorder.record(record);
    }

    pub(crate) fn recorded(
        &self,
        evaluation: &Evaluation,
        end: Result<&mut EvaluationEnd, &Unevaluated>,
    ) -> AdmissionRecord {
        let (id, started) = (evaluation.id, evaluation.started);
        record_of(&self.evaluator, &evaluation.plan, id, started, end)
    }
}

/// The refusal of a write whose media type is too long to be read here. A server reads it: forwarded, the write would be carried out, in audit
/// mode without a verdict, and a server-side apply would be evaluated as another patch. A connection has no body that anybody reads.
fn long_media_type(evaluation: &Evaluation) -> Option<RefusedRequest> {
    let content_type = &evaluation.content_type;
    if content_type.len() <= LONGEST_MEDIA_TYPE {
        return None;
    }
    let read = match evaluation.plan.facts.verb {
        WriteVerb::Connect => return None,
        WriteVerb::Patch => patch_type(content_type).map(|_| ()),
        _ => objects::body_format(content_type).map(|_| ()),
    };
    let refused = |error| RefusedRequest::error(&error, reasons::MALFORMED, evaluation.output);
    read.err().map(refused)
}

/// What is to be done until `until`.
async fn in_time<T>(
    until: Instant,
    work: impl Future<Output = Result<T, Unevaluated>>,
) -> Result<T, Unevaluated> {
    let done = tokio::time::timeout_at(until, work).await;
    done.unwrap_or(Err(Unevaluated::Lacking(Lack::Time)))
}

/// Evaluates a request, until shortly after its deadline.
async fn evaluated<S>(
    evaluation: &mut Evaluation,
    old: OldRead,
    call: &Call,
    inner: &mut S,
    until: Instant,
) -> Result<EvaluationEnd, Unevaluated>
where
    S: Service<Call, Response = Reply, Error = Refusal>,
{
    let evaluator = Arc::clone(&evaluation.evaluator);
    let mut runs = ThroughInner(inner, &evaluator.workers);
    let evaluating = evaluation.run(old, Some((&mut runs, call)));
    let evaluated = tokio::time::timeout_at(until + GRACE, evaluating).await;
    evaluated.unwrap_or_else(|_elapsed| Err(Unevaluated::Lacking(Lack::Time)))
}

/// Adds the warnings about duplicate fields of a request to its response, unless its user may not make it.
fn warn_of_body(reply: &mut Reply, evaluation: &Evaluation) {
    let is_denied = |reply: &Reply| {
        let reason = reply.headers().get(REASON_HEADER);
        reason.is_some_and(|reason| reason == reasons::DENIED)
    };
    let refusals = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
    let is_about_body = !evaluation.is_silent.get()
        && evaluation.plan.query.field_validation() == FieldValidation::Warn;
    if is_about_body && (!refusals.contains(&reply.status()) || is_denied(reply)) {
        warnings::put_first(reply.headers_mut(), &evaluation.duplicates);
    }
}

/// The format in which the client wants a `Status`.
pub(crate) fn output(call: &Call) -> Output {
    posted::output(&ApiRequest::of(call)).unwrap_or(Output::JSON)
}
