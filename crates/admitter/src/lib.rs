//! Admission policies for forwarded requests.
//!
//! `fairgate-admission` judges; it is pure. This crate is what it needs in front of an upstream: which requests are
//! judged, what is read for that, and what becomes of the verdict.
//!
//! The control side publishes what requests are judged by: the policies ([`PublishedPolicies`]) and what is known of the
//! cluster ([`ClusterState`]). What was judged goes to an [`AdmissionRecorder`], which counts it and writes it to the
//! audit log.

mod cluster_state;
mod mode;
mod published;
mod record;

pub use cluster_state::{ClusterState, LookupFuture, ResourceKind, ServedResource, SharedObject};
pub use mode::{AdmissionMode, Fidelity};
pub use published::{ForwardedPolicies, PublishedPolicies};
pub use record::{AdmissionDecision, AdmissionRecord, AdmissionRecorder, RecordedCheck};
