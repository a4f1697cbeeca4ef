//! What is wrong with a configuration: where, what, and what to do about it.

use std::fmt;

use serde::Serialize;

/// How bad a [`Mistake`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used; somebody should look.
    Warning,
}

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// How bad it is.
    pub severity: Severity,
    /// The file as it was named, or `built-in defaults`.
    pub file: String,
    /// The field's path, `limits.connections`; empty for the file as a whole.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

/// A configuration that cannot be used, with all that is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Errors and warnings, in the order found.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = || {
            self.mistakes
                .iter()
                .filter(|m| m.severity == Severity::Error)
        };
        let count = errors().count();
        let mistakes = if count == 1 { "mistake" } else { "mistakes" };
        write!(f, "the configuration has {count} {mistakes}:")?;
        errors().try_for_each(|mistake| write!(f, "\n  {mistake}"))
    }
}
