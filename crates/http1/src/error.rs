//! What can be wrong with a message.

/// Why a response is refused, or a request's body cannot be sent as its head promised.
///
/// The connection cannot be used after any of them: where the message ends is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Http1Error {
    /// The head has more bytes than [`crate::ResponseHeadLimits::bytes`].
    #[error("the response's head is too large")]
    HeadTooLarge,
    /// The head has more header lines than [`crate::ResponseHeadLimits::lines`], or than a `HeaderMap` holds.
    #[error("the response has too many headers")]
    TooManyHeaders,
    /// The head does not begin with `HTTP/1.0` or `HTTP/1.1`.
    #[error("the response is not HTTP/1.0 or HTTP/1.1")]
    Version,
    /// The status line or a header is malformed.
    #[error("malformed response head: {0}")]
    MalformedHead(httparse::Error),
    /// There is a `Content-Length` that is not one decimal number.
    #[error("the response's Content-Length is invalid")]
    InvalidLength,
    /// There are several `Content-Length` values.
    #[error("the response has several Content-Length values")]
    SeveralLengths,
    /// There are both `Content-Length` and `Transfer-Encoding`.
    #[error("the response has both Content-Length and Transfer-Encoding")]
    LengthAndEncoding,
    /// `Transfer-Encoding` is not exactly one `chunked`, or it is in an HTTP/1.0 response.
    #[error("the response's Transfer-Encoding is not chunked")]
    UnsupportedEncoding,
    /// More than [`crate::INTERIM_HEADS`] interim (1xx) responses came before the final one.
    #[error("too many interim (1xx) responses")]
    TooManyInterim,
    /// A chunk does not begin with a hexadecimal size, or its line is malformed.
    #[error("invalid chunk size")]
    BadChunkSize,
    /// A chunk's size has more than 16 digits.
    #[error("chunk size too large")]
    ChunkSizeTooLarge,
    /// The body's chunk extensions have more than [`crate::EXTENSION_BYTES`].
    #[error("chunk extensions too long")]
    ExtensionTooLong,
    /// A chunk's content, or the last chunk, does not end with CR LF.
    #[error("invalid end of a chunk")]
    BadChunkEnd,
    /// The trailers are not fewer bytes than [`crate::TRAILER_BYTES`], or more lines than [`crate::TRAILER_LINES`].
    #[error("the response's trailers are too large")]
    TrailersTooLarge,
    /// A trailer is malformed.
    #[error("malformed response trailers: {0}")]
    MalformedTrailers(httparse::Error),
    /// The connection was closed before the body's end.
    #[error("the response's body ended early")]
    BodyEndedEarly,
    /// The request's body has more bytes than its head says.
    #[error("the request's body is longer than its Content-Length")]
    RequestBodyTooLong,
    /// The request's body has fewer bytes than its head says.
    #[error("the request's body is shorter than its Content-Length")]
    RequestBodyTooShort,
}
