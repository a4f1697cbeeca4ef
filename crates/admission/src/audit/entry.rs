//! One line of the audit log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    mode::Fidelity,
    record::{AdmissionDecision, AdmissionRecord, RecordedCheck, RecordedRequest},
    set_by_server::FieldSetByServer,
};

/// The most bytes of a text.
const MAX_TEXT: usize = 2048;

/// The most warnings, checks and annotations of a line.
const MAX_ITEMS: usize = 100;

/// The most groups of a user.
const MAX_GROUPS: usize = 50;

/// Stands for a text that may contain values of a Secret.
const SECRET: &str = "(not recorded: the object or a param is a Secret)";
/// The fidelity of objects that are hosted by the gateway.
const HOSTED: &str = "hosted";

/// What one policy did about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditCheck {
    /// The name of the policy.
    pub policy: String,
    /// The name of the binding; empty if the policy itself is configured wrongly.
    pub binding: String,
    /// `deny`, `warn`, `audit`, or `allow` for an error that is ignored.
    pub action: String,
    /// `no_error`, `compile_error`, `out_of_budget` or `invalid_error`, as in
    /// `apiserver_validating_admission_policy_check_total`.
    pub error_type: String,
    /// The reason of the `Status` if it denies the request.
    pub reason: String,
    /// The message of the validation that failed, or the error.
    pub message: String,
}

/// An evaluated request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditEntry {
    /// When it was evaluated: RFC 3339, in milliseconds.
    pub time: String,
    /// The request's `Audit-Id`.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `audit` or `enforce`.
    pub mode: String,
    /// `denied`, `allowed`, `notJudged` or `failed`. In the mode `audit`, it was forwarded in any case.
    pub decision: String,
    /// Such as `CREATE`.
    pub operation: String,
    /// What it is about, and who sent it.
    #[serde(flatten)]
    pub request: RecordedRequest,
    /// How the object was obtained: `asSent`, `completed` or `dryRun`; `hosted` if it is hosted by the gateway, and was evaluated
    /// as it was to be stored.
    pub fidelity: String,
    /// Why it could not be evaluated; empty if it was.
    pub failure: String,
    /// What policies did; those whose validations hold are left out.
    pub policies: Vec<AuditCheck>,
    /// The warnings that the client got, or would have got.
    pub warnings: Vec<String>,
    /// The audit annotations, with the keys that kube-apiserver gives them.
    pub annotations: BTreeMap<String, String>,
    /// By policy, fields that its expressions may read and that a server may set in this object, by what only the server knows, such as
    /// `spec.tolerations`: its verdict, or what it annotates, may be another one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_by_server: BTreeMap<String, Vec<String>>,
    /// How long evaluating took, in seconds, without waiting for the body and for the upstream.
    #[serde(rename = "judgingSeconds")]
    pub evaluating_seconds: f64,
}

impl AuditEntry {
    /// The entry of a record that was made at `time` (RFC 3339); `None` if there is nothing to report: no policy
    /// did anything about the request.
    pub fn of(record: AdmissionRecord, time: String) -> Option<Self> {
        let of_any = record.may_quote_a_secret(None);
        // The server has set them in the response to a dry run. What is hosted here is evaluated as it is stored.
        let is_guessed = !matches!(record.fidelity, Some(Fidelity::DryRun) | None);
        let checks = record.checks.iter();
        let acting = checks.filter_map(|check| {
            let may_quote = record.may_quote_a_secret(Some(&check.policy));
            of_check(check.clone(), may_quote)
        });
        let policies: Vec<_> = acting.take(MAX_ITEMS).collect();
        let is_quiet = policies.is_empty()
            && record.warnings.is_empty()
            && record.annotations.is_empty()
            && record.decision == AdmissionDecision::Allowed;
        if is_quiet {
            return None;
        }
        let shown = |field: &&FieldSetByServer| field.to_string();
        let fields = record.set_by_server.into_iter().filter(|_| is_guessed);
        let fields = fields.take(MAX_ITEMS).map(|one| {
            let fields = one.fields.iter().map(shown).collect();
            (cut(one.policy), fields)
        });
        let set_by_server = fields.collect();
        let warnings = record.warnings.into_iter().take(MAX_ITEMS);
        let warnings = warnings.map(|text| kept(text, of_any));
        let annotations = record.annotations.into_iter().take(MAX_ITEMS);
        Some(Self {
            time,
            audit_id: cut(record.audit_id),
            mode: record.mode.as_str().to_owned(),
            decision: record.decision.as_str().to_owned(),
            operation: record.operation.name().to_owned(),
            request: cut_request(record.request),
            fidelity: record.fidelity.map_or(HOSTED, Fidelity::as_str).to_owned(),
            failure: cut(record.failure),
            policies,
            warnings: warnings.collect(),
            annotations: annotations
                .map(|(key, value)| (cut(key), kept(value, of_any)))
                .collect(),
            set_by_server,
            evaluating_seconds: record.evaluating.as_secs_f64(),
        })
    }

