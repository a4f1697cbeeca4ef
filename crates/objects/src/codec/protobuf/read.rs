//! Reading messages.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{
    codec::json,
    schema::{
        Field, List, Struct, Type,
        canonical::{self, MAX_OBJECTS},
    },
};
use fairgate_gotext::{
    quantity::{self, QuantityError},
    time, utf8_text,
};

/// Why bytes are not a message of their type. The message is that of kube-apiserver's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It ends within a field.
    #[error("unexpected EOF")]
    End,
    /// A number of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length beyond any memory.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A field of another wire type than its own.
    #[error("proto: wrong wireType = {wire} for field {}", go_name(.field))]
    WrongType {
        /// The wire type found.
        wire: u8,
        /// The field, by its JSON name.
        field: &'static str,
    },
    /// Field number 0 or over 2^29 - 1.
    #[error("proto: illegal tag {number} (wire type {wire})")]
    IllegalTag {
        /// The field number.
        number: u64,
        /// The wire type.
        wire: u8,
    },
    /// Wire type 6 or 7.
    #[error("proto: illegal wireType {0}")]
    IllegalType(u8),
    /// The end of a group that was not begun, or a group that does not end.
    #[error("proto: unexpected end of group")]
    Group,
    /// A field for raw JSON that contains something else.
    #[error(transparent)]
    Json(#[from] json::SyntaxError),
    /// A malformed quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A time outside the years from 0 to 9999.
    #[error("proto: time {0} is out of range")]
    Time(i64),
    /// Over `MAX_OBJECTS`.
    #[error("proto: more than {MAX_OBJECTS} objects")]
    TooManyObjects,
}

/// The Go name of most fields.
fn go_name(field: &str) -> String {
    let mut name = field.to_owned();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// Decodes `message` to an object in canonical form.
///
/// Costs time and memory linear in the length of `message`.
///
/// # Errors
///
/// [`WireError`], if it is not a message of `shape`.
pub fn decode(shape: &'static Struct, message: &[u8]) -> Result<Value, WireError> {
    let mut object = Map::new();
    Decoder { objects: 0 }.message(shape, message, &mut object)?;
    canonical::complete(shape, &mut object);
    Ok(Value::Object(object))
}

/// The rest of a message.
pub(in super::super) struct WireReader<'a> {
    rest: &'a [u8],
}

/// One field of a message.
pub(in super::super) enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A field of a wire type that no table has.
    Other(u8),
}

impl<'a> Wire<'a> {
    /// The bytes of the field, if it has the wire type of bytes.
    pub(in super::super) fn bytes(&self, field: &'static str) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong(field)),
        }
    }

    fn varint(&self, field: &'static str) -> Result<u64, WireError> {
        match self {
            Self::Varint(number) => Ok(*number),
            other => Err(other.wrong(field)),
        }
    }

    fn wrong(&self, field: &'static str) -> WireError {
        let wire = self.number();
        WireError::WrongType { wire, field }
    }

    fn number(&self) -> u8 {
        match self {
            Self::Varint(_) => VARINT,
            Self::Bytes(_) => BYTES,
            Self::Other(wire) => *wire,
        }
    }
}

impl<'a> WireReader<'a> {
    pub(in super::super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The next field: its number and value. None at the end.
    pub(in super::super) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        if wire == GROUP_END {
            return Err(WireError::Group);
        }
        Ok(Some((number, self.value(wire)?)))
    }

    /// The number and wire type of the next field.
    fn tag(&mut self) -> Result<(u32, u8), WireError> {
        let key = self.varint()?;
        let wire = (key & 7).to_le_bytes()[0];
        match u32::try_from(key >> 3) {
            Ok(number @ 1..=0x1fff_ffff) => Ok((number, wire)),
            _ => Err(WireError::IllegalTag {
                number: key >> 3,
                wire,
            }),
        }
    }

