//! The metadata of an object: reading and setting its fields, and the rules for them.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};

use crate::{
    codec,
    field_error::{ApiFieldError, MOST_ERROR_TEXT, MOST_ERRORS},
    schema::meta_v1::OWNER_REFERENCE,
};
use fairgate_gotext::{Quoted, is_printable, names};

/// The limit for the sum of all annotations, in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// The longest name of a field manager, in bytes.
pub const MAX_MANAGER: usize = 128;
const MAX_SUBRESOURCE: usize = 256;

/// The object's metadata; empty if there is none.
pub fn of(object: &Value) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    object
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&NONE)
}

/// The object's metadata, to be changed. Whatever is not an object is replaced by an empty one.
///
/// # Panics
///
/// Never: it inserts what it expects.
pub fn of_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"]
        .as_object_mut()
        .expect("it was just made an object")
}

/// A text field of the metadata; empty if absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    of(object)
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The object's name.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// The object's generation; 0 if it has none.
pub fn generation(object: &Value) -> i64 {
    of(object)
        .get("generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// The object's finalizers.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    of(object)
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Whether its deletion has been requested.
pub fn is_deleting(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

/// One of its labels or annotations.
pub fn entry<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    of(object).get(map)?.get(key)?.as_str()
}

/// Sets a field, or removes it if the value is null or an empty string.
pub fn set(object: &mut Value, field: &str, value: Value) {
    let metadata = of_mut(object);
    if value.is_null() || value.as_str() == Some("") {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), value);
    }
}

/// Removes the fields that only the server sets when it creates an object.
pub fn wipe(object: &mut Value) {
    let metadata = of_mut(object);
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        metadata.remove(field);
    }
}

/// Removes duplicate owners, and returns the warning about them. `when` is a part of the warning.
pub fn dedup_owners(object: &mut Value, when: &str) -> Option<String> {
    let owners = of_mut(object).get_mut("ownerReferences")?.as_array_mut()?;
    let mut seen = HashSet::with_capacity(owners.len());
    let mut again = BTreeSet::new();
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if !is_new {
            again.insert(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_new
    });
    let again: Vec<String> = again.into_iter().collect();
    (!again.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner \
             references in 1.20+, and may reject such requests as early as 1.24; please fix your \
             requests; duplicate UID(s) observed: {}",
            again.join(", ")
        )
    })
}

/// Validates metadata by itself. `rule` is the kind's rule for names.
pub fn validate(
    object: &Value,
    namespaced: bool,
    rule: fn(&str, bool) -> Vec<String>,
) -> Vec<ApiFieldError> {
    let mut errors = Vec::new();
    let generate = text(object, "generateName");
    if !generate.is_empty() {
        let field = "metadata.generateName";
        errors.extend(
            rule(generate, true)
                .iter()
                .map(|text| ApiFieldError::invalid(field, &json!(generate), text)),
        );
    }
    let name = name(object);
    if name.is_empty() {
        let detail = "name or generateName is required";
        errors.push(ApiFieldError::required("metadata.name", detail));
    } else {
        errors.extend(
            rule(name, false)
                .iter()
                .map(|text| ApiFieldError::invalid("metadata.name", &json!(name), text)),
        );
    }
    check_namespace(object, namespaced, &mut errors);
    check_labels(object, &mut errors);
    check_annotations(object, &mut errors);
    check_owners(object, &mut errors);
    check_finalizers(object, &mut errors);
    check_managed_fields(object, &mut errors);
    errors
}

