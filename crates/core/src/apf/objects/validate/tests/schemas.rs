//! Rules for FlowSchemas.

use super::*;

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
        "rules are optional, and the level need not exist"
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
fn the_lists_of_a_resource_rule_must_not_be_empty_and_a_wildcard_must_stand_alone() {
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
