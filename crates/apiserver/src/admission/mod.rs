//! Admission policies on writes to the objects that this API hosts.
//!
//! As in kube-apiserver, a write is evaluated after its validation and before it is stored, and again after each conflict.
//! Without an upstream, the policies are those in the store, and one is in force as soon as the cache of the store has it.
//! With one, they are the policies that forwarded requests are evaluated by, from wherever these come; then mode audit only
//! records what they say.
//!
//! The gateway's own writes are not evaluated: no policy keeps it from maintaining the built-in objects.
//!
//! Not here: what policies mean (`fairgate-admission`), and requests that are forwarded.

mod background;
mod evaluation;
mod inputs;
mod objects;
mod policies;
mod writes;

use std::sync::Arc;

use crate::param_rights::ParamResources;
use background::BackgroundAudits;
pub(crate) use background::HostedAudit;
pub(crate) use evaluation::HostedEvaluation;
use evaluation::RecordedEvaluation;
use fairgate_admission::{
    AdmissionAttributes, AdmissionMode, AdmissionRecord, AdmissionRecorder, ClusterLookups,
    ClusterObjects, EvaluationBudgets, EvaluationPasses, KnownLookups, LookupLack, PolicySet,
    PolicySetSource,
};
use fairgate_apihttp::{authorize::Authorizer, status_error::StatusError};
use fairgate_base::{account::ByteBudget, clock::Clock};
use fairgate_core::sync::Mutex;
use fairgate_objects::kind::{Kind, Storage};
use fairgate_store::Store;
use http::StatusCode;
use inputs::{HostedInputs, WriteDocuments};
use objects::HostedObjects;
use policies::PolicyCache;
pub(crate) use writes::HostedWrite;

/// Which policies evaluate writes to hosted objects.
pub enum HostedAdmission {
    /// None.
    Off,
    /// Those in the store. They are enforced.
    OfStore {
        /// Receives what they decide.
        recorder: Option<Arc<dyn AdmissionRecorder>>,
    },
    /// Those that evaluate forwarded requests.
    OfGateway(GatewayAdmission),
}

/// The policies of a gateway in front of an upstream, and what they need.
pub struct GatewayAdmission {
    /// Whether they are enforced, or only recorded.
    pub mode: AdmissionMode,
    /// The policies in force.
    pub policies: Arc<dyn PolicySetSource>,
    /// Namespaces, and params of kinds that are not hosted.
    pub cluster: Arc<dyn ClusterObjects>,
    /// The resources of kinds that policies take as params.
    pub resources: Arc<dyn ParamResources>,
    /// Answers `authorizer.….check(…)`.
    pub authorizer: Authorizer,
    /// Receives what they decide.
    pub recorder: Arc<dyn AdmissionRecorder>,
}

impl HostedAdmission {
    /// The resources of kinds that policies take as params; `None`: they are not known.
    pub(crate) fn resources(&self) -> Option<Arc<dyn ParamResources>> {
        match self {
            Self::OfGateway(gateway) => Some(Arc::clone(&gateway.resources)),
            Self::Off | Self::OfStore { .. } => None,
        }
    }
}

/// How many bytes of memory the namespaces and params may take that are read for writes to hosted objects.
const LOOKUP_BYTES: usize = 128 << 20;

