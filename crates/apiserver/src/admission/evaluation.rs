//! What policies say about a write, and what is recorded of it.

use http::StatusCode;
use serde_json::Value;

use super::{HostedAudit, writes::HostedWrite};
use fairgate_admission::{
    AdmissionAbort, AdmissionAttributes, AdmissionDecision, AdmissionMode, AdmissionObjects,
    AdmissionRecord, AdmissionVerdict, PolicyDenial, RecordedCheck,
};
use fairgate_apihttp::status_error::{StatusError, gateway_reasons};

/// What the policies say about a write.
#[derive(Debug, Default)]
pub(crate) struct HostedEvaluation {
    /// Texts for the client.
    pub(crate) warnings: Vec<String>,
    /// The error, if the write is refused.
    pub(crate) refusal: Option<StatusError>,
    /// In mode audit: evaluates the write after it was stored.
    pub(crate) audit: HostedAudit,
}

/// What the policies say about a write, and what is recorded of it.
#[derive(Debug)]
pub(super) struct RecordedEvaluation {
    pub(super) evaluation: HostedEvaluation,
    /// Without times; none if no policy matches.
    pub(super) record: Option<AdmissionRecord>,
}

impl RecordedEvaluation {
    pub(super) fn of(
        verdict: AdmissionVerdict<'_>,
        write: &HostedWrite<'_>,
        mode: AdmissionMode,
        attributes: &AdmissionAttributes<'_>,
        objects: AdmissionObjects<'_>,
    ) -> Self {
        let status = |denial: &PolicyDenial<'_>| error_of(&denial.status(attributes, objects));
        let evaluation = HostedEvaluation {
            refusal: verdict.denials.first().map(status),
            warnings: verdict.warnings.clone(),
            ..HostedEvaluation::default()
        };
        Self {
            evaluation,
            record: record(verdict, write, mode),
        }
    }

    /// The write could not be evaluated at all.
    pub(super) fn aborted(
        abort: &AdmissionAbort,
        write: &HostedWrite<'_>,
        mode: AdmissionMode,
    ) -> Self {
        let status = abort.status();
        let why = status["message"].as_str().unwrap_or_default();
        let record = write.unevaluated(mode, why.to_owned());
        let evaluation = HostedEvaluation {
            refusal: Some(error_of(&status)),
            ..HostedEvaluation::default()
        };
        Self {
            evaluation,
            record: Some(record),
        }
    }
}

/// What is recorded about a write that is evaluated; `None` if no policy matched it.
fn record(
    verdict: AdmissionVerdict<'_>,
    write: &HostedWrite<'_>,
    mode: AdmissionMode,
) -> Option<AdmissionRecord> {
    if verdict.evaluations.is_empty() && verdict.denials.is_empty() {
        return None;
    }
    let decision = if verdict.denials.is_empty() {
        AdmissionDecision::Allowed
    } else {
        AdmissionDecision::Denied
    };
    Some(AdmissionRecord {
        decision,
        checks: RecordedCheck::of(&verdict),
        usage: verdict.usage(),
        secret_params: verdict.secret_params,
        warnings: verdict.warnings,
        annotations: verdict.audit_annotations,
        ..write.unevaluated(mode, String::new())
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
    .because(gateway_reasons::ADMISSION_DENIED)
}
