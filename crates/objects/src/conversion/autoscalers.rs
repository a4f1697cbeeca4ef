//! Autoscalers of pods: version 1 has one metric, the utilization of processors, and what version 2 has besides in
//! annotations.

use serde_json::{Map, Value, json};

use super::{
    AUTOSCALING, BuiltInConversion, ConversionError,
    metrics::{self, MEASURED, WANTED},
};
use crate::{
    codec::{
        json::{self as json_text, SyntaxError, encode_part},
        tape::TapeNode,
    },
    schema::{
        List, Struct, Type, TypePackage,
        autoscaling_v1::{HORIZONTAL_POD_AUTOSCALER_CONDITION, METRIC_SPEC, METRIC_STATUS},
        canonical::{self, Source as _, UnsureReading, View, decode_folded},
        field,
    },
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The annotations of version 1 that have what is in the specification of version 2.
pub const SPEC_ANNOTATIONS: [&str; 2] = [METRICS, BEHAVIOR];
/// Those that have what is in the status of version 2.
pub const STATUS_ANNOTATIONS: [&str; 2] = [CURRENT_METRICS, CONDITIONS];
/// No version uses the last two.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The utilization of processors, in percent, that is wanted where no metric is.
const DEFAULT_UTILIZATION: i32 = 80;

/// The behavior as its annotation has it: Kubernetes' internal type, whose fields have Go's names.
static GO_BEHAVIOR: Struct = Struct::new(
    "HorizontalPodAutoscalerBehavior",
    TypePackage::GroupVersion,
    &[
        field("ScaleUp", 0, Type::Object(&GO_RULES)).nullable(),
        field("ScaleDown", 0, Type::Object(&GO_RULES)).nullable(),
    ],
);
static GO_RULES: Struct = Struct::new(
    "HPAScalingRules",
    TypePackage::GroupVersion,
    &[
        field("StabilizationWindowSeconds", 0, Type::Int32).nullable(),
        field("SelectPolicy", 0, Type::Text).nullable(),
        field("Policies", 0, Type::List(&GO_POLICIES)).always(),
        field("Tolerance", 0, Type::Quantity).nullable(),
    ],
);
static GO_POLICIES: List = List::atomic(Type::Object(&GO_POLICY));
static GO_POLICY: Struct = Struct::new(
    "HPAScalingPolicy",
    TypePackage::GroupVersion,
    &[
        field("Type", 0, Type::Text).always(),
        field("Value", 0, Type::Int32).always(),
        field("PeriodSeconds", 0, Type::Int32).always(),
    ],
);

/// An autoscaler of version 1 as a server shows it, which reads it into a form that has the fields of version 2.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownAutoscaler {
    /// In version 1, in canonical form.
    pub object: Value,
    /// The metrics in version 2, unless [`object`](Self::object) is converted to the same: version 1 shows one metric of the
    /// utilization of processors, and not its place among the others.
    pub metrics: Option<Value>,
}

impl ShownAutoscaler {
    /// What a server shows of an object that it was sent.
    ///
    /// Costs time and memory linear in the size of the object.
    ///
    /// # Errors
    ///
    /// As [`BuiltInConversion::convert`] to version 2.
    #[expect(clippy::missing_panics_doc, reason = "both versions are known")]
    pub fn of(object: &Value) -> Result<Self, ConversionError> {
        let between = |from, to| {
            let kind = |version| [AUTOSCALING, version, "HorizontalPodAutoscaler"];
            BuiltInConversion::between(kind(from), kind(to)).expect("both versions are known")
        };
        let to_v2 = between("v1", "v2");
        let mut read = to_v2.convert(object)?;
        let object = between("v2", "v1").convert(&read)?;
        let again = to_v2.convert(&object)?;
        let metrics = read["spec"]["metrics"].take();
        let is_lost = again["spec"]["metrics"] != metrics;
        Ok(Self {
            object,
            metrics: is_lost.then_some(metrics),
        })
    }
}

