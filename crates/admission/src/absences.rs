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
pub enum AbsentPart<'a> {
    /// The last member of a path that begins with `object` or `oldObject`, such as labels.
    Member(&'a [&'a str]),
    /// The keys of the map at such a path that are read, while it has others.
    Keys(&'a [&'a str]),
    /// The object of a deletion.
    Object,
    /// The old object of a creation.
    OldObject,
}

impl<'a> AbsentPart<'a> {
    fn absence(self) -> CelAbsence<'a> {
        const OPERATION: &[&str] = &["request", "operation"];
        let (path, lacks_keys, texts): (&'a [&'a str], _, &[_]) = match self {
            Self::Member(path) => (path, false, &[]),
            Self::Keys(path) => (path, true, &[]),
            Self::Object => (&["object"], false, &[(OPERATION, "DELETE")]),
            Self::OldObject => (&["oldObject"], false, &[(OPERATION, "CREATE")]),
        };
        CelAbsence {
            path,
            lacks_keys,
            texts,
        }
    }
}

/// The fields of the expressions that fail, such as `spec.validations[0].expression`, unless the match conditions exclude such requests. An
/// expression fails for some values of what else it reads. A variable that is not used does not fail, and the message of a validation
/// does not count. Where a variable fails, its field is the one, and not those of the expressions that use it.
///
/// # Errors
///
/// When it is not a policy. Expressions that do not compile cause no error, and do not fail.
pub fn expressions_that_fail_without(
    policy: &Value,
    absent: AbsentPart<'_>,
) -> Result<Vec<String>, serde_json::Error> {
    let absence = &absent.absence();
    let policy = ValidatingAdmissionPolicy::deserialize(policy)?;
    let compiled = CompiledPolicy::unbound(&policy);
    let spec = policy.spec.unwrap_or_default();
    let mut variables = KnownVariables::default();
    for (index, (name, variable)) in compiled.variables_in_order(&spec).enumerate() {
        let field = ExpressionRole::Variable.field(index);
        variables.add(name, variable, field, absence);
    }
    let mut failing: Vec<(bool, String)> = Vec::new();
    for ((role, index), expression) in compiled.own_expressions() {
        let value = partial_value(expression, absence, &variables.values);
        let is_condition = role == ExpressionRole::Condition;
        if is_condition && value.as_ref().is_some_and(CelPartialValue::is_false) {
            return Ok(Vec::new());
        }
        if role != ExpressionRole::Message && value.is_some_and(|value| value.may_fail()) {
            let fields = variables.at_fault(expression, role.field(index), absence);
            failing.extend(fields.into_iter().map(|field| (is_condition, field)));
        }
    }
    // Nothing else is evaluated after a condition that fails.
    let has_condition = failing.iter().any(|(is_condition, _)| *is_condition);
    failing.retain(|(is_condition, _)| *is_condition == has_condition);
    let mut fields = Vec::new();
    for (_, field) in failing {
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    Ok(fields)
}

/// What is known of the variables of a policy.
#[derive(Default)]
struct KnownVariables<'p> {
    values: HashMap<&'p str, CelPartialValue>,
    /// The same without those that fail.
    sound: HashMap<&'p str, CelPartialValue>,
    /// The fields of the variables that make those fail, themselves mostly.
    at_fault: HashMap<&'p str, Vec<String>>,
}

impl<'p> KnownVariables<'p> {
    /// Adds a variable, which may use those before.
    fn add(
        &mut self,
        name: &'p str,
        variable: &PolicyExpression,
        field: String,
        absence: &CelAbsence<'_>,
    ) {
        let Some(value) = partial_value(variable, absence, &self.values) else {
            return;
        };
        if value.may_fail() {
            let at_fault = self.at_fault(variable, field, absence);
            self.at_fault.insert(name, at_fault);
        } else {
            self.sound.insert(name, value.clone());
        }
        self.values.insert(name, value);
    }

    /// The fields that make an expression fail: its own, or those of variables that it uses.
    fn at_fault(
        &self,
        expression: &PolicyExpression,
        field: String,
        absence: &CelAbsence<'_>,
    ) -> Vec<String> {
        let alone = partial_value(expression, absence, &self.sound);
        if alone.is_some_and(|value| value.may_fail()) {
            return vec![field];
        }
        let program = expression.program.as_ref().ok();
        let used = program.and_then(|program| program.fields_of(VARIABLES));
        let used = used.into_iter().flatten();
        let fields = used.filter_map(|name| self.at_fault.get(name));
        let fields: Vec<String> = fields.flatten().cloned().collect();
        if fields.is_empty() {
            return vec![field];
        }
        fields
    }
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

    fn failing(absent: AbsentPart<'_>, condition: &str, expressions: [&str; 2]) -> Vec<String> {
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
        let part = AbsentPart::Member(&["object", "metadata", "labels"]);
        let labels = |condition: &str, expressions| failing(part, condition, expressions);
        // Where it is read, and not where it is used.
        let all = ["spec.variables[0].expression"];
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
    fn keys_are_read_without_a_test_although_the_map_is_tested() {
        let keys =
            |path, expression: &str| failing(AbsentPart::Keys(path), "true", ["1", expression]);
        let validation = ["spec.validations[1].expression"];
        let labels: &[&str] = &["object", "metadata", "labels"];
        let guarded = "has(object.metadata.labels) && object.metadata.labels['a'] == 'b'";
        assert_eq!(keys(labels, guarded), validation);
        let tested = "has(object.metadata.labels) && 'a' in object.metadata.labels && object.metadata.labels['a'] == 'b'";
        assert_eq!(keys(labels, tested), [""; 0]);
        let template: &[&str] = &["object", "spec", "template", "metadata", "labels"];
        let read = "object.spec.template.metadata.labels['a'] == 'b'";
        assert_eq!(keys(template, read), validation);
        assert_eq!(keys(labels, read), [""; 0]);
        let old: &[&str] = &["oldObject", "metadata", "labels"];
        let read = "oldObject == null || oldObject.metadata.labels.a == 'b'";
        assert_eq!(keys(old, read), validation);
    }

    #[test]
    fn the_variable_that_fails_is_named_whatever_uses_it() {
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "variables": [
                {"name": "sound", "expression": "'x'"},
                {"name": "read", "expression": "object.metadata.labels['a']"},
                {"name": "unused", "expression": "object.metadata.labels['c']"},
                {"name": "derived", "expression": "variables.read + variables.sound"},
            ],
            "validations": [{"expression": "variables.derived == 'b'"}, {"expression": "variables.read == 'b'"}],
        }});
        let part = AbsentPart::Member(&["object", "metadata", "labels"]);
        let fields = expressions_that_fail_without(&policy, part).unwrap();
        assert_eq!(fields, ["spec.variables[1].expression"]);
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
