//! Validation of policies and bindings that clients write, in the API server's words and order.
//!
//! Objects are in canonical form and have their defaults. Metadata is not validated here, except the names that
//! the kinds require.
//!
//! Source: Kubernetes `pkg/apis/admissionregistration/validation/validation.go`.

mod binding;
mod match_resources;
mod policy;
mod status;

use serde_json::Value;

pub use binding::validate as validate_binding;
pub use policy::validate as validate_policy;
pub use status::validate as validate_policy_status;

/// The items of a list with their indices; none if `list` is not a list.
fn items(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// A string; empty if it is absent.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
