//! One file for each target.

pub mod applies;
pub mod bodies;
pub mod built_in_kinds;
pub mod evictions;
pub mod expressions;
pub mod hosted_routes;
pub mod http1_responses;
pub mod http1_stream;
pub mod list_observers;
pub mod long_searches;
pub mod manifests;
pub mod patches;
pub mod patterns;
pub mod request_documents;
pub mod request_info;
pub mod selectors;
pub mod small_patterns;

use fairgate_objects::codec::BodyFormat;

use crate::Target;

/// All targets.
pub const TARGETS: &[Target] = &[
    applies::TARGET,
    bodies::TARGET,
    built_in_kinds::TARGET,
    evictions::TARGET,
    expressions::TARGET,
    hosted_routes::TARGET,
    http1_responses::TARGET,
    http1_stream::TARGET,
    list_observers::TARGET,
    long_searches::TARGET,
    manifests::TARGET,
    patches::TARGET,
    patterns::TARGET,
    request_documents::TARGET,
    request_info::TARGET,
    selectors::TARGET,
    small_patterns::TARGET,
];

/// The format of a body that the first byte of an input chooses.
fn body_format(control: u8) -> BodyFormat {
    match control % 3 {
        0 => BodyFormat::Json,
        1 => BodyFormat::Yaml,
        _ => BodyFormat::Protobuf,
    }
}
