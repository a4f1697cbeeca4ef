//! Responses: those that the layers make, those to dry runs, and copies of those that are forwarded.

pub(crate) mod dry_run;
pub(crate) mod reply_copy;
pub(crate) mod responses;
