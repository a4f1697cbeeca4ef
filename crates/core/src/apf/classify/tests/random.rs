//! The index and the scan give the same result, for random rules and requests.

use proptest::sample::{Index, select, subsequence};

use super::{super::build::Budget, *};

const USERS: [&str; 6] = [
    "alice",
    "bob",
    "system:serviceaccount:red:one",
    "system:serviceaccount:red:two",
    "system:serviceaccount:red2:one",
    "system:serviceaccount:blue:",
];
const GROUPS: [&str; 5] = [
    "dev",
    "ops",
    "red",
    "system:masters",
    "system:authenticated",
];
const NAMESPACES: [&str; 4] = ["red", "red2", "blue", "kube-system"];
const API_GROUPS: [&str; 3] = ["", "apps", "batch"];
const RESOURCES: [&str; 7] = [
    "pods",
    "pods/log",
    "pods/*",
    "log",
    "jobs",
    "namespaces",
    "nodes/status",
];
const VERBS: [&str; 9] = super::super::super::objects::validate::VERBS;
const URLS: [&str; 9] = [
    "/",
    "/*",
    "/healthz",
    "/healthz/*",
    "/healthz/etcd",
    "/apis/",
    "/apis/apps",
    "/logs/a/b",
    "/logs/*",
];

/// A few of these values, sometimes the wildcard, sometimes many values.
fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    prop_oneof![
        3 => subsequence(of, 1..=of.len().min(3)).prop_map(|some| strings(&some)),
        1 => Just(strings(&["*"])),
        1 => subsequence(of, 1..=of.len()).prop_map(|some| strings(&some)),
    ]
}

fn a_subject() -> impl Strategy<Value = Subject> {
    prop_oneof![
        4 => select(&USERS[..]).prop_map(user),
        4 => select(&GROUPS[..]).prop_map(group),
        2 => select(&NAMESPACES[..]).prop_map(|ns| account(ns, "*")),
        2 => (select(&NAMESPACES[..]), select(&["one", "two"][..])).prop_map(|(ns, n)| account(ns, n)),
        1 => Just(user("*")),
        1 => Just(group("*")),
    ]
}

fn a_resource_rule() -> impl Strategy<Value = ResourcePolicyRule> {
    (
        some(&VERBS),
        some(&API_GROUPS),
        some(&RESOURCES),
        some(&NAMESPACES),
        any::<bool>(),
        0..4,
    )
        .prop_map(
            |(verbs, api_groups, resources, namespaces, cluster, none)| ResourcePolicyRule {
                verbs,
                api_groups,
                resources,
                namespaces: Some(if cluster && none == 0 {
                    Vec::new()
                } else {
                    namespaces
                }),
                cluster_scope: Some(cluster),
            },
        )
}

fn a_path_rule() -> impl Strategy<Value = NonResourcePolicyRule> {
    (some(&VERBS), some(&URLS)).prop_map(|(verbs, non_resource_urls)| NonResourcePolicyRule {
        verbs,
        non_resource_urls,
    })
}

pub(super) fn a_rule() -> impl Strategy<Value = PolicyRulesWithSubjects> {
    let subjects = prop::collection::vec(a_subject(), 1..6);
    let resources = prop::collection::vec(a_resource_rule(), 0..3);
    let paths = prop::collection::vec(a_path_rule(), 0..3);
    (subjects, resources, paths)
        .prop_filter("a rule has a resource or path rule", |(_, r, p)| {
            !(r.is_empty() && p.is_empty())
        })
        .prop_map(|(s, r, p)| rule(s, r, p))
}

fn a_policy() -> impl Strategy<Value = Policy> {
    let one = (2..12, prop::collection::vec(a_rule(), 0..3));
    prop::collection::vec(one, 1..40).prop_map(|schemas| {
        let schemas = schemas.into_iter().enumerate();
        policy(
            schemas
                .map(|(i, (precedence, rules))| schema(&format!("s{i}"), precedence, rules))
                .collect(),
        )
    })
}

fn a_target() -> impl Strategy<Value = String> {
    let namespaces = select(&["red", "red2", "blue", "other", "kube-system"][..]);
    let api = select(
        &[
            "/api/v1",
            "/apis/apps/v1",
            "/apis/batch/v1",
            "/apis/other/v1",
        ][..],
    );
    let resource = select(&["pods", "jobs", "log", "namespaces", "nodes", "x"][..]);
    let rest = select(&["", "/n", "/n/log", "/n/status", "?watch=true"][..]);
    let path = select(
        &[
            "/",
            "/healthz",
            "/healthz/",
            "/healthz/etcd",
            "/healthz/etcd/x",
            "/healthzx",
            "/apis",
            "/apis/",
            "/apis/apps",
            "/apis/apps/",
            "/logs",
            "/logs/a",
            "/logs/a/b",
            "/logs/a/b/c",
            "/logs//a",
            "//healthz",
            "/version",
        ][..],
    );
    prop_oneof![
        2 => (api.clone(), namespaces, resource.clone(), rest.clone())
            .prop_map(|(api, ns, resource, rest)| format!("{api}/namespaces/{ns}/{resource}{rest}")),
        1 => (api, resource, rest).prop_map(|(api, resource, rest)| format!("{api}/{resource}{rest}")),
        1 => path.prop_map(str::to_owned),
    ]
}

