//! What clients send to create or replace an object: JSON, YAML or protobuf, by the first byte.
//!
//! Properties: what was read, written in each format, reads back as the same; strict and lenient decoding agree on bodies
//! without problems; the object is bounded by the length of the body.

use fairgate_objects::{
    codec::{BodyFormat, EmptyValues, ExpectedType, decode_body, envelope, json, protobuf, yaml},
    kind::{Kind, KindVersion},
    kinds::KINDS,
};
use serde_json::Value;

use super::body_format;
use crate::{Outcome, Target};

/// The target `bodies`.
pub const TARGET: Target = Target {
    name: "bodies",
    run,
    dictionary: &[
        "{\"apiVersion\":\"flowcontrol.apiserver.k8s.io/v1\",\"kind\":\"FlowSchema\",",
        "\"metadata\":{\"name\":\"a\"}",
        "\"spec\":{",
        "\"rules\":[{",
        "\"subjects\":[",
        "\"matchingPrecedence\":",
        "\"priorityLevelConfiguration\":{\"name\":\"a\"}",
        "\"limited\":{",
        "\"limitResponse\":",
        "null",
        "1e3",
        "1.5",
        "-1",
        "\"\\ud800\"",
        "\"a\":1,\"a\":2",
        "kind: PriorityLevelConfiguration\n",
        "apiVersion: flowcontrol.apiserver.k8s.io/v1beta3\n",
        "k8s\0",
        "\x0a",
        "\x12",
        "\x1a",
        "creationTimestamp",
        "2026-01-01T00:00:00Z",
        "\"labels\":{\"a\":\"b\"}",
        "managedFields",
        "ownerReferences",
        "}",
        "]",
        ",",
        "yes",
        "~",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let (&control, body) = data.split_first().unwrap_or((&0, &[]));
    let format = body_format(control);
    let kind = KINDS[usize::from(control >> 2 & 1)];
    let versions = kind.versions;
    let version = &versions[usize::from(control >> 3) % versions.len()];
    let read = decode(format, body, kind, version, false);
    let strict = decode(format, body, kind, version, true);
    match &read {
        Ok((value, problems)) => {
            assert_eq!(strict.is_ok(), problems.is_empty(), "{problems:?}");
            if let Ok((strict, _)) = &strict {
                assert_eq!(strict, value);
            }
            // Each object gets the fields that are always present, and an object in protobuf may take only two bytes.
            let length = value.to_string().len();
            assert!(
                length <= 400 * (body.len() + 10),
                "{length} bytes of {}",
                body.len()
            );
            reads_back(value, kind, version);
        }
        Err(error) => {
            assert!(!error.is_empty());
            assert!(
                strict.is_err(),
                "strict accepts what lenient refuses: {error}"
            );
        }
    }
    Outcome::of((
        control % 3,
        read.map(|(value, problems)| (facts(&value), problems.len().min(3)))
            .map_err(|error| words(&error)),
    ))
}

fn decode(
    format: BodyFormat,
    body: &[u8],
    kind: &Kind,
    version: &KindVersion,
    strict: bool,
) -> Result<(Value, Vec<String>), String> {
    let expect = ExpectedType {
        group: kind.group,
        version: version.name,
        kind: kind.kind,
        shape: version.shape,
        scheme: &[],
        empty: EmptyValues::Null,
    };
    let body = decode_body(format, body, &expect, strict).map_err(|error| error.to_string())?;
    Ok((body.value, body.problems))
}

fn reads_back(value: &Value, kind: &Kind, version: &KindVersion) {
    let shape = version.shape;
    let again = |format, body: &[u8]| {
        let read = decode(format, body, kind, version, true);
        let (read, _) = read.unwrap_or_else(|error| panic!("{format:?} of {value}: {error}"));
        assert_eq!(&read, value, "{format:?}");
    };
    again(BodyFormat::Json, &json::encode(shape, value, false));
    again(BodyFormat::Json, &json::encode(shape, value, true));
    again(BodyFormat::Yaml, yaml::encode(value).as_bytes());
    let sealed = envelope::seal_object(shape, value);
    again(BodyFormat::Protobuf, &sealed);
    let message = protobuf::encode(shape, value);
    assert_eq!(message, protobuf::encode(shape, value));
}

/// Which parts an object has.
fn facts(value: &Value) -> Vec<(String, usize)> {
    let parts = value.as_object().into_iter().flatten();
    let size = |part: &Value| part.as_object().map_or(0, |part| part.len().min(6));
    parts
        .map(|(name, part)| (name.clone(), size(part)))
        .collect()
}

/// The first words of an error, which identify its kind.
fn words(error: &str) -> String {
    let plain = error.rsplit(": ").next().unwrap_or_default();
    plain
        .chars()
        .filter(char::is_ascii_alphabetic)
        .take(40)
        .collect()
}
