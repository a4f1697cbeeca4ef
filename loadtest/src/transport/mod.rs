//! How everything here reaches servers: addresses, TLS, credentials, and connections.

pub(crate) mod connection;
pub(crate) mod target;
