//! Field selectors: what fields must or must not equal.
//!
//! Terms `path=value`, `path==value` and `path!=value`, separated by commas, all of which must hold. In values
//! `\\`, `\,` and `\=` stand for the character after the backslash.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::SelectorError;
use fairgate_core::digest::{FieldTerm, FieldTermError, field_terms};
use fairgate_gotext::Quoted;

/// The fields that all hosted kinds can be selected by.
const KNOWN: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// A condition on the fields of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    /// What is required of each field, by path.
    fields: SmallVec<[FieldDemand; 1]>,
    /// The first field, in the sorted order of the terms, that not all hosted kinds have.
    unknown: Option<String>,
}

/// What all terms about one field require. A selector may have thousands of terms, and an object costs one look-up for all of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FieldDemand {
    /// The path of the field, such as `metadata.name`.
    path: String,
    /// The value that it must have: the first of them, in sorted order.
    value: Option<String>,
    /// Whether it must have another value, too, which no object meets.
    is_contradictory: bool,
    /// Values that it must not have.
    others: BTreeSet<String>,
}

impl FieldSelector {
    /// Reads a selector; the empty one selects everything.
    ///
    /// # Errors
    ///
    /// The server's text for the first term, in sorted order, that is malformed.
    pub fn parse(selector: &str) -> Result<Self, SelectorError> {
        let mut terms: SmallVec<[FieldTerm<'_>; 2]> = SmallVec::new();
        for term in field_terms(selector.as_bytes()) {
            let term = term.map_err(|error| SelectorError(message(selector, error)))?;
            if !term.field.is_empty() || !term.value.is_empty() {
                terms.push(term);
            }
        }
        let is_unknown =
            |term: &&FieldTerm<'_>| !KNOWN.iter().any(|path| path.as_bytes() == term.field);
        let unknown = terms.iter().find(is_unknown).map(|term| text(term.field));
        // Stable, so the terms of a field stay in their order.
        terms.sort_by(|a, b| a.field.cmp(b.field));
        let of_field = terms.chunk_by(|a, b| a.field == b.field);
        Ok(Self {
            fields: of_field.map(FieldDemand::of).collect(),
            unknown,
        })
    }

    /// Checks that the fields are known. kube-apiserver does so after all other checks of the parameters.
    ///
    /// # Errors
    ///
    /// The server's text for the first field that is not `metadata.name` or `metadata.namespace`.
    pub fn check_fields(&self) -> Result<(), SelectorError> {
        let Some(path) = &self.unknown else {
            return Ok(());
        };
        let [name, namespace] = KNOWN.map(Quoted);
        let path = Quoted(path);
        Err(SelectorError(format!(
            "{path} is not a known field selector: only {name}, {namespace}"
        )))
    }

    /// The value that a field must have, if some term requires one.
    pub fn required(&self, path: &str) -> Option<&str> {
        let field = self.fields.iter().find(|field| field.path == path)?;
        field.value.as_deref()
    }

    /// Whether the object is selected whose fields `field` returns. An absent field, such as the namespace of a
    /// cluster-scoped object, counts as empty. It costs a look-up for each field that the selector names, however many terms there are.
    pub fn matches<'f>(&self, field: impl Fn(&str) -> Option<&'f str>) -> bool {
        let mut fields = self.fields.iter();
        fields.all(|demand| demand.holds(field(&demand.path).unwrap_or_default()))
    }

    /// Whether every object is selected, because nothing is required.
    pub fn is_everything(&self) -> bool {
        self.fields.is_empty()
    }
}

impl FieldDemand {
    /// What these terms require, which are all about the same field.
    fn of(terms: &[FieldTerm<'_>]) -> Self {
        let mut demand = Self {
            path: terms
                .first()
                .map(|term| text(term.field))
                .unwrap_or_default(),
            ..Self::default()
        };
        for term in terms {
            let value = text(&term.value);
            if !term.equal {
                demand.others.insert(value);
            } else if let Some(first) = &demand.value {
                demand.is_contradictory |= *first != value;
            } else {
                demand.value = Some(value);
            }
        }
        demand
    }

    fn holds(&self, value: &str) -> bool {
        !self.is_contradictory
            && self.value.as_ref().is_none_or(|only| only == value)
            && !self.others.contains(value)
    }
}

/// A part of the selector, which is UTF-8.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
    use std::cell::Cell;

    use proptest::prelude::*;
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

    proptest! {
        #[test]
        fn terms_mean_the_same_one_by_one(
            terms in prop::collection::vec(("[a-c]", prop::bool::ANY, "[xy]?"), 0..6),
            fields in prop::collection::btree_map("[a-c]", "[xy]?", 0..4),
        ) {
            let written = |(path, equal, value): &(String, bool, String)| {
                format!("{path}{}{value}", if *equal { "=" } else { "!=" })
            };
            let mut texts: Vec<String> = terms.iter().map(written).collect();
            let selector = FieldSelector::parse(&texts.join(",")).unwrap();
            let field = |path: &str| fields.get(path).map(String::as_str);
            let expected = terms.iter().all(|(path, equal, value)| {
                *equal == (field(path).unwrap_or_default() == value)
            });
            prop_assert_eq!(selector.matches(field), expected);
            prop_assert_eq!(selector.is_everything(), terms.is_empty());
            texts.sort();
            let required = texts.iter().find_map(|text| text.strip_prefix("a="));
            prop_assert_eq!(selector.required("a"), required);
            let first = texts.first().map(|text| format!("\"{}\" is not", &text[..1]));
            let message = selector.check_fields().err().map(|error| error.0);
            prop_assert_eq!(message.is_some(), first.is_some());
            prop_assert!(message.is_none_or(|message| first.is_some_and(|first| message.starts_with(&first))));
        }
    }

    #[test]
    fn an_object_costs_one_look_up_for_each_field_that_terms_name() {
        let join = |term: &dyn Fn(usize) -> String, count: usize| {
            let terms: Vec<String> = (0..count).map(term).collect();
            terms.join(",")
        };
        let name_is_not = |n: usize| format!("metadata.name!=n{n}");
        let both = |n: usize| match n % 2 {
            0 => name_is_not(n),
            _ => format!("metadata.namespace!=n{n}"),
        };
        for (selector, most) in [
            (join(&|_| "metadata.name=a".to_owned(), 4000), 1),
            (join(&|_| "metadata.name!=b".to_owned(), 4000), 1),
            (join(&name_is_not, 4000), 1),
            (join(&both, 4000), 2),
            (join(&name_is_not, 4000) + ",metadata.name=a", 1),
            (join(&name_is_not, 4000) + ",metadata.namespace=", 2),
        ] {
            let selector = FieldSelector::parse(&selector).unwrap();
            let look_ups = Cell::new(0);
            let named = |name: &'static str| {
                let field = |path: &str| {
                    look_ups.set(look_ups.get() + 1);
                    (path == "metadata.name").then_some(name)
                };
                let is_selected = selector.matches(field);
                (is_selected, look_ups.take())
            };
            assert_eq!(named("a"), (true, most));
            assert!(named("n3998").1 <= most);
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
