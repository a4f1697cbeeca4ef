//! Validation of policy objects: every check an API server makes on a write, all at once.
//!
//! Field paths and texts are those of the API server, because they are part of its interface. The
//! objects are v1, with defaults filled in.

mod level;
mod schema;

use std::{collections::BTreeSet, fmt};

use k8s_openapi::{
    api::flowcontrol::v1::{
        FlowSchema, FlowSchemaSpec, PriorityLevelConfiguration, PriorityLevelConfigurationSpec,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;

use super::{bootstrap, v1beta3::PRESERVE_ZERO_SHARES};
use fairgate_gotext::names;

/// The verbs a rule may name besides `*`, in alphabetical order.
pub const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

/// What to do about a value that is none of the supported ones.
const ONE_OF_THEM: &str = "use one of them";

// The limits of kube-apiserver.
const MAX_PRECEDENCE: i32 = 10_000;
const MAX_QUEUES: i32 = 10_000_000;

/// The type of a field's error, in kube-apiserver's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorType {
    /// The field is required.
    Required,
    /// The value is not valid.
    Invalid,
    /// The value is not one of the supported ones.
    Unsupported,
    /// The value occurs twice.
    Duplicate,
    /// The field must be absent.
    Forbidden,
}

impl fmt::Display for FieldErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::Unsupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
        })
    }
}

/// One mistake in one field. `Display` is the API server's text without the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path, such as `spec.rules[0].subjects[1].kind`.
    pub field: String,
    /// The type of the error.
    pub mistake: FieldErrorType,
    /// The value as JSON; empty for types that print none.
    pub value: String,
    /// What is wrong with it; may be empty.
    pub detail: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mistake.fmt(f)?;
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                write!(f, ": {part}")?;
            }
        }
        Ok(())
    }
}

/// Everything wrong with a FlowSchema, in the order of its fields.
pub fn flow_schema(object: &FlowSchema) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let absent = FlowSchemaSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&absent);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    check_metadata(&object.metadata, &mut errors);
    schema::check_schema_spec(name, spec, &mut errors);
    if bootstrap::is_mandatory(name)
        && let Some(fixed) = bootstrap::flow_schema(name)
        && !same_schema_spec(Some(spec), fixed.spec.as_ref())
    {
        errors.invalid(
            "spec",
            spec,
            &format!("spec of '{name}' must equal the fixed value"),
            "leave the object out; it is built in",
        );
    }
    let conditions = object.status.iter().flat_map(|s| s.conditions.iter());
    check_conditions(
        conditions.flatten().map(|c| c.type_.as_deref()),
        &mut errors,
    );
    errors.0
}

/// Everything wrong with a priority level, in the order of its fields.
pub fn priority_level(object: &PriorityLevelConfiguration) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let absent = PriorityLevelConfigurationSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&absent);
    let name = object.metadata.name.as_deref().unwrap_or_default();
    check_metadata(&object.metadata, &mut errors);
    let annotations = object.metadata.annotations.as_ref();
    if annotations.is_some_and(|all| all.contains_key(PRESERVE_ZERO_SHARES)) {
        errors.forbidden(
            "metadata.annotations",
            &format!("annotation '{PRESERVE_ZERO_SHARES}' is forbidden"),
        );
    }
    level::check_level_spec(name, spec, &mut errors);
    level::check_fixed_level(name, spec, &mut errors);
    let conditions = object.status.iter().flat_map(|s| s.conditions.iter());
    check_conditions(
        conditions.flatten().map(|c| c.type_.as_deref()),
        &mut errors,
    );
    errors.0
}

/// Whether two specs mean the same: an absent list is an empty one, an absent flag is false.
pub(super) fn same_schema_spec(a: Option<&FlowSchemaSpec>, b: Option<&FlowSchemaSpec>) -> bool {
    // The server compares with `equality.Semantic`, for which a nil slice equals an empty one.
    fn plain(spec: Option<&FlowSchemaSpec>) -> FlowSchemaSpec {
        let mut spec = spec.cloned().unwrap_or_default();
        for rule in spec.rules.get_or_insert_default() {
            rule.non_resource_rules.get_or_insert_default();
            for resource in rule.resource_rules.get_or_insert_default() {
                resource.namespaces.get_or_insert_default();
                resource.cluster_scope.get_or_insert(false);
            }
        }
        spec
    }
    plain(a) == plain(b)
}

fn check_metadata(metadata: &ObjectMeta, errors: &mut Errors) {
    match metadata.name.as_deref() {
        None | Some("") => errors.required(
            "metadata.name",
            "name or generateName is required",
            "give the object a name",
        ),
        Some(name) => {
            for text in names::subdomain(name) {
                errors.invalid("metadata.name", name, &text, "rename the object");
            }
        }
    }
}

fn check_conditions<'a>(types: impl Iterator<Item = Option<&'a str>>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, kind) in types.enumerate() {
        let kind = kind.unwrap_or_default();
        let field = format!("status.conditions[{i}].type");
        if !seen.insert(kind) {
            errors.push(
                &field,
                FieldErrorType::Duplicate,
                json(kind),
                "",
                "remove one of them",
            );
        }
        if kind.is_empty() {
            errors.required(&field, "", "leave the status out");
        }
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// So many errors say enough: a value of a few bytes may be wrong in several ways, and each is told in hundreds.
const MOST_ERRORS: usize = 10_000;

#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn push(
        &mut self,
        field: &str,
        mistake: FieldErrorType,
        value: String,
        detail: &str,
        remedy: &str,
    ) {
        if self.0.len() >= MOST_ERRORS {
            return;
        }
        self.0.push(FieldError {
            field: field.to_owned(),
            mistake,
            value,
            detail: detail.to_owned(),
            remedy: remedy.to_owned(),
        });
    }

    fn required(&mut self, field: &str, detail: &str, remedy: &str) {
        self.push(
            field,
            FieldErrorType::Required,
            String::new(),
            detail,
            remedy,
        );
    }

    fn forbidden(&mut self, field: &str, detail: &str) {
        self.forbidden_with(field, detail, "remove it");
    }

    fn forbidden_with(&mut self, field: &str, detail: &str, remedy: &str) {
        self.push(
            field,
            FieldErrorType::Forbidden,
            String::new(),
            detail,
            remedy,
        );
    }

    fn invalid<T: Serialize + ?Sized>(
        &mut self,
        field: &str,
        value: &T,
        detail: &str,
        remedy: &str,
    ) {
        self.push(field, FieldErrorType::Invalid, json(value), detail, remedy);
    }

    fn unsupported<T: Serialize + ?Sized>(&mut self, field: &str, value: &T, known: &[&str]) {
        self.unsupported_with(field, value, known, ONE_OF_THEM);
    }

    fn unsupported_with<T: Serialize + ?Sized>(
        &mut self,
        field: &str,
        value: &T,
        known: &[&str],
        remedy: &str,
    ) {
        let quoted: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        self.push(
            field,
            FieldErrorType::Unsupported,
            json(value),
            &detail,
            remedy,
        );
    }
}

#[cfg(test)]
mod tests;
