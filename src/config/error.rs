//! A configuration that cannot be used.

use std::fmt;

use fairgate_core::finding::Finding;

/// A configuration that cannot be used, with all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Errors and warnings, in the order found.
    pub findings: Vec<Finding>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.findings.iter().filter(|f| f.is_error()).count();
        let mistakes = if count == 1 { "mistake" } else { "mistakes" };
        write!(f, "the configuration has {count} {mistakes}:")?;
        let mut findings = self.findings.iter();
        findings.try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}
