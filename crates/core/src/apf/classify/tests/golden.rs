//! Tricky cases, each as the original decides it.

use super::*;

/// Whether a rule matches a request.
fn matches(rule: &PolicyRulesWithSubjects, digest: &RequestDigest) -> bool {
    let policy = policy(vec![schema("it", 2, vec![rule.clone()])]);
    matched(&policy, digest) == "it"
}

fn of(subject: Subject) -> PolicyRulesWithSubjects {
    all_of(subject)
}

/// A rule of these resources for everybody.
fn for_all(part: ResourcePolicyRule) -> PolicyRulesWithSubjects {
    rule(vec![user("*")], vec![part], vec![])
}

/// A rule of these paths for everybody.
fn for_paths(verbs: &[&str], urls: &[&str]) -> PolicyRulesWithSubjects {
    rule(vec![user("*")], vec![], vec![paths(verbs, urls)])
}

fn anybody(method: &str, target: &str) -> RequestDigest {
    digest("u", &[], method, target)
}

fn get(target: &str) -> RequestDigest {
    anybody("GET", target)
}

/// Everything with these resources.
fn only_resources(list: &[&str]) -> PolicyRulesWithSubjects {
    for_all(resources(&["*"], &["*"], list, &["*"], true))
}

/// Everything with these verbs.
fn only_verbs(list: &[&str]) -> PolicyRulesWithSubjects {
    for_all(resources(list, &["*"], &["*"], &["*"], true))
}

// Cases 1 to 12.
#[test]
fn subjects_match_users_groups_and_service_accounts() {
    let only = |subject| of(subject);
    let request = digest("goodu", &["goodg1", "goodg2"], "GET", "/x");
    assert!(matches(&only(user("goodu")), &request));
    assert!(!matches(&only(user("badu")), &request));
    assert!(matches(&only(group("goodg1")), &request));
    assert!(matches(&only(group("goodg2")), &request));
    assert!(!matches(&only(group("badg")), &request));
    assert!(matches(&only(user("*")), &request));
    assert!(matches(&only(group("*")), &get("/x")), "in no group");

    let as_account =
        |name: &str| digest(&format!("system:serviceaccount:{name}"), &[], "GET", "/x");
    let all = of(account("kube-system", "*"));
    assert!(matches(&all, &as_account("kube-system:x")));
    assert!(!matches(&all, &as_account("kube-system2:x")));
    assert!(
        matches(&all, &as_account("kube-system:")),
        "even an empty name"
    );
    assert!(!matches(
        &of(account("kube", "*")),
        &as_account("kube-system:x")
    ));
    let one = of(account("a", "b"));
    assert!(matches(&one, &as_account("a:b")));
    let by_group = digest("b", &["system:serviceaccounts:a"], "GET", "/x");
    assert!(!matches(&one, &by_group));
}

// Case 12; validation keeps such a subject out of a policy, so the rule is explained by itself.
#[test]
fn a_service_account_subject_without_its_member_matches_nobody() {
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        ..Default::default()
    };
    let request = digest("system:serviceaccount:a:b", &[], "GET", "/x");
    assert!(explain::explain_rules(&[of(subject)], &request).is_err());
    let subject = Subject {
        kind: "Robot".to_owned(),
        ..user("*")
    };
    assert!(explain::explain_rules(&[of(subject)], &request).is_err());
}

// Cases 13 to 15.
#[test]
fn each_list_of_a_resource_rule_must_fit() {
    let good = ["update", "goodg", "goodr", "goodns"];
    let request = anybody("PUT", "/apis/goodg/v1/namespaces/goodns/goodr/x");
    let with = |replace: usize, by: &'static str| {
        let mut lists = good;
        lists[replace] = by;
        let [verb, group, resource, namespace] = lists;
        for_all(resources(
            &[verb],
            &[group],
            &[resource],
            &[namespace],
            false,
        ))
    };
    assert!(matches(&with(0, "update"), &request));
    for list in 0..4 {
        assert!(matches(&with(list, "*"), &request), "list {list}");
        let other = if list == 0 { "patch" } else { "other" };
        assert!(!matches(&with(list, other), &request), "list {list}");
    }
}