pub(super) fn a_request() -> impl Strategy<Value = RequestDigest> {
    let methods = select(
        &[
            "GET", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "LIST",
        ][..],
    );
    let users = prop_oneof![
        4 => select(&USERS[..]),
        1 => select(&["carol", "*", "system:serviceaccount:", "system:serviceaccount:red", ""][..]),
    ];
    // In any order, sometimes with `system:masters`, which the very first schema is for.
    let groups = subsequence(
        &[
            "dev",
            "ops",
            "red",
            "*",
            "system:authenticated",
            "none",
            "system:masters",
        ][..],
        0..5,
    )
    .prop_shuffle();
    (users, groups, methods, a_target())
        .prop_map(|(user, groups, method, target)| digest(user, &groups, method, &target))
}

/// For each schema that the compiler calls unreachable, whether groupless users are excepted.
fn unreachable(policy: &Policy) -> Vec<(SchemaIndex, bool)> {
    let mut unreachable = Vec::new();
    for at in 0..u32::try_from(policy.schemas().len()).unwrap() {
        let index = SchemaIndex(at);
        match policy.classifier().cover(at) {
            Cover::Open => {}
            Cover::Nothing | Cover::Whole(_) => unreachable.push((index, false)),
            Cover::AllButGroupless(_) => unreachable.push((index, true)),
        }
    }
    unreachable
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_index_gives_the_same_result_as_the_scan(
        policy in a_policy(),
        requests in prop::collection::vec(a_request(), 60),
    ) {
        for request in requests {
            prop_assert_eq!(policy.classify(&request).schema, scan(&policy, &request), "{:?}", request);
        }
    }

    #[test]
    fn rules_kept_whole_give_the_same_result_as_the_scan(
        policy in a_policy(),
        requests in prop::collection::vec(a_request(), 60),
    ) {
        let nothing = Budget { per_part: 0, per_name: 0 };
        let schemas: Vec<_> = policy
            .schemas()
            .iter()
            .zip((0..).map(SchemaIndex))
            .map(|(schema, index)| ClassifierSchema {
                schema,
                rules: policy.packed_rules(index),
                known: None,
            })
            .collect();
        let classifier = Classifier::within(nothing, None, &schemas, policy.levels(), [1; 16]);
        prop_assert!(classifier.entries.is_empty(), "no combination is listed");
        for request in requests {
            let found = match classifier.first_match(&request) {
                UNKNOWN => policy.catch_all(),
                found => SchemaIndex(found),
            };
            prop_assert_eq!(found, scan(&policy, &request), "{:?}", request);
        }
    }

    #[test]
    fn a_schema_reported_as_unreachable_is_never_selected(
        policy in a_policy(),
        requests in prop::collection::vec(a_request(), 60),
    ) {
        let unreachable = unreachable(&policy);
        for request in requests {
            let found = scan(&policy, &request);
            // The catch-all also serves what nothing matches.
            if policy.explain(found, &request).is_err() {
                continue;
            }
            let groupless = !request.user.in_group(User::AUTHENTICATED)
                && !request.user.in_group(User::UNAUTHENTICATED);
            for &(schema, but_groupless) in &unreachable {
                prop_assert!(
                    found != schema || (but_groupless && groupless),
                    "{:?} reaches {:?}", request, policy.schema(schema),
                );
            }
        }
    }

    /// A schema made for a request is found, and one that differs only in the user is not.
    #[test]
    fn a_schema_made_for_a_request_is_found(
        policy_index in any::<Index>(),
        request in a_request(),
    ) {
        let info = &request.info;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        prop_assume!(!request.user.name.is_empty() && info.verb.bit() != 0);
        let made = |user_name: &str| {
            let mut resource = text(info.resource());
            if !info.subresource().is_empty() {
                resource = format!("{resource}/{}", text(info.subresource()));
            }
            let namespace = text(info.namespace());
            let namespaces: Vec<&str> = if namespace.is_empty() { vec![] } else { vec![&namespace] };
            let verb = info.verb.as_str();
            if info.is_resource {
                rule(
                    vec![user(user_name)],
                    vec![resources(&[verb], &[&text(info.group())], &[&resource], &namespaces, namespace.is_empty())],
                    vec![],
                )
            } else {
                rule(vec![user(user_name)], vec![], vec![paths(&[verb], &[&text(info.path())])])
            }
        };
        prop_assume!(!info.path().windows(2).any(|two| two == b"//"));
        prop_assume!(!request.user.in_group(User::MASTERS));
        let mut schemas: Vec<FlowSchema> = (0..50)
            .map(|i| schema(&format!("miss{i}"), 2, vec![made(&format!("nobody{i}"))]))
            .collect();
        let at = policy_index.index(schemas.len());
        schemas.insert(at, schema("hit", 2, vec![made(&request.user.name)]));
        let policy = policy(schemas);
        prop_assert_eq!(matched(&policy, &request), "hit");
    }
}
