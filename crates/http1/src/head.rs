//! Reading a response's head: the status line and headers, and what they say about the body and the connection.
//!
//! The end of the head is searched first, from where the last search stopped; only a whole head is parsed, once.

use std::ops::ControlFlow;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING},
};
use memchr::memchr2;

use crate::Http1Error;

/// How many interim (1xx) responses may come before the final one.
pub const INTERIM_HEADS: u32 = 64;

/// The headers for which there is room on the stack; few responses have more.
const USUAL_LINES: usize = 64;

/// Headers that the caller may add without making the list of a response grow.
const ROOM_TO_ADD: usize = 4;

/// What hyper's client allows as a `Content-Length`; it uses the two numbers above for itself.
const LONGEST_BODY: u64 = u64::MAX - 2;

/// How large a response's head may be. Each interim response has a head of its own.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHeadLimits {
    /// Bytes, from the status line to the empty line that ends the head.
    pub bytes: usize,
    /// Header lines.
    pub lines: usize,
}

/// A response without its body.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers in their order, hop-by-hop ones included. Their values share one allocation.
    pub headers: HeaderMap,
    /// How the body ends.
    pub framing: ResponseFraming,
    /// Whether the connection can serve another request after this response.
    pub keep_alive: bool,
}

/// How a response's body ends (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// After so many bytes; without a body, 0.
    Length(u64),
    /// After the last chunk and the trailers.
    Chunked,
    /// When the upstream closes the connection.
    UntilClose,
}

/// How far a head was read.
#[derive(Debug)]
pub enum HeadProgress {
    /// More bytes are needed.
    Incomplete {
        /// The bytes at the beginning of the input that were consumed: interim responses. The caller removes them.
        read: usize,
    },
    /// The final response's head.
    Head {
        /// The head.
        head: ResponseHead,
        /// The bytes at the beginning of the input that were consumed: the head, and interim ones before it.
        read: usize,
    },
}

/// Reads one response's head from bytes that come in pieces.
///
/// Interim responses are skipped (100, 102, 103 and other 1xx), but not 101: after it the connection is another
/// protocol's, so it is a final response here.
#[derive(Debug)]
pub struct ResponseHeadParser {
    limits: ResponseHeadLimits,
    /// How many bytes of the current head were searched for its end.
    searched: usize,
    interim: u32,
}

impl ResponseHeadParser {
    /// A parser of one response.
    pub fn new(limits: ResponseHeadLimits) -> Self {
        Self {
            limits,
            searched: 0,
            interim: 0,
        }
    }

    /// Reads on. `input` is all that was not consumed yet: each time the same beginning (without interim responses
    /// that the previous call consumed), each time longer. `method` is that of the request.
    ///
    /// An input of [`ResponseHeadLimits::bytes`] is never incomplete, so a buffer of that size is enough.
    ///
    /// # Errors
    ///
    /// What is wrong with the head; the parser must not be used any more. A beginning that no head can have is refused
    /// at once, not at the end of the head.
    pub fn parse(&mut self, input: &[u8], method: &Method) -> Result<HeadProgress, Http1Error> {
        let mut read = 0;
        loop {
            let Some(end) = self.find_end(&input[read..])? else {
                return Ok(HeadProgress::Incomplete { read });
            };
            let bytes = &input[read..read + end];
            read += end;
            match parse_head(bytes, self.limits.lines, method)? {
                ControlFlow::Break(head) => return Ok(HeadProgress::Head { head, read }),
                ControlFlow::Continue(()) if self.interim == INTERIM_HEADS => {
                    return Err(Http1Error::TooManyInterim);
                }
                ControlFlow::Continue(()) => self.interim += 1,
            }
        }
    }

    /// Searches the empty line that ends the head at the beginning of `input`, and returns what it ends at.
    fn find_end(&mut self, input: &[u8]) -> Result<Option<usize>, Http1Error> {
        if !may_begin(input) {
            return Err(Http1Error::Version);
        }
        let allowed = &input[..input.len().min(self.limits.bytes)];
        loop {
            let left = allowed.get(self.searched..).unwrap_or_default();
            let Some(found) = memchr2(b'\n', b'\r', left) else {
                self.searched = allowed.len();
                break;
            };
            let mut line_end = self.searched + found;
            if allowed[line_end] == b'\r' {
                match allowed.get(line_end + 1) {
                    Some(b'\n') => line_end += 1,
                    // No head can go on like this: its end, which may never come, need not be waited for.
                    Some(_) => return Err(Http1Error::MalformedHead(httparse::Error::NewLine)),
                    None => {
                        self.searched = line_end;
                        break;
                    }
                }
            }
            match allowed[line_end + 1..] {
                // What comes after the line is not here yet: its end is found again next time.
                [] | [b'\r'] => {
                    self.searched = line_end;
                    break;
                }
                [b'\n', ..] => return Ok(Some(self.ended(line_end + 2))),
                [b'\r', b'\n', ..] => return Ok(Some(self.ended(line_end + 3))),
                _ => self.searched = line_end + 1,
            }
        }
        if input.len() >= self.limits.bytes {
            return Err(Http1Error::HeadTooLarge);
        }
        Ok(None)
    }

    /// The next head begins at `end`.
    fn ended(&mut self, end: usize) -> usize {
        self.searched = 0;
        end
    }
}

/// Whether a head can begin with `input`.
fn may_begin(input: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let common = input.len().min(BEGINNING.len());
    input[..common] == BEGINNING[..common]
}

