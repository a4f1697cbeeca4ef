//! Protobuf messages of the tables' types, in the proto2 wire format.
//!
//! Written as upstream writes them: fields in the order of their numbers, those that are no pointers
//! always, lists unpacked, maps by key. Read from anything that is valid: in any order, packed or
//! not, with unknown fields, which are skipped.
//!
//! Depth is bounded by the tables, memory by
//! [`canonical::MAX_OBJECTS`](super::super::schema::canonical::MAX_OBJECTS) and the size of the input.
//!
//! Not here: what is around a message ([`super::envelope`]).

mod read;
#[cfg(test)]
mod tests;
mod write;

pub(super) use read::{Reader, text};
pub use read::{WireError, decode};
pub use write::encode;
pub(super) use write::put_bytes;
