//! What the original refuses is refused, under the same field.

#![expect(
    clippy::needless_pass_by_value,
    reason = "JSON literals read better by value"
)]

use serde_json::{Value, json};

use super::*;
use crate::apf::objects::{ObjectSet, bootstrap};

const API: &str = "flowcontrol.apiserver.k8s.io/v1";

/// The mistakes in a spec, each as `field: text`, in the order told.
fn mistakes(kind: &str, name: &str, spec: Value) -> Vec<String> {
    let object = json!({
        "apiVersion": API,
        "kind": kind,
        "metadata": { "name": name },
        "spec": spec,
    });
    ObjectSet::read([("test", object)])
        .findings()
        .iter()
        .map(|finding| format!("{}: {}", finding.field, finding.message))
        .collect()
}

fn of_schema(spec: Value) -> Vec<String> {
    mistakes("FlowSchema", "it", spec)
}

fn of_level(spec: Value) -> Vec<String> {
    mistakes("PriorityLevelConfiguration", "it", spec)
}

/// A valid schema of one rule.
fn schema_with(rule: Value) -> Value {
    json!({ "priorityLevelConfiguration": { "name": "exempt" }, "rules": [rule] })
}

/// A valid schema of one rule for one subject.
fn schema_of(subject: Value) -> Value {
    schema_with(json!({
        "subjects": [subject],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    }))
}

fn schema_of_resources(part: Value) -> Value {
    schema_with(json!({
        "subjects": [{ "kind": "User", "user": { "name": "*" } }],
        "resourceRules": [part],
    }))
}

fn schema_of_paths(part: Value) -> Value {
    schema_with(json!({
        "subjects": [{ "kind": "User", "user": { "name": "*" } }],
        "nonResourceRules": [part],
    }))
}

