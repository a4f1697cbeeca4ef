//! Autoscalers: a server reads them into a form of its own, and shows its policies what it makes of that.
//!
//! What that form has in the specification and in the status, version 1 has in annotations. So such an annotation is kept and dropped
//! with the part that it belongs to.
//!
//! Source: Kubernetes `pkg/apis/autoscaling/{v1,v2}/conversion.go`.

use std::sync::Arc;

use fairgate_objects::conversion::{
    ConversionError,
    autoscalers::{SPEC_ANNOTATIONS, STATUS_ANNOTATIONS, ShownAutoscaler, remove_annotations},
};
use serde_json::{Map, Value, json};

use super::{metadata_mut, take};
use crate::request::facts::{HiddenMetrics, WriteFacts};

/// The field of version 1 for a metric.
const TARGET: &str = "targetCPUUtilizationPercentage";
/// With this begin the names of the annotations that stand for fields of version 2.
const ANNOTATION_GROUP: &[u8] = b"autoscaling.alpha.kubernetes.io";
/// What of an autoscaler of version 1 depends on its metrics.
const SHOWN: [(&str, &str); 3] = [
    ("metadata", "annotations"),
    ("spec", TARGET),
    ("status", "currentCPUUtilizationPercentage"),
];

/// The version of an autoscaler, if it is one.
fn version(facts: &WriteFacts) -> Option<&str> {
    let kind = facts.group_version_kind();
    let is_one = (kind.group, kind.kind) == ("autoscaling", "HorizontalPodAutoscaler");
    is_one.then_some(kind.version)
}

/// Makes an autoscaler what a server shows that it has read. Its metrics are noted where version 1 does not show all of them.
///
/// # Errors
///
/// It is not known what a server reads.
pub(super) fn read(object: &mut Value, facts: &mut WriteFacts) -> Result<(), ConversionError> {
    match version(facts) {
        Some("v1") => {}
        Some("v2") => {
            remove_annotations(object);
            return Ok(());
        }
        _ => return Ok(()),
    }
    let shown = ShownAutoscaler::of(object)?;
    for (part, key) in SHOWN {
        if let Some(Value::Object(members)) = object.get_mut(part) {
            take(members, key, shown.object.get(part));
        }
    }
    // A subresource does not write the specification.
    let metrics = shown.metrics.filter(|_| facts.subresource.is_empty());
    facts.metrics = metrics.map_or(HiddenMetrics::None, |metrics| {
        HiddenMetrics::Known(Arc::new(metrics))
    });
    Ok(())
}

/// Whether a body may write metrics of an autoscaler of version 1 into an annotation.
pub(crate) fn may_write_metrics(facts: &WriteFacts, body: &[u8]) -> bool {
    let names_them = |body| {
        // Each letter can be written as an escape sequence.
        [ANNOTATION_GROUP, b"\\u"]
            .iter()
            .any(|part| memchr::memmem::find(body, part).is_some())
    };
    version(facts) == Some("v1") && facts.subresource.is_empty() && names_them(body)
}

/// Whether a configuration that is applied has metrics in the annotation, and leaves the target of version 1 to others. It may if it is not
/// JSON.
pub(crate) fn leaves_target(configuration: &[u8]) -> bool {
    let read = serde_json::from_slice::<Value>(configuration);
    read.map_or(true, |read| {
        let metrics = &read["metadata"]["annotations"][SPEC_ANNOTATIONS[0]];
        !metrics.is_null() && read["spec"][TARGET].is_null()
    })
}

/// Whether two autoscalers of version 1 show the same metrics.
pub(crate) fn show_same(one: &Value, other: &Value) -> bool {
    let shown = |of: &Value| {
        let annotation = of["metadata"]["annotations"].get(SPEC_ANNOTATIONS[0]);
        [annotation, of["spec"].get(TARGET)].map(Option::<&Value>::cloned)
    };
    shown(one) == shown(other)
}

