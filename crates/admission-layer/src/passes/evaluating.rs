//! Evaluates a request in as many passes as it needs: between two of them what is missing is read, and the authorizer is
//! asked.
//!
//! A pass begins on the data core. If it takes longer than [`ON_CORE`], or the objects are large, it runs on one of a few
//! worker threads, so that other requests of the core do not wait. Large bodies are read there, too, immediately before they
//! are evaluated: so only as many are held decoded as there are threads. Objects that stay decoded while something is read are
//! counted in the budget of their core.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fairgate_admission::{LookupLack, MissingSupplies};
use fairgate_apihttp::status_error::StatusError;
use fairgate_base::tasks;
use tokio::runtime::Handle;

use crate::{
    limits::body_budget::ReadFailure,
    limits::decoded::decoded_bytes,
    limits::lack::Lack,
    limits::workers::LARGE,
    passes::evaluation_inputs::MissingInputs,
    passes::evaluation_job::{EvaluatedWrite, EvaluationJob, EvaluationPass},
    passes::request_evaluator::RequestEvaluator,
    request::facts::{HiddenMetrics, WriteFacts},
    upstream::conversion::{self, ConvertedObjects, FoundConversion, KindParts},
};

/// How long a pass may take on a data core.
const ON_CORE: Duration = Duration::from_micros(200);
/// How long a pass may take on a worker thread; expressions are then interrupted. Long enough for any policy within its
/// cost limits although the threads have a low priority, and get little of a busy core.
const ON_WORKER: Duration = Duration::from_secs(10);