// Cases 16 to 19.
#[test]
fn requests_without_namespace_need_cluster_scope_and_others_a_listed_namespace() {
    let of = |namespaces: &[&str], cluster| {
        for_all(resources(&["*"], &["*"], &["goodr"], namespaces, cluster))
    };
    let cluster = get("/apis/goodg/v1/goodr/x");
    let namespaced = get("/apis/goodg/v1/namespaces/goodns/goodr/x");
    assert!(matches(&of(&[], true), &cluster));
    assert!(!matches(&of(&["*"], false), &cluster));
    assert!(!matches(&of(&[], true), &namespaced));
    assert!(matches(&of(&["*"], true), &cluster));
    assert!(matches(&of(&["*"], true), &namespaced));
    assert!(matches(&of(&["goodns"], true), &cluster));
    assert!(!matches(&of(&["other"], true), &namespaced));
}

// Cases 20 and 21.
#[test]
fn a_namespace_itself_is_in_itself() {
    let rule = for_all(resources(&["*"], &["*"], &["namespaces"], &["*"], false));
    assert!(matches(&rule, &get("/api/v1/namespaces/foo")));
    assert!(!matches(&rule, &get("/api/v1/namespaces")));
}

// Cases 22 to 25.
#[test]
fn subresources_and_groups_are_listed_separately() {
    let log = get("/api/v1/namespaces/n/pods/p/log");
    let plain = get("/api/v1/namespaces/n/pods/p");
    assert!(!matches(&only_resources(&["pods"]), &log));
    assert!(matches(&only_resources(&["pods/log"]), &log));
    assert!(!matches(&only_resources(&["pods/log"]), &plain));
    assert!(!matches(&only_resources(&["pods/*"]), &log));
    assert!(!matches(&only_resources(&["*/log"]), &log));
    assert!(matches(&only_resources(&["*"]), &log));
    let nodes = only_resources(&["nodes", "nodes/status"]);
    assert!(!matches(&nodes, &get("/api/v1/nodes/n/proxy")));
    assert!(matches(&nodes, &get("/api/v1/nodes/n/status")));
    let core = for_all(resources(&["*"], &[""], &["*"], &["*"], true));
    assert!(matches(&core, &plain));
    assert!(!matches(&core, &get("/apis/apps/v1/namespaces/n/pods/p")));
}

// Cases 26 to 29.
#[test]
fn verbs_are_api_verbs_and_not_http_methods() {
    assert!(!matches(
        &only_verbs(&["list"]),
        &get("/api/v1/pods?watch=true")
    ));
    assert!(matches(
        &only_verbs(&["watch"]),
        &get("/api/v1/pods?watch=true")
    ));
    let delete_all = anybody("DELETE", "/api/v1/namespaces/n/pods");
    assert!(!matches(&only_verbs(&["delete"]), &delete_all));
    assert!(matches(&only_verbs(&["deletecollection"]), &delete_all));
    let head = anybody("HEAD", "/api/v1/namespaces/n/pods/p");
    assert!(matches(&only_verbs(&["get"]), &head));
    let options = anybody("OPTIONS", "/api/v1/namespaces/n/pods");
    let nine = crate::apf::objects::validate::VERBS;
    assert!(!matches(&only_verbs(&nine), &options));
    assert!(matches(&only_verbs(&["*"]), &options));
}

// Cases 30 and 31.
#[test]
fn resource_rules_match_no_paths_and_non_resource_rules_no_resources() {
    let no_paths = only_resources(&["*"]);
    assert!(!matches(&no_paths, &get("/healthz")));
    let only_paths = for_paths(&["*"], &["*"]);
    assert!(!matches(&only_paths, &get("/api/v1/pods")));
    assert!(matches(&only_paths, &get("/healthz")));
}

