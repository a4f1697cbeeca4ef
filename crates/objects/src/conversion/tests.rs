//! `cases.jsonl` is what Kubernetes converts; tests/cluster/conversions writes it.

use serde_json::{Value, json};

use super::BuiltInConversion;
use crate::schema::canonical;

fn kind_of(object: &Value) -> [String; 3] {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    [group, version, object["kind"].as_str().unwrap()].map(str::to_owned)
}

#[test]
fn objects_are_converted_as_kubernetes_converts_them() {
    let mut count = 0;
    for line in include_str!("cases.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (object, wanted) = (&case["object"], &case["converted"]);
        let kinds = [object, wanted].map(kind_of);
        let [from, to] = kinds
            .each_ref()
            .map(|kind| kind.each_ref().map(String::as_str));
        let conversion = BuiltInConversion::between(from, to).unwrap();
        let converted = conversion.convert(object).unwrap();
        // In canonical form, an empty list is null.
        let wanted = canonical::decode(conversion.to.shape, wanted)
            .unwrap()
            .value;
        assert_eq!(converted, wanted, "{conversion:?} of {object}");
        count += 1;
    }
    assert!(count > 100, "{count} cases");
}

#[test]
fn what_is_of_another_type_is_not_converted() {
    let v1 = ["autoscaling", "v1", "HorizontalPodAutoscaler"];
    let v2 = ["autoscaling", "v2", "HorizontalPodAutoscaler"];
    let conversion = BuiltInConversion::between(v1, v2).unwrap();
    let error = conversion.convert(&json!({"spec": {"maxReplicas": "three"}}));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("spec.maxReplicas"), "{error}");
    assert!(BuiltInConversion::between(v1, v1).is_none());
    assert!(BuiltInConversion::between(v1, ["", "v1", "Event"]).is_none());
}
