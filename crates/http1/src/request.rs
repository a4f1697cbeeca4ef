//! Writing a request: its head, and what frames its body.
//!
//! The bytes are those that hyper's client writes for the same request.

use std::fmt;

use bytes::BytesMut;
use http::{
    HeaderName, HeaderValue, Method,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};

use crate::Http1Error;

/// The digits of [`u64::MAX`] in decimal, the longest number that is written.
const DIGITS: usize = 20;

/// How a request says where its body ends (RFC 9112, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFraming {
    /// There is no body, and no header about it.
    None,
    /// `Content-Length` of so many bytes.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

impl RequestFraming {
    /// The framing of a body that is at its end already (`is_end`), or has `exact` bytes, or a length that is not known.
    ///
    /// A GET, HEAD or CONNECT of which no length is known is sent without a body, even if there is one: that body must
    /// not be read. All of it is as in hyper's client, for a request without framing headers of its own.
    pub fn of(method: &Method, is_end: bool, exact: Option<u64>) -> Self {
        match exact {
            _ if is_end => Self::None,
            Some(length) => Self::Length(length),
            None if matches!(*method, Method::GET | Method::HEAD | Method::CONNECT) => Self::None,
            None => Self::Chunked,
        }
    }
}

/// The header lines of a request as they are sent, in the order in which they were added.
#[derive(Default)]
pub struct RequestHeaderLines(BytesMut);

/// Without the lines, which contain credentials.
impl fmt::Debug for RequestHeaderLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RequestHeaderLines");
        shown.field("bytes", &self.0.len()).finish_non_exhaustive()
    }
}

impl RequestHeaderLines {
    /// Appends a line.
    ///
    /// `Content-Length`, `Transfer-Encoding` and `Connection`, which are for whoever writes to the connection to decide, are left
    /// out.
    pub fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        if !matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING | CONNECTION) {
            self.write(name, value.as_bytes());
        }
    }

    /// As [`Self::add`], for a text of visible ASCII characters. Returns whether it is one; if not, nothing is added.
    #[must_use]
    pub fn add_text(&mut self, name: &HeaderName, text: &str) -> bool {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_visible && !matches!(*name, CONTENT_LENGTH | TRANSFER_ENCODING | CONNECTION) {
            self.write(name, text.as_bytes());
        }
        is_visible
    }

    fn write(&mut self, name: &HeaderName, value: &[u8]) {
        let name = name.as_str().as_bytes();
        self.0.reserve(name.len() + value.len() + 4);
        for part in [name, b": ", value, b"\r\n"] {
            self.0.extend_from_slice(part);
        }
    }

    /// Removes all lines. Their memory is kept for others, up to `capacity` bytes.
    pub fn clear(&mut self, capacity: usize) {
        if self.0.capacity() > capacity {
            self.0 = BytesMut::new();
        }
        self.0.clear();
    }

    /// The length of all lines in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Appends a request's head to `out`: the request line, `lines`, the header of `framing`, an empty line.
///
/// `target` is written as it is; it comes from a parsed URI and has no space or control character.
pub fn write_request_head(
    out: &mut BytesMut,
    method: &Method,
    target: &str,
    lines: &RequestHeaderLines,
    framing: RequestFraming,
) {
    debug_assert!(
        target.bytes().all(|byte| byte > b' ' && byte != 0x7f),
        "a target that would end the request line"
    );
    // Room for the rest of the request line and for the header of the framing.
    out.reserve(96 + target.len() + lines.len());
    for part in [method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(&lines.0);
    match framing {
        RequestFraming::None => {}
        RequestFraming::Length(length) => {
            out.extend_from_slice(b"content-length: ");
            write_number(out, length, 10);
            out.extend_from_slice(b"\r\n");
        }
        RequestFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
}

/// Frames a request's body, and holds it to the length its head promised. It never sees the content.
#[derive(Debug)]
pub struct RequestBodyEncoder {
    state: State,
}

#[derive(Debug)]
enum State {
    /// So many bytes are still promised.
    Length(u64),
    Chunked,
    Ended,
}

impl RequestBodyEncoder {
    /// The encoder of the body of a request with `framing`.
    pub fn new(framing: RequestFraming) -> Self {
        let state = match framing {
            RequestFraming::None => State::Length(0),
            RequestFraming::Length(length) => State::Length(length),
            RequestFraming::Chunked => State::Chunked,
        };
        Self { state }
    }

    /// Appends to `out` what comes before `length` bytes of content, and returns what comes after them.
    ///
    /// Nothing comes before or after no content: an empty chunk would end the body.
    ///
    /// # Errors
    ///
    /// [`Http1Error::RequestBodyTooLong`] if the content exceeds what the head promised, or comes after the end.
    /// Nothing was written then, and the content must not be.
    pub fn data(&mut self, length: usize, out: &mut BytesMut) -> Result<&'static [u8], Http1Error> {
        if length == 0 {
            return Ok(b"");
        }
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        match &mut self.state {
            State::Length(left) => {
                let rest = left.checked_sub(length);
                *left = rest.ok_or(Http1Error::RequestBodyTooLong)?;
                Ok(b"")
            }
            State::Chunked => {
                write_number(out, length, 16);
                out.extend_from_slice(b"\r\n");
                Ok(b"\r\n")
            }
            State::Ended => Err(Http1Error::RequestBodyTooLong),
        }
    }

    /// What ends the body. A second call returns nothing more.
    ///
    /// # Errors
    ///
    /// [`Http1Error::RequestBodyTooShort`] if less content came than the head promised. The connection must be closed
    /// then: the upstream waits for the rest.
    pub fn end(&mut self) -> Result<&'static [u8], Http1Error> {
        match self.state {
            State::Length(1..) => return Err(Http1Error::RequestBodyTooShort),
            State::Length(0) | State::Ended => Ok(b"".as_slice()),
            State::Chunked => Ok(b"0\r\n\r\n".as_slice()),
        }
        .inspect(|_| self.state = State::Ended)
    }
}

