//! Query parameters, and the options of writes.
//!
//! Decoding follows kube-apiserver: the first value of a repeated key counts, a flag is true unless its
//! value is `0` or `false`, numbers are decimal. Options are validated after all of them were decoded, as
//! in kube-apiserver, because the two fail with different errors.

use serde_json::json;

use crate::status_error::StatusError;
use fairgate_core::digest::query_pairs;
use fairgate_gotext::{is_printable, parse_int};
use fairgate_objects::{codec::FieldValidation, field_error::ApiFieldError, metadata};

/// The decoded parameters of a query.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a raw query. Pairs that do not decode count as absent.
    pub fn parse(raw: &str) -> Self {
        Self(query_pairs(raw).collect())
    }

    /// The first value of `key`.
    pub fn first(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of `key`.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// A text; empty if absent.
    pub fn text(&self, key: &str) -> &str {
        self.first(key).unwrap_or_default()
    }

    /// A flag: true unless the value is `0` or `false`.
    pub fn flag(&self, key: &str) -> Option<bool> {
        let value = self.first(key)?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// An integer.
    ///
    /// # Errors
    ///
    /// 400, when it cannot be parsed.
    pub fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        let Some(text) = self.first(key) else {
            return Ok(None);
        };
        let number =
            parse_int(text).map_err(|error| StatusError::bad_request(error.to_string()))?;
        Ok(Some(number))
    }
}

/// The options of a write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Validate only; store nothing.
    pub dry_run: bool,
    /// The field manager; never empty.
    pub manager: String,
    /// How unknown and duplicate fields are handled.
    pub validation: FieldValidation,
    /// Whether an apply takes over fields of other managers.
    pub force: bool,
}

/// The type of a write; errors of its options name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `POST`
    Create,
    /// `PUT`
    Update,
    /// `PATCH`, with whether it applies.
    Patch {
        /// Whether it is an apply patch.
        apply: bool,
    },
}

impl WriteOptions {
    /// Reads the options of a write. Without `fieldManager`, the manager is the product in the user agent.
    ///
    /// # Errors
    ///
    /// 422 with all errors.
    pub fn read(query: &Query, write: Write, user_agent: &str) -> Result<Self, StatusError> {
        let mut errors = Vec::new();
        let named = query.text("fieldManager");
        let force = query.flag("force");
        if let Write::Patch { apply } = write {
            if apply && named.is_empty() {
                let detail = "is required for apply patch";
                errors.push(ApiFieldError::required("fieldManager", detail));
            } else if !apply && force.is_some() {
                let detail = "may not be specified for non-apply patch";
                errors.push(ApiFieldError::forbidden("force", detail));
            }
        }
        errors.extend(metadata::validate_manager(named, "fieldManager"));
        let dry_run = read_dry_run(query, &mut errors);
        let validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                errors.push(ApiFieldError::unsupported(
                    "fieldValidation",
                    &json!(other),
                    &["", "Ignore", "Strict", "Warn"],
                ));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            let kind = match write {
                Write::Create => "CreateOptions",
                Write::Update => "UpdateOptions",
                Write::Patch { .. } => "PatchOptions",
            };
            return Err(StatusError::invalid_options(kind, &errors));
        }
        Ok(Self {
            dry_run,
            manager: if named.is_empty() {
                manager_of(user_agent)
            } else {
                named.to_owned()
            },
            validation,
            force: force == Some(true),
        })
    }
}

fn read_dry_run(query: &Query, errors: &mut Vec<ApiFieldError>) -> bool {
    let values: Vec<&str> = query.all("dryRun").collect();
    check_dry_run(&values, errors);
    !values.is_empty()
}

/// Checks the values of `dryRun`.
pub fn check_dry_run(values: &[&str], errors: &mut Vec<ApiFieldError>) {
    if values.iter().any(|value| *value != "All") {
        errors.push(ApiFieldError::unsupported(
            "dryRun",
            &json!(values),
            &["All"],
        ));
    }
}

/// The field manager for a user agent: the part before the first slash.
pub fn manager_of(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in name.chars().filter(|c| is_printable(*c)) {
        if manager.len() + c.len_utf8() > metadata::MAX_MANAGER {
            break;
        }
        manager.push(c);
    }
    if manager.is_empty() {
        manager.push_str("unknown");
    }
    manager
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str, write: Write) -> Result<WriteOptions, String> {
        WriteOptions::read(&Query::parse(raw), write, "kubectl/v1.36 (linux)")
            .map_err(|fault| fault.message)
    }

    #[test]
    fn the_manager_is_the_program_unless_named() {
        assert_eq!(read("", Write::Create).unwrap().manager, "kubectl");
        let named = read("fieldManager=me", Write::Update).unwrap();
        assert_eq!(named.manager, "me");
        assert_eq!(manager_of(""), "unknown");
        assert_eq!(manager_of(&"ä".repeat(100)).len(), 128);
    }

    #[test]
    fn all_invalid_options_are_reported_at_once() {
        assert_eq!(
            read(
                "dryRun=true&fieldValidation=x&force=1",
                Write::Patch { apply: false }
            )
            .unwrap_err(),
            "PatchOptions.meta.k8s.io \"\" is invalid: [force: Forbidden: may not be specified for \
             non-apply patch, dryRun: Unsupported value: [\"true\"]: supported values: \"All\", \
             fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \
             \"Strict\", \"Warn\"]"
        );
        assert_eq!(
            read("", Write::Patch { apply: true }).unwrap_err(),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for \
             apply patch"
        );
    }

    #[test]
    fn numbers_and_flags_are_parsed_as_in_go() {
        let query = Query::parse("limit=abc&a=99999999999999999999&b=-5&w=&x=FALSE&x=1");
        assert_eq!(
            query.number("limit").unwrap_err().message,
            "strconv.ParseInt: parsing \"abc\": invalid syntax"
        );
        assert!(
            query
                .number("a")
                .unwrap_err()
                .message
                .ends_with("value out of range")
        );
        let query_of_controls = Query::parse("limit=%01%7F%C2%A0");
        assert_eq!(
            query_of_controls.number("limit").unwrap_err().message,
            "strconv.ParseInt: parsing \"\\x01\\x7f\\u00a0\": invalid syntax"
        );
        assert_eq!(query.number("b").unwrap(), Some(-5));
        assert_eq!(query.flag("w"), Some(true));
        assert_eq!(query.flag("x"), Some(false));
        assert_eq!(query.flag("y"), None);
    }
}