fn queuing(queuing: Value) -> Value {
    json!({
        "type": "Limited",
        "limited": { "limitResponse": { "type": "Queue", "queuing": queuing } },
    })
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn precedences_are_from_2_to_10000_and_1_is_for_exempt() {
    let of = |precedence: i32| {
        let mut spec = schema_of(json!({ "kind": "User", "user": { "name": "u" } }));
        spec["matchingPrecedence"] = precedence.into();
        of_schema(spec)
    };
    let field = "spec.matchingPrecedence: Invalid value";
    assert_eq!(of(-1), [format!("{field}: -1: must be a positive value")]);
    assert_eq!(of(0), nothing(), "0 is the default");
    assert_eq!(
        of(1),
        [format!(
            "{field}: 1: only the schema named 'exempt' may have matchingPrecedence 1"
        )]
    );
    assert_eq!(of(2), nothing());
    assert_eq!(of(10_000), nothing());
    assert_eq!(
        of(10_001),
        [format!("{field}: 10001: must not be greater than 10000")]
    );
}

#[test]
fn a_schema_names_its_level_and_a_known_distinguisher() {
    assert_eq!(
        of_schema(json!({ "distinguisherMethod": { "type": "ByGroup" } })),
        [
            "spec.distinguisherMethod.type: Unsupported value: {\"type\":\"ByGroup\"}: supported \
             values: \"ByNamespace\", \"ByUser\"",
            "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
        ]
    );
    let bad = of_schema(json!({ "priorityLevelConfiguration": { "name": "No_Such" } }));
    assert_eq!(bad.len(), 1);
    assert!(
        bad[0].starts_with("spec.priorityLevelConfiguration.name: Invalid value: \"No_Such\": a")
    );
    let good = json!({ "priorityLevelConfiguration": { "name": "a.b-c" } });
    assert_eq!(
        of_schema(good),
        nothing(),
        "no rules are fine, and no such level is"
    );
}

#[test]
fn a_rule_has_subjects_and_something_to_match() {
    assert_eq!(
        of_schema(schema_with(json!({}))),
        [
            "spec.rules[0].subjects: Required value: subjects must contain at least one value",
            "spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has \
             to be non-empty",
        ]
    );
}

#[test]
fn a_subject_has_the_member_of_its_kind_and_no_other() {
    let at = "spec.rules[0].subjects[0]";
    let user = json!({ "name": "u" });
    let account = json!({ "namespace": "ns", "name": "*" });
    let rows = [
        (
            json!({ "kind": "Robot" }),
            vec![format!(
                "{at}.kind: Unsupported value: \"Robot\": supported values: \"Group\", \
                 \"ServiceAccount\", \"User\""
            )],
        ),
        (
            json!({ "kind": "User", "group": user }),
            vec![
                format!("{at}.user: Required value: user is required when subject kind is 'User'"),
                format!(
                    "{at}.group: Forbidden: group is forbidden when subject kind is not 'Group'"
                ),
            ],
        ),
        (
            json!({ "kind": "Group", "group": user, "user": user, "serviceAccount": account }),
            vec![
                format!(
                    "{at}.serviceAccount: Forbidden: serviceAccount is forbidden when subject kind \
                     is not 'ServiceAccount'"
                ),
                format!("{at}.user: Forbidden: user is forbidden when subject kind is not 'User'"),
            ],
        ),
        (
            json!({ "kind": "ServiceAccount" }),
            vec![format!(
                "{at}.serviceAccount: Required value: serviceAccount is required when subject kind \
                 is 'ServiceAccount'"
            )],
        ),
        (
            json!({ "kind": "User", "user": {} }),
            vec![format!("{at}.user.name: Required value")],
        ),
        (
            json!({ "kind": "Group", "group": { "name": "" } }),
            vec![format!("{at}.group.name: Required value")],
        ),
        (
            json!({ "kind": "ServiceAccount", "serviceAccount": {} }),
            vec![
                format!("{at}.serviceAccount.name: Required value"),
                format!(
                    "{at}.serviceAccount.namespace: Required value: must specify namespace for \
                     service account"
                ),
            ],
        ),
        (
            json!({ "kind": "ServiceAccount", "serviceAccount": account }),
            vec![],
        ),
        (json!({ "kind": "Group", "group": { "name": "*" } }), vec![]),
        (
            json!({ "kind": "User", "user": { "name": "Any Name!" } }),
            vec![],
        ),
    ];
    for (subject, expected) in rows {
        assert_eq!(of_schema(schema_of(subject.clone())), expected, "{subject}");
    }
}

#[test]
fn a_service_account_has_no_namespace_wildcard() {
    let found = of_schema(schema_of(json!({
        "kind": "ServiceAccount",
        "serviceAccount": { "namespace": "*", "name": "Bad" },
    })));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("serviceAccount.name: Invalid value: \"Bad\": a lowercase RFC 1123 sub")
    );
    assert!(
        found[1]
            .contains("serviceAccount.namespace: Invalid value: \"*\": a lowercase RFC 1123 la")
    );
}

#[test]
fn the_lists_of_a_resource_rule_are_not_empty_and_take_the_wildcard_alone() {
    let at = "spec.rules[0].resourceRules[0]";
    assert_eq!(
        of_schema(schema_of_resources(json!({}))),
        [
            format!("{at}.verbs: Required value: verbs must contain at least one value"),
            format!(
                "{at}.apiGroups: Required value: resource rules must supply at least one api group"
            ),
            format!(
                "{at}.resources: Required value: resource rules must supply at least one resource"
            ),
            format!(
                "{at}.namespaces: Required value: resource rules that are not cluster scoped must \
                 supply at least one namespace"
            ),
        ]
    );
    assert_eq!(
        of_schema(schema_of_resources(json!({
            "verbs": ["*", "get"],
            "apiGroups": ["*", ""],
            "resources": ["pods", "*"],
            "namespaces": ["*", "a"],
            "clusterScope": true,
        }))),
        [
            format!(
                "{at}.verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify \
                 other verbs"
            ),
            format!(
                "{at}.apiGroups: Invalid value: [\"*\",\"\"]: if '*' is present, must not specify \
                 other api groups"
            ),
            format!(
                "{at}.resources: Invalid value: [\"pods\",\"*\"]: if '*' is present, must not \
                 specify other resources"
            ),
            format!(
                "{at}.namespaces: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify \
                 other namespaces"
            ),
        ]
    );
    let good = json!({
        "verbs": VERBS,
        "apiGroups": [""],
        "resources": ["pods/*", "anything at all"],
        "clusterScope": true,
    });
    assert_eq!(of_schema(schema_of_resources(good)), nothing());
}

