//! The resources of Kubernetes itself: which resource the objects of a kind belong to, and whether they are in namespaces.
//!
//! For evaluating objects and policies without a server, which would say this in its discovery documents.
//!
//! Source: the types of `k8s-openapi`, which are generated from the API documents of the pinned release, and the tables of
//! all versions that there ever were ([`fairgate_objects::schema`]).

use std::sync::LazyLock;

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope, Resource,
    api::{
        admissionregistration, apiserverinternal, apps, authentication, authorization, autoscaling,
        batch, certificates, coordination, core, discovery, events, flowcontrol, networking, node,
        policy, rbac, resource, scheduling, storage, storagemigration,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
};

use fairgate_objects::{
    kind::{Kind, KindRules, KindVersion, Storage},
    schema,
};

/// A resource of Kubernetes in a version that the pinned release has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltInResource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version, such as `v1`.
    pub version: &'static str,
    /// The kind, such as `Pod`.
    pub kind: &'static str,
    /// The resource in the plural, such as `pods`.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// Whether the objects of a scope are in namespaces.
trait ObjectScope {
    const NAMESPACED: bool;
}

impl ObjectScope for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl ObjectScope for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

const fn of<R: Resource<Scope: ObjectScope>>() -> BuiltInResource {
    BuiltInResource {
        group: R::GROUP,
        version: R::VERSION,
        kind: R::KIND,
        plural: R::URL_PATH_SEGMENT,
        namespaced: <R::Scope as ObjectScope>::NAMESPACED,
    }
}

macro_rules! resources {
    ($($of:path,)*) => { &[$(of::<$of>()),*] };
}

/// The resources of Kubernetes in the order of group, kind and version; of several versions the stable one is first.
#[rustfmt::skip]
const RESOURCES: &[BuiltInResource] = resources![
    core::v1::Binding,
    core::v1::ComponentStatus,
    core::v1::ConfigMap,
    core::v1::Endpoints,
    core::v1::Event,
    core::v1::LimitRange,
    core::v1::Namespace,
    core::v1::Node,
    core::v1::PersistentVolume,
    core::v1::PersistentVolumeClaim,
    core::v1::Pod,
    core::v1::PodTemplate,
    core::v1::ReplicationController,
    core::v1::ResourceQuota,
    core::v1::Secret,
    core::v1::Service,
    core::v1::ServiceAccount,
    admissionregistration::v1::MutatingAdmissionPolicy,
    admissionregistration::v1beta1::MutatingAdmissionPolicy,
    admissionregistration::v1alpha1::MutatingAdmissionPolicy,
    admissionregistration::v1::MutatingAdmissionPolicyBinding,
    admissionregistration::v1beta1::MutatingAdmissionPolicyBinding,
    admissionregistration::v1alpha1::MutatingAdmissionPolicyBinding,
    admissionregistration::v1::MutatingWebhookConfiguration,
    admissionregistration::v1::ValidatingAdmissionPolicy,
    admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    admissionregistration::v1::ValidatingWebhookConfiguration,
    apiextensions::CustomResourceDefinition,
    apiregistration::APIService,
    apps::v1::ControllerRevision,
    apps::v1::DaemonSet,
    apps::v1::Deployment,
    apps::v1::ReplicaSet,
    apps::v1::StatefulSet,
    authentication::v1::SelfSubjectReview,
    authentication::v1::TokenReview,
    authorization::v1::LocalSubjectAccessReview,
    authorization::v1::SelfSubjectAccessReview,
    authorization::v1::SelfSubjectRulesReview,
    authorization::v1::SubjectAccessReview,
    autoscaling::v2::HorizontalPodAutoscaler,
    autoscaling::v1::HorizontalPodAutoscaler,
    batch::v1::CronJob,
    batch::v1::Job,
    certificates::v1::CertificateSigningRequest,
    certificates::v1beta1::ClusterTrustBundle,
    certificates::v1alpha1::ClusterTrustBundle,
    certificates::v1beta1::PodCertificateRequest,
    coordination::v1::Lease,
    coordination::v1beta1::LeaseCandidate,
    coordination::v1alpha2::LeaseCandidate,
    discovery::v1::EndpointSlice,
    events::v1::Event,
    flowcontrol::v1::FlowSchema,
    flowcontrol::v1::PriorityLevelConfiguration,
    apiserverinternal::v1alpha1::StorageVersion,
    networking::v1::IPAddress,
    networking::v1beta1::IPAddress,
    networking::v1::Ingress,
    networking::v1::IngressClass,
    networking::v1::NetworkPolicy,
    networking::v1::ServiceCIDR,
    networking::v1beta1::ServiceCIDR,
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    rbac::v1::ClusterRole,
    rbac::v1::ClusterRoleBinding,
    rbac::v1::Role,
    rbac::v1::RoleBinding,
    resource::v1::DeviceClass,
    resource::v1beta2::DeviceClass,
    resource::v1beta1::DeviceClass,
    resource::v1beta2::DeviceTaintRule,
    resource::v1alpha3::DeviceTaintRule,
    resource::v1::ResourceClaim,
    resource::v1beta2::ResourceClaim,
    resource::v1beta1::ResourceClaim,
    resource::v1::ResourceClaimTemplate,
    resource::v1beta2::ResourceClaimTemplate,
    resource::v1beta1::ResourceClaimTemplate,
    resource::v1alpha3::ResourcePoolStatusRequest,
    resource::v1::ResourceSlice,
    resource::v1beta2::ResourceSlice,
    resource::v1beta1::ResourceSlice,
    scheduling::v1alpha2::PodGroup,
    scheduling::v1::PriorityClass,
    scheduling::v1alpha2::Workload,
    storage::v1::CSIDriver,
    storage::v1::CSINode,
    storage::v1::CSIStorageCapacity,
    storage::v1::StorageClass,
    storage::v1::VolumeAttachment,
    storage::v1::VolumeAttributesClass,
    storage::v1beta1::VolumeAttributesClass,
    storagemigration::v1beta1::StorageVersionMigration,
];

