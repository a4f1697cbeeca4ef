//! Static types: what the checker infers, and what functions and variables are declared with.
//!
//! Types are small trees behind reference counts. A type knows its size, because unification can make types that
//! are exponentially larger than the expression; the checker refuses those over [`MAX_TYPE_SIZE`].

use std::fmt;
use std::sync::Arc;

/// The maximum number of nodes of a type that the checker accepts.
pub(crate) const MAX_TYPE_SIZE: u32 = 10_000;

/// A static type of the language.
///
/// Printed as cel-go prints it in messages: `list(int)`, `map(string, dyn)`, `timestamp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CelType {
    /// Any value; checked when the program runs.
    Dyn,
    /// The type of an expression with an error. It fits every other type, so that one error is reported only once.
    Error,
    /// The type of `null`.
    Null,
    /// `true` and `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// An IEEE 754 number of 64 bits.
    Double,
    /// A string of Unicode code points.
    String,
    /// A string of bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A span of time.
    Duration,
    /// A list with elements of one type.
    List(Arc<ParametersOfType>),
    /// A map; the parameters are the types of key and value.
    Map(Arc<ParametersOfType>),
    /// A parameter of an overload, such as the `T` of `list(T)`; only in declarations.
    Parameter(Arc<str>),
    /// A type variable: a type that the checker has not found yet.
    #[doc(hidden)]
    Variable(u32),
    /// A type that a library declares, such as `net.IP` or `optional_type(T)`.
    Opaque(Arc<str>, Arc<ParametersOfType>),
    /// A type with declared fields; see [`CelObjectType`](crate::CelObjectType).
    Object(Arc<str>),
    /// The type of types, such as that of `int`; the parameter is the named type, if it is known.
    Type(Option<Arc<ParametersOfType>>),
}

/// The parameters of a [`CelType`], with the number of nodes of the whole type.
#[derive(Debug, PartialEq, Eq)]
pub struct ParametersOfType {
    types: Box<[CelType]>,
    size: u32,
}

impl ParametersOfType {
    fn new(types: impl Into<Box<[CelType]>>) -> Arc<Self> {
        let types = types.into();
        let size = types
            .iter()
            .fold(1_u32, |sum, of| sum.saturating_add(of.size()));
        Arc::new(Self { types, size })
    }
}

/// The name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

impl CelType {
    /// A list with elements of type `element`.
    pub fn list(element: Self) -> Self {
        Self::List(ParametersOfType::new([element]))
    }

    /// A map from keys of type `key` to values of type `value`.
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(ParametersOfType::new([key, value]))
    }

    /// An optional value of type `of`.
    pub fn optional(of: Self) -> Self {
        Self::opaque_with(OPTIONAL, [of])
    }

    /// The parameter `name` of an overload.
    pub fn parameter(name: &str) -> Self {
        Self::Parameter(name.into())
    }

    /// An opaque type of a library, without parameters.
    pub fn opaque(name: &str) -> Self {
        Self::opaque_with(name, [])
    }

    /// An opaque type of a library, with parameters.
    pub fn opaque_with(name: &str, parameters: impl Into<Box<[Self]>>) -> Self {
        Self::Opaque(name.into(), ParametersOfType::new(parameters))
    }

    /// A type with declared fields, by its name.
    pub fn object(name: &str) -> Self {
        Self::Object(name.into())
    }

    /// The type of the type `of`.
    pub fn type_of(of: Self) -> Self {
        Self::Type(Some(ParametersOfType::new([of])))
    }

    /// The types within this one: of elements, of keys and values, or those of an opaque type.
    pub fn parameters(&self) -> &[Self] {
        match self {
            Self::List(of) | Self::Map(of) | Self::Opaque(_, of) | Self::Type(Some(of)) => {
                &of.types
            }
            _ => &[],
        }
    }

    /// The type of the elements, for a list.
    pub fn element(&self) -> Option<&Self> {
        match self {
            Self::List(of) => of.types.first(),
            _ => None,
        }
    }

    /// The type of the value inside, for an optional type.
    pub fn optional_of(&self) -> Option<&Self> {
        match self {
            Self::Opaque(name, of) if &**name == OPTIONAL => of.types.first(),
            _ => None,
        }
    }

    /// The name with parameters, such as `map(string, google.protobuf.Timestamp)`. The original prints it when the
    /// result of an expression has another type than required.
    pub fn full_name(&self) -> String {
        let name = self.runtime_name();
        let parameters: Vec<_> = self.parameters().iter().map(Self::full_name).collect();
        if parameters.is_empty() {
            return name.to_owned();
        }
        format!("{name}({})", parameters.join(", "))
    }

    /// The number of nodes of the type; at most `u32::MAX`.
    pub(crate) fn size(&self) -> u32 {
        match self {
            Self::List(of) | Self::Map(of) | Self::Opaque(_, of) | Self::Type(Some(of)) => of.size,
            _ => 1,
        }
    }

    /// This type with other parameters.
    pub(crate) fn with_parameters(&self, parameters: Vec<Self>) -> Self {
        let of = ParametersOfType::new(parameters);
        match self {
            Self::List(_) => Self::List(of),
            Self::Map(_) => Self::Map(of),
            Self::Opaque(name, _) => Self::Opaque(name.clone(), of),
            Self::Type(_) => Self::Type(Some(of)),
            other => other.clone(),
        }
    }

    /// Whether a value of this type is checked only when the program runs.
    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    /// The name that `type(x)` shows for values of this type, without parameters.
    pub fn runtime_name(&self) -> &str {
        match self {
            Self::Dyn => "dyn",
            Self::Error => "*error*",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Duration => "google.protobuf.Duration",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Parameter(name) | Self::Opaque(name, _) | Self::Object(name) => name,
            Self::Variable(_) => "_var",
            Self::Type(_) => "type",
        }
    }
}

impl fmt::Display for CelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => return f.write_str("!error!"),
            Self::Null => return f.write_str("null"),
            Self::Timestamp => return f.write_str("timestamp"),
            Self::Duration => return f.write_str("duration"),
            Self::Variable(number) => return write!(f, "_var{number}"),
            _ => f.write_str(self.runtime_name())?,
        }
        let parameters = self.parameters();
        if parameters.is_empty() {
            return Ok(());
        }
        for (at, of) in parameters.iter().enumerate() {
            write!(f, "{}{of}", if at == 0 { "(" } else { ", " })?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_print_as_the_original_prints_them() {
        let of = CelType::map(CelType::String, CelType::list(CelType::Dyn));
        assert_eq!(of.to_string(), "map(string, list(dyn))");
        assert_eq!(
            CelType::optional(CelType::Int).to_string(),
            "optional_type(int)"
        );
        assert_eq!(CelType::Timestamp.to_string(), "timestamp");
        assert_eq!(CelType::Null.to_string(), "null");
        assert_eq!(CelType::type_of(CelType::Int).to_string(), "type(int)");
    }

    #[test]
    fn the_size_of_a_type_saturates() {
        let mut of = CelType::Int;
        for _ in 0..40 {
            of = CelType::map(of.clone(), of);
        }
        assert_eq!(of.size(), u32::MAX);
    }
}
