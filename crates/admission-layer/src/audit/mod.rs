//! Audit mode: requests are forwarded at once, and evaluated meanwhile by what was stored before them.

pub(crate) mod applied;
pub(crate) mod audit_answer;
pub(crate) mod auditing;
pub(crate) mod past_objects;