// Cases 32 to 39.
#[test]
fn paths_match_themselves_and_as_directories() {
    let rows: [(&str, &str, bool); 21] = [
        ("/openapi/v2", "/openapi/v2", true),
        ("/openapi/v2", "/openapi/v3", false),
        ("*", "/any/path", true),
        ("*", "/", true),
        ("/healthz", "/healthz/ping", true),
        ("/healthz", "/healthz", true),
        ("/healthz", "/healthzx", false),
        ("/healthz/*", "/healthz", false),
        ("/healthz/*", "/healthz/", true),
        ("/healthz/*", "/healthz/a/b", true),
        ("/", "/version", true),
        ("/", "/", true),
        ("/", "/a/b/c", true),
        ("/*", "/version", true),
        ("/*", "/", true),
        ("/apis/", "/apis", false),
        ("/apis/", "/apis/x", true),
        ("/logs/a/b", "/logs/a", false),
        ("/logs/a/b", "/logs/a/b/c", true),
        ("/logs/a/b", "/logs//a/b", false),
        ("/logs", "/logs//a", true),
    ];
    for (entry, path, expected) in rows {
        let found = matches(&for_paths(&["get"], &[entry]), &get(path));
        assert_eq!(found, expected, "{entry} {path}");
    }
    let post = anybody("POST", "/x");
    assert!(!matches(&for_paths(&["get"], &["*"]), &post));
    assert!(matches(&for_paths(&["*"], &["*"]), &post));
}

// Case 40.
#[test]
fn schemas_of_the_same_precedence_are_ordered_by_name() {
    let policy = policy(vec![
        schema("b-second", 800, vec![of(user("u"))]),
        schema("a-first", 800, vec![of(user("u"))]),
        schema("z-before", 799, vec![of(user("v"))]),
    ]);
    assert_eq!(matched(&policy, &get("/x")), "a-first");
}

// Case 41.
#[test]
fn a_schema_without_its_level_is_skipped() {
    let mut dangling = schema("dangling", 50, vec![of(user("u"))]);
    if let Some(spec) = &mut dangling.spec {
        spec.priority_level_configuration.name = "missing".to_owned();
    }
    let good = schema("good", 60, vec![of(user("u"))]);
    assert_eq!(matched(&policy(vec![dangling, good]), &get("/x")), "good");
}

// Cases 42 to 48, and a few more: user, groups, request, schema, level.
const BUILT_IN: &str = "
loner                                 |                               | GET /api/v1/pods             | catch-all                    | catch-all
system:kube-scheduler                 | a                             | PUT LEASE/kube-scheduler     | system-leader-election       | leader-election
system:kube-scheduler                 | a                             | GET LEASE/kube-scheduler     | system-leader-election       | leader-election
system:kube-scheduler                 | a                             | POST LEASE                   | system-leader-election       | leader-election
system:kube-scheduler                 | a                             | GET LEASE                    | kube-scheduler               | workload-high
system:kube-scheduler                 | a                             | GET LEASE?watch=true         | kube-scheduler               | workload-high
system:kube-scheduler                 | a                             | PATCH LEASE/kube-scheduler   | kube-scheduler               | workload-high
system:kube-controller-manager        | a                             | GET /version                 | kube-controller-manager      | workload-high
system:node:n1                        | system:nodes a                | PUT LEASE/n1                 | system-node-high             | node-high
system:node:n1                        | system:nodes a                | PATCH /api/v1/nodes/n1/status | system-node-high            | node-high
system:node:n1                        | system:nodes a                | GET /apis/coordination.k8s.io/v1/leases | system-nodes      | system
system:node:n1                        | system:nodes a                | GET /api/v1/pods             | system-nodes                 | system
system:anonymous                      | u                             | GET /livez?verbose           | probes                       | exempt
system:anonymous                      | u                             | GET /healthz/etcd            | probes                       | exempt
system:anonymous                      | u                             | HEAD /livez                  | global-default               | global-default
system:anonymous                      | u                             | GET /version                 | global-default               | global-default
alice                                 | a                             | GET /api/v1/pods             | global-default               | global-default
root                                  | system:masters a              | GET /api/v1/pods             | exempt                       | exempt
system:serviceaccount:kube-system:x   | system:serviceaccounts a      | GET /api/v1/pods             | kube-system-service-accounts | workload-high
system:serviceaccount:kube-system:x   | system:serviceaccounts a      | PUT LEASE/x                  | system-leader-election       | leader-election
system:serviceaccount:default:default | system:serviceaccounts a      | GET /api/v1/pods             | service-accounts             | workload-low
";

