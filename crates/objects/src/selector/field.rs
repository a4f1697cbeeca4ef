//! Field selectors: what fields must or must not equal.
//!
//! Terms `path=value`, `path==value` and `path!=value`, separated by commas, all of which must hold. In values
//! `\\`, `\,` and `\=` stand for the character after the backslash.

use smallvec::SmallVec;

use super::SelectorError;
use fairgate_core::digest::{FieldTermError, field_terms};
use fairgate_gotext::Quoted;

/// The fields that all hosted kinds can be selected by.
const KNOWN: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// A condition on the fields of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: SmallVec<[Term; 2]>,
}

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The path of the field, such as `metadata.name`.
    pub path: String,
    /// Whether the field must have the value; otherwise it must have any other.
    pub equal: bool,
    /// The value with which that of the field is compared.
    pub value: String,
}

impl FieldSelector {
    /// Reads a selector; the empty one selects everything.
    ///
    /// # Errors
    ///
    /// The server's text for the first term, in sorted order, that is malformed.
    pub fn parse(selector: &str) -> Result<Self, SelectorError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut terms = SmallVec::new();
        for term in field_terms(selector.as_bytes()) {
            let term = term.map_err(|error| SelectorError(message(selector, error)))?;
            if !term.field.is_empty() || !term.value.is_empty() {
                terms.push(Term {
                    path: text(term.field),
                    equal: term.equal,
                    value: text(&term.value),
                });
            }
        }
        Ok(Self { terms })
    }

    /// Checks that the fields are known. kube-apiserver does so after all other checks of the parameters.
    ///
    /// # Errors
    ///
    /// The server's text for the first field that is not `metadata.name` or `metadata.namespace`.
    pub fn check_fields(&self) -> Result<(), SelectorError> {
        let unknown = |term: &&Term| !KNOWN.contains(&term.path.as_str());
        let Some(term) = self.terms.iter().find(unknown) else {
            return Ok(());
        };
        let [name, namespace] = KNOWN.map(Quoted);
        let path = Quoted(&term.path);
        Err(SelectorError(format!(
            "{path} is not a known field selector: only {name}, {namespace}"
        )))
    }

    /// The terms, all of which must hold.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The value that a field must have, if some term requires one.
    pub fn required(&self, path: &str) -> Option<&str> {
        let term = self
            .terms
            .iter()
            .find(|term| term.equal && term.path == path);
        term.map(|term| term.value.as_str())
    }

    /// Whether the object is selected whose fields `field` returns. An absent field, such as the namespace of a
    /// cluster-scoped object, counts as empty.
    pub fn matches<'f>(&self, field: impl Fn(&str) -> Option<&'f str>) -> bool {
        self.terms
            .iter()
            .all(|term| term.equal == (field(&term.path).unwrap_or_default() == term.value))
    }

    /// Whether every object is selected, because nothing is required.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }
}

/// The server's text for a malformed term.
fn message(selector: &str, error: FieldTermError<'_>) -> String {
    match error {
        FieldTermError::NoOperator(term) => {
            let term = String::from_utf8_lossy(term);
            format!("invalid selector: '{selector}'; can't understand '{term}'")
        }
        FieldTermError::BadEscape(rest) => {
            let rest = String::from_utf8_lossy(rest);
            let escaped = rest.chars().next().map(String::from).unwrap_or_default();
            format!("invalid field selector: invalid escape sequence: \\{escaped}")
        }
        FieldTermError::Unescaped(byte) => {
            format!("invalid field selector: unescaped character in value: {byte}")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const GOLDENS: &str = include_str!("goldens.json");

    #[test]
    fn selectors_are_taken_and_refused_as_the_server_does() {
        let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
        for golden in goldens["fields"].as_array().unwrap() {
            let parsed = FieldSelector::parse(golden["selector"].as_str().unwrap())
                .and_then(|selector| selector.check_fields());
            let message = parsed.err().map(|error| error.to_string());
            assert_eq!(message.as_deref(), golden["message"].as_str(), "{golden}");
        }
    }

    #[test]
    fn every_term_must_hold() {
        let cases = [
            ("", true),
            ("=", true),
            ("metadata.name=a", true),
            ("metadata.name==a", true),
            ("metadata.name!=a", false),
            ("metadata.name=b", false),
            ("metadata.name=a,metadata.name!=b", true),
            ("metadata.name=a,metadata.name=b", false),
            ("metadata.namespace=", true),
            ("metadata.namespace=x", false),
            ("metadata.namespace!=x", true),
        ];
        for (text, expected) in cases {
            let selector = FieldSelector::parse(text).unwrap();
            let matches = selector.matches(|path| (path == "metadata.name").then_some("a"));
            assert_eq!(matches, expected, "{text}");
        }
    }

    #[test]
    fn the_required_name_is_the_first_in_sorted_order() {
        let required = |text: &str| {
            let selector = FieldSelector::parse(text).unwrap();
            selector.required("metadata.name").map(str::to_owned)
        };
        assert_eq!(
            required("metadata.name=b,metadata.name=a"),
            Some("a".into())
        );
        assert_eq!(required("metadata.name!=a"), None);
        assert_eq!(required(r"metadata.name=a\,\=\\"), Some(r"a,=\".into()));
        assert_eq!(required(""), None);
    }
}