/// Validates metadata as an update of `old`.
pub fn validate_update(object: &Value, old: &Value) -> Vec<ApiFieldError> {
    let mut errors = Vec::new();
    if is_deleting(old) {
        let known: HashSet<&str> = finalizers(old).collect();
        let mut extra: Vec<&str> = finalizers(object)
            .filter(|one| !known.contains(one))
            .collect();
        extra.sort_unstable();
        extra.dedup();
        if !extra.is_empty() {
            // Go prints a slice of strings with `%#v` here.
            let extra: Vec<String> = extra.iter().map(|one| Quoted(one).to_string()).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new \
                 finalizers []string{{{}}}",
                extra.join(", ")
            );
            errors.push(ApiFieldError::forbidden("metadata.finalizers", detail));
        }
    }
    if text(object, "resourceVersion").is_empty() {
        errors.push(ApiFieldError::invalid(
            "metadata.resourceVersion",
            &json!(""),
            "must be specified for an update",
        ));
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (of(object).get(field), of(old).get(field));
        if new != old {
            let text = matches!(field, "name" | "namespace" | "uid");
            // Go shows an absent text as empty, and anything else that is absent as null.
            let absent = if text { json!("") } else { Value::Null };
            errors.push(ApiFieldError::invalid(
                &format!("metadata.{field}"),
                new.unwrap_or(&absent),
                "field is immutable",
            ));
        }
    }
    check_labels(object, &mut errors);
    check_annotations(object, &mut errors);
    check_owners(object, &mut errors);
    check_managed_fields(object, &mut errors);
    errors
}

fn check_namespace(object: &Value, namespaced: bool, errors: &mut Vec<ApiFieldError>) {
    let namespace = text(object, "namespace");
    let field = "metadata.namespace";
    if !namespaced {
        if !namespace.is_empty() {
            errors.push(ApiFieldError::forbidden(field, "not allowed on this type"));
        }
    } else if namespace.is_empty() {
        errors.push(ApiFieldError::required(field, ""));
    } else {
        errors.extend(
            names::label(namespace)
                .iter()
                .map(|text| ApiFieldError::invalid(field, &json!(namespace), text)),
        );
    }
}

fn entries<'a>(object: &'a Value, map: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    of(object)
        .get(map)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn check_labels(object: &Value, errors: &mut Vec<ApiFieldError>) {
    let field = "metadata.labels";
    for (key, value) in entries(object, "labels") {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        for text in names::qualified(key) {
            errors.push(ApiFieldError::invalid(field, &json!(key), text));
        }
        for text in names::label_value(value) {
            errors.push(ApiFieldError::invalid(field, &json!(value), text));
        }
    }
}

fn check_annotations(object: &Value, errors: &mut Vec<ApiFieldError>) {
    let field = "metadata.annotations";
    let mut total = 0;
    for (key, value) in entries(object, "annotations") {
        total += key.len() + value.len();
        // As Go's `ValidateAnnotations`, which lowers the key first: unlike a label's, its domain may have capital
        // letters.
        if errors.len() >= MOST_ERRORS {
            continue;
        }
        for text in names::qualified(&key.to_lowercase()) {
            errors.push(ApiFieldError::invalid(field, &json!(key), text));
        }
    }
    if total > MAX_ANNOTATIONS {
        errors.push(ApiFieldError::too_long(field, MAX_ANNOTATIONS));
    }
}