/// Evaluates writes to hosted objects.
pub(crate) struct PolicyEnforcer {
    mode: AdmissionMode,
    policies: EnforcedPolicies,
    /// Answers `authorizer.….check(…)`.
    authorizer: Authorizer,
    /// The hosted kinds: their objects can be params.
    kinds: Arc<[&'static Kind]>,
    upstream: Option<Arc<dyn ClusterObjects>>,
    clock: Clock,
    /// Receives each evaluated write that a policy matches.
    recorder: Option<Arc<dyn AdmissionRecorder>>,
    audits: BackgroundAudits,
    /// Counts the namespaces and params that are read for writes that are being evaluated.
    lookup_bytes: Arc<ByteBudget>,
}

enum EnforcedPolicies {
    Stored(PolicyCache),
    Published(Arc<dyn PolicySetSource>),
}

impl PolicyEnforcer {
    /// Evaluates by the policies of `admission`; `None` if there are none. `authorizer` is that of the hosted API.
    pub(crate) fn new(
        admission: HostedAdmission,
        authorizer: Authorizer,
        kinds: &[&'static Kind],
        clock: Clock,
    ) -> Option<Arc<Self>> {
        let stored = |kind: &&&'static Kind| kind.storage == Storage::Stored;
        let kinds = kinds.iter().filter(stored).copied().collect();
        let audits = BackgroundAudits::default();
        let lookup_bytes = ByteBudget::new(LOOKUP_BYTES);
        let enforcer = match admission {
            HostedAdmission::Off => return None,
            HostedAdmission::OfStore { recorder } => Self {
                mode: AdmissionMode::Enforce,
                policies: EnforcedPolicies::Stored(PolicyCache::default()),
                authorizer,
                kinds,
                upstream: None,
                clock,
                recorder,
                audits,
                lookup_bytes,
            },
            HostedAdmission::OfGateway(gateway) => Self {
                mode: gateway.mode,
                policies: EnforcedPolicies::Published(gateway.policies),
                authorizer: gateway.authorizer,
                kinds,
                upstream: Some(gateway.cluster),
                clock,
                recorder: Some(gateway.recorder),
                audits,
                lookup_bytes,
            },
        };
        Some(Arc::new(enforcer))
    }

    /// Whether the next write may be evaluated by any policy, which may take milliseconds. It is a guess by the last write.
    pub(crate) fn is_active(&self) -> bool {
        match &self.policies {
            EnforcedPolicies::Stored(cache) => cache.may_evaluate(),
            EnforcedPolicies::Published(source) => {
                source.policies().is_some_and(|set| !set.is_empty())
            }
        }
    }

    /// Evaluates a write. Waits for the cache of the store, and for the upstream and the authorizer if expressions ask them. In
    /// mode audit it is evaluated in the background after it was stored, and nothing is said about it.
    ///
    /// # Errors
    ///
    /// 503 when the policies cannot be read, 403 when they are not known yet.
    pub(crate) async fn evaluate(
        self: &Arc<Self>,
        store: &Arc<dyn Store>,
        write: &HostedWrite<'_>,
    ) -> Result<HostedEvaluation, StatusError> {
        let is_exempt = write.attributes().is_exempt();
        let policies = match &self.policies {
            _ if is_exempt => None,
            EnforcedPolicies::Stored(cache) => Some(cache.in_force(&**store).await?),
            EnforcedPolicies::Published(source) => match (source.policies(), self.mode) {
                (Some(set), _) => Some(set),
                // The layer of forwarded requests has recorded it.
                (None, AdmissionMode::Audit) => None,
                (None, AdmissionMode::Enforce) => {
                    let kind = write.kind;
                    return Err(StatusError::not_ready(kind.group, kind.plural, write.name));
                }
            },
        };
        let Some(policies) = policies.filter(|policies| !policies.is_empty()) else {
            return Ok(HostedEvaluation::default());
        };
        let objects = self.objects(store, &write.user.name);
        if !self.may_match(&policies, &objects, write) {
            return Ok(HostedEvaluation::default());
        }
        if self.mode == AdmissionMode::Audit {
            let audit = HostedAudit::new(Arc::clone(self), policies, objects, write.to_kept());
            return Ok(HostedEvaluation {
                audit,
                ..HostedEvaluation::default()
            });
        }
        let evaluated = self.evaluated(&policies, &objects, write).await?;
        self.record(evaluated.record);
        Ok(evaluated.evaluation)
    }

    fn record(&self, record: Option<AdmissionRecord>) {
        if let (Some(record), Some(recorder)) = (record, &self.recorder) {
            recorder.record(record);
        }
    }

    fn objects(&self, store: &Arc<dyn Store>, user: &str) -> HostedObjects {
        HostedObjects {
            store: Arc::clone(store),
            kinds: Arc::clone(&self.kinds),
            upstream: self.upstream.clone(),
            read: Mutex::default(),
            share: Mutex::new(self.lookup_bytes.share(user)),
        }
    }

    fn may_match(
        &self,
        policies: &PolicySet,
        objects: &HostedObjects,
        write: &HostedWrite<'_>,
    ) -> bool {
        let (documents, known) = (WriteDocuments::default(), KnownLookups::default());
        let lookups = ClusterLookups::new(objects, &known);
        let answers = Arc::default();
        let inputs = HostedInputs::new(write, &documents, lookups, answers, &self.clock);
        inputs.is_ok_and(|inputs| policies.may_match(&write.attributes(), &inputs))
    }

    /// Evaluates in as many passes as it needs: each but the last finds something missing. How much can be missing is bounded by
    /// what evaluation may cost.
    async fn evaluated(
        &self,
        policies: &PolicySet,
        objects: &HostedObjects,
        write: &HostedWrite<'_>,
    ) -> Result<RecordedEvaluation, StatusError> {
        let started = self.clock.now();
        let documents = WriteDocuments::of(write);
        let mut passes = EvaluationPasses::default();
        loop {
            let begun = self.clock.now();
            let (mut evaluated, lookups) = {
                let lookups = ClusterLookups::new(objects, passes.lookups());
                let answers = Arc::clone(passes.answers());
                let inputs = HostedInputs::new(write, &documents, lookups, answers, &self.clock);
                let inputs = inputs.map_err(|error| unreadable(&error))?;
                let evaluated = self.evaluate_once(policies, write, &inputs)?;
                (evaluated, inputs.lookups.take_missing())
            };
            let missing = passes.end_pass(lookups, false);
            let Some(missing) = missing.map_err(|lack| lacking(&lack))? else {
                let now = self.clock.now();
                evaluated.record = evaluated.record.map(|record| AdmissionRecord {
                    evaluating: now.since(begun),
                    total: now.since(started),
                    ..record
                });
                return Ok(evaluated);
            };
            let mut take_room = |bytes| objects.take_room(bytes);
            let supplied = passes.supply(
                missing,
                write.user,
                objects,
                &self.authorizer,
                &mut take_room,
            );
            supplied.await.map_err(|lack| lacking(&lack))?;
        }
    }

    /// Evaluates with what is known.
    fn evaluate_once(
        &self,
        policies: &PolicySet,
        write: &HostedWrite<'_>,
        inputs: &HostedInputs<'_>,
    ) -> Result<RecordedEvaluation, StatusError> {
        let options = write.options.to_string();
        let options = serde_json::from_str(&options).map_err(|error| unreadable(&error))?;
        let attributes = AdmissionAttributes {
            options: Some(&options),
            ..write.attributes()
        };
        let verdict = policies.evaluate(&attributes, inputs, EvaluationBudgets::default());
        Ok(match verdict {
            Ok(verdict) => {
                let objects = inputs.requested();
                RecordedEvaluation::of(verdict, write, self.mode, &attributes, objects)
            }
            Err(abort) => RecordedEvaluation::aborted(&abort, write, self.mode),
        })
    }
}

/// The response to a write that cannot be evaluated now.
fn lacking(lack: &LookupLack) -> StatusError {
    match lack {
        LookupLack::Time => StatusError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            "the admission policies could not be evaluated in time",
        )
        .with_details(serde_json::json!({})),
        LookupLack::Place | LookupLack::Room => StatusError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequests",
            lack.to_string(),
        )
        .with_details(serde_json::json!({"retryAfterSeconds": 1})),
        LookupLack::Server(why) => StatusError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("the admission policies cannot be evaluated: {why}"),
        ),
    }
}

fn unreadable(error: &serde_json::Error) -> StatusError {
    StatusError::internal(error.to_string())
}

#[cfg(test)]
mod tests;
