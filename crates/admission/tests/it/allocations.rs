//! What the request path allocates: nothing where no policy matches, and little else besides texts.

use fairgate_admission::{
    AdmissionAttributes, EvaluationBudgets, GroupVersionKind, GroupVersionResource, PolicySet,
};
use fairgate_core::digest::User;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde_json::json;

use super::limits::{Cluster, binding, creation, policy, resources};

/// The policies of the bench, which the Pod complies with.
const TEN: &str = include_str!("../../../../benches/policies.json");

const POD: &str = r#"{
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {
        "name": "web-1", "namespace": "shop",
        "labels": {"app.kubernetes.io/name": "web"}, "annotations": {"owner": "team-shop"}
    },
    "spec": {"serviceAccountName": "web", "containers": [
        {"name": "main", "image": "registry.example.com/web:1", "resources": {"limits": {"memory": "1Gi"}}},
        {"name": "log", "image": "registry.example.com/log:1", "resources": {"limits": {"memory": "1Gi"}}},
        {"name": "dns", "image": "registry.example.com/dns:1", "resources": {"limits": {"memory": "1Gi"}}}
    ]}
}"#;

/// Two hundred policies about other resources, other operations or other namespaces.
fn policies_that_do_not_match() -> PolicySet {
    let spec = json!({"validations": [{"expression": "false"}]});
    let named: Vec<_> = (0..200)
        .map(|number| {
            let name = format!("p{number}");
            let resources = match number % 3 {
                0 => resources(&format!("things{number}"), &json!({})),
                1 => resources(
                    "deployments",
                    &json!({"matchLabels": {"env": format!("e{number}")}}),
                ),
                _ => resources("deployments/status", &json!({})),
            };
            (policy(&name, &resources, &spec), binding(&name))
        })
        .collect();
    let (policies, bindings): (Vec<_>, Vec<_>) = named.into_iter().unzip();
    PolicySet::compile(&policies, &bindings)
}

#[test]
fn looking_for_policies_where_none_matches_allocates_nothing() {
    let set = policies_that_do_not_match();
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (creation(&user), Cluster::with("{}"));
    let mut matches = true;
    let counted = allocation_counter::measure(|| {
        matches = set.may_match(&attributes, &cluster);
    });
    assert!(!matches);
    assert_eq!(counted.count_total, 0);
}

#[test]
fn evaluating_where_no_policy_matches_allocates_nothing() {
    let set = policies_that_do_not_match();
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (creation(&user), Cluster::with("{}"));
    let mut evaluations = usize::MAX;
    let counted = allocation_counter::measure(|| {
        let verdict = set.evaluate(&attributes, &cluster, EvaluationBudgets::default());
        evaluations = verdict.unwrap().evaluations.len();
    });
    assert_eq!(evaluations, 0);
    assert_eq!(counted.count_total, 0);
}

fn of_a_pod(user: &User) -> AdmissionAttributes<'_> {
    let (group, version) = ("", "v1");
    AdmissionAttributes {
        resource: GroupVersionResource {
            group,
            version,
            resource: "pods",
        },
        kind: GroupVersionKind {
            group,
            version,
            kind: "Pod",
        },
        ..creation(user)
    }
}

/// What evaluating by `policies` allocates when nothing has to be prepared any more.
fn allocations(policies: &[ValidatingAdmissionPolicy]) -> u64 {
    let names = policies.iter().map(|one| one.metadata.name.as_deref());
    let bindings: Vec<_> = names.map(|name| binding(name.unwrap())).collect();
    let set = PolicySet::compile(policies, &bindings);
    let user = User::new("alice", ["dev"]);
    let (attributes, cluster) = (of_a_pod(&user), Cluster::with(POD));
    let evaluate = || {
        let verdict = set.evaluate(&attributes, &cluster, EvaluationBudgets::default());
        let verdict = verdict.unwrap();
        assert_eq!(verdict.evaluations.len(), policies.len());
        assert!(verdict.denials.is_empty(), "{:?}", verdict.denials);
    };
    // Patterns get their scratch space at their first use.
    evaluate();
    allocation_counter::measure(evaluate).count_total
}

#[test]
fn a_simple_policy_allocates_the_evaluations_alone() {
    let spec =
        json!({"validations": [{"expression": "object.spec.containers.all(c, c.name != 'x')"}]});
    let simple = policy("p", &resources("pods", &json!({})), &spec);
    assert_eq!(allocations(&[simple]), 1);
}

#[test]
fn ten_policies_allocate_the_evaluations_and_the_values_that_they_make() {
    let ten: Vec<ValidatingAdmissionPolicy> = serde_json::from_str(TEN).unwrap();
    // The evaluations, two for each of two messages, the optional value of an annotation, two
    // of a list of names and seven of the value of `request`.
    assert_eq!(allocations(&ten), 1 + 2 * 2 + 1 + 2 + 7);
}

/// A gateway may hold very many policies, so each keeps little: its texts, its code, and its place in the index.
#[test]
fn a_compiled_policy_takes_little_memory() {
    const COUNT: i64 = 500;
    /// Bytes of memory for a policy with two short expressions and a binding.
    const LIMIT: i64 = 5_400;
    let spec = json!({"validations": [
        {"expression": "has(object.spec) && object.spec.?replicas.orValue(0) <= 5"},
        {"expression": "!has(object.metadata.labels) || object.metadata.labels.all(k, size(k) < 50)"},
    ]});
    let named = (0..=COUNT).map(|number| {
        let name = format!("p{number}");
        let resources = resources(&name, &json!({}));
        (policy(&name, &resources, &spec), binding(&name))
    });
    let (policies, bindings): (Vec<_>, Vec<_>) = named.unzip();
    // The first one makes what all share.
    drop(PolicySet::compile(&policies[..1], &bindings));
    let mut set = PolicySet::default();
    let counted = allocation_counter::measure(|| {
        set = PolicySet::compile(&policies, &bindings);
    });
    assert!(!set.is_empty());
    let each = counted.bytes_current / COUNT;
    println!("{each} bytes for each policy");
    assert!(each <= LIMIT, "{each} bytes for each policy");
}