    fn value(&mut self, wire: u8) -> Result<Wire<'a>, WireError> {
        match wire {
            VARINT => return self.varint().map(Wire::Varint),
            BYTES => return self.bytes().map(Wire::Bytes),
            FIXED64 => _ = self.take(8)?,
            FIXED32 => _ = self.take(4)?,
            GROUP => self.skip_group()?,
            other => return Err(WireError::IllegalType(other)),
        }
        Ok(Wire::Other(wire))
    }

    /// Skips to the end of a group that was begun, whatever groups are within it.
    fn skip_group(&mut self) -> Result<(), WireError> {
        // Counted, not recursive: a client chooses how deep its groups are.
        let mut open = 1_usize;
        while open > 0 {
            let (_, wire) = self.tag()?;
            match wire {
                GROUP => open += 1,
                GROUP_END => open -= 1,
                other => {
                    self.value(other)?;
                }
            }
        }
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(WireError::End)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(WireError::Overflow)
    }

    fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length = self.varint()?;
        // Go reads a length into an int, where this is negative.
        if length > u64::MAX / 2 {
            return Err(WireError::Length);
        }
        self.take(usize::try_from(length).map_err(|_| WireError::Length)?)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::End)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// The low 32 bits, as in Go.
fn int32(number: u64) -> Value {
    Value::from(low_bits(number))
}

pub(super) fn low_bits(number: u64) -> i32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

struct Decoder {
    objects: usize,
}

