//! Expressions that do not compile, as they are reported when policies are loaded.

use fairgate_admission::PolicySet;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde_json::json;

#[test]
fn expressions_that_do_not_compile_are_named_with_their_fields() {
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"namespaceSelector": {}, "objectSelector": {}},
            "variables": [
                {"name": "z", "expression": "object.spec"},
                {"name": "a", "expression": "variables.later"},
            ],
            "matchConditions": [{"name": "c", "expression": "1"}],
            "validations": [
                {"expression": "true"},
                {"expression": "variables.z", "messageExpression": "authorizer.path('/')"},
            ],
            "auditAnnotations": [{"key": "k", "valueExpression": "params.x"}],
        },
    }))
    .unwrap();
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    }))
    .unwrap();
    let set = PolicySet::compile(&[policy], &[binding]);
    let mistakes: Vec<_> = set
        .mistakes()
        .map(|one| {
            let line = one.message.lines().next().unwrap_or_default();
            format!("{} {}: {line}", one.policy, one.field)
        })
        .collect();
    assert_eq!(
        mistakes,
        [
            "p spec.variables[1].expression: compilation failed: ERROR: <input>:1:10: undefined field 'later'",
            "p spec.matchConditions[0].expression: must evaluate to bool but got int",
            "p spec.validations[1].expression: must evaluate to bool but got dyn",
            "p spec.validations[1].messageExpression: compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')",
            "p spec.auditAnnotations[0].valueExpression: compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')",
        ]
    );
}
