//! Objects in canonical form: what is added, and how wrong types are reported.

use serde_json::json;

use super::*;
use crate::{
    codec::json,
    schema::{
        List, TypePackage, built_in,
        core_v1::SECRET,
        field,
        flowcontrol_v1::{FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL},
        flowcontrol_v1beta3::PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL_V1BETA3,
        meta_v1::DELETE_OPTIONS,
    },
};

fn error(shape: &'static Struct, text: &str) -> String {
    let node = json::read(text.as_bytes()).unwrap();
    decode(shape, &node).unwrap_err().to_string()
}

fn of_text(text: &str) -> Decoded {
    decode(&FLOW_SCHEMA, &json::read(text.as_bytes()).unwrap()).unwrap()
}

fn value(shape: &'static Struct, raw: &Value) -> Value {
    let value = decode(shape, raw).unwrap().value;
    assert_eq!(
        decode(shape, &value).unwrap().value,
        value,
        "canonical form is stable"
    );
    value
}

/// FlowSchemas with a value of a wrong type, and what Go's `encoding/json` says of each.
const WRONG_TYPES: &[(&str, &str)] = &[
    (
        r#"{"spec":{"matchingPrecedence":"a"}}"#,
        "string into Go struct field FlowSchemaSpec.spec.matchingPrecedence of type int32",
    ),
    (
        r#"{"spec":{"matchingPrecedence":1.0}}"#,
        "number 1.0 into Go struct field FlowSchemaSpec.spec.matchingPrecedence of type int32",
    ),
    (
        r#"{"spec":{"matchingPrecedence":1e3}}"#,
        "number 1e3 into Go struct field FlowSchemaSpec.spec.matchingPrecedence of type int32",
    ),
    (
        r#"{"spec":{"matchingPrecedence":99999999999}}"#,
        "number 99999999999 into Go struct field FlowSchemaSpec.spec.matchingPrecedence of type int32",
    ),
    (
        r#"{"spec":{"matchingPrecedence":true}}"#,
        "bool into Go struct field FlowSchemaSpec.spec.matchingPrecedence of type int32",
    ),
    (
        r#"{"spec":"x"}"#,
        "string into Go struct field FlowSchema.spec of type v1.FlowSchemaSpec",
    ),
    (
        r#"{"metadata":[]}"#,
        "array into Go struct field FlowSchema.metadata of type v1.ObjectMeta",
    ),
    (
        r#"{"spec":{"rules":{}}}"#,
        "object into Go struct field FlowSchemaSpec.spec.rules of type []v1.PolicyRulesWithSubjects",
    ),
    (
        r#"{"spec":{"rules":[1]}}"#,
        "number into Go struct field FlowSchemaSpec.spec.rules of type v1.PolicyRulesWithSubjects",
    ),
    (
        r#"{"spec":{"rules":[{"subjects":[{"user":1}]}]}}"#,
        "number into Go struct field Subject.spec.rules.subjects.user of type v1.UserSubject",
    ),
    (
        r#"{"spec":{"rules":[{"resourceRules":[{"verbs":"x"}]}]}}"#,
        "string into Go struct field ResourcePolicyRule.spec.rules.resourceRules.verbs of type []string",
    ),
    (
        r#"{"spec":{"rules":[{"resourceRules":[{"verbs":[1]}]}]}}"#,
        "number into Go struct field ResourcePolicyRule.spec.rules.resourceRules.verbs of type string",
    ),
    (
        r#"{"spec":{"rules":[{"resourceRules":[{"clusterScope":1}]}]}}"#,
        "number into Go struct field ResourcePolicyRule.spec.rules.resourceRules.clusterScope of type bool",
    ),
    (
        r#"{"spec":{"distinguisherMethod":{"type":1}}}"#,
        "number into Go struct field FlowDistinguisherMethod.spec.distinguisherMethod.type of type v1.FlowDistinguisherMethodType",
    ),
    (
        r#"{"metadata":{"labels":[]}}"#,
        "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
    ),
    (
        r#"{"metadata":{"labels":{"a":1}}}"#,
        "number into Go struct field ObjectMeta.metadata.labels of type string",
    ),
    (
        r#"{"metadata":{"uid":1}}"#,
        "number into Go struct field ObjectMeta.metadata.uid of type types.UID",
    ),
    (
        r#"{"metadata":{"generation":1.5}}"#,
        "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
    ),
    (
        r#"{"metadata":{"creationTimestamp":{}}}"#,
        "object into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
    ),
    (
        r#"{"status":{"conditions":[{"type":1}]}}"#,
        "number into Go struct field FlowSchemaCondition.status.conditions.type of type v1.FlowSchemaConditionType",
    ),
    ("[]", "array into Go value of type v1.FlowSchema"),
];

