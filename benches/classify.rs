//! What does it cost to classify a request, with few schemas and with many?
//!
//! For five shapes of policy it prints nanoseconds per request: by the index, with the built-in
//! schemas, 1 000 and 10 000 more, and by a plain scan of all schemas as baseline. Every figure is
//! the median of several runs; every size sees the same requests.
//!
//! `cargo bench --profile dist -p fairgate-core --bench classify -- --instructions` counts instead the instructions of each
//! classification with the built-in schemas and with 1 000 more.

mod support;

use std::{hint::black_box, sync::Arc, time::Instant};

use fairgate_core::{
    apf::{ObjectSet, Policy, PolicySettings, SchemaIndex, Semantics},
    digest::{RequestDigest, RequestInfo, User},
};
use k8s_openapi::api::flowcontrol::v1::PolicyRulesWithSubjects;
use serde_json::{Value, json};
use support::{Case, measure};

const SIZES: [usize; 3] = [0, 1_000, 10_000];
const REQUESTS: usize = 256;
const RUNS: usize = 9;

const AUTHENTICATED: &str = "system:authenticated";

struct Shape {
    name: &'static str,
    schema: fn(usize) -> Value,
    request: fn(usize) -> RequestDigest,
}

const SHAPES: [Shape; 5] = [
    Shape {
        name: "disjoint users",
        schema: |i| schema(i, &subjects(&[user(&format!("user-{i}"))], &everything())),
        request: |i| pods_in("red", &format!("user-{i}")),
    },
    Shape {
        name: "one group, disjoint resources",
        schema: |i| schema(i, &subjects(&[group(AUTHENTICATED)], &resource(i))),
        request: for_a_resource,
    },
    Shape {
        name: "everybody, disjoint namespaces",
        schema: |i| schema(i, &subjects(&[user("*")], &namespace(i))),
        request: |i| pods_in(&format!("ns-{i}"), "alice"),
    },
    Shape {
        name: "mix",
        schema: mix,
        request: of_the_mix,
    },
    Shape {
        name: "mix, nothing matches",
        schema: mix,
        request: |i| {
            digest(
                &format!("loner-{i}"),
                &["none"],
                "/api/v1/namespaces/other/secrets/s",
            )
        },
    },
];

fn main() {
    if std::env::args().any(|argument| argument == "--instructions" || argument == "--rounds") {
        count_instructions();
        return;
    }
    println!(
        "ns per request           {:>9} {:>9} {:>9}   ratio   plain scan",
        "built in", "+1000", "+10000"
    );
    for shape in SHAPES {
        let policies = SIZES.map(|size| policy((0..size).map(shape.schema)));
        // Requests of the largest policy, for all sizes.
        let largest = SIZES[SIZES.len() - 1];
        let requests: Vec<RequestDigest> = (0..REQUESTS)
            .map(|i| (shape.request)(i * 7919 % largest))
            .collect();
        for (policy, size) in policies.iter().zip(SIZES) {
            check(policy, &Scan::new(policy), &requests, size);
        }
        let indexed: Vec<f64> = policies
            .iter()
            .map(|policy| median(&requests, 400, |request| policy.classify(request).schema))
            .collect();
        let scanned: Vec<f64> = policies
            .iter()
            .zip([40, 1, 1])
            .map(|(policy, rounds)| {
                let scan = Scan::new(policy);
                median(&requests, rounds, |request| scan.classify(request))
            })
            .collect();
        println!(
            "{:<31} {:>6.0} {:>9.0} {:>9.0}   {:>4.2}x   {:>6.0} {:>8.0} {:>9.0}",
            shape.name,
            indexed[0],
            indexed[1],
            indexed[2],
            indexed[2] / indexed[0],
            scanned[0],
            scanned[1],
            scanned[2],
        );
    }
}

