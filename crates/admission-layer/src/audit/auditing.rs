//! Audit mode: a request is forwarded at once, and evaluated meanwhile, by what was stored before it.
//!
//! A request that waits for the upstream's answer holds its body and what was read for it, which are counted, but no
//! [place](crate::limits::audit_places) among those that are evaluated.

use std::{cell::Cell, rc::Rc, sync::Arc};

use fairgate_apihttp::response::ApiResponse;
use fairgate_call::{Call, Refusal, Reply};
use http::StatusCode;
use serde_json::Value;
use tower::Service;

use crate::{
    audit::audit_answer::{AnswerSender, AnsweredObject, AuditAnswer, ReadBodies},
    cluster::known_revisions::KnownRevision,
    evaluate::{Evaluation, EvaluationEnd, Unevaluated},
    late_errors,
    limits::audit_places::AuditPlace,
    limits::body_budget::ReadFailure,
    limits::decoded::decoded_bytes,
    object::deletions,
    object::object_name::ObjectName,
    replies::dry_run::NoDryRuns,
    replies::reply_copy::CountedReply,
    replies::responses::RefusedRequest,
    request::write_request::WriteVerb,
    side::{AdmissionSide, EVALUATION_LIMIT},
    upstream::old_read::OldRead,
    upstream::upstream_objects::StoredObject,
};

/// What an audited request holds in memory besides its body and its objects, at most, in bytes.
const AUDIT_BYTES: usize = 4 << 10;
const TOO_MANY: &str = "too many requests are being evaluated";

impl AdmissionSide {
    /// Forwards a request whose body was read, and evaluates it meanwhile.
    pub(crate) async fn audit<S>(
        self: Rc<Self>,
        call: Call,
        mut evaluation: Evaluation,
        read: Result<(), Unevaluated>,
        mut inner: S,
    ) -> Result<Reply, Refusal>
    where
        S: Service<Call, Response = Reply, Error = Refusal>,
    {
        let read = read.and_then(|()| {
            let has_room = evaluation.share.take_decoded(AUDIT_BYTES);
            let no_room = || RefusedRequest::no_room(evaluation.output).into();
            has_room.then_some(()).ok_or_else(no_room)
        });
        if let Err(unevaluated) = read {
            let record = self.recorded(&evaluation, Err(&unevaluated));
            self.evaluator.recorder.record(record);
            if let Unevaluated::Inner(refusal) = unevaluated {
                return Err(refusal);
            }
            return inner.call(call).await;
        }
        let bodies = read_bodies(&evaluation);
        let now = self.evaluator.clock.now();
        let facts = &evaluation.plan.facts;
        let known = self
            .evaluator
            .revisions
            .of(&facts.group, &facts.resource, now);
        let (sender, answer) = AnswerSender::new(bodies, evaluation.share.another());
        let is_answered = Rc::clone(&evaluation.is_answered);
        let place = self.audits.try_take(&call.digest.user);
        let old = place.as_ref().map(|_| evaluation.start_read());
        let audit = BackgroundAudit {
            side: Rc::clone(&self),
            evaluation,
            answer,
            answered: None,
            known,
            is_done: false,
        };
        fairgate_base::turns::spawn_local_boxed(audit.evaluate(place, old));
        let mut call_end = CallEnd {
            is_answered,
            is_refused: false,
        };
        let mut reply = inner.call(call).await;
        call_end.is_refused = (reply.as_ref()).is_ok_and(|reply| reply.status().is_client_error());
        drop(call_end);
        sender.send(&mut reply);
        reply
    }
}

/// Notes at the end of a call that the upstream may have carried it out, also if the client left meanwhile. What it refuses changes
/// nothing.
struct CallEnd {
    is_answered: Rc<Cell<bool>>,
    is_refused: bool,
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        self.is_answered.set(!self.is_refused);
    }
}

