//! The strategies of the kinds that kube-apiserver has itself, as tables.

use super::changes::Spec;

/// What a server makes of an object that is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceStrategy {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    /// What the generation counts; `None` if it is as the client sends it at the creation, and never changed.
    pub(super) counted: Option<Spec>,
    pub(super) status: CreatedStatus,
    /// Members that an update does not change, apart from the status.
    pub(super) kept: &'static [&'static str],
    /// Whether objects are stored, or only answered.
    pub(crate) is_stored: bool,
    pub(super) subresources: &'static [(&'static str, Taken)],
}

/// The status of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreatedStatus {
    /// A field like others, also at updates.
    Ordinary,
    /// As the client sends it, but updates do not change it.
    Sent,
    /// It is emptied, and updates do not change it.
    Dropped,
    /// The same, with this phase.
    Phase(&'static str),
}

/// What a subresource takes from the body. All else is that of the stored object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// The status, and the metadata but for these fields.
    Status {
        /// Fields of the metadata that are those of the stored object.
        stored: &'static [&'static str],
        /// Fields of the status that are, if the body does not have them.
        kept: &'static [&'static str],
        /// What the request cannot change; see [`Taken::resets`].
        resets: &'static [&'static str],
    },
    /// The number of replicas.
    Scale,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of the containers of a pod.
    Resize,
    /// The finalizers of a namespace, and its metadata.
    Finalize,
    /// The conditions of a request for a certificate, and its metadata.
    Approval,
    /// All but the approval in the status of a request for a certificate, and its metadata.
    CertificateStatus,
    /// The body is an object of its own, which is not stored.
    Posted(Posted),
}

/// What happens to the metadata of a body that is an object of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Posted {
    /// What only a server may set is removed.
    Wiped,
    /// It is as sent.
    Kept,
    /// It is that of a new object, and the status is emptied.
    Token,
}

/// All metadata that a client may set elsewhere.
const ALL: &[&str] = &[
    "uid",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "selfLink",
];

/// The status and all metadata.
const STATUS: Taken = Taken::Status {
    stored: &[],
    kept: &[],
    resets: &["spec"],
};

/// The status alone, without any metadata.
pub(super) const STATUS_ALONE: Taken = Taken::Status {
    stored: ALL,
    kept: &[],
    resets: &["metadata", "spec"],
};

const WITH_STATUS: &[(&str, Taken)] = &[("status", STATUS)];
const WITH_STATUS_ALONE: &[(&str, Taken)] = &[("status", STATUS_ALONE)];
const WITH_SCALE: &[(&str, Taken)] = &[("status", STATUS), ("scale", Taken::Scale)];
const OF_DEPLOYMENTS: &[(&str, Taken)] = &[
    (
        "status",
        Taken::Status {
            stored: &["labels"],
            kept: &[],
            resets: &["metadata.labels", "spec"],
        },
    ),
    ("scale", Taken::Scale),
];
const OF_VOLUMES: &[(&str, Taken)] = &[(
    "status",
    Taken::Status {
        stored: &[],
        kept: &["lastPhaseTransitionTime"],
        resets: &["spec"],
    },
)];
const OF_API_SERVICES: &[(&str, Taken)] = &[(
    "status",
    Taken::Status {
        stored: &["labels", "annotations", "finalizers", "ownerReferences"],
        kept: &[],
        resets: &["metadata", "spec"],
    },
)];

impl Taken {
    /// The members that a request cannot change, with dots between their names, so that it does not come to own them
    /// (`GetResetFields` of the server's strategies).
    pub(super) fn resets(self) -> &'static [&'static str] {
        match self {
            Self::Status { resets, .. } => resets,
            Self::Finalize => &["status"],
            Self::Approval => &["spec", "status.certificate"],
            Self::CertificateStatus => &["spec", "status.conditions"],
            // The server notes what was sent, although it takes little of that.
            Self::EphemeralContainers | Self::Resize | Self::Scale | Self::Posted(_) => &[],
        }
    }
}

const SPEC: Option<Spec> = Some(Spec::Members(&["spec"]));

