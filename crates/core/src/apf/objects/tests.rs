//! Objects are read in every form they come in, and become one set.

use serde_json::json;

use super::*;

const V1: &str = "flowcontrol.apiserver.k8s.io/v1";
const V1BETA3: &str = "flowcontrol.apiserver.k8s.io/v1beta3";

fn schema(api_version: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": "FlowSchema",
        "metadata": { "name": name },
        "spec": {
            "priorityLevelConfiguration": { "name": "workload-low" },
            "rules": [{
                "subjects": [{ "kind": "User", "user": { "name": "alice" } }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            }],
        },
    })
}

fn level(api_version: &str, name: &str, shares: i32) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": "PriorityLevelConfiguration",
        "metadata": { "name": name },
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": shares,
                "limitResponse": { "type": "Reject" },
            },
        },
    })
}

fn read(documents: impl IntoIterator<Item = Value>) -> ObjectSet {
    let origins = (1..).map(|n| format!("f.yaml, document {n}"));
    ObjectSet::read(origins.zip(documents))
}

fn reported(set: &ObjectSet) -> Vec<String> {
    set.findings().iter().map(ToString::to_string).collect()
}

fn shares(set: &ObjectSet) -> Vec<Option<i32>> {
    set.priority_levels()
        .iter()
        .map(|level| {
            let spec = level.object.spec.as_ref()?;
            spec.limited.as_ref()?.nominal_concurrency_shares
        })
        .collect()
}

#[test]
fn both_versions_can_be_mixed_and_empty_documents_are_skipped() {
    let set = read([
        schema(V1, "a"),
        Value::Null,
        schema(V1BETA3, "b"),
        level(V1, "c", 0),
        level(V1BETA3, "d", 0),
    ]);
    assert_eq!(reported(&set), Vec::<String>::new());
    assert_eq!(set.flow_schemas().len(), 2);
    assert_eq!(&*set.flow_schemas()[1].origin, "f.yaml, document 3");
    assert_eq!(
        shares(&set),
        [Some(0), Some(30)],
        "0 means 30 in v1beta3 alone"
    );
}

#[test]
fn zero_shares_of_v1beta3_are_kept_by_annotation() {
    let mut kept = level(V1BETA3, "it", 0);
    kept["metadata"]["annotations"] = json!({ v1beta3::PRESERVE_ZERO_SHARES: "" });
    let set = read([kept]);
    assert_eq!(reported(&set), Vec::<String>::new());
    assert_eq!(shares(&set), [Some(0)]);
}

/// A FlowSchema and a PriorityLevelConfiguration as `kubectl get -o json` prints them.
fn printed_by_kubectl() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": { "resourceVersion": "" },
        "items": [
            {
                "apiVersion": V1,
                "kind": "FlowSchema",
                "metadata": {
                    "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" },
                    "creationTimestamp": "2024-05-06T07:08:09Z",
                    "generation": 1,
                    "managedFields": [{ "manager": "m", "operation": "Apply", "fieldsV1": {} }],
                    "name": "global-default",
                    "resourceVersion": "65",
                    "uid": "4c1f6aee-5a2c-4a3e-8f0a-0d4b4f1c9d11",
                },
                "spec": {
                    "distinguisherMethod": { "type": "ByUser" },
                    "matchingPrecedence": 9900,
                    "priorityLevelConfiguration": { "name": "global-default" },
                    "rules": [{
                        "nonResourceRules": [{ "nonResourceURLs": ["*"], "verbs": ["*"] }],
                        "resourceRules": [{
                            "apiGroups": ["*"],
                            "clusterScope": true,
                            "namespaces": ["*"],
                            "resources": ["*"],
                            "verbs": ["*"],
                        }],
                        "subjects": [
                            { "group": { "name": "system:unauthenticated" }, "kind": "Group" },
                            { "group": { "name": "system:authenticated" }, "kind": "Group" },
                        ],
                    }],
                },
                "status": {
                    "conditions": [{
                        "lastTransitionTime": "2024-05-06T07:08:10Z",
                        "message": "This FlowSchema references the PriorityLevelConfiguration \
                            object named \"global-default\" and it exists",
                        "reason": "Found",
                        "status": "False",
                        "type": "Dangling",
                    }],
                },
            },
            {
                "apiVersion": V1,
                "kind": "PriorityLevelConfiguration",
                "metadata": {
                    "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" },
                    "creationTimestamp": "2024-05-06T07:08:09Z",
                    "generation": 1,
                    "name": "exempt",
                    "uid": "1b0b1ff5-6b3c-4a61-a6c4-1d0f3a9d2f10",
                },
                "spec": {
                    "exempt": { "lendablePercent": 0, "nominalConcurrencyShares": 0 },
                    "type": "Exempt",
                },
                "status": {},
            },
        ],
    })
}

