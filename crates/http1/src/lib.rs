//! HTTP/1.1 (RFC 9112) as a client speaks it with an upstream: bytes in, decisions out.
//!
//! It writes a request's head ([`write_request_head`]) and frames its body ([`RequestBodyEncoder`]), reads a response's
//! head ([`ResponseHeadParser`]) and body ([`ResponseBodyDecoder`]). What an upstream sends may come in pieces of any
//! size; how it is cut changes neither the result nor that the work is linear in the bytes. Nothing an upstream sends
//! panics, and memory is bounded by [`ResponseHeadLimits`] and by [`TRAILER_BYTES`].
//!
//! Not here: connections, time and buffers (whoever does the I/O has them), HTTP/0.9, upgrades after the head, and
//! which headers are forwarded.
//!
//! # Where it is stricter than hyper
//!
//! What is accepted here, hyper's client reads alike (`tests/it/responses.rs`). Some responses that hyper accepts are
//! refused, because recipients disagree on where they end, or because they cost without a bound:
//!
//! - empty lines before a head;
//! - several `Content-Length` values, also equal ones; `Content-Length` next to `Transfer-Encoding`; any
//!   `Transfer-Encoding` but one `chunked`. As in hyper, none of it matters where a response has no body anyway;
//! - more than [`INTERIM_HEADS`] interim responses;
//! - chunk sizes of more than 16 digits, also zeros; more than [`EXTENSION_BYTES`] of chunk extensions, which include
//!   spaces before them;
//! - trailers with a bare line feed, or more than [`TRAILER_LINES`] of them;
//! - a connection is also closed for a `close` in a `Connection` header that has bytes beyond ASCII.

mod body;
mod error;
mod head;
mod request;

pub use body::{BodyPiece, EXTENSION_BYTES, ResponseBodyDecoder, TRAILER_BYTES, TRAILER_LINES};
pub use error::Http1Error;
pub use head::{
    HeadProgress, INTERIM_HEADS, ResponseFraming, ResponseHead, ResponseHeadLimits,
    ResponseHeadParser,
};
pub use request::{RequestBodyEncoder, RequestFraming, RequestHeaderLines, write_request_head};
