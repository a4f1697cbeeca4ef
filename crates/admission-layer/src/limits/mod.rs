//! Limits of the admission layers: memory for bodies, worker threads and places; `lack` says which of them has run out.

pub(crate) mod audit_places;
pub(crate) mod body_budget;
pub(crate) mod decoded;
pub(crate) mod lack;
pub(crate) mod waiting_places;
pub(crate) mod workers;
