//! What is checked of a deletion before policies are asked: its options, and its preconditions. A deletion without a body has them in its
//! query.
//!
//! Source: Kubernetes `apimachinery/pkg/apis/meta/v1/{validation,conversion.go}` and `apiserver/pkg/registry/rest/delete.go`.

use serde_json::{Map, Value, json};

use crate::{
    query::{self, Query},
    status_error::StatusError,
};
use fairgate_objects::{field_error::ApiFieldError, metadata};

/// The options that the query of a deletion without a body says, as such a body would say them. `grace_period_seconds` is read before, since
/// only that can be malformed.
pub fn options_in_query(query: &Query, grace_period_seconds: Option<i64>) -> Map<String, Value> {
    let mut options = Map::new();
    if let Some(seconds) = grace_period_seconds {
        options.insert("gracePeriodSeconds".to_owned(), json!(seconds));
    }
    if let Some(orphan) = query.flag("orphanDependents") {
        options.insert("orphanDependents".to_owned(), json!(orphan));
    }
    if let Some(policy) = query.first("propagationPolicy") {
        options.insert("propagationPolicy".to_owned(), json!(policy));
    }
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if !dry_run.is_empty() {
        options.insert("dryRun".to_owned(), json!(dry_run));
    }
    let mut preconditions = Map::new();
    for key in ["uid", "resourceVersion"] {
        // An empty one is none.
        if let Some(wanted) = query.first(key).filter(|wanted| !wanted.is_empty()) {
            preconditions.insert(key.to_owned(), json!(wanted));
        }
    }
    if !preconditions.is_empty() {
        options.insert("preconditions".to_owned(), preconditions.into());
    }
    options
}

/// Checks the options themselves.
///
/// # Errors
///
/// 422 with all that is wrong.
pub fn check_options(options: &Value) -> Result<(), StatusError> {
    let mut errors = Vec::new();
    let field = "propagationPolicy";
    let policy = &options["propagationPolicy"];
    if !options["orphanDependents"].is_null() && !policy.is_null() {
        errors.push(ApiFieldError::invalid(
            field,
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    let known = ["Foreground", "Background", "Orphan"];
    if let Some(policy) = policy.as_str()
        && !known.contains(&policy)
    {
        errors.push(ApiFieldError::unsupported(
            field,
            &json!(policy),
            &["Foreground", "Background", "Orphan", "nil"],
        ));
    }
    let dry_run: Vec<&str> = options["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    query::check_dry_run(&dry_run, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(StatusError::invalid_options("DeleteOptions", &errors))
    }
}

/// Checks whether the stored object is the one that the options name, by UID and resource version.
///
/// # Errors
///
/// 409.
pub fn check_preconditions(
    kind: &str,
    group: &str,
    live: &Value,
    options: &Value,
) -> Result<(), StatusError> {
    for (key, what, happened) in [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ] {
        let found = metadata::text(live, key);
        if let Some(wanted) = options["preconditions"][key].as_str()
            && wanted != found
        {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record \
                 ({found}). The object might have been {happened}"
            );
            let name = metadata::name(live);
            return Err(StatusError::conflict_of_kind(kind, group, name, &why));
        }
    }
    Ok(())
}
