//! The admission policies that this API hosts, enforced on writes to the objects that it hosts.
//!
//! As in kube-apiserver, a write is judged after its validation and before it is stored, and again after each conflict.
//! A policy is in force as soon as the cache of the store has it.
//!
//! The gateway's own writes are not judged: no policy keeps it from maintaining the built-in objects.
//!
//! Not here: what policies mean (`fairgate-admission`), and requests that are forwarded.

mod answers;
mod inputs;
mod policies;

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{authorize::Authorizer, status_error::StatusError};
pub use answers::KnownAnswers;
use fairgate_admission::{
    AdmissionAttributes, AdmissionDecision, AdmissionMode, AdmissionOperation, AdmissionRecord,
    AdmissionRecorder, AdmissionVerdict, EvaluationBudgets, GroupVersionKind, GroupVersionResource,
    PolicyDenial, RecordedCheck, RecordedRequest,
};
use fairgate_base::clock::Clock;
use fairgate_core::digest::User;
use fairgate_objects::{
    kind::{Kind, KindVersion, Storage},
    metadata, object,
};
use fairgate_store::Store;
use http::StatusCode;
use inputs::{HostedInputs, WriteDocuments};
use policies::{PoliciesInForce, PolicyCache};

/// Judges writes by the policies in a store.
pub(crate) struct PolicyEnforcer {
    cache: PolicyCache,
    /// Answers `authorizer.….check(…)`.
    authorizer: Authorizer,
    /// The kinds that are hosted: their objects can be params.
    kinds: Vec<&'static Kind>,
    clock: Clock,
    /// Receives each judged write that a policy matches.
    recorder: Option<Arc<dyn AdmissionRecorder>>,
}

