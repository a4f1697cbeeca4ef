//! Values as kube-apiserver prints them in messages about its internal form of an object: with the
//! Go names of the fields, and without omitting anything.

use serde_json::Value;

use crate::codec::json::encode_plain;
use crate::schema::{Struct, Type};

/// The text of an object of `shape`.
pub(crate) fn printed(shape: &Struct, object: &Value) -> String {
    let fields: Vec<String> = shape
        .fields
        .iter()
        .map(|field| {
            let value = object.get(field.name).unwrap_or(&Value::Null);
            let absent = value.is_null() && field.presence.is_pointer();
            let value = if absent {
                "null".to_owned()
            } else {
                printed_value(&field.ty, value)
            };
            format!("\"{}\":{value}", go_name(field.name))
        })
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn printed_value(ty: &Type, value: &Value) -> String {
    match (ty, value) {
        // The type of label selectors is used in API and internal form alike.
        (Type::Object(shape), _) if shape.name == "LabelSelector" => as_sent(shape, value),
        (Type::Object(shape), _) => printed(shape, value),
        (Type::List(list), Value::Array(items)) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| printed_value(&list.item, item))
                .collect();
            format!("[{}]", items.join(","))
        }
        (Type::Text, Value::Null) => "\"\"".to_owned(),
        (Type::Int32 | Type::Int64, Value::Null) => "0".to_owned(),
        (Type::Flag, Value::Null) => "false".to_owned(),
        _ => plain(value),
    }
}

/// The fields that are set, by their names in the API, in the order of the type.
fn as_sent(shape: &Struct, object: &Value) -> String {
    let set = shape.fields.iter().filter_map(|field| {
        let value = object.get(field.name)?;
        Some(format!("\"{}\":{}", field.name, plain(value)))
    });
    format!("{{{}}}", set.collect::<Vec<_>>().join(","))
}

fn plain(value: &Value) -> String {
    let text = encode_plain(value, false);
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

/// `nonResourceURLs` → `NonResourceURLs`, `apiGroups` → `APIGroups`.
fn go_name(name: &str) -> String {
    if let Some(rest) = name.strip_prefix("api") {
        return format!("API{rest}");
    }
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_ascii_uppercase().to_string() + chars.as_str()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::flowcontrol_v1::PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL;
    use crate::schema::policy_v1::POD_DISRUPTION_BUDGET as BUDGET;

    #[test]
    fn label_selectors_keep_their_names() {
        let Some(Type::Object(spec)) = BUDGET.field("spec").map(|field| field.ty) else {
            panic!("a budget has a spec");
        };
        let selector = json!({"matchExpressions": [{"key": "k", "operator": "Exists"}], "matchLabels": {"a": "b"}});
        assert_eq!(
            printed(
                spec,
                &json!({"minAvailable": "5%", "maxUnavailable": 1, "selector": selector})
            ),
            r#"{"MinAvailable":"5%","Selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"Exists"}]},"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}"#
        );
    }

    #[test]
    fn nothing_is_left_out() {
        let Some(Type::Object(spec)) = PRIORITY_LEVEL.field("spec").map(|field| field.ty) else {
            panic!("a level has a spec");
        };
        let level = json!({"type": "Limited", "exempt": {"nominalConcurrencyShares": 0,
            "lendablePercent": 0}});
        assert_eq!(
            printed(spec, &level),
            r#"{"Type":"Limited","Limited":null,"Exempt":{"NominalConcurrencyShares":0,"LendablePercent":0}}"#
        );
    }
}