#[test]
fn verbs_and_namespaces_of_a_resource_rule_are_checked() {
    let at = "spec.rules[0].resourceRules[0]";
    let found = of_schema(schema_of_resources(json!({
        "verbs": ["get", "post"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["good", "Bad", ""],
    })));
    assert_eq!(
        found[0],
        format!(
            "{at}.verbs: Unsupported value: [\"get\",\"post\"]: supported values: \"create\", \
             \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \
             \"update\", \"watch\""
        )
    );
    assert!(
        found[1].starts_with(&format!(
            "{at}.namespaces[1]: Invalid value: \"Bad\": each member of this list must be '*' or a \
             DNS-1123 label; a lowercase"
        )),
        "{found:?}"
    );
    assert!(found[2].starts_with(&format!("{at}.namespaces[2]: Invalid value: \"\"")));
    assert_eq!(found.len(), 3);
}

#[test]
fn non_resource_urls_are_paths_or_directories() {
    let of = |url: &str| {
        of_schema(schema_of_paths(
            json!({ "verbs": ["get"], "nonResourceURLs": [url, "/x"] }),
        ))
    };
    for good in ["/", "/healthz", "/healthz/*", "/apis/*", "/apis/", "/*"] {
        assert_eq!(of(good), nothing(), "{good}");
    }
    let rows = [
        ("", "must not be empty"),
        ("healthz", "must start with slash"),
        ("/health*", "wildcard can only do suffix matching"),
        ("/a/*/b", "wildcard can only do suffix matching"),
        ("/a//b", "must not contain double slash"),
        ("/a b", "must not contain white-space"),
        ("/a/**", "wildcard can only do suffix matching"),
    ];
    for (bad, text) in rows {
        let at = "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]";
        assert_eq!(of(bad), [format!("{at}: Invalid value: {bad:?}: {text}")]);
    }
    let at = "spec.rules[0].nonResourceRules[0]";
    assert_eq!(
        of_schema(schema_of_paths(
            json!({ "verbs": ["head"], "nonResourceURLs": [] })
        )),
        [
            format!(
                "{at}.verbs: Unsupported value: [\"head\"]: supported values: \"create\", \
                 \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \
                 \"update\", \"watch\""
            ),
            format!(
                "{at}.nonResourceURLs: Required value: nonResourceURLs must contain at least one \
                 value"
            ),
        ]
    );
    assert_eq!(
        of("*"),
        [format!(
            "{at}.nonResourceURLs: Invalid value: [\"*\",\"/x\"]: if '*' is present, must not \
             specify other non-resource URLs"
        )]
    );
}

#[test]
fn a_level_is_limited_unless_it_is_the_exempt_one() {
    let only = "must be 'Exempt' if and only if `name` is 'exempt'";
    assert_eq!(
        of_level(json!({ "type": "Exempt", "limited": {} })),
        [
            format!("spec.type: Invalid value: \"Exempt\": {only}"),
            "spec.limited: Forbidden: must be nil if the type is not Limited".to_owned(),
        ]
    );
    assert_eq!(
        of_level(json!({ "type": "Limited", "exempt": {} })),
        [
            "spec.exempt: Forbidden: must be nil if the type is Limited",
            "spec.limited: Required value: must not be empty when type is Limited",
        ]
    );
    assert_eq!(of_level(json!({})), ["spec.type: Required value"]);
    assert_eq!(
        of_level(json!({ "type": "Other" })),
        ["spec.type: Unsupported value: \"Other\": supported values: \"Exempt\", \"Limited\""]
    );
}

#[test]
fn shares_and_percentages_have_their_ranges() {
    let found = of_level(json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": -1,
            "lendablePercent": 101,
            "borrowingLimitPercent": -1,
            "limitResponse": { "type": "Reject" },
        },
    }));
    assert_eq!(
        found,
        [
            "spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a \
             non-negative integer",
        ]
    );
    let edges = json!({
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 100,
            "borrowingLimitPercent": 500,
            "limitResponse": { "type": "Reject" },
        },
    });
    assert_eq!(of_level(edges), nothing());
}

