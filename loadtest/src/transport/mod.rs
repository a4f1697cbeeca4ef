//! How everything here reaches servers: addresses, TLS, credentials, and connections.

mod client_certificate;
pub(crate) mod connection;
pub(crate) mod target;
