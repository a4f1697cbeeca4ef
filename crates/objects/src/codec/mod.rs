//! Bodies: from bytes to objects in canonical form, and back.
//!
//! [`decode_body`] reads what a client sent to create or replace an object, [`decode_options`] what
//! it sent along with a deletion. Both follow upstream step by step, since clients see which error
//! comes first: syntax, kind and version, types, then strictness, then the version that was asked
//! for.
//!
//! Not here: which media types there are and who wants which, defaults, validation.

mod decode;
pub mod envelope;
pub mod json;
pub mod protobuf;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub mod unstructured;
pub mod yaml;

pub use decode::{
    Body, BodyFormat, DecodeError, ExpectedType, RegisteredType, check_type, decode_body,
    decode_options,
};

/// What becomes of unknown and duplicate fields: the parameter `fieldValidation`.
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