/// Which bodies of the upstream's responses tell something of a request.
fn read_bodies(evaluation: &Evaluation) -> ReadBodies {
    match evaluation.plan.facts.verb {
        WriteVerb::Update | WriteVerb::Patch | WriteVerb::Delete => ReadBodies::Successes,
        WriteVerb::Create if evaluation.may_be_unnamed() => ReadBodies::Successes,
        WriteVerb::Create => ReadBodies::Refusals,
        WriteVerb::DeleteCollection | WriteVerb::Connect => ReadBodies::Never,
    }
}

/// A request that is evaluated although it is already forwarded. It is recorded also if the gateway stops before that is done.
struct BackgroundAudit {
    side: Rc<AdmissionSide>,
    evaluation: Evaluation,
    answer: AuditAnswer,
    /// What the body of the answer says, once it was read.
    answered: Option<AnsweredObject>,
    /// The revisions that were known when the request began.
    known: KnownRevision,
    is_done: bool,
}

impl BackgroundAudit {
    /// `old` is being read if there was a place for that.
    async fn evaluate(mut self, place: Option<AuditPlace>, old: Option<OldRead>) {
        let end = self.verdict(place, old).await;
        let mut end = self.settled(end).await;
        self.is_done = true;
        if !matches!(end, Err(Unevaluated::Absent)) {
            self.record(end.as_mut().map_err(|unevaluated| &*unevaluated));
        }
    }

    /// What policies say of the request, whatever happens to it.
    async fn verdict(
        &mut self,
        place: Option<AuditPlace>,
        old: Option<OldRead>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        match self.evaluation.plan.facts.verb {
            WriteVerb::Update | WriteVerb::Patch | WriteVerb::Delete => {
                self.evaluate_change(place, old).await
            }
            WriteVerb::Create if self.evaluation.may_be_unnamed() => {
                drop(place);
                let reply = self.read_body().await?;
                let _place = self.place(None).await?;
                self.evaluation.take_name(reply).await?;
                self.run(OldRead::None).await
            }
            WriteVerb::Create | WriteVerb::DeleteCollection | WriteVerb::Connect => {
                let _place = self.place(place).await?;
                self.run(OldRead::None).await
            }
        }
    }

    /// Evaluates a write of an object that was stored before.
    async fn evaluate_change(
        &mut self,
        place: Option<AuditPlace>,
        old: Option<OldRead>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        let stated = self.evaluation.stated_version().await?;
        let early = match old {
            Some(old) => self.evaluation.stored(old).await,
            None => Err(Unevaluated::Failed(TOO_MANY.to_owned())),
        };
        let is_unanswered = self.answer.is_awaited();
        if let Ok(Some(early)) = &early {
            self.note_version(early.version());
        }
        if self.evaluation.is_apply() {
            drop(place);
            return self.evaluate_apply(early, is_unanswered).await;
        }
        let is_stated = |early: &StoredObject| Some(early.version()) == stated;
        if self.evaluation.plan.facts.dry_run
            || matches!(&early, Ok(Some(early)) if is_stated(early))
        {
            let _place = self.place(place).await?;
            return self.run(OldRead::Known(early?)).await;
        }
        drop(place);
        if let Some(stated) = stated {
            drop(early);
            return self.evaluate_stated(stated).await;
        }
        let status = self.answer.status().await;
        self.check_refusal(status)?;
        if status.is_some_and(|status| status.is_success()) {
            self.read_body().await?;
        }
        let _place = self.place(None).await?;
        let (mut early, failure) = match early {
            Ok(early) => (early, None),
            Err(failure) => (None, Some(failure)),
        };
        let read = early.as_ref().map(StoredObject::version);
        let why = match self.bases(&mut early, status).await {
            Ok(bases) => return self.run_each(bases, None).await,
            Err(why) => why,
        };
        // What the upstream refuses changes nothing.
        let is_refused = status.is_some_and(|status| status.is_client_error());
        let is_before = read.is_some_and(|read| self.is_before(read, status));
        // It may have been taken as one of several bases of which the others could not be read.
        let is_there = early.is_some() == read.is_some();
        // A server may have asked its policies about an older object in its cache, and keeps what they said of that. Where objects
        // cannot be listed, the older one is not known.
        let is_settled = read.is_some_and(|read| read <= self.known.settled);
        let is_known = self.evaluation.is_listed() || is_settled;
        // What the upstream has carried out it has found, also if it was gone when it was read.
        let is_early = is_unanswered && is_before && early.is_some() && is_known;
        match failure {
            Some(failure) => Err(failure),
            None if is_there && (is_refused || is_early) => self.run_by_early(early).await,
            None => Err(Unevaluated::Failed(why)),
        }
    }