/// A write to a hosted object.
#[derive(Clone, Copy)]
pub(crate) struct HostedWrite<'a> {
    /// What it does.
    pub(crate) operation: AdmissionOperation,
    /// The kind of the object.
    pub(crate) kind: &'static Kind,
    /// The version that the client asked for.
    pub(crate) version: &'static KindVersion,
    /// `status`, or empty.
    pub(crate) subresource: &'a str,
    /// The namespace, or empty.
    pub(crate) namespace: &'a str,
    /// The name; empty for an object of a `deletecollection`.
    pub(crate) name: &'a str,
    /// Who asks.
    pub(crate) user: &'a User,
    /// The request's `Audit-ID`.
    pub(crate) audit_id: &'a str,
    /// Whether nothing is to be stored.
    pub(crate) dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`, with `apiVersion` and `kind`.
    pub(crate) options: &'a Value,
    /// The object as it is to be stored, in the stored version.
    pub(crate) object: Option<&'a Value>,
    /// The object as it is stored, in the stored version.
    pub(crate) old_object: Option<&'a Value>,
}

/// What the policies say about a write.
#[derive(Debug, Default)]
pub(crate) struct PolicyJudgement {
    /// Texts for the client.
    pub(crate) warnings: Vec<String>,
    /// The error, if the write is refused.
    pub(crate) refusal: Option<StatusError>,
    /// What is recorded, without times; none if no policy matches.
    record: Option<AdmissionRecord>,
}

impl PolicyEnforcer {
    /// Enforces the policies among the objects of `kinds`.
    pub(crate) fn new(
        authorizer: Authorizer,
        kinds: &[&'static Kind],
        clock: Clock,
        recorder: Option<Arc<dyn AdmissionRecorder>>,
    ) -> Self {
        let stored = |kind: &&&'static Kind| kind.storage == Storage::Stored;
        Self {
            cache: PolicyCache::default(),
            authorizer,
            kinds: kinds.iter().filter(stored).copied().collect(),
            clock,
            recorder,
        }
    }

    /// Whether the last write was judged by any policy, which may take milliseconds.
    pub(crate) fn is_active(&self) -> bool {
        !self.cache.last().set.is_empty()
    }

    /// Judges a write. Waits for the cache of the store, and for the authorizer if expressions ask it.
    ///
    /// # Errors
    ///
    /// 503, when the policies cannot be read.
    pub(crate) async fn judge(
        &self,
        store: &dyn Store,
        write: &HostedWrite<'_>,
    ) -> Result<PolicyJudgement, StatusError> {
        let policies = self.cache.in_force(store).await?;
        if policies.set.is_empty() || !self.may_match(&policies, write) {
            return Ok(PolicyJudgement::default());
        }
        let started = self.clock.now();
        let params = policies.params(store, &self.kinds).await?;
        let answers = KnownAnswers::new();
        loop {
            let begun = self.clock.now();
            let judged = self.judge_once(&policies, write, &params, &answers);
            let missing = answers.take_missing();
            if missing.is_empty() {
                let mut judgement = judged?;
                if let (Some(record), Some(recorder)) = (judgement.record.take(), &self.recorder) {
                    let now = self.clock.now();
                    recorder.record(AdmissionRecord {
                        judging: now.since(begun),
                        total: now.since(started),
                        ..record
                    });
                }
                return Ok(judgement);
            }
            // Each round answers at least one check, and evaluation bounds how many there are.
            for check in missing {
                answers.ask(&self.authorizer, write.user, check).await;
            }
        }
    }

    fn may_match(&self, policies: &PoliciesInForce, write: &HostedWrite<'_>) -> bool {
        let attributes = attributes(write);
        let (params, documents) = (policies::PolicyParams::default(), WriteDocuments::default());
        let inputs =
            HostedInputs::new(write, &documents, &params, &self.kinds, KnownAnswers::new());
        inputs.is_ok_and(|inputs| {
            !attributes.is_exempt() && policies.set.may_match(&attributes, &inputs)
        })
    }

    /// Judges with what is known of the authorizer's answers.
    fn judge_once(
        &self,
        policies: &PoliciesInForce,
        write: &HostedWrite<'_>,
        params: &policies::PolicyParams,
        answers: &Arc<KnownAnswers>,
    ) -> Result<PolicyJudgement, StatusError> {
        let documents = WriteDocuments::of(write);
        let unreadable = |error: serde_json::Error| StatusError::internal(error.to_string());
        let answers = Arc::clone(answers);
        let inputs = HostedInputs::new(write, &documents, params, &self.kinds, answers)
            .map_err(unreadable)?;
        let options = write.options.to_string();
        let options = serde_json::from_str(&options).map_err(unreadable)?;
        let attributes = AdmissionAttributes {
            options: Some(&options),
            ..attributes(write)
        };
        let budgets = EvaluationBudgets::default();
        Ok(match policies.set.judge(&attributes, &inputs, budgets) {
            Ok(verdict) => judgement(verdict, write, &attributes, &inputs),
            Err(abort) => PolicyJudgement {
                refusal: Some(error_of(&abort.status())),
                ..PolicyJudgement::default()
            },
        })
    }
}

/// The attributes of a write, without its options.
fn attributes<'a>(write: &HostedWrite<'a>) -> AdmissionAttributes<'a> {
    AdmissionAttributes {
        operation: write.operation,
        resource: GroupVersionResource {
            group: write.kind.group,
            version: write.version.name,
            resource: write.kind.plural,
        },
        subresource: write.subresource,
        kind: kind_in(write.kind, write.version),
        namespace: write.namespace,
        name: write.name,
        user: write.user,
        dry_run: write.dry_run,
        options: None,
    }
}

fn kind_in(kind: &'static Kind, version: &'static KindVersion) -> GroupVersionKind<'static> {
    GroupVersionKind {
        group: kind.group,
        version: version.name,
        kind: kind.kind,
    }
}

fn judgement(
    verdict: AdmissionVerdict<'_>,
    write: &HostedWrite<'_>,
    attributes: &AdmissionAttributes<'_>,
    inputs: &HostedInputs<'_>,
) -> PolicyJudgement {
    let objects = inputs.requested();
    let status = |denial: &PolicyDenial<'_>| error_of(&denial.status(attributes, objects));
    PolicyJudgement {
        refusal: verdict.denials.first().map(status),
        warnings: verdict.warnings.clone(),
        record: record(verdict, write),
    }
}

/// What is recorded about a write; `None` if no policy matched it.
fn record(verdict: AdmissionVerdict<'_>, write: &HostedWrite<'_>) -> Option<AdmissionRecord> {
    if verdict.evaluations.is_empty() && verdict.denials.is_empty() {
        return None;
    }
    let decision = if verdict.denials.is_empty() {
        AdmissionDecision::Allowed
    } else {
        AdmissionDecision::Denied
    };
    let object = write.object.or(write.old_object);
    let name = match write.name {
        "" => object.map_or("", metadata::name),
        name => name,
    };
    Some(AdmissionRecord {
        audit_id: write.audit_id.to_owned(),
        mode: AdmissionMode::Enforce,
        operation: write.operation,
        request: RecordedRequest {
            group: write.kind.group.to_owned(),
            version: write.version.name.to_owned(),
            resource: write.kind.plural.to_owned(),
            subresource: write.subresource.to_owned(),
            namespace: write.namespace.to_owned(),
            name: name.to_owned(),
            user: write.user.name.clone(),
            groups: write.user.groups.clone(),
            dry_run: write.dry_run,
        },
        fidelity: None,
        decision,
        guard: None,
        failure: String::new(),
        checks: RecordedCheck::of(&verdict),
        usage: verdict.usage(),
        secret_params: verdict.secret_params,
        warnings: verdict.warnings,
        annotations: verdict.audit_annotations,
        judging: Duration::ZERO,
        total: Duration::ZERO,
    })
}

/// The error with a `Status` of the policies.
fn error_of(status: &Value) -> StatusError {
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    let reason = match status["reason"].as_str().unwrap_or_default() {
        "Forbidden" => "Forbidden",
        "Unauthorized" => "Unauthorized",
        "RequestEntityTooLarge" => "RequestEntityTooLarge",
        "NotFound" => "NotFound",
        "InternalError" => "InternalError",
        _ => "Invalid",
    };
    let message = status["message"].as_str().unwrap_or_default();
    StatusError::new(
        code.unwrap_or(StatusCode::UNPROCESSABLE_ENTITY),
        reason,
        message,
    )
    .with_details(status["details"].clone())
}

/// The JSON of an object in its stored version, in `version`.
fn text_in(kind: &'static Kind, version: &'static KindVersion, stored: &Value) -> bytes::Bytes {
    if version.name == kind.stored().name {
        return object::compact(version, stored);
    }
    object::compact(version, &object::versioned(kind, version, stored))
}
