//! `cases.jsonl.gz` is what Kubernetes converts; tests/cluster/conversions writes it.

use std::{collections::BTreeMap, io::Read as _};

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{BuiltInConversion, ConversionError, KINDS};
use crate::{
    codec::json::MAX_DEPTH,
    deep_documents::on_half_of_the_stack,
    defaults,
    schema::{MapType, Struct, Type, canonical},
};

/// A line of the corpus, whose objects are in canonical form.
struct ConvertedObject {
    kinds: [[String; 3]; 2],
    conversion: BuiltInConversion,
    object: Value,
    converted: Value,
    /// What it is converted to with the defaults of its own version.
    defaulted: Value,
}

impl ConvertedObject {
    fn read(line: &str) -> Self {
        let case: Value = serde_json::from_str(line).unwrap();
        let kinds = ["object", "converted"].map(|name| kind_of(&case[name]));
        let conversion = BuiltInConversion::between(parts(&kinds[0]), parts(&kinds[1]));
        let conversion = conversion.unwrap_or_else(|| panic!("no conversion: {kinds:?}"));
        // In canonical form, an empty list is null.
        let canonical = |name: &str, shape| canonical::decode(shape, &case[name]).unwrap().value;
        Self {
            kinds,
            conversion,
            object: canonical("object", conversion.from.shape),
            converted: canonical("converted", conversion.to.shape),
            defaulted: canonical("defaulted", conversion.to.shape),
        }
    }
}

fn kind_of(object: &Value) -> [String; 3] {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    [group, version, object["kind"].as_str().unwrap()].map(str::to_owned)
}

fn parts(kind: &[String; 3]) -> [&str; 3] {
    kind.each_ref().map(String::as_str)
}

fn corpus() -> Vec<ConvertedObject> {
    let mut text = String::new();
    let mut corpus = GzDecoder::new(&include_bytes!("cases.jsonl.gz")[..]);
    corpus.read_to_string(&mut text).unwrap();
    text.lines().map(ConvertedObject::read).collect()
}

#[test]
fn objects_are_converted_as_kubernetes_converts_them() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut changed, mut with_defaults) = (0, 0);
    for case in corpus() {
        let (conversion, object) = (case.conversion, &case.object);
        let converted = conversion.convert(object).unwrap();
        assert_eq!(converted, case.converted, "{conversion:?} of {object}");
        let mut object = object.clone();
        let [group, version, kind] = parts(&case.kinds[0]);
        defaults::apply(group, version, kind, &mut object);
        let defaulted = conversion.convert(&object).unwrap();
        assert_eq!(defaulted, case.defaulted, "{conversion:?} of {object}");
        changed += usize::from(case.object["spec"] != case.converted["spec"]);
        with_defaults += usize::from(case.converted != case.defaulted);
        *counts.entry(format!("{conversion:?}")).or_default() += 1;
    }
    for (conversion, count) in &counts {
        println!("{count:>4} {conversion}");
    }
    println!("{changed} with other fields, {with_defaults} with defaults");
    assert!(
        changed > 500 && with_defaults > 300,
        "{changed} {with_defaults}"
    );
    let within = KINDS.iter().map(|(_, _, versions)| versions.len());
    let pairs: usize = within.map(|count| count * (count - 1)).sum();
    assert_eq!(counts.len(), pairs + 2, "all pairs, and events");
    assert!(counts.values().all(|count| *count >= 20), "{counts:?}");
}

/// Where a table differs from another: the first such field.
fn difference(one: &Struct, other: &Struct) -> Option<String> {
    let named = |of: &Struct, name| of.fields.iter().find(|field| field.name == name).copied();
    if one.fields.len() != other.fields.len() {
        return Some(format!("the number of fields of {}", one.name));
    }
    one.fields.iter().find_map(|field| {
        let place = format!("{}.{}", one.name, field.name);
        let Some(found) = named(other, field.name) else {
            return Some(place);
        };
        if found.presence != field.presence {
            return Some(place);
        }
        type_difference(&field.ty, &found.ty, &place)
    })
}

fn type_difference(one: &Type, other: &Type, place: &str) -> Option<String> {
    match (one, other) {
        (Type::Object(one), Type::Object(other)) => difference(one, other),
        (Type::List(one), Type::List(other)) => type_difference(&one.item, &other.item, place),
        (Type::Map(MapType { value: one, .. }), Type::Map(MapType { value: other, .. })) => {
            type_difference(one, other, place)
        }
        _ => {
            let same = std::mem::discriminant(one) == std::mem::discriminant(other);
            (!same).then(|| place.to_owned())
        }
    }
}