/// Removes the annotations that a server removes from an autoscaler of version 2, which has fields for them.
pub fn remove_annotations(object: &mut Value) {
    take_annotations(object);
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        let annotations = metadata.get("annotations").and_then(Value::as_object);
        if annotations.is_some_and(Map::is_empty) {
            metadata.remove("annotations");
        }
    }
}

/// Version 1 as version 2. Annotations that a server cannot read have no effect.
///
/// # Errors
///
/// It is not known what a server reads in an annotation.
pub(super) fn to_v2(object: Value) -> Result<Value, ConversionError> {
    let mut object = object;
    let annotations = take_annotations(&mut object);
    let list = |name, shape| read(&annotations, name, |text| read_list(text, shape));

    let spec = &mut object["spec"];
    let mut wanted: Vec<Value> = list(METRICS, &METRIC_SPEC)?
        .unwrap_or_default()
        .iter()
        .map(|metric| metrics::to_v2(&WANTED, metric))
        .collect();
    wanted.iter_mut().for_each(metrics::set_target_types);
    if let Some(utilization) = spec.get("targetCPUUtilizationPercentage") {
        wanted.push(wanted_utilization(utilization));
    }
    if wanted.is_empty() {
        wanted.push(wanted_utilization(&json!(DEFAULT_UTILIZATION)));
    }
    spec["metrics"] = Value::Array(wanted);
    if let Some(behavior) = read(&annotations, BEHAVIOR, read_behavior)? {
        spec["behavior"] = behavior;
    }

    let status = &mut object["status"];
    if let Some(measured) = list(CURRENT_METRICS, &METRIC_STATUS)? {
        let measured = measured
            .iter()
            .map(|metric| metrics::to_v2(&MEASURED, metric));
        status["currentMetrics"] = measured.collect();
    } else if let Some(utilization) = status.get("currentCPUUtilizationPercentage") {
        let current = json!({"averageUtilization": utilization});
        let resource = json!({"name": "cpu", "current": current});
        status["currentMetrics"] = json!([{"type": "Resource", "resource": resource}]);
    }
    if let Some(conditions) = list(CONDITIONS, &HORIZONTAL_POD_AUTOSCALER_CONDITION)? {
        status["conditions"] = Value::Array(conditions);
    }
    Ok(object)
}

/// The metric of version 2 that is a field in version 1.
fn wanted_utilization(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Version 2 as version 1.
pub(super) fn to_v1(object: Value) -> Value {
    let mut object = object;
    take_annotations(&mut object);
    let mut annotations = Map::new();
    let mut annotate = |name: &str, text| annotations.insert(name.to_owned(), text);

    let spec = &mut object["spec"];
    let wanted = elements(&spec["metrics"]);
    let (utilizations, others): (Vec<Value>, Vec<Value>) =
        (wanted.into_iter()).partition(|metric| utilization(metric, "target").is_some());
    // Of several wanted ones the first counts, and of measured ones (below) the last: the original's loops differ.
    if let Some(utilization) = utilizations.first().and_then(|m| utilization(m, "target")) {
        spec["targetCPUUtilizationPercentage"] = utilization.clone();
    }
    if !others.is_empty() {
        let others = others.iter().map(|metric| metrics::to_v1(&WANTED, metric));
        annotate(METRICS, list_text(others, &METRIC_SPEC));
    }
    if let Some(behavior) = spec.get("behavior") {
        let behavior = renamed(behavior, char::to_ascii_uppercase);
        annotate(BEHAVIOR, text(&part_text(behavior, &GO_BEHAVIOR)));
    }

    let status = &mut object["status"];
    let measured = elements(&status["currentMetrics"]);
    if let Some(utilization) = measured
        .iter()
        .rev()
        .find_map(|m| utilization(m, "current"))
    {
        status["currentCPUUtilizationPercentage"] = utilization.clone();
    }
    if !measured.is_empty() {
        let measured = measured
            .iter()
            .map(|metric| metrics::to_v1(&MEASURED, metric));
        annotate(CURRENT_METRICS, list_text(measured, &METRIC_STATUS));
    }
    let conditions = elements(&status["conditions"]);
    if !conditions.is_empty() {
        let shape = &HORIZONTAL_POD_AUTOSCALER_CONDITION;
        annotate(CONDITIONS, list_text(conditions.into_iter(), shape));
    }
    for (name, text) in annotations {
        object["metadata"]["annotations"][name] = text;
    }
    object
}

/// The utilization of processors that a metric is about, by the `member` that has it.
fn utilization<'m>(metric: &'m Value, member: &str) -> Option<&'m Value> {
    let resource = &metric["resource"];
    let found = resource[member].get("averageUtilization");
    found.filter(|_| metric["type"] == "Resource" && resource["name"] == "cpu")
}