#[test]
fn what_kubectl_prints_is_accepted_as_it_is() {
    let set = read([printed_by_kubectl()]);
    assert_eq!(reported(&set), Vec::<String>::new());
    let schema = &set.flow_schemas()[0];
    assert_eq!(&*schema.origin, "f.yaml, document 1, items[0]");
    assert!(schema.object.upkeep.is_unedited);
    assert_eq!(&*schema.object.uid, "4c1f6aee-5a2c-4a3e-8f0a-0d4b4f1c9d11");
    let built_in = CompactFlowSchema::built_in_of("global-default").unwrap();
    assert!(schema.object.has_same_spec(built_in));
    assert_eq!(schema.object.name, built_in.name);
    assert_eq!(set.priority_levels().len(), 1);
    assert_eq!(set.effective().findings, []);
}

#[test]
fn the_items_of_a_typed_list_need_no_kind_of_their_own() {
    let bare = |mut object: Value| {
        for field in ["apiVersion", "kind"] {
            object.as_object_mut().unwrap().remove(field);
        }
        object
    };
    let set = read([
        json!({ "apiVersion": V1, "kind": "FlowSchemaList", "items": [bare(schema(V1, "a"))] }),
        json!({
            "apiVersion": V1BETA3,
            "kind": "PriorityLevelConfigurationList",
            "items": [bare(level(V1BETA3, "b", 0)), level(V1BETA3, "c", 7)],
        }),
        json!({ "apiVersion": V1, "kind": "FlowSchemaList", "items": null }),
    ]);
    assert_eq!(reported(&set), Vec::<String>::new());
    assert_eq!(set.flow_schemas().len(), 1);
    assert_eq!(shares(&set), [Some(30), Some(7)]);
}

#[test]
fn foreign_objects_are_reported_and_refused() {
    let typed = |api_version: &str, kind: &str| json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "x" } });
    let set = read([
        typed("v1", "ConfigMap"),
        typed(V1, "Flowschema"),
        typed("flowcontrol.apiserver.k8s.io/v1beta2", "FlowSchema"),
        typed("", "FlowSchema"),
        typed(V1, ""),
        json!("just a string"),
        json!({ "apiVersion": "v1", "kind": "List", "items": { "a": 1 } }),
    ]);
    let fields: Vec<&str> = set.findings().iter().map(|f| f.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "apiVersion",
            "kind",
            "apiVersion",
            "apiVersion",
            "kind",
            "",
            "items"
        ]
    );
    assert!(set.findings().iter().all(Finding::is_error));
    assert_eq!(
        reported(&set)[0],
        "error: f.yaml, document 1: ConfigMap \"x\": apiVersion: \"v1\" is not a version of \
         flowcontrol.apiserver.k8s.io; remove the object; only FlowSchema and \
         PriorityLevelConfiguration belong here"
    );
    assert!(reported(&set)[2].contains("convert the object to flowcontrol.apiserver.k8s.io/v1"));
}

#[test]
fn a_wrong_group_of_a_kind_that_belongs_here_is_told_with_the_right_one() {
    let mut it = schema("flowcontrol/v1", "it");
    it["kind"] = json!("FlowSchema");
    assert_eq!(
        reported(&read([it])),
        [
            "error: f.yaml, document 1: FlowSchema \"it\": apiVersion: \"flowcontrol/v1\" is not a version of \
             flowcontrol.apiserver.k8s.io; write flowcontrol.apiserver.k8s.io/v1"
        ]
    );
}

#[test]
fn a_list_without_items_is_told_and_an_empty_one_is_not() {
    let list = |key: &str, items: Value| json!({ "apiVersion": "v1", "kind": "List", key: items });
    let set = read([
        list("item", json!([schema(V1, "it")])),
        list("items", json!([])),
        list("items", Value::Null),
    ]);
    assert_eq!(
        reported(&set),
        [
            "warning: f.yaml, document 1: List: items: is missing, so the list holds no object; list the objects in it"
        ]
    );
}

