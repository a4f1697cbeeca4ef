//! The header lines of a request to the upstream: those of HTTP/1 are written as bytes at once, those of HTTP/2 become a list.

use fairgate_call::HeaderLines;
use fairgate_http1::RequestHeaderLines;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::huffman;

/// What the lengths of a name and a value take at most, and how they are sent.
const MOST_OF_LENGTHS: usize = 8;

/// Where the lines go.
pub(super) enum OutgoingLines<'a> {
    /// To bytes.
    Http1(&'a mut RequestHeaderLines),
    /// To a list.
    List(&'a mut HeaderMap),
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

    /// Whether the lines take more than `most` bytes as they are sent. Those of HTTP/2 may be longer than what is counted.
    pub(super) fn exceed(&self, most: usize) -> bool {
        let OutgoingLines::List(headers) = &self.lines else {
            return self.bytes > most;
        };
        if self.bytes.saturating_mul(huffman::MOST_TIMES) <= most {
            return false;
        }
        let lines = headers.iter();
        let encoded: usize = lines
            .map(|(name, value)| {
                huffman::encoded_bytes(name.as_str().as_bytes())
                    + huffman::encoded_bytes(value.as_bytes())
                    + MOST_OF_LENGTHS
            })
            .sum();
        self.bytes.max(encoded) > most
    }

    /// Adds a line whose value is `text`. Returns whether that has only visible ASCII characters; if not, nothing is added.
    #[must_use]
    pub(super) fn add_text(&mut self, name: &HeaderName, text: &str) -> bool {
        self.count(name, text.len());
        match &mut self.lines {
            OutgoingLines::Http1(lines) => lines.add_text(name, text),
            OutgoingLines::List(headers) => {
                let value = HeaderValue::from_str(text);
                value.is_ok_and(|value| headers.try_append(name, value).is_ok())
            }
        }
    }

    fn count(&mut self, name: &HeaderName, value: usize) {
        self.bytes += name.as_str().len() + value + 32;
    }
}

impl HeaderLines for CountedLines<'_> {
    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.count(name, value.len());
        match &mut self.lines {
            OutgoingLines::Http1(lines) => lines.add(name, value),
            OutgoingLines::List(headers) => headers.add(name, value),
        }
    }
}
