//! How bodies end, and why they fail.

/// Why a body was not completed.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client did not send it all.
    #[error("the client's body broke off")]
    Client(#[source] hyper::Error),
    /// The upstream did not send it all.
    #[error("the upstream's body broke off")]
    Upstream(#[source] hyper::Error),
    /// The upstream stopped sending for longer than is allowed.
    #[error("the upstream sent nothing for too long")]
    Idle,
    /// The client did not take it fast enough, and others had to wait for that.
    #[error("the client read too slowly")]
    TooSlow,
    /// The sender is gone.
    #[error("the body was abandoned")]
    Abandoned,
    /// A body of another crate failed; the text is its error.
    #[error("{0}")]
    Other(Box<str>),
}

/// How a reply's body came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// All of it was handed to the client's connection.
    Complete,
    /// The upstream broke off.
    Failed,
    /// The client did not want the rest of it.
    Abandoned,
}
