//! What operators are told of the policy in force: its objects, its source, its revision and its age.

use std::time::Duration;

use super::super::settings;
use fairgate_config::{Config, GatewayMode, StoreConfig};
use fairgate_core::apf::Policy;
use fairgate_policy_sources::policy_in_force::{InForceDetails, PolicyInForce};

/// Where the policy in force comes from.
pub(crate) struct ReportedOrigin {
    /// The configured source in words; `None` if the built-in objects are all there is.
    pub(crate) source: Option<String>,
    /// The revision of the source; `None` if it has not been read.
    pub(crate) revision: Option<String>,
    /// How long the policy has been in force.
    pub(crate) age: Duration,
    /// Why it is not what the source has.
    pub(crate) problem: Option<String>,
}

/// The policy in force, in JSON. Takes time in proportion to its rules.
pub(crate) fn to_json(policy: &Policy, origin: ReportedOrigin) -> String {
    let settings = policy.settings();
    let details = InForceDetails {
        source: match (origin.source, &origin.revision) {
            (Some(source), Some(_)) => source,
            (Some(source), None) => {
                format!("the built-in objects, until {source} could be read")
            }
            (None, _) => "the built-in objects".to_owned(),
        },
        revision: origin.revision,
        age_seconds: origin.age.as_secs(),
        problem: origin.problem,
        total_seats: settings.total_seats,
        semantics: settings.semantics,
        tenant_weight: settings.tenant_weight,
    };
    let (schemas, levels) = policy.to_objects();
    let schemas = schemas.iter().map(serde_json::to_value);
    let levels = levels.iter().map(serde_json::to_value);
    let items = schemas.chain(levels).filter_map(Result::ok).collect();
    let report = PolicyInForce::new(details, items);
    serde_json::to_string(&report).unwrap_or_default() + "\n"
}

/// The configured source of the policy in words; `None` if the built-in objects are all there is.
pub(crate) fn source_in_words(config: &Config) -> Option<String> {
    match (config.mode, &config.store) {
        (GatewayMode::Files, _) => {
            let directory = config.flow_control.policies.as_ref()?;
            Some(format!("the files of {}", directory.display()))
        }
        (GatewayMode::Sidecar, _) => {
            let upstream = settings::upstream_name(config);
            Some(format!("the API of the upstream {upstream}"))
        }
        (_, StoreConfig::Local { path }) => Some(format!("the store {}", path.display())),
        (_, StoreConfig::Etcd(etcd)) => Some(format!("etcd, below {}", etcd.prefix)),
    }
}
