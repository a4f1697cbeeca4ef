//! The error of an invalid configuration.

use std::fmt;

use fairgate_core::finding::Finding;

/// An invalid configuration, with all its findings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Errors and warnings, in the order found.
    pub findings: Vec<Finding>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.findings.iter().filter(|f| f.is_error()).count();
        let errors = if count == 1 { "error" } else { "errors" };
        write!(f, "the configuration has {count} {errors}:")?;
        let mut findings = self.findings.iter();
        findings.try_for_each(|finding| write!(f, "\n  {finding}"))
    }
}
