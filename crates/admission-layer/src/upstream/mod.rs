//! What is read from the upstream for one request: objects, definitions of custom resources, conversions.

pub(crate) mod conversion;
pub(crate) mod definitions;
pub(crate) mod old_read;
pub(crate) mod upstream_objects;
