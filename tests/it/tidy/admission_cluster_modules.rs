//! Which module of what is known of the cluster may use which.

use super::modules::Edges;

/// What is known of the cluster.
pub(super) const ADMISSION_CLUSTER: Edges = &[
    ("objects", &[]),
    ("resources", &[]),
    ("discovery", &["resources"]),
    ("shared_reads", &[]),
    ("live_reads", &["objects", "shared_reads"]),
    ("follower", &["discovery", "objects", "resources"]),
    ("schema_cache", &[]),
    ("kind_schemas", &["discovery", "resources", "schema_cache"]),
    (
        "state",
        &["discovery", "follower", "kind_schemas", "live_reads"],
    ),
    ("policy_documents", &["resources", "state"]),
    ("publisher", &["policy_documents", "state"]),
    (
        "upstream_policies",
        &[
            "follower",
            "policy_documents",
            "publisher",
            "resources",
            "state",
        ],
    ),
];
