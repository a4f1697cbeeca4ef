//! What do admission policies cost a request?
//!
//! Ten policies evaluate a Pod of 4 KiB that matches them all; 20 to 2000 policies are asked about a request that none
//! matches, and 200 about one that only their matchConditions exclude. The baseline is decoding the Pod into `serde_json`'s `Value`. Bars: 10 µs evaluated, 1.2 times the baseline to
//! decode for that, 0.5 µs for one simple validation, 1 µs and no allocation where none matches, 50 ms to compile 200
//! policies.
//!
//! If Go is installed, the program in `crates/admission/oracle` measures kube-apiserver with the same input in the same
//! run.

mod support;

use std::{hint::black_box, path::Path, sync::Arc, time::Duration};

use fairgate_admission::{
    AdmissionAttributes, AdmissionInputs, AdmissionObjects, AdmissionOperation, ClusterInputs,
    ConversionFailure, EquivalentResource, EvaluationBudgets, GroupVersionKind,
    GroupVersionResource, InputFailure, ParamScope, PolicyParamKind, PolicySet,
};
use fairgate_cel::{CelJson, library::authorizer::CelAuthorizer};
use fairgate_core::digest::User;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde_json::{Value, json};
use support::{Case, measure, original, pod::pod, time};

/// Policies that the Pod complies with.
const POLICIES: &str = include_str!("policies.json");

/// The namespace of the Pod.
const NAMESPACE: &str = r#"{"metadata": {"name": "shop", "labels": {"env": "prod", "team": "a"}}}"#;

/// A cluster of one namespace, and the Pod.
struct Cluster<'a> {
    pod: CelJson<'a>,
    namespace: CelJson<'a>,
}

impl<'a> Cluster<'a> {
    fn new(pod: &'a str) -> Self {
        Self {
            pod: serde_json::from_str(pod).expect("the Pod is JSON"),
            namespace: serde_json::from_str(NAMESPACE).expect("the namespace is JSON"),
        }
    }
}

impl AdmissionInputs for Cluster<'_> {
    fn objects(&self, _: GroupVersionKind<'_>) -> Result<AdmissionObjects<'_>, ConversionFailure> {
        Ok(AdmissionObjects {
            object: Some(&self.pod),
            old_object: None,
        })
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &[]
    }

    fn cluster(&self) -> &dyn ClusterInputs {
        self
    }

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        unreachable!("no policy here uses the authorizer")
    }
}

impl ClusterInputs for Cluster<'_> {
    fn namespace(&self, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        Ok(&self.namespace)
    }

    fn param_scope(&self, _: &PolicyParamKind) -> Result<ParamScope, String> {
        Err("no params".to_owned())
    }

    fn params_known(&self, _: &PolicyParamKind) -> bool {
        true
    }

    fn param(&self, _: &PolicyParamKind, _: &str, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        Err(InputFailure::NotFound)
    }

    fn params(&self, _: &PolicyParamKind, _: &str) -> Vec<&CelJson<'_>> {
        Vec::new()
    }
}

fn creation(user: &User) -> AdmissionAttributes<'_> {
    let (group, version) = ("", "v1");
    AdmissionAttributes {
        operation: AdmissionOperation::Create,
        resource: GroupVersionResource {
            group,
            version,
            resource: "pods",
        },
        subresource: "",
        kind: GroupVersionKind {
            group,
            version,
            kind: "Pod",
        },
        namespace: "shop",
        name: "web-7d4b9c6f5-x2x9k",
        user,
        dry_run: false,
        options: None,
    }
}

/// `count` policies, each with a binding; `change` turns the ten into them.
fn policies(
    count: usize,
    change: impl Fn(usize, &mut Value),
) -> (
    Vec<ValidatingAdmissionPolicy>,
    Vec<ValidatingAdmissionPolicyBinding>,
) {
    let ten: Vec<Value> = serde_json::from_str(POLICIES).expect("the policies are JSON");
    let made = ten.iter().cycle().take(count).enumerate();
    let made = made.map(|(at, policy)| {
        let mut policy = policy.clone();
        let name = format!("p{at}");
        policy["metadata"]["name"] = name.clone().into();
        change(at, &mut policy);
        let spec = json!({"policyName": name, "validationActions": ["Deny"]});
        let binding = json!({"metadata": {"name": "b"}, "spec": spec});
        let policy = serde_json::from_value(policy).expect("it is a policy");
        (
            policy,
            serde_json::from_value(binding).expect("it is a binding"),
        )
    });
    made.unzip()
}

/// A third of the policies is about other resources, a third about other namespaces, a third about subresources.
fn of_others(at: usize, policy: &mut Value) {
    let constraints = &mut policy["spec"]["matchConstraints"];
    match at % 3 {
        0 => constraints["resourceRules"][0]["resources"] = json!([format!("things{at}")]),
        1 => constraints["namespaceSelector"] = json!({"matchLabels": {"env": format!("e{at}")}}),
        _ => constraints["resourceRules"][0]["resources"] = json!(["pods/status"]),
    }
}

