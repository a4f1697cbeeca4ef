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

mod complete;
mod folded;
mod go_types;
pub(crate) mod number;
mod plain;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeSet, fmt::Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};
use smallvec::SmallVec;

use super::{Struct, Type, UnreadParts};
pub(crate) use complete::complete;
use complete::complete_with;
pub use complete::{EmptyValues, zero};
use fairgate_gotext::{
    Quoted,
    quantity::{self, QuantityError},
    time::{self, TimeError},
};
pub(crate) use folded::{UnsureReading, decode_folded};

/// The maximum number of objects that one decoding creates.
///
/// An object of a list costs two bytes of a body, but hundreds of bytes of memory.
pub(crate) const MAX_OBJECTS: usize = 65_536;

/// The most strict problems that one decoding reports, as in Go's decoder.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// From so many bytes of paths on, no further problem is noted: the same path may occur many times, and be long. The first is noted
/// in any case, since a strict reading refuses what has one.
pub(crate) const MAX_PATHS: usize = 1 << 20;

/// The version whose package name errors show by default.
const VERSION: &str = "v1";

/// A value that can be decoded, with all below it; a reference to it.
pub trait Source<'a>: Copy {
    /// The items of a list.
    type Items: ExactSizeIterator<Item = Self>;
    /// The members of an object, in their order.
    type Members: Iterator<Item = (&'a str, Self)>;

    /// The JSON type of the value, with its contents.
    fn view(self) -> View<'a, Self>;

    /// Itself, as plain JSON.
    fn to_value(self) -> Value;

    /// Whether it is a string that is known to have escapes.
    fn is_escaped(self) -> bool {
        false
    }
}

/// What a [`Source`] is.
pub enum View<'a, S: Source<'a>> {
    /// Null.
    Null,
    /// A boolean.
    Flag(bool),
    /// A number, as it was written.
    Number(Cow<'a, str>),
    /// A string.
    Text(&'a str),
    /// A list.
    List(S::Items),
    /// An object: its members in their order.
    Object(S::Members),
}

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
pub fn decode<'v, S: Source<'v>>(shape: &'static Struct, raw: S) -> Result<Decoded, TypeError> {
    decode_version(shape, VERSION, raw)
}

/// As [`decode`]; errors show types as those of `version`, such as `v1beta3.FlowSchemaSpec`.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_version<'v, S: Source<'v>>(
    shape: &'static Struct,
    version: &'v str,
    raw: S,
) -> Result<Decoded, TypeError> {
    decode_with(shape, version, raw, EmptyValues::Null)
}

/// As [`decode_version`], with another form of empty values.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_with<'v, S: Source<'v>>(
    shape: &'static Struct,
    version: &'v str,
    raw: S,
    empty: EmptyValues,
) -> Result<Decoded, TypeError> {
    decode_read(shape, version, raw, empty, UnreadParts::NONE)
}

/// As [`decode_with`], without parts that nobody reads, where nothing is to be said of them. Each key is there once.
pub(crate) fn decode_read<'v, S: Source<'v>>(
    shape: &'static Struct,
    version: &'v str,
    raw: S,
    empty: EmptyValues,
    unread: UnreadParts,
) -> Result<Decoded, TypeError> {
    let mut decoder = Decoder {
        version,
        unread,
        ..Decoder::default()
    };
    let mut object = Map::new();
    match raw.view() {
        View::Null => {}
        View::Object(members) => decoder.object::<S>(shape, members, &mut object)?,
        other => {
            let wanted = go_types::type_name(&Type::Object(shape), version);
            decoder.keep(found(&other).to_owned(), wanted);
        }
    }
    if let Some(error) = decoder.first {
        return Err(error);
    }
    complete_with(shape, &mut object, empty);
    Ok(Decoded {
        value: Value::Object(object),
        problems: decoder.problems,
    })
}

