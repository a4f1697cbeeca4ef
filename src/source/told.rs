//! What was told of objects that change one at a time.

use fairgate_core::apf::objects::Finding;

/// The warnings of the last set, lest each change of any object tells those of all others again.
#[derive(Debug, Default)]
pub(super) struct Told {
    warnings: Vec<String>,
}

impl Told {
    /// Logs every error, and every warning that the set before did not have.
    pub(super) fn tell(&mut self, findings: &[Finding]) {
        let (errors, warnings): (Vec<_>, Vec<_>) = findings.iter().partition(|f| f.is_error());
        errors.into_iter().for_each(super::log);
        let said: Vec<_> = warnings.iter().map(|warning| essence(warning)).collect();
        for (warning, said) in warnings.into_iter().zip(&said) {
            if !self.warnings.contains(said) {
                super::log(warning);
            }
        }
        self.warnings = said;
    }

    /// How many warnings the last set had.
    pub(super) fn warnings(&self) -> usize {
        self.warnings.len()
    }
}

/// What a finding says, without the revision that its object has now.
fn essence(finding: &Finding) -> String {
    format!(
        "{} {} {} {}",
        finding.kind, finding.name, finding.field, finding.message
    )
}
