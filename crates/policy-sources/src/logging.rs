//! Logs findings; those of sets in which one object changes at a time, once each.

use std::collections::BTreeSet;

use fairgate_core::finding::{Finding, Severity};

/// Logs a finding with its fields.
pub fn log_finding(finding: &Finding) {
    let Finding {
        severity,
        origin,
        kind,
        name,
        field,
        message,
        remedy,
    } = finding;
    match severity {
        Severity::Error => tracing::error!(origin, kind, name, field, remedy, "{message}"),
        Severity::Warning => tracing::warn!(origin, kind, name, field, remedy, "{message}"),
    }
}

/// The warnings of the last set, so that a change of one object does not repeat those of all others.
// Not the `LoggedFindings` of admission policies: an error is logged for each set that it keeps from coming into force, and a finding
// stays the same when its object gets another version.
#[derive(Debug, Default)]
pub(super) struct LoggedWarnings {
    warnings: BTreeSet<String>,
}

impl LoggedWarnings {
    /// Logs every error, and every warning that the set before did not have.
    pub(super) fn log(&mut self, findings: &[Finding]) {
        let (errors, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|f| f.is_error());
        errors.into_iter().for_each(log_finding);
        let mut logged = BTreeSet::new();
        for warning in warnings {
            let essence = essence(warning);
            if !self.warnings.contains(&essence) {
                log_finding(warning);
            }
            logged.insert(essence);
        }
        self.warnings = logged;
    }

    /// How many warnings the last set had.
    pub(super) fn warnings(&self) -> usize {
        self.warnings.len()
    }
}

/// The text of a finding, without the revision of its object.
fn essence(finding: &Finding) -> String {
    format!(
        "{} {} {} {}",
        finding.kind, finding.name, finding.field, finding.message
    )
}
