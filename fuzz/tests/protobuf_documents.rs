//! Bodies in protobuf compared with what Kubernetes' own code reads, which `tests/cluster/protobufdocuments` recorded.

use std::{collections::BTreeMap, io::Read as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use fairgate_objects::{
    codec::{
        BodyFormat, EmptyValues, ExpectedType, built_in_types, decode_body, decode_options, json,
        request_document::{self, DocumentType},
    },
    schema::{Struct, built_in, meta_v1::DELETE_OPTIONS},
};
use flate2::read::GzDecoder;
use serde_json::Value;

/// Lines of group, version, kind, body in base64 and reading, separated by tabs. `FAIRGATE_RECORDED` names a file with others,
/// which is not compressed.
const RECORDED: &[u8] = include_bytes!("../recorded/protobuf_documents.tsv.gz");

/// What became of the bodies.
#[derive(Default)]
struct Tally {
    alike: usize,
    refused: usize,
    ambiguous: usize,
    /// Why the gateway refuses what a server reads.
    refused_here: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

#[test]
fn what_is_forwarded_in_protobuf_is_what_kubernetes_reads() {
    let mut tally = Tally::default();
    for line in recorded().lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [group, version, kind, body, reading] = columns[..] else {
            panic!("{line}");
        };
        let body = STANDARD.decode(body).expect("base64");
        tally.compare([group, version, kind], &body, reading);
    }
    let Tally {
        alike,
        refused,
        ambiguous,
        refused_here,
        wrong,
    } = tally;
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    println!(
        "{alike} alike, {refused} refused by both, {ambiguous} ambiguous, by the gateway alone {refused_here:?}"
    );
    // If the inputs or the gateway refused nearly all, nothing would be compared.
    assert!(
        alike >= 1500 && refused >= 1000 && ambiguous >= 500,
        "{alike} {refused} {ambiguous}"
    );
    let alone: usize = refused_here.values().sum();
    assert!(alone * 20 < alike, "{alike} {refused_here:?}");
}

fn recorded() -> String {
    if let Some(path) = std::env::var_os("FAIRGATE_RECORDED") {
        return std::fs::read_to_string(path).expect("the file can be read");
    }
    let mut text = String::new();
    let read = GzDecoder::new(RECORDED).read_to_string(&mut text);
    read.expect("the recorded lines are compressed");
    text
}

impl Tally {
    fn compare(&mut self, kind: [&str; 3], body: &[u8], reading: &str) {
        let reading = plain(kind, reading);
        match (evaluated(kind, body), reading.as_str()) {
            (Err(_), "refused") => self.refused += 1,
            (Err(_), "ambiguous") => self.ambiguous += 1,
            (Err(error), _) => {
                let reason = error.rsplit("proto: ").next().unwrap_or_default();
                *self.refused_here.entry(reason.to_owned()).or_default() += 1;
            }
            (Ok(_), "refused") => self.fault(kind, body, "the server refuses it"),
            (Ok(text), "ambiguous") => {
                self.fault(kind, body, &format!("it says more than {text}"));
            }
            (Ok(text), reading) if text == reading => self.alike += 1,
            (Ok(text), reading) => {
                self.fault(kind, body, &format!("{text}\n  the server reads {reading}"));
            }
        }
    }

    fn fault(&mut self, kind: [&str; 3], body: &[u8], what: &str) {
        let body = body.escape_ascii();
        self.wrong.push(format!("{kind:?} {body}\n  {what}"));
    }
}

/// What a server reads, with the numbers of raw JSON, which it keeps as they are, written as any others.
fn plain(kind: [&str; 3], reading: &str) -> String {
    let Ok(read) = json::parse(reading.as_bytes()) else {
        return reading.to_owned();
    };
    text(table(kind), &read.value)
}

/// An object as a server writes it in JSON.
fn text(shape: &'static Struct, object: &Value) -> String {
    let text = String::from_utf8(json::encode(shape, object, false)).expect("JSON is text");
    text.trim_end().to_owned()
}

fn table([group, version, kind]: [&str; 3]) -> &'static Struct {
    if kind == "DeleteOptions" {
        return &DELETE_OPTIONS;
    }
    built_in(group, version, kind).expect("a table")
}

/// What is evaluated of a body that is forwarded, as a server writes it in JSON.
fn evaluated([group, version, kind]: [&str; 3], body: &[u8]) -> Result<String, String> {
    let is_options = kind == "DeleteOptions";
    let shape = table([group, version, kind]);
    let expect = ExpectedType {
        group,
        version,
        kind,
        shape,
        scheme: built_in_types(),
        empty: EmptyValues::Null,
    };
    let ty = if is_options {
        DocumentType::DeleteOptions
    } else {
        DocumentType::Object(expect)
    };
    request_document::check_protobuf(&ty, body).map_err(|error| error.to_string())?;
    let read = if is_options {
        decode_options(BodyFormat::Protobuf, body)
    } else {
        decode_body(BodyFormat::Protobuf, body, &expect, false).map(|read| read.value)
    };
    let read = read.map_err(|error| error.to_string())?;
    Ok(text(shape, &read))
}
