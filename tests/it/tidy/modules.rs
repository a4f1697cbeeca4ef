//! Which module of a crate may use which; the tests are in the parent module.

use super::admission_cluster_modules::ADMISSION_CLUSTER;
use super::admission_layer_modules::ADMISSION_LAYER;
use super::apiserver_modules::APISERVER;
use super::gateway_modules::{CONFIG, OBSERVE, POLICY_CLI, POLICY_SOURCES, SERVER};
use super::loadtest_modules::LOADTEST;

/// For each crate with several modules, which module may use which. Tests may use all. The compiler checks the
/// dependencies between crates.
pub(super) const CRATES: &[(&str, Edges)] = &[
    ("crates/core/src", CORE),
    ("crates/base/src", BASE),
    ("crates/manifest/src", MANIFEST),
    ("crates/upstream/src", UPSTREAM),
    ("crates/proxy/src", PROXY),
    ("crates/store/src", STORE),
    ("crates/objects/src", OBJECTS),
    ("crates/disruption/src", DISRUPTION),
    ("crates/fleet/src", FLEET),
    ("crates/cel/src", CEL),
    ("crates/admission/src", ADMISSION),
    ("crates/apiserver/src", APISERVER),
    ("crates/eviction-layer/src", EVICTION_LAYER),
    ("crates/admission-layer/src", ADMISSION_LAYER),
    ("crates/admission-cluster/src", ADMISSION_CLUSTER),
    ("crates/disruption-controller/src", DISRUPTION_CONTROLLER),
    ("crates/config/src", CONFIG),
    ("crates/observe/src", OBSERVE),
    ("crates/policy-cli/src", POLICY_CLI),
    ("crates/policy-sources/src", POLICY_SOURCES),
    ("src", SERVER),
    ("loadtest/src", LOADTEST),
];

/// Modules, and which others each may use.
pub(super) type Edges = &'static [(&'static str, &'static [&'static str])];

/// Seats shared by gateways.
const FLEET: Edges = &[
    ("identity", &[]),
    ("rules", &[]),
    ("settings", &["rules"]),
    ("grants", &["identity"]),
    ("records", &["grants", "identity"]),
    (
        "book",
        &["grants", "identity", "records", "rules", "settings"],
    ),
    ("gateway", &["identity", "records", "rules", "settings"]),
    (
        "coordinator",
        &["book", "identity", "records", "rules", "settings"],
    ),
    ("division", &["book", "records"]),
    ("remote", &["identity", "records"]),
];

/// The pure core.
const CORE: Edges = &[
    ("sync", &[]),
    ("time", &[]),
    ("turn_queue", &[]),
    ("fairness", &[]),
    ("finding", &[]),
    ("go_duration", &[]),
    ("names", &[]),
    ("identity_hasher", &[]),
    ("random", &[]),
    ("rejection", &[]),
    ("mailbox", &["sync"]),
    ("digest", &["go_duration", "names"]),
    (
        "apf",
        &[
            "digest",
            "finding",
            "identity_hasher",
            "names",
            "random",
            "rejection",
            "sync",
            "time",
        ],
    ),
    ("cells", &["digest", "rejection"]),
];

/// What all other crates with a runtime use.
const BASE: Edges = &[
    ("account", &[]),
    ("background", &[]),
    ("clock", &[]),
    ("events", &[]),
    ("gathered_writes", &["clock"]),
    ("local", &["turns"]),
    ("log_limit", &[]),
    ("socket", &[]),
    ("turns", &["clock"]),
    ("tasks", &["turns"]),
];

/// What people write: files, and the documents in them.
const MANIFEST: Edges = &[("files", &[]), ("yaml", &[])];

/// The gateway as a client of its upstream.
const UPSTREAM: Edges = &[
    ("tls", &[]),
    ("dial_error", &[]),
    ("endpoint", &["dial_error", "tls"]),
    ("dial", &["dial_error", "endpoint"]),
    ("client", &["dial", "dial_error", "endpoint"]),
    ("informer", &["client"]),
    ("path", &[]),
    ("cache", &[]),
    ("lookup", &["cache"]),
    ("review", &["client", "lookup"]),
    ("token_review", &["cache", "client", "lookup", "review"]),
    ("access_review", &["cache", "client", "lookup", "review"]),
];