/// What Go's decoder calls a value.
pub fn found<'a, S: Source<'a>>(view: &View<'a, S>) -> &'static str {
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
fn found_for_number<'a, S: Source<'a>>(view: &View<'a, S>) -> String {
    match view {
        View::Number(text) => format!("number {text}"),
        other => found(other).to_owned(),
    }
}

/// One decoding under way.
#[derive(Default)]
struct Decoder<'v> {
    version: &'v str,
    /// What is left out.
    unread: UnreadParts,
    problems: Vec<String>,
    /// The bytes of all paths to problems; see [`MAX_PATHS`].
    spent: usize,
    /// The first error that does not end the decoding at once.
    first: Option<TypeError>,
    /// The way to what is being decoded.
    path: Vec<PathStep<'v>>,
    objects: usize,
    /// Whether keys match fields as in `encoding/json`; see [`folded`].
    folds_keys: bool,
    /// Whether a field was given twice.
    repeats_field: bool,
}

/// A step of the way to a value.
#[derive(Clone, Copy)]
enum PathStep<'v> {
    /// A field, with the struct that it belongs to.
    Field(&'static Struct, &'static str),
    /// A key of a map.
    Key(&'v str),
    /// An index of a list.
    Item(usize),
}

impl<'v> Decoder<'v> {
    fn object<S: Source<'v>>(
        &mut self,
        shape: &'static Struct,
        members: S::Members,
        into: &mut Map<String, Value>,
    ) -> Result<(), TypeError> {
        self.objects += 1;
        if self.objects > MAX_OBJECTS {
            return Err(TypeError::TooManyObjects);
        }
        let is_top = self.path.is_empty() && !self.folds_keys;
        let is_new = into.is_empty();
        let unread = self.unread.of(shape);
        let mut seen: SmallVec<[usize; 16]> = SmallVec::new();
        for (key, node) in members {
            let mut at = shape.fields.iter().position(|field| field.name == key);
            if at.is_none() && self.folds_keys {
                at = folded::folded_field(shape, key);
            }
            let (number, name, ty, pointer) = if let Some(at) = at {
                let field = &shape.fields[at];
                (at, field.name, &field.ty, field.presence.is_pointer())
            } else if let Some((at, name)) = type_meta(key).filter(|_| is_top) {
                (shape.fields.len() + at, name, &Type::Text, false)
            } else {
                self.problem("unknown", key);
                continue;
            };
            let is_repeated = seen.contains(&number);
            if is_repeated {
                self.repeats_field = true;
                self.problem("duplicate", key);
            } else {
                seen.push(number);
            }
            if unread.has(name) && self.is_plain(ty, node) {
                continue;
            }
            let old = if is_new && !is_repeated {
                None
            } else {
                into.remove(name)
            };
            self.path.push(PathStep::Field(shape, name));
            // After an error the path stays, because it is no longer used.
            let value = self.value(ty, pointer, node, old)?;
            self.path.pop();
            if let Some(value) = value {
                into.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    /// The value `old` with `node` decoded into it; `None` if it is absent then.
    fn value<S: Source<'v>>(
        &mut self,
        ty: &'static Type,
        pointer: bool,
        node: S,
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
                let numbers = items.map(|item| self.byte(&item.view()));
                let bytes: Vec<u8> = numbers.collect();
                Some(Value::from(STANDARD.encode(bytes)))
            }
            (Type::Quantity, View::Text(text)) if !(self.folds_keys && node.is_escaped()) => {
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
            (Type::Time, View::Text(text)) => time::canonical(text)?.map(Value::from),
            (Type::MicroTime, View::Text(text)) => time::canonical_micro(text)?.map(Value::from),
            (Type::Time | Type::MicroTime, other) => {
                return Err(self.error(found(&other).to_owned(), "string".to_owned()));
            }
            (Type::IntOrString, other) => return self.int(&other).map(Some),
            (Type::Object(shape), View::Object(members)) => {
                let mut object = match old {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                self.object::<S>(shape, members, &mut object)?;
                Some(Value::Object(object))
            }
            (Type::List(list), View::List(items)) => Some(self.list::<S>(&list.item, items, old)?),
            (Type::Map(map), View::Object(members)) => {
                Some(self.map::<S>(&map.value, members, old)?)
            }
            (_, other) => self.unfit(ty, &other, old),
        })
    }

    /// A list: decoded over the items of one that was there before.
    fn list<S: Source<'v>>(
        &mut self,
        ty: &'static Type,
        items: S::Items,
        old: Option<Value>,
    ) -> Result<Value, TypeError> {
        let mut old = match old {
            Some(Value::Array(items)) => items.into_iter(),
            _ => Vec::new().into_iter(),
        };
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.enumerate() {
            self.path.push(PathStep::Item(index));
            let value = self.value(ty, false, item, old.next())?;
            list.push(value.map_or_else(|| self.zero_item(ty), Ok)?);
            self.path.pop();
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

    fn map<S: Source<'v>>(
        &mut self,
        ty: &'static Type,
        members: S::Members,
        old: Option<Value>,
    ) -> Result<Value, TypeError> {
        let mut map = match old {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        // Where nothing was before, what is there already was given twice.
        let mut seen = (!map.is_empty()).then(BTreeSet::new);
        for (key, node) in members {
            let is_repeated = match &mut seen {
                Some(seen) => !seen.insert(key),
                None => map.contains_key(key),
            };
            if is_repeated {
                self.problem("duplicate", key);
            }
            self.path.push(PathStep::Key(key));
            let value = self.value(ty, false, node, None)?;
            map.insert(key.to_owned(), value.unwrap_or_else(|| zero(ty)));
            self.path.pop();
        }
        Ok(Value::Object(map))
    }

    /// One of the numbers that stand for bytes.
    fn byte<S: Source<'v>>(&mut self, view: &View<'v, S>) -> u8 {
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

    fn int<S: Source<'v>>(&self, view: &View<'v, S>) -> Result<Value, TypeError> {
        if let View::Number(text) = view
            && let Ok(number) = text.parse::<i32>()
        {
            return Ok(Value::from(number));
        }
        Err(self.error(found_for_number(view), "int32".to_owned()))
    }

    /// Notes a wrong type, and keeps the old value.
    fn unfit<S: Source<'v>>(
        &mut self,
        ty: &Type,
        view: &View<'v, S>,
        old: Option<Value>,
    ) -> Option<Value> {
        let found = match ty {
            Type::Int32 | Type::Int64 => found_for_number(view),
            _ => found(view).to_owned(),
        };
        let wanted = match self.fields().last() {
            Some((owner, field)) => go_types::field_name(ty, owner.name, field, self.version),
            None => go_types::type_name(ty, self.version),
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
        let place = match self.fields().as_slice() {
            [] => "value".to_owned(),
            [(owner, name)] if type_meta(name).is_some() => {
                format!("struct field {}.TypeMeta.{name}", owner.name)
            }
            fields @ [.., (owner, _)] => {
                let mut place = format!("struct field {}", owner.name);
                for (shape, name) in fields {
                    go_types::push_path(shape, name, &mut place);
                }
                place
            }
        };
        TypeError::Unfit {
            found,
            place,
            wanted,
        }
    }

    /// The fields on the way to what is being decoded, each with its struct, as type errors show it.
    fn fields(&self) -> Vec<(&'static Struct, &'static str)> {
        let field = |step: &PathStep<'_>| match step {
            PathStep::Field(shape, name) => Some((*shape, *name)),
            PathStep::Key(_) | PathStep::Item(_) => None,
        };
        self.path.iter().filter_map(field).collect()
    }

    /// Whether the paths to problems, with that to this member, take too many bytes.
    fn is_spent(&mut self, key: &str) -> bool {
        let length = |step: &PathStep<'_>| match step {
            PathStep::Field(_, name) | PathStep::Key(name) => name.len() + 1,
            PathStep::Item(_) => 8,
        };
        let path: usize = self.path.iter().map(length).sum();
        self.spent = self.spent.saturating_add(path + key.len());
        self.spent > MAX_PATHS && !self.problems.is_empty()
    }

    /// Notes a strict problem of a member of what is being decoded. Its path has indices and keys of maps, too.
    fn problem(&mut self, what: &str, key: &str) {
        if self.problems.len() >= MAX_PROBLEMS || self.is_spent(key) {
            return;
        }
        let mut path = String::new();
        for step in self.path.iter().copied().chain([PathStep::Key(key)]) {
            match step {
                PathStep::Field(_, name) | PathStep::Key(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                PathStep::Item(index) => {
                    write!(path, "[{index}]").expect("writing to a string cannot fail");
                }
            }
        }
        let problem = format!("{what} field {}", Quoted(&path));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
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

/// The keys that every object has at its top, in no table, numbered.
fn type_meta(key: &str) -> Option<(usize, &'static str)> {
    let mut names = ["kind", "apiVersion"].into_iter().enumerate();
    names.find(|(_, name)| *name == key)
}

/// The members of an object in `serde_json`, by key.
pub struct ValueMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for ValueMembers<'a> {
    type Item = (&'a str, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.as_str(), value))
    }
}

impl<'a> Source<'a> for &'a Value {
    type Items = std::slice::Iter<'a, Value>;
    type Members = ValueMembers<'a>;

    fn view(self) -> View<'a, Self> {
        match self {
            Value::Null => View::Null,
            Value::Bool(flag) => View::Flag(*flag),
            Value::Number(number) => View::Number(Cow::Owned(number::text(number))),
            Value::String(text) => View::Text(text),
            Value::Array(items) => View::List(items.iter()),
            Value::Object(members) => View::Object(ValueMembers(members.iter())),
        }
    }

    fn to_value(self) -> Value {
        self.clone()
    }
}