#[test]
fn a_limit_response_queues_or_rejects() {
    let of = |response: Value| {
        of_level(json!({ "type": "Limited", "limited": { "limitResponse": response } }))
    };
    let at = "spec.limited.limitResponse";
    assert_eq!(of(json!({})), [format!("{at}.type: Required value")]);
    assert_eq!(
        of(json!({ "type": "Drop" })),
        [format!(
            "{at}.type: Unsupported value: \"Drop\": supported values: \"Queue\", \"Reject\""
        )]
    );
    assert_eq!(
        of(json!({ "type": "Reject", "queuing": {} })),
        [format!(
            "{at}.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"
        )]
    );
    assert_eq!(
        of(json!({ "type": "Queue" })),
        [format!(
            "{at}.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"
        )]
    );
    assert_eq!(
        of(json!({ "type": "Queue", "queuing": {} })),
        nothing(),
        "defaults"
    );
}

#[test]
fn queues_and_hands_have_their_ranges() {
    let at = "spec.limited.limitResponse.queuing";
    assert_eq!(
        of_level(queuing(
            json!({ "queues": -1, "handSize": -1, "queueLengthLimit": -1 })
        )),
        [
            format!("{at}.queueLengthLimit: Invalid value: -1: must be positive"),
            format!("{at}.queues: Invalid value: -1: must be positive"),
            format!("{at}.handSize: Invalid value: -1: must be positive"),
        ]
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 10_000_001, "handSize": 1 }))),
        [format!(
            "{at}.queues: Invalid value: 10000001: must not be greater than 10000000"
        )]
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 4 }))),
        [format!(
            "{at}.handSize: Invalid value: 8: should not be greater than queues (4)"
        )],
        "the default hand is 8"
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 512, "handSize": 8 }))),
        [format!(
            "{at}.handSize: Invalid value: 8: required entropy bits of deckSize 512 and handSize 8 \
             should not be greater than 60"
        )]
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 1024, "handSize": 6 }))),
        nothing()
    );
    assert_eq!(
        of_level(queuing(json!({ "queues": 10_000_000, "handSize": 2 }))),
        nothing()
    );
}

#[test]
fn names_are_dns_subdomains() {
    let of = |name: &str| {
        let spec = schema_of(json!({ "kind": "User", "user": { "name": "u" } }));
        mistakes("FlowSchema", name, spec)
    };
    assert_eq!(of("a.b-c.1"), nothing());
    assert_eq!(of(&"a".repeat(253)), nothing());
    assert_eq!(
        of(""),
        ["metadata.name: Required value: name or generateName is required"]
    );
    let long = "a".repeat(254);
    assert_eq!(
        of(&long),
        [format!(
            "metadata.name: Invalid value: {long:?}: must be no more than 253 characters"
        )]
    );
    for bad in ["A", "a_b", "-a", "a-", "a..b", ".a", "a b", "ä"] {
        assert_eq!(of(bad).len(), 1, "{bad}");
    }
}

#[test]
fn the_annotation_of_v1beta3_is_forbidden_in_v1() {
    let object = json!({
        "apiVersion": API,
        "kind": "PriorityLevelConfiguration",
        "metadata": { "name": "it", "annotations": { PRESERVE_ZERO_SHARES: "" } },
        "spec": { "type": "Limited", "limited": { "limitResponse": { "type": "Reject" } } },
    });
    let set = ObjectSet::read([("test", object)]);
    assert_eq!(set.findings().len(), 1);
    assert_eq!(set.findings()[0].field, "metadata.annotations");
    assert_eq!(
        set.findings()[0].message,
        format!("Forbidden: annotation '{PRESERVE_ZERO_SHARES}' is forbidden")
    );
}

