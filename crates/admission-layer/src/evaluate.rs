//! From a request whose body was read to what policies say about it: reads the stored object, makes the object that will be
//! stored, and evaluates.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::{AdmissionMode, AdmissionOperation, EvaluationPasses, Fidelity};
use fairgate_apihttp::{
    content_type::{PatchType, patch_type},
    deletion_checks,
    negotiate::Output,
    status_error::StatusError,
};
use fairgate_base::tasks;
use fairgate_call::{Call, Refusal};
use fairgate_core::{digest::RequestInfo, time::Time};
use fairgate_objects::codec::DecodedObject;
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::{
    limits::body_budget::{BodyShare, ReadFailure},
    limits::{lack::Lack, workers::LARGE},
    object::body_object::{BodyObject, BodyReading},
    object::evaluated_object::Fresh,
    object::guard::{EvaluatedItem, EvaluatedVersion},
    object::object_name::ObjectName,
    object::{deleted_items::DeletedItems, deletions, objects},
    passes::evaluating::EvaluationFailure,
    passes::evaluation_job::{EvaluatedWrite, EvaluationJob},
    passes::request_evaluator::RequestEvaluator,
    plan::EvaluationPlan,
    replies::dry_run::{DryRunReply, DryRuns},
    replies::responses::{RefusedRequest, reasons},
    request::options,
    request::write_request::WriteVerb,
    upstream::old_read::OldRead,
    upstream::upstream_objects::StoredObject,
};

/// A request that is evaluated, with what is needed of its call: it may be evaluated when the call is gone.
pub(crate) struct Evaluation {
    pub(crate) evaluator: Arc<RequestEvaluator>,
    pub(crate) control: Handle,
    /// The ID of the request.
    pub(crate) id: u128,
    /// When the request came to be evaluated.
    pub(crate) started: Time,
    pub(crate) plan: EvaluationPlan,
    pub(crate) info: RequestInfo,
    pub(crate) content_type: String,
    /// The path of the request as it was sent.
    pub(crate) path: String,
    /// The query as it was sent, or empty.
    pub(crate) raw_query: String,
    pub(crate) body: Bytes,
    /// The object in the body, if it was decoded when the body was read, and is evaluated next. Parts that no policy reads are not in it.
    pub(crate) decoded: Option<DecodedObject>,
    /// What was said of the duplicate fields that were removed from the body.
    pub(crate) duplicates: Vec<String>,
    /// Whether these are keys of YAML.
    pub(crate) are_yaml: bool,
    /// The refusal of strict validation for these.
    pub(crate) strict_refusal: Option<StatusError>,
    /// Whether the response says nothing of the body's fields, since the server would not have come to them.
    pub(crate) is_silent: Cell<bool>,
    /// Whether the upstream has said that it does not have the path of the stored object.
    pub(crate) has_no_path: Cell<bool>,
    pub(crate) output: Output,
    pub(crate) share: BodyShare,
    /// The stored object by which it is evaluated.
    pub(crate) evaluated_version: Option<EvaluatedVersion>,
    pub(crate) object_name: ObjectName,
    /// The stored objects of a collection by which its guarded deletion is evaluated.
    pub(crate) evaluated_items: Vec<EvaluatedItem>,
    /// Those that were deleted, also before it was evaluated again.
    pub(crate) deleted_items: DeletedItems,
    /// The warnings of the upstream about the dry run.
    pub(crate) dry_warnings: Vec<HeaderValue>,
    /// Whether the upstream has carried out the request itself: what is read from then on is too new, unless the request is
    /// a dry run.
    pub(crate) is_answered: Rc<Cell<bool>>,
    /// In audit mode, the object that an apply has made.
    pub(crate) applied: Option<Value>,
}

/// What policies say, and how that was found out.
#[derive(Debug, Default)]
pub(crate) struct EvaluationEnd {
    pub(crate) evaluated: EvaluatedWrite,
    pub(crate) evaluating: Duration,
    /// The response, if the request need not be forwarded for it.
    pub(crate) reply: Option<EarlyReply>,
}

/// A response that is known before the request is forwarded.
#[derive(Debug)]
pub(crate) enum EarlyReply {
    /// The one to the client's own dry run.
    DryRun(DryRunReply),
    /// An error that kube-apiserver comes to once policies allow the request.
    Error(Box<RefusedRequest>),
}

/// What a dry run shows.
#[derive(Default)]
pub(crate) struct DrySeen {
    pub(crate) object: Option<Value>,
    pub(crate) reply: Option<EarlyReply>,
}

/// Why there is no verdict.
#[derive(Debug)]
pub(crate) enum Unevaluated {
    /// The request is wrong, or refused by the upstream.
    Refused(Box<RefusedRequest>),
    /// Time or a thread is lacking, whatever the failure policies say.
    Lacking(Lack),
    /// What is needed could not be read.
    Failed(String),
    /// The object does not exist.
    Absent,
    /// An inner layer refuses the request.
    Inner(Refusal),
}

