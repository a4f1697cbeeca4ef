//! What bounds the hosted API: the memory for requests and responses, and quotas of objects.

pub(crate) mod hosted_bodies;
pub(crate) mod metrics_memory;
pub mod quota;
pub(crate) mod response_room;
pub(crate) mod work_in_turns;
