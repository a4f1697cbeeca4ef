//! What evaluating requests needs to know about the cluster: namespaces and params ([`ClusterObjects`]), and
//! the kinds of resources.

use std::{pin::Pin, sync::Arc};

use fairgate_admission::ClusterObjects;

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

/// The resources of the upstream, which are being read.
pub type ResourcesRead<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// What is known of the cluster.
pub trait ClusterState: ClusterObjects {
    /// The resource, or its subresource if that is not empty. `None` if the upstream is not known to serve it. Answers from
    /// memory.
    fn resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
        subresource: &str,
    ) -> Option<Arc<ServedResource>>;

    /// Whether the upstream has custom resources at all; API servers other than kube-apiserver may have none.
    fn serves_definitions(&self) -> bool {
        let (group, resource) = ("apiextensions.k8s.io", "customresourcedefinitions");
        self.resource(group, "v1", resource, "").is_some()
    }

    /// Whether the resources have been read at least once. Until then, [`resource`](Self::resource) finds none.
    fn are_resources_known(&self) -> bool;

    /// Waits until the resources have been read by requests that began after this call, or fails with why they could not be read.
    /// All who wait share one reading. It may take longer than a request should wait.
    fn resources_read(&self) -> ResourcesRead<'_>;
}
