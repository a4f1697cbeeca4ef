//! The strict reader, for what people write for fairgate.

use std::{cell::OnceCell, fmt};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{ExpansionBudget, YamlError, check_depth, checked};

/// The documents of `text`, in order, without empty ones.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// The first error; see [`YamlError`].
pub fn documents(text: &[u8]) -> Result<Vec<Value>, YamlError> {
    let text = checked(text)?;
    if let Some(value) = json(text) {
        return Ok(vec![value]);
    }
    // Before the library sees the text: its scanner runs ahead of every bound that a visitor could set.
    check_depth(text)?;
    let budget = ExpansionBudget::of(text);
    let doubled = OnceCell::new();
    let mut documents = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let visitor = StrictVisitor {
            budget: &budget,
            doubled: &doubled,
        };
        let value = visitor.deserialize(document).map_err(|error| {
            let second = doubled.get().and_then(|key| second_line(key, &error, text));
            let message = second.map_or_else(
                || said(&error, text),
                |line| format!("{}, again at line {line}", without_location(&error)),
            );
            YamlError::Syntax {
                document: index + 1,
                message,
            }
        })?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

/// What the parser says about a text. That a tab cannot start a token does not tell everybody what to do.
pub(super) fn said(error: &serde_yaml::Error, text: &str) -> String {
    let at = error.location().map(|location| location.index());
    let is_tab = at.is_some_and(|at| text.as_bytes().get(at) == Some(&b'\t'));
    let hint = if is_tab {
        " (indent with spaces: YAML allows no tabs)"
    } else {
        ""
    };
    format!("{error}{hint}")
}

/// The line, counted from 1, on which a key stands for the second time in the mapping that the error is about: the parser tells where
/// that mapping begins. `None` if it is not written with one key on a line.
fn second_line(key: &str, error: &serde_yaml::Error, text: &str) -> Option<usize> {
    let begin = error.location()?;
    let indent = begin.column().checked_sub(1)?;
    let is_key = |line: &str| {
        let rest = line.strip_prefix(key).or_else(|| {
            let inner = line.strip_prefix(['"', '\''])?;
            inner.strip_prefix(key)?.strip_prefix(['"', '\''])
        });
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let lines = text.lines().enumerate().skip(begin.line().checked_sub(1)?);
    let of_mapping = lines.enumerate().map_while(|(passed, (at, line))| {
        let own = line.trim_start();
        let before = line.len() - own.len();
        // The mapping may begin behind the dash of a list.
        let key_column = if passed == 0 {
            line.get(indent..)?
        } else if own.is_empty() || own.starts_with('#') || before > indent {
            ""
        } else if before == indent {
            own
        } else {
            return None;
        };
        Some((at + 1, key_column))
    });
    let mut found = of_mapping.filter(|(_, line)| is_key(line));
    found.nth(1).map(|(at, _)| at)
}

/// What the error says, without the place that the parser adds: that where the mapping begins.
fn without_location(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    let place = error.location().map_or_else(String::new, |at| {
        format!(" at line {} column {}", at.line(), at.column())
    });
    text.strip_suffix(&*place).unwrap_or(&text).to_owned()
}

/// `text` as one JSON value, as `kubectl -o json` prints it; `None` if it is anything else. This is much faster than
/// to read JSON as YAML.
fn json(text: &str) -> Option<Value> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    // JSON has no aliases, so a value is never larger than its text.
    let visitor = StrictVisitor {
        budget: &ExpansionBudget::unlimited(),
        doubled: &OnceCell::new(),
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = visitor
        .deserialize(&mut deserializer)
        // An error is no JSON: the text may be a flow mapping of YAML, and if not, the reader of YAML names the line.
        .ok()?;
    deserializer.end().ok()?;
    Some(value)
}

const TOO_LONG_NUMBER: &str = "a whole number of more than 64 bits (text needs quotes)";

/// Builds one value. A repeated key is an error.
#[derive(Clone, Copy)]
struct StrictVisitor<'a> {
    budget: &'a ExpansionBudget,
    /// The key that was found twice.
    doubled: &'a OnceCell<String>,
}

impl<'de> DeserializeSeed<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list, text, a number, true, false or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.budget.spend(1).map(|()| Value::Null)
    }

    /// An empty document.
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        self.budget.spend(1).map(|()| Value::Bool(v))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        self.budget.spend(1).map(|()| v.into())
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        self.budget.spend(1).map(|()| v.into())
    }

    /// The number is not shown: it may be a secret that is not quoted.
    fn visit_i128<E: de::Error>(self, _: i128) -> Result<Value, E> {
        Err(E::custom(TOO_LONG_NUMBER))
    }

    fn visit_u128<E: de::Error>(self, _: u128) -> Result<Value, E> {
        Err(E::custom(TOO_LONG_NUMBER))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        self.budget.spend(1)?;
        Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| E::custom(format!("{v} is not a number JSON can write")))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        self.budget.spend(v.len().saturating_add(1))?;
        Ok(Value::String(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        self.budget.spend(1)?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.budget.spend(1)?;
        let mut values = Map::new();
        while let Some(key) = map.next_key_seed(self)? {
            let key = match key {
                Value::String(text) => text,
                Value::Bool(value) => value.to_string(),
                Value::Number(value) => value.to_string(),
                _ => return Err(de::Error::custom("a key must be text")),
            };
            let value = map.next_value_seed(self)?;
            if values.contains_key(&key) {
                let error = de::Error::custom(format!("key {key:?} is given twice"));
                self.doubled.get_or_init(|| key);
                return Err(error);
            }
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::MAX_BYTES;
    use serde_json::json;

    #[test]
    fn every_document_but_empty_ones_is_read() {
        let text = b"# nothing\n---\na: 1\n---\n---\n- x\n- {y: off}\n";
        assert_eq!(
            documents(text).unwrap(),
            [json!({"a": 1}), json!(["x", {"y": "off"}])]
        );
    }

    #[test]
    fn a_text_without_content_has_no_documents() {
        for text in [
            "",
            "\n",
            "# nothing\n",
            "---\n",
            "---\n# nothing\n",
            "\u{feff}",
        ] {
            let found = documents(text.as_bytes()).unwrap();
            assert!(found.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn json_is_read_as_json() {
        let text = b"\n{\n\t\"a\": [1, 2.5, null, true]\n}\n";
        assert_eq!(
            documents(text).unwrap(),
            [json!({"a": [1, 2.5, null, true]})]
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(
            documents("\u{feff}a: 1".as_bytes()).unwrap(),
            [json!({"a": 1})]
        );
    }

    #[test]
    fn a_key_given_twice_is_named() {
        for text in [&b"a: 1\na: 2\n"[..], b"{\"a\": 1, \"a\": 2}"] {
            let error = documents(text).unwrap_err().to_string();
            assert!(error.contains("\"a\" is given twice"), "{error}");
        }
    }

    #[test]
    fn a_key_given_twice_is_found_by_its_line() {
        for (text, line) in [
            ("a: 1\nb: 2\na: 3\n", Some(3)),
            ("# why\na: 1\n\n# more\n'a': 3\n", Some(5)),
            ("a:\n  b: 1\n  c:\n  - b: 7\n  b: 2\n", Some(5)),
            ("a:\n- b: 1\n  c: 2\n  b: 3\nb: 4\n", Some(4)),
            ("x: 1\n---\na: 1\na: 2\n", Some(4)),
            ("a: |\n  a: 1\na: 2\n", Some(3)),
            ("{a: 1, a: 2}\n", None),
            ("b:\n  {a: 1,\n  a: 2}\n", None),
        ] {
            let error = documents(text.as_bytes()).unwrap_err().to_string();
            let again = line.map(|line| format!("again at line {line}"));
            let says = |what: &str| error.contains(what);
            assert!(
                says("is given twice") && again.as_deref().is_none_or(says),
                "{text:?}: {error}"
            );
            assert!(again.is_some() || !says("again"), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_number_that_is_too_long_is_not_shown() {
        for text in [
            "a: 12345678901234567890123456789012",
            "a: -12345678901234567890123456789012",
        ] {
            let error = documents(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains("text needs quotes") && error.contains("line 1"),
                "{error}"
            );
            assert!(!error.contains("12345"), "{error}");
        }
    }

    #[test]
    fn a_syntax_error_names_document_and_position() {
        let error = documents(b"a: 1\n---\nb: [1\n").unwrap_err().to_string();
        assert!(error.starts_with("document 2: "), "{error}");
        assert!(error.contains("line"), "{error}");
    }

    #[test]
    fn a_tab_that_indents_is_called_that() {
        for text in ["a:\n\tb: 1\n", "a: b\n\tc: 1\n", "- a\n-\tb: 1\n\tc: 2\n"] {
            let error = documents(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.ends_with(" (indent with spaces: YAML allows no tabs)"),
                "{error}"
            );
        }
        let error = documents(b"a: @b\n").unwrap_err().to_string();
        assert!(!error.contains("tabs"), "{error}");
    }

    #[test]
    fn an_alias_may_be_used_within_reason() {
        assert_eq!(
            documents(b"a: &x [1]\nb: *x\n").unwrap(),
            [json!({"a": [1], "b": [1]})]
        );
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let nested = (1..9).fold("a0: &a0 [lol, lol]\n".to_owned(), |text, i| {
            let last = i - 1;
            format!("{text}a{i}: &a{i} [*a{last}, *a{last}, *a{last}, *a{last}, *a{last}]\n")
        });
        let wide = format!(
            "a: &a [{}1]\nb: [{}1]\n",
            "1, ".repeat(10_000),
            "*a, ".repeat(10_000)
        );
        let long = format!(
            "a: &a {}\nb: [{}1]\n",
            "x".repeat(100_000),
            "*a, ".repeat(10_000)
        );
        for text in [nested, wide, long] {
            let error = documents(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains("aliases") || error.contains("repetition"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_alias_to_itself_is_refused() {
        assert!(documents(b"&a [*a]").is_err());
    }

    #[test]
    fn deep_nesting_is_refused_quickly() {
        for text in [
            "[".repeat(MAX_BYTES / 2),
            "{a: ".repeat(1 << 20),
            "- ".repeat(MAX_BYTES / 2),
            "-\t".repeat(2000),
            "a:\n  ? ".to_owned() + &"? ".repeat(2000),
        ] {
            let refused = documents(text.as_bytes());
            assert!(matches!(refused, Err(YamlError::TooDeep)), "{refused:?}");
        }
        let rule = format!("a: |\n  {}\nb: {}\n", "-".repeat(5000), "x - ".repeat(5000));
        documents(rule.as_bytes()).unwrap();
    }

    #[test]
    fn what_is_too_long_or_not_utf_8_is_refused() {
        assert!(matches!(
            documents(&vec![b' '; MAX_BYTES + 1]),
            Err(YamlError::TooLong)
        ));
        assert!(matches!(
            documents(b"a: \xff"),
            Err(YamlError::NotUtf8 { valid_up_to: 3 })
        ));
    }

    #[test]
    fn a_text_without_aliases_always_fits_its_budget() {
        let text =
            "a:\n".to_owned() + &"- \n".repeat(100_000) + "b: [" + &"1,".repeat(100_000) + "]\n";
        assert!(documents(text.as_bytes()).is_ok());
    }
}