#[test]
fn the_built_in_schemas_match_the_requests_they_are_meant_for() {
    let policy = policy(vec![]);
    for row in BUILT_IN.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [user, groups, request, schema, level] = cells[..] else {
            panic!("{row}");
        };
        let groups: Vec<&str> = groups
            .split_whitespace()
            .map(|group| match group {
                "a" => User::AUTHENTICATED,
                "u" => User::UNAUTHENTICATED,
                other => other,
            })
            .collect();
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let request = request.replace("LEASE", leases);
        let (method, target) = request.split_once(' ').unwrap();
        let request = digest(user, &groups, method, target);
        assert_eq!(matched(&policy, &request), schema, "{row}");
        let flow = policy.classify(&request);
        assert_eq!(&*policy.level(flow.level).name, level, "{row}");
    }
}

#[test]
fn requests_that_no_schema_matches_go_to_the_catch_all_wherever_it_is_in_the_order() {
    let last = schema("z-after", 10_000, vec![of(user("somebody"))]);
    let given = crate::apf::objects::bootstrap::flow_schema("catch-all")
        .unwrap()
        .clone();
    let policy = policy(vec![last, given]);
    let names: Vec<&str> = policy.schemas().iter().map(|s| &*s.name).collect();
    assert_eq!(names[names.len() - 2..], ["catch-all", "z-after"]);
    assert_eq!(
        matched(&policy, &digest("loner", &[], "GET", "/x")),
        "catch-all"
    );
    assert_eq!(
        matched(&policy, &digest("somebody", &[], "GET", "/x")),
        "z-after"
    );
}

#[test]
fn the_flow_hash_depends_only_on_the_schema_and_the_user_or_namespace() {
    let policy = policy(vec![]);
    let hash = |user: &str, groups: &[&str], target: &str| {
        policy.classify(&digest(user, groups, "GET", target)).hash
    };
    let authenticated = ["system:authenticated"];
    let pods = "/api/v1/namespaces/red/pods";
    let alice = hash("alice", &authenticated, pods);
    assert_eq!(alice, hash("alice", &authenticated, "/version"), "by user");
    assert_ne!(alice, hash("bob", &authenticated, pods));

    let manager = "system:kube-controller-manager";
    let red = hash(manager, &[], pods);
    assert_ne!(
        red,
        hash(manager, &[], "/api/v1/namespaces/blue/pods"),
        "by namespace"
    );
    assert_eq!(red, hash(manager, &[], "/api/v1/namespaces/red"));
    assert_ne!(red, hash("system:kube-scheduler", &[], pods), "by schema");

    assert_eq!(hash("root", &["system:masters"], pods), 0, "exempt");
    assert_eq!(
        hash("loner", &[], pods),
        0,
        "a level that rejects has no queues"
    );
}

#[test]
fn the_flow_hash_is_a_siphash_of_schema_and_distinguisher_under_the_key() {
    let request = digest("alice", &["system:authenticated"], "GET", "/version");
    let expected = SipHasher13::new_with_key(&SETTINGS.hash_key).hash(b"global-default\0alice");
    assert_eq!(policy(vec![]).classify(&request).hash, expected);

    let other_key = PolicySettings {
        hash_key: [43; 16],
        ..SETTINGS
    };
    let other = Policy::compile(&ObjectSet::default(), &other_key)
        .unwrap()
        .policy;
    assert_ne!(other.classify(&request).hash, expected);
}

