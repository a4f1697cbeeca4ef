//! Where objects have defaults, so that who reads none of these fields need not have them set.
//!
//! The table has, for each kind, the fields that a default may set, change or remove, and those that a server derives from such fields. A
//! test compares it with what defaults change in the objects of the corpus.
//!
//! Not here: what follows from any change of an object, such as its generation.

use std::{collections::HashMap, sync::LazyLock};

use crate::schema::null_places;

type Path = &'static [&'static str];

/// The defaults of a kind.
struct DefaultedPlaces {
    group: &'static str,
    kind: &'static str,
    /// Where its objects have the specification of pods, if they do.
    pod_spec: Option<Path>,
    /// Where they have the source of a volume, if they do.
    disk: Option<Path>,
    /// Other places; `*` is any element.
    others: &'static [Path],
}

const fn plain(
    group: &'static str,
    kind: &'static str,
    others: &'static [Path],
) -> DefaultedPlaces {
    DefaultedPlaces {
        group,
        kind,
        pod_spec: None,
        disk: None,
        others,
    }
}

const fn with_pods(
    group: &'static str,
    kind: &'static str,
    pod_spec: Path,
    others: &'static [Path],
) -> DefaultedPlaces {
    DefaultedPlaces {
        group,
        kind,
        pod_spec: Some(pod_spec),
        disk: None,
        others,
    }
}

/// In the specification of pods.
const OF_POD_SPEC: &[Path] = &[
    &["dnsPolicy"],
    &["restartPolicy"],
    &["securityContext"],
    &["terminationGracePeriodSeconds"],
    &["schedulerName"],
    &["overhead", "*"],
    &["resources"],
];

/// In containers of any kind.
const OF_CONTAINER: &[Path] = &[
    &["imagePullPolicy"],
    &["terminationMessagePath"],
    &["terminationMessagePolicy"],
    &["ports", "*", "protocol"],
    &["env", "*", "valueFrom", "fieldRef", "apiVersion"],
    &["env", "*", "valueFrom", "fileKeyRef", "optional"],
    &["resources", "limits"],
    &["resources", "requests"],
    &["lifecycle", "*", "httpGet", "path"],
    &["lifecycle", "*", "httpGet", "scheme"],
];

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

const OF_PROBE: &[Path] = &[
    &["timeoutSeconds"],
    &["periodSeconds"],
    &["successThreshold"],
    &["failureThreshold"],
    &["httpGet", "path"],
    &["httpGet", "scheme"],
    &["grpc", "service"],
];

/// In the volumes of pods, besides those of [`OF_DISK`].
const OF_VOLUME: &[Path] = &[
    &["emptyDir"],
    &["image", "pullPolicy"],
    &["secret", "defaultMode"],
    &["configMap", "defaultMode"],
    &["downwardAPI", "defaultMode"],
    &["downwardAPI", "items", "*", "fieldRef", "apiVersion"],
    &["projected", "defaultMode"],
    &[
        "projected",
        "sources",
        "*",
        "downwardAPI",
        "items",
        "*",
        "fieldRef",
        "apiVersion",
    ],
    &[
        "projected",
        "sources",
        "*",
        "serviceAccountToken",
        "expirationSeconds",
    ],
    &["ephemeral", "volumeClaimTemplate", "spec", "volumeMode"],
    &[
        "ephemeral",
        "volumeClaimTemplate",
        "spec",
        "resources",
        "*",
        "*",
    ],
];

/// In the sources of volumes that pods and persistent volumes have.
const OF_DISK: &[Path] = &[
    &["hostPath", "type"],
    &["iscsi", "iscsiInterface"],
    &["rbd", "pool"],
    &["rbd", "user"],
    &["rbd", "keyring"],
    &["azureDisk", "cachingMode"],
    &["azureDisk", "fsType"],
    &["azureDisk", "readOnly"],
    &["azureDisk", "kind"],
    &["scaleIO", "storageMode"],
    &["scaleIO", "fsType"],
];

