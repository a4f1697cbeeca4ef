//! Decodes bodies of any format into JSON values.

use std::collections::BTreeMap;

use fairgate_objects::{
    codec::{envelope, protobuf, yaml},
    schema::{
        Struct, built_in,
        meta_v1::{
            API_RESOURCE_LIST, PARTIAL_OBJECT_METADATA, PARTIAL_OBJECT_METADATA_LIST, STATUS,
        },
    },
};
use serde_json::{Value, json};

/// A decoded body.
#[derive(Debug)]
pub enum Decoded {
    Document(Value),
    Events(Vec<Value>),
    Text,
}

/// The field table of the kind that an envelope names.
fn shape(api_version: &str, kind: &str) -> &'static Struct {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match kind {
        "Status" => &STATUS,
        "PartialObjectMetadata" => &PARTIAL_OBJECT_METADATA,
        "PartialObjectMetadataList" => &PARTIAL_OBJECT_METADATA_LIST,
        "APIResourceList" => &API_RESOURCE_LIST,
        _ => built_in(group, version, kind)
            .unwrap_or_else(|| panic!("{api_version} {kind} has no table")),
    }
}

/// Decodes a body by its content type.
pub fn decode(status: u16, content_type: &str, body: &[u8]) -> Decoded {
    let (media, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    match media.trim() {
        "application/json" => json(status, body),
        "application/yaml" => Decoded::Document(yaml::parse(body).unwrap().value),
        "application/vnd.kubernetes.protobuf" if parameters.trim() == "stream=watch" => {
            Decoded::Events(frames(body))
        }
        "application/vnd.kubernetes.protobuf" => Decoded::Document(message(body)),
        _ => Decoded::Text,
    }
}

fn json(status: u16, body: &[u8]) -> Decoded {
    let text = String::from_utf8_lossy(body);
    let documents = serde_json::Deserializer::from_str(&text).into_iter();
    let Ok(mut documents) = documents.collect::<Result<Vec<Value>, _>>() else {
        return Decoded::Text;
    };
    let is_event = |one: &Value| one["type"].is_string() && !one["object"].is_null();
    if status == 200 && documents.first().is_none_or(is_event) {
        Decoded::Events(documents)
    } else if documents.is_empty() {
        Decoded::Text
    } else {
        Decoded::Document(documents.swap_remove(0))
    }
}

/// Decodes a protobuf message in its envelope.
fn message(body: &[u8]) -> Value {
    let opened = envelope::open(body).unwrap();
    let shape = shape(&opened.api_version, &opened.kind);
    let mut value = protobuf::decode(shape, opened.raw).unwrap();
    value["apiVersion"] = json!(opened.api_version);
    value["kind"] = json!(opened.kind);
    value
}

/// Decodes length-delimited frames, each with a `WatchEvent {1 type, 2 object {1 raw}}`.
fn frames(mut body: &[u8]) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk() {
        let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let event = fields(frame);
        let object = fields(event[&2]);
        let word = std::str::from_utf8(event[&1]).unwrap();
        events.push(json!({"type": word, "object": message(object[&1])}));
        body = rest;
    }
    assert!(body.is_empty(), "a frame is cut off");
    events
}

/// The fields of a message by number. All must be length-delimited.
fn fields(mut message: &[u8]) -> BTreeMap<u64, &[u8]> {
    let mut found = BTreeMap::new();
    while !message.is_empty() {
        let key = varint(&mut message);
        assert_eq!(key & 7, 2, "a length-delimited field");
        let length = usize::try_from(varint(&mut message)).unwrap();
        let (value, rest) = message.split_at(length);
        found.insert(key >> 3, value);
        message = rest;
    }
    found
}

fn varint(message: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first().unwrap();
        *message = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}
