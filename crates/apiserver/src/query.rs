//! The parameters of a call's query, and the options they make.
//!
//! Decoding follows the API server: the first value of a repeated key counts, a flag is true unless
//! it says `0` or `false`, numbers are base ten. Checking comes after decoding, as there, since the
//! two fail differently.

use serde_json::json;

use crate::status_error::StatusError;
use fairgate_core::digest::query_pairs;
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

    /// A flag: whatever is not `0` or `false` means yes.
    pub fn flag(&self, key: &str) -> Option<bool> {
        let value = self.first(key)?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A whole number.
    ///
    /// # Errors
    ///
    /// 400, when it is none.
    pub fn number(&self, key: &str) -> Result<Option<i64>, StatusError> {
        let Some(text) = self.first(key) else {
            return Ok(None);
        };
        parse_number(text)
            .map(Some)
            .map_err(StatusError::bad_request)
    }
}

/// A number as Go reads it.
fn parse_number(text: &str) -> Result<i64, String> {
    let wrong = |why: &str| format!("strconv.ParseInt: parsing {text:?}: {why}");
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong("invalid syntax"));
    }
    text.parse().map_err(|_| wrong("value out of range"))
}

/// What a write may be told.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Nothing is stored.
    pub dry_run: bool,
    /// Who writes; never empty.
    pub manager: String,
    /// How unknown fields are taken.
    pub validation: FieldValidation,
    /// Whether an apply takes fields from others.
    pub force: bool,
}

/// The sort of a write, as option errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
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
    /// Reads the options of a write; the manager is that of the user agent if none is named.
    ///
    /// # Errors
    ///
    /// 422 with everything that is wrong.
    pub(crate) fn read(query: &Query, write: Write, user_agent: &str) -> Result<Self, StatusError> {
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
pub(crate) fn check_dry_run(values: &[&str], errors: &mut Vec<ApiFieldError>) {
    if values.iter().any(|value| *value != "All") {
        errors.push(ApiFieldError::unsupported(
            "dryRun",
            &json!(values),
            &["All"],
        ));
    }
}

/// The manager that a user agent stands for: what comes before the first slash.
fn manager_of(user_agent: &str) -> String {
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut manager = String::new();
    for c in name.chars().filter(|c| metadata::is_printable(*c)) {
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
    fn options_that_cannot_be_are_told_all_at_once() {
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
    fn numbers_and_flags_are_read_as_go_reads_them() {
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
        assert_eq!(query.number("b").unwrap(), Some(-5));
        assert_eq!(query.flag("w"), Some(true));
        assert_eq!(query.flag("x"), Some(false));
        assert_eq!(query.flag("y"), None);
    }
}
