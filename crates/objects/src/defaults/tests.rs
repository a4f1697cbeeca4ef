//! `cases.jsonl.gz` is what Kubernetes' defaults make of objects; tests/cluster/defaults writes it.

use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::apply;
use crate::schema::{built_in, canonical};

/// Kinds whose defaults are still to be written.
const NOT_YET: &[&str] = &[
    "/v1 Endpoints",
    "/v1 LimitRange",
    "/v1 Namespace",
    "/v1 Node",
    "/v1 ResourceQuota",
    "/v1 Secret",
    "/v1 Service",
    "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicyBinding",
    "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1beta1 ValidatingAdmissionPolicyBinding",
    "apiextensions.k8s.io/v1 CustomResourceDefinition",
    "apiregistration.k8s.io/v1 APIService",
    "authentication.k8s.io/v1 TokenRequest",
    "autoscaling/v1 HorizontalPodAutoscaler",
    "autoscaling/v2 HorizontalPodAutoscaler",
    "certificates.k8s.io/v1beta1 PodCertificateRequest",
    "discovery.k8s.io/v1 EndpointSlice",
    "flowcontrol.apiserver.k8s.io/v1 FlowSchema",
    "flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration",
    "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema",
    "flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration",
    "networking.k8s.io/v1 IngressClass",
    "networking.k8s.io/v1 NetworkPolicy",
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1 RoleBinding",
    "resource.k8s.io/v1 ResourceClaim",
    "resource.k8s.io/v1 ResourceClaimTemplate",
    "resource.k8s.io/v1 ResourceSlice",
    "resource.k8s.io/v1beta1 ResourceClaim",
    "resource.k8s.io/v1beta1 ResourceClaimTemplate",
    "resource.k8s.io/v1beta1 ResourceSlice",
    "resource.k8s.io/v1beta2 ResourceClaim",
    "resource.k8s.io/v1beta2 ResourceClaimTemplate",
    "resource.k8s.io/v1beta2 ResourceSlice",
    "scheduling.k8s.io/v1 PriorityClass",
    "storage.k8s.io/v1 CSIDriver",
    "storage.k8s.io/v1 StorageClass",
    "storage.k8s.io/v1 VolumeAttachment",
];

/// A line of the corpus.
struct DefaultedObject {
    group: String,
    version: String,
    kind: String,
    object: Value,
    defaulted: Value,
}

impl DefaultedObject {
    fn read(line: &str) -> Self {
        let case: Value = serde_json::from_str(line).unwrap();
        let [api_version, kind] =
            ["apiVersion", "kind"].map(|name| case["object"][name].as_str().unwrap());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let in_canonical_form = |object: &Value| match built_in(group, version, kind) {
            Some(shape) => canonical::decode(shape, object).unwrap().value,
            // Kinds of servers that extend Kubernetes have no table.
            None => object.clone(),
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            object: in_canonical_form(&case["object"]),
            defaulted: in_canonical_form(&case["defaulted"]),
        }
    }

    fn apply_to(&self, object: &mut Value) {
        apply(&self.group, &self.version, &self.kind, object);
    }

    fn name(&self) -> String {
        format!("{}/{} {}", self.group, self.version, self.kind)
    }
}

fn corpus() -> Vec<DefaultedObject> {
    let mut text = String::new();
    let mut corpus = GzDecoder::new(&include_bytes!("cases.jsonl.gz")[..]);
    corpus.read_to_string(&mut text).unwrap();
    text.lines().map(DefaultedObject::read).collect()
}

#[test]
fn objects_get_the_defaults_that_kubernetes_gives_them() {
    let mut kinds: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut faults = Vec::new();
    for case in corpus() {
        let (equal, total) = kinds.entry(case.name()).or_default();
        let mut object = case.object.clone();
        case.apply_to(&mut object);
        *total += 1;
        if object == case.defaulted {
            *equal += 1;
        } else if !NOT_YET.contains(&case.name().as_str()) {
            let (is, wanted) = (&object, &case.defaulted);
            faults.push(format!(
                "{}: {}\n  is     {is}\n  wanted {wanted}",
                case.name(),
                case.object
            ));
        }
    }
    for (kind, (equal, total)) in &kinds {
        println!("{equal:>4} of {total:>4}: {kind}");
    }
    let (equal, total) =
        (kinds.values()).fold((0, 0), |sum, kind| (sum.0 + kind.0, sum.1 + kind.1));
    println!("{equal} of {total} in {} kinds", kinds.len());
    for kind in NOT_YET {
        let (equal, total) = kinds.get(*kind).copied().unwrap_or_default();
        assert!(equal < total, "{kind} is done");
    }
    assert!(total > 2_500, "{total} cases");
    let some = faults[..faults.len().min(5)].join("\n");
    assert!(
        faults.is_empty(),
        "{} differ, such as\n{some}",
        faults.len()
    );
}
