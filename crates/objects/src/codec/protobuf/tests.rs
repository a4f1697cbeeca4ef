//! Messages of a real server, decoded and encoded again, and malformed messages.

use serde_json::json;

use super::*;
use crate::{
    codec::{envelope, json},
    schema::{
        List, MapType, Struct, Type, TypePackage, built_in,
        canonical::MAX_OBJECTS,
        field,
        flowcontrol_v1::{FLOW_SCHEMA, PRIORITY_LEVEL_CONFIGURATION as PRIORITY_LEVEL},
        meta_v1::{DELETE_OPTIONS, STATUS},
    },
};

fn message(body: &[u8]) -> &[u8] {
    envelope::open(body).unwrap().raw
}

/// Decodes a captured body, and expects the bytes and the JSON text that were captured.
fn golden(shape: &'static Struct, body: &[u8], text: &[u8]) {
    let opened = envelope::open(body).unwrap();
    let mut value = decode(shape, opened.raw).unwrap();
    value["kind"] = json!(opened.kind);
    value["apiVersion"] = json!(opened.api_version);
    assert_eq!(
        String::from_utf8(json::encode(shape, &value, false)).unwrap(),
        std::str::from_utf8(text).unwrap()
    );
    assert_eq!(envelope::seal_object(shape, &value), body);
    assert_eq!(json::parse(text).unwrap().value, value);
}

#[test]
fn a_flow_schema_of_a_real_server_round_trips_unchanged() {
    golden(
        &FLOW_SCHEMA,
        include_bytes!("../testdata/flow_schema.pb"),
        include_bytes!("../testdata/flow_schema.json"),
    );
}

#[test]
fn a_priority_level_of_a_real_server_round_trips_unchanged() {
    golden(
        &PRIORITY_LEVEL,
        include_bytes!("../testdata/priority_level.pb"),
        include_bytes!("../testdata/priority_level.json"),
    );
}

#[test]
fn a_status_of_a_real_server_round_trips_unchanged() {
    golden(
        &STATUS,
        include_bytes!("../testdata/status.pb"),
        include_bytes!("../testdata/status.json"),
    );
}

static OTHERS: Struct = Struct::new(
    "Others",
    TypePackage::GroupVersion,
    &[
        field("port", 3, Type::IntOrString).pointer(),
        field("numbers", 2, Type::List(&NUMBERS)),
        field("small", 1, Type::Int32),
        field("big", 20, Type::Int64),
        field("at", 21, Type::Map(&MapType::of(Type::Time))),
    ],
);
static NUMBERS: List = List::atomic(Type::Int32);

#[test]
fn other_types_round_trip() {
    for value in [
        json!({"port": 80, "numbers": [1, -2, 300], "small": -1, "big": i64::MIN}),
        json!({"port": "http", "at": {"a": "2020-01-01T00:00:00Z", "b": null}}),
        json!({}),
    ] {
        let message = encode(&OTHERS, &value);
        assert_eq!(decode(&OTHERS, &message).unwrap(), value);
    }
}

#[test]
fn fields_are_written_by_number_and_zeros_too() {
    assert_eq!(
        encode(&OTHERS, &json!({"port": 1, "numbers": [1, 2]})),
        b"\x08\0\x10\x01\x10\x02\x1a\x06\x08\0\x10\x01\x1a\0\xa0\x01\0"
    );
}

#[test]
fn packed_numbers_are_accepted() {
    assert_eq!(
        decode(&OTHERS, b"\x12\x03\x01\xac\x02\x10\x07").unwrap(),
        json!({"numbers": [1, 300, 7]})
    );
}

#[test]
fn the_last_scalar_wins_and_messages_are_merged() {
    assert_eq!(
        decode(&OTHERS, b"\x08\x01\x08\x02").unwrap(),
        json!({"small": 2})
    );
    let twice = [
        encode(
            &FLOW_SCHEMA,
            &json!({"metadata": {"name": "a", "labels": {"x": "1"}}}),
        ),
        b"\x0a\x08\x5a\x06\x0a\x01y\x12\x012".to_vec(),
    ]
    .concat();
    assert_eq!(
        decode(&FLOW_SCHEMA, &twice).unwrap()["metadata"],
        json!({"name": "a", "labels": {"x": "1", "y": "2"}})
    );
}

