//! The policy that a running gateway has in force, as its debug endpoint sends it and `check` and `explain` read it.
//!
//! It is a `List` as kubectl prints it, so that it can also be passed on as policy objects, with a member for what a list has no
//! place for. It holds no secret: the key of the flow hash is not in it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use fairgate_core::apf::{Seats, policy::Semantics};

/// The path of the endpoint, on the admin ports and the main port.
pub const PATH: &str = "/debug/api_priority_and_fairness/dump_policy";

/// The objects of a policy in force, and where they come from.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyInForce {
    kind: String,
    api_version: String,
    /// Where they come from.
    pub fairgate: InForceDetails,
    /// `FlowSchemas` and `PriorityLevelConfigurations`, built-in ones included.
    pub items: Vec<Value>,
}

/// Where the policy comes from, and what it was compiled for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InForceDetails {
    /// The source in words, such as `the files of /etc/fairgate/policies`.
    pub source: String,
    /// The revision of the source; `None` for the built-in objects.
    pub revision: Option<String>,
    /// How long the policy has been in force, in seconds.
    pub age_seconds: u64,
    /// Why it is not what the source has; `None` if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The seats that it divides.
    pub total_seats: Seats,
    /// How requests are queued.
    pub semantics: Semantics,
    /// What the flows of one tenant weigh together at most.
    pub tenant_weight: u32,
}

impl PolicyInForce {
    /// A list of objects, with where they come from.
    pub fn new(fairgate: InForceDetails, items: Vec<Value>) -> Self {
        Self {
            kind: "List".to_owned(),
            api_version: "v1".to_owned(),
            fairgate,
            items,
        }
    }
}
