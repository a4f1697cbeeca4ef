//! Checking that a message says nothing in two ways: all its fields are known, and none but those of lists and maps is there
//! twice.

use std::collections::BTreeSet;

use super::read::{Wire, WireError, WireReader, low_bits, micro_moment, moment};
use crate::{
    codec::json,
    schema::{List, Struct, Type},
};

/// How deep messages may nest: no table nests as deep.
const MAX_DEPTH: usize = 100;

/// Why a message could be read in several ways.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It is no message of its type.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A field without a place in the table.
    #[error("proto: unknown field {number} in {message}; send JSON")]
    Unknown {
        /// The number of the field.
        number: u32,
        /// The message that has it.
        message: &'static str,
    },
    /// A field that is there again, or a key of a map.
    #[error("proto: field {number} of {message} is repeated; send JSON")]
    Repeated {
        /// The number of the field.
        number: u32,
        /// The message that has it.
        message: &'static str,
    },
    /// Text that is not UTF-8.
    #[error("proto: {0} is not UTF-8")]
    NotUtf8(&'static str),
    /// Raw JSON with duplicate keys.
    #[error("proto: {0} has duplicate keys; send JSON")]
    DuplicateKeys(&'static str),
    /// A time or raw JSON that is there, but empty: Go tells it from one that is not, and JSON does not.
    #[error("proto: {0} is there, but empty; leave it out")]
    Empty(&'static str),
    /// An `IntOrString` that is neither, or both: Go keeps more of it than JSON shows.
    #[error("proto: {0} is not either a number or a string; send JSON")]
    IntAndString(&'static str),
    /// Messages nest too deep.
    #[error("proto: messages nest too deep")]
    TooDeep,
}

/// Checks a message of `shape`.
///
/// # Errors
///
/// [`CheckError`]. Wire types and values of fields are for the decoder to check.
pub fn check(shape: &'static Struct, message: &[u8]) -> Result<(), CheckError> {
    fields(shape, message, 0)
}

/// The fields of a message that were read.
struct SeenFields {
    message: &'static str,
    numbers: BTreeSet<u32>,
}

impl SeenFields {
    fn of(message: &'static str) -> Self {
        Self {
            message,
            numbers: BTreeSet::new(),
        }
    }

    fn once(&mut self, number: u32) -> Result<(), CheckError> {
        if self.numbers.insert(number) {
            return Ok(());
        }
        let message = self.message;
        Err(CheckError::Repeated { number, message })
    }

    fn unknown<T>(&self, number: u32) -> Result<T, CheckError> {
        let message = self.message;
        Err(CheckError::Unknown { number, message })
    }
}

fn fields(shape: &'static Struct, message: &[u8], depth: usize) -> Result<(), CheckError> {
    if depth > MAX_DEPTH {
        return Err(CheckError::TooDeep);
    }
    let mut seen = SeenFields::of(shape.name);
    let mut keys = BTreeSet::new();
    let mut reader = WireReader::new(message);
    while let Some((number, wire)) = reader.field()? {
        if let Some(field) = shape.fields.iter().find(|field| field.number == number) {
            match &field.ty {
                Type::List(list) if !list.message => value(field.name, &list.item, &wire, depth)?,
                Type::Map(map) => {
                    let key = entry(field.name, &map.value, &wire, depth)?;
                    // The field of a map repeats for each entry; only a key that repeats is worth a warning.
                    if !keys.insert((number, key)) {
                        let message = shape.name;
                        return Err(CheckError::Repeated { number, message });
                    }
                }
                ty => {
                    seen.once(number)?;
                    value(field.name, ty, &wire, depth)?;
                    if field.presence.is_pointer() && is_empty(field.name, ty, &wire)? {
                        return Err(CheckError::Empty(field.name));
                    }
                }
            }
        } else if let Some(part) = shape.inline.iter().find(|part| part.number == number) {
            seen.once(number)?;
            fields(part.shape, wire.bytes(part.shape.name)?, depth + 1)?;
        } else {
            return seen.unknown(number);
        }
    }
    Ok(())
}

/// An entry of a map. Returns its key.
fn entry<'a>(
    name: &'static str,
    ty: &'static Type,
    wire: &Wire<'a>,
    depth: usize,
) -> Result<&'a [u8], CheckError> {
    let mut seen = SeenFields::of(name);
    let mut key: &[u8] = &[];
    let mut reader = WireReader::new(wire.bytes(name)?);
    while let Some((number, wire)) = reader.field()? {
        seen.once(number)?;
        match number {
            1 => {
                key = wire.bytes(name)?;
                text(name, key)?;
            }
            2 => value(name, ty, &wire, depth)?,
            _ => return seen.unknown(number),
        }
    }
    Ok(key)
}

fn text(name: &'static str, bytes: &[u8]) -> Result<(), CheckError> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(CheckError::NotUtf8(name)),
    }
}

