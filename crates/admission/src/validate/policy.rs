//! Validation of policies: their structure, and their expressions by compiling them.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{items, match_resources, text};
use crate::{
    environment::{PolicyEnvironment, RESERVED},
    expression::{PolicyExpression, expression_types},
    pattern_limits,
};
use fairgate_cel::PatternBudget;
use fairgate_gotext::names;
use fairgate_objects::field_error::{ApiFieldError, MOST_ERROR_TEXT};

const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_CONDITIONS: usize = 64;
const MAX_ANNOTATIONS: usize = 20;
/// The maximum length in bytes of the expression of an audit annotation.
const MAX_VALUE_EXPRESSION: usize = 5 << 10;
const EMPTY: &str = "validations or auditAnnotations must contain at least one item";
const BLANK: &str = "must be non-empty if specified";

/// Compiles the expressions of one policy, and adds the errors in them.
struct Expressions {
    /// What the patterns of the policy may still take.
    patterns: PatternBudget,
    environment: PolicyEnvironment,
    /// What matchConditions see.
    conditions: PolicyEnvironment,
}

/// What an expression must evaluate to, and what it sees.
#[derive(Clone, Copy)]
enum Use {
    Condition,
    Validation,
    Message,
    Annotation,
}

/// The errors in a policy, which replaces `old` if that is given.
///
/// Which libraries expressions may use does not depend on `old`: the pinned release has none that a policy may only
/// use once it is stored.
pub fn validate(policy: &Value, old: Option<&Value>) -> Vec<ApiFieldError> {
    let spec = &policy["spec"];
    let mut errors = Vec::new();
    match &spec["failurePolicy"] {
        Value::Null => errors.push(ApiFieldError::required("spec.failurePolicy", "")),
        policy if FAILURE_POLICIES.iter().any(|known| policy == known) => {}
        policy => {
            let field = "spec.failurePolicy";
            errors.push(ApiFieldError::unsupported(field, policy, &FAILURE_POLICIES));
        }
    }
    let param_kind = &spec["paramKind"];
    if !param_kind.is_null() {
        validate_param_kind(param_kind, &mut errors);
    }
    let field = "spec.matchConstraints";
    let constraints = &spec["matchConstraints"];
    if constraints.is_null() {
        errors.push(ApiFieldError::required(field, ""));
    } else {
        match_resources::validate(field, constraints, &mut errors);
        if items(&constraints["resourceRules"]).next().is_none() {
            let field = "spec.matchConstraints.resourceRules";
            errors.push(ApiFieldError::required(field, ""));
        }
    }
    let has_params = !param_kind.is_null();
    let has_variables = items(&spec["variables"]).next().is_some();
    let mut expressions = Expressions {
        patterns: PatternBudget::new(pattern_limits::OF_POLICY),
        environment: PolicyEnvironment::of(has_params, has_variables),
        conditions: PolicyEnvironment::of(has_params, false),
    };
    let same = |member: &str| old.is_some_and(|old| old["spec"][member] == spec[member]);
    if !(same("paramKind") && same("matchConditions")) {
        expressions.validate_conditions(&spec["matchConditions"], &mut errors);
    }
    for (index, variable) in items(&spec["variables"]) {
        expressions.add_variable(&format!("spec.variables[{index}]"), variable, &mut errors);
    }
    let is_empty = |member: &str| items(&spec[member]).next().is_none();
    if is_empty("validations") && is_empty("auditAnnotations") {
        for field in ["spec.validations", "spec.auditAnnotations"] {
            errors.push(ApiFieldError::required(field, EMPTY));
        }
        return errors;
    }
    for (index, validation) in items(&spec["validations"]) {
        let at = format!("spec.validations[{index}]");
        expressions.validate_validation(&at, validation, &mut errors);
    }
    let name = text(&policy["metadata"]["name"]);
    expressions.validate_annotations(name, &spec["auditAnnotations"], &mut errors);
    errors
}

