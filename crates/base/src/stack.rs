//! The stacks of threads that read what clients and servers send.
//!
//! A document in JSON may nest as deep as Go's decoder lets it: 10 000 levels. Whatever walks its value recurses: the tables of
//! `fairgate-objects`, expressions, and `serde_json` itself, even when it drops, clones or writes a value. A thread's usual stack of
//! 2 MiB would overflow, which ends the process. So each thread of a gateway that may hold a value of a document has a stack of
//! [`STACK_BYTES`], which the tests with the deepest documents use, too. Only the part of it that was used once takes memory.

use std::thread;

/// The stack of such a thread, in bytes. The tests with the deepest documents have half of it, and run without optimization, where
/// functions take several times as much of a stack.
pub const STACK_BYTES: usize = 64 << 20;

/// A thread with this name that has a stack of [`STACK_BYTES`].
pub fn thread(name: String) -> thread::Builder {
    thread::Builder::new().name(name).stack_size(STACK_BYTES)
}
