//! The metrics of autoscalers: version 2 has groups of fields where version 1 has a field each.

use serde_json::{Map, Value, json};

/// The types of metrics by the member that describes one, and its fields: the name in version 1, and where version 2 has it.
type Fields = &'static [(&'static str, &'static str)];

/// What is wanted.
pub(super) const WANTED: [(&str, Fields); 5] = [
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric/name"),
            ("selector", "metric/selector"),
            ("targetValue", "target/value"),
            ("averageValue", "target/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric/name"),
            ("selector", "metric/selector"),
            ("targetAverageValue", "target/averageValue"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "name"),
            ("targetAverageUtilization", "target/averageUtilization"),
            ("targetAverageValue", "target/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "name"),
            ("container", "container"),
            ("targetAverageUtilization", "target/averageUtilization"),
            ("targetAverageValue", "target/averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "metric/name"),
            ("metricSelector", "metric/selector"),
            ("targetValue", "target/value"),
            ("targetAverageValue", "target/averageValue"),
        ],
    ),
];

/// What was measured.
pub(super) const MEASURED: [(&str, Fields); 5] = [
    (
        "object",
        &[
            ("target", "describedObject"),
            ("metricName", "metric/name"),
            ("selector", "metric/selector"),
            ("currentValue", "current/value"),
            ("averageValue", "current/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "metric/name"),
            ("selector", "metric/selector"),
            ("currentAverageValue", "current/averageValue"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "name"),
            ("currentAverageUtilization", "current/averageUtilization"),
            ("currentAverageValue", "current/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "name"),
            ("container", "container"),
            ("currentAverageUtilization", "current/averageUtilization"),
            ("currentAverageValue", "current/averageValue"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "metric/name"),
            ("metricSelector", "metric/selector"),
            ("currentValue", "current/value"),
            ("currentAverageValue", "current/averageValue"),
        ],
    ),
];

/// A metric of version 2 in version 1.
pub(super) fn to_v1(kinds: &[(&str, Fields)], metric: &Value) -> Value {
    converted(kinds, metric, |source, fields| {
        let fields = fields.iter().filter_map(|(name, path)| {
            let found = source.pointer(&format!("/{path}"))?;
            Some(((*name).to_owned(), found.clone()))
        });
        Value::Object(fields.collect())
    })
}

/// A metric of version 1 in version 2, without the type of its target.
pub(super) fn to_v2(kinds: &[(&str, Fields)], metric: &Value) -> Value {
    converted(kinds, metric, |source, fields| {
        let mut target = json!({});
        for (name, path) in fields {
            let Some(found) = source.get(name) else {
                continue;
            };
            match path.split_once('/') {
                Some((group, member)) => target[group][member] = found.clone(),
                None => target[path] = found.clone(),
            }
        }
        target
    })
}

/// The metric with another description for each type.
fn converted(
    kinds: &[(&str, Fields)],
    metric: &Value,
    convert: impl Fn(&Value, Fields) -> Value,
) -> Value {
    let mut all = Map::new();
    all.insert("type".to_owned(), metric["type"].clone());
    for (kind, fields) in kinds {
        if let Some(source) = metric.get(kind) {
            all.insert((*kind).to_owned(), convert(source, fields));
        }
    }
    Value::Object(all)
}

/// Gives the targets of a metric of version 2 their types, which version 1 does not have.
pub(super) fn set_target_types(metric: &mut Value) {
    for (kind, _) in WANTED {
        let Some(target) = metric.get_mut(kind).map(|source| &mut source["target"]) else {
            continue;
        };
        let has = |name| target.get(name).is_some();
        let of = match kind {
            "object" if !has("averageValue") => "Value",
            "external" if has("value") => "Value",
            "resource" | "containerResource" if has("averageUtilization") => "Utilization",
            _ => "AverageValue",
        };
        // Version 1 cannot leave the value of an object out.
        if kind == "object" && has("averageValue") && target["value"] == "0" {
            target["value"].take();
        }
        target["type"] = json!(of);
    }
}