#[test]
fn every_wrong_type_and_unknown_field_is_reported_by_its_path() {
    let mut it = schema(V1, "it");
    it["metadata"]["annotations"] = json!({ "a": 5 });
    it["spec"]["matchingPrecedence"] = json!("500");
    it["spec"]["matchingPrecedance"] = json!(500);
    it["spec"]["rules"][0]["subjects"][0]["user"]["name"] = json!(true);
    it["spec"]["rules"][0]["resourceRules"] = json!([
        { "verbs": "get", "clusterScope": "yes", "namespaces": [null] }, 7
    ]);
    it["Status"] = json!({});
    let found: Vec<(bool, String, String)> = read([it])
        .findings()
        .iter()
        .map(|f| (f.is_error(), f.field.clone(), f.message.clone()))
        .collect();
    let row = |error, field: &str, message: &str| (error, field.to_owned(), message.to_owned());
    let unknown = "is not a field of this kind and has no effect";
    let mut expected = vec![
        row(false, "Status", unknown),
        row(
            true,
            "metadata.annotations[a]",
            "is 5 where a string is expected",
        ),
        row(
            true,
            "spec.matchingPrecedence",
            "is the string \"500\" where a 32-bit integer is expected",
        ),
        row(false, "spec.matchingPrecedance", unknown),
        row(
            true,
            "spec.rules[0].subjects[0].user.name",
            "is true where a string is expected",
        ),
        row(
            true,
            "spec.rules[0].resourceRules[0].verbs",
            "is the string \"get\" where a list is expected",
        ),
        row(
            true,
            "spec.rules[0].resourceRules[0].clusterScope",
            "is the string \"yes\" where true or false is expected",
        ),
        row(
            true,
            "spec.rules[0].resourceRules[0].namespaces[0]",
            "is null where a string is expected",
        ),
        row(
            true,
            "spec.rules[0].resourceRules[1]",
            "is 7 where an object is expected",
        ),
    ];
    let mut found = found;
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn numbers_beyond_32_bits_and_fractions_are_refused() {
    for shares in [
        json!(3_000_000_000_i64),
        json!(1.5),
        json!(-3_000_000_000_i64),
    ] {
        let mut it = level(V1, "it", 0);
        it["spec"]["limited"]["nominalConcurrencyShares"] = shares.clone();
        let set = read([it]);
        assert_eq!(set.findings().len(), 1, "{shares}");
        assert_eq!(
            set.findings()[0].field,
            "spec.limited.nominalConcurrencyShares"
        );
    }
}

#[test]
fn null_means_absent() {
    for version in [V1, V1BETA3] {
        let mut it = level(version, "it", 0);
        it["metadata"]["creationTimestamp"] = Value::Null;
        it["spec"]["limited"]["nominalConcurrencyShares"] = Value::Null;
        it["spec"]["limited"]["lendablePercent"] = Value::Null;
        it["spec"]["exempt"] = Value::Null;
        it["status"] = Value::Null;
        let set = read([it]);
        assert_eq!(reported(&set), Vec::<String>::new());
        assert_eq!(shares(&set), [Some(30)], "{version}");
    }
}

#[test]
fn a_repeated_name_is_reported_with_its_first_position() {
    let set = read([schema(V1, "it"), level(V1, "it", 1), schema(V1BETA3, "it")]);
    assert_eq!(
        reported(&set),
        [
            "error: f.yaml, document 3: FlowSchema \"it\": metadata.name: is the name of another \
             FlowSchema, in f.yaml, document 1; remove or rename one of them"
        ]
    );
}

#[test]
fn mistakes_of_all_objects_are_reported_at_once() {
    let mut bad_schema = schema(V1, "bad");
    bad_schema["spec"]["priorityLevelConfiguration"]["name"] = json!("");
    let set = read([
        bad_schema,
        json!([]),
        level(V1, "Bad", -1),
        schema(V1, "good"),
    ]);
    assert_eq!(set.findings().len(), 4, "{:#?}", reported(&set));
    assert_eq!(set.flow_schemas().len(), 1);
}

/// An object of a built-in name with an annotation, a generation, and a spec that differs or not.
fn edited(annotation: Option<&str>, generation: Option<i64>, differs: bool) -> ObjectSet {
    let mut object = bootstrap::flow_schema("global-default").unwrap().clone();
    object.metadata.annotations =
        annotation.map(|text| [(bootstrap::AUTOUPDATE.to_owned(), text.to_owned())].into());
    object.metadata.generation = generation;
    object.metadata.uid = Some("given".to_owned());
    if differs && let Some(spec) = &mut object.spec {
        spec.matching_precedence = Some(77);
    }
    ObjectSet::from_objects("f.yaml", [object], [])
}

#[test]
fn annotation_and_generation_decide_whether_a_suggested_object_keeps_its_given_spec() {
    let rows = [
        (Some("true"), Some(1), false),
        (Some("true"), Some(2), false),
        (Some("true"), None, false),
        (Some("false"), Some(1), true),
        (Some("false"), Some(2), true),
        (None, Some(1), false),
        (None, Some(2), true),
        (None, None, true),
        (Some("maybe"), Some(1), false),
        (Some("maybe"), Some(2), true),
        (Some("maybe"), None, true),
    ];
    for (annotation, generation, keeps_given) in rows {
        for differs in [false, true] {
            let context = format!("{annotation:?} {generation:?} {differs}");
            let set = edited(annotation, generation, differs).effective();
            let found: Vec<_> = set
                .flow_schemas
                .iter()
                .filter(|s| &*s.object.name == "global-default")
                .collect();
            assert_eq!(found.len(), 1, "{context}");
            assert_eq!(&*found[0].object.uid, "given");
            let expected = if differs && keeps_given { 77 } else { 9900 };
            assert_eq!(found[0].object.precedence, expected, "{context}");
            let warned = differs && !keeps_given;
            assert_eq!(set.findings.len(), usize::from(warned), "{context}");
            assert!(set.findings.iter().all(|f| !f.is_error()));
        }
    }
}

#[test]
fn a_suggested_level_is_reported_only_if_its_spec_differs() {
    for (shares, findings) in [(None, 0), (Some(77), 1)] {
        let mut object = bootstrap::priority_level("workload-low").unwrap().clone();
        object.metadata.generation = Some(1);
        let limited = object.spec.as_mut().unwrap().limited.as_mut().unwrap();
        limited.nominal_concurrency_shares = shares.or(limited.nominal_concurrency_shares);
        let set = ObjectSet::from_objects("f.yaml", [], [object]).effective();
        assert_eq!(set.findings.len(), findings, "{shares:?}");
    }
}

#[test]
fn without_suggested_objects_others_are_taken_as_they_are() {
    let set = edited(Some("true"), Some(1), true).with_bootstrap(Bootstrap::Mandatory);
    let effective = set.effective();
    assert_eq!(effective.findings, []);
    assert_eq!(effective.flow_schemas.len(), 1);
    assert_eq!(effective.flow_schemas[0].object.precedence, 77);
    assert_eq!(effective.priority_levels, []);
}

#[test]
fn suggested_objects_are_there_unless_given() {
    let effective = ObjectSet::default().effective();
    assert_eq!(
        effective.flow_schemas.len(),
        9,
        "without the two mandatory ones"
    );
    assert_eq!(effective.priority_levels.len(), 6);
    assert!(
        effective
            .flow_schemas
            .iter()
            .all(|s| &*s.origin == BUILT_IN)
    );
}

#[test]
fn an_object_that_a_server_would_delete_is_left_out() {
    let with = |annotation: &str| {
        let mut object = schema(V1, "mine");
        object["metadata"]["annotations"] = json!({ bootstrap::AUTOUPDATE: annotation });
        let effective = read([object]).effective();
        let kept = effective
            .flow_schemas
            .iter()
            .any(|s| &*s.object.name == "mine");
        (kept, effective.findings.len())
    };
    assert_eq!(with("true"), (false, 1));
    assert_eq!(with("1"), (false, 1));
    assert_eq!(with("false"), (true, 0));
    assert_eq!(with("yes"), (true, 0), "not a boolean");
}

#[test]
fn the_dangling_condition_has_the_texts_of_the_api_server() {
    let found = dangling_condition("x", true);
    assert_eq!(found.status.as_deref(), Some("False"));
    assert_eq!(found.reason.as_deref(), Some("Found"));
    assert_eq!(
        found.message.as_deref(),
        Some(
            "This FlowSchema references the PriorityLevelConfiguration object named \"x\" and it \
             exists"
        )
    );
    let missing = dangling_condition("x", false);
    assert_eq!(missing.type_.as_deref(), Some("Dangling"));
    assert_eq!(missing.status.as_deref(), Some("True"));
    assert_eq!(missing.reason.as_deref(), Some("NotFound"));
    assert_eq!(
        missing.message.as_deref(),
        Some(
            "This FlowSchema references the PriorityLevelConfiguration object named \"x\" but \
             there is no such object"
        )
    );
}

#[test]
fn documents_have_the_same_policy_if_all_their_objects_do() {
    let document = |objects: Vec<Value>| ParsedDocument::parse("f.yaml", json!(objects));
    let list = |items: Vec<Value>| {
        ParsedDocument::parse(
            "f.yaml",
            json!({"apiVersion": "v1", "kind": "List", "items": items}),
        )
    };
    let one = list(vec![schema(V1, "a")]);
    assert!(one.has_same_policy(&list(vec![schema(V1, "a")])));
    let more = list(vec![schema(V1, "a"), schema(V1, "b")]);
    assert!(!one.has_same_policy(&more) && !more.has_same_policy(&one));
    assert!(!one.has_same_policy(&list(vec![schema(V1, "b")])));
    let mut labelled = schema(V1, "a");
    labelled["metadata"]["labels"] = json!({"team": "red"});
    labelled["metadata"]["annotations"] = json!({"owner": "red"});
    assert!(one.has_same_policy(&list(vec![labelled])));
    let mut kept_up_to_date = schema(V1, "a");
    kept_up_to_date["metadata"]["annotations"] = json!({ bootstrap::AUTOUPDATE: "false" });
    assert!(!one.has_same_policy(&list(vec![kept_up_to_date])));
    assert!(!one.has_same_policy(&document(vec![])));
}