/// A kind whose objects have neither a status nor a generation of their own.
const fn plain(group: &'static str, resource: &'static str) -> ResourceStrategy {
    ResourceStrategy {
        group,
        resource,
        counted: None,
        status: CreatedStatus::Ordinary,
        kept: &[],
        is_stored: true,
        subresources: &[],
    }
}

impl ResourceStrategy {
    /// Its generation is 1 at first, and counts changes.
    const fn counts(mut self, spec: Option<Spec>) -> Self {
        self.counted = spec;
        self
    }

    /// It has a status that only these subresources write.
    const fn with(mut self, subresources: &'static [(&'static str, Taken)]) -> Self {
        self.status = CreatedStatus::Dropped;
        self.subresources = subresources;
        self
    }

    const fn created(mut self, status: CreatedStatus) -> Self {
        self.status = status;
        self
    }

    const fn keeps(mut self, kept: &'static [&'static str]) -> Self {
        self.kept = kept;
        self
    }

    const fn answered(mut self) -> Self {
        self.is_stored = false;
        self
    }
}

/// A kind whose generation counts changes of its `spec`.
const fn counted(group: &'static str, resource: &'static str) -> ResourceStrategy {
    plain(group, resource).counts(SPEC)
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const FLOWCONTROL: &str = "flowcontrol.apiserver.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const SCHEDULING: &str = "scheduling.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const WEBHOOKS: Option<Spec> = Some(Spec::Members(&["webhooks"]));

/// Custom resources.
pub(super) const CUSTOM: ResourceStrategy = plain("", "").counts(Some(Spec::AllButMetadata));

const PODS: &[(&str, Taken)] = &[
    (
        "status",
        Taken::Status {
            stored: &["ownerReferences"],
            kept: &["qosClass", "observedGeneration"],
            resets: &[
                "metadata.deletionTimestamp",
                "metadata.ownerReferences",
                "spec",
            ],
        },
    ),
    ("ephemeralcontainers", Taken::EphemeralContainers),
    ("resize", Taken::Resize),
    ("binding", Taken::Posted(Posted::Kept)),
    ("eviction", Taken::Posted(Posted::Wiped)),
];

/// All kinds. Those of versions that are off by default were not recorded, and are here by their source. Definitions of custom resources and
/// `APIServices` have no table of fields, so policies see the response to a dry run of them; their rows say which requests there are.
#[rustfmt::skip]
pub(super) const BUILT_IN: &[ResourceStrategy] = &[
    plain("", "bindings").answered(),
    plain("", "configmaps"),
    plain("", "endpoints"),
    plain("", "events"),
    plain("", "limitranges"),
    plain("", "namespaces").with(&[("status", STATUS), ("finalize", Taken::Finalize)]).created(CreatedStatus::Phase("Active")).keeps(&["spec"]),
    plain("", "nodes").with(WITH_STATUS).created(CreatedStatus::Sent),
    plain("", "persistentvolumeclaims").with(WITH_STATUS),
    plain("", "persistentvolumes").with(OF_VOLUMES).created(CreatedStatus::Phase("Pending")),
    counted("", "pods").with(PODS).created(CreatedStatus::Phase("Pending")),
    plain("", "podtemplates").counts(Some(Spec::Members(&["template"]))),
    counted("", "replicationcontrollers").with(WITH_SCALE),
    plain("", "resourcequotas").with(WITH_STATUS),
    plain("", "secrets"),
    ResourceStrategy { subresources: &[("token", Taken::Posted(Posted::Token))], ..plain("", "serviceaccounts") },
    plain("", "services").with(WITH_STATUS),
    plain(ADMISSION, "mutatingadmissionpolicies").counts(SPEC),
    plain(ADMISSION, "mutatingadmissionpolicybindings").counts(SPEC),
    plain(ADMISSION, "mutatingwebhookconfigurations").counts(WEBHOOKS),
    counted(ADMISSION, "validatingadmissionpolicies").with(WITH_STATUS_ALONE),
    counted(ADMISSION, "validatingadmissionpolicybindings"),
    plain(ADMISSION, "validatingwebhookconfigurations").counts(WEBHOOKS),
    counted("apiextensions.k8s.io", "customresourcedefinitions").with(WITH_STATUS),
    plain("apiregistration.k8s.io", "apiservices").with(OF_API_SERVICES),
    plain("apps", "controllerrevisions"),
    counted("apps", "daemonsets").with(WITH_STATUS),
    plain("apps", "deployments").counts(Some(Spec::WithAnnotations)).with(OF_DEPLOYMENTS),
    counted("apps", "replicasets").with(WITH_SCALE),
    counted("apps", "statefulsets").with(WITH_SCALE),
    plain(AUTHENTICATION, "selfsubjectreviews").answered(),
    plain(AUTHENTICATION, "tokenreviews").answered(),
    plain(AUTHORIZATION, "localsubjectaccessreviews").answered(),
    plain(AUTHORIZATION, "selfsubjectaccessreviews").answered(),
    plain(AUTHORIZATION, "selfsubjectrulesreviews").answered(),
    plain(AUTHORIZATION, "subjectaccessreviews").answered(),
    plain("autoscaling", "horizontalpodautoscalers").with(WITH_STATUS),
    counted("batch", "cronjobs").with(WITH_STATUS),
    counted("batch", "jobs").with(WITH_STATUS),
    plain(CERTIFICATES, "certificatesigningrequests").with(&[("status", Taken::CertificateStatus), ("approval", Taken::Approval)]).keeps(&["spec"]),
    plain(CERTIFICATES, "clustertrustbundles"),
    plain(CERTIFICATES, "podcertificaterequests").with(WITH_STATUS_ALONE),
    plain("coordination.k8s.io", "leasecandidates"),
    plain("coordination.k8s.io", "leases"),
    plain("discovery.k8s.io", "endpointslices").counts(Some(Spec::AllAndLabels)),
    plain("events.k8s.io", "events"),
    counted(FLOWCONTROL, "flowschemas").with(WITH_STATUS_ALONE),
    counted(FLOWCONTROL, "prioritylevelconfigurations").with(WITH_STATUS_ALONE),
    plain("internal.apiserver.k8s.io", "storageversions").with(WITH_STATUS_ALONE),
    counted(NETWORKING, "ingressclasses"),
    counted(NETWORKING, "ingresses").with(WITH_STATUS),
    plain(NETWORKING, "ipaddresses"),
    counted(NETWORKING, "networkpolicies"),
    plain(NETWORKING, "servicecidrs").with(WITH_STATUS_ALONE),
    plain("node.k8s.io", "runtimeclasses"),
    counted("policy", "poddisruptionbudgets").with(WITH_STATUS),
    plain(RBAC, "clusterrolebindings"),
    plain(RBAC, "clusterroles"),
    plain(RBAC, "rolebindings"),
    plain(RBAC, "roles"),
    counted(RESOURCE, "deviceclasses"),
    counted(RESOURCE, "devicetaintrules").with(WITH_STATUS_ALONE),
    plain(RESOURCE, "resourceclaims").with(WITH_STATUS_ALONE),
    plain(RESOURCE, "resourceclaimtemplates"),
    plain(RESOURCE, "resourcepoolstatusrequests").with(WITH_STATUS_ALONE),
    counted(RESOURCE, "resourceslices"),
    plain(SCHEDULING, "podgroups").with(WITH_STATUS_ALONE),
    plain(SCHEDULING, "priorityclasses").counts(Some(Spec::Never)),
    plain(SCHEDULING, "workloads"),
    plain(STORAGE, "csidrivers").counts(Some(Spec::OnUpdate)),
    plain(STORAGE, "csinodes"),
    plain(STORAGE, "csistoragecapacities"),
    plain(STORAGE, "storageclasses"),
    plain(STORAGE, "volumeattachments").with(WITH_STATUS_ALONE),
    plain(STORAGE, "volumeattributesclasses"),
    plain("storagemigration.k8s.io", "storageversionmigrations").with(WITH_STATUS_ALONE),
];