    /// The entry as a line of JSON, with its line feed.
    pub fn line(&self) -> Vec<u8> {
        // Strings, numbers and booleans can always be written.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// A text, unless it may quote a Secret.
fn kept(text: String, may_quote: bool) -> String {
    match may_quote {
        true if text.is_empty() => text,
        true => SECRET.to_owned(),
        false => cut(text),
    }
}

fn of_check(check: RecordedCheck, may_quote: bool) -> Option<AuditCheck> {
    Some(AuditCheck {
        policy: cut(check.policy),
        binding: cut(check.binding),
        action: check.action?.label().to_owned(),
        error_type: check.error_type.to_owned(),
        reason: cut(check.reason),
        message: kept(check.message, may_quote),
    })
}

fn cut_request(request: RecordedRequest) -> RecordedRequest {
    let groups = request.groups.into_iter().take(MAX_GROUPS);
    RecordedRequest {
        group: cut(request.group),
        version: cut(request.version),
        resource: cut(request.resource),
        subresource: cut(request.subresource),
        namespace: cut(request.namespace),
        name: cut(request.name),
        user: cut(request.user),
        groups: groups.map(cut).collect(),
        dry_run: request.dry_run,
    }
}

/// The first [`MAX_TEXT`] bytes of a text, cut at a character boundary.
fn cut(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        let mut end = MAX_TEXT - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{
        AdmissionMode, AdmissionOperation, EnforcementAction, Fidelity, PolicyUsage,
        VALIDATION_FAILURE,
    };

    use super::*;

    fn record(resource: &str, action: Option<EnforcementAction>) -> AdmissionRecord {
        AdmissionRecord {
            audit_id: "a-1".to_owned(),
            mode: AdmissionMode::Audit,
            operation: AdmissionOperation::Create,
            request: RecordedRequest {
                version: "v1".to_owned(),
                resource: resource.to_owned(),
                namespace: "shop".to_owned(),
                name: "web".to_owned(),
                user: "alice".to_owned(),
                groups: vec!["system:authenticated".to_owned()],
                ..RecordedRequest::default()
            },
            fidelity: Some(Fidelity::Completed),
            decision: AdmissionDecision::Allowed,
            guard: None,
            failure: String::new(),
            checks: vec![RecordedCheck {
                policy: "p".to_owned(),
                binding: "b".to_owned(),
                error_type: "invalid_error",
                action,
                message: "the value is topsecret\nsecond line".to_owned(),
                reason: "Invalid".to_owned(),
                took: Duration::ZERO,
            }],
            warnings: Vec::new(),
            annotations: Vec::new(),
            usage: vec![PolicyUsage {
                policy: "p".to_owned(),
                cost: 7,
                took: Duration::from_micros(9),
            }],
            secret_params: Vec::new(),
            set_by_server: Vec::new(),
            evaluating: Duration::from_micros(1500),
            total: Duration::from_millis(2),
        }
    }

    fn entry(record: AdmissionRecord) -> Option<AuditEntry> {
        AuditEntry::of(record, "2026-01-02T03:04:05.678Z".to_owned())
    }

    #[test]
    fn what_policies_did_is_one_line_that_can_be_read_again() {
        let mut record = record("pods", Some(EnforcementAction::Deny));
        record.decision = AdmissionDecision::Denied;
        record.annotations = vec![(VALIDATION_FAILURE.to_owned(), "[]".to_owned())];
        let entry = entry(record).unwrap();
        let line = entry.line();
        assert_eq!(
            line.iter().position(|byte| *byte == b'\n'),
            Some(line.len() - 1)
        );
        let text = String::from_utf8(line.clone()).unwrap();
        for part in [
            r#""time":"2026-01-02T03:04:05.678Z","auditID":"a-1","mode":"audit","decision":"denied""#,
            r#""policy":"p","binding":"b","action":"deny","errorType":"invalid_error""#,
            r#""operation":"CREATE","group":"","version":"v1","resource":"pods","subresource":"","namespace":"shop""#,
            r#""groups":["system:authenticated"],"dryRun":false,"fidelity":"completed""#,
            r#""annotations":{"validation.policy.admission.k8s.io/validation_failure":"[]"}"#,
            r#""judgingSeconds":0.0015"#,
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(serde_json::from_slice::<AuditEntry>(&line).unwrap(), entry);
    }

    #[test]
    fn a_request_that_no_policy_did_anything_about_makes_no_line() {
        assert_eq!(entry(record("pods", None)), None);
        let mut failed = record("pods", None);
        failed.decision = AdmissionDecision::NotEvaluated;
        failed.failure = "the body is too long".to_owned();
        assert_eq!(entry(failed).unwrap().failure, "the body is too long");
    }

    #[test]
    fn nothing_that_may_come_from_a_secret_is_written() {
        let mut record = record("secrets", Some(EnforcementAction::Warn));
        record.warnings = vec!["it is topsecret".to_owned()];
        record.annotations = vec![("p/k".to_owned(), "topsecret".to_owned())];
        let text = String::from_utf8(entry(record).unwrap().line()).unwrap();
        assert!(!text.contains("topsecret"), "{text}");
        assert!(text.contains(r#""policy":"p""#), "{text}");
    }

    #[test]
    fn nothing_that_may_come_from_a_param_that_is_a_secret_is_written() {
        let mut record = record("pods", Some(EnforcementAction::Warn));
        record.warnings = vec!["it is topsecret".to_owned()];
        record.annotations = vec![("p/k".to_owned(), "topsecret".to_owned())];
        let mut other = record.checks[0].clone();
        (other.policy, other.message) = ("other".to_owned(), "known to all".to_owned());
        record.checks.push(other);
        record.secret_params = vec!["p".to_owned()];
        let text = String::from_utf8(entry(record).unwrap().line()).unwrap();
        assert!(!text.contains("topsecret"), "{text}");
        assert!(text.contains("known to all"), "{text}");
    }

    #[test]
    fn a_line_has_a_bounded_length() {
        let mut record = record("pods", Some(EnforcementAction::Audit));
        let long = "é".repeat(100_000);
        record.checks = vec![record.checks[0].clone(); 1000];
        for check in &mut record.checks {
            check.message.clone_from(&long);
        }
        record.warnings = vec![long.clone(); 1000];
        record.request.groups = vec![long.clone(); 1000];
        record.request.user = long;
        let entry = entry(record).unwrap();
        assert!(entry.request.user.len() <= MAX_TEXT && entry.request.user.ends_with("é…"));
        assert!(entry.line().len() < 600_000);
    }
}
