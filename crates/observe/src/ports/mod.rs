//! Where operators read: the admin ports and their endpoints, health checks, and the dumps on the main port.

pub(crate) mod admin;
pub(crate) mod admin_connections;
pub(crate) mod checks;
pub(crate) mod dumps_layer;
pub(crate) mod encoded_reply;
pub(crate) mod endpoints;
pub(crate) mod secure_endpoints;
