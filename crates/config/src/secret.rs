//! Values that must not be printed, in logs, messages or debug output.

use std::{fmt, ops::Deref};

use serde_json::Value;

use crate::url::without_credentials;

/// A value that prints as `<secret>`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A text of a file that may be a secret, wherever it stands, and what messages show in its place.
#[derive(Clone, Debug)]
pub(super) struct SecretText {
    pub(super) written: String,
    pub(super) shown: String,
}

/// The texts in the value of a key that may be secrets, each as it is and as it is written in quotes: URLs with a user, keys, tokens, and a password in
/// place of the name of its file.
pub(super) fn secrets_of(key: &str, value: &Value) -> Vec<SecretText> {
    match value {
        Value::Array(items) => items
            .iter()
            .flat_map(|item| secrets_of(key, item))
            .collect(),
        Value::Object(members) => members
            .iter()
            .flat_map(|(key, member)| secrets_of(key, member))
            .collect(),
        Value::String(text) => {
            let has_user = text
                .split_once(':')
                .is_some_and(|(_, rest)| rest.contains('@'));
            // Of fewer letters it could be a part of any word.
            let is_password = key == "passwordFile" && !text.contains(['/', '.']) && text.len() > 3;
            let shown = if text.contains("-----BEGIN") || text.starts_with("eyJ") || is_password {
                "<secret>".to_owned()
            } else if has_user {
                without_credentials(text)
            } else {
                return Vec::new();
            };
            let quoted = value.to_string();
            let quoted = quoted.trim_matches('"').to_owned();
            let secret = |written: String| SecretText {
                written,
                shown: shown.clone(),
            };
            let forms = [text.clone(), quoted].map(secret);
            forms
                .into_iter()
                .filter(|secret| !secret.written.is_empty())
                .collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "<secret>");
    }
}