/// The request path, whose layers never use each other.
const PROXY: Edges = &[
    ("serve", &[]),
    ("auth", &[]),
    ("fairness", &[]),
    ("forward", &[]),
    ("stack", &[]),
];

/// The stores: their entries, the mirror in memory, and the two backends that feed it.
const STORE: Edges = &[
    ("usage", &[]),
    ("error", &["usage"]),
    ("entry", &["error", "stored_value"]),
    ("history", &["entry"]),
    ("types", &["entry"]),
    ("migration", &[]),
    (
        "mirror",
        &[
            "entry",
            "error",
            "history",
            "types",
            "stored_value",
            "usage",
        ],
    ),
    ("watch", &["entry", "error", "mirror"]),
    ("store", &["entry", "error", "types", "usage", "watch"]),
    ("fan_out", &["entry", "error", "store", "watch"]),
    ("stored_value", &[]),
    (
        "etcd",
        &[
            "entry",
            "error",
            "history",
            "migration",
            "mirror",
            "store",
            "types",
            "usage",
            "watch",
        ],
    ),
    (
        "local",
        &[
            "entry",
            "error",
            "history",
            "migration",
            "mirror",
            "store",
            "types",
            "usage",
            "watch",
        ],
    ),
];

/// The Common Expression Language.
const CEL: Edges = &[
    ("types", &[]),
    ("unicode", &[]),
    ("short_texts", &[]),
    ("document", &["short_texts"]),
    ("source", &[]),
    ("value", &["document", "short_texts", "types", "unicode"]),
    ("syntax", &["source", "value"]),
    ("pattern_budget", &["value"]),
    (
        "declarations",
        &["pattern_budget", "syntax", "types", "value"],
    ),
    (
        "library",
        &[
            "declarations",
            "pattern_budget",
            "syntax",
            "types",
            "unicode",
            "value",
        ],
    ),
    (
        "checker",
        &[
            "declarations",
            "pattern_budget",
            "source",
            "syntax",
            "types",
            "value",
        ],
    ),
    (
        "program",
        &[
            "checker",
            "declarations",
            "document",
            "pattern_budget",
            "syntax",
            "types",
            "value",
        ],
    ),
    (
        "environment",
        &[
            "checker",
            "declarations",
            "library",
            "pattern_budget",
            "program",
            "source",
            "syntax",
            "types",
            "value",
        ],
    ),
];

/// Admission policies.
const ADMISSION: Edges = &[
    ("attributes", &[]),
    ("environment", &[]),
    ("warnings", &[]),
    ("built_in", &[]),
    ("observer", &[]),
    ("inputs", &["attributes", "observer"]),
    ("cluster_objects", &["inputs"]),
    ("lookups", &["cluster_objects", "inputs"]),
    ("matching", &["attributes", "inputs"]),
    ("pattern_limits", &[]),
    ("expression", &[]),
    ("reads", &["environment", "expression", "observer"]),
    ("set_by_server", &["attributes"]),
    (
        "policy",
        &[
            "environment",
            "expression",
            "inputs",
            "matching",
            "observer",
            "pattern_limits",
            "reads",
            "set_by_server",
        ],
    ),
    ("set_fields", &["policy", "set_by_server"]),
    (
        "absences",
        &["environment", "expression", "observer", "policy"],
    ),
    ("validate", &["environment", "expression", "pattern_limits"]),
    ("kinds", &["validate"]),
    ("declared_type", &["environment"]),
    (
        "type_checking",
        &["declared_type", "environment", "pattern_limits"],
    ),
    ("params", &["inputs", "policy"]),
    (
        "evaluation",
        &[
            "attributes",
            "environment",
            "expression",
            "inputs",
            "observer",
            "policy",
            "set_by_server",
        ],
    ),
    ("early", &["evaluation", "matching", "policy"]),
    ("verdict", &["attributes", "evaluation"]),
    ("mode", &[]),
    (
        "record",
        &[
            "attributes",
            "evaluation",
            "mode",
            "set_by_server",
            "verdict",
        ],
    ),
    ("audit", &["mode", "record", "set_by_server"]),
    (
        "judge",
        &[
            "attributes",
            "evaluation",
            "inputs",
            "matching",
            "params",
            "policy",
            "verdict",
        ],
    ),
    (
        "set",
        &[
            "attributes",
            "early",
            "evaluation",
            "inputs",
            "judge",
            "matching",
            "pattern_limits",
            "policy",
            "verdict",
        ],
    ),
];

