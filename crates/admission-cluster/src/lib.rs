//! What evaluating forwarded requests needs to know about the cluster behind the gateway.
//!
//! [`FollowedCluster`] is a [`ClusterState`](fairgate_admission_layer::ClusterState): it follows namespaces and the params that
//! policies name by watch, reads single objects that are not known yet, and learns from discovery which resources there
//! are. It follows only what the policies in force need.
//!
//! [`PolicyPublisher`] compiles what a [`PolicySource`](fairgate_policy_sources::PolicySource) yields to [`PublishedPolicies`](fairgate_admission_layer::PublishedPolicies). [`UpstreamPolicies`] is the source of the upstream's own objects; those
//! of files and of the hosted API are in `fairgate-policy-sources`.
//!
//! [`KindSchemas`] knows the fields of the kinds that policies are about, for checking the types of expressions.
//!
//! Everything here runs on the control runtime. Data cores only read: a search in a table behind a lock that writers
//! hold for one insertion.
//!
//! Not here: evaluating (`fairgate-admission`), and what happens to requests (`fairgate-admission-layer`).

mod discovery;
mod follower;
mod kind_schemas;
mod live_reads;
mod objects;
mod policy_documents;
mod publisher;
mod publishing_status;
mod resources;
mod schema_cache;
mod shared_reads;
mod state;
#[cfg(test)]
mod tests;
mod upstream_policies;

pub use kind_schemas::{KindSchemas, NamedKinds};
pub use policy_documents::{PreparedPolicies, prepare};
pub use publisher::{KeepPolicies, PolicyPublisher};
pub use publishing_status::PublishingStatus;
pub use state::{ClusterNeeds, ClusterSettings, FollowedCluster};
pub use upstream_policies::UpstreamPolicies;
