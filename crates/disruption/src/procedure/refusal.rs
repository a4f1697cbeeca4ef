//! Why an eviction is refused, and the `Status` of the response, byte for byte as in kube-apiserver.

use fairgate_objects::field_error::ApiFieldError;
use serde::Serialize;

use crate::{
    budget::{BudgetStatus, DisruptionBudget},
    conditions,
    never_allows::NeverAllows,
    read::MalformedObject,
};
use fairgate_gotext::Quoted;

/// When a client should retry while the budget is being computed.
const RETRY_AFTER_SECONDS: u32 = 10;

/// The cause that distinguishes a 429 of a budget from a 429 of flow control.
const CAUSE: &str = "DisruptionBudget";

/// Why an eviction is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvictionRefusal {
    /// The budget allows no disruption at present.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    BudgetExhausted {
        /// The message of the cause in the response.
        cause: String,
        /// Why it never will, if it never will.
        never: Option<NeverAllows>,
    },
    /// The status was computed for an older generation of the spec.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    BudgetNotProcessed {
        /// The name of the budget.
        budget: String,
    },
    /// An unready pod that was to be evicted without charging the budget has changed meanwhile.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    PodChanged {
        /// The name of the budget.
        budget: String,
    },
    /// Every attempt to charge the budget conflicted with another change of it.
    #[error("Cannot evict pod as it would violate the pod's disruption budget.")]
    BudgetContended {
        /// The name of the budget.
        budget: String,
    },
    /// Several budgets select the pod.
    #[error(
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )]
    SeveralBudgets,
    /// `disruptionsAllowed` is negative.
    #[error(
        "poddisruptionbudget.policy {} is forbidden: pdb disruptions allowed is negative",
        Quoted(budget)
    )]
    BudgetNegative {
        /// The name of the budget.
        budget: String,
    },
    /// Too many granted evictions are still unconfirmed by the controller.
    #[error(
        "poddisruptionbudget.policy {} is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        Quoted(budget)
    )]
    TooManyDisruptedPods {
        /// The name of the budget.
        budget: String,
    },
    /// The names in body and path differ.
    #[error("name in URL does not match name in Eviction object")]
    NameMismatch,
    /// The namespaces in body and path differ.
    #[error(
        "the namespace of the provided object does not match the namespace sent on the request"
    )]
    NamespaceMismatch,
    /// The body has a field of a wrong type.
    #[error(
        "{kind} in version {} cannot be handled as a Eviction: {why}",
        Quoted(version)
    )]
    CannotHandle {
        /// The body's kind.
        kind: String,
        /// The body's version, without the group.
        version: String,
        /// What is wrong with the body.
        why: String,
    },
    /// The dry-run options of query and body differ.
    #[error(
        "Non-matching dry-run options in request and content: [{}] and [{}]", query.join(" "), body.join(" ")
    )]
    DryRunMismatch {
        /// `dryRun` of the query.
        query: Vec<String>,
        /// `deleteOptions.dryRun` of the body.
        body: Vec<String>,
    },
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`, which evictions do not support.
    #[error(
        "Eviction.policy {} is invalid: {UNSAFE_FIELD}: {UNSAFE_DETAIL}",
        Quoted(pod)
    )]
    UnsafeDeletion {
        /// The name of the pod.
        pod: String,
    },
    /// The delete options are invalid.
    #[error("DeleteOptions.meta.k8s.io \"\" is invalid: {}", aggregate(.0))]
    InvalidOptions(Vec<ApiFieldError>),
    /// The pod does not have the UID in the preconditions.
    #[error(
        "Operation cannot be fulfilled on Pod {}: the UID in the precondition ({wanted}) does not match the UID in record ({found}). The object might have been deleted and then recreated",
        Quoted(pod)
    )]
    UidMismatch {
        /// The name of the pod.
        pod: String,
        /// The UID in the preconditions.
        wanted: String,
        /// The UID of the pod.
        found: String,
    },
    /// The pod does not have the resource version in the preconditions.
    #[error(
        "Operation cannot be fulfilled on Pod {}: the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found}). The object might have been modified",
        Quoted(pod)
    )]
    ResourceVersionMismatch {
        /// The name of the pod.
        pod: String,
        /// The resource version in the preconditions.
        wanted: String,
        /// The resource version of the pod.
        found: String,
    },
    /// The pod is gone, though another pod may have its name.
    #[error("pods {} not found", Quoted(pod))]
    PodGone {
        /// The name of the pod.
        pod: String,
    },
    /// An object from the upstream is malformed.
    #[error("Internal error occurred: the upstream sent a malformed object: {0}")]
    MalformedUpstream(MalformedObject),
    /// The upstream's list of budgets does not end.
    #[error("Internal error occurred: the upstream's list of PodDisruptionBudgets does not end")]
    EndlessList,
}

const UNSAFE_FIELD: &str = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential";
const UNSAFE_DETAIL: &str =
    "Invalid value: true: can not be set for pod eviction, try after removing the option";

/// The texts of all errors. As in Kubernetes, several are enclosed in brackets.
fn aggregate(errors: &[ApiFieldError]) -> String {
    let texts: Vec<String> = errors.iter().map(ApiFieldError::to_string).collect();
    match texts.as_slice() {
        [text] => text.clone(),
        texts => format!("[{}]", texts.join(", ")),
    }
}

impl EvictionRefusal {
    /// The refusal for an exhausted budget, with the cause from its status.
    pub(crate) fn exhausted(budget: &DisruptionBudget) -> Self {
        let name = &budget.name;
        let BudgetStatus {
            current_healthy,
            desired_healthy,
            conditions,
            ..
        } = &budget.status;
        let refuses =
            format!("The disruption budget {name} does not allow evicting pods currently");
        let cause = match conditions::why_false(conditions).filter(|(_, text)| !text.is_empty()) {
            // Before the numbers, which are older than the failed sync.
            Some(("SyncFailed", text)) => format!("{refuses} because it failed sync: {text}"),
            _ if current_healthy <= desired_healthy => format!(
                "The disruption budget {name} needs {desired_healthy} healthy pods and has \
                 {current_healthy} currently"
            ),
            Some((reason, text)) => format!("{refuses} ({reason}): {text}"),
            None => refuses,
        };
        Self::BudgetExhausted {
            cause,
            never: NeverAllows::of(budget),
        }
    }

    /// Why the budget will never allow it, if it never will.
    pub fn never(&self) -> Option<NeverAllows> {
        match self {
            Self::BudgetExhausted { never, .. } => *never,
            _ => None,
        }
    }

    /// What the response says about the budget; empty if it says nothing.
    pub fn cause(&self) -> String {
        let causes = self.details().map(|details| details.causes);
        let mut causes = causes.into_iter().flatten();
        let of_budget = causes.find(|cause| cause.reason == CAUSE);
        of_budget.map(|cause| cause.message).unwrap_or_default()
    }

    /// The reason in one word, for metrics, logs and headers.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BudgetExhausted { .. } => "budget-exhausted",
            Self::BudgetNotProcessed { .. } => "budget-not-processed",
            Self::PodChanged { .. } => "pod-changed",
            Self::BudgetContended { .. } => "budget-contended",
            Self::SeveralBudgets => "several-budgets",
            Self::BudgetNegative { .. } => "budget-negative",
            Self::TooManyDisruptedPods { .. } => "too-many-disrupted-pods",
            Self::NameMismatch | Self::NamespaceMismatch | Self::CannotHandle { .. } => "malformed",
            Self::DryRunMismatch { .. } | Self::UnsafeDeletion { .. } | Self::InvalidOptions(_) => {
                "invalid-options"
            }
            Self::UidMismatch { .. } | Self::ResourceVersionMismatch { .. } => "precondition",
            Self::PodGone { .. } => "pod-gone",
            Self::MalformedUpstream(_) | Self::EndlessList => "malformed-upstream",
        }
    }

    /// Whether the same eviction may be granted later without any change of configuration, so that waiting is
    /// worthwhile.
    pub fn may_pass_later(&self) -> bool {
        matches!(
            self,
            Self::BudgetExhausted { .. }
                | Self::BudgetNotProcessed { .. }
                | Self::PodChanged { .. }
                | Self::BudgetContended { .. }
        )
    }

    /// The HTTP status code, and the `reason` of the `Status`, which may be empty.
    fn code_and_reason(&self) -> (u16, &'static str) {
        match self {
            Self::BudgetExhausted { .. }
            | Self::BudgetNotProcessed { .. }
            | Self::PodChanged { .. }
            | Self::BudgetContended { .. } => (429, "TooManyRequests"),
            Self::SeveralBudgets | Self::DryRunMismatch { .. } => (500, ""),
            Self::BudgetNegative { .. } | Self::TooManyDisruptedPods { .. } => (403, "Forbidden"),
            Self::NameMismatch | Self::NamespaceMismatch | Self::CannotHandle { .. } => {
                (400, "BadRequest")
            }
            Self::UnsafeDeletion { .. } | Self::InvalidOptions(_) => (422, "Invalid"),
            Self::UidMismatch { .. } | Self::ResourceVersionMismatch { .. } => (409, "Conflict"),
            Self::PodGone { .. } => (404, "NotFound"),
            Self::MalformedUpstream(_) | Self::EndlessList => (500, "InternalError"),
        }
    }

    fn details(&self) -> Option<StatusDetails> {
        let about = |name: &str, group: &'static str, kind: &'static str| StatusDetails {
            name: name.to_owned(),
            group,
            kind,
            ..StatusDetails::default()
        };
        Some(match self {
            Self::BudgetExhausted { cause, .. } => StatusDetails::budget(cause.clone(), 0),
            Self::BudgetNotProcessed { budget }
            | Self::PodChanged { budget }
            | Self::BudgetContended { budget } => {
                let text = format!(
                    "The disruption budget {budget} is still being processed by the server."
                );
                StatusDetails::budget(text, RETRY_AFTER_SECONDS)
            }
            Self::BudgetNegative { budget } | Self::TooManyDisruptedPods { budget } => {
                about(budget, "policy", "poddisruptionbudget")
            }
            Self::UnsafeDeletion { pod } => StatusDetails {
                causes: vec![StatusCause {
                    reason: "FieldValueInvalid".to_owned(),
                    message: UNSAFE_DETAIL.to_owned(),
                    field: UNSAFE_FIELD.to_owned(),
                }],
                ..about(pod, "policy", "Eviction")
            },
            Self::InvalidOptions(errors) => StatusDetails {
                causes: errors.iter().map(StatusCause::of).collect(),
                ..about("", "meta.k8s.io", "DeleteOptions")
            },
            Self::UidMismatch { pod, .. } | Self::ResourceVersionMismatch { pod, .. } => {
                about(pod, "", "Pod")
            }
            Self::PodGone { pod } => about(pod, "", "pods"),
            Self::MalformedUpstream(_) | Self::EndlessList => {
                let text = self.to_string();
                let text = text.strip_prefix("Internal error occurred: ");
                StatusDetails {
                    causes: vec![StatusCause {
                        message: text.unwrap_or_default().to_owned(),
                        ..StatusCause::default()
                    }],
                    ..StatusDetails::default()
                }
            }
            Self::SeveralBudgets
            | Self::NameMismatch
            | Self::NamespaceMismatch
            | Self::CannotHandle { .. }
            | Self::DryRunMismatch { .. } => return None,
        })
    }

    /// The body of the response. The value of [`EvictionStatus::retry_after`], if there is one, belongs in the header
    /// `Retry-After`. Other refusals must not have that header: client libraries silently repeat requests that get it,
    /// and their callers would not see the refusal.
    pub fn status(&self) -> EvictionStatus {
        let (code, reason) = self.code_and_reason();
        EvictionStatus {
            message: self.to_string(),
            reason,
            details: self.details(),
            ..EvictionStatus::new("Failure", code)
        }
    }
}

/// A `Status`, with its members in the order of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionStatus {
    kind: &'static str,
    api_version: &'static str,
    metadata: EmptyObject,
    status: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<StatusDetails>,
    /// The HTTP status.
    pub code: u16,
}

impl EvictionStatus {
    fn new(status: &'static str, code: u16) -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: EmptyObject {},
            status,
            message: String::new(),
            reason: "",
            details: None,
            code,
        }
    }

    /// The response to a granted eviction, dry run or not.
    pub fn evicted() -> Self {
        Self::new("Success", 201)
    }

    /// A failure that is not about budgets. It must not look like a refusal of a budget, because clients would
    /// keep waiting.
    pub(crate) fn unavailable(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            message,
            reason,
            ..Self::new("Failure", code)
        }
    }

    /// The value of the header `Retry-After` in seconds, if the response has one.
    pub fn retry_after(&self) -> Option<u32> {
        let details = self.details.as_ref()?;
        Some(details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct EmptyObject {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusDetails {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: u32,
}

impl StatusDetails {
    fn budget(message: String, retry_after_seconds: u32) -> Self {
        Self {
            causes: vec![StatusCause {
                reason: CAUSE.to_owned(),
                message,
                field: String::new(),
            }],
            retry_after_seconds,
            ..Self::default()
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct StatusCause {
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: String,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: String,
}

impl StatusCause {
    fn of(error: &ApiFieldError) -> Self {
        Self {
            reason: error.cause()["reason"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            message: error.message(),
            field: error.field.clone(),
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_go_quotes_them() {
        let refusal = EvictionRefusal::PodGone {
            pod: "a\u{1}'\"\u{e9}\u{a0}".to_owned(),
        };
        assert_eq!(
            refusal.to_string(),
            "pods \"a\\x01'\\\"\u{e9}\\u00a0\" not found"
        );
    }
}
