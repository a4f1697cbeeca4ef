//! Fields that a server sets in what clients write, by what only it knows: other objects, its configuration, what it allocates.
//!
//! Policies of a server see them. Without a dry run nobody else knows them, and expressions that read them may have other results.
//!
//! Source: the admission plugins that kube-apiserver 1.36 runs by default, and the strategies of its resources. Tests compare the table
//! with objects that a server showed its policies. Webhooks and mutating policies may set anything; they are not in it.

use std::{fmt, sync::LazyLock};

use fairgate_cel::{CelJson, CelReads, CelStep};

use crate::attributes::{AdmissionAttributes, AdmissionOperation};

/// A field that a server sets in objects of a resource.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldSetByServer {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    /// The names of its members; `*` is any element.
    path: &'static [&'static str],
    /// The same, from the variable `object` on.
    steps: Vec<CelStep>,
    by: &'static str,
    extent: Extent,
}

/// In which objects a field is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// In those without it.
    Absent,
    /// The server adds to what a new object has.
    Added,
    /// In new objects that do not have it, but have the field `spec.nodeName`.
    OnNode,
}

use Extent::{Absent, Added, OnNode};

type Row = (&'static str, &'static [&'static str], &'static str, Extent);

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const ACCOUNT: &str = "the plugin ServiceAccount";
const LIMITS: &str = "the plugin LimitRanger";
const PRIORITY: &str = "the plugin Priority";
const TOPOLOGY: &str = "the plugin PodTopologyLabels";
const RUNTIME: &str = "the plugin RuntimeClass";
const PROTECTION: &str = "the plugin StorageObjectInUseProtection";
const ALLOCATED: &str = "the server, which allocates it";
const CONFIGURED: &str = "the server, by its flag --api-audiences";
const DERIVED: &str = "the server, which derives it from the object";

/// Resource with subresource and group, path, who sets it, and where.
const ROWS: &[Row] = &[
    ("pods", &["spec", "serviceAccountName"], ACCOUNT, Absent),
    ("pods", &["spec", "serviceAccount"], ACCOUNT, Absent),
    ("pods", &["spec", "imagePullSecrets"], ACCOUNT, Absent),
    ("pods", &["spec", "volumes"], ACCOUNT, Added),
    (
        "pods",
        &["spec", "containers", "*", "volumeMounts"],
        ACCOUNT,
        Added,
    ),
    (
        "pods",
        &["spec", "initContainers", "*", "volumeMounts"],
        ACCOUNT,
        Added,
    ),
    (
        "pods",
        &["spec", "tolerations"],
        "the plugin DefaultTolerationSeconds",
        Added,
    ),
    ("pods", &["spec", "priority"], PRIORITY, Absent),
    ("pods", &["spec", "priorityClassName"], PRIORITY, Absent),
    ("pods", &["spec", "preemptionPolicy"], PRIORITY, Absent),
    ("pods", &["spec", "overhead"], RUNTIME, Absent),
    ("pods", &["spec", "nodeSelector"], RUNTIME, Added),
    (
        "pods",
        &["spec", "containers", "*", "resources", "limits"],
        LIMITS,
        Added,
    ),
    (
        "pods",
        &["spec", "containers", "*", "resources", "requests"],
        LIMITS,
        Added,
    ),
    (
        "pods",
        &["spec", "initContainers", "*", "resources", "limits"],
        LIMITS,
        Added,
    ),
    (
        "pods",
        &["spec", "initContainers", "*", "resources", "requests"],
        LIMITS,
        Added,
    ),
    (
        "pods",
        &["metadata", "annotations", "kubernetes.io/limit-ranger"],
        LIMITS,
        Absent,
    ),
    ("pods", &["metadata", "labels", ZONE], TOPOLOGY, OnNode),
    ("pods", &["metadata", "labels", REGION], TOPOLOGY, OnNode),
    ("pods", &["status", "qosClass"], DERIVED, Absent),
    (
        "pods/binding",
        &["metadata", "labels", ZONE],
        TOPOLOGY,
        Absent,
    ),
    (
        "pods/binding",
        &["metadata", "labels", REGION],
        TOPOLOGY,
        Absent,
    ),
    (
        "serviceaccounts/token",
        &["spec", "audiences"],
        CONFIGURED,
        Absent,
    ),
    (
        "podgroups.scheduling.k8s.io",
        &["spec", "priority"],
        PRIORITY,
        Absent,
    ),
    (
        "podgroups.scheduling.k8s.io",
        &["spec", "priorityClassName"],
        PRIORITY,
        Absent,
    ),
    (
        "podgroups.scheduling.k8s.io",
        &["metadata", "finalizers"],
        "the plugin PodGroupProtection",
        Added,
    ),
    (
        "nodes",
        &["spec", "taints"],
        "the plugin TaintNodesByCondition",
        Added,
    ),
    (
        "persistentvolumeclaims",
        &["spec", "storageClassName"],
        "the plugin DefaultStorageClass",
        Absent,
    ),
    (
        "persistentvolumeclaims",
        &["metadata", "finalizers"],
        PROTECTION,
        Added,
    ),
    (
        "persistentvolumes",
        &["metadata", "finalizers"],
        PROTECTION,
        Added,
    ),
    (
        "volumeattributesclasses.storage.k8s.io",
        &["metadata", "finalizers"],
        PROTECTION,
        Added,
    ),
    (
        "ingresses.networking.k8s.io",
        &["spec", "ingressClassName"],
        "the plugin DefaultIngressClass",
        Absent,
    ),
    ("services", &["spec", "clusterIP"], ALLOCATED, Absent),
    ("services", &["spec", "clusterIPs"], ALLOCATED, Absent),
    ("services", &["spec", "ipFamilies"], ALLOCATED, Absent),
    ("services", &["spec", "ipFamilyPolicy"], ALLOCATED, Absent),
    (
        "services",
        &["spec", "ports", "*", "nodePort"],
        ALLOCATED,
        Added,
    ),
    (
        "services",
        &["spec", "healthCheckNodePort"],
        ALLOCATED,
        Absent,
    ),
];

static FIELDS: LazyLock<Vec<FieldSetByServer>> = LazyLock::new(|| {
    let field = |(resource, path, by, extent): &Row| {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        FieldSetByServer {
            group,
            resource,
            subresource,
            path,
            steps: CelStep::path(&[&["object"], *path].concat()),
            by,
            extent: *extent,
        }
    };
    ROWS.iter().map(field).collect()
});

impl FieldSetByServer {
    /// All that are known.
    pub fn all() -> &'static [Self] {
        &FIELDS
    }

    /// Those that may be read.
    pub(crate) fn read_by(reads: &CelReads) -> impl Iterator<Item = &'static Self> {
        FIELDS.iter().filter(|field| reads.may_read(&field.steps))
    }

    /// The group of the resource; empty for the core group.
    pub fn group(&self) -> &'static str {
        self.group
    }

    /// The resource in the plural.
    pub fn resource(&self) -> &'static str {
        self.resource
    }

    /// The subresource, or empty.
    pub fn subresource(&self) -> &'static str {
        self.subresource
    }

    /// The resource as kubectl names it, such as `persistentvolumeclaims` or `jobs.batch`.
    pub fn shown_resource(&self) -> String {
        let mut shown = self.resource.to_owned();
        for (before, part) in [(".", self.group), ("/", self.subresource)] {
            if !part.is_empty() {
                shown.push_str(before);
                shown.push_str(part);
            }
        }
        shown
    }

    /// Who sets it, such as `the plugin ServiceAccount`.
    pub fn by(&self) -> &'static str {
        self.by
    }

    /// The names of its members from the object on; `*` is any element.
    pub fn path(&self) -> &'static [&'static str] {
        self.path
    }

    /// Whether a server may set it in the object of this request.
    pub(crate) fn may_be_set(
        &self,
        request: &AdmissionAttributes<'_>,
        object: &CelJson<'_>,
    ) -> bool {
        let is_of = request.resource.group == self.group
            && request.resource.resource == self.resource
            && request.subresource == self.subresource;
        let is_new = match request.operation {
            AdmissionOperation::Create => true,
            AdmissionOperation::Update => false,
            AdmissionOperation::Delete | AdmissionOperation::Connect => return false,
        };
        if !is_of {
            return false;
        }
        match self.extent {
            Added if is_new => true,
            // Below an element there is nothing to find, and it is there in what was stored.
            Added if self.path.contains(&"*") => false,
            Added | Absent => object.at(self.path).is_none(),
            OnNode => {
                is_new
                    && object.at(self.path).is_none()
                    && object.at(&["spec", "nodeName"]).is_some()
            }
        }
    }
}

/// The path as people write it: `spec.containers[*].resources`.
impl fmt::Display for FieldSetByServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.path.iter().enumerate() {
            match *name {
                "*" => f.write_str("[*]")?,
                key if key.contains('.') => write!(f, "['{key}']")?,
                name if at > 0 => write!(f, ".{name}")?,
                name => f.write_str(name)?,
            }
        }
        Ok(())
    }
}
