//! The header lines of a request to the upstream: those of HTTP/1 are written as bytes at once, those of HTTP/2 become a list.
//!
//! A server that finds a head too long refuses the request, but over HTTP/2 it may close the connection instead, which other clients share.
//! Go's server, and so kube-apiserver, has a limit for the list of headers, from which it subtracts `name + value + 32` bytes for each line it
//! has read, pseudo-headers included. It closes the connection for
//!
//! - a frame of the head that is longer than twice what was left when it came,
//! - a name or a value whose code is longer than the limit.
//!
//! Which lines are in a frame depends on its size, and thus on the server. But no frame is longer than the codes of the lines that were not whole before
//! it. So none is too long if all lines together stay within the limit where each counts as what is subtracted, or as half of its code if that is more.
//! That the sum of all codes stays within it, too, keeps each of them within it.
//!
//! Source: Go 1.26 `net/http/h2_bundle.go`, `readMetaFrame` and `maxHeaderListSize`, and golang.org/x/net `http2/hpack/hpack.go`, `readString`. Version
//! 0.61 of golang.org/x/net has a limit of its own for trailers, and takes longer frames.

use fairgate_call::HeaderLines;
use fairgate_http1::RequestHeaderLines;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request,
    uri::{Authority, PathAndQuery},
};

use super::huffman;

/// What a server counts of a line besides its name and its value.
const LINE: usize = 32;
/// How many bytes the code of a line takes at most besides those of its name and its value: how it is sent, and their lengths.
const MOST_OF_LENGTHS: usize = 9;

/// Where the lines go, and how they are sent from there.
pub(super) enum OutgoingLines<'a> {
    /// To bytes that are sent over HTTP/1.
    Http1(&'a mut RequestHeaderLines),
    /// To a list that is sent over HTTP/1.
    Http1List(&'a mut HeaderMap),
    /// To a head that is sent over HTTP/2. It has its method and its target already.
    Http2(&'a mut Request<()>),
}

/// Counts what is added, as a server does that limits the size of a head: 32 bytes for each line besides name and value.
pub(super) struct CountedLines<'a> {
    lines: OutgoingLines<'a>,
    bytes: usize,
}

impl<'a> CountedLines<'a> {
    pub(super) fn new(lines: OutgoingLines<'a>) -> Self {
        Self { lines, bytes: 0 }
    }

    /// Whether the lines take more than `most` bytes as they are sent, over HTTP/2 with the method and the target.
    pub(super) fn exceed(&self, most: usize) -> bool {
        let OutgoingLines::Http2(head) = &self.lines else {
            return self.bytes > most;
        };
        let pseudo = pseudo_headers(head);
        let counted = |(name, value): &(&str, &str)| name.len() + value.len() + LINE;
        let bytes = self.bytes + pseudo.iter().map(counted).sum::<usize>();
        // Nearly all heads are so short that their code need not be looked at.
        bytes.saturating_mul(huffman::MOST_TIMES) > most && is_too_long(head, &pseudo, most)
    }

    /// Adds a line whose value is `text`. Returns whether that has only visible ASCII characters; if not, nothing is added.
    #[must_use]
    pub(super) fn add_text(&mut self, name: &HeaderName, text: &str) -> bool {
        self.count(name, text.len());
        match &mut self.lines {
            OutgoingLines::Http1(lines) => lines.add_text(name, text),
            OutgoingLines::Http1List(headers) => append_text(headers, name, text),
            OutgoingLines::Http2(head) => append_text(head.headers_mut(), name, text),
        }
    }

    fn count(&mut self, name: &HeaderName, value: usize) {
        self.bytes += name.as_str().len() + value + LINE;
    }
}

impl HeaderLines for CountedLines<'_> {
    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.count(name, value.len());
        match &mut self.lines {
            OutgoingLines::Http1(lines) => lines.add(name, value),
            OutgoingLines::Http1List(headers) => headers.add(name, value),
            OutgoingLines::Http2(head) => head.headers_mut().add(name, value),
        }
    }
}

fn append_text(headers: &mut HeaderMap, name: &HeaderName, text: &str) -> bool {
    let value = HeaderValue::from_str(text);
    value.is_ok_and(|value| headers.try_append(name, value).is_ok())
}

/// The lines that HTTP/2 sends before the others.
fn pseudo_headers(head: &Request<()>) -> [(&str, &str); 4] {
    let target = head.uri();
    let path = target.path_and_query().map_or("/", PathAndQuery::as_str);
    let authority = target.authority().map_or("", Authority::as_str);
    [
        (":method", head.method().as_str()),
        (":scheme", target.scheme_str().unwrap_or_default()),
        (":authority", authority),
        (":path", path),
    ]
}

/// Whether a server with a limit of `most` bytes could close the connection because of this head: see above.
fn is_too_long(head: &Request<()>, pseudo: &[(&str, &str)], most: usize) -> bool {
    let pseudo = pseudo.iter();
    let pseudo = pseudo.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let lines = head.headers().iter();
    let lines = lines.map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let (mut counted, mut sent) = (0, 0);
    for (name, value) in pseudo.chain(lines) {
        let code = huffman::encoded_bytes(name) + huffman::encoded_bytes(value) + MOST_OF_LENGTHS;
        counted += (name.len() + value.len() + LINE).max(code.div_ceil(2));
        sent += code;
    }
    counted.max(sent) > most
}