impl Decoder {
    fn message(
        &mut self,
        shape: &'static Struct,
        message: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), WireError> {
        self.objects += 1;
        if self.objects > MAX_OBJECTS {
            return Err(WireError::TooManyObjects);
        }
        let mut reader = WireReader::new(message);
        while let Some((number, wire)) = reader.field()? {
            if let Some(field) = shape.fields.iter().find(|field| field.number == number) {
                self.field(field, &wire, into)?;
            } else if let Some(inline) = shape.inline.iter().find(|part| part.number == number) {
                self.message(inline.shape, wire.bytes(inline.shape.name)?, into)?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static Field,
        wire: &Wire<'_>,
        into: &mut Map<String, Value>,
    ) -> Result<(), WireError> {
        // Of a field that is there again, items are appended and messages merged; of a scalar, the last counts.
        let old = into.remove(field.name);
        let value = match &field.ty {
            Type::List(list) if !list.message => {
                let mut items = match old {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                };
                self.items(field.name, &list.item, wire, &mut items)?;
                Some(Value::Array(items))
            }
            Type::Map(map) => {
                let mut entries = match old {
                    Some(Value::Object(entries)) => entries,
                    _ => Map::new(),
                };
                let (key, value) = self.entry(field.name, &map.value, wire)?;
                entries.insert(key, value);
                Some(Value::Object(entries))
            }
            ty => self.value(field.name, ty, wire, old)?,
        };
        if let Some(value) = value {
            into.insert(field.name.to_owned(), value);
        }
        Ok(())
    }

    /// One item of a list, or several packed numbers.
    fn items(
        &mut self,
        name: &'static str,
        ty: &'static Type,
        wire: &Wire<'_>,
        items: &mut Vec<Value>,
    ) -> Result<(), WireError> {
        // A parser must accept packed and single numbers, whichever the schema names.
        if let (Type::Int32 | Type::Int64 | Type::Flag, Wire::Bytes(packed)) = (ty, wire) {
            let mut reader = WireReader::new(packed);
            while !reader.rest.is_empty() {
                let number = Wire::Varint(reader.varint()?);
                items.extend(self.value(name, ty, &number, None)?);
            }
            return Ok(());
        }
        let item = self.value(name, ty, wire, None)?;
        items.push(item.unwrap_or(Value::Null));
        Ok(())
    }

    fn entry(
        &mut self,
        name: &'static str,
        ty: &'static Type,
        wire: &Wire<'_>,
    ) -> Result<(String, Value), WireError> {
        let mut reader = WireReader::new(wire.bytes(name)?);
        let (mut key, mut value) = (String::new(), None);
        while let Some((number, wire)) = reader.field()? {
            match number {
                1 => key = utf8_text(wire.bytes(name)?).into_owned(),
                2 => value = self.value(name, ty, &wire, value)?,
                _ => {}
            }
        }
        let value = match (ty, value) {
            (Type::Bytes, None) => Value::from(""),
            // Go's decoder makes the list before it reads items, which only an entry shows.
            (Type::List(_), None | Some(Value::Null)) => Value::Array(Vec::new()),
            (ty, value) => value.unwrap_or_else(|| canonical::zero(ty)),
        };
        Ok((key, value))
    }

    /// One value; an object is merged into the earlier one. None for the zero time.
    fn value(
        &mut self,
        name: &'static str,
        ty: &'static Type,
        wire: &Wire<'_>,
        old: Option<Value>,
    ) -> Result<Option<Value>, WireError> {
        Ok(Some(match ty {
            Type::Text => Value::from(utf8_text(wire.bytes(name)?).into_owned()),
            Type::Int32 => int32(wire.varint(name)?),
            Type::Int64 => Value::from(wire.varint(name)?.cast_signed()),
            Type::Flag => Value::from(wire.varint(name)? != 0),
            Type::Bytes => Value::from(STANDARD.encode(wire.bytes(name)?)),
            Type::Time => return moment(wire.bytes(name)?),
            Type::MicroTime => return micro_moment(wire.bytes(name)?),
            Type::Raw | Type::RawExtension => return raw(wire.bytes(name)?),
            Type::Quantity => Value::from(amount(wire.bytes(name)?)?),
            Type::IntOrString => int_or_string(wire.bytes(name)?)?,
            Type::Object(shape) => {
                let mut object = match old {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                self.message(shape, wire.bytes(name)?, &mut object)?;
                Value::Object(object)
            }
            Type::List(list) if list.message => self.list(list, wire.bytes(name)?, old)?,
            // No table has such lists in lists, or maps in anything: protobuf cannot express them.
            Type::List(_) | Type::Map(_) => return Ok(None),
        }))
    }

    /// A list that is a message with its items.
    fn list(
        &mut self,
        list: &'static List,
        message: &[u8],
        old: Option<Value>,
    ) -> Result<Value, WireError> {
        let mut items = match old {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let mut reader = WireReader::new(message);
        while let Some((number, wire)) = reader.field()? {
            if number == 1 {
                self.items("items", &list.item, &wire, &mut items)?;
            }
        }
        Ok(if items.is_empty() {
            Value::Null
        } else {
            Value::Array(items)
        })
    }
}

/// A `Time`; nothing at all is the zero time.
pub(super) fn moment(message: &[u8]) -> Result<Option<Value>, WireError> {
    let (seconds, _) = timestamp(message)?;
    if message.is_empty() || seconds == time::ZERO {
        return Ok(None);
    }
    let text = time::from_seconds(seconds).ok_or(WireError::Time(seconds))?;
    Ok(Some(Value::from(text)))
}

/// A `MicroTime`; nothing at all is the zero time.
pub(super) fn micro_moment(message: &[u8]) -> Result<Option<Value>, WireError> {
    let (seconds, nanos) = timestamp(message)?;
    let micros = nanos / 1000;
    if message.is_empty() || seconds == time::ZERO && micros == 0 {
        return Ok(None);
    }
    let text = time::from_micros(seconds, micros).ok_or(WireError::Time(seconds))?;
    Ok(Some(Value::from(text)))
}

/// The seconds and nanoseconds of a `Timestamp`.
fn timestamp(message: &[u8]) -> Result<(i64, i32), WireError> {
    let mut reader = WireReader::new(message);
    let (mut seconds, mut nanos) = (0, 0);
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => seconds = wire.varint("seconds")?.cast_signed(),
            2 => nanos = low_bits(wire.varint("nanos")?),
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

/// The canonical text of a `Quantity`.
fn amount(message: &[u8]) -> Result<String, WireError> {
    let mut reader = WireReader::new(message);
    let mut amount = None;
    while let Some((number, wire)) = reader.field()? {
        if number == 1 {
            amount = Some(quantity::canonical(&utf8_text(wire.bytes("string")?))?);
        }
    }
    Ok(amount.unwrap_or_else(|| "0".to_owned()))
}

/// Raw JSON.
fn raw(message: &[u8]) -> Result<Option<Value>, WireError> {
    let mut reader = WireReader::new(message);
    let mut raw: &[u8] = &[];
    while let Some((number, wire)) = reader.field()? {
        if number == 1 {
            raw = wire.bytes("Raw")?;
        }
    }
    if raw.is_empty() {
        return Ok(None);
    }
    Ok(Some(json::parse(raw)?.value))
}

fn int_or_string(message: &[u8]) -> Result<Value, WireError> {
    let mut reader = WireReader::new(message);
    let (mut is_text, mut int, mut string) = (false, Value::from(0), String::new());
    while let Some((number, wire)) = reader.field()? {
        match number {
            1 => is_text = wire.varint("type")? == 1,
            2 => int = int32(wire.varint("intVal")?),
            3 => string = utf8_text(wire.bytes("strVal")?).into_owned(),
            _ => {}
        }
    }
    Ok(if is_text { Value::from(string) } else { int })
}
