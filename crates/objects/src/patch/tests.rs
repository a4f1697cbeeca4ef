//! Patches sent to a real server, with its responses, and what must hold for any text.

use serde_json::{Map, Value, json};

use super::*;
use crate::{
    codec::json::MAX_DEPTH,
    deep_documents::on_half_of_the_stack,
    schema::{
        Struct, Type, built_in,
        flowcontrol_v1::{FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL},
    },
};

/// Objects, patches to them, and the code, message and result of a server's response. `outcome` classifies
/// the failures: those of the patch itself by type, `undecodable` for a result that is not an object
/// of the kind, `later` for one that a later check refuses, `panic` for no response at all.
const GOLDENS: &str = include_str!("goldens.json");

fn shape(object: &str) -> &'static Struct {
    match object {
        "fs" => &FLOW_SCHEMA,
        _ => &PRIORITY_LEVEL,
    }
}

fn apply(golden: &Value, object: &Value) -> Result<Patched, PatchError> {
    let patch = golden["patch"].as_str().unwrap().as_bytes();
    let validation = match golden["validation"].as_str() {
        Some("Strict") => FieldValidation::Strict,
        Some("Ignore") => FieldValidation::Ignore,
        _ => FieldValidation::Warn,
    };
    match golden["type"].as_str().unwrap() {
        "json" => json_patch(object, patch, validation),
        "merge" => merge_patch(object, patch, validation),
        _ => strategic(
            shape(golden["object"].as_str().unwrap()),
            object,
            patch,
            validation,
        ),
    }
}

