//! One file for each target.

pub mod http1_stream;
pub mod list_observers;
pub mod manifests;
pub mod request_info;

use crate::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    http1_stream::TARGET,
    list_observers::TARGET,
    manifests::TARGET,
    request_info::TARGET,
];
