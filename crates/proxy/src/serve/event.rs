//! Events of client connections, for metrics.

/// An event of a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A connection was closed because its client reset too many requests before they got a response.
    EndedForResets,
    /// A TLS handshake failed or took too long.
    HandshakeFailed,
}
