//! What encloses protobuf messages: the envelope with version and kind, lists, watch frames.
//!
//! A body is `k8s\0` and a message `Unknown {1 typeMeta {1 apiVersion, 2 kind}, 2 raw,
//! 3 contentEncoding, 4 contentType}`; `raw` is the object.

use serde_json::Value;

use super::protobuf::{self, WireError, WireReader, put_bytes};
use crate::schema::{Struct, meta_v1::LIST_META};
use fairgate_gotext::utf8_text;

/// The beginning of every body.
pub const PREFIX: [u8; 4] = *b"k8s\0";

/// The contents of an envelope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenedEnvelope<'a> {
    /// Group and version of the object; may be empty.
    pub api_version: String,
    /// The kind of the object; may be empty.
    pub kind: String,
    /// The object as a protobuf message.
    pub raw: &'a [u8],
}

/// Why a body is not an envelope. The message is that of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// No bytes at all.
    #[error("empty data")]
    Empty,
    /// The body does not begin with [`PREFIX`].
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Prefix,
    /// Nothing follows [`PREFIX`].
    #[error("empty body")]
    EmptyBody,
    /// Where each field must be known and there once, this one is not.
    #[error("proto: field {0} of the envelope is unknown or repeated; send JSON")]
    Ambiguous(u32),
    /// Not an envelope.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// Opens the envelope of a body. Costs time linear in its length, and copies nothing but names.
///
/// # Errors
///
/// [`EnvelopeError`], if it is not an envelope.
pub fn open(body: &[u8]) -> Result<OpenedEnvelope<'_>, EnvelopeError> {
    if body.is_empty() {
        return Err(EnvelopeError::Empty);
    }
    let message = body.strip_prefix(&PREFIX).ok_or(EnvelopeError::Prefix)?;
    if message.is_empty() {
        return Err(EnvelopeError::EmptyBody);
    }
    let mut opened = OpenedEnvelope::default();
    let mut reader = WireReader::new(message);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => {
                let mut reader = WireReader::new(wire.bytes("typeMeta")?);
                while let Some((number, wire)) = reader.field()? {
                    match number {
                        1 => opened.api_version = utf8_text(wire.bytes("apiVersion")?).into_owned(),
                        2 => opened.kind = utf8_text(wire.bytes("kind")?).into_owned(),
                        _ => {}
                    }
                }
            }
            2 => opened.raw = wire.bytes("raw")?,
            // Nothing depends on them, but the server refuses other types.
            3 => _ = wire.bytes("contentEncoding")?,
            4 => _ = wire.bytes("contentType")?,
            _ => {}
        }
    }
    Ok(opened)
}

/// The message in the envelope of a body, if each field of the envelope is known and there once.
///
/// # Errors
///
/// [`EnvelopeError`].
pub fn open_exactly(body: &[u8]) -> Result<&[u8], EnvelopeError> {
    let opened = open(body)?;
    let type_meta = each_once(&body[PREFIX.len()..], 4)?;
    each_once(type_meta, 2)?;
    Ok(opened.raw)
}

/// Checks that the fields of a message are those up to `most`, each there once. Returns the bytes of the first.
fn each_once(message: &[u8], most: u32) -> Result<&[u8], EnvelopeError> {
    let (mut first, mut seen): (&[u8], _) = (&[], Vec::new());
    let mut reader = WireReader::new(message);
    while let Some((number, wire)) = reader.field()? {
        if number > most || seen.contains(&number) {
            return Err(EnvelopeError::Ambiguous(number));
        }
        seen.push(number);
        if number == 1 {
            first = wire.bytes("typeMeta")?;
        }
    }
    Ok(first)
}

/// The body with these texts in the metadata of its object, by the numbers of their fields. A message that occurs twice is merged,
/// and of a text that occurs twice the last counts, so that they can be appended.
///
/// # Errors
///
/// [`EnvelopeError`], if it is not an envelope.
pub fn with_metadata(body: &[u8], fields: &[(u32, &str)]) -> Result<Vec<u8>, EnvelopeError> {
    const METADATA: u32 = 1;
    let opened = open(body)?;
    let mut metadata = Vec::new();
    for (number, text) in fields {
        put_bytes(*number, text.as_bytes(), &mut metadata);
    }
    let mut message = opened.raw.to_vec();
    put_bytes(METADATA, &metadata, &mut message);
    Ok(seal(&opened.api_version, &opened.kind, &message))
}

/// The body of an object, given its message.
pub fn seal(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::with_capacity(api_version.len() + kind.len() + 4);
    put_bytes(1, api_version.as_bytes(), &mut type_meta);
    put_bytes(2, kind.as_bytes(), &mut type_meta);
    let mut body = Vec::with_capacity(message.len() + type_meta.len() + 24);
    body.extend_from_slice(&PREFIX);
    put_bytes(1, &type_meta, &mut body);
    put_bytes(2, message, &mut body);
    put_bytes(3, b"", &mut body);
    put_bytes(4, b"", &mut body);
    body
}

/// The body of one object of `shape`, with the object's `apiVersion` and `kind`.
pub fn seal_object(shape: &Struct, object: &Value) -> Vec<u8> {
    let name = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    seal(
        name("apiVersion"),
        name("kind"),
        &protobuf::encode(shape, object),
    )
}

/// The message of a list, to which objects are added one after the other.
#[derive(Debug)]
pub struct ListMessage(Vec<u8>);

impl ListMessage {
    /// A list without objects, with this metadata.
    pub fn new(metadata: &Value) -> Self {
        let mut message = Vec::with_capacity(4096);
        put_bytes(1, &protobuf::encode(&LIST_META, metadata), &mut message);
        Self(message)
    }

    /// Adds an object of `shape`.
    pub fn push(&mut self, shape: &Struct, item: &Value) {
        put_bytes(2, &protobuf::encode(shape, item), &mut self.0);
    }

    /// The body of the list.
    pub fn seal(&self, kind: &str, api_version: &str) -> Vec<u8> {
        seal(api_version, kind, &self.0)
    }
}

/// One frame of a watch: its length in four bytes, big-endian, then `WatchEvent {1 type, 2 object {1 raw}}`.
/// `body` is the sealed object.
pub fn watch_frame(event: &str, body: &[u8]) -> Vec<u8> {
    const LENGTH: usize = 4;
    let mut object = Vec::with_capacity(body.len() + 8);
    put_bytes(1, body, &mut object);
    let mut frame = Vec::with_capacity(object.len() + event.len() + 24);
    frame.extend_from_slice(&[0; LENGTH]);
    put_bytes(1, event.as_bytes(), &mut frame);
    put_bytes(2, &object, &mut frame);
    let length = u32::try_from(frame.len() - LENGTH).unwrap_or(u32::MAX);
    frame[..LENGTH].copy_from_slice(&length.to_be_bytes());
    frame
}
