//! Guards: a write must not change another object than the one that policies were evaluated on.

pub(crate) mod absent;
pub(crate) mod collection;
pub(crate) mod collection_guard;
pub(crate) mod conditional;
