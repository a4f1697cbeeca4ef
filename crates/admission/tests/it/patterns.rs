//! What the patterns of a policy take: nasty ones are bounded in bytes, and what is too much is an error that says so.

use fairgate_admission::PolicySet;
use fairgate_admission::validate::validate_policy;
use fairgate_objects::field_error::ApiFieldError;
use serde_json::{Value, json};

/// A policy with a validation for each expression, as it is stored.
fn policy(expressions: &[String]) -> Value {
    let validations = expressions.iter().map(|one| json!({"expression": one}));
    let validations: Vec<_> = validations.collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                    "operations": ["*"], "scope": "*",
                }],
            },
            "validations": validations,
        },
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    })
}

fn messages(errors: &[ApiFieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn forty_heavy_patterns_of_a_policy_take_no_more_than_in_go() {
    const GO_BYTES: u64 = 55 << 20;
    let heavy = |number| format!(r"'a'.matches(r'(\pL|\pN|\pP|\pS){{200}}{number}')");
    let policy = policy(&(0..40).map(heavy).collect::<Vec<_>>());
    let binding = binding();
    // What all policies share is made once.
    drop(PolicySet::from_json(&[&policy], &[&binding]));
    let mut set = None;
    let counted = allocation_counter::measure(|| {
        assert_eq!(messages(&validate_policy(&policy, None)), [""; 0]);
        set = Some(PolicySet::from_json(&[&policy], &[&binding]));
    });
    println!("{counted:?}");
    assert!(set.is_some_and(|set| set.is_ok_and(|set| set.len() == 1)));
    assert!(counted.bytes_max <= GO_BYTES / 10, "{counted:?}");
    assert!(counted.bytes_total <= GO_BYTES, "{counted:?}");
}

#[test]
fn patterns_that_go_accepts_are_accepted() {
    let expressions = [
        r"object.metadata.name.matches(r'^[\p{L}\p{N}_.-]{1,253}$')",
        r"object.metadata.name.matches(r'^\p{L}{1,256}$')",
        r"object.metadata.name.matches(r'^\P{C}{1,1000}$')",
    ];
    let policy = policy(&expressions.map(str::to_owned));
    assert_eq!(messages(&validate_policy(&policy, None)), [""; 0]);
}

#[test]
fn a_policy_whose_patterns_take_too_much_is_refused() {
    let large = |number| {
        let pattern = "[a-z]{1000}".repeat(90);
        format!("'a'.matches('{number}{pattern}')")
    };
    // Each takes 1.1 MB; fifteen are allowed, and a pattern that occurs again takes nothing.
    let mut expressions: Vec<_> = (0..15).map(large).collect();
    expressions.extend((0..15).map(large));
    assert_eq!(
        messages(&validate_policy(&policy(&expressions), None)),
        [""; 0]
    );
    expressions.push(large(15));
    let errors = messages(&validate_policy(&policy(&expressions), None));
    let [error] = &errors[..] else {
        panic!("{} errors", errors.len());
    };
    let end = "program instantiation failed: patterns too large: those of the policy take more than 16777216 bytes";
    assert!(
        error.starts_with("spec.validations[30].expression: Invalid value"),
        "{error}"
    );
    assert!(error.ends_with(end), "{error}");
}
