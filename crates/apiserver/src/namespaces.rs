//! The namespaces of hosted objects, which the upstream serves.
//!
//! As with kube-apiserver's `NamespaceLifecycle` admission, an object is only created in a namespace that exists and
//! is not being deleted.
//!
//! Not here: deleting the objects of deleted namespaces (`namespace_records`, `reconcile`).

use std::{pin::Pin, sync::Arc};

use http::StatusCode;
use serde_json::json;

use crate::status_error::{StatusError, details};
use fairgate_objects::{go::Quoted, kind::Kind};

/// The state of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceState {
    /// It exists.
    Active {
        /// The UID of the namespace: one that is deleted and created again has another one.
        uid: String,
    },
    /// It is being deleted.
    Terminating,
    /// It does not exist.
    Absent,
}

/// The future of [`Namespaces::state`]; the error says why the state is not known.
pub type NamespaceFuture<'a> =
    Pin<Box<dyn Future<Output = Result<NamespaceState, String>> + Send + 'a>>;

/// Looks up namespaces.
pub trait Namespaces: Send + Sync {
    /// The current state of a namespace.
    fn state<'a>(&'a self, name: &'a str) -> NamespaceFuture<'a>;
}

/// Checks that an object can be created in a namespace, and returns the UID of the namespace. Without `namespaces` every
/// namespace counts as existing, and its UID is not known.
pub(crate) async fn check(
    namespaces: Option<&Arc<dyn Namespaces>>,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, StatusError> {
    let Some(namespaces) = namespaces.filter(|_| kind.namespaced) else {
        return Ok(None);
    };
    match namespaces.state(namespace).await {
        Ok(NamespaceState::Active { uid }) => Ok(Some(uid)),
        Ok(NamespaceState::Terminating) => {
            Err(terminating((kind.group, kind.plural), namespace, name))
        }
        Ok(NamespaceState::Absent) => Err(absent(namespace)),
        Err(why) => Err(StatusError::internal(format!(
            "the namespace {} cannot be read from the upstream: {why}",
            Quoted(namespace)
        ))),
    }
}

/// The error of kube-apiserver for an object in a namespace that does not exist.
pub fn absent(namespace: &str) -> StatusError {
    let message = format!("namespaces {} not found", Quoted(namespace));
    let error = StatusError::new(StatusCode::NOT_FOUND, "NotFound", message);
    error.with_details(details(namespace, "", "namespaces"))
}

/// The error of kube-apiserver for an object in a namespace that is being deleted.
pub fn terminating((group, plural): (&str, &str), namespace: &str, name: &str) -> StatusError {
    let resource = match group {
        "" => plural.to_owned(),
        group => format!("{plural}.{group}"),
    };
    let message = format!(
        "{resource} {} is forbidden: unable to create new content in namespace {namespace} because it is being \
         terminated",
        Quoted(name)
    );
    let mut details = details(name, group, plural);
    details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    StatusError::forbidden(message, details)
}