#[test]
fn unknown_fields_are_skipped_whatever_they_are() {
    let message = b"\xf8\x01\x01\xf9\x0112345678\xfa\x01\x02ab\xfb\x01\x08\x01\xfb\x01\xfc\x01\xfc\x01\xfd\x011234\x08\x05";
    assert_eq!(decode(&OTHERS, message).unwrap(), json!({"small": 5}));
}

#[test]
fn invalid_utf_8_is_replaced() {
    assert_eq!(
        decode(&DELETE_OPTIONS, b"\x22\x03a\xff\xfe").unwrap(),
        json!({"propagationPolicy": "a\u{fffd}\u{fffd}"})
    );
}

#[test]
fn malformed_input_is_reported() {
    for (message, error) in [
        (&b"\x08"[..], "unexpected EOF"),
        (b"\x12\x05a", "unexpected EOF"),
        (
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "proto: negative length found during unmarshaling",
        ),
        (
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "proto: integer overflow",
        ),
        (b"\x0a\x01a", "proto: wrong wireType = 2 for field Small"),
        (b"\x18\x01", "proto: wrong wireType = 0 for field Port"),
        (b"\x00\x01", "proto: illegal tag 0 (wire type 0)"),
        (b"\x0f\x01", "proto: illegal wireType 7"),
        (b"\x0c", "proto: unexpected end of group"),
        (b"\x0b\x0b\x0c", "unexpected EOF"),
    ] {
        assert_eq!(decode(&OTHERS, message).unwrap_err().to_string(), error);
    }
    let raw = b"\x0a\x0c\x8a\x01\x09\x3a\x07\x0a\x05{\"a\":";
    assert_eq!(
        decode(&FLOW_SCHEMA, raw).unwrap_err().to_string(),
        "unexpected end of JSON input"
    );
    let late = b"\x0a\x0c\x42\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
    assert!(matches!(
        decode(&FLOW_SCHEMA, late),
        Err(WireError::Time(_))
    ));
}

#[test]
fn no_prefix_and_no_flipped_byte_of_a_message_panics() {
    let message = message(include_bytes!("../testdata/flow_schema.pb"));
    for end in 0..message.len() {
        let _ = decode(&FLOW_SCHEMA, &message[..end]);
    }
    let mut decoded = 0;
    for at in 0..message.len() {
        for byte in [0, 1, 0x0a, 0x7f, 0x80, 0xff] {
            let mut message = message.to_vec();
            message[at] = byte;
            if let Ok(value) = decode(&FLOW_SCHEMA, &message) {
                let again = encode(&FLOW_SCHEMA, &value);
                assert_eq!(decode(&FLOW_SCHEMA, &again), Ok(value));
                decoded += 1;
            }
        }
    }
    assert!(decoded > message.len());
}

#[test]
fn the_number_of_objects_is_bounded() {
    let rules = |count| {
        let spec = b"\x22\0".repeat(count);
        let mut message = Vec::new();
        write::put_bytes(2, &spec, &mut message);
        message
    };
    assert!(decode(&FLOW_SCHEMA, &rules(1000)).is_ok());
    assert_eq!(
        decode(&FLOW_SCHEMA, &rules(MAX_OBJECTS)),
        Err(WireError::TooManyObjects)
    );
}

#[test]
fn an_entry_of_a_map_without_its_list_has_an_empty_one() {
    let review = built_in("authorization.k8s.io", "v1", "SubjectAccessReview").unwrap();
    // `spec.extra` with the keys `a`, that has no value, and `b`, that has one without items.
    let message = b"\x12\x0c\x2a\x03\x0a\x01a\x2a\x05\x0a\x01b\x12\x00";
    let extra = &decode(review, message).unwrap()["spec"]["extra"];
    assert_eq!(extra, &json!({"a": [], "b": []}));
}
