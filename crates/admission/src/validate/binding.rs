//! Validation of bindings.

use std::collections::HashSet;

use serde_json::Value;

use super::{items, match_resources, text};
use fairgate_gotext::names;
use fairgate_objects::{field_error::ApiFieldError, label_selector};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const NOT_FOUND_ACTIONS: [&str; 2] = ["Deny", "Allow"];
const EXCLUSIVE: &str = "name and selector are mutually exclusive";

/// The errors in a binding.
pub fn validate(binding: &Value) -> Vec<ApiFieldError> {
    let spec = &binding["spec"];
    let mut errors = Vec::new();
    let policy = &spec["policyName"];
    if text(policy).is_empty() {
        errors.push(ApiFieldError::required("spec.policyName", ""));
    }
    for problem in names::subdomain(text(policy)) {
        if !text(policy).is_empty() {
            errors.push(ApiFieldError::invalid("spec.policyName", policy, problem));
        }
    }
    validate_param_ref(&spec["paramRef"], &mut errors);
    match_resources::validate("spec.matchResources", &spec["matchResources"], &mut errors);
    validate_actions(&spec["validationActions"], &mut errors);
    errors
}

fn validate_param_ref(reference: &Value, errors: &mut Vec<ApiFieldError>) {
    if reference.is_null() {
        return;
    }
    let (name, selector) = (&reference["name"], &reference["selector"]);
    let is_named = !text(name).is_empty();
    if is_named {
        let field = "spec.paramRef.name";
        for problem in names::path_segment(text(name), false) {
            errors.push(ApiFieldError::invalid(field, name, problem));
        }
        if !selector.is_null() {
            errors.push(ApiFieldError::forbidden(field, EXCLUSIVE));
        }
    }
    if !selector.is_null() {
        let field = "spec.paramRef.selector";
        label_selector::validate(field, selector, false, errors);
        if is_named {
            errors.push(ApiFieldError::forbidden(field, EXCLUSIVE));
        }
    }
    if !is_named && selector.is_null() {
        let detail = "one of name or selector must be specified";
        errors.push(ApiFieldError::required("spec.paramRef", detail));
    }
    let field = "spec.paramRef.parameterNotFoundAction";
    let action = &reference["parameterNotFoundAction"];
    if text(action).is_empty() {
        errors.push(ApiFieldError::required(field, ""));
    } else if !NOT_FOUND_ACTIONS.iter().any(|known| action == known) {
        let error = ApiFieldError::unsupported(field, action, &NOT_FOUND_ACTIONS);
        errors.push(error);
    }
}

fn validate_actions(actions: &Value, errors: &mut Vec<ApiFieldError>) {
    let field = "spec.validationActions";
    let mut known = HashSet::new();
    for (index, action) in items(actions) {
        let field = format!("{field}[{index}]");
        if !ACTIONS.iter().any(|one| action == one) {
            errors.push(ApiFieldError::unsupported(&field, action, &ACTIONS));
        }
        if !known.insert(text(action)) {
            errors.push(ApiFieldError::duplicate(&field, action));
        }
    }
    if known.contains("Deny") && known.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(ApiFieldError::invalid(field, actions, detail));
    }
    if known.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(ApiFieldError::required(field, detail));
    }
}