const TEMPLATE: Path = &["spec", "template", "spec"];

/// All kinds with defaults.
static KINDS: &[DefaultedPlaces] = &[
    with_pods(
        "",
        "Pod",
        &["spec"],
        &[
            &["spec", "enableServiceLinks"],
            &["spec", "containers", "*", "ports", "*", "hostPort"],
            &["spec", "initContainers", "*", "ports", "*", "hostPort"],
            &["status", "allocatedResources", "*"],
            &["status", "resources", "*", "*"],
            &[
                "status",
                "containerStatuses",
                "*",
                "allocatedResources",
                "*",
            ],
            &["status", "containerStatuses", "*", "resources", "*", "*"],
            &[
                "status",
                "initContainerStatuses",
                "*",
                "allocatedResources",
                "*",
            ],
            &[
                "status",
                "initContainerStatuses",
                "*",
                "resources",
                "*",
                "*",
            ],
            &[
                "status",
                "ephemeralContainerStatuses",
                "*",
                "allocatedResources",
                "*",
            ],
            &[
                "status",
                "ephemeralContainerStatuses",
                "*",
                "resources",
                "*",
                "*",
            ],
        ],
    ),
    with_pods("", "PodTemplate", &["template", "spec"], &[]),
    with_pods(
        "",
        "ReplicationController",
        TEMPLATE,
        &[
            &["spec", "selector"],
            &["spec", "replicas"],
            &["metadata", "labels"],
        ],
    ),
    with_pods(
        "apps",
        "DaemonSet",
        TEMPLATE,
        &[
            &["spec", "updateStrategy"],
            &["spec", "revisionHistoryLimit"],
        ],
    ),
    with_pods(
        "apps",
        "Deployment",
        TEMPLATE,
        &[
            &["spec", "replicas"],
            &["spec", "strategy"],
            &["spec", "revisionHistoryLimit"],
            &["spec", "progressDeadlineSeconds"],
        ],
    ),
    with_pods("apps", "ReplicaSet", TEMPLATE, &[&["spec", "replicas"]]),
    with_pods(
        "apps",
        "StatefulSet",
        TEMPLATE,
        &[
            &["spec", "podManagementPolicy"],
            &["spec", "updateStrategy"],
            &["spec", "persistentVolumeClaimRetentionPolicy"],
            &["spec", "replicas"],
            &["spec", "revisionHistoryLimit"],
            &["spec", "volumeClaimTemplates", "*", "spec", "volumeMode"],
            &[
                "spec",
                "volumeClaimTemplates",
                "*",
                "spec",
                "resources",
                "*",
                "*",
            ],
            &["spec", "volumeClaimTemplates", "*", "status"],
        ],
    ),
    with_pods(
        "batch",
        "Job",
        TEMPLATE,
        &[
            &["spec", "completions"],
            &["spec", "parallelism"],
            &["spec", "backoffLimit"],
            &["spec", "completionMode"],
            &["spec", "suspend"],
            &["spec", "podReplacementPolicy"],
            &["spec", "manualSelector"],
            &[
                "spec",
                "podFailurePolicy",
                "rules",
                "*",
                "onPodConditions",
                "*",
                "status",
            ],
            &["metadata", "labels"],
        ],
    ),
    with_pods(
        "batch",
        "CronJob",
        &["spec", "jobTemplate", "spec", "template", "spec"],
        &[
            &["spec", "concurrencyPolicy"],
            &["spec", "suspend"],
            &["spec", "successfulJobsHistoryLimit"],
            &["spec", "failedJobsHistoryLimit"],
            &[
                "spec",
                "jobTemplate",
                "spec",
                "podFailurePolicy",
                "rules",
                "*",
                "onPodConditions",
                "*",
                "status",
            ],
        ],
    ),
    plain(
        "",
        "Endpoints",
        &[&["subsets", "*", "ports", "*", "protocol"]],
    ),
    plain("", "LimitRange", &[&["spec", "limits"]]),
    plain(
        "",
        "Namespace",
        &[&["metadata", "labels"], &["status", "phase"]],
    ),
    plain(
        "",
        "Node",
        &[&["status", "allocatable"], &["status", "capacity", "*"]],
    ),
    DefaultedPlaces {
        disk: Some(&["spec"]),
        ..plain(
            "",
            "PersistentVolume",
            &[
                &["spec", "persistentVolumeReclaimPolicy"],
                &["spec", "volumeMode"],
                &["spec", "capacity", "*"],
                &["status"],
            ],
        )
    },
    plain(
        "",
        "PersistentVolumeClaim",
        &[
            &["spec", "volumeMode"],
            &["spec", "resources", "*", "*"],
            &["status"],
        ],
    ),
    plain(
        "",
        "ResourceQuota",
        &[
            &["spec", "hard", "*"],
            &["status", "hard", "*"],
            &["status", "used", "*"],
        ],
    ),
    plain("", "Secret", &[&["type"]]),
    // What a server allocates, keeps and drops depends on the type, which has a default.
    plain("", "Service", &[&["spec"], &["status"]]),
    plain(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        &[&["webhooks"]],
    ),
    plain(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        &[&["webhooks"]],
    ),
    plain(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy",
        &[&["spec"]],
    ),
    plain(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        &[&["spec"]],
    ),
    plain(
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicyBinding",
        &[&["spec"]],
    ),
    plain(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicyBinding",
        &[&["spec"]],
    ),
    plain(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &[&["spec", "names"], &["spec", "conversion"], &["status"]],
    ),
    plain(
        "apiregistration.k8s.io",
        "APIService",
        &[&["spec", "service", "port"]],
    ),
    plain(
        "authentication.k8s.io",
        "TokenRequest",
        &[&["spec", "expirationSeconds"]],
    ),
    plain(
        "autoscaling",
        "HorizontalPodAutoscaler",
        &[
            &["spec", "minReplicas"],
            &["spec", "metrics"],
            &["spec", "behavior"],
        ],
    ),
    plain(
        "certificates.k8s.io",
        "PodCertificateRequest",
        &[&["spec", "maxExpirationSeconds"]],
    ),
    plain(
        "discovery.k8s.io",
        "EndpointSlice",
        &[&["ports", "*", "name"], &["ports", "*", "protocol"]],
    ),
    plain(
        "flowcontrol.apiserver.k8s.io",
        "FlowSchema",
        &[&["spec", "matchingPrecedence"]],
    ),
    plain(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        &[&["spec", "limited"], &["spec", "exempt"]],
    ),
    plain(
        "networking.k8s.io",
        "IngressClass",
        &[&["spec", "parameters", "scope"]],
    ),
    plain(
        "networking.k8s.io",
        "NetworkPolicy",
        &[
            &["spec", "policyTypes"],
            &["spec", "ingress", "*", "ports", "*", "protocol"],
            &["spec", "egress", "*", "ports", "*", "protocol"],
        ],
    ),
    plain(
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        &[&["roleRef", "apiGroup"], &["subjects", "*", "apiGroup"]],
    ),
    plain(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        &[&["roleRef", "apiGroup"], &["subjects", "*", "apiGroup"]],
    ),
    plain("resource.k8s.io", "DeviceTaintRule", &[&["spec", "taint"]]),
    plain(
        "resource.k8s.io",
        "ResourceClaim",
        &[&["spec", "devices"], &["status", "allocation"]],
    ),
    plain(
        "resource.k8s.io",
        "ResourceClaimTemplate",
        &[&["spec", "spec", "devices"]],
    ),
    plain(
        "resource.k8s.io",
        "ResourcePoolStatusRequest",
        &[&["spec", "limit"]],
    ),
    plain("resource.k8s.io", "ResourceSlice", &[&["spec", "devices"]]),
    plain(
        "scheduling.k8s.io",
        "PodGroup",
        &[&["spec", "disruptionMode"]],
    ),
    plain(
        "scheduling.k8s.io",
        "PriorityClass",
        &[&["preemptionPolicy"]],
    ),
    plain(
        "storage.k8s.io",
        "CSIDriver",
        &[
            &["spec", "attachRequired"],
            &["spec", "fsGroupPolicy"],
            &["spec", "volumeLifecycleModes"],
            &["spec", "podInfoOnMount"],
            &["spec", "storageCapacity"],
            &["spec", "requiresRepublish"],
            &["spec", "seLinuxMount"],
        ],
    ),
    plain(
        "storage.k8s.io",
        "StorageClass",
        &[&["reclaimPolicy"], &["volumeBindingMode"]],
    ),
    plain(
        "storage.k8s.io",
        "VolumeAttachment",
        &[&["spec", "source", "inlineVolumeSpec"]],
    ),
];