#[test]
fn versions_without_a_conversion_of_their_own_have_the_same_fields() {
    let mut same = 0;
    for (group, kind, versions) in KINDS {
        for (from, to) in versions
            .iter()
            .flat_map(|from| versions.iter().map(move |to| (from, to)))
        {
            let between = BuiltInConversion::between([group, from, kind], [group, to, kind]);
            let Some(conversion) = between else {
                assert_eq!(from, to, "{kind}");
                continue;
            };
            let difference = difference(conversion.from.shape, conversion.to.shape);
            assert_eq!(
                conversion.convert.is_some(),
                difference.is_some(),
                "{conversion:?}: {difference:?}"
            );
            same += usize::from(difference.is_none());
        }
    }
    assert!(same > 20, "{same}");
}

#[test]
fn what_is_of_another_type_is_not_converted() {
    let v1 = ["autoscaling", "v1", "HorizontalPodAutoscaler"];
    let v2 = ["autoscaling", "v2", "HorizontalPodAutoscaler"];
    let conversion = BuiltInConversion::between(v1, v2).unwrap();
    let error = conversion.convert(&json!({"spec": {"maxReplicas": "three"}}));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("spec.maxReplicas"), "{error}");
    for (from, to) in [
        (v1, v1),
        (v1, ["", "v1", "Event"]),
        (["", "v1", "Event"], ["", "v1", "Event"]),
        (v1, ["autoscaling", "v2beta2", "HorizontalPodAutoscaler"]),
        (
            ["apps", "v1beta1", "Deployment"],
            ["apps", "v1", "Deployment"],
        ),
    ] {
        assert!(BuiltInConversion::between(from, to).is_none());
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// An autoscaler of version 1 with an annotation, in version 2.
fn in_v2(annotation: &str, text: &str) -> Result<Value, ConversionError> {
    let [v1, v2] = ["v1", "v2"].map(|version| ["autoscaling", version, "HorizontalPodAutoscaler"]);
    let scaler =
        json!({"metadata": {"annotations": {annotation: text}}, "spec": {"maxReplicas": 3}});
    BuiltInConversion::between(v1, v2).unwrap().convert(&scaler)
}

/// What Go makes of a field that is given twice depends on how it grows slices, so a client could choose what is not seen.
#[test]
fn autoscalers_with_annotations_that_a_server_may_read_otherwise_are_not_converted() {
    let many = format!("[{}{{}}]", "{},".repeat(canonical::MAX_OBJECTS));
    let unsure: [(&'static str, &str); 7] = [
        (METRICS, r#"[{"type":"Pods","type":"External"}]"#),
        (METRICS, r#"[{"type":"Pods","Type":"External"}]"#),
        (
            METRICS,
            r#"[{},{"pods":{"metricName":"m"},"pod\u017f":null}]"#,
        ),
        (METRICS, r#"[{"TYPE":"Pods","Type":"External"}]"#),
        (METRICS, &many),
        (
            BEHAVIOR,
            r#"{"scaleDown":{"Policies":[{"Value":1}],"policies":[{}]}}"#,
        ),
        (BEHAVIOR, r#"{"scaleDown":{},"x":{},"ScaleDown":null}"#),
    ];
    for (annotation, text) in unsure {
        let read = in_v2(annotation, text);
        assert_eq!(read, Err(ConversionError::Annotation(annotation)), "{text}");
    }
    // It has no effect, whatever else it has.
    let read = in_v2(METRICS, r#"[{"type":"Pods","type":1}]"#).unwrap();
    assert_eq!(read["spec"]["metrics"][0]["resource"]["name"], "cpu");
}

#[test]
fn annotations_of_autoscalers_nest_as_deep_as_a_server_reads_them() {
    on_half_of_the_stack(|| {
        for (levels, metric) in [(MAX_DEPTH, "Pods"), (MAX_DEPTH + 1, "Resource")] {
            let [open, close] = ["[", "]"].map(|bracket| bracket.repeat(levels - 2));
            let text = format!(r#"[{{"type":"Pods","x":{open}{close}}}]"#);
            let read = in_v2(METRICS, &text).unwrap();
            assert_eq!(read["spec"]["metrics"][0]["type"], metric, "{levels}");
        }
    });
}