#[test]
fn the_distinguisher_is_empty_without_a_distinguisher_method() {
    let policy = policy(vec![]);
    let of = |name: &str| {
        let request = digest("alice", &[], "GET", "/api/v1/namespaces/red/pods");
        let schema = policy.schema_by_name(name).unwrap();
        String::from_utf8(policy.distinguisher(schema, &request).to_vec()).unwrap()
    };
    assert_eq!(of("global-default"), "alice");
    assert_eq!(of("kube-scheduler"), "red");
    assert_eq!(of("exempt"), "");
    assert_eq!(of("catch-all"), "", "ByUser, but its level has no queues");
}

#[test]
fn an_explanation_names_the_part_that_comes_closest_to_matching() {
    let policy = policy(vec![schema(
        "it",
        2,
        vec![
            of(user("nobody")),
            rule(
                vec![user("bob"), group("dev")],
                vec![
                    resources(&["list"], &["*"], &["pods"], &["*"], false),
                    resources(&["get"], &["*"], &["pods"], &["red"], false),
                ],
                vec![],
            ),
        ],
    )]);
    let it = policy.schema_by_name("it").unwrap();
    let explained = |request: &RequestDigest| -> Vec<String> {
        let reasons = policy.explain(it, request).err().unwrap_or_default();
        reasons.iter().map(ToString::to_string).collect()
    };
    let as_dev = |method, target| digest("alice", &["dev"], method, target);

    let red = as_dev("GET", "/api/v1/namespaces/red/pods/p");
    assert_eq!(explained(&red), Vec::<String>::new());
    assert_eq!(
        policy.explain(it, &red).unwrap().to_string(),
        "spec.rules[1]: subjects[1], resourceRules[1]"
    );
    let nobody = "spec.rules[0].subjects: neither the user nor a group of the user is listed";
    assert_eq!(
        explained(&as_dev("GET", "/api/v1/namespaces/blue/pods/p")),
        [
            nobody,
            "spec.rules[1].resourceRules[1].namespaces: the namespace is not listed"
        ]
    );
    assert_eq!(
        explained(&as_dev("GET", "/api/v1/namespaces/red/secrets/s")),
        [
            nobody,
            "spec.rules[1].resourceRules[1].resources: the resource is not listed"
        ]
    );
    assert_eq!(
        explained(&as_dev("GET", "/version")),
        [
            nobody,
            "spec.rules[1].nonResourceRules: there are none, and the request is for no resource"
        ]
    );
}

#[test]
fn the_closest_part_is_named_even_if_it_is_not_the_last() {
    let policy = policy(vec![schema(
        "it",
        2,
        vec![rule(
            vec![user("alice")],
            vec![
                resources(&["get"], &["*"], &["pods"], &["red"], false),
                resources(&["list"], &["*"], &["pods"], &["*"], false),
            ],
            vec![],
        )],
    )]);
    let it = policy.schema_by_name("it").unwrap();
    let elsewhere = digest("alice", &[], "GET", "/api/v1/namespaces/blue/pods/p");
    let reasons = policy.explain(it, &elsewhere).unwrap_err();
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(
        reasons,
        ["spec.rules[0].resourceRules[0].namespaces: the namespace is not listed"]
    );
}

#[test]
fn a_verb_that_is_listed_twice_matches() {
    let twice = resources(&["get", "get"], &["*"], &["pods"], &["*"], false);
    let policy = policy(vec![schema(
        "it",
        2,
        vec![rule(vec![user("bob")], vec![twice], vec![])],
    )]);
    let request = digest("bob", &[], "GET", "/api/v1/namespaces/red/pods/p");
    assert_eq!(
        policy.classify(&request).schema,
        policy.schema_by_name("it").unwrap()
    );
}
