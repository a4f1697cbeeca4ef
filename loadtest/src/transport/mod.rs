//! How everything here reaches servers: addresses, TLS, credentials, and connections.

mod certificates;
pub(crate) mod connection;
pub(crate) mod target;
