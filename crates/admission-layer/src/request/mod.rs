//! What is known of a request before its object is.

pub(crate) mod facts;
pub(crate) mod findings;
pub(crate) mod json_patch_version;
pub(crate) mod options;
pub(crate) mod warnings;
pub(crate) mod write_request;
