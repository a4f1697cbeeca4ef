//! The reader of YAML that is evaluated before it is forwarded: it accepts only what Go's YAML library certainly reads the same.
//!
//! Two readers must agree on the value of a text: [`manifest()`], which uses the YAML library, and a small one of our own
//! that knows the common part of YAML alone: mappings and lists in both styles, scalars in all styles, comments.
//! Anchors, aliases, tags, merge keys, directives, complex keys and further documents are refused, and so are keys that Go
//! reads as the same text although they differ, such as `yes` and `"true"`.
//!
//! Scalars are resolved as in `go.yaml.in/yaml/v2`: booleans of YAML 1.1, octal numbers, digits with underscores.
//!
//! Not here: what to do with a text that is refused.

mod members;
mod reader;
mod resolve;
mod scalars;

use super::{Manifest, YamlError, manifest};

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
pub enum ExactError {
    /// It is not YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// It is YAML that Go's library may read differently.
    #[error("line {line}: {what}")]
    Inexact {
        /// The line, from 1.
        line: usize,
        /// What is there.
        what: &'static str,
    },
}

/// A place in a text that is not read.
#[derive(Debug)]
struct Inexact {
    at: usize,
    what: &'static str,
}

/// Reads `text` as [`manifest()`] does, if Go's library reads the same.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// [`ExactError`].
pub fn exact(text: &[u8]) -> Result<Manifest, ExactError> {
    let manifest = manifest(text).map_err(tagged)?;
    // The other reader has checked that it is UTF-8.
    let text = String::from_utf8_lossy(text).replace("\r\n", "\n");
    let read = check_characters(&text).and_then(|()| reader::read(&text));
    let value = read.map_err(|Inexact { at, what }| ExactError::Inexact {
        line: text[..at].matches('\n').count() + 1,
        what,
    })?;
    if value != manifest.value {
        return Err(ExactError::Inexact {
            line: 1,
            what: "this text can be read in two ways",
        });
    }
    Ok(manifest)
}

/// The error about a tag of the text's own, which the library takes for a variant of an enum.
fn tagged(error: YamlError) -> ExactError {
    let YamlError::Syntax { message, .. } = &error else {
        return error.into();
    };
    if !message.contains("invalid type: enum") {
        return error.into();
    }
    let line = message.rsplit_once(" at line ");
    let line = line.and_then(|(_, at)| at.split(' ').next()?.parse().ok());
    ExactError::Inexact {
        line: line.unwrap_or(1),
        what: "a tag (!)",
    }
}

/// Refuses characters that are line breaks in some versions of YAML only, and those that are none.
fn check_characters(text: &str) -> Result<(), Inexact> {
    let is_odd = |c: char| match c {
        '\t' | '\n' => false,
        '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    };
    match text.find(is_odd) {
        None => Ok(()),
        Some(at) => Err(Inexact {
            at,
            what: "a control character or a line break of Unicode",
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value(text: &str) -> Value {
        match exact(text.as_bytes()) {
            Ok(read) => read.value,
            Err(error) => panic!("{text:?}: {error}"),
        }
    }

    #[test]
    fn the_common_part_of_yaml_is_read() {
        for (text, expected) in [
            ("", json!(null)),
            ("# nothing\n", json!(null)),
            (
                "a: 1\nb: [x, 'y', \"z\", 1.5, ~]\n",
                json!({"a": 1, "b": ["x", "y", "z", 1.5, null]}),
            ),
            (
                "---\na:\n  b: {c: d, e: , f}\n",
                json!({"a": {"b": {"c": "d", "e": null, "f": null}}}),
            ),
            (
                "a:\n- b: 1\n  c: 2\n-\n- - x\n  - z\nd: e\n",
                json!({"a": [{"b": 1, "c": 2}, null, ["x", "z"]], "d": "e"}),
            ),
            ("- a\n-\n  b: c\n", json!(["a", {"b": "c"}])),
            (
                "a: # c\n  # d\n  b: 'it''s' # e\n",
                json!({"a": {"b": "it's"}}),
            ),
            (
                "a: b c\n  d\n\n  e\nf: g\n",
                json!({"a": "b c d\ne", "f": "g"}),
            ),
            (
                "a: \"x\\n\\u00e9\\\n   y\n\n  z\"\n",
                json!({"a": "x\néy\nz"}),
            ),
            (
                "a: |\n  x && y\n   !z\n\n  w\n\nb: >-\n  one\n  two\n\n   three\n  four\n",
                json!({"a": "x && y\n !z\n\nw\n", "b": "one two\n\n three\nfour"}),
            ),
            (
                "a: |2-\n   x\nb: |+\n  y\n\n",
                json!({"a": " x", "b": "y\n\n"}),
            ),
            (
                "image: repo/name:1.2\nurl: {x: http://a/b#c}\n",
                json!({"image": "repo/name:1.2", "url": {"x": "http://a/b#c"}}),
            ),
            (
                "{\"a\":[1,-2,{\"b\":\"c: d\"}],\n\t\"e\":true}",
                json!({"a": [1, -2, {"b": "c: d"}], "e": true}),
            ),
            (
                "a: 010\nb: 0x1F\nc: 1_000\nd: +5\ne: 08\nf: 1e3\ng: 2020-01-01\nh: 1:30\n",
                json!({"a": 8, "b": 31, "c": 1000, "d": 5, "e": 8, "f": 1000, "g": "2020-01-01", "h": "1:30"}),
            ),
            ("yes: no\n8: x\n", json!({"true": false, "8": "x"})),
            ("a: b\r\nc: |\r\n  d\r\n", json!({"a": "b", "c": "d\n"})),
        ] {
            assert_eq!(value(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_go_may_read_otherwise_is_refused() {
        for text in [
            "a: !!binary aG9zdE5ldHdvcms=",
            "!!binary aG9zdE5ldHdvcms=: true",
            "a: {!!binary aG9zdE5ldHdvcms=: true}",
            "a: !!str 1",
            "a: !x {}",
            "a: &a 1",
            "a: &a [1]\nb: *a\n",
            "a: {<<: {b: 1}}",
            "<<: {b: 1}",
            "? a\n: b",
            "a: {? b : c}",
            "a: [b: c]",
            "{yes: a, \"true\": b}",
            "yes: a\ntrue: b\n\"true\": c",
            "1: a\n'1': b",
            "1.5: a",
            "~: a",
            "a: 1\n---\nb: 1",
            "a: 1\n...\n",
            "%YAML 1.1\n---\na: 1",
            "a: \u{85} b",
            "a: .inf",
            "a: \"\\/\"",
            "[a]: b",
            "{a:[1]}",
        ] {
            assert!(exact(text.as_bytes()).is_err(), "{text:?}");
        }
        let error = exact(b"a: 1\nb:\n  c: !!binary YQ==\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3: a tag (!)");
        let error = exact(b"a: 1\nb: !own c\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2: a tag (!)");
    }

    #[test]
    fn a_repeated_key_has_its_last_value_and_is_reported() {
        let read = exact(b"a: 1\nb: {c: 1, c: 2}\na: 3\n").unwrap();
        assert_eq!(read.value, json!({"a": 3, "b": {"c": 2}}));
        assert_eq!(read.repeated.len(), 2);
    }
}
