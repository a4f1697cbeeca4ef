//! Finds the end of a chunked body, and refuses bodies whose end two servers could see in different places.
//!
//! hyper takes a line feed without a carriage return at the end of a body for the beginning of a trailer, and
//! would treat a part of the next request as the rest of this one (request smuggling). Here every line of the
//! framing has to end with both characters; any framing that does not follow the grammar of RFC 9112 is refused.
//! hyper limits the size of extensions and trailers.

use std::io;

/// Follows a chunked body through its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkScanner(At);

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The first digit of a chunk's size.
    Start,
    /// Another digit of the size, or its end. The number is the size so far.
    Size(u64),
    /// What may follow the size on its line.
    Extension(u64),
    /// The line feed after the size.
    SizeLf(u64),
    /// This many bytes of data; at least one.
    Data(u64),
    DataCr,
    DataLf,
    /// A line after the last chunk: a trailer, or the empty one at the end.
    Line,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl Default for ChunkScanner {
    fn default() -> Self {
        Self(At::Start)
    }
}

impl ChunkScanner {
    /// Scans the next `bytes`. Returns how many of them belong to the body: all, or fewer if its end is among
    /// them.
    ///
    /// # Errors
    ///
    /// When the framing is malformed. The connection cannot be used any more.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while at < bytes.len() && self.0 != At::End {
            if let At::Data(left) = self.0 {
                let here = bytes.len() - at;
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(here);
                at += taken;
                self.0 = match left - taken as u64 {
                    0 => At::DataCr,
                    left => At::Data(left),
                };
                continue;
            }
            self.0 = self.0.step(bytes[at]).ok_or_else(malformed)?;
            at += 1;
        }
        Ok(at)
    }

    /// Whether the body has ended.
    pub(crate) fn is_at_end(self) -> bool {
        self.0 == At::End
    }
}

impl At {
    fn step(self, byte: u8) -> Option<Self> {
        let next = match (self, byte) {
            (Self::Start, _) => Self::Size(digit(byte)?),
            (Self::Size(size) | Self::Extension(size), b'\r') => Self::SizeLf(size),
            (Self::Size(size), b';' | b' ' | b'\t') => Self::Extension(size),
            (Self::Size(size), _) => Self::Size(size.checked_mul(16)?.checked_add(digit(byte)?)?),
            (Self::Extension(_) | Self::Line | Self::Trailer, b'\n') => return None,
            (Self::Extension(size), _) => Self::Extension(size),
            (Self::SizeLf(0) | Self::TrailerLf, b'\n') => Self::Line,
            (Self::SizeLf(size), b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Start,
            (Self::Line, b'\r') => Self::EndLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::Line | Self::Trailer, _) => Self::Trailer,
            (Self::EndLf, b'\n') => Self::End,
            _ => return None,
        };
        Some(next)
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the framing of a chunked body is malformed",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the body ends, which must not depend on how it is split; `None` if it is malformed.
    fn end(bytes: &[u8]) -> Option<usize> {
        let ends = |size| {
            let (mut scanner, mut end) = (ChunkScanner::default(), 0);
            for piece in bytes.chunks(size) {
                end += scanner.scan(piece).ok()?;
            }
            assert!(scanner.is_at_end() || end == bytes.len());
            scanner.is_at_end().then_some(end)
        };
        let whole = ends(bytes.len());
        for size in 1..bytes.len() {
            assert_eq!(ends(size), whole, "in pieces of {size}");
        }
        whole
    }

    #[test]
    fn a_body_ends_after_its_last_chunk() {
        assert_eq!(end(b"0\r\n\r\nGET"), Some(5));
        assert_eq!(end(b"3\r\nabc\r\n0\r\n\r\nGET"), Some(13));
        assert_eq!(end(b"a;x=y\r\n0123456789\r\n00\r\nT: v\r\n\r\n!"), Some(31));
        assert_eq!(
            end(b"2 \r\n\r\n\r\n0\r\n\r\n"),
            Some(13),
            "data may be anything"
        );
    }

    #[test]
    fn a_line_without_a_carriage_return_is_malformed() {
        for bad in [
            &b"0\r\n\nGET / HTTP/1.1\r\n\r\n"[..],
            b"0\n\r\n",
            b"0\r\n\n",
            b"1\na\r\n0\r\n\r\n",
            b"1\r\na\n0\r\n\r\n",
            b"1;x\ny\r\na\r\n0\r\n\r\n",
            b"0\r\nT: v\n\r\n",
            b"0\r\nT: v\rx\r\n\r\n",
            b"0\r\n\rx",
        ] {
            assert_eq!(end(bad), None, "{:?}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_size_that_is_not_hexadecimal_or_too_large_is_malformed() {
        for bad in [
            &b"\r\n"[..],
            b"+1\r\n",
            b"g\r\n",
            b"10000000000000000\r\n",
            b"1 2;\n",
        ] {
            assert_eq!(end(bad), None, "{:?}", String::from_utf8_lossy(bad));
        }
    }
}
