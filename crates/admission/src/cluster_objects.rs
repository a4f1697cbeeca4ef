//! The objects of the cluster that evaluating may need besides those of a request: namespaces and params.

use std::{borrow::Cow, fmt, pin::Pin, sync::Arc};

use fairgate_cel::CelJson;

use crate::inputs::{InputFailure, LookupLack, ParamScope, PolicyParamKind};

/// An object that requests share.
pub type SharedObject = Arc<CelJson<'static>>;

/// An object that is being read.
pub type LookupFuture<'a> =
    Pin<Box<dyn Future<Output = Result<SharedObject, InputFailure>> + Send + 'a>>;

/// Objects that are being listed.
pub type ListFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<SharedObject>, LookupLack>> + Send + 'a>>;

/// Ends when something is known, or with what is lacking. What cannot become known ends without error, too.
pub type KnownFuture<'a> = Pin<Box<dyn Future<Output = Result<(), LookupLack>> + Send + 'a>>;

/// The namespaces and params of a cluster.
///
/// Every method that returns no future answers from memory. It is called for each request that may be evaluated, and costs a
/// search in a table. Futures end within seconds, whatever the cluster does. Unless an implementation says otherwise, there are no params.
pub trait ClusterObjects: fmt::Debug + Send + Sync + 'static {
    /// The namespace of that name; `None` if it is not known, which does not mean that there is none.
    fn namespace(&self, name: &str) -> Option<SharedObject>;

    /// Reads a namespace from the cluster, in the turn of a user.
    fn read_namespace<'a>(&'a self, user: &'a str, name: &'a str) -> LookupFuture<'a>;

    /// Whether the objects of a kind of params have namespaces.
    ///
    /// # Errors
    ///
    /// That there is no such kind, as kube-apiserver words it.
    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String>;

    /// Whether all objects of a kind of params are known.
    fn are_params_known(&self, _: &PolicyParamKind) -> bool {
        true
    }

    /// Waits until all objects of a kind of params are known, or for as long as a request should wait for that.
    fn params_known<'a>(&'a self, _kind: &'a PolicyParamKind) -> KnownFuture<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// A param by namespace (empty for kinds without) and name; `None` if it is not known.
    fn param(
        &self,
        _kind: &PolicyParamKind,
        _namespace: &str,
        _name: &str,
    ) -> Option<SharedObject> {
        None
    }

    /// Reads a param from the cluster, in the turn of a user.
    fn read_param<'a>(
        &'a self,
        _user: &'a str,
        _kind: &'a PolicyParamKind,
        _namespace: &'a str,
        _name: &'a str,
    ) -> LookupFuture<'a> {
        Box::pin(std::future::ready(Err(InputFailure::NotFound)))
    }

    /// All params of a kind in a namespace (empty for kinds without), by name.
    fn params(&self, _kind: &PolicyParamKind, _namespace: &str) -> Vec<SharedObject> {
        Vec::new()
    }

    /// Whether [`params`](Self::params) are not to be used: all params of a kind that a binding selects from are listed for each request. What is
    /// looked up by name is, too: it is not known to [`namespace`](Self::namespace) and [`param`](Self::param).
    fn lists_params(&self, _: &PolicyParamKind) -> bool {
        false
    }

    /// Lists the params of a kind in a namespace (empty for kinds without), by name, in the turn of a user.
    fn list_params<'a>(
        &'a self,
        _user: &'a str,
        kind: &'a PolicyParamKind,
        namespace: &'a str,
    ) -> ListFuture<'a> {
        Box::pin(std::future::ready(Ok(self.params(kind, namespace))))
    }
}

/// About how many bytes an object takes in memory. Linear in its size; the format that it was read from bounds how deep it nests.
pub fn object_bytes(object: &CelJson<'_>) -> usize {
    let inner = match object {
        CelJson::String(text) => text.len(),
        CelJson::Array(items) => items.iter().map(object_bytes).sum(),
        CelJson::Object(object) => {
            let members = object.members().iter();
            let one = |(key, value): &(Cow<'_, str>, CelJson<'_>)| {
                size_of_val(key) + key.len() + object_bytes(value)
            };
            members.map(one).sum()
        }
        _ => 0,
    };
    size_of::<CelJson<'_>>() + inner
}

/// That there is no kind of params, in kube-apiserver's words.
pub fn unknown_param_kind(kind: &PolicyParamKind) -> String {
    let PolicyParamKind { api_version, kind } = kind;
    format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'")
}