fn check_owners(object: &Value, errors: &mut Vec<ApiFieldError>) {
    let path = "metadata.ownerReferences";
    let Some(owners) = of(object).get("ownerReferences").and_then(Value::as_array) else {
        return;
    };
    let mut controller: Option<FirstController> = None;
    for owner in owners {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        let part = |key: &str| owner[key].as_str().unwrap_or_default();
        let api_version = part("apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        let well_formed = api_version.matches('/').count() < 2;
        if version.is_empty() || !well_formed {
            errors.push(ApiFieldError::invalid(
                &format!("{path}.apiVersion"),
                &json!(api_version),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if part(key).is_empty() {
                let field = format!("{path}.{key}");
                errors.push(ApiFieldError::invalid(
                    &field,
                    &json!(""),
                    "must not be empty",
                ));
            }
        }
        if api_version == "v1" && part("kind") == "Event" {
            errors.push(ApiFieldError::invalid(
                path,
                owner,
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if owner["controller"].as_bool() == Some(true) {
            let this = || format!("{}/{}", part("kind"), part("name"));
            match &mut controller {
                None => controller = Some(FirstController::new(this())),
                Some(first) => errors.extend(first.conflict(path, owners, this)),
            }
        }
    }
}

/// The first owner that controls an object. Further ones are errors, each of which shows it and all owners.
struct FirstController {
    named: String,
    owners: Option<String>,
    /// The bytes of these errors.
    text: usize,
}

impl FirstController {
    fn new(named: String) -> Self {
        Self {
            named,
            owners: None,
            text: 0,
        }
    }

    /// The error that another owner controls the object, too, unless there are enough of them.
    fn conflict(
        &mut self,
        path: &str,
        owners: &[Value],
        other: impl FnOnce() -> String,
    ) -> Option<ApiFieldError> {
        if self.text >= MOST_ERROR_TEXT {
            return None;
        }
        let (first, other) = (&self.named, other());
        let text = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {other}"
        );
        let owners = self.owners.get_or_insert_with(|| printed_owners(owners));
        self.text += text.len() + owners.len();
        let error = ApiFieldError::invalid(path, &Value::Null, text);
        Some(error.showing(owners.clone()))
    }
}

/// Checks that finalizers, except a few standard ones, are qualified with a domain.
pub(crate) fn check_finalizers_qualified(object: &Value) -> Vec<ApiFieldError> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let is_unqualified = |name: &str| !name.contains('/') && !STANDARD.contains(&name);
    finalizers(object)
        .enumerate()
        .filter(|(_, name)| is_unqualified(name))
        .take(MOST_ERRORS)
        .map(|(index, name)| {
            ApiFieldError::invalid(
                &format!("metadata.finalizers[{index}]"),
                &json!(name),
                "name is neither a standard finalizer name nor is it fully qualified",
            )
        })
        .collect()
}

/// Owners as error messages print them.
fn printed_owners(owners: &[Value]) -> String {
    let printed: Vec<String> = owners
        .iter()
        .map(|owner| {
            let text = codec::json::encode_part(&OWNER_REFERENCE, owner);
            String::from_utf8_lossy(&text).into_owned()
        })
        .collect();
    format!("[{}]", printed.join(","))
}

fn check_finalizers(object: &Value, errors: &mut Vec<ApiFieldError>) {
    let field = "metadata.finalizers";
    for finalizer in finalizers(object) {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        for text in names::qualified(finalizer) {
            errors.push(ApiFieldError::invalid(field, &json!(finalizer), text));
        }
    }
    let has = |wanted: &str| finalizers(object).any(|one| one == wanted);
    if has("orphan") && has("foregroundDeletion") {
        let all: Vec<&str> = finalizers(object).collect();
        errors.push(ApiFieldError::invalid(
            field,
            &json!(all),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

fn check_managed_fields(object: &Value, errors: &mut Vec<ApiFieldError>) {
    let Some(entries) = of(object).get("managedFields").and_then(Value::as_array) else {
        return;
    };
    for (index, entry) in entries.iter().enumerate() {
        if errors.len() >= MOST_ERRORS {
            break;
        }
        let path = format!("metadata.managedFields[{index}]");
        let part = |key: &str| entry[key].as_str().unwrap_or_default();
        if !["Apply", "Update"].contains(&part("operation")) {
            errors.push(ApiFieldError::invalid(
                &format!("{path}.operation"),
                &json!(part("operation")),
                "must be `Apply` or `Update`",
            ));
        }
        if !["", "FieldsV1"].contains(&part("fieldsType")) {
            errors.push(ApiFieldError::invalid(
                &format!("{path}.fieldsType"),
                &json!(part("fieldsType")),
                "must be `FieldsV1`",
            ));
        }
        errors.extend(validate_manager(
            part("manager"),
            &format!("{path}.manager"),
        ));
        if part("subresource").len() > MAX_SUBRESOURCE {
            errors.push(ApiFieldError::too_long(
                &format!("{path}.subresource"),
                MAX_SUBRESOURCE,
            ));
        }
    }
}

/// Validates the name of a field manager.
pub fn validate_manager(manager: &str, field: &str) -> Vec<ApiFieldError> {
    if manager.len() > MAX_MANAGER {
        // Each of its characters that is wrong, too, would show all of it.
        return vec![ApiFieldError::too_long(field, MAX_MANAGER)];
    }
    let mut errors = Vec::new();
    for (index, c) in manager.char_indices() {
        if !is_printable(c) {
            let detail = format!(
                "invalid character U+{:04X} (at position {index})",
                u32::from(c)
            );
            errors.push(ApiFieldError::invalid(field, &json!(manager), detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(errors: &[ApiFieldError]) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_name_is_required_and_a_namespace_is_not_for_the_cluster() {
        let object = json!({"metadata": {"namespace": "x"}});
        assert_eq!(
            texts(&validate(&object, false, names::object_name)),
            [
                "metadata.name: Required value: name or generateName is required",
                "metadata.namespace: Forbidden: not allowed on this type"
            ]
        );
    }

    #[test]
    fn changes_of_immutable_fields_are_reported() {
        let old = json!({"metadata": {"name": "a", "uid": "1", "resourceVersion": "5"}});
        let new = json!({"metadata": {"name": "a", "uid": "2", "resourceVersion": "5",
            "deletionTimestamp": "2020-01-01T00:00:00Z"}});
        assert_eq!(
            texts(&validate_update(&new, &old)),
            [
                "metadata.uid: Invalid value: \"2\": field is immutable",
                "metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field is immutable"
            ]
        );
    }

    /// Otherwise a body of a few kilobytes makes gigabytes of them.
    #[test]
    fn errors_that_show_the_same_again_and_again_are_bounded() {
        let manager = "\u{7f}".repeat(30_000);
        assert_eq!(validate_manager(&manager, "fieldManager").len(), 1);
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "n", "uid": "u", "controller": true});
        let long = "x".repeat(100_000);
        for first in ["n", &long] {
            let mut owners = vec![owner.clone(); 5_000];
            owners[0]["name"] = json!(first);
            let object = json!({"metadata": {"name": "a", "ownerReferences": owners}});
            let errors = validate(&object, false, names::object_name);
            let bytes: usize = texts(&errors).iter().map(String::len).sum();
            assert!(!errors.is_empty() && bytes < 4 * MOST_ERROR_TEXT, "{bytes}");
        }
    }

    /// Comparing each with each would take longer than anybody waits for a test.
    #[test]
    fn many_finalizers_are_compared_in_linear_time() {
        let with = |finalizer: &str| json!({"metadata": {"name": "a", "finalizers": vec![finalizer; 500_000]}});
        let (new, mut old) = (with("x/b"), with("x/a"));
        old["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        assert!(!validate_update(&new, &old).is_empty());
    }

    #[test]
    fn no_finalizer_is_added_to_an_object_under_deletion() {
        let old = json!({"metadata": {"name": "a", "resourceVersion": "5", "finalizers": ["x/a"],
            "deletionTimestamp": "2020-01-01T00:00:00Z"}});
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["x/b", "x/a"]);
        assert_eq!(
            texts(&validate_update(&new, &old)),
            [
                "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being \
              deleted, found new finalizers []string{\"x/b\"}"
            ]
        );
    }

    #[test]
    fn a_manager_has_only_characters_that_go_prints() {
        for manager in ["kubectl", "mine é", "a\u{301}"] {
            assert_eq!(texts(&validate_manager(manager, "manager")), [""; 0]);
        }
        for (manager, character) in [
            ("a\tb", "U+0009"),
            ("a\u{a0}b", "U+00A0"),
            ("a\u{200b}b", "U+200B"),
            ("a\u{e000}b", "U+E000"),
        ] {
            let errors = texts(&validate_manager(manager, "manager"));
            let detail = format!("invalid character {character} (at position 1)");
            assert!(
                errors.len() == 1 && errors[0].ends_with(&detail),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn duplicate_owners_are_removed() {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        let mut object = json!({"metadata": {"ownerReferences": [owner, owner]}});
        assert!(
            dedup_owners(&mut object, "")
                .unwrap()
                .ends_with("observed: u")
        );
        assert_eq!(of(&object)["ownerReferences"].as_array().unwrap().len(), 1);
        assert_eq!(dedup_owners(&mut object, ""), None);
    }
}
