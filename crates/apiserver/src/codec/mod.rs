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
pub(crate) mod json;
pub mod protobuf;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod unstructured;
pub mod yaml;

pub use decode::{
    Body, BodyFormat, DecodeError, Expect, Registered, check_type, decode_body, decode_options,
};