fn count_instructions() {
    let mut cases = vec![Case::new("a word, hashed", || {
        || {
            black_box(black_box(7_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
    })];
    for shape in &SHAPES {
        for size in [0, 1_000] {
            let name = format!("{}, +{size} schemas", shape.name);
            cases.push(Case::new(name, move || one_by_one(shape, size)));
        }
    }
    measure("One classification.", cases);
}

/// Classifies one request of a shape after another.
fn one_by_one(shape: &Shape, size: usize) -> impl FnMut() + use<> {
    let policy = policy((0..size).map(shape.schema));
    let requests: Vec<RequestDigest> = (0..REQUESTS)
        .map(|i| (shape.request)(i * 7919 % size.max(1)))
        .collect();
    let mut next = 0;
    move || {
        next = (next + 1) % requests.len();
        black_box(policy.classify(black_box(&requests[next])).schema);
    }
}

/// The median over runs of the nanoseconds that one request takes.
#[expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench reads the clock, and its figures are small"
)]
fn median(
    requests: &[RequestDigest],
    rounds: usize,
    classify: impl Fn(&RequestDigest) -> SchemaIndex,
) -> f64 {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..rounds {
                for request in requests {
                    black_box(classify(black_box(request)));
                }
            }
            start.elapsed().as_nanos() as f64 / (rounds * requests.len()) as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[RUNS / 2]
}

fn check(policy: &Policy, scan: &Scan, requests: &[RequestDigest], size: usize) {
    for request in requests {
        let (found, expected) = (policy.classify(request).schema, scan.classify(request));
        assert_eq!(found, expected, "with {size} schemas: {request:?}");
    }
}

fn policy(documents: impl Iterator<Item = Value>) -> Policy {
    let objects = ObjectSet::read(documents.map(|document| ("bench", document)));
    let settings = PolicySettings {
        total_seats: 600,
        semantics: Semantics::Improved,
        hash_key: [7; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    };
    match Policy::compile(&objects, &settings) {
        Ok(compiled) => compiled.policy,
        Err(findings) => panic!("the bench's own objects are valid: {findings:?}"),
    }
}

/// The baseline: all schemas in order, compared as text. It supports only what these objects use.
struct Scan {
    rules: Vec<Vec<PolicyRulesWithSubjects>>,
    catch_all: SchemaIndex,
}

impl Scan {
    fn new(policy: &Policy) -> Self {
        let schemas = (0..).map(SchemaIndex).zip(policy.schemas());
        Self {
            rules: schemas.map(|(schema, _)| policy.rules(schema)).collect(),
            catch_all: policy.catch_all(),
        }
    }

    fn classify(&self, digest: &RequestDigest) -> SchemaIndex {
        (0..)
            .map(SchemaIndex)
            .zip(&self.rules)
            .find(|(_, rules)| rules.iter().any(|rule| is_match(rule, digest)))
            .map_or(self.catch_all, |(schema, _)| schema)
    }
}

fn is_match(rule: &PolicyRulesWithSubjects, digest: &RequestDigest) -> bool {
    let info = &digest.info;
    rule.subjects
        .iter()
        .any(|subject| is_subject(subject, &digest.user))
        && if info.is_resource {
            rule.resource_rules.iter().flatten().any(|part| {
                lists(&part.verbs, info.verb.as_str().as_bytes())
                    && lists(&part.resources, info.resource())
                    && lists(&part.api_groups, info.group())
                    && if info.namespace().is_empty() {
                        part.cluster_scope == Some(true)
                    } else {
                        let namespaces = part.namespaces.as_deref().unwrap_or_default();
                        lists(namespaces, info.namespace())
                    }
            })
        } else {
            rule.non_resource_rules.iter().flatten().any(|part| {
                lists(&part.verbs, info.verb.as_str().as_bytes())
                    && part.non_resource_urls.iter().any(|url| {
                        url == "*"
                            || info
                                .path()
                                .strip_prefix(url.as_bytes())
                                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
                    })
            })
        }
}

fn is_subject(subject: &k8s_openapi::api::flowcontrol::v1::Subject, user: &User) -> bool {
    if let Some(wanted) = &subject.user {
        return wanted.name == "*" || wanted.name == user.name;
    }
    if let Some(wanted) = &subject.group {
        return wanted.name == "*" || user.in_group(&wanted.name);
    }
    subject.service_account.as_ref().is_some_and(|wanted| {
        user.name
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.strip_prefix(wanted.namespace.as_str()))
            .is_some_and(|rest| rest.starts_with(':'))
    })
}

fn lists(list: &[String], wanted: &[u8]) -> bool {
    matches!(list, [only] if only == "*") || list.iter().any(|entry| entry.as_bytes() == wanted)
}

// Schemas and requests.

fn schema(i: usize, rule: &Value) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": { "name": format!("schema-{i}") },
        "spec": {
            "matchingPrecedence": 1000 + i % 5000,
            "priorityLevelConfiguration": { "name": "workload-low" },
            "distinguisherMethod": { "type": "ByUser" },
            "rules": [rule],
        },
    })
}