/// Appends `number` to `out` in the digits of `radix`, which is at least 10 and at most 16.
fn write_number(out: &mut BytesMut, mut number: u64, radix: u64) {
    const SIGNS: &[u8; 16] = b"0123456789ABCDEF";
    let mut digits = [0; DIGITS];
    let mut at = DIGITS;
    loop {
        at -= 1;
        let digit = usize::try_from(number % radix).expect("it is less than 16");
        digits[at] = SIGNS[digit];
        number /= radix;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_its_headers_in_order_and_those_of_its_framing_last() {
        let mut lines = RequestHeaderLines::default();
        for (name, value) in [("host", "a"), ("x-b", "1"), ("x-a", "2"), ("x-b", "3")] {
            lines.add(
                &HeaderName::from_static(name),
                &HeaderValue::from_static(value),
            );
        }
        for skipped in [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION] {
            lines.add(&skipped, &HeaderValue::from_static("7"));
            assert!(lines.add_text(&skipped, "7"));
        }
        assert!(lines.add_text(&HeaderName::from_static("x-c"), "4"));
        for refused in ["a b", "a\r\nx-d: 5", "\u{e9}", "\0", "\t"] {
            assert!(
                !lines.add_text(&HeaderName::from_static("x-c"), refused),
                "{refused:?}"
            );
        }
        let line = "POST /a?b HTTP/1.1\r\nhost: a\r\nx-b: 1\r\nx-a: 2\r\nx-b: 3\r\nx-c: 4\r\n";
        let framings = [
            (RequestFraming::None, ""),
            (RequestFraming::Length(0), "content-length: 0\r\n"),
            (
                RequestFraming::Length(u64::MAX),
                "content-length: 18446744073709551615\r\n",
            ),
            (RequestFraming::Chunked, "transfer-encoding: chunked\r\n"),
        ];
        for (framing, last) in framings {
            let mut out = BytesMut::from("before ");
            write_request_head(&mut out, &Method::POST, "/a?b", &lines, framing);
            assert_eq!(out, format!("before {line}{last}\r\n"));
        }
    }

    #[test]
    fn content_of_a_known_length_has_nothing_around_it() {
        let mut out = BytesMut::new();
        let mut encoder = RequestBodyEncoder::new(RequestFraming::Length(5));
        assert_eq!(encoder.data(2, &mut out), Ok(b"".as_slice()));
        assert_eq!(encoder.end(), Err(Http1Error::RequestBodyTooShort));
        assert_eq!(
            encoder.data(4, &mut out),
            Err(Http1Error::RequestBodyTooLong)
        );
        assert_eq!(encoder.data(3, &mut out), Ok(b"".as_slice()));
        assert_eq!(encoder.end(), Ok(b"".as_slice()));
        assert!(out.is_empty());
        assert!(encoder.data(1, &mut out).is_err());
    }

    #[test]
    fn chunks_have_sizes_and_one_end() {
        let mut out = BytesMut::new();
        let mut encoder = RequestBodyEncoder::new(RequestFraming::Chunked);
        assert_eq!(encoder.data(0, &mut out), Ok(b"".as_slice()));
        assert!(out.is_empty());
        assert_eq!(encoder.data(0xbeef, &mut out), Ok(b"\r\n".as_slice()));
        assert_eq!(out, "BEEF\r\n");
        assert_eq!(encoder.end(), Ok(b"0\r\n\r\n".as_slice()));
        assert_eq!(encoder.end(), Ok(b"".as_slice()));
        assert!(encoder.data(1, &mut out).is_err());
    }

    #[test]
    fn a_request_without_a_body_takes_none() {
        let mut encoder = RequestBodyEncoder::new(RequestFraming::None);
        let mut out = BytesMut::new();
        let refused = encoder.data(1, &mut out);
        assert_eq!(refused, Err(Http1Error::RequestBodyTooLong));
        assert_eq!(encoder.end(), Ok(b"".as_slice()));
    }
}
