//! Finds the end of an HTTP/1 head in its raw bytes, and facts that only the bytes show.
//!
//! hyper accepts a bare line feed as a line end, and removes a `Content-Length` next to a `Transfer-Encoding`; neither
//! is visible in a parsed head. A [`HeadScanner`] is given the bytes as they arrive, in parts of any size, and keeps no
//! copy of them.
//!
//! The end of a head is found by the same rule as in hyper, the first empty line, so that both agree on it.

use http::header::CONTENT_LENGTH;

/// How many bytes of a line's beginning are kept: enough to recognize `Content-Length`.
const START: usize = 14;

/// What the bytes of a head show, and its parsed form does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeadFacts {
    /// Whether a line, including the empty one at the end, ends with a bare line feed.
    pub(crate) bare_line_feed: bool,
    /// Whether there is a `Content-Length` line.
    pub(crate) has_content_length: bool,
    /// How many lines it has, without empty ones.
    pub(crate) lines: usize,
    /// How many bytes it has, with empty lines before it and the spaces around values.
    pub(crate) bytes: usize,
}

/// Searches for the end of one head.
#[derive(Debug, Default)]
pub(crate) struct HeadScanner {
    facts: HeadFacts,
    /// Whether a line that is not empty was seen.
    begun: bool,
    /// Whether that line cannot be the first line of a head.
    not_a_head: bool,
    /// The first bytes of the current line, its length, and its last byte.
    start: [u8; START],
    len: usize,
    last: u8,
}

impl HeadScanner {
    /// Scans the next `bytes` of the connection. Returns how many of them belong to the head, once its end is among
    /// them; the scanner can then be used for the next head.
    ///
    /// It costs `O(bytes)`.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Option<(usize, HeadFacts)> {
        let mut from = 0;
        while let Some(at) = memchr::memchr(b'\n', &bytes[from..]) {
            let end = from + at;
            self.add(&bytes[from..end]);
            from = end + 1;
            if self.line_ends() {
                self.facts.bytes += from;
                let facts = std::mem::take(self).facts;
                return Some((from, facts));
            }
        }
        self.add(&bytes[from..]);
        self.facts.bytes += bytes.len();
        None
    }

    /// Whether the bytes so far cannot be the beginning of a head.
    pub(crate) fn cannot_be_head(&self) -> bool {
        let first = self.start[..self.len.min(START)]
            .iter()
            .find(|b| **b != b'\r');
        self.not_a_head || (!self.begun && first.is_some_and(|b| !b.is_ascii_graphic()))
    }

    fn add(&mut self, part: &[u8]) {
        let Some(last) = part.last() else {
            return;
        };
        if self.len < START {
            let room = &mut self.start[self.len..];
            let kept = part.len().min(room.len());
            room[..kept].copy_from_slice(&part[..kept]);
        }
        self.len += part.len();
        self.last = *last;
    }

    /// A line feed was found. Returns whether it ends the head.
    fn line_ends(&mut self) -> bool {
        let bare = self.len == 0 || self.last != b'\r';
        let is_empty = self.len == 0 || (self.len == 1 && !bare);
        let has_length = self.len >= START
            && self
                .start
                .eq_ignore_ascii_case(CONTENT_LENGTH.as_str().as_bytes());
        let cannot_be_head = self.cannot_be_head();
        self.len = 0;
        // Empty lines are allowed before a head.
        if is_empty && !self.begun {
            return false;
        }
        self.begun = true;
        self.not_a_head = cannot_be_head;
        self.facts.lines += usize::from(!is_empty);
        self.facts.bare_line_feed |= bare;
        self.facts.has_content_length |= has_length;
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `bytes` whole and in pieces of every size; all have to find the same.
    fn scan(bytes: &[u8]) -> Option<(usize, HeadFacts)> {
        let whole = HeadScanner::default().scan(bytes);
        for size in 1..bytes.len() {
            let mut scanner = HeadScanner::default();
            let mut before = 0;
            let found = bytes.chunks(size).find_map(|piece| {
                let found = scanner.scan(piece).map(|(at, facts)| (before + at, facts));
                before += piece.len();
                found
            });
            assert_eq!(found, whole, "in pieces of {size}");
        }
        whole
    }

    fn facts(bytes: &[u8]) -> HeadFacts {
        scan(bytes).unwrap().1
    }

    #[test]
    fn a_dropped_length_and_a_bare_line_feed_are_found() {
        let both = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-LENGTH: 3\r\n\r\n";
        assert!(facts(both).has_content_length);
        assert!(!facts(both).bare_line_feed);
        let body = b"POST / HTTP/1.1\r\nHost: a\r\n\r\nContent-Length: 3\n";
        assert!(!facts(body).has_content_length, "that is the body");
        assert!(!facts(body).bare_line_feed);
        assert!(facts(b"GET / HTTP/1.1\nHost: a\r\n\r\n").bare_line_feed);
        assert!(facts(b"GET / HTTP/1.1\r\nHost: a\r\n\n").bare_line_feed);
        assert!(facts(b"\r\n\r\nGET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n").has_content_length);
        assert!(!facts(b"\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").bare_line_feed);
    }

    #[test]
    fn the_lines_of_one_head_are_counted_without_empty_ones() {
        let two = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nX: b\r\n";
        assert_eq!(facts(two).lines, 2);
        assert_eq!(facts(two).bytes, 29);
        assert_eq!(facts(b"GET / HTTP/1.0\n\n").lines, 1);
    }

    #[test]
    fn a_head_ends_with_the_first_empty_line_after_its_first_line() {
        let head = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(scan(head).unwrap().0, head.len());
        let more = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        assert_eq!(scan(more).unwrap().0, 27);
        assert_eq!(scan(b"GET / HTTP/1.1\r\nHost: a\r\n\r"), None);
        assert_eq!(scan(b"\r\n\r\n\r\n"), None);
    }

    #[test]
    fn bytes_that_cannot_begin_a_head_are_recognized() {
        let not_a_head = |bytes: &[u8]| {
            let mut scanner = HeadScanner::default();
            assert_eq!(scanner.scan(bytes), None);
            scanner.cannot_be_head()
        };
        assert!(not_a_head(b"\x16\x03\x01\x02"), "a TLS client");
        assert!(not_a_head(b"\r\n\0"));
        assert!(not_a_head(b"\0\r\nHost"), "also once its line is complete");
        assert!(!not_a_head(b"G"));
        assert!(!not_a_head(b"\r\n\r"));
        assert!(!not_a_head(b""));
    }
}