/// The resources of Kubernetes in the order of group, kind and version; of several versions the stable one is first.
/// Subresources are not among them.
pub fn built_in_resources() -> &'static [BuiltInResource] {
    RESOURCES
}

/// A resource of this group and kind, in whichever version comes first.
pub fn built_in_resource(group: &str, kind: &str) -> Option<&'static BuiltInResource> {
    built_in_resources()
        .iter()
        .find(|one| one.group == group && one.kind == kind)
}

/// The resources with the tables of their fields in all versions, for [`expression_warnings`](crate::expression_warnings).
///
/// They cannot be hosted: they have no rules and no defaults. Kinds that have no table, such as
/// `CustomResourceDefinition`, are left out.
pub fn typed_kinds() -> &'static [&'static Kind] {
    static VERSIONS: LazyLock<Vec<(&'static BuiltInResource, Vec<KindVersion>)>> =
        LazyLock::new(|| {
            let mut all: Vec<(&BuiltInResource, Vec<KindVersion>)> = Vec::new();
            for one in built_in_resources() {
                let is_known = |(of, _): &(&BuiltInResource, Vec<KindVersion>)| {
                    of.group == one.group && of.kind == one.kind
                };
                if !all.iter().any(is_known) {
                    all.push((one, versions(one)));
                }
            }
            all
        });
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        let with_tables = VERSIONS.iter().filter(|(_, versions)| !versions.is_empty());
        with_tables
            .map(|(one, versions)| kind(one, versions))
            .collect()
    });
    static REFERENCES: LazyLock<Vec<&'static Kind>> = LazyLock::new(|| KINDS.iter().collect());
    &REFERENCES
}

fn versions(of: &BuiltInResource) -> Vec<KindVersion> {
    let tables = schema::built_in_kinds().iter();
    let own = tables.filter(|one| one.group == of.group && one.kind == of.kind);
    own.map(|one| KindVersion {
        name: one.version,
        shape: one.shape,
        deprecated: None,
        default: |_| {},
        to_storage: |_| {},
        from_storage: |_| {},
    })
    .collect()
}

fn kind(of: &BuiltInResource, versions: &'static [KindVersion]) -> Kind {
    static RULES: KindRules = KindRules {
        name: None,
        validate: |_, _| Vec::new(),
        slow_validation: false,
        validate_status: |_| Vec::new(),
        warnings: |_| Vec::new(),
        unconditional_update: false,
        status_writes_metadata: false,
        columns: &[],
        row_order: None,
    };
    Kind {
        group: of.group,
        kind: of.kind,
        list_kind: "",
        plural: of.plural,
        // Rules of policies name resources in the plural.
        singular: of.plural,
        short_names: &[],
        categories: &[],
        namespaced: of.namespaced,
        has_status: false,
        storage: Storage::Stored,
        versions,
        rules: &RULES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds with a table that are no resource of their own.
    const NO_RESOURCES: [&str; 7] = [
        "DeploymentRollback",
        "Eviction",
        "PodStatusResult",
        "RangeAllocation",
        "Scale",
        "SerializedReference",
        "TokenRequest",
    ];

    #[test]
    fn every_kind_with_a_table_is_a_resource() {
        let mut count = 0;
        for one in schema::built_in_kinds() {
            let is_other = one.kind.ends_with("List")
                || one.kind.ends_with("Options")
                || NO_RESOURCES.contains(&one.kind)
                || one.group == "extensions";
            if is_other {
                continue;
            }
            let found = built_in_resource(one.group, one.kind);
            assert!(found.is_some(), "{one:?}");
            count += 1;
        }
        assert!(count > 100, "{count}");
    }

    #[test]
    fn resources_have_the_names_and_scopes_of_the_api() {
        let name = |group, kind| {
            let found = built_in_resource(group, kind).unwrap();
            (found.version, found.plural, found.namespaced)
        };
        assert_eq!(name("", "Pod"), ("v1", "pods", true));
        assert_eq!(name("", "Endpoints"), ("v1", "endpoints", true));
        assert_eq!(name("", "Namespace"), ("v1", "namespaces", false));
        assert_eq!(name("autoscaling", "HorizontalPodAutoscaler").0, "v2");
        let ingress = name("networking.k8s.io", "Ingress");
        assert_eq!(ingress, ("v1", "ingresses", true));
        assert_eq!(built_in_resource("", "Deployment"), None);
    }

    #[test]
    fn typed_kinds_have_the_fields_of_their_versions() {
        let kinds = typed_kinds();
        let deployment = kinds.iter().find(|one| one.kind == "Deployment").unwrap();
        let version = deployment.version("v1").unwrap();
        assert!(version.shape.field("spec").is_some());
        assert!(deployment.version("v1beta2").is_some());
    }
}
