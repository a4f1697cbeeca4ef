//! Validation of `PodDisruptionBudget` objects, in the API server's words and order.
//!
//! Objects are in canonical form: fields have the types that they must have. Metadata is
//! not validated here; names only have to be path segments.

use serde_json::Value;

use crate::{
    conditions,
    field_error::ApiFieldError,
    internal_form, label_selector,
    schema::{Type, policy_v1::POD_DISRUPTION_BUDGET},
};

const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' \
    (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];

/// The errors in the spec of a budget, which replaces `old` if that is given.
pub fn validate_spec(budget: &Value, old: Option<&Value>) -> Vec<ApiFieldError> {
    let spec = &budget["spec"];
    let mut errors = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        let error = ApiFieldError::invalid("spec", spec, detail);
        errors.push(
            match POD_DISRUPTION_BUDGET.field("spec").map(|field| field.ty) {
                Some(Type::Object(shape)) => error.showing(internal_form::printed(shape, spec)),
                _ => error,
            },
        );
    }
    check_bound("spec.minAvailable", &spec["minAvailable"], &mut errors);
    check_bound("spec.maxUnavailable", &spec["maxUnavailable"], &mut errors);
    // Older servers accepted any value; objects that they stored must remain updatable.
    let tolerant = old.is_some_and(|old| label_selector::has_bad_value(&old["spec"]["selector"]));
    let selector = &spec["selector"];
    label_selector::validate("spec.selector", selector, tolerant, &mut errors);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() && !POLICIES.iter().any(|known| policy == known) {
        let field = "spec.unhealthyPodEvictionPolicy";
        errors.push(ApiFieldError::unsupported(field, policy, &POLICIES));
    }
    errors
}

/// The errors in the status of a budget. Counters are not compared with each other, and may be negative in
/// `v1beta1`.
pub fn validate_status(budget: &Value, is_v1beta1: bool) -> Vec<ApiFieldError> {
    let status = &budget["status"];
    let mut errors = Vec::new();
    conditions::validate("status.conditions", &status["conditions"], &mut errors);
    if is_v1beta1 {
        return errors;
    }
    for counter in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        if status[counter].as_i64().is_some_and(|count| count < 0) {
            let field = format!("status.{counter}");
            errors.push(ApiFieldError::invalid(
                &field,
                &status[counter],
                NOT_NEGATIVE,
            ));
        }
    }
    errors
}

