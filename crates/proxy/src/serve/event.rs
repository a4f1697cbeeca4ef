//! What clients do that is acted upon, for whoever counts it.

/// What became of a client's connection, or of what it brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A connection was ended because the client reset too many requests on it before they were answered.
    EndedForResets,
}
