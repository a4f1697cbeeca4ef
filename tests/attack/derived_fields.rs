//! Objects of which a server fills fields from others, so that a gateway has to do it before its policies see them: as many fields
//! as a body can ask for.

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use crate::{
    Attack,
    hard_bodies::{JSON, LONGEST},
    hostile::{HostileClients, HostileRequest},
    policies::{BY_USERS, CLIENTS, TWENTY, cheap, end, median, policy, scene_with},
    report::Outcome,
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "policy-derived",
        point: "policies",
        about: "64 clients write pods and claims of which policies see many more fields than the bodies have",
        play: || median(|| play(CLIENTS)),
    },
    Attack {
        name: "policy-derived-users",
        point: "policies",
        about: BY_USERS,
        play: || median(|| play(TWENTY)),
    },
];

const PODS: &str = "/api/v1/namespaces/a/pods";
const CLAIMS: &str = "/api/v1/namespaces/a/persistentvolumeclaims";

/// How many requirements the selectors of a pod may get from its labels.
const REQUIREMENTS: usize = 1_000;

fn play(clients: HostileClients) -> Outcome {
    /// Resident memory: the bodies of both cores (twice 64 MiB) and as many copies on their way, two bodies that are
    /// being evaluated, decoded at up to 48 times their size.
    const MEMORY: u64 = (2 * 128 + 2 * 48 * 3) << 20;
    let mut policies = cheap();
    let of_pods = [
        "!has(object.spec.containers) || object.spec.containers.all(c, c.name != 'denied')",
        "!has(object.spec.topologySpreadConstraints) || size(object.spec.topologySpreadConstraints) < 1000000",
    ];
    policies.push_str(&policy("pods", "", "pods", &of_pods));
    let of_claims =
        ["!has(object.spec.dataSourceRef) || object.spec.dataSourceRef.name != 'denied'"];
    policies.push_str(&policy("claims", "", "persistentvolumeclaims", &of_claims));
    let scene = scene_with(policies, clients.users);
    let played = scene.play(async |scene| clients.attack(scene, requests()).await);
    let [created, invalid] = [201, 400].map(|code| played.found.with_code(code));
    let mut outcome = end(played, MEMORY);
    outcome.check(
        "pods are evaluated with what they ask for, and refused if that is too much",
        created > 0 && invalid > 0,
        format!("{created} are created, {invalid} are refused"),
    );
    outcome
}

fn requests() -> Vec<HostileRequest> {
    let post = |name, path: &'static str, body: Value, codes| HostileRequest {
        name,
        method: Method::POST,
        path: path.into(),
        content_type: JSON.into(),
        more: None,
        body: Bytes::from(body.to_string()),
        codes,
    };
    vec![
        post("requirements", PODS, spread(REQUIREMENTS), &[201]),
        post("a requirement more", PODS, spread(REQUIREMENTS + 1), &[400]),
        // Each takes some 8 bytes.
        post("requirements alone", PODS, spread(LONGEST / 9), &[400]),
        // Each takes some 110 bytes.
        post("profiles", PODS, profiles(LONGEST / 120), &[201]),
        post("a long source", CLAIMS, claim(LONGEST - 1_000), &[201]),
    ]
}

/// A pod whose constraints name so many labels, of which it has a hundred.
fn spread(requirements: usize) -> Value {
    const LABELS: usize = 100;
    let labels: Map<String, Value> = (0..LABELS)
        .map(|number| (format!("k{number}"), json!("v".repeat(63))))
        .collect();
    let keys: Vec<String> = (0..requirements)
        .map(|number| format!("k{}", number % LABELS))
        .collect();
    let constraint = |keys: &[String]| {
        json!({
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {}, "matchLabelKeys": keys,
        })
    };
    let constraints: Vec<Value> = keys.chunks(50_000).map(constraint).collect();
    let containers = [json!({"name": "c", "image": "i"})];
    pod(&labels, &Map::new(), &containers, &constraints)
}

/// A pod with so many containers, each of which has its profile in an annotation.
fn profiles(containers: usize) -> Value {
    const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io";
    let annotation = |number| (format!("{ANNOTATION}/c{number}"), json!("localhost/p"));
    let annotations: Map<String, Value> = (0..containers).map(annotation).collect();
    let container = |number| json!({"name": format!("c{number}"), "image": "i"});
    let containers: Vec<Value> = (0..containers).map(container).collect();
    pod(&Map::new(), &annotations, &containers, &[])
}

fn pod(
    labels: &Map<String, Value>,
    annotations: &Map<String, Value>,
    containers: &[Value],
    constraints: &[Value],
) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "a", "labels": labels, "annotations": annotations},
        "spec": {"containers": containers, "topologySpreadConstraints": constraints},
    })
}

/// A claim whose source has a name of so many bytes, which the server copies.
fn claim(length: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "a"},
        "spec": {"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "n".repeat(length)}},
    })
}
