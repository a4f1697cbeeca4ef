//! What is held and done at a time: bytes, worker threads, places; and what is lacking if there is no more.

pub(crate) mod audit_places;
pub(crate) mod body_budget;
pub(crate) mod decoded;
pub(crate) mod lack;
pub(crate) mod waiting_places;
pub(crate) mod workers;