/// Parses a whole head. An interim response is no result: `Continue`.
fn parse_head(
    bytes: &[u8],
    lines: usize,
    method: &Method,
) -> Result<ControlFlow<ResponseHead>, Http1Error> {
    let mut usual = [httparse::EMPTY_HEADER; USUAL_LINES];
    let room = &mut usual[..lines.min(USUAL_LINES)];
    let mut parsed = httparse::Response::new(room);
    match parsed.parse(bytes) {
        Err(httparse::Error::TooManyHeaders) if lines > USUAL_LINES => {
            // No more lines than fit in the head: a limit may be any number.
            let most = lines.min(bytes.len() / 3);
            let mut many = vec![httparse::EMPTY_HEADER; most];
            let mut parsed = httparse::Response::new(&mut many);
            let status = parsed.parse(bytes);
            finish_head(bytes, &parsed, status, method)
        }
        status => finish_head(bytes, &parsed, status, method),
    }
}

fn finish_head(
    bytes: &[u8],
    parsed: &httparse::Response<'_, '_>,
    status: httparse::Result<usize>,
    method: &Method,
) -> Result<ControlFlow<ResponseHead>, Http1Error> {
    match status {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        // Both see the end of the head alike; should they not, the head is refused.
        Ok(_) => return Err(Http1Error::MalformedHead(httparse::Error::NewLine)),
        Err(httparse::Error::TooManyHeaders) => return Err(Http1Error::TooManyHeaders),
        Err(httparse::Error::Version) => return Err(Http1Error::Version),
        Err(error) => return Err(Http1Error::MalformedHead(error)),
    }
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Http1Error::MalformedHead(httparse::Error::Status))?;
    if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(ControlFlow::Continue(()));
    }
    let headers = header_map(bytes, parsed.headers, Http1Error::MalformedHead)?;
    let is_1_1 = parsed.version == Some(1);
    let is_tunnel = status == StatusCode::SWITCHING_PROTOCOLS
        || (*method == Method::CONNECT && status.is_success());
    let framing = if is_tunnel || has_no_body(status, method) {
        ResponseFraming::Length(0)
    } else {
        framing(&headers, is_1_1)?
    };
    let keep_alive =
        !is_tunnel && framing != ResponseFraming::UntilClose && keeps_alive(&headers, is_1_1);
    Ok(ControlFlow::Break(ResponseHead {
        status,
        headers,
        framing,
        keep_alive,
    }))
}

/// Whether there is no body, whatever the headers say (RFC 9112, section 6.3, rule 1).
fn has_no_body(status: StatusCode, method: &Method) -> bool {
    *method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// The headers that httparse found in `bytes`, their values as parts of one copy of `bytes`.
pub(crate) fn header_map(
    bytes: &[u8],
    parsed: &[httparse::Header<'_>],
    malformed: fn(httparse::Error) -> Http1Error,
) -> Result<HeaderMap, Http1Error> {
    let copy = Bytes::copy_from_slice(bytes);
    let mut headers = HeaderMap::try_with_capacity(parsed.len() + ROOM_TO_ADD)
        .map_err(|_| Http1Error::TooManyHeaders)?;
    for header in parsed {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| malformed(httparse::Error::HeaderName))?;
        // The addresses say where in `bytes` the value is; an empty one may be anywhere.
        let at = header
            .value
            .as_ptr()
            .addr()
            .wrapping_sub(bytes.as_ptr().addr());
        let value = if header.value.is_empty() {
            Ok(HeaderValue::from_static(""))
        } else {
            HeaderValue::from_maybe_shared(copy.slice(at..at + header.value.len()))
        };
        let value = value.map_err(|_| malformed(httparse::Error::HeaderValue))?;
        headers
            .try_append(name, value)
            .map_err(|_| Http1Error::TooManyHeaders)?;
    }
    Ok(headers)
}

/// How the body of a response that has one ends. Whatever recipients may read in two ways is refused.
fn framing(headers: &HeaderMap, is_1_1: bool) -> Result<ResponseFraming, Http1Error> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    match (encodings.next(), lengths.next()) {
        (None, None) => Ok(ResponseFraming::UntilClose),
        (Some(_), Some(_)) => Err(Http1Error::LengthAndEncoding),
        (Some(encoding), None) => {
            let is_chunked = encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
            if !is_1_1 || !is_chunked || encodings.next().is_some() {
                return Err(Http1Error::UnsupportedEncoding);
            }
            Ok(ResponseFraming::Chunked)
        }
        (None, Some(length)) => {
            if lengths.next().is_some() || length.as_bytes().contains(&b',') {
                return Err(Http1Error::SeveralLengths);
            }
            let length = parse_length(length.as_bytes()).ok_or(Http1Error::InvalidLength)?;
            Ok(ResponseFraming::Length(length))
        }
    }
}

/// A decimal number without a sign.
fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let length = digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })?;
    (length <= LONGEST_BODY).then_some(length)
}

/// Whether the connection stays open after the response (RFC 9112, section 9.3).
fn keeps_alive(headers: &HeaderMap, is_1_1: bool) -> bool {
    let has = |wanted: &[u8]| {
        let values = headers.get_all(CONNECTION).iter();
        values
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
    };
    if !headers.contains_key(CONNECTION) {
        return is_1_1;
    }
    !has(b"close") && (is_1_1 || has(b"keep-alive"))
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
