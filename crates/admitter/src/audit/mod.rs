//! The audit log of admission policies: what they would have denied, warned of or annotated, one JSON object a line.
//!
//! An [`AuditEntry`] has metadata and messages, never objects. Messages and annotations are made by the expressions of a
//! policy, which may put values of the object into them; those about Secrets are therefore left out. Texts are cut, so
//! that a line has a bounded length.
//!
//! Not here: writing to files, and reading the clock.

mod entry;

pub use entry::{AuditCheck, AuditEntry};
