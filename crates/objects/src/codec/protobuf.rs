//! Encodes and decodes objects as protobuf (proto2 wire format), along their schema tables.
//!
//! Messages are written as kube-apiserver writes them: fields in the order of their numbers, non-pointer fields
//! even if they are empty, lists unpacked, maps sorted by key. The decoder accepts everything that is valid:
//! fields in any order, packed or not. It skips unknown fields; [`check()`] refuses them, and repeated ones.
//!
//! Depth is bounded by the tables, memory by `canonical::MAX_OBJECTS` and the size of the input.
//!
//! Not here: the envelope of a message ([`super::envelope`]).

mod check;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use check::{CheckError, check};
pub(super) use read::WireReader;
pub use read::{WireError, decode};
pub use write::encode;
pub(super) use write::put_bytes;
