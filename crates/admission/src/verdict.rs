//! The result of evaluating a request: what the client, the audit event and the metrics get.

use std::time::Duration;

use fairgate_cel::CelJson;
use serde::Serialize;
use serde_json::{Value, json};

use crate::attributes::{AdmissionAttributes, AdmissionObjects};
use crate::evaluation::PolicyEvaluation;

/// The key of the audit annotation about validations that failed.
pub const VALIDATION_FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDenial<'p> {
    /// The name of the policy.
    pub policy: &'p str,
    /// The name of the binding; none if the policy itself is configured wrongly.
    pub binding: Option<&'p str>,
    /// The reason of the `Status`.
    pub reason: &'p str,
    /// The message of the validation that failed, or the error.
    pub message: String,
}

impl PolicyDenial<'_> {
    /// The text for the client, without the object's name.
    pub fn text(&self) -> String {
        let Self {
            policy, message, ..
        } = self;
        match self.binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
            ),
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        }
    }

    /// The HTTP status code that belongs to the reason.
    pub fn code(&self) -> u16 {
        match self.reason {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            // The reasons that a validation may name; `Invalid` and any other are 422.
            _ => 422,
        }
    }

    /// The `Status` of the response.
    pub fn status(
        &self,
        attributes: &AdmissionAttributes<'_>,
        objects: AdmissionObjects<'_>,
    ) -> Value {
        let (group, resource) = (attributes.resource.group, attributes.resource.resource);
        let name = shown_name(attributes, objects);
        let qualified = match group {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        };
        let text = self.text();
        let mut details = json!({
            "name": name,
            "kind": resource,
            "causes": [{"message": text}],
        });
        if !group.is_empty() {
            details["group"] = group.into();
        }
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": format!("{qualified} \"{name}\" is forbidden: {text}"),
            "reason": self.reason,
            "details": details,
            "code": self.code(),
        })
    }
}

/// The name of the object in messages: that of the request, or else of the object.
fn shown_name<'r>(attributes: &AdmissionAttributes<'r>, objects: AdmissionObjects<'r>) -> &'r str {
    if !attributes.name.is_empty() {
        return attributes.name;
    }
    let Some(object) = objects.object else {
        return "Unknown";
    };
    if !matches!(object.at(&["metadata"]), Some(CelJson::Object(_))) {
        // As Go's `NewForbidden`, where an object has no metadata to ask for a name.
        return "Unknown/errorGettingName";
    }
    let names = [["metadata", "name"], ["metadata", "generateName"]];
    let names = names.map(|path| object.text_at(&path));
    let named = names.into_iter().find(|name| !name.is_empty());
    named.unwrap_or("Unknown")
}

/// Why a request is refused before policies have decided: its namespace is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionAbort {
    /// There is no such namespace.
    #[error("namespaces \"{0}\" not found")]
    NamespaceNotFound(String),
    /// The namespace could not be looked up; the text says why.
    #[error("Internal error occurred: {0}")]
    NamespaceFailed(String),
    /// The host had evaluating stop ([`AdmissionInputs::is_interrupted`](crate::AdmissionInputs::is_interrupted)).
    #[error("the request could not be evaluated in time")]
    Interrupted,
}

impl AdmissionAbort {
    /// The `Status` of the response.
    pub fn status(&self) -> Value {
        let message = self.to_string();
        let (reason, code, details) = match self {
            Self::NamespaceNotFound(name) => {
                ("NotFound", 404, json!({"name": name, "kind": "namespaces"}))
            }
            Self::NamespaceFailed(why) => {
                ("InternalError", 500, json!({"causes": [{"message": why}]}))
            }
            Self::Interrupted => ("Timeout", 504, json!({})),
        };
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        })
    }
}

/// What a policy did about a request, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcementAction {
    /// It ignored an error.
    Allow,
    /// It refused the request.
    Deny,
    /// It warned the client.
    Warn,
    /// It wrote to the audit event.
    Audit,
}

