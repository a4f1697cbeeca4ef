//! An error in one field of an object or option, with kube-apiserver's messages.

use std::fmt;

use serde_json::{Value, json};

use fairgate_core::apf::objects::validate;
use fairgate_gotext::Quoted;

/// The type of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiErrorType {
    /// A value is required and missing.
    Required,
    /// The value is malformed or out of range.
    Invalid,
    /// The value is of another type.
    TypeInvalid,
    /// The value is not one of an enumeration.
    Unsupported,
    /// The value must be unique in its list.
    Duplicate,
    /// The field may not be set here.
    Forbidden,
    /// The value has too many bytes.
    TooLong,
    /// The list has too many items.
    TooMany,
    /// What the value refers to does not exist.
    NotFound,
    /// The value could not be checked.
    Internal,
}

impl ApiErrorType {
    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Unsupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Unsupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }
}

/// So many bytes of errors say enough: a client may send thousands of mistakes, and values that are shown with each of them.
pub const MOST_ERROR_TEXT: usize = 256 << 10;

/// So many errors say enough, however short they are: a value of a few bytes may be wrong in several ways, and each is told in hundreds.
pub const MOST_ERRORS: usize = 10_000;

/// An error in one field. `Display` gives the whole text, including the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiFieldError {
    /// The field's path, such as `spec.rules[0].subjects`.
    pub field: String,
    /// The type of the error.
    pub(crate) mistake: ApiErrorType,
    /// The value as kube-apiserver prints it; empty for types that print none.
    pub value: String,
    /// What is wrong with it; may be empty.
    pub detail: String,
}

impl ApiFieldError {
    fn new(mistake: ApiErrorType, field: &str, value: String, detail: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            mistake,
            value,
            detail: detail.into(),
        }
    }

    /// The field is required.
    pub fn required(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ApiErrorType::Required, field, String::new(), detail)
    }

    /// The value is invalid.
    pub fn invalid(field: &str, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(ApiErrorType::Invalid, field, printed(value), detail)
    }

    /// The result of a patch is not an object; `quoted` is the patched text.
    pub fn patched(quoted: &str, detail: impl Into<String>) -> Self {
        let value = Value::String(quoted.to_owned());
        Self::new(ApiErrorType::Invalid, "patch", printed(&value), detail)
    }

    /// The same error, with another text for the value.
    #[must_use]
    pub(crate) fn showing(mut self, value: String) -> Self {
        self.value = value;
        self
    }

    /// The field must not be set.
    pub fn forbidden(field: &str, detail: impl Into<String>) -> Self {
        Self::new(ApiErrorType::Forbidden, field, String::new(), detail)
    }

    /// The value is longer than `limit` bytes.
    pub fn too_long(field: &str, limit: usize) -> Self {
        let detail = format!("may not be more than {limit} bytes");
        Self::new(ApiErrorType::TooLong, field, String::new(), detail)
    }

    /// The list has `count` items, and may have `limit`, which is not 1.
    pub fn too_many(field: &str, count: usize, limit: usize) -> Self {
        let detail = format!("must have at most {limit} items");
        Self::new(ApiErrorType::TooMany, field, count.to_string(), detail)
    }

    /// The value occurs twice.
    pub fn duplicate(field: &str, value: &Value) -> Self {
        Self::new(ApiErrorType::Duplicate, field, printed(value), "")
    }

    /// The value is not one of those that are supported.
    pub fn unsupported(field: &str, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported
            .iter()
            .map(|one| Quoted(one).to_string())
            .collect();
        let detail = format!("supported values: {}", supported.join(", "));
        Self::new(ApiErrorType::Unsupported, field, printed(value), detail)
    }

    /// The text without the field.
    pub fn message(&self) -> String {
        let mut text = self.mistake.words().to_owned();
        for part in [&self.value, &self.detail] {
            if !part.is_empty() {
                text.push_str(": ");
                text.push_str(part);
            }
        }
        text
    }

    /// The cause in a `Status`.
    pub fn cause(&self) -> Value {
        json!({"reason": self.mistake.reason(), "message": self.message(), "field": self.field})
    }
}

/// A value as the server prints it: strings quoted, everything else as compact JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => Quoted(text).to_string(),
        _ => value.to_string(),
    }
}

impl fmt::Display for ApiFieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

impl From<validate::FieldError> for ApiFieldError {
    fn from(error: validate::FieldError) -> Self {
        let mistake = match error.mistake {
            validate::FieldErrorType::Required => ApiErrorType::Required,
            validate::FieldErrorType::Invalid => ApiErrorType::Invalid,
            validate::FieldErrorType::Unsupported => ApiErrorType::Unsupported,
            validate::FieldErrorType::Duplicate => ApiErrorType::Duplicate,
            validate::FieldErrorType::Forbidden => ApiErrorType::Forbidden,
        };
        Self {
            field: error.field,
            mistake,
            value: error.value,
            detail: error.detail,
        }
    }
}
