//! Which expressions of a policy fail where something is absent that they read without a test: for tools that review policies.

use std::collections::HashMap;

use fairgate_cel::{CelAbsence, CelPartialValue};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    environment::VARIABLES, expression::PolicyExpression, observer::ExpressionRole,
    policy::CompiledPolicy,
};

/// Something that requests may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentPart {
    /// Labels of the object.
    Labels,
    /// Annotations of the object.
    Annotations,
    /// The object of a deletion.
    Object,
    /// The old object of a creation.
    OldObject,
}

impl AbsentPart {
    fn absence(self) -> CelAbsence<'static> {
        const OPERATION: &[&str] = &["request", "operation"];
        let (path, texts): (&[&str], &[_]) = match self {
            Self::Labels => (&["object", "metadata", "labels"], &[]),
            Self::Annotations => (&["object", "metadata", "annotations"], &[]),
            Self::Object => (&["object"], &[(OPERATION, "DELETE")]),
            Self::OldObject => (&["oldObject"], &[(OPERATION, "CREATE")]),
        };
        CelAbsence { path, texts }
    }
}

/// The fields of the expressions that fail, such as `spec.validations[0].expression`, unless the match conditions exclude such requests. An
/// expression fails for some values of what else it reads. A variable counts where it is used, and the message of a validation does not.
///
/// # Errors
///
/// When it is not a policy. Expressions that do not compile cause no error, and do not fail.
pub fn expressions_that_fail_without(
    policy: &Value,
    absent: AbsentPart,
) -> Result<Vec<String>, serde_json::Error> {
    let absence = &absent.absence();
    let policy = ValidatingAdmissionPolicy::deserialize(policy)?;
    let compiled = CompiledPolicy::unbound(&policy);
    let spec = policy.spec.unwrap_or_default();
    let mut values: HashMap<&str, CelPartialValue> = HashMap::new();
    for (name, variable) in compiled.variables_in_order(&spec) {
        if let Some(value) = partial_value(variable, absence, &values) {
            values.insert(name, value);
        }
    }
    let mut failing = Vec::new();
    for ((role, index), expression) in compiled.own_expressions() {
        let value = partial_value(expression, absence, &values);
        let is_condition = role == ExpressionRole::Condition;
        if is_condition && value.as_ref().is_some_and(CelPartialValue::is_false) {
            return Ok(Vec::new());
        }
        if role != ExpressionRole::Message && value.is_some_and(|value| value.may_fail()) {
            failing.push((is_condition, role.field(index)));
        }
    }
    // Nothing else is evaluated after a condition that fails.
    let has_condition = failing.iter().any(|(is_condition, _)| *is_condition);
    failing.retain(|(is_condition, _)| *is_condition == has_condition);
    Ok(failing.into_iter().map(|(_, field)| field).collect())
}

fn partial_value(
    expression: &PolicyExpression,
    absence: &CelAbsence<'_>,
    values: &HashMap<&str, CelPartialValue>,
) -> Option<CelPartialValue> {
    let program = expression.program.as_ref().ok()?;
    Some(program.evaluate_partially(absence, VARIABLES, &|name| values.get(name).cloned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failing(absent: AbsentPart, condition: &str, expressions: [&str; 2]) -> Vec<String> {
        let [variable, validation] = expressions;
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConditions": [{"name": "c", "expression": condition}],
            "variables": [{"name": "v", "expression": variable}],
            "validations": [{"expression": "true"}, {"expression": validation, "messageExpression": "object.metadata.labels.a"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "string(variables.v)"}],
        }});
        expressions_that_fail_without(&policy, absent).unwrap()
    }

    #[test]
    fn what_is_read_without_a_test_fails_where_it_is_used() {
        let labels =
            |condition: &str, expressions| failing(AbsentPart::Labels, condition, expressions);
        let all = [
            "spec.validations[1].expression",
            "spec.auditAnnotations[0].valueExpression",
        ];
        let read = "object.metadata.labels['a']";
        let optional = "object.metadata.?labels[?'a'].orValue('')";
        assert_eq!(labels("true", [read, "variables.v == 'b'"]), all);
        assert_eq!(labels("true", [optional, "variables.v == 'b'"]), [""; 0]);
        assert_eq!(
            labels("true", [optional, "object.metadata.labels.a == 'b'"]),
            ["spec.validations[1].expression"]
        );
        let guarded = "has(object.metadata.labels)";
        assert_eq!(labels(guarded, [read, "variables.v == 'b'"]), [""; 0]);
        assert_eq!(
            labels("'a' in object.metadata.labels", [read, "true"]),
            ["spec.matchConditions[0].expression"]
        );
        // It does not compile.
        assert_eq!(
            labels("true", [optional, "object.metadata.labels +"]),
            [""; 0]
        );
    }

    #[test]
    fn a_condition_excludes_operations() {
        let old = |condition: &str| {
            failing(
                AbsentPart::OldObject,
                condition,
                ["1", "object.a == oldObject.a"],
            )
        };
        let validation = ["spec.validations[1].expression"];
        assert_eq!(old("request.operation != 'DELETE'"), validation);
        assert_eq!(old("request.operation == 'UPDATE'"), [""; 0]);
        assert_eq!(old("oldObject != null"), [""; 0]);
        assert_eq!(
            old("has(oldObject.a)"),
            ["spec.matchConditions[0].expression"]
        );
    }
}
