//! Values that expressions work with.
//!
//! A [`CelValue`] borrows where it can: from JSON documents, from the constants of a program, from the host. Values
//! that expressions create are reference-counted. These nest at most [`MAX_DEPTH`] levels and have at most
//! [`MAX_NODES`] parts, so that comparing, printing and dropping them is bounded. Documents nest as deep as whoever reads them
//! allows, whose threads have the stack for that.

mod equality;
mod error;
mod list;
mod map;
mod numbers;
mod opaque;
mod print;
mod quote;
mod text;
mod time;
mod time_text;
mod work;

pub use error::{CelError, CelErrorKind, CelResult};
pub use list::{CelList, CelListIter};
pub use map::CelMap;
pub use opaque::CelOpaque;
pub(crate) use text::code_points;
pub use text::{CelBytes, CelStr};
pub use time::{CelDuration, CelTimestamp};
pub use work::{CelWork, DEFAULT_WORK_LIMIT};

pub(crate) use equality::{equal_within, is_same_within, same_bytes};
pub(crate) use map::MapKey;
pub(crate) use numbers::{double_to_int, double_to_uint};
pub(crate) use quote::quote_in_steps;
pub(crate) use work::{LOOKUP, bytes as work_of_bytes};

use std::sync::Arc;

use crate::document::CelJson;
use crate::types::{CelType, OPTIONAL};

/// The maximum depth of lists, maps and optional values that expressions create.
pub const MAX_DEPTH: u32 = 500;

/// The maximum number of parts of a value that expressions create. A shared part counts as often as it occurs.
pub const MAX_NODES: u64 = 10_000_000;

/// A value of the language. Cloning it is cheap.
#[derive(Clone, Debug)]
pub enum CelValue<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A signed integer of 64 bits.
    Int(i64),
    /// An unsigned integer of 64 bits.
    Uint(u64),
    /// An IEEE 754 number of 64 bits.
    Double(f64),
    /// A string of Unicode code points.
    String(CelStr<'a>),
    /// A string of bytes.
    Bytes(CelBytes<'a>),
    /// A span of time.
    Duration(CelDuration),
    /// A point in time.
    Timestamp(CelTimestamp),
    /// A list.
    List(CelList<'a>),
    /// A map.
    Map(CelMap<'a>),
    /// A type.
    Type(Box<CelType>),
    /// An optional value; `None` if it is absent.
    Optional(Option<Arc<CelOptional<'a>>>),
    /// A value of a type that a library or the host defines.
    Opaque(Arc<dyn CelOpaque>),
}

/// The content of an optional value that is present.
#[derive(Debug)]
pub struct CelOptional<'a> {
    value: CelValue<'a>,
    size: ValueSize,
}

impl<'a> CelOptional<'a> {
    /// The value inside.
    pub fn value(&self) -> &CelValue<'a> {
        &self.value
    }
}

/// How deep a value nests and how many parts it has; borrowed documents count as one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ValueSize {
    depth: u32,
    nodes: u64,
}

impl ValueSize {
    /// The size of a value that holds `parts`.
    fn of<'v, 'a: 'v>(parts: impl IntoIterator<Item = &'v CelValue<'a>>) -> Self {
        let mut sum = Self { depth: 0, nodes: 1 };
        for part in parts {
            sum.add(part.size());
        }
        sum.depth += 1;
        sum
    }

    fn add(&mut self, part: Self) {
        self.depth = self.depth.max(part.depth);
        // A part that is shared counts as often as it occurs, which may be more than 2⁶⁴ times.
        self.nodes = self.nodes.saturating_add(part.nodes);
    }

    /// An error if the value is too deep or too large.
    fn check(self) -> Result<Self, CelError> {
        if self.depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(CelError::own_limit("value is too large or nests too deep"));
        }
        Ok(self)
    }
}

impl<'a> CelValue<'a> {
    /// A string.
    pub fn string(text: impl Into<CelStr<'a>>) -> Self {
        Self::String(text.into())
    }