#[test]
fn condition_types_are_told_and_unique() {
    let object = json!({
        "apiVersion": API,
        "kind": "FlowSchema",
        "metadata": { "name": "it" },
        "spec": { "priorityLevelConfiguration": { "name": "exempt" } },
        "status": { "conditions": [{ "type": "A" }, { "type": "A" }, { "status": "True" }] },
    });
    let set = ObjectSet::read([("test", object)]);
    let found: Vec<String> = set
        .findings()
        .iter()
        .map(|finding| format!("{}: {}", finding.field, finding.message))
        .collect();
    assert_eq!(
        found,
        [
            "status.conditions[1].type: Duplicate value: \"A\"",
            "status.conditions[2].type: Required value",
        ]
    );
}

#[test]
fn mandatory_schemas_are_fixed() {
    for name in ["exempt", "catch-all"] {
        let fixed = bootstrap::flow_schema(name).unwrap();
        assert_eq!(flow_schema(fixed), []);

        let mut same = fixed.clone();
        for rule in same
            .spec
            .iter_mut()
            .flat_map(|spec| spec.rules.iter_mut().flatten())
        {
            for part in rule.resource_rules.iter_mut().flatten() {
                part.cluster_scope = Some(true);
            }
        }
        assert_eq!(flow_schema(&same), []);

        let mut changed = fixed.clone();
        if let Some(spec) = &mut changed.spec {
            spec.distinguisher_method =
                Some(k8s_openapi::api::flowcontrol::v1::FlowDistinguisherMethod {
                    type_: "ByNamespace".to_owned(),
                });
        }
        let errors = flow_schema(&changed);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].field, "spec");
        assert_eq!(
            errors[0].detail,
            format!("spec of '{name}' must equal the fixed value")
        );
    }
}

#[test]
fn an_absent_list_of_a_mandatory_schema_is_an_empty_one() {
    let mut probes_like = bootstrap::flow_schema("probes").unwrap().spec.clone();
    let original = probes_like.clone();
    for rule in probes_like
        .iter_mut()
        .flat_map(|spec| spec.rules.iter_mut().flatten())
    {
        rule.resource_rules = Some(Vec::new());
    }
    assert_ne!(probes_like, original);
    assert!(same_schema_spec(probes_like.as_ref(), original.as_ref()));
}

#[test]
fn only_the_two_tunables_of_the_exempt_level_may_change() {
    let tuned = json!({
        "type": "Exempt",
        "exempt": { "nominalConcurrencyShares": 10, "lendablePercent": 50 },
    });
    assert_eq!(
        mistakes("PriorityLevelConfiguration", "exempt", tuned),
        nothing()
    );
    let without = json!({ "type": "Exempt" });
    assert_eq!(
        mistakes("PriorityLevelConfiguration", "exempt", without),
        nothing()
    );
    let bad = json!({
        "type": "Exempt",
        "exempt": { "nominalConcurrencyShares": -1, "lendablePercent": 101 },
    });
    assert_eq!(
        mistakes("PriorityLevelConfiguration", "exempt", bad),
        [
            "spec.exempt.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
            "spec.exempt.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
        ]
    );
    let limited = json!({
        "type": "Limited",
        "limited": { "limitResponse": { "type": "Reject" } },
    });
    let found = mistakes("PriorityLevelConfiguration", "exempt", limited);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("spec.type: Invalid value: \"Limited\""));
    assert!(
        found[1].ends_with(
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        )
    );
}

#[test]
fn the_catch_all_level_is_fixed() {
    let of = |shares: i32| {
        let spec = json!({
            "type": "Limited",
            "limited": { "nominalConcurrencyShares": shares, "limitResponse": { "type": "Reject" } },
        });
        mistakes("PriorityLevelConfiguration", "catch-all", spec)
    };
    assert_eq!(of(5), nothing(), "the fixed value, after defaulting");
    let found = of(6);
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with("spec of 'catch-all' must equal the fixed value"));
}