impl From<String> for Unevaluated {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<RefusedRequest> for Unevaluated {
    fn from(refused: RefusedRequest) -> Self {
        Self::Refused(Box::new(refused))
    }
}

impl Evaluation {
    /// Begins to read the stored object, if the request has one.
    pub(crate) fn start_read(&self) -> OldRead {
        let reads = matches!(
            self.plan.facts.verb,
            WriteVerb::Update | WriteVerb::Patch | WriteVerb::Delete
        );
        if !reads {
            return OldRead::None;
        }
        let path = objects::stored_path(&self.path, &self.info);
        let upstream = self.evaluator.upstream.clone();
        let share = self.share.another();
        let reading = async move { upstream.object(&path, share).await };
        OldRead::Reading(tasks::spawn_until_dropped(&self.control, reading))
    }

    /// Evaluates the request. `call` is where a dry run can be made of it.
    ///
    /// # Errors
    ///
    /// Why there is no verdict.
    pub(crate) async fn run<D: DryRuns>(
        &mut self,
        old: OldRead,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        match self.plan.facts.verb {
            WriteVerb::Create => self.created(dry).await,
            WriteVerb::Update => self.updated(old, dry).await,
            WriteVerb::Patch => self.patched(old, dry).await,
            WriteVerb::Delete => self.deleted(old).await,
            WriteVerb::DeleteCollection => self.collection().await,
            WriteVerb::Connect => self.connected().await,
        }
    }

    async fn created<D: DryRuns>(
        &mut self,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        self.set_write_options();
        let mut dry = dry;
        let first = dry.as_mut().map(|(runs, call)| (&mut **runs, *call));
        let seen = self.dry_object(None, first).await?;
        let (object, reply) = match (seen.object, seen.reply) {
            (Some(object), reply) => (object, reply),
            (None, Some(EarlyReply::Error(late))) => match self.object_of_late(dry).await {
                Some(object) => (object, Some(EarlyReply::Error(late))),
                None => return Err(Unevaluated::Refused(late)),
            },
            (None, reply) => {
                let mut end = self.evaluate_body(self.reading()?, None).await?;
                end.reply = reply;
                return Ok(end);
            }
        };
        let is_generated = !matches!(self.object_name, ObjectName::OfClient);
        self.plan.facts_mut().name_by(&object, is_generated);
        let mut end = self.evaluate(Some(object), None).await?;
        end.reply = reply;
        Ok(end)
    }

    async fn updated<D: DryRuns>(
        &mut self,
        old: OldRead,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        self.set_write_options();
        let old = self.old(old).await?;
        if old.is_none() && self.evaluator.guard {
            return Err(Unevaluated::Absent);
        }
        let seen = self.dry_object(old.as_ref(), dry).await?;
        let mut end = match seen.object {
            Some(found) => self.evaluate(Some(found), old).await?,
            None => self.evaluate_body(self.reading()?, old).await?,
        };
        end.reply = seen.reply;
        Ok(end)
    }

    async fn patched<D: DryRuns>(
        &mut self,
        old: OldRead,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        self.set_write_options();
        let old = self.old(old).await?;
        if let Some(applied) = self.applied.take() {
            self.plan.fidelity = Fidelity::Completed;
            self.note_hidden_metrics(&applied, old.as_ref()).await?;
            return self.evaluate(Some(applied), old).await;
        }
        if self.is_apply() {
            let (object, reply) = self.applied(old.as_ref(), dry).await?;
            let mut end = self.evaluate(Some(object), old).await?;
            end.reply = reply;
            return Ok(end);
        }
        let Some(old) = old else {
            return Err(Unevaluated::Absent);
        };
        let seen = self.dry_object(Some(&old), dry).await?;
        let mut end = if let Some(found) = seen.object {
            self.evaluate(Some(found), Some(old)).await?
        } else {
            let format = patch_type(&self.content_type);
            let format = format.map_err(|error| self.bad(&error))?;
            let reading = BodyReading::Patch(format);
            self.evaluate_body(reading, Some(old)).await?
        };
        end.reply = seen.reply;
        Ok(end)
    }

    async fn deleted(&mut self, old: OldRead) -> Result<EvaluationEnd, Unevaluated> {
        self.set_delete_options().await?;
        let Some(old) = self.old(old).await? else {
            return Err(Unevaluated::Absent);
        };
        self.check_deletion(&old)?;
        let is_audit = self.evaluator.mode == AdmissionMode::Audit;
        let options = self.plan.facts.options.as_ref();
        if is_audit && deletions::changes_nothing(options, &old, &self.plan.facts) {
            // The server does not ask its policies.
            return Err(Unevaluated::Absent);
        }
        if let Some(mut options) = self.plan.facts_mut().options.take() {
            deletions::choose(&mut options, &old, &self.plan.facts);
            self.plan.facts_mut().options = Some(options);
        }
        self.evaluate(None, Some(old)).await
    }