fn user(name: &str) -> Value {
    json!({ "kind": "User", "user": { "name": name } })
}

fn group(name: &str) -> Value {
    json!({ "kind": "Group", "group": { "name": name } })
}

fn subjects(subjects: &[Value], rule: &Value) -> Value {
    let mut rule = rule.clone();
    rule["subjects"] = json!(subjects);
    rule
}

fn everything() -> Value {
    json!({
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
            "clusterScope": true,
        }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    })
}

fn resource(i: usize) -> Value {
    json!({ "resourceRules": [{
        "verbs": ["*"], "apiGroups": ["example.com"], "resources": [format!("things{i}")],
        "namespaces": ["*"], "clusterScope": true,
    }] })
}

fn namespace(i: usize) -> Value {
    json!({ "resourceRules": [{
        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": [format!("ns-{i}")],
    }] })
}

fn mix(i: usize) -> Value {
    let rule = match (i * 7 + i / 11) % 6 {
        0 => subjects(&[user(&format!("user-{i}"))], &everything()),
        1 => subjects(&[group(AUTHENTICATED)], &resource(i)),
        2 => subjects(&[group("*")], &namespace(i)),
        3 => {
            let account = json!({
                "kind": "ServiceAccount",
                "serviceAccount": { "namespace": format!("ns-{i}"), "name": "*" },
            });
            subjects(&[account], &everything())
        }
        4 => {
            let team = [group(&format!("team-{i}")), group("dev"), user("bob")];
            subjects(&team, &namespace(i))
        }
        _ => {
            let probe = json!({ "nonResourceRules": [{
                "verbs": ["get"], "nonResourceURLs": [format!("/probe/{i}")],
            }] });
            subjects(&[group("*")], &probe)
        }
    };
    schema(i, &rule)
}

fn of_the_mix(i: usize) -> RequestDigest {
    match i % 5 {
        0 => pods_in("red", &format!("user-{i}")),
        1 => for_a_resource(i),
        2 => pods_in(&format!("ns-{i}"), "alice"),
        3 => {
            let account = format!("system:serviceaccount:ns-{i}:x");
            digest(
                &account,
                &["system:serviceaccounts", AUTHENTICATED],
                "/api/v1/pods",
            )
        }
        _ => digest("alice", &[AUTHENTICATED], &format!("/probe/{i}/x")),
    }
}

fn pods_in(namespace: &str, user: &str) -> RequestDigest {
    let target = format!("/api/v1/namespaces/{namespace}/pods/p");
    digest(user, &["dev", AUTHENTICATED], &target)
}

fn for_a_resource(i: usize) -> RequestDigest {
    let target = format!("/apis/example.com/v1/namespaces/red/things{i}/x");
    digest("alice", &["dev", AUTHENTICATED], &target)
}

fn digest(user: &str, groups: &[&str], target: &str) -> RequestDigest {
    RequestDigest {
        info: RequestInfo::from_target("GET", target).expect("the bench's own paths are valid"),
        user: Arc::new(User::new(user, groups.iter().copied())),
    }
}
