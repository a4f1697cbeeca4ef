//! From a request whose body was read to what policies say about it: reads the stored object, makes the object that will be
//! stored, and judges.

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use fairgate_admission::AdmissionOperation;
use fairgate_apiserver::{KnownAnswers, Output, StatusError};
use fairgate_call::{Call, Refusal};
use fairgate_core::digest::RequestInfo;
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::{runtime::Handle, task::JoinHandle};

use crate::{
    admitter::Admitter,
    body_budget::BodyShare,
    dry_run::{DryRunEnd, DryRunReply, DryRuns},
    judge_inputs::ReadInputs,
    judge_job::{JudgeJob, JudgedWrite},
    judging::LARGE,
    mode::Fidelity,
    objects::{self, PatchFormat},
    options,
    plan::JudgePlan,
    responses::{RefusedRequest, reasons},
    upstream_objects::StoredObject,
    write_request::WriteVerb,
};

/// A request that is judged, with what is needed of its call: it may be judged when the call is gone.
pub(crate) struct Evaluation {
    pub(crate) admitter: Arc<Admitter>,
    pub(crate) control: Handle,
    pub(crate) plan: JudgePlan,
    pub(crate) info: RequestInfo,
    pub(crate) content_type: String,
    /// The path of the request as it was sent.
    pub(crate) path: String,
    /// The query as it was sent, or empty.
    pub(crate) raw_query: String,
    pub(crate) body: Bytes,
    pub(crate) output: Output,
    pub(crate) share: BodyShare,
    /// The warnings of the upstream about the dry run.
    pub(crate) dry_warnings: Vec<HeaderValue>,
    /// Whether the upstream has answered the request itself: what is read from then on is too new.
    pub(crate) is_answered: Rc<Cell<bool>>,
}

/// What policies say, and how that was found out.
#[derive(Debug, Default)]
pub(crate) struct Evaluated {
    pub(crate) judged: JudgedWrite,
    pub(crate) judging: Duration,
    /// The response to the client's own dry run.
    pub(crate) reply: Option<DryRunReply>,
}

/// Why there is no verdict.
#[derive(Debug)]
pub(crate) enum Unjudged {
    /// The request is wrong, or refused by the upstream.
    Refused(Box<RefusedRequest>),
    /// What is needed could not be read.
    Failed(String),
    /// The object does not exist: the upstream says so.
    Absent,
    /// An inner layer refuses the request.
    Inner(Refusal),
}

impl From<RefusedRequest> for Unjudged {
    fn from(refused: RefusedRequest) -> Self {
        Self::Refused(Box::new(refused))
    }
}

/// The stored object, which is being read.
pub(crate) struct OldRead(Option<ReadTask>);

type ReadTask = AbortOnDrop<Result<Option<StoredObject>, String>>;

/// A task that is aborted when the future that waits for it is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl OldRead {
    async fn end(mut self) -> Result<Option<StoredObject>, Unjudged> {
        let Some(task) = &mut self.0 else {
            return Ok(None);
        };
        let read = (&mut task.0).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        read.map_err(|why| Unjudged::Failed(format!("cannot read the stored object: {why}")))
    }
}

impl Evaluation {
    /// Begins to read the stored object, if the request has one.
    pub(crate) fn start_read(&self) -> OldRead {
        let reads = matches!(
            self.plan.facts.verb,
            WriteVerb::Update | WriteVerb::Patch | WriteVerb::Delete
        );
        OldRead(reads.then(|| {
            let path = objects::stored_path(&self.path, &self.info);
            let upstream = self.admitter.upstream.clone();
            let reading = async move { upstream.object(&path).await };
            AbortOnDrop(self.control.spawn(reading))
        }))
    }