    /// Checks the preconditions of a deletion against the stored object.
    pub(crate) fn check_deletion(&self, old: &Value) -> Result<(), Unevaluated> {
        let facts = &self.plan.facts;
        let Some(options) = &facts.options else {
            return Ok(());
        };
        deletions::check(options, old, facts).map_err(|error| self.bad(&error))
    }

    async fn connected(&mut self) -> Result<EvaluationEnd, Unevaluated> {
        let (kind, object) = self.plan.query.connect_options(&self.info);
        if self.plan.facts.kind[2].is_empty() {
            self.plan.facts_mut().set_kind("v1", kind);
        }
        self.evaluate(Some(object), None).await
    }

    /// Whether it is a server-side apply.
    pub(crate) fn is_apply(&self) -> bool {
        let format = patch_type(&self.content_type);
        self.plan.facts.verb == WriteVerb::Patch && matches!(format, Ok(PatchType::Apply))
    }

    fn set_write_options(&mut self) {
        let options = self.plan.query.write_options(self.plan.facts.verb);
        self.plan.facts_mut().options = Some(options);
    }

    pub(crate) async fn set_delete_options(&mut self) -> Result<(), Unevaluated> {
        let sent = if self.body.is_empty() {
            self.plan.query.delete_options()
        } else {
            let (content_type, body) = (self.content_type.clone(), self.body.clone());
            let read = move || objects::delete_options(&content_type, &body);
            let read = self.off_core(self.body.len(), read).await?;
            read.map_err(|error| self.bad(&error))?
        };
        deletion_checks::check_options(&sent).map_err(|error| self.bad(&error))?;
        let facts = self.plan.facts_mut();
        // Options in a body are all that counts, as in kube-apiserver.
        facts.dry_run = sent["dryRun"].as_array().is_some_and(|all| !all.is_empty());
        facts.options = Some(options::delete_options_of(sent));
        Ok(())
    }

    /// Does something on a worker thread if it is about many bytes.
    pub(crate) async fn off_core<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unevaluated> {
        self.off_core_above(LARGE, bytes, work).await
    }

    /// Does something on a worker thread if it is about more bytes than `large`.
    pub(crate) async fn off_core_above<T: Send + 'static>(
        &self,
        large: usize,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Unevaluated> {
        if bytes <= large {
            return Ok(work());
        }
        let user = &self.plan.facts.user.name;
        let done = self.evaluator.workers.run(user, bytes, work).await;
        done.map_err(|_| Unevaluated::Lacking(Lack::Worker))
    }

    /// How the body is read if it is the object.
    pub(crate) fn reading(&self) -> Result<BodyReading, Unevaluated> {
        let format = objects::body_format(&self.content_type).map_err(|error| self.bad(&error))?;
        Ok(BodyReading::Object(format))
    }

    /// The body, as it is to be read.
    pub(crate) async fn body_object(
        &self,
        reading: BodyReading,
    ) -> Result<BodyObject, Unevaluated> {
        let schema = self.custom_schema().await?;
        Ok(BodyObject {
            bytes: self.body.clone(),
            decoded: None,
            reading,
            fidelity: self.plan.fidelity,
            strategy: self.strategy(schema.as_ref()),
            schema,
            fresh: Fresh::new(self.evaluator.clock.unix_seconds()),
            is_new: self.plan.facts.verb == WriteVerb::Create,
            name: self.name_source(),
            owner: self.plan.owner.clone(),
            has_defaults: self.plan.reads_defaults,
            account: self.token_account().await?,
            strictness: self.strictness(),
        })
    }

    /// The object in the body.
    pub(crate) async fn object(&mut self) -> Result<Value, Unevaluated> {
        let mut body = self.body_object(self.reading()?).await?;
        // The object may yet get another name.
        body.is_new = false;
        let mut facts = (*self.plan.facts).clone();
        let read = move || body.read(&mut facts, None).map(|object| (object, facts));
        let read = self.off_core(self.body.len(), read).await?;
        let (object, facts) = read.map_err(|error| self.bad(&error))?;
        self.plan.facts = Arc::new(facts);
        Ok(object)
    }

