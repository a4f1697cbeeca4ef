//! The three patches that change an object without owning fields: JSON patch (RFC 6902), JSON merge
//! patch (RFC 7396) and strategic merge patch.
//!
//! A patch works on the versioned JSON of an object and gives JSON that still has to be decoded, so
//! the result may be of any shape. All three follow the API server's libraries where these differ
//! from the standards, and are written out here for that reason: the crates there are know neither
//! the deviations, nor the bounds, nor what is reported to a strict caller.
//!
//! A patch costs at most about as much as its text and the object are long. Its result nests no
//! deeper than the parser lets a text nest, so that whatever walks it later needs no guard of its
//! own.
//!
//! Not here: server-side apply, decoding, and which status code a failure to decode has.

mod document;
mod json_patch;
mod merge_list;
mod merge_patch;
mod stable_sort;
mod strategic;

use std::borrow::Cow;

use serde_json::Value;

pub use json_patch::json_patch;
pub use merge_patch::merge_patch;
pub use strategic::strategic;

use crate::{codec::FieldValidation, go};

/// Why a patch does not apply. `Display` is the message of the response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// 400, reason `BadRequest`: the patch itself is malformed.
    #[error("{0}")]
    BadRequest(String),
    /// 413, reason `RequestEntityTooLarge`.
    #[error("Request entity too large: {0}")]
    TooLarge(String),
    /// 422, reason `Invalid`, empty details: the patch does not fit the object.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable,
    /// 422, reason `Invalid`: the patched object, as JSON, nests deeper than a text may, and why it cannot be read.
    #[error("patch: Invalid value: {patched}: {why}")]
    TooDeep {
        /// What failures quote as the invalid value, before quoting.
        patched: String,
        /// What reading it says.
        why: String,
    },
    /// 500 without a reason: errors for which upstream has no better status.
    #[error("{0}")]
    Internal(String),
}

/// A patched object, not yet decoded.
#[derive(Clone, Debug)]
pub struct Patched {
    /// The object.
    pub value: Value,
    /// What is reported to a strict caller about the patch's text, before what is reported about the result; empty
    /// if validation ignores it.
    pub problems: Vec<String>,
    /// The patch, if failures quote it and not the result.
    patch: Option<Value>,
}

impl Patched {
    /// What a failure to decode the result quotes as the invalid value, before quoting.
    pub fn quoted(&self) -> String {
        match &self.patch {
            Some(patch) => go::Plain(patch).to_string(),
            None => go::json(&self.value),
        }
    }
}

/// Prefixes the problems in a patch's text as the server does in strict validation.
fn undecodable(validation: FieldValidation, why: impl std::fmt::Display) -> PatchError {
    PatchError::BadRequest(match validation {
        FieldValidation::Ignore => why.to_string(),
        FieldValidation::Warn | FieldValidation::Strict => format!("error decoding patch: {why}"),
    })
}

/// The failure of a decoder that wants another type.
fn mismatch(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into Go {wanted}")
}

/// The problems of a patch's text, unless validation ignores them.
fn unless_ignored(problems: Vec<String>, validation: FieldValidation) -> Vec<String> {
    match validation {
        FieldValidation::Ignore => Vec::new(),
        FieldValidation::Warn | FieldValidation::Strict => problems,
    }
}

/// Resolves `~1` and `~0` in a token of a JSON pointer; any other `~` stands for itself.
fn unescape(token: &str) -> Cow<'_, str> {
    if token.contains('~') {
        // No `~` is left of `~1` before `~0` is looked for, so `~01` means `~1`.
        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(token)
    }
}

#[cfg(test)]
mod tests;
