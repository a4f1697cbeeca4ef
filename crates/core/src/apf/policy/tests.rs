//! Sets of objects are compiled into policies, and what cannot work in them is reported.

#![expect(
    clippy::needless_pass_by_value,
    reason = "JSON literals read better by value"
)]

use serde_json::{Value, json};

use super::*;
use crate::apf::objects::{Bootstrap, ObjectSet};

const API: &str = "flowcontrol.apiserver.k8s.io/v1";

fn settings(total_seats: Seats) -> PolicySettings {
    PolicySettings {
        total_seats,
        semantics: Semantics::Improved,
        hash_key: [0; 16],
        tenant_weight: PolicySettings::DEFAULT_TENANT_WEIGHT,
    }
}

fn schema(name: &str, precedence: i32, level: &str, subject: Value) -> Value {
    json!({
        "apiVersion": API,
        "kind": "FlowSchema",
        "metadata": { "name": name },
        "spec": {
            "matchingPrecedence": precedence,
            "priorityLevelConfiguration": { "name": level },
            "rules": [{
                "subjects": [subject],
                "resourceRules": [{
                    "verbs": ["*"],
                    "apiGroups": ["*"],
                    "resources": ["*"],
                    "namespaces": ["*"],
                    "clusterScope": true,
                }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }],
        },
    })
}

fn user(name: &str) -> Value {
    json!({ "kind": "User", "user": { "name": name } })
}

fn group(name: &str) -> Value {
    json!({ "kind": "Group", "group": { "name": name } })
}

fn level(name: &str, limited: Value) -> Value {
    json!({
        "apiVersion": API,
        "kind": "PriorityLevelConfiguration",
        "metadata": { "name": name },
        "spec": { "type": "Limited", "limited": limited },
    })
}

fn reject(shares: u32) -> Value {
    json!({ "nominalConcurrencyShares": shares, "limitResponse": { "type": "Reject" } })
}

fn read(documents: impl IntoIterator<Item = Value>) -> ObjectSet {
    ObjectSet::read(documents.into_iter().map(|document| ("f.yaml", document)))
}

fn compile(documents: impl IntoIterator<Item = Value>) -> Compiled {
    match Policy::compile(&read(documents), &settings(600)) {
        Ok(compiled) => compiled,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn names(policy: &Policy) -> Vec<&str> {
    policy
        .schemas()
        .iter()
        .map(|schema| &*schema.name)
        .collect()
}

/// The warnings, one line each.
fn warnings(compiled: &Compiled) -> Vec<String> {
    assert!(compiled.findings.iter().all(|finding| !finding.is_error()));
    compiled.findings.iter().map(ToString::to_string).collect()
}

#[test]
fn the_built_in_policy_is_complete_and_has_no_warnings() {
    let compiled = compile([]);
    assert_eq!(warnings(&compiled), Vec::<String>::new());
    let policy = compiled.policy;
    assert_eq!(policy.schemas().len(), 11);
    assert_eq!(policy.levels().len(), 8);
    assert_eq!(names(&policy)[0], "exempt");
    assert_eq!(names(&policy)[10], "catch-all");
    assert_eq!(policy.catch_all(), SchemaIndex(10));
    assert!(policy.levels().is_sorted_by_key(|level| &level.name));
    for level in policy.levels() {
        let found = policy.level_by_name(&level.name).unwrap();
        assert_eq!(policy.level(found), level);
        assert_eq!(level.uid.len(), 36);
    }
    assert_eq!(policy.level_by_name("nowhere"), None);
    let low = policy.level(policy.level_by_name("workload-low").unwrap());
    assert_eq!(low.shares, 100);
    assert_eq!(low.lendable_percent, 90);
    assert_eq!(
        low.kind,
        LevelKind::Limited {
            borrowing_limit_percent: None,
            response: LimitResponse::Queue(Queuing {
                queues: 128,
                hand_size: 6,
                queue_length_limit: 50,
            }),
        }
    );
}

#[test]
fn without_suggested_objects_the_mandatory_ones_remain() {
    let objects = ObjectSet::default().with_bootstrap(Bootstrap::Mandatory);
    let compiled = Policy::compile(&objects, &settings(600)).unwrap();
    assert_eq!(names(&compiled.policy), ["exempt", "catch-all"]);
    let levels: Vec<&str> = compiled.policy.levels().iter().map(|l| &*l.name).collect();
    assert_eq!(levels, ["catch-all", "exempt"]);
    assert_eq!(compiled.findings, []);
}

#[test]
fn schemas_are_ordered_by_precedence_and_name_with_the_mandatory_ones_at_the_ends() {
    let compiled = compile([
        schema("z-last", 10_000, "workload-low", user("a")),
        schema("b", 300, "workload-low", user("b")),
        schema("a", 300, "workload-low", user("c")),
    ]);
    let names = names(&compiled.policy);
    assert_eq!(names[0], "exempt");
    assert_eq!(names[3..5], ["a", "b"]);
    assert_eq!(names[12..], ["z-last", "catch-all"]);
}

#[test]
fn a_uid_that_is_given_is_kept() {
    let mut with_uid = schema("mine", 300, "workload-low", user("a"));
    with_uid["metadata"]["uid"] = json!("given");
    let compiled = compile([with_uid]);
    let mine = compiled.policy.schema_by_name("mine").unwrap();
    assert_eq!(&*compiled.policy.schema(mine).uid, "given");
}

#[test]
fn the_tunables_of_the_exempt_level_are_honoured() {
    let exempt = |spec: Value| {
        let object = json!({
            "apiVersion": API,
            "kind": "PriorityLevelConfiguration",
            "metadata": { "name": "exempt" },
            "spec": spec,
        });
        let policy = compile([object]).policy;
        policy
            .level(policy.level_by_name("exempt").unwrap())
            .clone()
    };
    let tuned = exempt(json!({
        "type": "Exempt",
        "exempt": { "nominalConcurrencyShares": 10, "lendablePercent": 50 },
    }));
    assert_eq!((tuned.shares, tuned.lendable_percent), (10, 50));
    assert_eq!(tuned.kind, LevelKind::Exempt);
    let bare = exempt(json!({ "type": "Exempt" }));
    assert_eq!((bare.shares, bare.lendable_percent), (0, 0), "as built in");
}

#[test]
fn one_error_refuses_the_set_and_every_error_is_reported() {
    let mut bad = schema("bad", 300, "workload-low", user("a"));
    bad["spec"]["matchingPrecedence"] = json!(-1);
    let documents = [bad, schema("dangling", 300, "missing", user("a"))];
    let findings = Policy::compile(&read(documents), &settings(600)).unwrap_err();
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    assert_eq!((errors, findings.len()), (1, 2), "{findings:#?}");
}

#[test]
fn a_level_with_errors_is_not_said_to_be_missing() {
    let documents = [
        level("mine", json!({"lendablePercent": 101})),
        schema("it", 300, "mine", user("a")),
    ];
    let findings = Policy::compile(&read(documents), &settings(600)).unwrap_err();
    let is_about_level = |finding: &Finding| finding.kind == "PriorityLevelConfiguration";
    assert!(findings.iter().all(is_about_level), "{findings:#?}");
}

#[test]
fn a_level_that_may_be_the_one_with_errors_is_not_said_to_be_missing() {
    let of_name = |name: Value| {
        let mut level = level("mine", json!({}));
        level["metadata"] = name;
        level
    };
    for document in [
        of_name(json!({"name": "Mine"})),
        of_name(json!({"name": "mine "})),
        of_name(json!({"name": ["mine"]})),
        of_name(json!("mine")),
        of_name(json!({})),
        json!("kind: PriorityLevelConfiguration"),
    ] {
        let documents = [document, schema("it", 300, "mine", user("a"))];
        let findings = Policy::compile(&read(documents), &settings(600)).unwrap_err();
        assert!(findings.iter().all(Finding::is_error), "{findings:#?}");
    }
    let other = of_name(json!({"name": "Other"}));
    let documents = [other, schema("it", 300, "mine", user("a"))];
    let findings = Policy::compile(&read(documents), &settings(600)).unwrap_err();
    assert_eq!(findings.iter().filter(|one| !one.is_error()).count(), 1);
}

#[test]
fn no_level_is_said_to_be_missing_while_a_document_cannot_be_read() {
    let objects = read([schema("it", 300, "mine", user("a"))]);
    let warned = |objects: &ObjectSet| {
        let compiled = Policy::compile(objects, &settings(600)).unwrap();
        assert_eq!(compiled.dangling, ["it".into()]);
        warnings(&compiled).len()
    };
    assert_eq!(warned(&objects), 1);
    assert_eq!(warned(&objects.with_unread_documents(true)), 0);
}

#[test]
fn a_schema_without_its_level_is_left_out_and_reported() {
    let compiled = compile([schema("it", 300, "missing", user("a"))]);
    assert_eq!(compiled.policy.schema_by_name("it"), None);
    assert_eq!(compiled.dangling, ["it".into()]);
    assert_eq!(
        warnings(&compiled),
        [
            "warning: f.yaml: FlowSchema \"it\": spec.priorityLevelConfiguration.name: names the \
             PriorityLevelConfiguration \"missing\", which does not exist, so the schema matches \
             nothing; add that level or name an existing one"
        ]
    );
}

#[test]
fn a_schema_behind_a_broader_one_is_reported() {
    let compiled = compile([
        schema("broad", 300, "workload-low", user("*")),
        schema("narrow", 400, "workload-low", user("a")),
    ]);
    let reported: Vec<&Finding> = compiled
        .findings
        .iter()
        .filter(|finding| finding.origin == "f.yaml")
        .collect();
    assert_eq!(reported.len(), 1, "{:#?}", compiled.findings);
    assert_eq!(reported[0].name, "narrow");
    assert_eq!(reported[0].field, "spec.matchingPrecedence");
    assert_eq!(
        reported[0].message,
        "is never reached: all its requests match earlier: \"broad\""
    );
    assert!(is_unreachable(reported[0]));
}

#[test]
fn a_schema_behind_the_groups_of_all_users_is_reported() {
    let compiled = compile([schema("late", 9950, "workload-low", user("a"))]);
    assert_eq!(
        warnings(&compiled),
        [
            "warning: f.yaml: FlowSchema \"late\": spec.matchingPrecedence: is reached only by \
             users who are in neither system:authenticated nor system:unauthenticated: all others \
             match earlier: \"global-default\"; lower its matchingPrecedence, narrow the others, \
             or remove it"
        ]
    );
}

#[test]
fn a_schema_that_is_partly_covered_is_not_reported() {
    let mut partly = schema("partly", 400, "workload-low", user("a"));
    partly["spec"]["rules"][0]["subjects"] = json!([user("a"), user("b")]);
    let compiled = compile([schema("first", 300, "workload-low", user("a")), partly]);
    assert_eq!(warnings(&compiled), Vec::<String>::new());
}

#[test]
fn rules_that_match_nothing_are_reported() {
    let mut empty = schema("empty", 300, "workload-low", user("a"));
    empty["spec"]["rules"] = json!([]);
    let mut pattern = schema("pattern", 300, "workload-low", user("a"));
    pattern["spec"]["rules"][0]["resourceRules"][0]["resources"] = json!(["pods", "pods/*"]);
    let compiled = compile([empty, pattern]);
    let fields: Vec<(&str, &str)> = compiled
        .findings
        .iter()
        .map(|finding| (finding.name.as_str(), finding.field.as_str()))
        .collect();
    assert_eq!(
        fields,
        [
            ("empty", "spec.rules"),
            ("pattern", "spec.rules[0].resourceRules[0].resources[1]"),
        ]
    );
}

/// The warnings about a level of this spec to which a schema refers, each as `field: message`.
fn level_warnings(total_seats: Seats, limited: Value) -> Vec<String> {
    let documents = [
        level("it", limited),
        schema("for-it", 300, "it", group("dev")),
    ];
    let compiled = Policy::compile(&read(documents), &settings(total_seats)).unwrap();
    let reported = compiled
        .findings
        .iter()
        .filter(|finding| finding.name == "it");
    reported
        .map(|finding| format!("{}: {}", finding.field, finding.message))
        .collect()
}

#[test]
fn a_level_that_never_has_a_seat_is_reported() {
    let jail = json!({
        "nominalConcurrencyShares": 0,
        "borrowingLimitPercent": 100,
        "limitResponse": { "type": "Queue", "queuing": {} },
    });
    assert_eq!(
        level_warnings(600, jail),
        [
            "spec.limited.nominalConcurrencyShares: is 0 and borrowing is limited, so the level \
             never has a seat and its requests wait until they time out"
        ]
    );
}

#[test]
fn a_level_narrower_than_its_widest_request_is_reported() {
    let narrow = level_warnings(600, reject(10));
    assert_eq!(narrow.len(), 1);
    assert!(
        narrow[0].contains("gives it 24 seats, but one request can take up to 100"),
        "{narrow:?}"
    );
    assert_eq!(level_warnings(6000, reject(100)), Vec::<String>::new());

    let queue = |shares: u32| {
        json!({
            "nominalConcurrencyShares": shares,
            "limitResponse": { "type": "Queue", "queuing": { "queues": 64, "handSize": 8 } },
        })
    };
    let narrow = level_warnings(600, queue(2));
    assert_eq!(narrow.len(), 1);
    assert!(
        narrow[0].contains("gives it 5 seats, too few for hands of 8"),
        "{narrow:?}"
    );
    assert_eq!(level_warnings(600, queue(30)), Vec::<String>::new());
}

#[test]
fn the_width_of_a_built_in_level_is_not_reported() {
    let limited = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}});
    let names = ["catch-all", "like-it"];
    let documents = names.map(|name| level(name, limited.clone()));
    let compiled = Policy::compile(&read(documents), &settings(100)).unwrap();
    let findings = compiled.findings.iter();
    let narrow = findings.filter(|finding| finding.message.contains("but one request can take"));
    let narrow: Vec<_> = narrow.map(|finding| &*finding.name).collect();
    // Its object is the same whether it is stored or not.
    assert_eq!(narrow, ["like-it"]);
}