/// Takes those annotations that have fields of version 2, whichever version the object is of.
fn take_annotations(object: &mut Value) -> Map<String, Value> {
    let annotations = object.pointer_mut("/metadata/annotations");
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
        return Map::new();
    };
    let taken = ANNOTATIONS.iter();
    taken
        .filter_map(|name| annotations.remove_entry(*name))
        .collect()
}

fn elements(list: &Value) -> Vec<Value> {
    list.as_array().cloned().unwrap_or_default()
}

/// What is read of the JSON in an annotation; `None` if there is none, or a server cannot read it.
fn read<T>(
    annotations: &Map<String, Value>,
    name: &'static str,
    read: impl FnOnce(TapeNode<'_>) -> Result<Option<T>, UnsureReading>,
) -> Result<Option<T>, ConversionError> {
    let Some(text) = annotations.get(name).and_then(Value::as_str) else {
        return Ok(None);
    };
    let read = match json_text::read_tape(text.as_bytes()) {
        Ok(tape) => read(tape.root()),
        Err(SyntaxError::TooManyObjects) => Err(UnsureReading),
        Err(_) => Ok(None),
    };
    read.map_err(|UnsureReading| ConversionError::Annotation(name))
}

/// The list that a text is, if it is one of such objects.
fn read_list(
    text: TapeNode<'_>,
    shape: &'static Struct,
) -> Result<Option<Vec<Value>>, UnsureReading> {
    match text.view() {
        View::Null => Ok(Some(Vec::new())),
        View::List(items) => items.map(|item| decode_folded(shape, item)).collect(),
        _ => Ok(None),
    }
}

/// The behavior that a text is, if it has any rules.
fn read_behavior(text: TapeNode<'_>) -> Result<Option<Value>, UnsureReading> {
    let behavior = decode_folded(&GO_BEHAVIOR, text)?;
    let rules = ["ScaleUp", "ScaleDown"];
    let has_rules = |of: &Value| rules.iter().any(|rule| of.get(rule).is_some());
    let behavior = behavior.filter(has_rules);
    Ok(behavior.map(|behavior| renamed(&behavior, char::to_ascii_lowercase)))
}

/// The value with another first letter in all keys.
fn renamed(value: &Value, letter: fn(&char) -> char) -> Value {
    match value {
        Value::Object(members) => {
            let renamed = members.iter().map(|(key, value)| {
                let mut letters = key.chars();
                let first = letters.next().map(|first| letter(&first));
                let key = first.into_iter().chain(letters).collect::<String>();
                (key, renamed(value, letter))
            });
            Value::Object(renamed.collect())
        }
        Value::Array(list) => list.iter().map(|one| renamed(one, letter)).collect(),
        other => other.clone(),
    }
}

/// The text of an annotation that is a list.
fn list_text(list: impl Iterator<Item = Value>, shape: &'static Struct) -> Value {
    let parts: Vec<_> = list.map(|one| part_text(one, shape)).collect();
    text(&[b"[", &*parts.join(&b','), b"]"].concat())
}

/// The JSON of an object whose values have the right types.
fn part_text(part: Value, shape: &'static Struct) -> Vec<u8> {
    let mut part = part;
    if let Value::Object(members) = &mut part {
        canonical::complete(shape, members);
    }
    encode_part(shape, &part)
}

fn text(json: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(json).into_owned())
}