/// Disruption budgets and evictions.
const DISRUPTION: Edges = &[
    ("read", &[]),
    ("int_or_percent", &[]),
    ("conditions", &["read"]),
    ("labels", &["read"]),
    ("pod", &["labels", "read"]),
    ("budget", &["int_or_percent", "pod", "read"]),
    ("amounts", &["budget", "int_or_percent", "pod"]),
    ("mode", &[]),
    ("waiting", &[]),
    ("never_allows", &["budget", "conditions", "int_or_percent"]),
    (
        "advice",
        &["budget", "int_or_percent", "never_allows", "pod"],
    ),
    (
        "controller",
        &[
            "amounts",
            "budget",
            "conditions",
            "int_or_percent",
            "labels",
            "pod",
            "read",
        ],
    ),
    (
        "procedure",
        &["budget", "conditions", "never_allows", "pod", "read"],
    ),
];

/// What an API object is: tables first, then what reads them, then the kinds.
const OBJECTS: Edges = &[
    ("go", &[]),
    ("schema", &["go"]),
    ("field_error", &["go"]),
    ("kind", &["field_error", "schema"]),
    ("conditions", &["field_error"]),
    ("label_selector", &["field_error"]),
    ("selector", &["go"]),
    ("codec", &["go", "schema"]),
    ("conversion", &["codec", "schema"]),
    ("custom", &["schema"]),
    ("defaults", &["schema"]),
    ("internal_form", &["codec", "schema"]),
    (
        "disruption_budget",
        &[
            "conditions",
            "field_error",
            "internal_form",
            "label_selector",
            "schema",
        ],
    ),
    ("metadata", &["codec", "field_error", "go", "schema"]),
    ("patch", &["codec", "go", "schema"]),
    ("ssa", &["go", "schema"]),
    ("object", &["codec", "kind", "metadata"]),
    ("table", &["go", "kind", "metadata", "object", "schema"]),
    (
        "kinds",
        &[
            "disruption_budget",
            "field_error",
            "internal_form",
            "kind",
            "metadata",
            "schema",
            "table",
        ],
    ),
];

/// Evictions in the request path, up to the layer.
const EVICTION_LAYER: Edges = &[
    ("attempt", &[]),
    ("wait_rules", &[]),
    ("waits", &[]),
    ("events", &[]),
    ("path", &[]),
    ("client_link", &[]),
    ("budget_queue", &[]),
    ("upstream_response", &[]),
    ("budget_api", &["upstream_response"]),
    ("upstream_objects", &["budget_api", "upstream_response"]),
    ("body", &["path"]),
    ("fuzzing", &["body", "path"]),
    ("responses", &["body", "events", "upstream_response"]),
    (
        "evictor",
        &[
            "budget_api",
            "budget_queue",
            "events",
            "responses",
            "upstream_objects",
            "wait_rules",
            "waits",
        ],
    ),
    ("waits_report", &["evictor", "waits"]),
    ("budget_reader", &["evictor"]),
    (
        "run",
        &[
            "attempt",
            "budget_queue",
            "client_link",
            "evictor",
            "upstream_response",
        ],
    ),
    (
        "data_side",
        &[
            "attempt",
            "body",
            "client_link",
            "events",
            "evictor",
            "path",
            "responses",
        ],
    ),
    (
        "layer",
        &["data_side", "events", "evictor", "path", "responses"],
    ),
    (
        "wait_layer",
        &["attempt", "data_side", "events", "layer", "path", "waits"],
    ),
];

/// The disruption controller's watches, lease, writes and main loop.
const DISRUPTION_CONTROLLER: Edges = &[
    ("budget_feed", &[]),
    ("calls", &[]),
    ("election", &[]),
    ("lease", &["calls", "election"]),
    ("outline", &[]),
    ("watches", &["budget_feed", "outline"]),
    ("lookups", &["calls", "watches"]),
    ("event_correlator", &[]),
    ("recorder", &["calls", "event_correlator"]),
    ("status", &[]),
    (
        "runner",
        &[
            "budget_feed",
            "calls",
            "lease",
            "lookups",
            "recorder",
            "status",
            "watches",
        ],
    ),
];
