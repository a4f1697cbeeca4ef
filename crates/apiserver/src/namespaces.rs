//! The namespaces of hosted objects, which the upstream serves.
//!
//! As with kube-apiserver's `NamespaceLifecycle` admission, an object is only created in a namespace that exists and
//! is not being deleted.
//!
//! Not here: deleting the objects of deleted namespaces (`namespace_records`, `reconcile`).

use std::{pin::Pin, sync::Arc};

use fairgate_apihttp::status_error::StatusError;
use fairgate_gotext::Quoted;
use fairgate_objects::kind::Kind;

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
        Ok(NamespaceState::Terminating) => Err(StatusError::namespace_terminating(
            (kind.group, kind.plural),
            namespace,
            name,
        )),
        Ok(NamespaceState::Absent) => Err(StatusError::namespace_absent(namespace)),
        Err(why) => Err(StatusError::internal(format!(
            "the namespace {} cannot be read from the upstream: {why}",
            Quoted(namespace)
        ))),
    }
}
