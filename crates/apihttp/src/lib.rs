//! Kubernetes' HTTP manners: what everything has in common that answers API requests itself.
//!
//! The hosted API, evictions and admission policies answer as kube-apiserver does:
//!
//! - [`request`] is a complete request, and [`query`] its parameters; [`list_parameters`], [`continue_token`], [`posted`] and
//!   [`deletion_checks`] are those of lists and of bodies.
//! - [`negotiate`] and [`content_type`] find the formats of bodies.
//! - [`authorize`] decides what a user may do, by built-in rules or by asking the upstream, and [`access`] has the answers to those who may
//!   not. [`authorizer_checks`] asks for the expressions of policies.
//! - [`response`] is an answer, and [`status_error`] an error with its `Status`.
//!
//! Not here: objects and their store, and which paths there are (`fairgate-apiserver`).

pub mod access;
pub mod authorize;
pub mod authorizer_checks;
pub mod content_type;
pub mod continue_token;
pub mod deletion_checks;
pub mod list_parameters;
pub mod negotiate;
pub mod posted;
pub mod query;
pub mod random;
pub mod request;
pub mod response;
pub mod status_error;
