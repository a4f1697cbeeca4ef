//! Which module of the gateway itself may use which.

use super::modules::Edges;

/// The configuration: values and their notations, sections of a file, the settings, and what reads them.
pub(super) const CONFIG: Edges = &[
    ("secret", &[]),
    ("error", &[]),
    ("admission", &[]),
    ("url", &[]),
    ("values", &["secret", "url"]),
    ("file_version", &["values"]),
    ("bearer_token", &["file_version", "secret", "values"]),
    ("pem", &["file_version", "values"]),
    ("section", &["values"]),
    (
        "config",
        &["admission", "bearer_token", "pem", "secret", "url"],
    ),
    ("validate", &["config", "section"]),
    (
        "read",
        &[
            "admission",
            "bearer_token",
            "config",
            "error",
            "file_version",
            "pem",
            "secret",
            "section",
            "url",
            "validate",
            "values",
        ],
    ),
    ("keys", &["config", "read"]),
];

/// The gateway: policy sources, metrics, and the modules that combine everything.
pub(super) const SERVER: Edges = &[
    ("background_memory", &[]),
    ("source", &[]),
    ("observe", &[]),
    ("app", &["observe", "source"]),
    // Another gateway, with an upstream and clients of its own.
    ("demo", &["app"]),
    ("cli", &["app", "demo", "source"]),
];