impl EnforcementAction {
    /// The value of the label `enforcement_action`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Warn => "warn",
            Self::Audit => "audit",
        }
    }
}

/// One count of `apiserver_validating_admission_policy_check_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyCheck<'p> {
    /// The name of the policy.
    pub policy: &'p str,
    /// The name of the binding.
    pub binding: &'p str,
    /// The value of the label `error_type`; a validation that does not hold counts as an error here.
    pub error_type: &'static str,
    /// What the policy did about the request.
    pub action: EnforcementAction,
    /// How long its expression took, by the clock of [`AdmissionInputs::now`](crate::AdmissionInputs::now).
    pub took: Duration,
}

/// The value of the label `error_type` for a message, which is how the original tells errors apart.
pub(crate) fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

/// The result of evaluating a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionVerdict<'p> {
    /// The request is refused if there is any; the client gets the first.
    pub denials: Vec<PolicyDenial<'p>>,
    /// Texts for the client, which [`warning_headers`](crate::warning_headers) turns into headers.
    pub warnings: Vec<String>,
    /// Key and value of the annotations of the audit event, each key once.
    pub audit_annotations: Vec<(String, String)>,
    /// What to count in the metric, one by one.
    pub checks: Vec<PolicyCheck<'p>>,
    /// Each policy with each binding and each param that was evaluated.
    pub evaluations: Vec<PolicyEvaluation<'p>>,
    /// The policies whose texts may quote a Secret, because their params are some.
    pub secret_params: Vec<String>,
}

/// What evaluating one policy for a request took, with all its bindings and params, whether it lets the request pass or
/// not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyUsage {
    /// The name of the policy.
    pub policy: String,
    /// CEL cost units.
    pub cost: u64,
    /// The time.
    pub took: Duration,
}

impl PolicyUsage {
    /// Adds this to the usage of the same policy in `all`.
    pub fn add_to(self, all: &mut Vec<Self>) {
        match all.iter_mut().find(|one| one.policy == self.policy) {
            Some(sum) => {
                sum.cost = sum.cost.saturating_add(self.cost);
                sum.took = sum.took.saturating_add(self.took);
            }
            None => all.push(self),
        }
    }
}

impl AdmissionVerdict<'_> {
    /// What each policy took that was evaluated.
    pub fn usage(&self) -> Vec<PolicyUsage> {
        let mut all = Vec::with_capacity(self.evaluations.len());
        for evaluation in &self.evaluations {
            let one = PolicyUsage {
                policy: evaluation.policy.to_owned(),
                cost: evaluation.costs.known_total(),
                took: evaluation.took,
            };
            one.add_to(&mut all);
        }
        all
    }
}

impl<'p> AdmissionVerdict<'p> {
    /// Adds an audit annotation; of several with one key the first counts.
    pub(crate) fn annotate(&mut self, key: &str, value: String) {
        if self.audit_annotations.iter().all(|(known, _)| known != key) {
            self.audit_annotations.push((key.to_owned(), value));
        }
    }

    pub(crate) fn count(
        &mut self,
        policy: &'p str,
        binding: &'p str,
        error_type: &'static str,
        action: EnforcementAction,
        took: Duration,
    ) {
        self.checks.push(PolicyCheck {
            policy,
            binding,
            error_type,
            action,
            took,
        });
    }
}

/// A validation that failed, in the audit event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ValidationFailure<'p> {
    pub(crate) message: &'p str,
    pub(crate) policy: &'p str,
    pub(crate) binding: &'p str,
    pub(crate) expression_index: usize,
    pub(crate) validation_actions: &'p [String],
}

impl ValidationFailure<'_> {
    /// The value of the annotation: a list with this one failure.
    pub(crate) fn annotation(&self) -> String {
        let text = serde_json::to_string(&[self]).unwrap_or_default();
        fairgate_objects::go::escape_html(&text)
    }
}
