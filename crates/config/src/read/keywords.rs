//! The keywords of settings with a fixed set of values.

use crate::{
    admission::{AdmissionReads, AdmissionSource},
    config::{
        DisruptionControllerMode, EnforcementConfig, GatewayMode, LogFormat, LogLevel,
        ProtocolConfig,
    },
    fleet::FleetReclaim,
    values::Keyword,
};
use fairgate_admission::{AdmissionMode, Fidelity};
use fairgate_core::apf::{objects::Bootstrap, policy::Semantics};
use fairgate_disruption::EvictionMode;

impl Keyword for GatewayMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("files", Self::Files),
        ("standalone", Self::Standalone),
        ("overlay", Self::Overlay),
        ("sidecar", Self::Sidecar),
    ];
}

impl Keyword for EvictionMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("relay", Self::Relay),
        ("precheck", Self::Precheck),
        ("authoritative", Self::Authoritative),
    ];
}

impl Keyword for DisruptionControllerMode {
    const WORDS: &'static [(&'static str, Self)] = &[("off", Self::Off), ("on", Self::On)];
}

impl Keyword for FleetReclaim {
    const WORDS: &'static [(&'static str, Self)] =
        &[("strict", Self::Strict), ("prompt", Self::Prompt)];
}

impl Keyword for Option<AdmissionMode> {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", None),
        ("audit", Some(AdmissionMode::Audit)),
        ("enforce", Some(AdmissionMode::Enforce)),
    ];
}

impl Keyword for AdmissionSource {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("files", Self::Files),
        ("hosted", Self::Hosted),
        ("upstream", Self::Upstream),
    ];
}

impl Keyword for AdmissionReads {
    const WORDS: &'static [(&'static str, Self)] =
        &[("cached", Self::Cached), ("consistent", Self::Consistent)];
}

impl Keyword for Fidelity {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("asSent", Self::AsSent),
        ("completed", Self::Completed),
        ("dryRun", Self::DryRun),
    ];
}

impl Keyword for Semantics {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("Improved", Self::Improved),
        ("Compatible", Self::Compatible),
    ];
}

impl Keyword for EnforcementConfig {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("enforce", Self::Enforce),
        ("observe", Self::Observe),
        ("off", Self::Off),
    ];
}

impl Keyword for Bootstrap {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("suggested", Self::Suggested),
        ("mandatory", Self::Mandatory),
    ];
}

impl Keyword for ProtocolConfig {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("http1", Self::Http1),
        ("http2", Self::Http2),
    ];
}

impl Keyword for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

impl Keyword for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}
