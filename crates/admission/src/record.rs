//! What is recorded of an evaluated request: metadata and messages, never the objects.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    attributes::{AdmissionAttributes, AdmissionObjects, AdmissionOperation},
    evaluation::PolicyEvaluation,
    mode::{AdmissionMode, Fidelity},
    set_by_server::FieldSetByServer,
    verdict::{AdmissionVerdict, EnforcementAction, PolicyUsage},
};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// No policy denies it.
    Allowed,
    /// A policy denies it. With [`AdmissionMode::Audit`] it was forwarded nevertheless.
    Denied,
    /// It could not be evaluated, and was forwarded: the mode is audit, or all policies that match ignore failures.
    NotEvaluated,
    /// It could not be evaluated, and was refused.
    Failed,
}

impl AdmissionDecision {
    /// All decisions.
    pub const ALL: [Self; 4] = [
        Self::Allowed,
        Self::Denied,
        Self::NotEvaluated,
        Self::Failed,
    ];

    /// The name in metrics and in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NotEvaluated => "notJudged",
            Self::Failed => "failed",
        }
    }
}

/// What kept the stored object, by which a write was evaluated, from being changed before the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteGuard {
    /// Nothing.
    None,
    /// The client's own condition.
    Client,
    /// The condition that the gateway has added.
    Held,
    /// The same; the object had been changed, and the request was evaluated again.
    Repeated,
}

impl WriteGuard {
    /// The value of the label `guard` in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::Held => "held",
            Self::Repeated => "repeated",
        }
    }
}

/// What one policy did about a request.
#[derive(Clone, Debug)]
pub struct RecordedCheck {
    /// The name of the policy.
    pub policy: String,
    /// The name of the binding; empty if the policy itself is configured wrongly.
    pub binding: String,
    /// The value of the label `error_type` of `apiserver_validating_admission_policy_check_total`.
    pub error_type: &'static str,
    /// What the policy did; none if its validations hold.
    pub action: Option<EnforcementAction>,
    /// The message of the validation that failed, or the error; empty if there is none.
    pub message: String,
    /// The reason of the `Status` if it denies the request.
    pub reason: String,
    /// How long the expression took that led to the action; zero if there is none.
    pub took: Duration,
}

/// What an evaluated request is about, and who sent it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedRequest {
    /// The API group of the resource; empty for the core group.
    pub group: String,
    /// The version of the resource.
    pub version: String,
    /// The resource in the plural.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name in the path, or the one of the object; empty if there is none.
    pub name: String,
    /// The name of the user.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Whether the client asked for a dry run.
    pub dry_run: bool,
}

impl RecordedRequest {
    /// Whether it is about Secrets, of which no values may be written anywhere.
    pub fn is_about_secrets(&self) -> bool {
        self.group.is_empty() && self.resource == "secrets"
    }
}

/// An evaluated request, forwarded or about an object that is hosted here, and what became of it. Only requests that a policy
/// matched are recorded.
#[derive(Clone, Debug)]
pub struct AdmissionRecord {
    /// The request's `Audit-Id`.
    pub audit_id: String,
    /// The mode in which it was evaluated.
    pub mode: AdmissionMode,
    /// What the request does to the object.
    pub operation: AdmissionOperation,
    /// What it is about, and who sent it.
    pub request: RecordedRequest,
    /// How the object was obtained; none if it is hosted here, and was evaluated as it was to be stored.
    pub fidelity: Option<Fidelity>,
    /// What became of it.
    pub decision: AdmissionDecision,
    /// How the stored object was guarded; none if the request has none, or was not forwarded.
    pub guard: Option<WriteGuard>,
    /// Why it could not be evaluated; empty if it was.
    pub failure: String,
    /// What each policy did.
    pub checks: Vec<RecordedCheck>,
    /// The warnings that the client got, or would have got.
    pub warnings: Vec<String>,
    /// The audit annotations, by key.
    pub annotations: Vec<(String, String)>,
    /// What evaluating each policy took.
    pub usage: Vec<PolicyUsage>,
    /// The policies whose params are Secrets.
    pub secret_params: Vec<String>,
    /// What of a forwarded object a policy may read and a server may set, by policies that did something.
    pub set_by_server: Vec<PolicyFields>,
    /// How long evaluating took, without waiting for the body and for the upstream.
    pub evaluating: Duration,
    /// How long it took in all.
    pub total: Duration,
}

impl AdmissionRecord {
    /// Whether the texts of this policy, or of any policy without a name, may quote a Secret: the object, or a param.
    pub fn may_quote_a_secret(&self, policy: Option<&str>) -> bool {
        self.request.is_about_secrets()
            || match policy {
                Some(policy) => self.secret_params.iter().any(|one| one == policy),
                None => !self.secret_params.is_empty(),
            }
    }
}

