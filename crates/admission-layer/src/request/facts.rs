//! What is known of a request that is evaluated, apart from its objects. It can be sent to another thread.

use std::sync::Arc;

use fairgate_admission::{
    AdmissionAttributes, AdmissionOperation, EquivalentResource, GroupVersionKind,
    GroupVersionResource,
};
use fairgate_cel::CelJson;
use fairgate_core::digest::User;
use fairgate_objects::schema::built_in;
use fairgate_upstream::path::push_segment;
use serde_json::Value;
use smallvec::SmallVec;

use crate::{
    cluster::cluster_state::{ResourceKind, ServedResource},
    request::findings::BodyFindings,
    request::write_request::{ForwardedWrite, WriteVerb},
};

/// Equivalent resources that are found without allocating.
pub(crate) type Equivalents<'a> = SmallVec<[EquivalentResource<'a>; 8]>;

/// A request that is evaluated.
#[derive(Clone, Debug)]
pub(crate) struct WriteFacts {
    pub(crate) operation: AdmissionOperation,
    pub(crate) verb: WriteVerb,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    /// The name in the path, or else the one of the object.
    pub(crate) name: String,
    /// Group, version and kind of the object; empty texts if they are not known.
    pub(crate) kind: [String; 3],
    pub(crate) user: Arc<User>,
    pub(crate) dry_run: bool,
    /// Whether the body states a version that the stored object must have; false before it was read.
    pub(crate) states_version: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`; none for upgrades.
    pub(crate) options: Option<Value>,
    /// The resource as the upstream serves it, if that is known.
    pub(crate) served: Option<Arc<ServedResource>>,
    /// What the server would say of the body before it asks its policies.
    pub(crate) findings: BodyFindings,
    /// What an autoscaler of version 1 does not show of its metrics.
    pub(crate) metrics: HiddenMetrics,
}

/// The metrics of an autoscaler in version 2, where its version 1 does not show all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum HiddenMetrics {
    /// It shows all of them.
    #[default]
    None,
    Known(Arc<Value>),
    /// There may be some that it does not show. It cannot be converted then.
    Unknown,
}

impl HiddenMetrics {
    /// All metrics, where they are known and the object does not show them.
    pub(crate) fn known(&self) -> Option<&Arc<Value>> {
        match self {
            Self::Known(metrics) => Some(metrics),
            Self::None | Self::Unknown => None,
        }
    }
}

impl WriteFacts {
    pub(crate) fn new(
        write: &ForwardedWrite<'_>,
        user: &Arc<User>,
        served: Option<Arc<ServedResource>>,
    ) -> Self {
        let kind = kind_of(served.as_deref());
        Self {
            operation: write.operation,
            verb: write.verb,
            group: write.resource.group.to_owned(),
            version: write.resource.version.to_owned(),
            resource: write.resource.resource.to_owned(),
            subresource: write.subresource.to_owned(),
            namespace: write.namespace.to_owned(),
            name: write.name.to_owned(),
            kind: [kind.group, kind.version, kind.kind].map(str::to_owned),
            user: Arc::clone(user),
            dry_run: false,
            states_version: false,
            options: None,
            served,
            findings: BodyFindings::default(),
            metrics: HiddenMetrics::None,
        }
    }

    /// Takes the kind of an object if the upstream's discovery does not tell it.
    pub(crate) fn set_kind_by(&mut self, object: &Value) {
        if self.kind[2].is_empty() {
            let text = |key: &str| object[key].as_str().unwrap_or_default();
            self.set_kind(text("apiVersion"), text("kind"));
        }
    }

    pub(crate) fn set_kind(&mut self, api_version: &str, kind: &str) {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kind = [group, version, kind].map(str::to_owned);
    }

    /// Without a name in the path, that of the object counts. A new namespace is in itself, unless its name is generated.
    pub(crate) fn name_by(&mut self, object: &Value, is_generated: bool) {
        if self.name.is_empty() {
            let name = object["metadata"]["name"].as_str();
            name.unwrap_or_default().clone_into(&mut self.name);
        }
        if self.is_namespace() && self.namespace.is_empty() && !is_generated {
            self.namespace.clone_from(&self.name);
        }
    }

    /// The attributes that policies see.
    pub(crate) fn attributes<'a>(
        &'a self,
        options: Option<&'a CelJson<'a>>,
    ) -> AdmissionAttributes<'a> {
        AdmissionAttributes {
            operation: self.operation,
            resource: self.group_version_resource(),
            subresource: &self.subresource,
            kind: self.group_version_kind(),
            namespace: &self.namespace,
            name: &self.name,
            user: &self.user,
            dry_run: self.dry_run,
            options,
        }
    }

    pub(crate) fn group_version_resource(&self) -> GroupVersionResource<'_> {
        GroupVersionResource {
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
        }
    }

    pub(crate) fn group_version_kind(&self) -> GroupVersionKind<'_> {
        group_version_kind(&self.kind)
    }

    /// `apiVersion` of the object, such as `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        let [group, version, _] = &self.kind;
        if group.is_empty() {
            version.clone()
        } else {
            format!("{group}/{version}")
        }
    }

    /// Whether the objects are of a built-in kind, as those of some subresources of custom resources.
    pub(crate) fn has_table(&self) -> bool {
        let kind = self.group_version_kind();
        built_in(kind.group, kind.version, kind.kind).is_some()
    }

    /// The path at which a custom resource is defined.
    pub(crate) fn definition_path(&self) -> String {
        let mut path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/".to_owned();
        push_segment(&mut path, &format!("{}.{}", self.resource, self.group));
        path
    }

    /// Whether the request is for a namespace, or for a subresource of one.
    pub(crate) fn is_namespace(&self) -> bool {
        self.group.is_empty() && self.resource == "namespaces"
    }
}

/// The kind of a resource's objects; empty texts if it is not known.
pub(crate) fn kind_of(served: Option<&ServedResource>) -> GroupVersionKind<'_> {
    let kind = served.and_then(|served| served.resource.kind.as_ref());
    kind.map_or_else(GroupVersionKind::default, group_version_kind)
}

fn group_version_kind([group, version, kind]: &[String; 3]) -> GroupVersionKind<'_> {
    GroupVersionKind {
        group,
        version,
        kind,
    }
}

/// The resources with the same objects as a served one.
pub(crate) fn equivalents(served: Option<&ServedResource>) -> Equivalents<'_> {
    fn borrowed(of: &ResourceKind) -> EquivalentResource<'_> {
        EquivalentResource {
            resource: GroupVersionResource {
                group: &of.group,
                version: &of.version,
                resource: &of.resource,
            },
            kind: of.kind.as_ref().map(group_version_kind),
        }
    }
    let all = served.map_or(&[][..], |served| &served.equivalents);
    all.iter().map(borrowed).collect()
}