#[test]
fn wrong_types_are_reported_with_the_messages_of_go() {
    for (text, message) in WRONG_TYPES {
        assert_eq!(
            error(&FLOW_SCHEMA, text),
            format!("json: cannot unmarshal {message}")
        );
    }
    assert_eq!(
        error(&DELETE_OPTIONS, r#"{"dryRun":"x"}"#),
        "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string"
    );
}

#[test]
fn numbers_may_stand_for_bytes() {
    for (given, read) in [
        ("[]", json!("")),
        ("[101,118,105,108]", json!("ZXZpbA==")),
        ("[255,null]", json!("/wA=")),
        ("null", json!(null)),
    ] {
        let text = format!(r#"{{"data":{{"a":{given}}}}}"#);
        let node = json::read(text.as_bytes()).unwrap();
        let decoded = decode(&SECRET, &node).unwrap();
        assert_eq!(decoded.value["data"]["a"], read, "{given}");
    }
    for (given, found) in [
        ("[256]", "number 256"),
        ("[1.0]", "number 1.0"),
        ("[-1]", "number -1"),
        (r#"["a"]"#, "string"),
        ("[[1]]", "array"),
    ] {
        assert_eq!(
            error(&SECRET, &format!(r#"{{"data":{{"a":{given}}}}}"#)),
            format!(
                "json: cannot unmarshal {found} into Go struct field Secret.data of type uint8"
            )
        );
    }
}

#[test]
fn types_of_another_version_have_its_package() {
    let raw = json!({"spec": {"limited": 1}});
    let error = decode_version(&PRIORITY_LEVEL_V1BETA3, "v1beta3", &raw).unwrap_err();
    assert_eq!(
        error.to_string(),
        "json: cannot unmarshal number into Go struct field PriorityLevelConfigurationSpec.spec.limited \
         of type v1beta3.LimitedPriorityLevelConfiguration"
    );
}

#[test]
fn the_first_wrong_type_is_reported_unless_a_time_is_wrong() {
    let (number, name) = (
        r#""spec":{"matchingPrecedence":"a"}"#,
        r#""metadata":{"name":1}"#,
    );
    assert!(error(&FLOW_SCHEMA, &format!("{{{number},{name}}}")).contains("matchingPrecedence"));
    assert!(error(&FLOW_SCHEMA, &format!("{{{name},{number}}}")).contains("metadata.name"));
    let time = r#""metadata":{"creationTimestamp":"x"}"#;
    assert!(error(&FLOW_SCHEMA, &format!("{{{number},{time}}}")).starts_with("parsing time"));
}

#[test]
fn a_float_in_a_json_value_is_not_an_integer() {
    let raw = json!({"spec": {"matchingPrecedence": 1.0}});
    let error = decode(&FLOW_SCHEMA, &raw).unwrap_err().to_string();
    assert!(error.contains("number 1.0 into"), "{error}");
}

#[test]
fn a_sparse_object_gets_the_fields_that_are_always_present() {
    assert_eq!(
        value(&FLOW_SCHEMA, &json!({})),
        json!({
            "metadata": {},
            "spec": {"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0},
            "status": {},
        })
    );
    assert_eq!(
        value(
            &FLOW_SCHEMA,
            &json!({"spec": {"rules": [null, {"resourceRules": [{}], "nonResourceRules": []}]}})
        )["spec"]["rules"],
        json!([
            {"subjects": null},
            {
                "subjects": null,
                "resourceRules": [{"verbs": null, "apiGroups": null, "resources": null, "namespaces": null}],
            },
        ])
    );
}

#[test]
fn null_means_absent_and_empty_values_are_removed() {
    let raw = json!({
        "kind": "FlowSchema", "apiVersion": null,
        "metadata": {
            "name": "", "generation": 0, "labels": {}, "annotations": {"a": null}, "finalizers": [],
            "deletionTimestamp": null, "creationTimestamp": "0001-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
            "ownerReferences": [{"controller": false, "blockOwnerDeletion": null}],
        },
        "spec": {"rules": [], "distinguisherMethod": {}, "matchingPrecedence": null},
        "status": null,
    });
    assert_eq!(
        value(&FLOW_SCHEMA, &raw),
        json!({
            "kind": "FlowSchema",
            "metadata": {
                "annotations": {"a": ""}, "deletionGracePeriodSeconds": 0,
                "ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": "", "controller": false}],
            },
            "spec": {
                "priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0,
                "distinguisherMethod": {"type": ""},
            },
            "status": {},
        })
    );
}

#[test]
fn an_empty_list_that_is_always_there_is_null() {
    let raw = json!({"spec": {"rules": [{"subjects": []}]}});
    assert_eq!(
        value(&FLOW_SCHEMA, &raw)["spec"]["rules"],
        json!([{"subjects": null}])
    );
}

#[test]
fn the_zero_of_a_pointer_stays() {
    let limited = json!({
        "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": null,
        "limitResponse": {"type": "Queue", "queuing": {}},
    });
    assert_eq!(
        value(&PRIORITY_LEVEL, &json!({"spec": {"limited": limited}}))["spec"]["limited"],
        json!({
            "nominalConcurrencyShares": 0, "lendablePercent": 0,
            "limitResponse": {
                "type": "Queue", "queuing": {"queues": 0, "handSize": 0, "queueLengthLimit": 0},
            },
        })
    );
}

#[test]
fn times_are_whole_seconds_in_utc_and_null_where_they_must_be() {
    let raw = json!({
        "metadata": {"creationTimestamp": "2020-01-01T00:00:00.9+01:00"},
        "status": {"conditions": [{}, {"lastTransitionTime": "2020-01-01T00:00:00Z"}]},
    });
    let value = value(&FLOW_SCHEMA, &raw);
    assert_eq!(
        value["metadata"]["creationTimestamp"],
        "2019-12-31T23:00:00Z"
    );
    assert_eq!(
        value["status"]["conditions"],
        json!([{"lastTransitionTime": null}, {"lastTransitionTime": "2020-01-01T00:00:00Z"}])
    );
}

#[test]
fn raw_json_stays_as_it_is() {
    for raw in [json!({"f:a": {}, "n": null}), json!("x"), json!([1.5])] {
        let object = json!({"metadata": {"managedFields": [{"fieldsV1": raw}]}});
        assert_eq!(
            value(&FLOW_SCHEMA, &object)["metadata"]["managedFields"][0]["fieldsV1"],
            raw
        );
    }
}

#[test]
fn strict_problems_come_in_the_order_of_the_text() {
    let text = r#"{"metadata":{"name":"codec-a"},"spec":{"foo":1,"rules":[{"subjects":[{"kind":"User"},
        {"foo":1,"kind":"x","kind":"y"}]}],"matchingPrecedence":1,"matchingPrecedence":2},
        "metadata":{"name":"codec-b","labels":{"a":"1","a":"2"}},"foo":{"x":1,"x":2},"foo":1}"#;
    assert_eq!(
        of_text(text).problems,
        [
            r#"unknown field "spec.foo""#,
            r#"unknown field "spec.rules[0].subjects[1].foo""#,
            r#"duplicate field "spec.rules[0].subjects[1].kind""#,
            r#"duplicate field "spec.matchingPrecedence""#,
            r#"duplicate field "metadata""#,
            r#"duplicate field "metadata.labels.a""#,
            r#"unknown field "foo""#,
        ]
    );
    assert_eq!(
        of_text(r#"{"metadata":{"labels":{"a.b/c":"1","a.b/c":"2"},"managedFields":[{"fieldsV1":{"a":1,"a":2}}]}}"#).problems,
        [r#"duplicate field "metadata.labels.a.b/c""#]
    );
    assert_eq!(
        of_text(r#"{"a\"b":1}"#).problems,
        [r#"unknown field "a\"b""#]
    );
}

#[test]
fn a_key_given_twice_is_decoded_into_the_same_place() {
    let text = r#"{"metadata":{"name":"a","labels":{"x":"1","y":"1"},"finalizers":["a","b"]},
        "metadata":{"generateName":"b","labels":{"x":"2"},"finalizers":[null]}}"#;
    assert_eq!(
        of_text(text).value["metadata"],
        json!({"name": "a", "generateName": "b", "labels": {"x": "2", "y": "1"}, "finalizers": ["a"]})
    );
}

#[test]
fn no_more_than_a_hundred_problems_are_reported_each_once() {
    let unknown: Map<_, _> = (0..200).map(|i| (format!("a{i}"), json!(1))).collect();
    assert_eq!(
        decode(&FLOW_SCHEMA, &Value::Object(unknown))
            .unwrap()
            .problems
            .len(),
        100
    );
    assert_eq!(of_text(r#"{"x":1,"x":2,"x":3}"#).problems.len(), 1);
}

#[test]
fn the_number_of_objects_is_bounded() {
    let rules = |count| json!({"spec": {"rules": vec![Value::Null; count]}});
    assert!(decode(&FLOW_SCHEMA, &rules(MAX_OBJECTS - 2)).is_ok());
    assert_eq!(
        decode(&FLOW_SCHEMA, &rules(MAX_OBJECTS)),
        Err(TypeError::TooManyObjects)
    );
}

static NUMBERS: List = List::atomic(Type::Int32);
static OTHERS: Struct = Struct::new(
    "Others",
    TypePackage::GroupVersion,
    &[
        field("port", 1, Type::IntOrString).pointer(),
        field("numbers", 2, Type::List(&NUMBERS)),
    ],
);

#[test]
fn int_or_string_accepts_numbers_and_strings() {
    for port in [json!(80), json!("http"), json!("")] {
        assert_eq!(value(&OTHERS, &json!({"port": port}))["port"], port);
    }
    for (port, found) in [
        ("1.5", "number 1.5"),
        ("true", "bool"),
        ("4294967296", "number 4294967296"),
    ] {
        assert_eq!(
            error(&OTHERS, &format!(r#"{{"port":{port}}}"#)),
            format!(
                "json: cannot unmarshal {found} into Go struct field Others.port of type int32"
            )
        );
    }
    assert_eq!(
        value(&OTHERS, &json!({"numbers": [1, null]})),
        json!({"numbers": [1, 0]})
    );
}

/// What Kubernetes' decoder says of values of the wrong type (tests/cluster/wrongtypes).
const RECORDED_WRONG_TYPES: &str = include_str!("../../../corpus/wrong_types.jsonl");

#[test]
fn a_value_of_the_wrong_type_is_named_as_go_names_it() {
    let mut wrong = Vec::new();
    for line in RECORDED_WRONG_TYPES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| case[key].as_str().unwrap();
        let shape = built_in(text("group"), text("version"), text("kind")).unwrap();
        let found = decode_version(shape, text("version"), &case["body"]);
        let found = found.map_or_else(|error| error.to_string(), |_| "no error".to_owned());
        if found != text("message") {
            wrong.push(format!(
                "{}\n  {found}\n  {}",
                case["body"],
                text("message")
            ));
        }
    }
    assert!(RECORDED_WRONG_TYPES.lines().count() > 1_000);
    assert!(
        wrong.is_empty(),
        "{} of them:\n{}",
        wrong.len(),
        wrong[..20.min(wrong.len())].join("\n")
    );
}

#[test]
fn long_paths_to_many_problems_are_not_all_kept() {
    let key = "k".repeat(MAX_PATHS);
    let unknown: Vec<_> = (0..50).map(|at| format!("\"x{at}\":0")).collect();
    for members in [unknown.join(","), vec!["\"x\":0"; 1_000].join(",")] {
        let text = format!(
            r#"{{"metadata":{{"managedFields":[{{"{key}":0}}],"ownerReferences":[{{{members}}}]}}}}"#
        );
        let problems = of_text(&text).problems;
        // A strict reading needs one.
        assert_eq!(problems.len(), 1);
        let text = format!(r#"{{"metadata":{{"ownerReferences":[{{{members},"{key}":0}}]}}}}"#);
        let bytes: usize = of_text(&text).problems.iter().map(String::len).sum();
        assert!(bytes < 2 * MAX_PATHS, "{bytes}");
    }
}