    /// Whether the object with the version `read`, which was read before the answer came, may be taken for the one before the request. The upstream
    /// may have carried the request out by then: only the version in its answer shows whether it had.
    fn is_before(&self, read: u64, status: Option<StatusCode>) -> bool {
        let answered = self.answered.as_ref();
        if let Some(version) = answered.and_then(|answered| answered.version) {
            return read < version;
        }
        // API servers other than kube-apiserver may have no versions.
        if read == 0 || status.is_some_and(|status| status.is_client_error()) {
            return true;
        }
        if !status.is_some_and(|status| status.is_success()) {
            // It may have been carried out all the same, so the version must have been known before.
            return read <= self.known.latest;
        }
        // A `Status` says that the object is gone, so it was read before that. If it had the UID that the `Status` states, it was among the bases: it is
        // another object.
        let is_gone = |answered: &AnsweredObject| answered.is_status && answered.uid.is_empty();
        self.evaluation.plan.facts.verb == WriteVerb::Delete && answered.is_some_and(is_gone)
    }

    /// Evaluates a request by what was stored when it was forwarded, or shortly after that.
    async fn run_by_early(
        &mut self,
        early: Option<StoredObject>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        let facts = &self.evaluation.plan.facts;
        let is_marked = |pod: &StoredObject| deletions::may_be_under_way(&pod.value, facts);
        if facts.verb == WriteVerb::Delete && early.as_ref().is_some_and(is_marked) {
            let why = "the pod was already being deleted when it was read";
            return Err(Unevaluated::Failed(why.to_owned()));
        }
        self.run(OldRead::Known(early)).await
    }

    /// Evaluates a write that states a version of its object, but was carried out, or another one was, before the object was read.
    async fn evaluate_stated(&mut self, stated: u64) -> Result<EvaluationEnd, Unevaluated> {
        let status = self.answer.status().await;
        self.check_refusal(status)?;
        let _place = self.place(None).await?;
        match self.evaluation.object_at(stated).await {
            Ok(Some(found)) if found.version() == stated => {
                self.run(OldRead::Known(Some(found))).await
            }
            Ok(_) => {
                let why = "the stored object did not have the version that the request states";
                Err(Unevaluated::Failed(why.to_owned()))
            }
            Err(failure) => Err(Unevaluated::Failed(too_late(&failure))),
        }
    }

    /// Evaluates a server-side apply by the object that it has made.
    async fn evaluate_apply(
        &mut self,
        early: Result<Option<StoredObject>, Unevaluated>,
        is_unanswered: bool,
    ) -> Result<EvaluationEnd, Unevaluated> {
        if self.evaluation.plan.facts.dry_run {
            let why = "a dry run of server-side apply cannot be evaluated in audit mode";
            return Err(Unevaluated::Failed(why.to_owned()));
        }
        let status = self.answer.status().await;
        let Some(status) = status.filter(StatusCode::is_success) else {
            return Err(Unevaluated::Absent);
        };
        self.read_body().await?;
        let version = self.answered.as_ref().and_then(|answered| answered.version);
        let _place = self.place(None).await?;
        let change =
            self.evaluation
                .applied_change(early, is_unanswered, status, version, self.known);
        let (bases, made) = in_time(change).await?;
        self.evaluation.share.join(made.share);
        self.run_each(bases, Some(made.value)).await
    }

