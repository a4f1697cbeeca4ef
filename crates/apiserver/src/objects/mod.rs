//! Stored objects, and how they are written into responses: one by one, as lists, and as the events of a watch.

pub(crate) mod heavy_work;
pub(crate) mod initial_objects;
mod large_change;
pub(crate) mod list_response;
pub(crate) mod listed_object;
pub(crate) mod object_writer;
pub(crate) mod stored;
mod watch_events;
pub(crate) mod watch_stream;