#[test]
fn very_many_queues_are_reported() {
    let many = |queues: u32| {
        json!({
            "nominalConcurrencyShares": 100,
            "limitResponse": { "type": "Queue", "queuing": { "queues": queues, "handSize": 2 } },
        })
    };
    assert_eq!(level_warnings(600, many(100_000)), Vec::<String>::new());
    assert_eq!(
        level_warnings(600, many(100_001)),
        [
            "spec.limited.limitResponse.queuing.queues: 100001 queues take memory without any benefit"
        ]
    );
}

#[test]
fn a_level_without_schema_is_reported() {
    let mut limited = reject(100);
    limited["limitResponse"] = json!({ "type": "Queue", "queuing": {} });
    let compiled = compile([level("it", limited)]);
    assert_eq!(
        warnings(&compiled),
        [
            "warning: f.yaml: PriorityLevelConfiguration \"it\": no FlowSchema sends requests to \
             it, but its shares reduce the seats of all others; add a FlowSchema for it or remove it"
        ]
    );
    assert!(
        !compiled.findings.iter().any(is_unreachable),
        "only a schema can be unreachable"
    );
}

#[test]
fn ten_thousand_schemas_compile_with_their_warnings() {
    let documents = (0..10_000).map(|i| {
        let subject = user(&format!("user-{}", i % 9_000));
        schema(&format!("schema-{i:05}"), 1000, "workload-low", subject)
    });
    let compiled = compile(documents);
    assert_eq!(compiled.policy.schemas().len(), 10_011);
    assert_eq!(
        compiled.findings.len(),
        1_000,
        "the second schema of a user is never reached"
    );
}