/// Makes a policy one that only its matchConditions exclude, which the request alone decides: one that it has alone, and three
/// that others have, too.
fn of_other_users(at: usize, policy: &mut Value) {
    let own = format!("request.userInfo.groups.exists(g, g == 'team-{at}')");
    let expressions = [
        "!request.userInfo.username.startsWith('system:')",
        &own,
        "request.namespace in ['shop', 'web', 'mail']",
        "!request.userInfo.groups.exists(g, g.matches('^system:serviceaccounts:.*'))",
    ];
    let conditions = expressions.iter().enumerate();
    let conditions: Vec<_> = conditions
        .map(|(at, one)| json!({"name": format!("c{at}"), "expression": one}))
        .collect();
    policy["spec"]["matchConditions"] = json!(conditions);
}

/// Makes a policy one with a single simple validation.
fn simplify(_: usize, policy: &mut Value) {
    let expression = json!({"expression": "object.spec.replicas <= 5"});
    policy["spec"]["validations"] = json!([expression]);
    for part in ["matchConditions", "variables"] {
        policy["spec"][part] = json!([]);
    }
}

fn evaluating<'a>(
    name: &str,
    text: &'a str,
    user: &'a User,
    count: usize,
    change: fn(usize, &mut Value),
) -> Case<'a> {
    Case::new(name, move || {
        let (policies, bindings) = policies(count, change);
        let set = PolicySet::compile(&policies, &bindings);
        let cluster = Cluster::new(text);
        let attributes = creation(user);
        move || {
            let verdict = set.evaluate(&attributes, &cluster, EvaluationBudgets::default());
            let verdict = verdict.expect("the namespace is there");
            assert!(verdict.denials.is_empty() && verdict.evaluations.len() == count);
        }
    })
}

fn passing<'a>(
    name: &str,
    text: &'a str,
    user: &'a User,
    count: usize,
    change: fn(usize, &mut Value),
) -> Case<'a> {
    Case::new(format!("{count} policies, {name}"), move || {
        let (policies, bindings) = policies(count, change);
        let set = PolicySet::compile(&policies, &bindings);
        let cluster = Cluster::new(text);
        let attributes = creation(user);
        move || assert!(!set.may_match(&attributes, &cluster))
    })
}

/// The shortest time that compiling 200 policies takes.
fn compile_time() -> Duration {
    let (policies, bindings) = policies(200, |_, _| {});
    let once = || {
        time(|| {
            black_box(PolicySet::compile(&policies, &bindings));
        })
    };
    let runs = if support::is_quick() { 1 } else { 15 };
    (0..runs).map(|_| once()).min().expect("it ran")
}

/// Prints what kube-apiserver needs for the same, compared with `ours`: the nanoseconds that ten policies take here.
fn compare(text: &str, ours: f64) {
    let (all, bindings) = policies(10, |_, _| {});
    let (simple, _) = policies(1, simplify);
    let question = json!({
        "policies": all,
        "bindings": bindings,
        "namespace": serde_json::from_str::<Value>(NAMESPACE).expect("it is JSON"),
        "pod": serde_json::from_str::<Value>(text).expect("it is JSON"),
        "simple": simple[0],
    });
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle");
    let timings = match original::timings(&directory, &question) {
        Ok(timings) => timings,
        Err(why) => {
            println!("kube-apiserver's validators were not measured: {why}");
            return;
        }
    };
    println!("kube-apiserver's dispatcher and validators, in Go, on one core");
    for one in timings {
        let ratio = if one.name.starts_with("ten policies") {
            format!("{:.0} times ours", one.nanos / ours)
        } else {
            String::new()
        };
        println!(
            "{:<44} {:>9.0} {ratio:>16} {:>7.0} allocs",
            one.name, one.nanos, one.allocations
        );
    }
}

fn main() {
    let text = pod();
    let user = User::new("alice", ["dev", User::AUTHENTICATED]);
    let nanos = measure(
        "What do admission policies cost a request?",
        vec![
            Case::new("decode the Pod with serde_json (baseline)", || {
                || {
                    black_box(serde_json::from_str::<Value>(&text).expect("it is JSON"));
                }
            }),
            evaluating(
                "ten policies that match, evaluated",
                &text,
                &user,
                10,
                |_, _| {},
            ),
            Case::new("decode the Pod for them", || {
                || {
                    black_box(serde_json::from_str::<CelJson<'_>>(&text).expect("it is JSON"));
                }
            }),
            evaluating(
                "a simple policy that matches, evaluated",
                &text,
                &user,
                1,
                simplify,
            ),
            passing("none matches", &text, &user, 20, of_others),
            passing("none matches", &text, &user, 200, of_others),
            passing("none matches", &text, &user, 2000, of_others),
            passing("conditions exclude all", &text, &user, 200, of_other_users),
        ],
    );
    // Not while the instructions of one case are counted.
    let Some(evaluated) = nanos.get(1) else {
        return;
    };
    println!(
        "compiling 200 policies takes {:.1} ms",
        compile_time().as_secs_f64() * 1e3
    );
    compare(&text, *evaluated);
}
