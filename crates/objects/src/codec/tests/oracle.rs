//! Objects of all built-in kinds, drawn at random and encoded by Kubernetes' own code: `generate` beside
//! this crate's sources makes the corpus.

use std::{collections::BTreeMap, io::Read as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde_json::json;

use crate::{
    codec::{json, protobuf},
    schema::{built_in, built_in_kinds, canonical},
};
use fairgate_gotext::quantity;

/// Lines of group, version, kind, protobuf in base64 and JSON; and of `quantity`, its text, and its
/// canonical text, or its error behind a `!`.
const CORPUS: &[u8] = include_bytes!("../testdata/built_in_kinds.gz");

fn lines() -> Vec<Vec<String>> {
    let mut text = String::new();
    GzDecoder::new(CORPUS).read_to_string(&mut text).unwrap();
    let lines = text.lines();
    lines
        .map(|line| line.split('\t').map(str::to_owned).collect())
        .collect()
}

/// The conversions that fail: protobuf to JSON, JSON to an object, an object to protobuf.
fn faults(line: &[String]) -> Vec<String> {
    let [group, version, kind, message, text] = line else {
        panic!("{line:?}");
    };
    let message = STANDARD.decode(message).unwrap();
    let Some(shape) = built_in(group, version, kind) else {
        return vec![format!("{group} {version} {kind}: no table")];
    };
    let mut faults = Vec::new();
    let mut fault = |what: &str, detail: String| {
        faults.push(format!(
            "{group} {version} {kind}: {what}: {detail}\n  {text}"
        ));
    };
    let api_version = match group.as_str() {
        "" => version.clone(),
        group => format!("{group}/{version}"),
    };
    let parsed = json::read(text.as_bytes()).unwrap();
    let from_json = match canonical::decode(shape, &parsed) {
        Ok(decoded) => {
            if !decoded.problems.is_empty() {
                fault("strict problems", decoded.problems.join(", "));
            }
            let encoded = protobuf::encode(shape, &decoded.value);
            if encoded != message {
                let again = protobuf::decode(shape, &encoded).map(|value| value.to_string());
                fault("another message", format!("{again:?}"));
            }
            Some(decoded.value)
        }
        Err(error) => {
            fault("JSON refused", error.to_string());
            None
        }
    };
    match protobuf::decode(shape, &message) {
        Ok(mut value) => {
            value["kind"] = json!(kind);
            value["apiVersion"] = json!(api_version);
            let encoded = String::from_utf8(json::encode(shape, &value, false)).unwrap();
            if encoded.trim_end() != text {
                fault("another text", encoded);
            }
            if from_json.is_some_and(|from_json| from_json != value) {
                fault("another object", value.to_string());
            }
        }
        Err(error) => fault("protobuf refused", error.to_string()),
    }
    faults
}

#[test]
fn objects_of_all_built_in_kinds_are_read_and_written_as_kubernetes_does() {
    let lines = lines();
    let objects = lines.iter().filter(|line| line.len() == 5);
    let mut kinds = BTreeMap::new();
    let mut wrong = Vec::new();
    for line in objects {
        *kinds.entry(&line[..3]).or_insert(0) += 1;
        wrong.extend(faults(line));
    }
    assert_eq!(kinds.len(), built_in_kinds().len());
    assert!(kinds.values().sum::<i32>() >= 1000);
    let shown: Vec<_> = wrong.iter().take(10).cloned().collect();
    assert!(
        wrong.is_empty(),
        "{} faults:\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

#[test]
fn quantities_are_read_and_written_as_kubernetes_does() {
    let lines = lines();
    let quantities = lines.iter().filter(|line| line[0] == "quantity");
    let mut count = 0;
    let mut wrong = Vec::new();
    for line in quantities {
        let ours = match quantity::canonical(&line[1]) {
            Ok(text) => text,
            Err(error) => format!("!{error}"),
        };
        count += 1;
        if ours != line[2] {
            wrong.push(format!("{:?}: {ours:?}, not {:?}", line[1], line[2]));
        }
    }
    assert!(count >= 1000);
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