/// A rough canonical form: without unknown members, nulls and what is empty.
fn plain(value: &Value, ty: &Type) -> Value {
    match (value, ty) {
        (Value::Object(map), Type::Object(shape)) => {
            let members = shape.fields.iter().filter_map(|field| {
                let value = plain(map.get(field.name)?, &field.ty);
                Some((field.name.to_owned(), value))
            });
            members.filter(|(_, value)| !is_empty(value)).collect()
        }
        (Value::Object(map), Type::Map(ty)) => map
            .iter()
            // In a map of texts null is the empty text.
            .map(|(key, value)| match plain(value, &ty.value) {
                Value::Null => (key.clone(), json!("")),
                value => (key.clone(), value),
            })
            .collect(),
        (Value::Array(items), Type::List(list)) => {
            items.iter().map(|item| plain(item, &list.item)).collect()
        }
        (Value::Number(number), Type::Int32) if number.is_f64() => {
            let text = format!("{:.0}", number.as_f64().unwrap());
            json!(text.parse::<i64>().unwrap())
        }
        (value, _) => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// What clients see of an object that was changed at its main path, or at its status.
fn seen(object: &Value, shape: &'static Struct, status: bool) -> Map<String, Value> {
    let object = plain(object, &Type::Object(shape));
    let names: &[&str] = if status { &["status"] } else { &["spec"] };
    let mut seen = Map::new();
    let mut see = |name: &str, value: &Value| {
        if !is_empty(value) {
            seen.insert(name.to_owned(), value.clone());
        }
    };
    for name in names {
        see(name, &object[*name]);
    }
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        if !status {
            see(name, &object["metadata"][name]);
        }
    }
    seen
}

/// Sets the defaults of fields that patches of the table remove.
fn default(seen: &mut Map<String, Value>, shape: &'static Struct) {
    let (field, default) = match shape.name {
        "FlowSchema" => ("/spec", ("matchingPrecedence", 1000)),
        _ => ("/spec/limited", ("lendablePercent", 0)),
    };
    let mut all = Value::Object(std::mem::take(seen));
    if let Some(Value::Object(map)) = all.pointer_mut(field) {
        map.entry(default.0).or_insert(json!(default.1));
    }
    if let Value::Object(all) = all {
        *seen = all;
    }
}

fn check_result(golden: &Value, object: &Value, patched: &Patched) {
    let shape = shape(golden["object"].as_str().unwrap());
    let status = golden["subresource"] == "status";
    let mut expected = seen(object, shape, status);
    for (name, value) in golden["changed"].as_object().unwrap() {
        let ty = Type::Object(shape);
        let object = match name.as_str() {
            "spec" | "status" => plain(&json!({ name: value }), &ty)[name].clone(),
            _ => plain(&json!({"metadata": { name: value }}), &ty)["metadata"][name].clone(),
        };
        expected.insert(name.clone(), object);
    }
    expected.retain(|_, value| !is_empty(value));
    let mut actual = seen(&patched.value, shape, status);
    default(&mut actual, shape);
    assert_eq!(actual, expected, "{golden}");
    let warnings = golden["warnings"].as_array().cloned().unwrap_or_default();
    let problems: Vec<Value> = patched.problems.iter().map(|text| json!(text)).collect();
    assert!(warnings.starts_with(&problems), "{golden} {problems:?}");
    let reported = |text: &Value| text.as_str().unwrap().starts_with("json patch");
    assert!(!warnings[problems.len()..].iter().any(reported), "{golden}");
}

fn check_quoted(golden: &Value, object: &Value, patched: &Patched) {
    let cause = golden["cause"].as_str().unwrap();
    if let Some(strict) = cause.strip_prefix("strict decoding error: ") {
        assert!(strict.starts_with(&patched.problems.join(", ")), "{golden}");
    }
    if let Some(quoted) = golden["quoted"].as_str() {
        assert_eq!(patched.quoted(), quoted, "{golden}");
        return;
    }
    let mut expected = golden["document"].clone();
    if let (Some(document), Some(object)) = (expected.as_object_mut(), object.as_object()) {
        for (key, value) in object {
            document.entry(key).or_insert(value.clone());
        }
    }
    let quoted: Value = serde_json::from_str(&patched.quoted()).unwrap();
    assert_eq!(quoted, expected, "{golden}");
}

#[test]
fn patches_do_what_they_do_on_the_server() {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    for golden in goldens["cases"].as_array().unwrap() {
        let object = &goldens["objects"][golden["object"].as_str().unwrap()];
        let patched = apply(golden, object);
        let failure = match &patched {
            Err(PatchError::BadRequest(_)) => "bad request",
            Err(PatchError::TooLarge(_)) => "too large",
            Err(PatchError::Unprocessable) => "unprocessable",
            Err(PatchError::TooDeep { .. }) => "undecodable",
            Err(PatchError::Internal(_)) => "internal",
            Ok(_) => "none",
        };
        match (golden["outcome"].as_str(), patched) {
            (None, Ok(patched)) => check_result(golden, object, &patched),
            (Some("undecodable"), Ok(patched)) => check_quoted(golden, object, &patched),
            (Some("later" | "panic"), Ok(_)) | (Some("panic"), Err(PatchError::Internal(_))) => {}
            (Some(outcome), Err(error)) if outcome == failure => {
                assert_eq!(error.to_string(), golden["message"], "{golden}");
            }
            (_, patched) => panic!("{golden}: {patched:?}"),
        }
    }
}

#[test]
fn a_patch_may_have_at_most_ten_thousand_operations() {
    let operations = |count| Value::Array(vec![json!({"op": "test", "path": "/x"}); count]);
    let apply = |count| {
        let patch = operations(count).to_string();
        json_patch(&json!({}), patch.as_bytes(), FieldValidation::Warn).map(|patched| patched.value)
    };
    assert_eq!(apply(10_000), Ok(json!({})));
    assert_eq!(
        apply(10_001).unwrap_err().to_string(),
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn copies_grow_an_object_by_three_mebibytes_at_most() {
    let copies = |count| {
        let mut patch = vec![json!({"op": "add", "path": "/big", "value": "x".repeat(1_000_000)})];
        for index in 0..count {
            patch.push(json!({"op": "copy", "from": "/big", "path": format!("/{index}")}));
        }
        let patch = Value::Array(patch).to_string();
        json_patch(&json!({}), patch.as_bytes(), FieldValidation::Warn)
    };
    assert!(copies(3).is_ok());
    assert_eq!(copies(4).unwrap_err(), PatchError::Unprocessable);
}

#[test]
fn at_most_a_hundred_problems_are_reported() {
    let operation = json!({"op": "test", "path": "/x", "foo": 1, "bar": 2});
    let patch = Value::Array(vec![operation; 300]).to_string();
    let patched = json_patch(&json!({}), patch.as_bytes(), FieldValidation::Warn).unwrap();
    assert_eq!(patched.problems.len(), 100);
}

#[test]
fn long_lists_merge_without_quadratic_cost() {
    let texts: Vec<String> = (0..100_000).map(|n| format!("x/{n}")).collect();
    let object = json!({"metadata": {"finalizers": texts}});
    let reversed: Vec<&String> = texts.iter().rev().collect();
    let patch = json!({"metadata": {
        "finalizers": reversed,
        "$setElementOrder/finalizers": reversed,
        "$deleteFromPrimitiveList/finalizers": ["x/5"],
    }});
    let text = patch.to_string();
    let patched = strategic(
        &FLOW_SCHEMA,
        &object,
        text.as_bytes(),
        FieldValidation::Warn,
    )
    .unwrap();
    let finalizers = patched.value["metadata"]["finalizers"].as_array().unwrap();
    assert_eq!(finalizers.len(), 99_999);
    assert_eq!(finalizers[0], "x/99999");
}

/// Each time all lists of the item are merged, so that a patch could cost the product of its length and the object's.
#[test]
fn an_item_that_a_patch_names_again_and_again_is_not_merged_for_ever() {
    let shape = built_in("", "v1", "Pod").unwrap();
    let variables = |count: usize| -> Vec<Value> {
        let names = (0..count).map(|at| json!({"name": format!("v{at}")}));
        names.collect()
    };
    let container = |env: Vec<Value>| json!({"name": "c", "env": env});
    let object = json!({"spec": {"containers": [container(variables(20_000))]}});
    let patched = |times: usize, by: &Value| {
        let patch = json!({"spec": {"containers": vec![by; times]}});
        let text = patch.to_string();
        strategic(shape, &object, text.as_bytes(), FieldValidation::Warn)
    };
    let merged = container(variables(1));
    let ordered = json!({"name": "c", "$setElementOrder/env": [{"name": "v1"}]});
    let deleting = json!({"name": "c", "$deleteFromPrimitiveList/args": ["a"], "args": ["b"], "env": [{"name": "v"}]});
    for by in [merged, ordered, deleting] {
        assert!(patched(2, &by).is_ok(), "{by}");
        let refused = patched(20_000, &by);
        assert!(matches!(refused, Err(PatchError::TooLarge(_))), "{by}");
    }
}

#[test]
fn no_truncated_or_corrupted_patch_panics() {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    for golden in goldens["cases"].as_array().unwrap() {
        let object = &goldens["objects"][golden["object"].as_str().unwrap()];
        let shape = shape(golden["object"].as_str().unwrap());
        let text = golden["patch"].as_str().unwrap().as_bytes();
        for at in (0..text.len().min(200)).step_by(3) {
            for byte in [b'"', b'1', b'{', b'[', b'n', 0xff] {
                let mut text = text.to_vec();
                text[at] = byte;
                for patch in [&text[..], &text[..at]] {
                    let _ = json_patch(object, patch, FieldValidation::Strict);
                    let _ = merge_patch(object, patch, FieldValidation::Ignore);
                    let _ = strategic(shape, object, patch, FieldValidation::Warn);
                }
            }
        }
    }
}

#[test]
fn what_nests_too_deep_once_it_is_patched_is_refused_as_unreadable() {
    on_half_of_the_stack(|| {
        let object = json!({"a": {"b": {}}});
        for (open, close) in [("[", "]"), (r#"{"x":"#, "}")] {
            let patched = |levels: usize| {
                let value = format!("{}0{}", open.repeat(levels), close.repeat(levels));
                let patch = format!(r#"[{{"op":"add","path":"/a/b/c","value":{value}}}]"#);
                json_patch(&object, patch.as_bytes(), FieldValidation::Warn).map(|_| ())
            };
            assert_eq!(patched(MAX_DEPTH - 3), Ok(()));
            let Err(PatchError::TooDeep { patched, why }) = patched(MAX_DEPTH - 2) else {
                panic!("the result nests 10 001 levels deep");
            };
            assert!(
                patched.starts_with(&format!(r#"{{"a":{{"b":{{"c":{open}"#)),
                "{patched:.40}"
            );
            let bracket = &open[..1];
            assert_eq!(
                why,
                format!(
                    "couldn't get version/kind; json parse error: invalid character '{bracket}' exceeded max depth"
                )
            );
        }
    });
}

#[test]
fn deep_patches_are_refused_or_stay_within_bounds() {
    on_half_of_the_stack(|| {
        for depth in [100, 500, 10_000, 500_000] {
            let deep = format!("{}1{}", "{\"metadata\":".repeat(depth), "}".repeat(depth));
            let lists = format!(
                "{{\"metadata\":{}1{}}}",
                "[".repeat(depth),
                "]".repeat(depth)
            );
            let operation = format!("[{{\"op\":\"add\",\"path\":\"/x\",\"value\":{deep}}}]");
            for patch in [deep, lists, operation] {
                let object = json!({"metadata": {}});
                let patch = patch.as_bytes();
                let _ = json_patch(&object, patch, FieldValidation::Strict);
                let _ = merge_patch(&object, patch, FieldValidation::Ignore);
                let _ = strategic(&FLOW_SCHEMA, &object, patch, FieldValidation::Warn);
            }
        }
    });
}
