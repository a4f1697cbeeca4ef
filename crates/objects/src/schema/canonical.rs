//! Canonical form: what decoding into a Go struct and encoding it again makes of an object.
//!
//! [`decode`] takes an object of any origin that can show itself as a [`Source`], drops what its
//! table does not know, refuses what has the wrong type, and puts it into canonical form. It works
//! as Go's decoder does, because clients see the effects: the text of an error, which of several
//! errors is reported, that a key given twice is decoded twice into the same place, that strict problems
//! come in the order of the text.
//!
//! Depth is bounded by the tables, which are finite, and by what the source allows in raw JSON.
//!
//! Not here: reading bytes ([`crate::codec`]), defaults of a kind, validation.

mod go_types;
pub(crate) mod number;
pub(crate) mod quantity;
#[cfg(test)]
mod tests;
pub(crate) mod time;

use std::{borrow::Cow, collections::BTreeSet, fmt::Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::{Presence, Struct, Type};
use crate::go::Quoted;
use quantity::QuantityError;
use time::TimeError;

/// The maximum number of objects that one decoding creates.
///
/// An object of a list costs two bytes of a body, but hundreds of bytes of memory.
pub(crate) const MAX_OBJECTS: usize = 65_536;

/// The most strict problems that one decoding reports, as in Go's decoder.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// The version whose package name errors show by default.
const VERSION: &str = "v1";

/// Something that can be decoded: a tree of JSON values.
pub trait Source: Sized {
    /// The JSON type of the value, with its contents.
    fn view(&self) -> View<'_, Self>;

    /// Itself, as plain JSON.
    fn to_value(&self) -> Value;
}

/// What a [`Source`] is.
pub enum View<'a, S> {
    /// Null.
    Null,
    /// A boolean.
    Flag(bool),
    /// A number, as it was written.
    Number(Cow<'a, str>),
    /// A string.
    Text(&'a str),
    /// A list.
    List(&'a [S]),
    /// An object: its members in their order.
    Object(Members<'a, S>),
}

/// The members of an object.
pub type Members<'a, S> = Box<dyn Iterator<Item = (&'a str, &'a S)> + 'a>;

/// An object in canonical form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The object in canonical form.
    pub value: Value,
    /// Strict problems: `unknown field "spec.foo"`, `duplicate field "spec.foo"`; at most
    /// `MAX_PROBLEMS`, each once, in the order of the source.
    pub problems: Vec<String>,
}

/// Why a value does not fit its table. Its text is that of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// A value of the wrong type, or a number out of range.
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    Unfit {
        /// What there is, as `string` or `number 1.5`.
        found: String,
        /// Where: `value`, or `struct field Owner.path.to.field`.
        place: String,
        /// The Go type there.
        wanted: String,
    },
    /// A malformed time.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// A malformed quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Text that should be base64 and is not, from this byte on.
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    /// Over `MAX_OBJECTS`.
    #[error("json: more than {MAX_OBJECTS} objects")]
    TooManyObjects,
}

/// Brings `raw` into canonical form for `shape`; `kind` and `apiVersion` at its top stay.
///
/// Costs time and memory linear in the size of `raw`.
///
/// # Errors
///
/// The [`TypeError`] that Go's decoder would report: a bad time at once, else the first wrong type.
pub fn decode<S: Source>(shape: &'static Struct, raw: &S) -> Result<Decoded, TypeError> {
    decode_version(shape, VERSION, raw)
}

/// As [`decode`]; errors show types as those of `version`, such as `v1beta3.FlowSchemaSpec`.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_version<S: Source>(
    shape: &'static Struct,
    version: &str,
    raw: &S,
) -> Result<Decoded, TypeError> {
    let mut decoder = Decoder {
        version,
        ..Decoder::default()
    };
    let mut object = Map::new();
    match raw.view() {
        View::Null => {}
        View::Object(members) => decoder.object(shape, members, &mut object)?,
        other => {
            let wanted = go_types::type_name(&Type::Object(shape), version);
            decoder.keep(found(&other).to_owned(), wanted);
        }
    }
    if let Some(error) = decoder.first {
        return Err(error);
    }
    complete(shape, &mut object);
    Ok(Decoded {
        value: Value::Object(object),
        problems: decoder.problems,
    })
}

/// Brings an object whose values have the right types into canonical form, for example after
/// something was set or removed in it. Keys without a field stay.
pub(crate) fn complete(shape: &Struct, object: &mut Map<String, Value>) {
    for field in shape.fields {
        if let Type::Object(_) = field.ty
            && !field.presence.is_pointer()
            && object.get(field.name).is_none_or(Value::is_null)
        {
            object.insert(field.name.to_owned(), Value::Object(Map::new()));
        }
        if let Some(value) = object.get_mut(field.name) {
            complete_value(&field.ty, value);
        }
        settle(field.name, &field.ty, field.presence, object);
    }
}

/// Brings a value of type `ty` into canonical form.
fn complete_value(ty: &Type, value: &mut Value) {
    match (ty, value) {
        (Type::Object(shape), Value::Object(object)) => complete(shape, object),
        (Type::List(list), Value::Array(items)) => {
            for item in items {
                complete_value(&list.item, item);
            }
        }
        (Type::Map(map), Value::Object(entries)) => {
            for (_, value) in entries.iter_mut() {
                complete_value(&map.value, value);
            }
        }
        _ => {}
    }
}

/// Inserts or removes an empty value, as the field's presence requires.
fn settle(name: &str, ty: &Type, presence: Presence, object: &mut Map<String, Value>) {
    let value = object.get(name);
    match presence {
        Presence::Pointer | Presence::Nullable if value.is_some_and(Value::is_null) => {
            object.remove(name);
        }
        Presence::NonZero if value.is_some_and(is_zero) => {
            object.remove(name);
        }
        Presence::Always if value.is_none_or(|value| is_nothing(ty, value)) => {
            object.insert(name.to_owned(), zero(ty));
        }
        _ => {}
    }
}

/// Whether a mandatory value is to be written as its zero: an empty list is null, as after storage.
fn is_nothing(ty: &Type, value: &Value) -> bool {
    value.is_null() || matches!(ty, Type::List(_) | Type::Map(_)) && is_zero(value)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// What a Go value of this type is before something is decoded into it.
pub fn zero(ty: &Type) -> Value {
    match ty {
        Type::Text => Value::String(String::new()),
        Type::Int32 | Type::Int64 | Type::IntOrString => Value::from(0),
        Type::Flag => Value::Bool(false),
        Type::Quantity => Value::from("0"),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Raw
        | Type::RawExtension
        | Type::List(_)
        | Type::Map(_) => Value::Null,
        Type::Object(_) => Value::Object(Map::new()),
    }
}

/// What Go's decoder calls a value.
pub fn found<S>(view: &View<'_, S>) -> &'static str {
    match view {
        View::Null => "null",
        View::Flag(_) => "bool",
        View::Number(_) => "number",
        View::Text(_) => "string",
        View::List(_) => "array",
        View::Object(_) => "object",
    }
}

/// The same, where a number is wanted: with the text of one that does not fit.
fn found_for_number<S>(view: &View<'_, S>) -> String {
    match view {
        View::Number(text) => format!("number {text}"),
        other => found(other).to_owned(),
    }
}

/// One decoding under way.
#[derive(Default)]
struct Decoder<'v> {
    version: &'v str,
    problems: Vec<String>,
    /// The first error that does not end the decoding at once.
    first: Option<TypeError>,
    /// Path for strict problems, with indices and map keys.
    path: String,
    /// Path for type errors: fields only.
    fields: Vec<&'static str>,
    /// The struct that the last of `fields` belongs to.
    owner: &'static str,
    objects: usize,
}

impl Decoder<'_> {
    fn object<S: Source>(
        &mut self,
        shape: &'static Struct,
        members: Members<'_, S>,
        into: &mut Map<String, Value>,
    ) -> Result<(), TypeError> {
        self.objects += 1;
        if self.objects > MAX_OBJECTS {
            return Err(TypeError::TooManyObjects);
        }
        let top = self.fields.is_empty();
        let mut seen: Vec<&'static str> = Vec::new();
        for (key, node) in members {
            let (name, ty, pointer) = if let Some(field) = shape.field(key) {
                let pointer = field.presence.is_pointer();
                (field.name, &field.ty, pointer)
            } else if let Some(name) = type_meta(key).filter(|_| top) {
                (name, &Type::Text, false)
            } else {
                self.problem("unknown", key);
                continue;
            };
            if seen.contains(&name) {
                self.problem("duplicate", key);
            } else {
                seen.push(name);
            }
            let old = into.remove(name);
            if let Some(value) =
                self.member(shape, name, |decoder| decoder.value(ty, pointer, node, old))?
            {
                into.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    /// Runs `decode` with its paths one field deeper. After an error they stay, because they are no longer used.
    fn member<T>(
        &mut self,
        shape: &'static Struct,
        name: &'static str,
        decode: impl FnOnce(&mut Self) -> Result<T, TypeError>,
    ) -> Result<T, TypeError> {
        let (owner, path) = (self.owner, self.path.len());
        self.owner = shape.name;
        self.fields.push(name);
        self.push_key(name);
        let value = decode(self)?;
        self.owner = owner;
        self.fields.pop();
        self.path.truncate(path);
        Ok(value)
    }

    /// The value `old` with `node` decoded into it; `None` if it is absent then.
    fn value<S: Source>(
        &mut self,
        ty: &'static Type,
        pointer: bool,
        node: &S,
        old: Option<Value>,
    ) -> Result<Option<Value>, TypeError> {
        Ok(match (ty, node.view()) {
            (
                Type::Raw
                | Type::RawExtension
                | Type::Bytes
                | Type::Time
                | Type::MicroTime
                | Type::List(_)
                | Type::Map(_)
                | Type::Quantity,
                View::Null,
            ) => None,
            (_, View::Null) => old.filter(|_| !pointer),
            (Type::Raw | Type::RawExtension, _) => Some(node.to_value()),
            (Type::Bytes, View::Text(text)) => match bytes(text) {
                Ok(text) => Some(Value::from(text)),
                Err(error) => {
                    self.first.get_or_insert(error);
                    old
                }
            },
            (Type::Bytes, View::List(items)) => {
                let numbers = items.iter().map(|item| self.byte(&item.view()));
                let bytes: Vec<u8> = numbers.collect();
                Some(Value::from(STANDARD.encode(bytes)))
            }
            (Type::Quantity, View::Text(text)) => {
                Some(Value::from(quantity::canonical(text.trim())?))
            }
            (Type::Quantity, View::Number(text)) => Some(Value::from(quantity::canonical(&text)?)),
            (Type::Quantity, _) => return Err(QuantityError::Format.into()),
            (Type::Text | Type::IntOrString, View::Text(text)) => Some(Value::from(text)),
            (Type::Flag, View::Flag(flag)) => Some(Value::from(flag)),
            (Type::Int32, View::Number(text)) => match text.parse::<i32>() {
                Ok(number) => Some(Value::from(number)),
                Err(_) => self.unfit(ty, &View::<S>::Number(text), old),
            },
            (Type::Int64, View::Number(text)) => match text.parse::<i64>() {
                Ok(number) => Some(Value::from(number)),
                Err(_) => self.unfit(ty, &View::<S>::Number(text), old),
            },
            (Type::Time, View::Text(text)) => time::parse(text)?.map(Value::from),
            (Type::MicroTime, View::Text(text)) => time::parse_micro(text)?.map(Value::from),
            (Type::Time | Type::MicroTime, other) => {
                return Err(self.error(found(&other).to_owned(), "string".to_owned()));
            }
            (Type::IntOrString, other) => return self.int(&other).map(Some),
            (Type::Object(shape), View::Object(members)) => {
                let mut object = match old {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                self.object(shape, members, &mut object)?;
                Some(Value::Object(object))
            }
            (Type::List(list), View::List(items)) => Some(self.list(&list.item, items, old)?),
            (Type::Map(map), View::Object(members)) => Some(self.map(&map.value, members, old)?),
            (_, other) => self.unfit(ty, &other, old),
        })
    }

    /// A list: decoded over the items of one that was there before.
    fn list<S: Source>(
        &mut self,
        ty: &'static Type,
        items: &[S],
        old: Option<Value>,
    ) -> Result<Value, TypeError> {
        let mut old = match old {
            Some(Value::Array(items)) => items.into_iter(),
            _ => Vec::new().into_iter(),
        };
        let mut list = Vec::with_capacity(items.len());
        let path = self.path.len();
        for (index, item) in items.iter().enumerate() {
            write!(self.path, "[{index}]").expect("writing to a string cannot fail");
            let value = self.value(ty, false, item, old.next())?;
            list.push(value.map_or_else(|| self.zero_item(ty), Ok)?);
            self.path.truncate(path);
        }
        Ok(Value::Array(list))
    }

    fn zero_item(&mut self, ty: &Type) -> Result<Value, TypeError> {
        self.objects += usize::from(matches!(ty, Type::Object(_)));
        if self.objects > MAX_OBJECTS {
            return Err(TypeError::TooManyObjects);
        }
        Ok(zero(ty))
    }

    fn map<S: Source>(
        &mut self,
        ty: &'static Type,
        members: Members<'_, S>,
        old: Option<Value>,
    ) -> Result<Value, TypeError> {
        let mut map = match old {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let mut seen = BTreeSet::new();
        let path = self.path.len();
        for (key, node) in members {
            if !seen.insert(key) {
                self.problem("duplicate", key);
            }
            self.push_key(key);
            let value = self.value(ty, false, node, None)?;
            map.insert(key.to_owned(), value.unwrap_or_else(|| zero(ty)));
            self.path.truncate(path);
        }
        Ok(Value::Object(map))
    }

    /// One of the numbers that stand for bytes.
    fn byte<S>(&mut self, view: &View<'_, S>) -> u8 {
        let byte = match view {
            View::Null => Some(0),
            View::Number(text) => text.parse().ok(),
            _ => None,
        };
        byte.unwrap_or_else(|| {
            self.keep(found_for_number(view), "uint8".to_owned());
            0
        })
    }

    fn int<S>(&self, view: &View<'_, S>) -> Result<Value, TypeError> {
        if let View::Number(text) = view
            && let Ok(number) = text.parse::<i32>()
        {
            return Ok(Value::from(number));
        }
        Err(self.error(found_for_number(view), "int32".to_owned()))
    }

    /// Notes a wrong type, and keeps the old value.
    fn unfit<S>(&mut self, ty: &Type, view: &View<'_, S>, old: Option<Value>) -> Option<Value> {
        let found = match ty {
            Type::Int32 | Type::Int64 => found_for_number(view),
            _ => found(view).to_owned(),
        };
        let wanted = match (ty, self.fields.last()) {
            (Type::Text, Some(field)) => go_types::text_name(self.owner, field, self.version),
            _ => go_types::type_name(ty, self.version),
        };
        self.keep(found, wanted);
        old
    }

    fn keep(&mut self, found: String, wanted: String) {
        if self.first.is_none() {
            self.first = Some(self.error(found, wanted));
        }
    }

    fn error(&self, found: String, wanted: String) -> TypeError {
        let place = match self.fields.as_slice() {
            [] => "value".to_owned(),
            [name] if type_meta(name).is_some() => {
                format!("struct field {}.TypeMeta.{name}", self.owner)
            }
            fields => format!("struct field {}.{}", self.owner, fields.join(".")),
        };
        TypeError::Unfit {
            found,
            place,
            wanted,
        }
    }

    fn problem(&mut self, what: &str, key: &str) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let problem = if self.path.is_empty() {
            format!("{what} field {}", Quoted(key))
        } else {
            format!("{what} field {}", Quoted(&format!("{}.{key}", self.path)))
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn push_key(&mut self, key: &str) {
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
    }
}

/// Base64 as Go reads it, line breaks passed over, written again.
fn bytes(text: &str) -> Result<String, TypeError> {
    let unbroken: Cow<'_, str> = if text.contains(['\r', '\n']) {
        text.replace(['\r', '\n'], "").into()
    } else {
        text.into()
    };
    match STANDARD.decode(unbroken.as_bytes()) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(base64::DecodeError::InvalidByte(at, _)) => Err(TypeError::Base64(at)),
        Err(_) => Err(TypeError::Base64(unbroken.len())),
    }
}

/// The keys that every object has at its top, in no table.
fn type_meta(key: &str) -> Option<&'static str> {
    ["kind", "apiVersion"].into_iter().find(|name| *name == key)
}

impl Source for Value {
    fn view(&self) -> View<'_, Self> {
        match self {
            Self::Null => View::Null,
            Self::Bool(flag) => View::Flag(*flag),
            Self::Number(number) => View::Number(Cow::Owned(number::text(number))),
            Self::String(text) => View::Text(text),
            Self::Array(items) => View::List(items),
            Self::Object(members) => View::Object(Box::new(
                members.iter().map(|(key, node)| (key.as_str(), node)),
            )),
        }
    }

    fn to_value(&self) -> Value {
        self.clone()
    }
}
