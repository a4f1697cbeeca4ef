//! YAML and JSON documents, as the configuration (`documents`) and the hosted API (`manifest`) read them.
//!
//! Properties: what is JSON reads as JSON does; what was read, written as JSON, reads back as the same; values are
//! bounded by the length of the text, whatever its aliases expand to; the lines that are reported exist.

use fairgate_manifest::yaml::{MAX_REPEATED, YamlError, documents, manifest};
use serde_json::Value;

use crate::{Outcome, Target};

/// The target `manifests`.
pub const TARGET: Target = Target {
    name: "manifests",
    run,
    dictionary: &[
        "---\n",
        "...\n",
        "- ",
        ": ",
        "\n  ",
        "&a ",
        "*a",
        "<<: *a",
        "!!str ",
        "!t ",
        "|\n ",
        ">-\n ",
        "? ",
        "{a: 1}",
        "[1, 2]",
        "null",
        "~",
        "yes",
        "no",
        "on",
        ".inf",
        ".nan",
        "0x1F",
        "0o17",
        "017",
        "1e400",
        "1_000",
        "2001-01-01",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "'",
        "# ",
        "{\"a\":1}",
        "{\"a\":1,\"a\":2}",
        "[]",
        "true",
        "-0",
        "1e5",
        "%YAML 1.1\n",
        "\u{feff}",
        "kind: ",
        "apiVersion: v1\n",
        "\t",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let read = documents(data);
    match &read {
        Ok(documents_read) => {
            for document in documents_read {
                assert!(!document.is_null(), "empty documents are left out");
                let text = escaped(document);
                let again = documents(text.as_bytes()).expect("its own output reads back");
                assert_eq!(again.as_slice(), std::slice::from_ref(document), "{text}");
            }
            let nodes: usize = documents_read.iter().map(count).sum();
            is_bounded(nodes, data);
        }
        Err(error) => is_named(error, data),
    }
    let sent = manifest(data);
    if let Ok(sent) = &sent {
        is_bounded(count(&sent.value), data);
        assert!(sent.repeated.len() <= MAX_REPEATED);
        // YAML ends lines in several ways; each has at least one byte.
        let lines = data.len() + 1;
        for repeated in &sent.repeated {
            assert!((1..=lines).contains(&repeated.line), "{repeated:?}");
        }
        let text = escaped(&sent.value);
        let again = manifest(text.as_bytes()).expect("its own output reads back");
        assert_eq!(again.value, sent.value, "{text}");
        assert_eq!(again.repeated, [], "{text}");
    }
    if let Ok(value) = serde_json::from_slice::<Value>(data)
        && let Ok(documents) = &read
        && (value.is_object() || value.is_array())
    {
        assert_eq!(documents.as_slice(), [value]);
    }
    Outcome::of((
        read.as_ref()
            .map(|documents| documents.len().min(4))
            .map_err(kind),
        read.ok()
            .and_then(|documents| documents.first().map(depth_and_kind)),
        sent.as_ref()
            .map(|sent| (depth_and_kind(&sent.value), sent.repeated.len().min(3)))
            .map_err(kind),
    ))
}

/// A value as JSON without the characters that YAML allows only escaped.
fn escaped(value: &Value) -> String {
    let escape = |c: char| match u32::from(c) {
        code @ 0x7f..=0xffff => format!("\\u{code:04x}"),
        _ => c.to_string(),
    };
    value.to_string().chars().map(escape).collect()
}

/// The reader's bound on the expansion of aliases: a few times the length of the text.
fn is_bounded(nodes: usize, data: &[u8]) {
    assert!(
        nodes <= 8 * data.len() + 2048,
        "{nodes} values of {} bytes",
        data.len()
    );
}

fn is_named(error: &YamlError, data: &[u8]) {
    match error {
        YamlError::NotUtf8 { valid_up_to } => {
            assert!(std::str::from_utf8(&data[..*valid_up_to]).is_ok());
            assert!(std::str::from_utf8(data).is_err());
        }
        YamlError::Syntax { document, message } => {
            assert!(*document >= 1 && !message.is_empty());
        }
        YamlError::TooLong | YamlError::TooDeep | YamlError::TooManyParts => {}
    }
}

/// The kind of an error, and its message without the numbers in it.
fn kind(error: &YamlError) -> String {
    let text = error.to_string();
    let text = text
        .split_once('"')
        .map_or(text.as_str(), |(before, _)| before);
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// How many values there are, keys included.
fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(|value| 1 + count(value)).sum::<usize>(),
        _ => 1,
    }
}

/// How deep a value is, up to 4, and of which kind.
fn depth_and_kind(value: &Value) -> (usize, usize) {
    let (depth, kind) = whole_depth_and_kind(value);
    (depth.min(4), kind)
}

fn whole_depth_and_kind(value: &Value) -> (usize, usize) {
    match value {
        Value::Null => (0, 0),
        Value::Bool(_) => (0, 1),
        Value::Number(number) => (0, if number.is_f64() { 2 } else { 3 }),
        Value::String(_) => (0, 4),
        Value::Array(items) => (
            1 + items
                .iter()
                .map(|item| whole_depth_and_kind(item).0)
                .max()
                .unwrap_or(0),
            5,
        ),
        Value::Object(fields) => (
            1 + fields
                .values()
                .map(|item| whole_depth_and_kind(item).0)
                .max()
                .unwrap_or(0),
            6,
        ),
    }
}