    /// Evaluates the request by the object in its body. A large one is read on a worker thread, and immediately evaluated there.
    async fn evaluate_body(
        &mut self,
        reading: BodyReading,
        old: Option<Value>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        let mut body = self.body_object(reading).await?;
        let decoded = self.decoded.take();
        if !body.is_large() && self.share.text_bytes() <= LARGE {
            body.decoded = decoded;
            let read = body.read(self.plan.facts_mut(), old.as_ref());
            let object = read.map_err(|error| self.bad(&error))?;
            return self.evaluate(Some(object), old).await;
        }
        // It is read again on the thread, and not held decoded until then.
        drop(decoded);
        let mut job = self.job(None, old);
        job.body = Some(body);
        let end = self.evaluator.evaluate(job, true, &self.control).await;
        let end = end.map_err(|failure| self.unevaluated(failure))?;
        self.plan.facts = end.facts;
        Ok(EvaluationEnd {
            evaluated: end.evaluated,
            evaluating: end.evaluating,
            reply: None,
        })
    }

    /// The end of reading a stored object.
    pub(crate) async fn stored(&self, read: OldRead) -> Result<Option<StoredObject>, Unevaluated> {
        let read = read.end().await;
        self.has_no_path
            .set(matches!(read, Err(ReadFailure::NotServed(_))));
        read.map_err(|failure| self.unread("read the stored object", failure))
    }

    /// The stored object. If there is none, the request creates it.
    async fn old(&mut self, read: OldRead) -> Result<Option<Value>, Unevaluated> {
        let stored = self.stored(read).await?;
        Ok(self.as_old(stored))
    }

    /// Makes a stored object the one before the request.
    pub(crate) fn as_old(&mut self, stored: Option<StoredObject>) -> Option<Value> {
        let Some(stored) = stored else {
            self.plan.facts_mut().operation = match self.plan.facts.verb {
                WriteVerb::Update | WriteVerb::Patch => AdmissionOperation::Create,
                _ => self.plan.facts.operation,
            };
            let facts = self.plan.facts_mut();
            if let Some(options) = &mut facts.options
                && facts.operation == AdmissionOperation::Create
            {
                options["kind"] = json!("CreateOptions");
            }
            self.evaluated_version = self.evaluator.guard.then(EvaluatedVersion::absent);
            return None;
        };
        self.share.join(stored.share);
        self.evaluated_version = Some(EvaluatedVersion::of(&stored.value));
        self.plan.facts_mut().set_kind_by(&stored.value);
        Some(stored.value)
    }

    pub(crate) async fn evaluate(
        &mut self,
        object: Option<Value>,
        old_object: Option<Value>,
    ) -> Result<EvaluationEnd, Unevaluated> {
        let job = self.job(object, old_object);
        let is_large = self.share.text_bytes() > LARGE;
        let end = self.evaluator.evaluate(job, is_large, &self.control).await;
        let end = end.map_err(|failure| self.unevaluated(failure))?;
        Ok(EvaluationEnd {
            evaluated: end.evaluated,
            evaluating: end.evaluating,
            reply: None,
        })
    }

    fn unevaluated(&self, failure: EvaluationFailure) -> Unevaluated {
        match failure {
            EvaluationFailure::BadBody(error) => self.bad(&error),
            EvaluationFailure::NoRoom => RefusedRequest::no_room(self.output).into(),
            EvaluationFailure::Lacking(lack) => Unevaluated::Lacking(lack),
            EvaluationFailure::Unread(why) => Unevaluated::Failed(why),
        }
    }

    fn job(&self, object: Option<Value>, old_object: Option<Value>) -> EvaluationJob {
        EvaluationJob {
            policies: Arc::clone(&self.plan.policies),
            cluster: Arc::clone(&self.evaluator.cluster),
            facts: Arc::clone(&self.plan.facts),
            body: None,
            object: object.map(Arc::new),
            old_object: old_object.map(Arc::new),
            passes: EvaluationPasses::default(),
            converted: Vec::new(),
            clock: self.evaluator.clock.clone(),
            share: self.share.another(),
            is_counted: false,
            is_abandoned: Arc::new(AtomicBool::new(false)),
        }
    }

    pub(crate) fn check_unanswered(&self) -> Result<(), Unevaluated> {
        if self.is_answered.get() && !self.plan.facts.dry_run {
            let why = "the request was carried out before the stored object was read";
            return Err(Unevaluated::Failed(why.to_owned()));
        }
        Ok(())
    }

    /// Why there is no verdict when something could not be read.
    pub(crate) fn unread(&self, what: &str, failure: ReadFailure) -> Unevaluated {
        match failure {
            ReadFailure::NoRoom => RefusedRequest::no_room(self.output).into(),
            ReadFailure::Lacking(lack) => Unevaluated::Lacking(lack),
            failure => Unevaluated::Failed(format!("cannot {what}: {failure}")),
        }
    }

    pub(crate) fn bad(&self, error: &StatusError) -> Unevaluated {
        RefusedRequest::error(error, reasons::MALFORMED, self.output).into()
    }
}
