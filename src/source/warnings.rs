//! Logs the findings of sets in which one object changes at a time, each finding once.

use std::collections::BTreeSet;

use fairgate_core::finding::Finding;

/// The warnings of the last set, so that a change of one object does not repeat those of all others.
#[derive(Debug, Default)]
pub(super) struct LoggedWarnings {
    warnings: BTreeSet<String>,
}

impl LoggedWarnings {
    /// Logs every error, and every warning that the set before did not have.
    pub(super) fn log(&mut self, findings: &[Finding]) {
        let (errors, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|f| f.is_error());
        errors.into_iter().for_each(super::log);
        let mut logged = BTreeSet::new();
        for warning in warnings {
            let essence = essence(warning);
            if !self.warnings.contains(&essence) {
                super::log(warning);
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