fn check_bound(field: &str, bound: &Value, errors: &mut Vec<ApiFieldError>) {
    let Some(text) = bound.as_str() else {
        if bound.as_i64().is_some_and(|count| count < 0) {
            errors.push(ApiFieldError::invalid(field, bound, NOT_NEGATIVE));
        }
        return;
    };
    let digits = text.strip_suffix('%').unwrap_or_default();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        errors.push(ApiFieldError::invalid(field, bound, PERCENT));
    } else if digits.parse::<i64>().map_or(true, |percent| percent > 100) {
        errors.push(ApiFieldError::invalid(
            field,
            bound,
            "must not be greater than 100%",
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The errors of a spec.
    fn spec(spec: &Value) -> Vec<String> {
        let errors = validate_spec(&json!({"spec": spec}), None);
        errors.iter().map(ApiFieldError::to_string).collect()
    }

    fn is_one(errors: &[String], field: &str, detail: &str) {
        let [error] = errors else {
            panic!("one error is expected: {errors:?}");
        };
        let fits = error.starts_with(&format!("{field}: ")) && error.ends_with(detail);
        assert!(fits, "{error}");
    }

    #[test]
    fn v01_both_bounds_cannot_be_set() {
        let errors = spec(&json!({"minAvailable": 1, "maxUnavailable": 1}));
        is_one(
            &errors,
            "spec",
            ": minAvailable and maxUnavailable cannot be both set",
        );
    }

    #[test]
    fn v02_no_bound_is_valid() {
        assert!(spec(&json!({})).is_empty());
        assert!(spec(&json!({"selector": {}})).is_empty());
    }

    #[test]
    fn v03_a_negative_bound_is_invalid() {
        for bound in ["minAvailable", "maxUnavailable"] {
            let errors = spec(&json!({bound: -1}));
            is_one(
                &errors,
                &format!("spec.{bound}"),
                ": Invalid value: -1: must be greater than or equal to 0",
            );
            assert!(spec(&json!({bound: 0})).is_empty());
            assert!(spec(&json!({bound: i32::MAX})).is_empty());
        }
    }

    #[test]
    fn v04_a_string_must_be_a_percentage() {
        for bound in ["10", "1.0%", "-1%", "x%", "%", "", "1 %", "+1%"] {
            let errors = spec(&json!({"minAvailable": bound}));
            let detail = format!("Invalid value: {bound:?}: {PERCENT}");
            is_one(&errors, "spec.minAvailable", &detail);
        }
    }

    #[test]
    fn v05_percentages_up_to_100_are_valid() {
        for bound in ["0%", "1%", "100%", "007%"] {
            assert!(spec(&json!({"minAvailable": bound})).is_empty());
        }
    }

    #[test]
    fn v06_more_than_100_percent_is_invalid() {
        for bound in ["101%", "99999999999999999999%"] {
            let errors = spec(&json!({"maxUnavailable": bound}));
            is_one(
                &errors,
                "spec.maxUnavailable",
                "must not be greater than 100%",
            );
        }
    }

    #[test]
    fn v07_a_selector_must_be_well_formed() {
        let expression = |expression: Value| {
            spec(&json!({"minAvailable": 1, "selector": {"matchExpressions": [expression]}}))
        };
        let field = "spec.selector.matchExpressions[0]";
        let errors = expression(json!({"key": "a", "operator": "illegal"}));
        let detail = "Invalid value: \"illegal\": not a valid selector operator";
        is_one(&errors, &format!("{field}.operator"), detail);
        let errors = expression(json!({"key": "a/b/c", "operator": "Exists"}));
        assert!(errors[0].starts_with(&format!("{field}.key: Invalid value: \"a/b/c\": ")));
        let errors = expression(json!({"key": "a", "operator": "In"}));
        let detail = "Required value: must be specified when `operator` is 'In' or 'NotIn'";
        is_one(&errors, &format!("{field}.values"), detail);
        let errors = expression(json!({"key": "a", "operator": "Exists", "values": ["b"]}));
        let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
        is_one(&errors, &format!("{field}.values"), detail);
        let errors = expression(json!({"key": "a", "operator": "In", "values": ["b", "-"]}));
        assert!(errors[0].starts_with(&format!("{field}.values[1]: Invalid value: \"-\": ")));
        let errors = spec(&json!({"selector": {"matchLabels": {"a": "-"}}}));
        assert!(errors[0].starts_with("spec.selector.matchLabels: Invalid value: \"-\": "));
    }

    #[test]
    fn a_value_that_was_stored_is_tolerated() {
        let with = |value: &str, min: Value| {
            let expression = json!({"key": "a", "operator": "In", "values": [value]});
            let selector = json!({"matchExpressions": [expression]});
            json!({"spec": {"minAvailable": min, "selector": selector}})
        };
        let (good, bad) = (with("b", json!(1)), with("-", json!(1)));
        assert_eq!(validate_spec(&bad, None).len(), 1);
        assert_eq!(validate_spec(&bad, Some(&good)).len(), 1);
        assert_eq!(validate_spec(&bad, Some(&bad)), []);
        // Everything else is checked again.
        assert_eq!(validate_spec(&with("-", json!(-1)), Some(&bad)).len(), 1);
    }

    #[test]
    fn v08_only_two_policies_are_valid() {
        for policy in ["", "Invalid"] {
            let errors = spec(&json!({"unhealthyPodEvictionPolicy": policy}));
            let detail = format!(
                "Unsupported value: {policy:?}: supported values: \"AlwaysAllow\", \"IfHealthyBudget\""
            );
            is_one(&errors, "spec.unhealthyPodEvictionPolicy", &detail);
        }
        for policy in [json!("AlwaysAllow"), json!("IfHealthyBudget"), json!(null)] {
            assert!(spec(&json!({"unhealthyPodEvictionPolicy": policy})).is_empty());
        }
    }

    #[test]
    fn v09_counters_are_not_negative_except_in_v1beta1() {
        for counter in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            let budget = json!({"status": {counter: -1}});
            let [error] = &validate_status(&budget, false)[..] else {
                panic!("one error is expected");
            };
            let expected =
                format!("status.{counter}: Invalid value: -1: must be greater than or equal to 0");
            assert_eq!(error.to_string(), expected);
            assert_eq!(validate_status(&budget, true), []);
        }
    }

    #[test]
    fn v10_counters_are_not_compared() {
        let budget = json!({"status": {
            "disruptionsAllowed": 5, "currentHealthy": 5, "desiredHealthy": 3, "expectedPods": 2,
        }});
        assert_eq!(validate_status(&budget, false), []);
    }
}
