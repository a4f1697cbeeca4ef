//! Which requests a policy or a binding is about: rules, selectors, scope.

use std::collections::HashSet;

use serde_json::Value;

use super::{items, text};
use fairgate_gotext::names;
use fairgate_objects::{
    field_error::{ApiFieldError, MOST_ERRORS},
    label_selector,
};

const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// Adds the errors in the match resources at `at`, which have their defaults.
pub(super) fn validate(at: &str, resources: &Value, errors: &mut Vec<ApiFieldError>) {
    if resources.is_null() {
        return;
    }
    let field = format!("{at}.matchPolicy");
    match &resources["matchPolicy"] {
        Value::Null => errors.push(ApiFieldError::required(&field, "")),
        policy if MATCH_POLICIES.iter().any(|known| policy == known) => {}
        policy => errors.push(ApiFieldError::unsupported(&field, policy, &MATCH_POLICIES)),
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        let field = format!("{at}.{selector}");
        match &resources[selector] {
            Value::Null => errors.push(ApiFieldError::required(&field, "")),
            selector => label_selector::validate(&field, selector, false, errors),
        }
    }
    for rules in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in items(&resources[rules]) {
            validate_rule(&format!("{at}.{rules}[{index}]"), rule, errors);
        }
    }
}

fn validate_rule(at: &str, rule: &Value, errors: &mut Vec<ApiFieldError>) {
    let mut names = HashSet::new();
    for (index, name) in items(&rule["resourceNames"]) {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        let field = format!("{at}.resourceNames[{index}]");
        for problem in names::path_segment(text(name), false) {
            errors.push(ApiFieldError::invalid(&field, name, problem));
        }
        if !names.insert(text(name)) {
            errors.push(ApiFieldError::duplicate(&field, name));
        }
    }
    let what = [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ];
    for (member, called) in what {
        let field = format!("{at}.{member}");
        let list = &rule[member];
        let count = items(list).count();
        if count == 0 {
            errors.push(ApiFieldError::required(&field, ""));
        }
        if count > 1 && items(list).any(|(_, item)| item == "*") {
            let detail = format!("if '*' is present, must not specify other {called}");
            errors.push(ApiFieldError::invalid(&field, list, detail));
        }
        for (index, item) in items(list) {
            if errors.len() >= MOST_ERRORS {
                return;
            }
            let field = format!("{field}[{index}]");
            match member {
                "operations" if !OPERATIONS.iter().any(|known| item == known) => {
                    errors.push(ApiFieldError::unsupported(&field, item, &OPERATIONS));
                }
                "apiVersions" if text(item).is_empty() => {
                    errors.push(ApiFieldError::required(&field, ""));
                }
                _ => {}
            }
        }
    }
    validate_resources(&format!("{at}.resources"), &rule["resources"], errors);
    let scope = &rule["scope"];
    if !scope.is_null() && !SCOPES.iter().any(|known| scope == known) {
        let field = format!("{at}.scope");
        errors.push(ApiFieldError::unsupported(&field, scope, &SCOPES));
    }
}

/// Patterns such as `pods`, `pods/*` and `*/scale` may not overlap by a wildcard.
fn validate_resources(at: &str, resources: &Value, errors: &mut Vec<ApiFieldError>) {
    if items(resources).next().is_none() {
        errors.push(ApiFieldError::required(at, ""));
    }
    // The resources of patterns `resource/*`, and the subresources of patterns `*/subresource`.
    let (mut whole, mut everywhere) = (HashSet::new(), HashSet::new());
    // Of all patterns without a slash the last decides, as in the original.
    let mut last_without_slash = None;
    for (index, pattern) in items(resources) {
        if errors.len() >= MOST_ERRORS {
            return;
        }
        let field = format!("{at}[{index}]");
        let name = text(pattern);
        if name.is_empty() {
            errors.push(ApiFieldError::required(&field, ""));
            continue;
        }
        let Some((resource, subresource)) = name.split_once('/') else {
            last_without_slash = Some(name);
            continue;
        };
        if whole.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.push(ApiFieldError::invalid(&field, pattern, detail));
        }
        if everywhere.contains(subresource) {
            let detail = format!("if '*/{subresource}' is present, must not specify {name}");
            errors.push(ApiFieldError::invalid(&field, pattern, detail));
        }
        if subresource == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(subresource);
        }
    }
    let has = |pattern: &str| items(resources).any(|(_, item)| item == pattern);
    if items(resources).count() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(ApiFieldError::invalid(at, resources, detail));
    }
    if has("*") && last_without_slash.is_some_and(|name| name != "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(ApiFieldError::invalid(at, resources, detail));
    }
}
