//! How bodies end, and why they can be incomplete.

/// Why a body is incomplete.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client did not send all of it.
    #[error("the body from the client is incomplete")]
    Client(#[source] hyper::Error),
    /// The upstream did not send all of it.
    #[error("the body from the upstream is incomplete")]
    Upstream(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The upstream stopped sending for longer than is allowed.
    #[error("the upstream sent nothing for too long")]
    Idle,
    /// The client did not read fast enough, and kept a seat or memory that others needed.
    #[error("the client read too slowly")]
    TooSlow,
    /// The client did not send fast enough, and kept a seat that others needed.
    #[error("the client sent too slowly")]
    SentTooSlowly,
    /// The sender was dropped.
    #[error("the body was dropped before its end")]
    Abandoned,
    /// A body type of another crate failed; the text is its error.
    #[error("{0}")]
    Other(Box<str>),
}

/// How the body of a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it was handed to the client's connection.
    Complete,
    /// The upstream did not send all of it.
    Failed,
    /// The client disconnected, or did not read the rest.
    Abandoned,
}
