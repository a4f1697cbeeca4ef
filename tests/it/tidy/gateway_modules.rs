//! Which module of the gateway itself may use which.

use super::modules::Edges;

/// The configuration: values and their notations, sections of a file, the settings, and what reads them.
pub(super) const CONFIG: Edges = &[
    ("secret", &[]),
    ("error", &[]),
    ("admission", &[]),
    ("invalid_value", &[]),
    ("url", &["invalid_value"]),
    ("values", &["invalid_value", "secret", "url"]),
    ("file_version", &["values"]),
    ("bearer_token", &["file_version", "secret", "values"]),
    ("pem", &["file_version", "values"]),
    ("section", &["values"]),
    (
        "config",
        &["admission", "bearer_token", "pem", "secret", "url"],
    ),
    ("certificate_validity", &["config", "pem"]),
    ("validate", &["config", "section"]),
    ("without_effect", &["admission", "config", "section"]),
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
            "without_effect",
        ],
    ),
    ("keys", &["config", "read"]),
];

/// What operators see: what counts and what shows it, up to the ports.
pub(super) const OBSERVE: Edges = &[
    ("admin_connections", &[]),
    ("aligned_table", &[]),
    ("catalogue", &[]),
    ("checks", &[]),
    ("described_requests", &[]),
    ("flow_states", &[]),
    ("memory_limit", &[]),
    ("request_counts", &[]),
    ("rotated_file", &[]),
    ("sanitized", &[]),
    ("upstream_counts", &[]),
    ("exposition", &["catalogue"]),
    ("user_counts", &["sanitized"]),
    (
        "user_metrics",
        &["aligned_table", "catalogue", "exposition", "user_counts"],
    ),
    (
        "watch_counts",
        &[
            "aligned_table",
            "catalogue",
            "exposition",
            "request_counts",
            "sanitized",
        ],
    ),
    ("tenant_dump", &["aligned_table", "described_requests"]),
    (
        "dumps",
        &[
            "aligned_table",
            "described_requests",
            "tenant_dump",
            "user_counts",
            "user_metrics",
            "watch_counts",
        ],
    ),
    ("request_phases", &["catalogue", "exposition"]),
    ("flow_shares", &["flow_states"]),
    ("bystander_waits", &["flow_states"]),
    (
        "recorder",
        &[
            "catalogue",
            "request_counts",
            "request_phases",
            "sanitized",
            "user_counts",
        ],
    ),
    ("check_durations", &["catalogue", "exposition"]),
    (
        "request_metrics",
        &["catalogue", "exposition", "recorder", "request_counts"],
    ),
    (
        "sampler",
        &["bystander_waits", "flow_shares", "flow_states"],
    ),
    ("shared_histogram", &["catalogue", "exposition"]),
    (
        "cell_metrics",
        &[
            "catalogue",
            "exposition",
            "recorder",
            "request_counts",
            "request_metrics",
            "sampler",
        ],
    ),
    (
        "flow_metrics",
        &[
            "catalogue",
            "described_requests",
            "dumps",
            "exposition",
            "flow_states",
            "sampler",
            "sanitized",
        ],
    ),
    (
        "gateway_metrics",
        &[
            "catalogue",
            "check_durations",
            "exposition",
            "shared_histogram",
        ],
    ),
    (
        "admission_metrics",
        &["catalogue", "check_durations", "gateway_metrics"],
    ),
    ("log", &["catalogue", "gateway_metrics", "sanitized"]),
    (
        "telemetry",
        &[
            "catalogue",
            "cell_metrics",
            "dumps",
            "exposition",
            "flow_metrics",
            "flow_states",
            "gateway_metrics",
            "memory_limit",
            "recorder",
            "request_counts",
            "request_phases",
            "sampler",
            "user_counts",
            "user_metrics",
            "watch_counts",
        ],
    ),
    ("dumps_layer", &["dumps", "endpoints", "telemetry"]),
    (
        "endpoints",
        &["checks", "dumps", "gateway_metrics", "telemetry"],
    ),
    ("encoded_reply", &["endpoints"]),
    (
        "admin",
        &[
            "admin_connections",
            "encoded_reply",
            "endpoints",
            "gateway_metrics",
        ],
    ),
    ("secure_endpoints", &["encoded_reply", "endpoints"]),
];

/// Admission policies without a server: from files, over requests and verdicts, to what is shown.
pub(super) const POLICY_CLI: Edges = &[
    ("command", &[]),
    ("documents", &[]),
    ("expression_cost", &[]),
    ("bundle", &["documents"]),
    ("fields", &["documents"]),
    ("report", &["command"]),
    ("resources", &["documents"]),
    ("rules", &["documents"]),
    ("set_fields", &["documents", "rules"]),
    ("absences", &["documents"]),
    ("resource_names", &["documents"]),
    ("vital", &["documents", "rules"]),
    (
        "review",
        &[
            "bundle",
            "documents",
            "expression_cost",
            "resource_names",
            "absences",
            "set_fields",
            "vital",
        ],
    ),
    ("world", &["resources"]),
    ("judged", &["bundle", "resources", "world"]),
    ("requests", &["documents", "resources", "world"]),
    ("expectation", &["fields", "judged"]),
    ("results", &["judged"]),
    (
        "cases",
        &[
            "documents",
            "expectation",
            "fields",
            "requests",
            "resources",
            "world",
        ],
    ),
    ("junit", &["results"]),
    ("text", &["judged", "results"]),
    (
        "test",
        &[
            "bundle",
            "cases",
            "command",
            "documents",
            "expectation",
            "judged",
            "junit",
            "requests",
            "resources",
            "results",
            "text",
        ],
    ),
];

/// Where policies come from.
pub(super) const POLICY_SOURCES: Edges = &[
    ("last_good", &[]),
    ("document_set", &["last_good"]),
    ("logging", &[]),
    ("file_stamps", &[]),
    (
        "files",
        &["document_set", "file_stamps", "last_good", "logging"],
    ),
    ("kube", &["document_set", "last_good", "logging"]),
    ("store", &["document_set", "logging"]),
    ("admission_files", &["document_set", "file_stamps", "files"]),
    ("admission_store", &["store"]),
];

/// The gateway: the modules that combine everything.
pub(super) const SERVER: Edges = &[
    ("background_memory", &[]),
    ("policy_in_force", &[]),
    ("app", &["policy_in_force"]),
    // Another gateway, with an upstream and clients of its own.
    ("demo", &["app"]),
    ("cli", &["app", "demo", "policy_in_force"]),
];