/// What a policy may read of an object and a server may set in it.
#[derive(Clone, Debug)]
pub struct PolicyFields {
    /// The name of the policy.
    pub policy: String,
    /// The fields; at least one.
    pub fields: Vec<&'static FieldSetByServer>,
}

impl PolicyFields {
    /// Those of the policies that acted or made annotations, for a forwarded request.
    pub fn of(
        verdict: &AdmissionVerdict<'_>,
        attributes: &AdmissionAttributes<'_>,
        objects: AdmissionObjects<'_>,
    ) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let Some(object) = objects.object else {
            return all;
        };
        for evaluation in &verdict.evaluations {
            let policy = evaluation.policy;
            let acted = || verdict.checks.iter().any(|check| check.policy == policy);
            let is_known = all.iter().any(|one| one.policy == policy);
            if is_known || evaluation.annotations.is_empty() && !acted() {
                continue;
            }
            let read = evaluation.set_by_server.iter().copied();
            let fields: Vec<_> = read
                .filter(|field| field.may_be_set(attributes, object))
                .collect();
            if !fields.is_empty() {
                let policy = policy.to_owned();
                all.push(Self { policy, fields });
            }
        }
        all
    }
}

/// Receives the records.
pub trait AdmissionRecorder: fmt::Debug + Send + Sync + 'static {
    /// Takes a record. It is called on the data cores and must not wait.
    fn record(&self, record: AdmissionRecord);
}

impl RecordedCheck {
    /// What each policy did: one entry for each action, and one for each evaluation in which nothing failed.
    pub fn of(verdict: &AdmissionVerdict<'_>) -> Vec<Self> {
        let mut denials = verdict.denials.iter();
        let mut checks = Vec::with_capacity(verdict.checks.len() + verdict.evaluations.len());
        for check in &verdict.checks {
            // Every count of a denial belongs to the next denial of this binding.
            let denial = (check.action == EnforcementAction::Deny)
                .then(|| denials.find(|denial| denial.binding == Some(check.binding)))
                .flatten();
            let message = match denial {
                Some(denial) => denial.message.clone(),
                None => failed_message(verdict, check.policy, check.binding),
            };
            checks.push(Self {
                policy: check.policy.to_owned(),
                binding: check.binding.to_owned(),
                error_type: check.error_type,
                action: Some(check.action),
                message,
                reason: denial.map_or_else(String::new, |denial| denial.reason.to_owned()),
                took: check.took,
            });
        }
        // Wrong configurations are not counted in the original's metric, but deny.
        let configured = |check: &&Self| check.action == Some(EnforcementAction::Deny);
        if checks.iter().filter(configured).count() < verdict.denials.len() {
            for denial in &verdict.denials {
                let is_known = checks.iter().any(|check| {
                    check.policy == denial.policy
                        && Some(&*check.binding) == denial.binding
                        && check.message == denial.message
                });
                if !is_known {
                    checks.push(Self {
                        policy: denial.policy.to_owned(),
                        binding: denial.binding.unwrap_or_default().to_owned(),
                        error_type: "invalid_error",
                        action: Some(EnforcementAction::Deny),
                        message: denial.message.clone(),
                        reason: denial.reason.to_owned(),
                        took: Duration::ZERO,
                    });
                }
            }
        }
        checks.extend(verdict.evaluations.iter().filter_map(passed));
        checks
    }
}

/// The first message of a decision that a binding did not allow.
fn failed_message(verdict: &AdmissionVerdict<'_>, policy: &str, binding: &str) -> String {
    let of = |one: &&PolicyEvaluation<'_>| one.policy == policy && one.binding == binding;
    let evaluations = verdict.evaluations.iter().filter(of);
    let mut decisions = evaluations.flat_map(|one| &one.decisions);
    let failed = decisions.find(|decision| !decision.message.is_empty());
    failed.map_or_else(String::new, |decision| decision.message.clone())
}

fn passed(evaluation: &PolicyEvaluation<'_>) -> Option<RecordedCheck> {
    let holds = evaluation
        .decisions
        .iter()
        .all(|one| one.message.is_empty());
    (holds && !evaluation.decisions.is_empty()).then(|| RecordedCheck {
        policy: evaluation.policy.to_owned(),
        binding: evaluation.binding.to_owned(),
        error_type: "no_error",
        action: None,
        message: String::new(),
        reason: String::new(),
        took: Duration::ZERO,
    })
}
