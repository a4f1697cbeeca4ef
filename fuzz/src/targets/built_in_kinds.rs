//! Bodies of any built-in kind of Kubernetes, in JSON or protobuf. The first two bytes choose kind and format.
//!
//! Properties: nothing panics; what was read, written again, reads back as the same; the object is bounded by the
//! length of the body.

use fairgate_objects::{
    codec::{BodyFormat, EmptyValues, ExpectedType, decode_body, envelope, json, protobuf},
    schema::{BuiltInKind, built_in_kinds},
};
use serde_json::Value;

use crate::{Outcome, Target};

/// The target `built_in_kinds`.
pub const TARGET: Target = Target {
    name: "built_in_kinds",
    run,
    dictionary: &[
        "\x0a\x00",
        "\x0a\x02\x12\x00",
        "\x12\x00",
        "\x1a\x00",
        "\x22\x00",
        "\x08\x01",
        "\x10\x7f",
        "\x0a\x05100Mi",
        "\x0a\x021m",
        "1.5Gi",
        "1e3",
        "+5",
        "\x08\x02\x12\x01a",
        "\x0a\x04{\"a\"",
        "{\"a\":1}",
        "\"metadata\":{\"name\":\"a\"}",
        "\"spec\":{",
        "\"status\":{",
        "\"items\":[{",
        "\"containers\":[{",
        "\"resources\":{\"requests\":{\"cpu\":\"1\"}}",
        "\"data\":{\"a\":\"YQ==\"}",
        "\"renewTime\":\"2026-01-01T00:00:00.000001Z\"",
        "null",
        "0.5",
        "}",
        "]",
        ",",
    ],
};

fn run(data: &[u8]) -> Outcome {
    let (&[low, high], body) = data.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let kinds = built_in_kinds();
    let kind = &kinds[usize::from(u16::from_le_bytes([low, high & 0x7f])) % kinds.len()];
    let (format, read) = if high & 0x80 == 0 {
        let sealed = envelope::seal("", "", body);
        (
            BodyFormat::Protobuf,
            decode(BodyFormat::Protobuf, &sealed, kind),
        )
    } else {
        (BodyFormat::Json, decode(BodyFormat::Json, body, kind))
    };
    if let Ok(value) = &read {
        // Each object gets the fields that are always present, and an object in protobuf may take only two bytes.
        let length = value.to_string().len();
        assert!(
            length <= 2000 * (body.len() + 10),
            "{length} bytes of {}",
            body.len()
        );
        reads_back(value, format, kind);
    }
    Outcome::of((
        low,
        high,
        read.map(|value| value.as_object().map(serde_json::Map::len))
            .map_err(|error| error.len()),
    ))
}

fn decode(format: BodyFormat, body: &[u8], kind: &BuiltInKind) -> Result<Value, String> {
    let expect = ExpectedType {
        group: kind.group,
        version: kind.version,
        kind: kind.kind,
        shape: kind.shape,
        scheme: &[],
        empty: EmptyValues::Null,
    };
    let body = decode_body(format, body, &expect, false);
    body.map(|body| body.value)
        .map_err(|error| error.to_string())
}

fn reads_back(value: &Value, format: BodyFormat, kind: &BuiltInKind) {
    let again = |format, body: &[u8]| {
        let read = decode(format, body, kind);
        read.unwrap_or_else(|error| panic!("{format:?} of {value}: {error}"))
    };
    let text = json::encode(kind.shape, value, false);
    assert_eq!(&again(BodyFormat::Json, &text), value, "JSON");
    let sealed = envelope::seal_object(kind.shape, value);
    let read = again(BodyFormat::Protobuf, &sealed);
    if format == BodyFormat::Protobuf {
        assert_eq!(&read, value, "protobuf");
    }
    // Protobuf cannot express everything that JSON can, such as null bytes in a map; a second round trip loses no more.
    let message = protobuf::encode(kind.shape, &read);
    assert_eq!(
        protobuf::encode(
            kind.shape,
            &again(BodyFormat::Protobuf, &envelope::seal("", "", &message))
        ),
        message
    );
}