    /// What a successful write may be based on, or why that is not known.
    async fn bases(
        &mut self,
        early: &mut Option<StoredObject>,
        status: Option<StatusCode>,
    ) -> Result<Vec<Option<StoredObject>>, String> {
        let unknown = || "the request was carried out before the stored object was read".to_owned();
        let is_deletion = self.evaluation.plan.facts.verb == WriteVerb::Delete;
        if status == Some(StatusCode::CREATED) && !is_deletion {
            return Ok(vec![None]);
        }
        let Some(answered) = &self.answered else {
            return Err(unknown());
        };
        let found = if let Some(version) = answered.version {
            in_time(self.evaluation.possible_bases(early, version, self.known)).await
        } else if is_deletion && answered.is_status {
            in_time(self.evaluation.last_state(early, &answered.uid, self.known)).await
        } else {
            return Err(unknown());
        };
        let bases = found.map_err(|failure| too_late(&failure))?;
        if bases.is_empty() {
            return Err(unknown());
        }
        Ok(bases.into_iter().map(Some).collect())
    }

    /// Evaluates the request by each of the objects that it may be based on. Where the verdicts are not the same, there is none.
    async fn run_each(
        &mut self,
        bases: Vec<Option<StoredObject>>,
        made: Option<Value>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        let plan = (bases.len() > 1).then(|| self.evaluation.plan.clone());
        let mut first = None::<Result<EvaluationEnd, Unevaluated>>;
        for base in bases {
            if let (Some(_), Some(plan)) = (&first, &plan) {
                self.evaluation.begin_again(plan);
            }
            if let (Some(made), Some(_)) = (&made, &plan)
                && !self.evaluation.share.take_decoded(decoded_bytes(made))
            {
                return Err(RefusedRequest::no_room(self.evaluation.output).into());
            }
            self.evaluation.applied.clone_from(&made);
            let end = self.run(OldRead::Known(base)).await;
            match &first {
                Some(first) if !says_same(first, &end) => {
                    let why =
                        "it is not known which version of the stored object it was carried out on";
                    return Err(Unevaluated::Failed(why.to_owned()));
                }
                Some(_) => {}
                None => first = Some(end),
            }
        }
        first.unwrap_or(Err(Unevaluated::Absent))
    }

    /// Evaluates the request by a stored object.
    async fn run(&mut self, old: OldRead) -> Result<EvaluationEnd, Unevaluated> {
        let none = None::<(&mut NoDryRuns, &Call)>;
        in_time(self.evaluation.run(old, none)).await
    }

    /// A place among the requests that are evaluated, if there is none yet.
    async fn place(&self, place: Option<AuditPlace>) -> Result<AuditPlace, Unevaluated> {
        if let Some(place) = place {
            return Ok(place);
        }
        let user = Arc::clone(&self.evaluation.plan.facts.user);
        let taking = Rc::clone(&self.side.audits).take(user);
        let taken = tokio::time::timeout(EVALUATION_LIMIT, taking).await;
        let too_many = || Unevaluated::Failed(TOO_MANY.to_owned());
        taken.ok().flatten().ok_or_else(too_many)
    }

    /// Reads the body of the answer, once the client has it. Returns it.
    async fn read_body(&mut self) -> Result<Option<CountedReply>, Unevaluated> {
        let Some((body, share)) = self.answer.body().await else {
            return Ok(None);
        };
        let (bytes, facts) = (body.clone(), self.evaluation.plan.facts.clone());
        let read = move || AnsweredObject::read(&bytes, &facts);
        let answered = self.evaluation.off_core(body.len(), read).await?;
        if let Some(version) = answered.version {
            self.note_version(version);
        }
        self.answered = Some(answered);
        Ok(Some((body, share)))
    }

    /// The verdict, unless the upstream refuses the request before a server would ask its policies.
    async fn settled(
        &mut self,
        end: Result<EvaluationEnd, Unevaluated>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        let end = end?;
        let status = self.answer.status().await;
        if self.answered.is_none() {
            // It says what is stored now, or what was wrong.
            self.read_body().await?;
        }
        if end.evaluated.checks.is_empty() && status != Some(StatusCode::NOT_FOUND) {
            return Ok(end);
        }
        self.check_refusal(status)?;
        if end.evaluated.refusal.is_some()
            && let Some(status) = status.filter(|status| !status.is_success())
            && let Some(error) = self.evaluation.body_error(&end.evaluated).await
            && (status.is_client_error() || status == error.code)
        {
            // Not the policies would have refused it. What the upstream has accepted was no error, whatever is known here.
            let response = ApiResponse::error(&error, self.evaluation.output);
            return Err(RefusedRequest::earlier(response).into());
        }
        Ok(end)
    }