fn validate_param_kind(kind: &Value, errors: &mut Vec<ApiFieldError>) {
    let (field, api_version) = ("spec.paramKind.apiVersion", &kind["apiVersion"]);
    let whole = text(api_version);
    let mut invalid = |value: &Value, problems: Vec<String>| {
        if !problems.is_empty() {
            errors.push(ApiFieldError::invalid(field, value, problems.join(",")));
        }
    };
    match whole.split('/').collect::<Vec<_>>().as_slice() {
        _ if whole.is_empty() => errors.push(ApiFieldError::required(field, "")),
        [_, _, _, ..] => {
            let problem = format!("unexpected GroupVersion string: {whole}");
            invalid(api_version, vec![problem]);
        }
        parts => {
            let version = parts.last().copied().unwrap_or_default();
            let group = if parts.len() > 1 { parts[0] } else { "" };
            if !group.is_empty() {
                invalid(&json!(group), names::subdomain(group));
            }
            if version.is_empty() {
                invalid(api_version, vec!["version must be specified".to_owned()]);
            } else {
                invalid(&json!(version), names::service_label(version));
            }
        }
    }
    let (field, kind) = ("spec.paramKind.kind", &kind["kind"]);
    let problems = names::service_label(&text(kind).to_lowercase());
    if text(kind).is_empty() {
        errors.push(ApiFieldError::required(field, ""));
    } else if !problems.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.push(ApiFieldError::invalid(field, kind, detail));
    }
}

/// `[_a-zA-Z][_a-zA-Z0-9]*`, but no reserved word.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_start = |byte: u8| byte == b'_' || byte.is_ascii_alphabetic();
    bytes.next().is_some_and(is_start)
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && !RESERVED.contains(&name)
}

fn is_blank(value: &Value) -> bool {
    text(value).trim().is_empty()
}

impl Expressions {
    /// Adds the error in `expression`, if there is one. The error shows `shown` as the invalid value.
    fn check(
        &mut self,
        of: Use,
        expression: &str,
        field: &str,
        shown: &Value,
        errors: &mut Vec<ApiFieldError>,
    ) {
        let (environment, types) = match of {
            Use::Condition => (self.conditions.full(), expression_types::CONDITION),
            Use::Validation => (self.environment.full(), expression_types::CONDITION),
            Use::Message => (self.environment.unauthorized(), expression_types::MESSAGE),
            Use::Annotation => (self.environment.full(), expression_types::ANNOTATION),
        };
        let compiled =
            PolicyExpression::compile(environment, expression, types, &mut self.patterns);
        if let Err(problem) = compiled.program {
            errors.push(ApiFieldError::invalid(field, shown, problem.to_string()));
        }
    }

    fn validate_conditions(&mut self, conditions: &Value, errors: &mut Vec<ApiFieldError>) {
        let field = "spec.matchConditions";
        let count = items(conditions).count();
        if count > MAX_CONDITIONS {
            errors.push(ApiFieldError::too_many(field, count, MAX_CONDITIONS));
        }
        let mut known = HashSet::new();
        for (index, condition) in items(conditions) {
            let at = |member: &str| format!("{field}[{index}].{member}");
            let expression = text(&condition["expression"]).trim();
            if expression.is_empty() {
                errors.push(ApiFieldError::required(&at("expression"), ""));
            } else {
                let shown = json!(expression);
                self.check(
                    Use::Condition,
                    expression,
                    &at("expression"),
                    &shown,
                    errors,
                );
            }
            let name = &condition["name"];
            if text(name).is_empty() {
                errors.push(ApiFieldError::required(&at("name"), ""));
                continue;
            }
            for problem in names::qualified(text(name)) {
                errors.push(ApiFieldError::invalid(&at("name"), name, problem));
            }
            if !known.insert(text(name)) {
                errors.push(ApiFieldError::duplicate(&at("name"), name));
            }
        }
    }