/// Gives an autoscaler of version 1 those annotations of the stored one, if there is any, that the request does not write.
pub(super) fn keep_annotations(object: &mut Value, old: Option<&Value>, facts: &WriteFacts) {
    if version(facts) != Some("v1") {
        return;
    }
    let Some(metadata) = metadata_mut(object) else {
        return;
    };
    let kept = if facts.subresource.is_empty() {
        STATUS_ANNOTATIONS
    } else {
        SPEC_ANNOTATIONS
    };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    let old = old.map(|old| &old["metadata"]["annotations"]);
    if let Value::Object(annotations) = annotations {
        for name in kept {
            take(annotations, name, old);
        }
    }
    if metadata["annotations"]
        .as_object()
        .is_some_and(Map::is_empty)
    {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::digest::{RequestInfo, User};
    use uuid::Uuid;

    use super::*;
    use crate::{
        object::evaluated_object::{Fresh, StrategyError, strategy},
        request::write_request::Subject,
    };

    const METRICS: &str = SPEC_ANNOTATIONS[0];
    const CONDITIONS: &str = STATUS_ANNOTATIONS[1];
    const PODS: &str = r#"[{"type":"Pods","pods":{"metricName":"q","targetAverageValue":"0"}}]"#;
    const CPU: &str =
        r#"[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":1}}]"#;

    fn scaler(version: &str, annotations: &Value, target: Option<u32>) -> Value {
        let mut scaler = json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "annotations": annotations}, "spec": {"maxReplicas": 3}, "status": {},
        });
        if let Some(target) = target {
            scaler["spec"]["targetCPUUtilizationPercentage"] = json!(target);
        }
        scaler
    }

    /// What policies see of an object that is written to a path, and the metrics that are noted.
    fn seen(
        method: &str,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(Value, Option<Value>), StrategyError> {
        let api_version = object["apiVersion"].as_str().unwrap();
        let mut path = format!("/apis/{api_version}/namespaces/n/horizontalpodautoscalers");
        if method == "PUT" {
            path += "/h";
            path += subresource;
        }
        let info = RequestInfo::from_target(method, &path).unwrap();
        let Subject::Write(write) = Subject::of(&info) else {
            panic!("no write");
        };
        let mut facts = WriteFacts::new(&write, &Arc::new(User::default()), None);
        facts.set_kind_by(object);
        let fresh = Fresh {
            uid: Uuid::nil(),
            seconds: 1_767_225_600,
        };
        let mut object = object.clone();
        let strategy = strategy(&facts, true).unwrap();
        strategy.apply(&mut object, old, &mut facts, &fresh, None)?;
        let metrics = facts.metrics.known().map(|metrics| (**metrics).clone());
        Ok((object, metrics))
    }

    /// As Kubernetes converts these to its own form and back.
    #[test]
    fn autoscalers_of_version_1_are_what_a_server_shows_that_it_has_read() {
        let both = &*format!("{},{}", &CPU[..CPU.len() - 1], &PODS[1..]);
        for (annotations, sent, target, shown) in [
            (json!({METRICS: CPU}), Some(80), Some(1), None),
            (json!({METRICS: CPU}), None, Some(1), None),
            (
                json!({METRICS: "[1]", "a": "b"}),
                None,
                Some(80),
                Some(json!({"a": "b"})),
            ),
            (json!({}), None, Some(80), None),
            (
                json!({METRICS: PODS}),
                None,
                None,
                Some(json!({METRICS: PODS})),
            ),
            (
                json!({METRICS: both}),
                Some(80),
                Some(1),
                Some(json!({METRICS: PODS})),
            ),
            (
                json!({METRICS: r#"[{"TYPE":"Pods","Pods":{"MetricName":"q"}}]"#, CONDITIONS: "[]"}),
                Some(50),
                Some(50),
                Some(json!({METRICS: PODS})),
            ),
        ] {
            let sent = scaler("v1", &annotations, sent);
            let (object, _) = seen("POST", "", &sent, None).unwrap();
            let found = object["spec"].get("targetCPUUtilizationPercentage");
            assert_eq!(found, target.map(|target| json!(target)).as_ref(), "{sent}");
            assert_eq!(
                object["metadata"].get("annotations"),
                shown.as_ref(),
                "{sent}"
            );
        }
        let twice = json!({METRICS: r#"[{"type":"Pods","Type":"External"}]"#});
        let refused = seen("POST", "", &scaler("v1", &twice, None), None);
        assert!(
            matches!(refused, Err(StrategyError::Autoscaler(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn metrics_that_version_1_does_not_show_are_noted() {
        let utilization = |percent: u32| {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        };
        for (metrics, target, noted) in [
            (
                CPU,
                Some(80),
                Some(json!([utilization(1), utilization(80)])),
            ),
            (CPU, None, None),
            (PODS, Some(80), None),
        ] {
            let sent = scaler("v1", &json!({METRICS: metrics}), target);
            assert_eq!(seen("POST", "", &sent, None).unwrap().1, noted, "{metrics}");
        }
    }

    #[test]
    fn annotations_are_kept_and_dropped_with_what_they_stand_for() {
        let conditions =
            |kind: &str| format!(r#"[{{"type":"{kind}","status":"","lastTransitionTime":null}}]"#);
        let sent = scaler(
            "v1",
            &json!({METRICS: PODS, CONDITIONS: conditions("sent")}),
            Some(5),
        );
        let old = scaler(
            "v1",
            &json!({CONDITIONS: conditions("old"), "a": "b"}),
            Some(7),
        );
        for (method, subresource, old, annotations) in [
            ("POST", "", None, json!({METRICS: PODS})),
            (
                "PUT",
                "",
                Some(&old),
                json!({METRICS: PODS, CONDITIONS: conditions("old")}),
            ),
            (
                "PUT",
                "/status",
                Some(&old),
                json!({CONDITIONS: conditions("sent")}),
            ),
        ] {
            let (object, _) = seen(method, subresource, &sent, old).unwrap();
            assert_eq!(
                object["metadata"]["annotations"], annotations,
                "{method} {subresource}"
            );
        }
    }

    #[test]
    fn version_2_has_no_annotations_of_version_1() {
        for (sent, shown) in [
            (json!({METRICS: "x", CONDITIONS: "[]"}), None),
            (json!({METRICS: PODS, "a": "b"}), Some(json!({"a": "b"}))),
        ] {
            let (object, _) = seen("POST", "", &scaler("v2", &sent, None), None).unwrap();
            assert_eq!(object["metadata"].get("annotations"), shown.as_ref());
        }
    }
}
