//! What do admission policies cost a request?
//!
//! Ten policies judge a Pod of 4 KiB that matches them all; 200 policies are asked about a request that none matches. The
//! baseline is decoding the Pod into `serde_json`'s `Value`. Bars: 10 µs judged, 1 µs and no allocation where none
//! matches, 50 ms to compile 200 policies.

mod support;

use std::{hint::black_box, sync::Arc, time::Duration};

use fairgate_admission::{
    AdmissionAttributes, AdmissionInputs, AdmissionObjects, AdmissionOperation, EquivalentResource,
    EvaluationBudgets, GroupVersionKind, GroupVersionResource, InputFailure, ParamScope,
    PolicyParamKind, PolicySet,
};
use fairgate_cel::{CelJson, library::authorizer::CelAuthorizer};
use fairgate_core::digest::User;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde_json::{Value, json};
use support::{Case, measure, pod::pod, time};

/// Policies that the Pod complies with.
const POLICIES: &str = include_str!("policies.json");

/// A cluster of one namespace, and the Pod.
struct Cluster<'a> {
    pod: CelJson<'a>,
    namespace: CelJson<'a>,
}

impl<'a> Cluster<'a> {
    fn new(pod: &'a str) -> Self {
        let namespace = r#"{"metadata": {"name": "shop", "labels": {"env": "prod", "team": "a"}}}"#;
        Self {
            pod: serde_json::from_str(pod).expect("the Pod is JSON"),
            namespace: serde_json::from_str(namespace).expect("the namespace is JSON"),
        }
    }
}

impl AdmissionInputs for Cluster<'_> {
    fn objects(&self, _: GroupVersionKind<'_>) -> Result<AdmissionObjects<'_>, String> {
        Ok(AdmissionObjects {
            object: Some(&self.pod),
            old_object: None,
        })
    }

    fn namespace(&self, _: &str) -> Result<&CelJson<'_>, InputFailure> {
        Ok(&self.namespace)
    }

    fn equivalents(&self, _: GroupVersionResource<'_>, _: &str) -> &[EquivalentResource<'_>] {
        &[]
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

    fn authorizer(&self) -> Arc<dyn CelAuthorizer> {
        unreachable!("no policy here uses the authorizer")
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

fn judging<'a>(text: &'a str, user: &'a User) -> Case<'a> {
    Case::new("ten policies that match, judged", move || {
        let (policies, bindings) = policies(10, |_, _| {});
        let set = PolicySet::compile(&policies, &bindings);
        let cluster = Cluster::new(text);
        let attributes = creation(user);
        move || {
            let verdict = set.judge(&attributes, &cluster, EvaluationBudgets::default());
            let verdict = verdict.expect("the namespace is there");
            assert!(verdict.denials.is_empty() && verdict.evaluations.len() == 10);
        }
    })
}

fn passing<'a>(text: &'a str, user: &'a User, count: usize) -> Case<'a> {
    Case::new(format!("{count} policies, none matches"), move || {
        let (policies, bindings) = policies(count, of_others);
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

fn main() {
    let text = pod();
    let user = User::new("alice", ["dev", User::AUTHENTICATED]);
    measure(
        "What do admission policies cost a request?",
        vec![
            Case::new("decode the Pod with serde_json (baseline)", || {
                || {
                    black_box(serde_json::from_str::<Value>(&text).expect("it is JSON"));
                }
            }),
            judging(&text, &user),
            passing(&text, &user, 20),
            passing(&text, &user, 200),
            passing(&text, &user, 2000),
        ],
    );
    println!(
        "compiling 200 policies takes {:.1} ms",
        compile_time().as_secs_f64() * 1e3
    );
}
