//! Admission policies for forwarded requests.
//!
//! `fairgate-admission` evaluates requests; it is pure. This crate does what that needs in front of an upstream: it selects
//! the requests to evaluate, reads what policies ask for, and forwards or refuses the request.
//!
//! The control side publishes the policies ([`PublishedPolicies`]) and what is known of the cluster ([`ClusterState`]).
//! Each evaluated request goes to an [`AdmissionRecorder`](fairgate_admission::AdmissionRecorder), which counts it and
//! writes it to the audit log.
//!
//! # The path of a request
//!
//! [`AdmissionLayer`] is inside flow control. For each request `side` finds out whether a policy may match, by its method,
//! path, user and namespace: without a match nothing is read or allocated. Otherwise the body is read, within a budget of
//! bytes for each core, and replaced by its `request_document`, the one text that is evaluated and forwarded; `evaluate` reads the stored object in the gateway's own name, and makes the object as it will be
//! stored: from the body, from the patch, or by a dry run of the upstream. `evaluating` evaluates it, in several passes if the
//! policies need what is not known, and on a worker thread if that takes long. The request is then refused, or forwarded.
//!
//! In audit mode the request is forwarded at once, and evaluated in the meantime (`auditing`), by what was stored before it (`past_objects`). Nothing is
//! refused, and there are no dry runs.
//!
//! [`AdmissionWaitLayer`] is outside of flow control: until the policies are known, requests wait there without a seat.
//!
//! # Differences from kube-apiserver
//!
//! - Policies see requests before mutating admission. What the server sets, keeps and drops is known by tables (`evaluated_object`), by
//!   the defaults of built-in kinds, and by the schemas of custom resources (`definitions`).
//! - The stored object is read before the write: another client may change it in between, unless writes are guarded.
//! - The name of an object that the server would generate is chosen before mutating admission, if a policy reads it
//!   (`generated_name`). In audit mode it is the one in the response.
//! - Of several versions of a resource, policies see the one that they name only for the built-in kinds of Kubernetes 1.36, and for
//!   custom resources that are not converted by a webhook. A policy for another version of other resources is configured wrongly
//!   for this request, and the request is refused whatever its failure policy is.
//! - Deletions of pods and namespaces that are already being deleted are evaluated, but not in audit mode. kube-apiserver changes nothing then,
//!   and asks no policy.
//! - Without a dry run, policies come before the validation of the object; what else a server finds out before them comes before a denial here, too
//!   (`earlier`, `body_checks`). With one, an object that exists already is shown
//!   to policies under another name, which is changed back.
//! - Bodies in YAML nest at most 128 levels deep. Those in JSON nest as deep as in kube-apiserver, 10 000 levels, for which the threads that run
//!   this crate need a stack of [`STACK_BYTES`](fairgate_base::stack::STACK_BYTES).
//!
//! Not here: following policies, params and namespaces, and the audit log.
//!
#![doc = include_str!("design.md")]

mod answered_here;
mod audit;
mod by_dry_run;
mod cluster;
mod earlier;
mod early_refusals;
mod evaluate;
mod generated_name;
mod guarded;
mod hidden_metrics;
mod late_errors;
mod layer;
mod limits;
mod object;
mod passes;
mod plan;
mod recording;
mod refusing;
mod replies;
mod request;
mod request_document;
mod side;
#[cfg(test)]
mod tests;
mod token_requests;
mod unknown_writes;
mod upstream;
mod wait_layer;

pub use answered_here::AnsweredHere;
pub use cluster::cluster_state::{ClusterState, ResourceKind, ResourcesRead, ServedResource};
pub use cluster::published::{ForwardedPolicies, PublishedPolicies};
pub use fairgate_base::account::BytesHeld;
pub use layer::{AdmissionLayer, AdmissionService};
pub use limits::workers::WorkerPool;
pub use passes::request_evaluator::{RequestEvaluator, RequestEvaluatorSettings};
pub use wait_layer::{AdmissionWaitLayer, AdmissionWaitService};