    /// Adds the errors in a variable, which later expressions see.
    fn add_variable(&mut self, at: &str, variable: &Value, errors: &mut Vec<ApiFieldError>) {
        let field = format!("{at}.name");
        let name = &variable["name"];
        if text(name).is_empty() {
            errors.push(ApiFieldError::required(&field, "name is not specified"));
        } else if !is_identifier(text(name)) {
            let detail = "must be a valid CEL identifier";
            errors.push(ApiFieldError::invalid(&field, name, detail));
        }
        let field = format!("{at}.expression");
        let expression = &variable["expression"];
        if is_blank(expression) {
            let detail = "expression is not specified";
            errors.push(ApiFieldError::required(&field, detail));
            return;
        }
        let (environment, source) = (self.environment.full(), text(expression));
        let compiled = PolicyExpression::compile(environment, source, &[], &mut self.patterns);
        self.environment
            .add_variable(text(name), compiled.result_type());
        if let Err(problem) = compiled.program {
            errors.push(ApiFieldError::invalid(
                &field,
                expression,
                problem.to_string(),
            ));
        }
    }

    fn validate_validation(
        &mut self,
        at: &str,
        validation: &Value,
        errors: &mut Vec<ApiFieldError>,
    ) {
        let field = |member: &str| format!("{at}.{member}");
        let expression = &validation["expression"];
        if is_blank(expression) {
            let detail = "expression is not specified";
            errors.push(ApiFieldError::required(&field("expression"), detail));
        } else {
            let of = Use::Validation;
            self.check(
                of,
                text(expression),
                &field("expression"),
                expression,
                errors,
            );
        }
        let message = &validation["messageExpression"];
        if !text(message).is_empty() && is_blank(message) {
            let field = field("messageExpression");
            errors.push(ApiFieldError::invalid(&field, message, BLANK));
        } else if !is_blank(message) {
            let of = Use::Message;
            self.check(
                of,
                text(message),
                &field("messageExpression"),
                message,
                errors,
            );
        }
        let message = &validation["message"];
        if !text(message).is_empty() && is_blank(message) {
            errors.push(ApiFieldError::invalid(&field("message"), message, BLANK));
        } else if text(message).trim().contains(['\n', '\r']) {
            let detail = "must not contain line breaks";
            errors.push(ApiFieldError::invalid(&field("message"), message, detail));
        }
        let reason = &validation["reason"];
        if !reason.is_null() && !REASONS.iter().any(|known| reason == known) {
            let field = field("reason");
            errors.push(ApiFieldError::unsupported(&field, reason, &REASONS));
        }
    }

    fn validate_annotations(
        &mut self,
        policy: &str,
        annotations: &Value,
        errors: &mut Vec<ApiFieldError>,
    ) {
        let field = "spec.auditAnnotations";
        if items(annotations).count() > MAX_ANNOTATIONS {
            let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
            // The original prints the form that it works with.
            let items = items(annotations).map(
                |(_, one)| json!({"Key": one["key"], "ValueExpression": one["valueExpression"]}),
            );
            errors.push(ApiFieldError::invalid(field, &items.collect(), detail));
        }
        let (mut known, mut shown_bytes) = (HashSet::new(), 0);
        for (index, annotation) in items(annotations) {
            let at = |member: &str| format!("{field}[{index}].{member}");
            let key = &annotation["key"];
            if policy.is_empty() {
                let detail = "requires metadata.name be non-empty";
                errors.push(ApiFieldError::invalid(&at("key"), key, detail));
            } else {
                let whole = format!("{policy}/{}", text(key));
                // Each shows the name of the policy.
                for problem in names::qualified(&whole) {
                    if shown_bytes >= MOST_ERROR_TEXT {
                        break;
                    }
                    shown_bytes += whole.len();
                    errors.push(ApiFieldError::invalid(&at("key"), &json!(whole), problem));
                }
            }
            let (field, shown) = (at("valueExpression"), &annotation["valueExpression"]);
            let expression = text(shown).trim();
            if expression.is_empty() {
                let detail = "valueExpression is not specified";
                errors.push(ApiFieldError::required(&field, detail));
            } else if expression.len() > MAX_VALUE_EXPRESSION {
                let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
                errors.push(ApiFieldError::required(&field, detail));
            } else {
                self.check(Use::Annotation, expression, &field, shown, errors);
            }
            if !known.insert(text(key)) {
                errors.push(ApiFieldError::duplicate(&at("key"), key));
            }
        }
    }
}
