//! What keeps a write from changing another object than the evaluated one.

pub(crate) mod absent;
pub(crate) mod collection;
pub(crate) mod collection_guard;
pub(crate) mod conditional;