/// The kinds, by group and name, of whose objects somebody reads a field that has a default, or depends on one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefaultedKinds(u128);

/// The places of all kinds with their sets of one, and these sets by kind.
struct PlacesByKind {
    kinds: HashMap<[&'static str; 2], DefaultedKinds>,
    places: Vec<(DefaultedKinds, Vec<&'static str>)>,
}

static PLACES: LazyLock<PlacesByKind> = LazyLock::new(|| {
    let mut all = PlacesByKind {
        kinds: HashMap::new(),
        places: Vec::new(),
    };
    for one in KINDS {
        let kind = all.kind([one.group, one.kind]);
        let of_pods = one.pod_spec.into_iter().flat_map(places_of_pods);
        let disks = one.disk.into_iter();
        let of_disks = disks.flat_map(|at| OF_DISK.iter().map(move |place| [at, place].concat()));
        let others = one.others.iter().map(|place| place.to_vec());
        let places = of_pods
            .chain(of_disks)
            .chain(others)
            .map(|place| (kind, place));
        all.places.extend(places);
    }
    for ([group, _, kind], place) in null_places() {
        let kind = all.kind([group, kind]);
        all.places.push((kind, place));
    }
    all
});

impl PlacesByKind {
    /// The set of a kind alone.
    fn kind(&mut self, kind: [&'static str; 2]) -> DefaultedKinds {
        let number = self.kinds.len();
        debug_assert!(number < 127, "too many kinds for their bits");
        *self
            .kinds
            .entry(kind)
            .or_insert(DefaultedKinds(1 << number))
    }
}

/// The places in objects with such a specification.
fn places_of_pods(spec: Path) -> Vec<Vec<&'static str>> {
    let mut places = Vec::new();
    let mut add = |within: &[&'static str], all: &[Path]| {
        places.extend(all.iter().map(|place| [spec, within, place].concat()));
    };
    add(&[], OF_POD_SPEC);
    add(&["volumes", "*"], OF_VOLUME);
    add(&["volumes", "*"], OF_DISK);
    for list in ["containers", "ephemeralContainers", "initContainers"] {
        add(&[list, "*"], OF_CONTAINER);
        for probe in PROBES {
            add(&[list, "*", probe], OF_PROBE);
        }
    }
    places
}

impl DefaultedKinds {
    /// No kind.
    pub const NONE: Self = Self(0);

    /// All kinds.
    pub const ALL: Self = Self(u128::MAX);

    /// What stands for objects whose kind is not known, or that are read as another version: any field but those of the metadata may depend on
    /// defaults.
    pub const UNKNOWN: Self = Self(1 << 127);

    /// The set of this kind alone, in all its versions; empty if it has no defaults. Costs a search in a hash table.
    pub fn of(group: &str, kind: &str) -> Self {
        PLACES
            .kinds
            .get(&[group, kind])
            .copied()
            .unwrap_or_default()
    }

    /// Each place in an object that depends on defaults, with the set of its kind; `*` is any element or member. What is below it depends on
    /// them, too.
    pub fn places() -> impl Iterator<Item = (Self, &'static [&'static str])> {
        PLACES.places.iter().map(|(kind, place)| (*kind, &**place))
    }

    /// The kinds that are in one of the sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a kind is in both sets.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}
