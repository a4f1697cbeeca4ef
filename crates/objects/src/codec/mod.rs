//! Bodies: from bytes to objects in canonical form, and back.
//!
//! [`decode_body`] reads the body of a request that creates or replaces an object,
//! [`decode_options`] that of a deletion. Both follow kube-apiserver step by step, because clients
//! see which error comes first: syntax, kind and version, types, strict problems, the version of
//! the URL.
//!
//! [`request_document`] makes the one JSON text of a body that is evaluated before it is forwarded.
//!
//! Not here: negotiation of media types, defaults, validation.

mod decode;
pub mod envelope;
pub mod json;
#[cfg(test)]
mod memory_tests;
pub mod protobuf;
mod registered;
pub mod request_document;
pub(crate) mod tape;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod type_meta;
pub mod unstructured;
pub mod yaml;

pub use crate::schema::canonical::EmptyValues;
pub use decode::{DecodedObject, ExpectedType, decode_body, decode_options};
pub use registered::{BodyFormat, DecodeError, RegisteredType, built_in_types};
pub(crate) use type_meta::no_type_meta;
pub use type_meta::{check_custom_type, check_patched_type, check_type, unreadable};

/// How unknown and duplicate fields are handled: the parameter `fieldValidation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped, and the client is warned.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}
