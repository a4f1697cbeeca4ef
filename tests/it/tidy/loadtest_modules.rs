//! Which module of the load tests may use which.

use super::modules::Edges;

/// The load tests.
pub(super) const LOADTEST: Edges = &[
    ("certificate", &[]),
    ("idle", &["figures", "process", "scenario", "transport"]),
    ("process", &[]),
    ("scenario", &[]),
    ("figures", &["scenario"]),
    ("policy", &["scenario"]),
    ("requirements", &["scenario"]),
    ("transport", &["scenario"]),
    ("objects", &["scenario"]),
    ("upstream", &["objects", "scenario"]),
    ("gateway", &["certificate", "scenario", "transport"]),
    ("events", &["gateway", "scenario", "transport"]),
    (
        "local",
        &[
            "certificate",
            "events",
            "gateway",
            "scenario",
            "transport",
            "upstream",
        ],
    ),
    ("verdict", &["figures", "scenario"]),
    (
        "simulate",
        &["figures", "objects", "policy", "scenario", "verdict"],
    ),
    ("left_out", &["objects", "policy", "scenario"]),
    (
        "load",
        &[
            "events",
            "figures",
            "process",
            "scenario",
            "simulate",
            "transport",
        ],
    ),
    (
        "measure",
        &[
            "events",
            "figures",
            "load",
            "local",
            "scenario",
            "simulate",
            "transport",
            "upstream",
        ],
    ),
    (
        "report",
        &[
            "figures", "load", "measure", "process", "scenario", "verdict",
        ],
    ),
    (
        "cli",
        &[
            "certificate",
            "gateway",
            "idle",
            "left_out",
            "load",
            "measure",
            "report",
            "requirements",
            "scenario",
            "simulate",
            "transport",
            "upstream",
            "verdict",
        ],
    ),
];
