//! Admission policies for forwarded requests.
//!
//! `fairgate-admission` judges; it is pure. This crate is what it needs in front of an upstream: which requests are
//! judged, what is read for that, and what becomes of the verdict.
//!
//! The control side publishes what requests are judged by: the policies ([`PublishedPolicies`]) and what is known of the
//! cluster ([`ClusterState`]). What was judged goes to an [`AdmissionRecorder`], which counts it and writes it to the
//! audit log.
//!
//! # The way of a request
//!
//! [`AdmissionLayer`] is inside flow control. For each request `side` finds out whether a policy may match, by its method,
//! path, user and namespace: without a match nothing is read or allocated. Otherwise the body is read, within a budget of
//! bytes for each core; `evaluate` reads the stored object in the gateway's own name, and makes the object as it will be
//! stored: from the body, from the patch, or by a dry run of the upstream. `judging` judges it, in several passes if the
//! policies need what is not known, and on a worker thread if that takes long. The request is then refused, or forwarded.
//!
//! In audit mode the request is forwarded at once, and judged meanwhile. Nothing is refused, and there are no dry runs.
//!
//! [`AdmissionWaitLayer`] is outside of flow control: until the policies are known, requests wait there without a seat.
//!
//! # Differences from kube-apiserver
//!
//! - Policies see requests before mutating admission and, without a dry run, before defaults.
//! - The stored object is read before the write: another client may change it in between, unless writes are guarded.
//! - Of several versions of a resource, policies see the one of the request. A policy for another version of it is
//!   configured wrongly for this request, and its failure policy decides.
//! - Objects nest at most 512 levels deep.
//!
//! Not here: following policies, params and namespaces, and the audit log.

mod admitter;
pub mod audit;
mod body_budget;
mod cluster_state;
mod dry_run;
mod evaluate;
mod facts;
mod judge_inputs;
mod judge_job;
mod judging;
mod layer;
mod match_inputs;
mod mode;
mod objects;
mod options;
mod plan;
mod published;
mod record;
mod recording;
mod responses;
mod side;
#[cfg(test)]
mod tests;
mod upstream_objects;
mod wait_layer;
mod warnings;
mod write_request;

pub use admitter::{Admitter, AdmitterSettings};
pub use cluster_state::{ClusterState, LookupFuture, ResourceKind, ServedResource, SharedObject};
pub use layer::{AdmissionLayer, AdmissionService};
pub use mode::{AdmissionMode, Fidelity};
pub use published::{ForwardedPolicies, PublishedPolicies};
pub use record::{AdmissionDecision, AdmissionRecord, AdmissionRecorder, RecordedCheck};
pub use wait_layer::{AdmissionWaitLayer, AdmissionWaitService};
