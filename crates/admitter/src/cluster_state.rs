//! What judging requests needs to know about the cluster: namespaces, params, and the kinds of resources.

use std::{fmt, pin::Pin, sync::Arc};

use fairgate_admission::{InputFailure, ParamScope, PolicyParamKind};
use fairgate_cel::CelJson;

/// An object that requests share.
pub type SharedObject = Arc<CelJson<'static>>;

/// An object that is read from the upstream.
pub type LookupFuture<'a> =
    Pin<Box<dyn Future<Output = Result<SharedObject, InputFailure>> + Send + 'a>>;

/// A resource, or a subresource, with the kind of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// The API group of the resource; empty for the core group.
    pub group: String,
    /// The version of the resource.
    pub version: String,
    /// The resource in the plural.
    pub resource: String,
    /// Group, version and kind of the objects, which for subresources are their own, such as `autoscaling/v1 Scale`;
    /// none if they are not known.
    pub kind: Option<[String; 3]>,
}

/// A resource that the upstream serves, or a subresource of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// The resource itself.
    pub resource: ResourceKind,
    /// Whether its objects have namespaces.
    pub is_namespaced: bool,
    /// The resources with the same objects, itself among them: other versions of its group, and those of other groups
    /// that are the same by history.
    pub equivalents: Vec<ResourceKind>,
}

/// What is known of the cluster.
///
/// Every method but the `read` ones answers from memory, and is called on the data cores for each request that may be
/// judged: it costs a search in a hash table.
pub trait ClusterState: fmt::Debug + Send + Sync + 'static {
    /// The resource, or its subresource if that is not empty. `None` if the upstream is not known to serve it.
    fn resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        subresource: &str,
    ) -> Option<Arc<ServedResource>>;

    /// The namespace of that name; `None` if it is not known, which does not mean that there is none.
    fn namespace(&self, name: &str) -> Option<SharedObject>;

    /// Reads a namespace from the upstream.
    fn read_namespace<'a>(&'a self, name: &'a str) -> LookupFuture<'a>;

    /// Whether the objects of a kind of params have namespaces.
    ///
    /// # Errors
    ///
    /// That there is no such kind, as kube-apiserver words it.
    fn param_scope(&self, kind: &PolicyParamKind) -> Result<ParamScope, String>;

    /// Whether all objects of a kind of params are known.
    fn are_params_known(&self, kind: &PolicyParamKind) -> bool;

    /// A param by namespace (empty for kinds without) and name; `None` if it is not known.
    fn param(&self, kind: &PolicyParamKind, namespace: &str, name: &str) -> Option<SharedObject>;

    /// Reads a param from the upstream.
    fn read_param<'a>(
        &'a self,
        kind: &'a PolicyParamKind,
        namespace: &'a str,
        name: &'a str,
    ) -> LookupFuture<'a>;

    /// All params of a kind in a namespace (empty for kinds without), by name.
    fn params(&self, kind: &PolicyParamKind, namespace: &str) -> Vec<SharedObject>;
}