fn value(
    name: &'static str,
    ty: &'static Type,
    wire: &Wire<'_>,
    depth: usize,
) -> Result<(), CheckError> {
    match ty {
        Type::Text => text(name, wire.bytes(name)?),
        Type::Object(shape) => fields(shape, wire.bytes(name)?, depth + 1),
        Type::List(list) if list.message => items(name, list, wire, depth),
        Type::Time | Type::MicroTime => small(name, wire, 2).map(drop),
        Type::IntOrString => int_or_string(name, wire),
        Type::Quantity => small(name, wire, 1).map(drop),
        Type::Raw | Type::RawExtension => raw(name, wire),
        Type::Int32 | Type::Int64 | Type::Flag | Type::Bytes | Type::List(_) | Type::Map(_) => {
            Ok(())
        }
    }
}

/// A list that is a message with its items.
fn items(
    name: &'static str,
    list: &'static List,
    wire: &Wire<'_>,
    depth: usize,
) -> Result<(), CheckError> {
    let seen = SeenFields::of(name);
    let mut reader = WireReader::new(wire.bytes(name)?);
    while let Some((number, wire)) = reader.field()? {
        if number != 1 {
            return seen.unknown(number);
        }
        value(name, &list.item, &wire, depth + 1)?;
    }
    Ok(())
}

/// A message of a few fields, each there once. Returns the last one of bytes, which is text.
fn small<'a>(name: &'static str, wire: &Wire<'a>, most: u32) -> Result<&'a [u8], CheckError> {
    let mut seen = SeenFields::of(name);
    let mut last: &[u8] = &[];
    let mut reader = WireReader::new(wire.bytes(name)?);
    while let Some((number, wire)) = reader.field()? {
        if number > most {
            return seen.unknown(number);
        }
        seen.once(number)?;
        if let Wire::Bytes(bytes) = wire {
            last = bytes;
        }
    }
    text(name, last)?;
    Ok(last)
}

/// A number or a string, and which of both. The other one is zero.
fn int_or_string(name: &'static str, wire: &Wire<'_>) -> Result<(), CheckError> {
    let text = small(name, wire, 3)?;
    let (mut ty, mut int) = (0, 0);
    let mut reader = WireReader::new(wire.bytes(name)?);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Varint(number)) => ty = number,
            (2, Wire::Varint(number)) => int = low_bits(number),
            _ => {}
        }
    }
    match (ty, int, text) {
        (0, _, b"") | (1, 0, _) => Ok(()),
        _ => Err(CheckError::IntAndString(name)),
    }
}

/// Whether a field that Go has a pointer for points to what JSON writes as `null`.
fn is_empty(name: &'static str, ty: &Type, wire: &Wire<'_>) -> Result<bool, CheckError> {
    Ok(match ty {
        Type::Time => moment(wire.bytes(name)?)?.is_none(),
        Type::MicroTime => micro_moment(wire.bytes(name)?)?.is_none(),
        Type::Raw | Type::RawExtension => wire.bytes(name)?.is_empty(),
        _ => false,
    })
}

/// Raw JSON, which the server keeps as it is.
fn raw(name: &'static str, wire: &Wire<'_>) -> Result<(), CheckError> {
    let json = small(name, wire, 1)?;
    let is_there = !wire.bytes(name)?.is_empty();
    if is_there && matches!(json.trim_ascii(), b"" | b"null") {
        return Err(CheckError::Empty(name));
    }
    // What is no JSON is for the decoder to refuse.
    match json::read_tape(json) {
        Ok(read) if read.has_duplicates() => Err(CheckError::DuplicateKeys(name)),
        _ => Ok(()),
    }
}