    /// Whether the upstream's answer is one that a server gives before it asks its policies.
    fn check_refusal(&self, status: Option<StatusCode>) -> Result<(), Unevaluated> {
        let facts = &self.evaluation.plan.facts;
        let is_creation = facts.verb == WriteVerb::Create;
        let answered = self.answered.as_ref();
        let failed = |why: &str| Err(Unevaluated::Failed(why.to_owned()));
        match status {
            Some(StatusCode::CONFLICT) if !is_creation => failed(
                "the upstream refused it because of a conflict, which it finds before policies",
            ),
            Some(StatusCode::CONFLICT) if !late_errors::is_about_pods(facts) => {
                if answered.is_none_or(|answered| answered.reason != "AlreadyExists") {
                    return failed("the upstream refused it because of a conflict");
                }
                if matches!(self.evaluation.object_name, ObjectName::OfServer(_)) {
                    return failed("the names that the upstream has tried are not known");
                }
                Ok(())
            }
            Some(StatusCode::UNPROCESSABLE_ENTITY)
                if answered.is_some_and(|answered| answered.is_validation) =>
            {
                failed("the upstream found the object invalid, which it does before policies")
            }
            Some(StatusCode::NOT_FOUND) if !is_creation => Err(Unevaluated::Absent),
            Some(StatusCode::NOT_FOUND) if facts.subresource.is_empty() => {
                failed("the upstream found no such resource or namespace")
            }
            Some(StatusCode::FORBIDDEN)
                if answered.is_some_and(|answered| answered.is_unauthorized) =>
            {
                failed(
                    "the upstream does not permit it to the user, which it finds before policies",
                )
            }
            // Budgets say it after policies, flow control before.
            Some(StatusCode::TOO_MANY_REQUESTS) if !late_errors::is_about_pods(facts) => {
                failed("the upstream had no room for it before it came to policies")
            }
            Some(
                StatusCode::UNAUTHORIZED
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::NOT_ACCEPTABLE
                | StatusCode::UNSUPPORTED_MEDIA_TYPE
                | StatusCode::SERVICE_UNAVAILABLE,
            ) => failed("the upstream refused it before it came to policies"),
            _ => Ok(()),
        }
    }

    /// Notes that the upstream has come to this revision.
    fn note_version(&self, version: u64) {
        let evaluator = &self.side.evaluator;
        let (facts, now) = (&self.evaluation.plan.facts, evaluator.clock.now());
        let (group, resource) = (&facts.group, &facts.resource);
        evaluator.revisions.note(group, resource, version, now);
    }

    fn record(&self, end: Result<&mut EvaluationEnd, &Unevaluated>) {
        let record = self.side.recorded(&self.evaluation, end);
        self.side.evaluator.recorder.record(record);
    }
}

impl Drop for BackgroundAudit {
    fn drop(&mut self) {
        if !self.is_done {
            let why = "the gateway stopped before it was evaluated";
            self.record(Err(&Unevaluated::Failed(why.to_owned())));
        }
    }
}

/// What is done while a place is taken.
async fn in_time<T, E: From<String>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let done = tokio::time::timeout(EVALUATION_LIMIT, work).await;
    done.unwrap_or_else(|_elapsed| Err("timed out".to_owned().into()))
}

fn too_late(failure: &ReadFailure) -> String {
    format!(
        "the request was carried out before the stored object was read, which cannot be read as it was: {failure}"
    )
}

/// Whether policies say the same of a request, by two objects that it may be based on.
fn says_same(
    one: &Result<EvaluationEnd, Unevaluated>,
    other: &Result<EvaluationEnd, Unevaluated>,
) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.evaluated.says_same(&other.evaluated),
        (Err(Unevaluated::Absent), Err(Unevaluated::Absent)) => true,
        _ => false,
    }
}
