//! Field selectors: what fields must or must not equal.
//!
//! Terms `path=value`, `path==value` and `path!=value`, separated by commas, all of which must hold.
//! In values `\\`, `\,` and `\=` stand for the character behind the backslash.

use smallvec::SmallVec;

use super::SelectorError;
use crate::go::Quoted;

/// The fields that all hosted kinds can be selected by.
const KNOWN: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Which objects, by their fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: SmallVec<[Term; 2]>,
}

/// What one field must or must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The field.
    pub path: String,
    /// Whether it must have the value, or any other.
    pub equal: bool,
    /// The value.
    pub value: String,
}

impl FieldSelector {
    /// Reads a selector; the empty one selects everything.
    ///
    /// # Errors
    ///
    /// The server's text for the first term, in sorted order, that is malformed.
    pub fn parse(selector: &str) -> Result<Self, SelectorError> {
        let mut parts = split_terms(selector);
        // The server sorts before it looks, so what it tells of does not depend on their order.
        parts.sort_unstable();
        let mut terms = SmallVec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let term = Term::parse(part)?.ok_or_else(|| {
                format!("invalid selector: '{selector}'; can't understand '{part}'")
            })?;
            if !term.path.is_empty() || !term.value.is_empty() {
                terms.push(term);
            }
        }
        Ok(Self { terms })
    }

    /// Looks at which fields are tested; upstream does so after all else that a call says of itself.
    ///
    /// # Errors
    ///
    /// The server's text for the first field that is not `metadata.name` or `metadata.namespace`.
    pub fn check_fields(&self) -> Result<(), SelectorError> {
        let unknown = |term: &&Term| !KNOWN.contains(&term.path.as_str());
        let Some(term) = self.terms.iter().find(unknown) else {
            return Ok(());
        };
        let [name, namespace] = KNOWN;
        let path = Quoted(&term.path);
        Err(SelectorError(format!(
            "{path} is not a known field selector: only {name:?}, {namespace:?}"
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

    /// Whether an object is selected whose fields `field` tells. A field that it does not have, such
    /// as the namespace of a cluster's object, counts as empty.
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

/// Splits at each comma that no backslash protects.
fn split_terms(selector: &str) -> SmallVec<[&str; 4]> {
    let mut protected = false;
    selector
        .split(|c| {
            let separates = c == ',' && !protected;
            protected = c == '\\' && !protected;
            separates
        })
        .collect()
}

impl Term {
    /// Reads one term; `None` if it has no operator.
    fn parse(term: &str) -> Result<Option<Self>, String> {
        let sign = |(at, _): &(usize, char)| {
            let rest = &term[*at..];
            rest.starts_with('=') || rest.starts_with("!=")
        };
        let Some((at, _)) = term.char_indices().find(sign) else {
            return Ok(None);
        };
        let (path, rest) = term.split_at(at);
        let (equal, value) = match rest.strip_prefix("!=") {
            Some(value) => (false, value),
            None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
        };
        Ok(Some(Self {
            path: path.to_owned(),
            equal,
            value: unescape(value)?,
        }))
    }
}

fn unescape(value: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => c,
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
            },
            ',' | '=' => {
                let number = u32::from(c);
                return Err(format!(
                    "invalid field selector: unescaped character in value: {number}"
                ));
            }
            _ => c,
        });
    }
    Ok(plain)
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