    /// A list of `values`.
    ///
    /// # Errors
    ///
    /// When the list would nest deeper than [`MAX_DEPTH`] or have more than [`MAX_NODES`] parts.
    pub fn list(values: Vec<Self>) -> CelResult<'a> {
        CelList::new(values).map(Self::List)
    }

    /// An optional value that is present.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub fn some(value: Self) -> CelResult<'a> {
        let size = ValueSize::of([&value]).check()?;
        Ok(Self::Optional(Some(Arc::new(CelOptional { value, size }))))
    }

    /// Whether a list of this value alone can be made.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
    pub(crate) fn check_as_element(&self) -> Result<(), CelError> {
        ValueSize::of([self]).check().map(|_| ())
    }

    /// A value of a type that a library or the host defines.
    pub fn opaque(value: impl CelOpaque + 'static) -> Self {
        Self::Opaque(Arc::new(value))
    }

    /// A type as a value.
    pub fn type_value(of: CelType) -> Self {
        Self::Type(Box::new(of))
    }

    /// The value of a JSON document, which is borrowed.
    #[inline]
    pub fn json(node: &'a CelJson<'a>) -> Self {
        match node {
            CelJson::Null => Self::Null,
            CelJson::Bool(value) => Self::Bool(*value),
            CelJson::Int(value) => Self::Int(*value),
            CelJson::Double(value) => Self::Double(*value),
            CelJson::String(value) => Self::String(CelStr::Borrowed(value)),
            CelJson::Array(elements) => Self::List(CelList::json(elements)),
            CelJson::Object(object) => Self::Map(CelMap::json(object)),
        }
    }

    /// The same value, borrowed: no reference count changes for text, lists and maps.
    #[must_use]
    #[inline]
    pub fn borrowed(&'a self) -> Self {
        match self {
            Self::String(text) => Self::String(CelStr::Borrowed(text)),
            Self::Bytes(bytes) => Self::Bytes(CelBytes::Borrowed(bytes)),
            Self::List(list) => Self::List(list.borrowed()),
            Self::Map(map) => Self::Map(map.borrowed()),
            other => other.clone(),
        }
    }

    /// The same value, independent of what it borrows.
    ///
    /// # Errors
    ///
    /// When the copy would nest deeper than [`MAX_DEPTH`] or have more than [`MAX_NODES`] parts.
    pub fn into_owned(self) -> CelResult<'static> {
        Ok(match self {
            Self::Null => CelValue::Null,
            Self::Bool(value) => CelValue::Bool(value),
            Self::Int(value) => CelValue::Int(value),
            Self::Uint(value) => CelValue::Uint(value),
            Self::Double(value) => CelValue::Double(value),
            Self::String(text) => CelValue::String(text.into_owned()),
            Self::Bytes(bytes) => CelValue::Bytes(bytes.into_owned()),
            Self::Duration(value) => CelValue::Duration(value),
            Self::Timestamp(value) => CelValue::Timestamp(value),
            Self::List(list) => {
                let values: Result<_, _> = list.iter().map(CelValue::into_owned).collect();
                CelValue::list(values?)?
            }
            Self::Map(map) => CelValue::Map(map.into_owned()?),
            Self::Type(of) => CelValue::Type(of),
            Self::Optional(None) => CelValue::Optional(None),
            Self::Optional(Some(of)) => CelValue::some(of.value.clone().into_owned()?)?,
            Self::Opaque(value) => CelValue::Opaque(value),
        })
    }

    /// The text, if this is a string.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if this is an `int`.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The content of an opaque value, if it is of type `T`.
    pub fn as_opaque<T: CelOpaque + 'static>(&self) -> Option<&T> {
        match self {
            Self::Opaque(value) => value.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// The name of the value's type as in error messages and `type(x)`, such as `int` or `list`.
    pub fn type_name(&self) -> &str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => OPTIONAL,
            Self::Opaque(value) => value.type_name(),
        }
    }

    /// The size that costs are computed from: the number of code points, bytes, elements or entries; that of the value
    /// inside an optional value; what an opaque value says; 1 for everything else.
    #[inline]
    pub fn cost_size(&self) -> u64 {
        match self {
            Self::String(text) => text.code_points(),
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Optional(Some(of)) => of.value.cost_size(),
            Self::Opaque(value) => value.cost_size(),
            _ => 1,
        }
    }

    /// Whether two values are equal as with `==`: numbers by value across types, lists in order, `NaN` never. `false`
    /// if `==` has no overload for them.
    pub fn equals(&self, other: &CelValue<'_>) -> bool {
        equality::equal(self, other)
    }

    /// Whether `optional.ofNonZeroValue` treats this as absent: null, false, 0, an empty string, list or map.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(value) => value.nanoseconds() == 0,
            Self::Timestamp(value) => value.is_zero(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Opaque(value) => value.is_zero(),
            Self::Type(_) | Self::Optional(_) => false,
        }
    }

    fn size(&self) -> ValueSize {
        match self {
            Self::List(list) => list.size(),
            Self::Map(map) => map.size(),
            Self::Optional(Some(of)) => of.size,
            _ => ValueSize { depth: 0, nodes: 1 },
        }
    }
}

impl PartialEq for CelValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

impl From<bool> for CelValue<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for CelValue<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for CelValue<'_> {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl<'a> From<&'a str> for CelValue<'a> {
    fn from(value: &'a str) -> Self {
        Self::String(CelStr::Borrowed(value))
    }
}

impl From<String> for CelValue<'_> {
    fn from(value: String) -> Self {
        Self::String(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_four_words() {
        assert_eq!(size_of::<CelValue<'_>>(), 32);
        assert_eq!(size_of::<CelResult<'_>>(), 32);
    }

    #[test]
    fn values_that_nest_too_deep_are_refused() {
        let mut value = CelValue::Int(1);
        for _ in 0..MAX_DEPTH {
            value = CelValue::list(vec![value]).unwrap();
        }
        assert!(CelValue::list(vec![value.clone()]).is_err());
        assert!(CelValue::some(value).is_err());
    }

    #[test]
    fn values_that_grow_exponentially_are_refused() {
        let mut value = CelValue::Int(1);
        let refused = (0..100).any(
            |_| match CelValue::list(vec![value.clone(), value.clone()]) {
                Ok(larger) => {
                    value = larger;
                    false
                }
                Err(_) => true,
            },
        );
        assert!(refused);
    }
}
