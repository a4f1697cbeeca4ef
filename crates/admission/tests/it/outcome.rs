//! Verdicts in the form that the corpus has them in.

use fairgate_admission::{
    AdmissionAbort, AdmissionAttributes, AdmissionObjects, AdmissionVerdict, AnnotationResult,
    DecisionKind, EvaluationCosts, PartCost, PolicyDecision, PolicyEvaluation, warning_headers,
};
use serde_json::{Map, Value, json};

/// What the corpus has of a verdict. Members that are empty are left out.
pub(crate) fn of_verdict(
    verdict: &Result<AdmissionVerdict<'_>, AdmissionAbort>,
    attributes: &AdmissionAttributes<'_>,
    objects: AdmissionObjects<'_>,
) -> Value {
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(abort) => return json!({"status": status(abort.status())}),
    };
    let mut outcome = Map::new();
    if let Some(denial) = verdict.denials.first() {
        let status = status(denial.status(attributes, objects));
        outcome.insert("status".to_owned(), status);
    }
    let annotations = verdict.audit_annotations.iter();
    let annotations: Map<_, _> = annotations
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    let evaluations: Vec<_> = verdict.evaluations.iter().map(evaluation).collect();
    let parts = [
        ("warnings", json!(verdict.warnings)),
        (
            "headers",
            json!(warning_headers(verdict.warnings.iter().map(String::as_str))),
        ),
        ("auditAnnotations", Value::Object(annotations)),
        ("metrics", metrics(verdict)),
        ("evaluations", evaluations.into()),
    ];
    for (name, value) in parts {
        insert(&mut outcome, name, value);
    }
    outcome.into()
}

fn insert(object: &mut Map<String, Value>, name: &str, value: Value) {
    let is_empty = match &value {
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if !is_empty {
        object.insert(name.to_owned(), value);
    }
}

/// Go's status has these only when it is encoded as an object.
fn status(mut status: Value) -> Value {
    let members = status.as_object_mut().unwrap();
    assert_eq!(members.remove("kind"), Some("Status".into()));
    assert_eq!(members.remove("apiVersion"), Some("v1".into()));
    status
}

fn metrics(verdict: &AdmissionVerdict<'_>) -> Value {
    let mut counts = std::collections::BTreeMap::new();
    for check in &verdict.checks {
        let labels = [
            check.policy,
            check.binding,
            check.error_type,
            check.action.label(),
        ];
        *counts.entry(labels).or_insert(0) += 1;
    }
    let counts = counts.into_iter();
    let rows = counts.map(|([policy, binding, kind, action], count)| {
        json!([policy, binding, kind, action, count.to_string()])
    });
    rows.collect()
}

fn evaluation(of: &PolicyEvaluation<'_>) -> Value {
    let mut record = Map::new();
    record.insert("policy".to_owned(), of.policy.into());
    record.insert("costs".to_owned(), costs(of.costs));
    insert(&mut record, "decisions", decisions(&of.decisions));
    let annotations = of.annotations.iter().map(|annotation| {
        let (action, name, text) = match &annotation.result {
            AnnotationResult::Published(value) => ("publish", "value", value.as_str()),
            AnnotationResult::Absent => ("exclude", "value", ""),
            AnnotationResult::ErrorIgnored(error) => ("exclude", "error", error.as_str()),
            AnnotationResult::ErrorDenied(error) => ("error", "error", error.as_str()),
        };
        let mut record = Map::new();
        record.insert("action".to_owned(), action.into());
        record.insert("key".to_owned(), annotation.key.into());
        insert(&mut record, name, text.into());
        Value::Object(record)
    });
    insert(&mut record, "annotations", annotations.collect());
    record.into()
}

fn costs(of: EvaluationCosts) -> Value {
    let parts = [of.conditions, of.validations, of.messages, of.annotations];
    let parts = parts.map(|part| match part {
        PartCost::NotRun => Value::Null,
        PartCost::Spent(cost) => cost.into(),
        PartCost::OverBudget => (-1).into(),
    });
    json!(parts)
}

pub(crate) fn decisions(of: &[PolicyDecision<'_>]) -> Value {
    let all = of.iter().map(|decision| {
        let (action, evaluation) = match decision.kind {
            DecisionKind::Allowed => ("admit", "admit"),
            DecisionKind::ErrorIgnored => ("admit", "error"),
            DecisionKind::Denied => ("deny", "deny"),
            DecisionKind::ErrorDenied => ("deny", "error"),
        };
        let mut record = Map::new();
        record.insert("action".to_owned(), action.into());
        record.insert("evaluation".to_owned(), evaluation.into());
        insert(&mut record, "reason", decision.reason.into());
        insert(&mut record, "message", decision.message.as_str().into());
        Value::Object(record)
    });
    all.collect()
}