/// Sets the flag of a job when nobody waits for it any more.
struct AbandonOnDrop(Arc<AtomicBool>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An evaluated request, and how long evaluating took without waiting.
pub(crate) struct TimedEvaluation {
    pub(crate) evaluated: EvaluatedWrite,
    pub(crate) evaluating: Duration,
    /// With what the body says, if that was read here.
    pub(crate) facts: Arc<WriteFacts>,
}

/// Why a request could not be evaluated.
#[derive(Debug)]
pub(crate) enum EvaluationFailure {
    /// Its body is wrong.
    BadBody(StatusError),
    /// There is no room for its objects while it waits.
    NoRoom,
    /// Time or a thread is lacking.
    Lacking(Lack),
    /// What is needed could not be read.
    Unread(String),
}

impl From<LookupLack> for EvaluationFailure {
    fn from(lack: LookupLack) -> Self {
        match lack {
            LookupLack::Time => Self::Lacking(Lack::Time),
            LookupLack::Place => Self::Lacking(Lack::Read),
            LookupLack::Room => Self::NoRoom,
            LookupLack::Server(why) => Self::Unread(why),
        }
    }
}

impl From<ReadFailure> for EvaluationFailure {
    fn from(failure: ReadFailure) -> Self {
        match failure {
            ReadFailure::NoRoom => Self::NoRoom,
            ReadFailure::Lacking(lack) => Self::Lacking(lack),
            failure => Self::Unread(failure.to_string()),
        }
    }
}

/// Why something was not done on a worker thread.
fn no_worker(_: String) -> EvaluationFailure {
    EvaluationFailure::Lacking(Lack::Worker)
}

/// A job after a pass: what it found, and what it misses.
struct EndedPass {
    job: EvaluationJob,
    end: PassEnd,
}

enum PassEnd {
    Done(EvaluatedWrite),
    /// Errors of expressions that were interrupted are not theirs.
    Interrupted,
    Missing {
        supplies: Option<MissingSupplies>,
        /// The kinds to which the objects of the request are to be converted.
        converted: Vec<KindParts>,
    },
}

impl EndedPass {
    /// # Errors
    ///
    /// [`EvaluationFailure::NoRoom`] if there is to be another pass, and no room for the object until then; what is lacking for one.
    fn new(mut job: EvaluationJob, pass: EvaluationPass) -> Result<Self, EvaluationFailure> {
        let (done, missing) = match pass {
            EvaluationPass::Done(evaluated) => (Some(evaluated), MissingInputs::default()),
            EvaluationPass::Missing(missing) => (None, missing),
            EvaluationPass::Interrupted => {
                let end = PassEnd::Interrupted;
                return Ok(Self { job, end });
            }
        };
        let MissingInputs { lookups, converted } = missing;
        let supplies = job.passes.end_pass(lookups, !converted.is_empty())?;
        let end = match (done, supplies) {
            (Some(evaluated), None) => PassEnd::Done(evaluated),
            (_, supplies) if job.count_object() => PassEnd::Missing {
                supplies,
                converted,
            },
            _ => return Err(EvaluationFailure::NoRoom),
        };
        Ok(Self { job, end })
    }
}

impl RequestEvaluator {
    /// Evaluates a request; `is_large` if it is not to be evaluated on the data core. What is missing is read on `control`.
    ///
    /// # Errors
    ///
    /// Why it could not be evaluated.
    pub(crate) async fn evaluate(
        &self,
        mut job: EvaluationJob,
        is_large: bool,
        control: &Handle,
    ) -> Result<TimedEvaluation, EvaluationFailure> {
        let _abandon = AbandonOnDrop(Arc::clone(&job.is_abandoned));
        let mut evaluating = Duration::ZERO;
        let mut on_worker = is_large;
        loop {
            let started = self.clock.now();
            let mut pass = None;
            if !on_worker {
                let quick = job.pass(started.plus(ON_CORE));
                // It stays so: later passes repeat at least what was too slow for the core.
                on_worker = matches!(quick, EvaluationPass::Interrupted);
                pass = Some(quick).filter(|_| !on_worker);
            }
            let ended = match pass {
                Some(pass) => EndedPass::new(job, pass)?,
                None => self.pass_on_worker(job).await?,
            };
            job = ended.job;
            evaluating += self.clock.now().since(started);
            match ended.end {
                PassEnd::Done(evaluated) => {
                    let facts = Arc::clone(&job.facts);
                    return Ok(TimedEvaluation {
                        evaluated,
                        evaluating,
                        facts,
                    });
                }
                PassEnd::Interrupted => return Err(EvaluationFailure::Lacking(Lack::Time)),
                PassEnd::Missing {
                    supplies,
                    converted,
                } => self.supply(&mut job, supplies, converted, control).await?,
            }
        }
    }

    async fn pass_on_worker(&self, mut job: EvaluationJob) -> Result<EndedPass, EvaluationFailure> {
        let user = Arc::clone(&job.facts.user);
        let bytes = job.decoded_bytes();
        let working = self.workers.run(&user.name, bytes, move || {
            job.read_body().map_err(EvaluationFailure::BadBody)?;
            let until = job.clock.now().plus(ON_WORKER);
            let pass = job.pass(until);
            let mut ended = EndedPass::new(job, pass)?;
            if !matches!(ended.end, PassEnd::Missing { .. }) {
                // Freeing large objects takes long, too.
                ended.job.forget_objects();
            }
            Ok(ended)
        });
        working.await.map_err(no_worker)?
    }

    /// Supplies what a pass misses.
    ///
    /// # Errors
    ///
    /// What is lacking to read it. What cannot be read for other reasons is known as such in the next pass.
    async fn supply(
        &self,
        job: &mut EvaluationJob,
        supplies: Option<MissingSupplies>,
        converted: Vec<KindParts>,
        control: &Handle,
    ) -> Result<(), EvaluationFailure> {
        if let Some(supplies) = supplies {
            let (user, share) = (Arc::clone(&job.facts.user), &mut job.share);
            let mut take_room = |bytes| share.take_decoded(bytes);
            let (cluster, authorizer) = (&*self.cluster, &self.authorizer);
            let passes = &mut job.passes;
            let supplied = passes.supply(supplies, &user, cluster, authorizer, &mut take_room);
            supplied.await?;
        }
        for kind in converted {
            let converted = self.converted(job, kind, control).await?;
            job.converted.push(converted);
        }
        Ok(())
    }

    /// The objects of a request in another version. Large ones are converted on a worker thread.
    async fn converted(
        &self,
        job: &mut EvaluationJob,
        kind: KindParts,
        control: &Handle,
    ) -> Result<ConvertedObjects, EvaluationFailure> {
        if job.object.is_some() && job.facts.metrics == HiddenMetrics::Unknown {
            let objects = Err("the upstream does not show its metrics".to_owned());
            return Ok(ConvertedObjects { kind, objects });
        }
        let (upstream, facts, to) = (self.upstream.clone(), Arc::clone(&job.facts), kind.clone());
        let (share, old) = (job.share.another(), job.old_object.clone());
        let serves = self.cluster.serves_definitions();
        let finding = async move {
            conversion::find(&upstream, &facts, old.as_deref(), &to, serves, share).await
        };
        let task = tasks::spawn_until_dropped(control, finding);
        let found = task.await;
        let found = found.map_err(|error| EvaluationFailure::Unread(error.to_string()))?;
        let FoundConversion { conversion, stored } = match found? {
            Ok(found) => found,
            Err(why) => {
                let objects = Err(why);
                return Ok(ConvertedObjects { kind, objects });
            }
        };
        let objects = [job.object.clone(), job.old_object.clone()];
        let bytes: usize = objects.iter().flatten().map(|one| decoded_bytes(one)).sum();
        if !job.share.take_decoded(bytes) {
            return Err(EvaluationFailure::NoRoom);
        }
        let (to, metrics) = (kind.clone(), job.facts.metrics.known().cloned());
        let convert = move || {
            let [object, old_object] = objects;
            let converted = |object: Arc<_>| conversion.convert(&object, &to);
            let old_object = match stored {
                Some(stored) => Some(conversion.read(stored)),
                None => old_object.map(converted),
            };
            let mut object = object.map(converted).transpose()?;
            // An autoscaler of version 1 is converted to version 2 alone.
            if let (Some(object), Some(metrics)) = (&mut object, metrics) {
                object["spec"]["metrics"] = Arc::unwrap_or_clone(metrics);
            }
            Ok([object, old_object.transpose()?].map(|one| one.map(Arc::new)))
        };
        let objects = if bytes > LARGE {
            let user = Arc::clone(&job.facts.user);
            // No bytes: these are counted above, until the job ends.
            let converted = self.workers.run(&user.name, 0, convert).await;
            converted.map_err(no_worker)?
        } else {
            convert()
        };
        Ok(ConvertedObjects { kind, objects })
    }
}
