//! Which module of the admission of forwarded requests may use which.

use super::modules::Edges;

/// The admission of forwarded requests.
pub(super) const ADMITTER: Edges = &[
    ("mode", &[]),
    ("cluster_state", &[]),
    ("published", &["mode"]),
    ("record", &["mode"]),
];