    /// Judges the request. `call` is where a dry run can be made of it.
    ///
    /// # Errors
    ///
    /// Why there is no verdict.
    pub(crate) async fn run<D: DryRuns>(
        &mut self,
        old: OldRead,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<Evaluated, Unjudged> {
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
    ) -> Result<Evaluated, Unjudged> {
        self.set_write_options();
        let (object, reply) = if let Some(found) = self.dry_object(dry).await? {
            found
        } else {
            let object = self.decoded()?;
            (self.settled(object, None), None)
        };
        self.name_by(&object);
        let mut end = self.judge(Some(object), None).await?;
        end.reply = reply;
        Ok(end)
    }

    async fn updated<D: DryRuns>(
        &mut self,
        old: OldRead,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<Evaluated, Unjudged> {
        self.set_write_options();
        let old = self.old(old).await?;
        let (object, reply) = if let Some(found) = self.dry_object(dry).await? {
            found
        } else {
            let object = self.decoded()?;
            (self.settled(object, old.as_ref()), None)
        };
        let mut end = self.judge(Some(object), old).await?;
        end.reply = reply;
        Ok(end)
    }

    async fn patched<D: DryRuns>(
        &mut self,
        old: OldRead,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<Evaluated, Unjudged> {
        self.set_write_options();
        let format = objects::patch_format(&self.content_type);
        let old = self.old(old).await?;
        if matches!(format, Ok(PatchFormat::Apply)) {
            let (object, reply) = self.applied(dry).await?;
            let mut end = self.judge(Some(object), old).await?;
            end.reply = reply;
            return Ok(end);
        }
        let Some(old) = old else {
            return Err(Unjudged::Absent);
        };
        let (object, reply) = if let Some(found) = self.dry_object(dry).await? {
            found
        } else {
            let format = format.map_err(|error| self.bad(&error))?;
            let patched = objects::patched(format, &old, &self.body, &self.plan.facts);
            let object = patched.map_err(|error| self.bad(&error))?;
            (self.settled(object, Some(&old)), None)
        };
        let mut end = self.judge(Some(object), Some(old)).await?;
        end.reply = reply;
        Ok(end)
    }

    async fn deleted(&mut self, old: OldRead) -> Result<Evaluated, Unjudged> {
        self.set_delete_options()?;
        let Some(old) = self.old(old).await? else {
            return Err(Unjudged::Absent);
        };
        self.judge(None, Some(old)).await
    }

    /// Judges each object of a collection. The request is refused if one of them must not be deleted.
    async fn collection(&mut self) -> Result<Evaluated, Unjudged> {
        self.set_delete_options()?;
        let selectors = self.selectors();
        let mut all = Evaluated::default();
        let mut token = String::new();
        loop {
            let (upstream, path) = (self.admitter.upstream.clone(), self.path.clone());
            let (selectors, from) = (selectors.clone(), token);
            let reading = async move { upstream.page(&path, &selectors, &from).await };
            let mut task = AbortOnDrop(self.control.spawn(reading));
            let page = (&mut task.0).await;
            let page = page.unwrap_or_else(|error| Err(error.to_string()));
            let page = page.map_err(|why| {
                Unjudged::Failed(format!("cannot list the stored objects: {why}"))
            })?;
            self.check_unanswered()?;
            if self.plan.facts.kind[2].is_empty() {
                self.set_kind(&page.api_version, &page.kind);
            }
            for mut item in page.items {
                if let Value::Object(members) = &mut item {
                    members.insert("apiVersion".to_owned(), json!(page.api_version));
                    members.insert("kind".to_owned(), json!(page.kind));
                }
                let end = self.judge(None, Some(item)).await?;
                all.judged.add(end.judged);
                all.judging += end.judging;
                // Many of them must not keep the core from other requests.
                tokio::task::yield_now().await;
            }
            token = page.continue_token;
            if token.is_empty() {
                return Ok(all);
            }
        }
    }

    async fn connected(&mut self) -> Result<Evaluated, Unjudged> {
        let (kind, object) = self.plan.query.connect_options(&self.info);
        if self.plan.facts.kind[2].is_empty() {
            self.set_kind("v1", kind);
        }
        self.judge(Some(object), None).await
    }

    /// The parameters of a collection's query that select objects.
    fn selectors(&self) -> String {
        let pairs = self.raw_query.split('&');
        let selecting = pairs.filter(|pair| {
            let key = pair.split('=').next().unwrap_or_default();
            matches!(key, "labelSelector" | "fieldSelector")
        });
        selecting.collect::<Vec<_>>().join("&")
    }

    fn set_write_options(&mut self) {
        let facts = &mut self.plan.facts;
        facts.options = Some(self.plan.query.write_options(facts.verb));
    }

    fn set_delete_options(&mut self) -> Result<(), Unjudged> {
        let sent = if self.body.is_empty() {
            self.plan.query.delete_options()
        } else {
            let read = objects::delete_options(&self.content_type, &self.body);
            read.map_err(|error| self.bad(&error))?
        };
        let facts = &mut self.plan.facts;
        facts.dry_run |= sent["dryRun"].as_array().is_some_and(|all| !all.is_empty());
        facts.options = Some(options::delete_options_of(sent));
        Ok(())
    }

    fn set_kind(&mut self, api_version: &str, kind: &str) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.plan.facts.kind = [group, version, kind].map(str::to_owned);
    }

    /// Takes the kind of an object if the upstream's discovery does not tell it.
    fn set_kind_by(&mut self, object: &Value) {
        if self.plan.facts.kind[2].is_empty() {
            let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
            self.set_kind(&text("apiVersion"), &text("kind"));
        }
    }

    /// The object in the body.
    fn decoded(&mut self) -> Result<Value, Unjudged> {
        let format = objects::body_format(&self.content_type).map_err(|error| self.bad(&error))?;
        let (facts, fidelity) = (&self.plan.facts, self.plan.fidelity);
        let decoded = objects::decode(format, &self.body, facts, fidelity);
        let mut object = decoded.map_err(|error| self.bad(&error))?;
        self.set_kind_by(&object);
        if self.plan.fidelity > Fidelity::AsSent {
            objects::complete(&mut object, &self.plan.facts);
        }
        Ok(object)
    }

    /// The stored object. If there is none, the request creates it.
    async fn old(&mut self, read: OldRead) -> Result<Option<Value>, Unjudged> {
        let read = read.end().await?;
        self.check_unanswered()?;
        let Some(stored) = read else {
            self.plan.facts.operation = match self.plan.facts.verb {
                WriteVerb::Update | WriteVerb::Patch => AdmissionOperation::Create,
                _ => self.plan.facts.operation,
            };
            if let Some(options) = &mut self.plan.facts.options
                && self.plan.facts.operation == AdmissionOperation::Create
            {
                options["kind"] = json!("CreateOptions");
            }
            return Ok(None);
        };
        if !self.share.take(stored.length) {
            return Err(Unjudged::from(RefusedRequest::no_room(self.output)));
        }
        self.set_kind_by(&stored.value);
        Ok(Some(stored.value))
    }

    /// The result of a dry run, if policies ask for that and the upstream returns the object. The body is then the
    /// upstream's to read, and wrong ones are refused in its words.
    async fn dry_object<D: DryRuns>(
        &mut self,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<Option<(Value, Option<DryRunReply>)>, Unjudged> {
        if self.plan.fidelity < Fidelity::DryRun {
            return Ok(None);
        }
        if let Some((dry, call)) = dry
            && let Some(found) = self.dry_run(dry, call).await?
        {
            return Ok(Some(found));
        }
        self.plan.fidelity = Fidelity::Completed;
        Ok(None)
    }

    /// The object that a body describes, as policies are to see it at the fidelity that they ask for.
    fn settled(&self, mut object: Value, old: Option<&Value>) -> Value {
        if self.plan.fidelity > Fidelity::AsSent {
            let facts = &self.plan.facts;
            let (group, version) = (&facts.group, &facts.version);
            let cluster = &self.admitter.cluster;
            let status = cluster.resource(group, version, &facts.resource, "status");
            objects::settle(&mut object, old, facts, status.is_some());
        }
        object
    }

    /// The result of server-side apply.
    async fn applied<D: DryRuns>(
        &mut self,
        dry: Option<(&mut D, &Call)>,
    ) -> Result<(Value, Option<DryRunReply>), Unjudged> {
        let failed = |why: &str| Unjudged::Failed(why.to_owned());
        let Some((dry, call)) = dry else {
            return Err(failed("server-side apply can only be judged by a dry run"));
        };
        self.plan.fidelity = Fidelity::DryRun;
        let applied = self.dry_run(dry, call).await?;
        applied.ok_or_else(|| failed("the dry run of the apply returned no object"))
    }

    async fn dry_run<D: DryRuns>(
        &mut self,
        dry: &mut D,
        call: &Call,
    ) -> Result<Option<(Value, Option<DryRunReply>)>, Unjudged> {
        let end = dry.dry_run(call, &self.body).await;
        if call.context.has_ended() {
            return Err(Unjudged::Inner(Refusal::ClientGone));
        }
        match end.map_err(Unjudged::Inner)? {
            DryRunEnd::Object(object, reply, warnings) => {
                self.dry_warnings = warnings;
                self.set_kind_by(&object);
                let is_plain = self.output.form.is_none()
                    && self.output.media == fairgate_apiserver::Media::Json;
                let reply = Some(reply).filter(|_| self.plan.facts.dry_run && is_plain);
                Ok(Some((object, reply)))
            }
            DryRunEnd::NoObject => Ok(None),
            DryRunEnd::Refused(status, refusal) => {
                let refused = RefusedRequest::by_upstream(status, refusal, self.output);
                Err(refused.into())
            }
            DryRunEnd::Failed(why) => Err(Unjudged::Failed(why)),
        }
    }

    /// Without a name in the path, that of the object counts. A new namespace is in itself.
    fn name_by(&mut self, object: &Value) {
        let facts = &mut self.plan.facts;
        // The name that a dry run generates is not the one that the object will have.
        let is_generated = self.plan.fidelity == Fidelity::DryRun
            && object["metadata"]["generateName"].is_string();
        if facts.name.is_empty() && !is_generated {
            objects::name_of(object).clone_into(&mut facts.name);
        }
        if facts.is_namespace() && facts.namespace.is_empty() {
            facts.namespace.clone_from(&facts.name);
        }
    }

    async fn judge(
        &mut self,
        object: Option<Value>,
        old_object: Option<Value>,
    ) -> Result<Evaluated, Unjudged> {
        let job = JudgeJob {
            policies: Arc::clone(&self.plan.policies),
            cluster: Arc::clone(&self.admitter.cluster),
            facts: Arc::new(self.plan.facts.clone()),
            object: object.map(Arc::new),
            old_object: old_object.map(Arc::new),
            read: ReadInputs::default(),
            answers: KnownAnswers::new(),
            clock: self.admitter.clock.clone(),
            is_abandoned: Arc::new(AtomicBool::new(false)),
        };
        let is_large = self.share.bytes() > LARGE;
        let judging = self.admitter.judge(job, is_large, &self.control);
        let end = judging.await.map_err(Unjudged::Failed)?;
        Ok(Evaluated {
            judged: end.judged,
            judging: end.judging,
            reply: None,
        })
    }

    fn check_unanswered(&self) -> Result<(), Unjudged> {
        if self.is_answered.get() {
            let why = "the request was carried out before the stored object was read";
            return Err(Unjudged::Failed(why.to_owned()));
        }
        Ok(())
    }

    fn bad(&self, error: &StatusError) -> Unjudged {
        RefusedRequest::error(error, reasons::MALFORMED, self.output).into()
    }
}