#[test]
fn a_tenant_that_is_unknown_is_reported_and_the_default_applies() {
    let mut odd = schema("odd", 300, "workload-low", user("a"));
    odd["metadata"]["annotations"] = json!({ "fairgate.dev/tenant": "team" });
    let compiled = compile([odd]);
    assert_eq!(
        warnings(&compiled),
        [
            "warning: f.yaml: FlowSchema \"odd\": metadata.annotations[fairgate.dev/tenant]: \"team\" names no tenant, so \
             the default applies; write one of default, user, namespace, flow, or remove the annotation"
        ]
    );
    let schema = compiled.policy.schema_by_name("odd").unwrap();
    let rule = compiled.policy.schema(schema).tenant;
    assert_eq!(rule, TenantRule::Default);
}

#[test]
fn a_built_in_schema_may_name_a_tenant_and_keep_its_spec() {
    let mut given = schema("service-accounts", 9000, "workload-low", user("nobody"));
    given["metadata"]["annotations"] = json!({
        "fairgate.dev/tenant": "user", "apf.kubernetes.io/autoupdate-spec": "true",
    });
    let policy = compile([given]).policy;
    let schema = policy.schema_by_name("service-accounts").unwrap();
    assert_eq!(policy.schema(schema).tenant, TenantRule::User);
    let distinguisher = policy.schema(schema).distinguisher;
    assert_eq!(
        distinguisher,
        Some(Distinguisher::ByUser),
        "the built-in spec"
    );
}
