//! The documents of bodies compared with what Kubernetes' own code reads, which `tests/cluster/requestdocuments` recorded.

use fairgate_fuzz::targets::request_documents::document_type;
use fairgate_objects::codec::{
    BodyFormat, FieldValidation, decode_body, decode_options, json,
    request_document::{self, DocumentType},
};
use serde_json::Value;

/// Lines of an input of the fuzz target and of the reading, separated by a tab. `FAIRGATE_RECORDED` names a file with others.
const RECORDED: &str = include_str!("../recorded/request_documents.tsv");

/// What became of the bodies.
#[derive(Default)]
struct Tally {
    alike: usize,
    refused: usize,
    refused_here: usize,
    wrong: Vec<String>,
}

#[test]
fn what_is_forwarded_is_what_kubernetes_reads() {
    let mut tally = Tally::default();
    let other = std::env::var_os("FAIRGATE_RECORDED").map(std::fs::read_to_string);
    let recorded = other.map_or_else(
        || RECORDED.to_owned(),
        |read| read.expect("the file can be read"),
    );
    for line in recorded.lines() {
        let (input, reading) = line.split_once('\t').expect("two columns");
        tally.compare(&bytes(input), reading);
    }
    let Tally {
        alike,
        refused,
        refused_here,
        wrong,
    } = tally;
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!("{alike} alike, {refused} refused by both, {refused_here} by the gateway alone");
    // If the inputs or the gateway refused nearly all, nothing would be compared.
    assert!(
        alike >= 600 && refused >= 300,
        "{alike} {refused} {refused_here}"
    );
    assert!(refused_here * 2 < alike, "{alike} {refused_here}");
}

impl Tally {
    fn compare(&mut self, input: &[u8], reading: &str) {
        let (&control, body) = input.split_first().expect("a first byte");
        let ty = document_type(control);
        let format = [BodyFormat::Json, BodyFormat::Yaml][usize::from(control % 3)];
        let document = request_document::read(&ty, format, body, FieldValidation::Ignore);
        let forwarded = document
            .map_err(|error| error.to_string())
            .and_then(|document| evaluated(&ty, &document.text));
        match (forwarded, reading) {
            (Err(_), "refused") => self.refused += 1,
            (Err(_), _) => self.refused_here += 1,
            (Ok(_), "refused") => self.fault(&ty, body, "the server refuses it"),
            (Ok(_), "ambiguous") => self.fault(&ty, body, "the server reads it in several ways"),
            (Ok(value), reading) => {
                // The server reads numbers of an apply as floats, whatever is forwarded.
                let is_float = matches!(ty, DocumentType::Apply);
                let mut read = pruned(serde_json::from_str(reading).expect("JSON"), is_float);
                let mut value = pruned(value, is_float);
                // Where a body does not name its type, the server knows it all the same.
                for object in [&mut read, &mut value] {
                    let is_typed =
                        matches!(ty, DocumentType::Object(_) | DocumentType::DeleteOptions);
                    if let (true, Some(members)) = (is_typed, object.as_object_mut()) {
                        members.retain(|name, _| name != "apiVersion" && name != "kind");
                    }
                }
                if value == read {
                    self.alike += 1;
                } else {
                    self.fault(&ty, body, &format!("{value}\n  the server reads {read}"));
                }
            }
        }
    }

    fn fault(&mut self, ty: &DocumentType<'_>, body: &[u8], what: &str) {
        let name = format!("{ty:?}");
        let name = name.split([' ', '(']).next().unwrap_or_default();
        let body = body.escape_ascii();
        self.wrong.push(format!("{name} {body}\n  {what}"));
    }
}

/// What is evaluated of a document, and what the server reads of it.
fn evaluated(ty: &DocumentType<'_>, document: &[u8]) -> Result<Value, String> {
    let value = match ty {
        DocumentType::Object(expect) => {
            let read = decode_body(BodyFormat::Json, document, expect, false);
            read.map_err(|error| error.to_string())?.value
        }
        DocumentType::DeleteOptions => {
            let read = decode_options(BodyFormat::Json, document);
            read.map_err(|error| error.to_string())?
        }
        _ => {
            let read = json::parse(document).map_err(|error| error.to_string())?;
            read_as(ty, read.value)?
        }
    };
    Ok(value)
}

/// What is wanted of a patch, or of an object without a table.
fn read_as(ty: &DocumentType<'_>, value: Value) -> Result<Value, String> {
    let is_valid = match ty {
        DocumentType::JsonPatch => {
            let operations = value.as_array();
            operations.is_some_and(|all| all.iter().all(|one| one.is_object() || one.is_null()))
        }
        _ => value.is_object(),
    };
    is_valid
        .then_some(value)
        .ok_or_else(|| "it is of another type".to_owned())
}

/// A value without what is absent as well as empty, and with numbers as a server compares them.
fn pruned(value: Value, is_float: bool) -> Value {
    let is_there = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    };
    match value {
        Value::Array(items) => (items.into_iter())
            .map(|item| pruned(item, is_float))
            .collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members.map(|(key, value)| (key, pruned(value, is_float)));
            Value::Object(members.filter(|(_, value)| is_there(value)).collect())
        }
        Value::Number(number) if is_float => plain(number.as_f64().into()),
        Value::Number(number) => plain(number.into()),
        other => other,
    }
}

/// An integer where a number is a small one, and a float where it is beyond all integers.
fn plain(number: Value) -> Value {
    match number.as_f64() {
        Some(float) if number.as_i64().is_none() && !number.is_f64() => float.into(),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
            Value::from(float as i64)
        }
        _ => number,
    }
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits"))
        .collect()
}
