//! The audit log of admission policies: what they denied, warned about or annotated, or would have in audit mode. Each
//! line is a JSON object.
//!
//! An [`AuditEntry`] has metadata and messages, never objects. Messages and annotations are made by the expressions of a
//! policy, which may put values of the object into them; those about Secrets are therefore left out. Texts are cut, so
//! that a line has a bounded length.
//!
//! Not here: writing to files, and reading the clock.

mod entry;

pub use entry::{AuditCheck, AuditEntry};
