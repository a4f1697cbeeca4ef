//! Schemas and levels as configured, and the flows that requests fall into.
//!
//! Plain data, from which policy, classification, estimates and borrowing are built. Not here: the Kubernetes
//! objects ([`super::objects`]), and how these become a [`super::Policy`].

use std::sync::Arc;

/// Whose behaviour to follow where the original is known to be wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Semantics {
    /// As the original behaves, its defects included.
    Compatible,
    /// As the original is intended.
    #[default]
    Improved,
}

/// A schema's index in its `Policy`; in matching order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchemaIndex(pub u32);

/// A level's index in its `Policy`; sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelIndex(pub u32);

/// One FlowSchema that takes part in matching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The object's name.
    pub name: Arc<str>,
    /// The object's UID, or a stable one made from kind and name; never empty.
    pub uid: Arc<str>,
    /// Matching precedence; the lowest wins.
    pub precedence: i32,
    /// The level its requests go to.
    pub level: LevelIndex,
    /// How its requests are split into flows; `None`: all are one flow.
    pub distinguisher: Option<Distinguisher>,
    /// Whose requests they are, where the flows of one tenant weigh together.
    pub tenant: TenantRule,
}

/// How the requests of a schema are split into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// By the user's name.
    ByUser,
    /// By the request's namespace.
    ByNamespace,
}

/// Who the tenant of a schema's requests is. A schema without a distinguisher has one flow, which is its own tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TenantRule {
    /// The user; for a service account its namespace.
    #[default]
    Default,
    /// The user, service accounts too.
    User,
    /// The namespace of the request; where it has none, as by default.
    Namespace,
    /// Each flow is a tenant.
    Flow,
}

impl TenantRule {
    /// The annotation of a FlowSchema that names its rule.
    pub const ANNOTATION: &str = "fairgate.dev/tenant";
    /// All rules.
    pub const ALL: [Self; 4] = [Self::Default, Self::User, Self::Namespace, Self::Flow];

    /// The rule as the annotation names it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::User => "user",
            Self::Namespace => "namespace",
            Self::Flow => "flow",
        }
    }

    /// The rule of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == name)
    }
}

/// One priority level as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSpec {
    /// The object's name.
    pub name: Arc<str>,
    /// The object's UID, or a stable one made from kind and name; never empty.
    pub uid: Arc<str>,
    /// `nominalConcurrencyShares`: the weight of the level in the division of the server concurrency limit.
    pub shares: u32,
    /// Percent of the nominal limit that others may borrow.
    pub(crate) lendable_percent: u32,
    /// How requests are held back.
    pub kind: LevelKind,
}

/// How a level holds its requests back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelKind {
    /// Not at all.
    Exempt,
    /// By a concurrency limit.
    Limited {
        /// Percent of the nominal limit that it may borrow; `None`: no limit.
        borrowing_limit_percent: Option<u32>,
        /// What happens at the limit.
        response: LimitResponse,
    },
}

/// What a limited level does with a request that finds no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitResponse {
    /// Refuse it.
    Reject,
    /// Queue it fairly.
    Queue(Queuing),
}

/// The shape of a level's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queuing {
    /// The deck: 1 to 10 000 000.
    pub queues: u32,
    /// 1 to `queues`, within 60 bits of entropy.
    pub hand_size: u32,
    /// Waiting requests a queue takes.
    pub queue_length_limit: u32,
}

/// Where a request belongs: the outcome of classification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The schema that matched.
    pub schema: SchemaIndex,
    /// The level to which the schema assigns the request.
    pub level: LevelIndex,
    /// Hash of schema and flow distinguisher; 0 where the level has no more than one queue.
    pub hash: u64,
    /// Hash of the tenant. Flows of the same tenant weigh no more together than
    /// [`PolicySettings::tenant_weight`](super::policy::PolicySettings) in a level.
    pub tenant: u64,
}
