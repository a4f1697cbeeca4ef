//! Keys that are set and have no effect with the rest of the configuration: what somebody expects of them does not happen.
//!
//! A key counts as set if its value is not the default, since a configuration may write all defaults.
//!
//! Not here: keys without effect that contradict others, which are errors ([`super::validate`]).

use std::collections::BTreeMap;

use fairgate_core::{apf::policy::Semantics, finding::Severity};

use crate::{
    admission::AdmissionSource,
    config::{
        AnonymousConfig, Config, DisruptionControllerMode, ProtocolConfig, StoreConfig,
        UpstreamIdentityConfig,
    },
    fleet::FleetEngineConfig,
    section::ConfigReader,
};

/// Keys that have an effect with some configurations only.
struct ConditionalKeys {
    /// The keys; one that ends with a dot stands for all below it.
    keys: &'static [&'static str],
    /// The keys that decide whether they have an effect. With an error in one of these it is not known.
    decided_by: &'static [&'static str],
    have_effect: fn(&Config) -> bool,
    /// Why they have none otherwise.
    why: &'static str,
    /// What else can be done than to remove them.
    remedy: &'static str,
}

const CONDITIONAL: &[ConditionalKeys] = &[
    ConditionalKeys {
        keys: &["store."],
        decided_by: &["mode", "fleet.engine"],
        // A fleet may use the etcd of the store.
        have_effect: |config| {
            let fleet = &config.fleet.engine;
            config.mode.hosts() || matches!(fleet, Some(FleetEngineConfig::Etcd(_)))
        },
        why: "only with mode: standalone and overlay the gateway stores objects",
        remedy: "set mode to standalone or overlay",
    },
    ConditionalKeys {
        keys: &[
            "hostedApi.kubernetesVersion",
            "hostedApi.readerGroups",
            "hostedApi.bodyBudget",
            "hostedApi.quota.",
        ],
        decided_by: &["mode"],
        have_effect: |config| config.mode.hosts(),
        why: "only with mode: standalone and overlay the gateway has an API of its own",
        remedy: "set mode to standalone or overlay",
    },
    ConditionalKeys {
        keys: &["fleet."],
        decided_by: &["fleet.engine"],
        have_effect: |config| config.fleet.engine.is_some(),
        why: "fleet.engine is none: this gateway has all seats for itself",
        remedy: "set fleet.engine to kubernetes or etcd",
    },
    ConditionalKeys {
        keys: &["fleet.kubernetes."],
        decided_by: &["fleet.engine"],
        have_effect: |config| !matches!(config.fleet.engine, Some(FleetEngineConfig::Etcd(_))),
        why: "fleet.engine is etcd",
        remedy: "set fleet.engine to kubernetes",
    },
    ConditionalKeys {
        keys: &["fleet.etcd."],
        decided_by: &["fleet.engine"],
        have_effect: |config| {
            !matches!(
                config.fleet.engine,
                Some(FleetEngineConfig::Kubernetes { .. })
            )
        },
        why: "fleet.engine is kubernetes",
        remedy: "set fleet.engine to etcd",
    },
    ConditionalKeys {
        keys: &["store.local."],
        decided_by: &["store.type"],
        have_effect: |config| matches!(config.store, StoreConfig::Local { .. }),
        why: "store.type is etcd",
        remedy: "set store.type to local",
    },
    ConditionalKeys {
        keys: &["store.etcd."],
        decided_by: &["store.type"],
        have_effect: |config| matches!(config.store, StoreConfig::Etcd(_)),
        why: "store.type is local",
        remedy: "set store.type to etcd",
    },
    ConditionalKeys {
        keys: &["state.directory"],
        decided_by: &[
            "mode",
            "flowControl.policies.directory",
            "admission.mode",
            "admission.policies.source",
        ],
        // Those of a store are kept, too.
        have_effect: |config| config.has_policies_to_keep() || config.mode.hosts(),
        why: "there are no policies from files or from an upstream to keep in it",
        remedy: "set flowControl.policies.directory or admission.policies.files",
    },
    ConditionalKeys {
        keys: &["upstream."],
        decided_by: &["upstream.url"],
        have_effect: |config| config.has_upstream,
        why: "there is no upstream",
        remedy: "set upstream.url",
    },
    ConditionalKeys {
        keys: &[
            "upstream.identity.usernameHeader",
            "upstream.identity.uidHeader",
            "upstream.identity.groupHeader",
            "upstream.identity.extraHeaderPrefix",
            "upstream.identity.gatewayUser",
        ],
        decided_by: &["upstream.identity.mode"],
        have_effect: |config| {
            let identity = &config.upstream.identity;
            matches!(identity, UpstreamIdentityConfig::RequestHeader { .. })
        },
        why: "upstream.identity.mode is impersonate",
        remedy: "set upstream.identity.mode to requestHeader",
    },
    ConditionalKeys {
        keys: &["upstream.spread"],
        decided_by: &["upstream.servers"],
        have_effect: |config| !config.upstream.servers.is_empty(),
        why: "there is one server",
        remedy: "set upstream.servers",
    },
    ConditionalKeys {
        keys: &["upstream.maxStreams"],
        decided_by: &["upstream.protocol", "upstream.url"],
        have_effect: |config| match config.upstream.protocol {
            ProtocolConfig::Auto => config.upstream.url.tls,
            ProtocolConfig::Http1 => false,
            ProtocolConfig::Http2 => true,
        },
        why: "the upstream is spoken to over HTTP/1.1, in which a connection carries one request at a time",
        remedy: "set upstream.protocol to http2",
    },
    ConditionalKeys {
        keys: &[
            "authentication.requestHeader.allowedNames",
            "authentication.requestHeader.usernameHeaders",
            "authentication.requestHeader.uidHeaders",
            "authentication.requestHeader.groupHeaders",
            "authentication.requestHeader.extraHeaderPrefixes",
        ],
        decided_by: &["authentication.requestHeader.caFile"],
        have_effect: |config| config.authentication.request_header.is_some(),
        why: "no proxy is trusted: authentication.requestHeader.caFile is not set",
        remedy: "set authentication.requestHeader.caFile",
    },
    ConditionalKeys {
        keys: &[
            "authentication.tokenReview.audiences",
            "authentication.tokenReview.timeout",
            "authentication.tokenReview.cacheTTL",
            "authentication.tokenReview.refusalTTL",
        ],
        decided_by: &["authentication.tokenReview.enabled"],
        have_effect: |config| config.authentication.token_review.is_some(),
        why: "authentication.tokenReview.enabled is false",
        remedy: "set authentication.tokenReview.enabled to true",
    },
    ConditionalKeys {
        keys: &["authentication.anonymous.paths"],
        decided_by: &["authentication.anonymous.enabled"],
        have_effect: |config| {
            // With no paths it is as if it were false.
            let enabled = config.effective.get("authentication.anonymous.enabled");
            config.authentication.anonymous != AnonymousConfig::Refused
                || enabled.is_some_and(|enabled| enabled == "true")
        },
        why: "authentication.anonymous.enabled is false",
        remedy: "set authentication.anonymous.enabled to true",
    },
    ConditionalKeys {
        keys: &["flowControl.tenantWeight"],
        decided_by: &["flowControl.semantics"],
        have_effect: |config| config.flow_control.semantics == Semantics::Improved,
        why: "flowControl.semantics is Compatible, which knows no tenants",
        remedy: "set flowControl.semantics to Improved",
    },
    ConditionalKeys {
        keys: &["eviction.selectorTerms"],
        decided_by: &["eviction.controller"],
        have_effect: |config| config.eviction.controller == DisruptionControllerMode::On,
        why: "eviction.controller is off",
        remedy: "set eviction.controller to on",
    },
    ConditionalKeys {
        keys: &[
            "eviction.wait.exemptUsers",
            "eviction.wait.perBudget",
            "eviction.wait.total",
            "eviction.wait.events",
        ],
        decided_by: &["eviction.wait.limit"],
        have_effect: |config| !config.eviction.wait.limit.is_zero(),
        why: "no evictions wait: eviction.wait.limit is 0",
        remedy: "set eviction.wait.limit to how long evictions may wait",
    },
    ConditionalKeys {
        keys: &[
            "admission.policies.maxStaleness",
            "admission.fidelity",
            "admission.guard",
            "admission.reads",
            "admission.bodyBudget",
        ],
        decided_by: &["admission.mode"],
        have_effect: |config| config.admission.mode.is_some(),
        why: "admission.mode is off",
        remedy: "set admission.mode to audit or enforce",
    },
    ConditionalKeys {
        keys: &["admission.policies.source"],
        decided_by: &["admission.mode"],
        // Hosted policies are stored and served in any case.
        have_effect: |config| {
            config.admission.mode.is_some() || config.admission.source == AdmissionSource::Hosted
        },
        why: "admission.mode is off",
        remedy: "set admission.mode to audit or enforce",
    },
    ConditionalKeys {
        keys: &["admission.audit.maxSize", "admission.audit.maxFiles"],
        decided_by: &["admission.audit.file"],
        have_effect: |config| config.admission.audit.file.is_some(),
        why: "there is no audit log: admission.audit.file is not set",
        remedy: "set admission.audit.file",
    },
];

/// Warns of the keys that are set and have no effect, each once and unless there is another finding about it.
/// `defaults` are the effective values without them.
pub(super) fn report(
    reader: &mut ConfigReader,
    config: &Config,
    defaults: &BTreeMap<String, String>,
) {
    let is_set = |(key, value): &(&String, &String)| {
        defaults.get(*key).is_some_and(|default| default != *value)
    };
    let set: Vec<String> = (config.effective.iter())
        .filter(is_set)
        .map(|(key, _)| key.clone())
        .collect();
    for key in set {
        let names =
            |names: &&str| key == **names || names.ends_with('.') && key.starts_with(*names);
        let mut conditional = CONDITIONAL.iter();
        let without =
            conditional.find(|entry| entry.keys.iter().any(names) && !(entry.have_effect)(config));
        if let Some(without) = without
            && reader.findings.iter().all(|finding| {
                let decides = || without.decided_by.contains(&&*finding.field);
                finding.field != key && !(finding.severity == Severity::Error && decides())
            })
        {
            reader.warning(
                &key,
                format!("has no effect: {}", without.why),
                format!("{}, or remove it", without.remedy),
            );
        }
    }
}
