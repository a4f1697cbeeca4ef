//! Decompresses the beginning of a gzipped body, and finds its length.
//!
//! Decompressing a list costs far more than forwarding it. So only its beginning is decompressed, and the length of
//! the whole is taken from the trailer (RFC 1952, `ISIZE`). The trailer has it modulo 4 GiB, and for the last member
//! only; a value that cannot be the length of such a body is ignored.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};

/// The fixed part of the header, which is all of it if no flags are set.
const HEADER_BYTES: usize = 10;

/// Length of the trailer: checksum and length.
const TRAILER_BYTES: u64 = 8;

/// A compressed byte expands to no more than this many.
const MAX_RATIO: u64 = 1032;

/// A gzipped body while it streams.
#[derive(Debug, Default)]
pub(super) struct Gzip {
    seen: u64,
    head: Head,
    /// Bytes after decompression.
    inflated: u64,
    /// The last four bytes of the body so far.
    last: [u8; 4],
}

#[derive(Default)]
enum Head {
    #[default]
    Empty,
    /// This many bytes of the header were read.
    Header(usize),
    Inflating(Box<Decompress>),
    /// All of the body was decompressed; it has this many bytes and the trailer.
    Ended(u64),
    /// Enough was decompressed.
    Enough,
    /// It cannot be decompressed.
    Broken,
}

impl Gzip {
    /// Reads a part of the body. Decompressed data goes to `reader`, a few KiB at a time, until that returns `false`.
    pub(super) fn read(&mut self, data: &[u8], reader: impl FnMut(&[u8]) -> bool) {
        let before = self.seen;
        self.seen = self.seen.saturating_add(data.len() as u64);
        for &byte in &data[data.len().saturating_sub(4)..] {
            self.last.rotate_left(1);
            self.last[3] = byte;
        }
        let rest = self.header(data);
        if !rest.is_empty() {
            let skipped = (data.len() - rest.len()) as u64;
            self.inflate(rest, before + skipped, reader);
        }
    }

    /// The decompressed length of the body, at its end; `None` if it is unknown.
    pub(super) fn decoded_bytes(&self) -> Option<u64> {
        match self.head {
            Head::Ended(end) => (self.seen == end + TRAILER_BYTES).then_some(self.inflated),
            Head::Inflating(_) | Head::Enough => {
                let length = u64::from(u32::from_le_bytes(self.last));
                let is_plausible = length >= self.inflated
                    && length <= self.seen.saturating_mul(MAX_RATIO)
                    && length.saturating_mul(2).saturating_add(1024) >= self.seen;
                is_plausible.then_some(length)
            }
            Head::Empty | Head::Header(_) | Head::Broken => None,
        }
    }

    /// Reads the header; returns what follows it.
    fn header<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        if matches!(self.head, Head::Empty) {
            self.head = Head::Header(0);
        }
        let mut rest = data;
        while let Head::Header(index) = self.head
            && let Some((&byte, after)) = rest.split_first()
        {
            // The magic number, deflate, no flags.
            let is_valid = [0x1f, 0x8b, 8, 0]
                .get(index)
                .is_none_or(|&expected| byte == expected);
            self.head = if !is_valid {
                Head::Broken
            } else if index + 1 == HEADER_BYTES {
                Head::Inflating(Box::new(Decompress::new(false)))
            } else {
                Head::Header(index + 1)
            };
            rest = after;
        }
        rest
    }

    /// Decompresses `data`, which begins at `position` of the body.
    fn inflate(&mut self, data: &[u8], position: u64, mut reader: impl FnMut(&[u8]) -> bool) {
        let Head::Inflating(inflater) = &mut self.head else {
            return;
        };
        let mut output = [0; 4096];
        let mut consumed = 0;
        loop {
            let (input, made) = (inflater.total_in(), inflater.total_out());
            let rest = data.get(consumed..).unwrap_or_default();
            let status = inflater.decompress(rest, &mut output, FlushDecompress::None);
            let read = usize::try_from(inflater.total_in() - input).unwrap_or(usize::MAX);
            let wrote = usize::try_from(inflater.total_out() - made).unwrap_or(usize::MAX);
            consumed = consumed.saturating_add(read);
            self.inflated = inflater.total_out();
            let wants_more = reader(output.get(..wrote).unwrap_or_default());
            self.head = match status {
                Err(_) => Head::Broken,
                Ok(Status::StreamEnd) => Head::Ended(position + consumed as u64),
                Ok(_) if !wants_more => Head::Enough,
                Ok(_) if read == 0 && wrote == 0 => return,
                Ok(_) => continue,
            };
            return;
        }
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Header(_) => "Header",
            Self::Inflating(_) => "Inflating",
            Self::Ended(_) => "Ended",
            Self::Enough => "Enough",
            Self::Broken => "Broken",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn no_more_is_decompressed_than_requested() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&vec![0; 50 << 20]).unwrap();
        let packed = encoder.finish().unwrap();
        for piece in [1, 4096, packed.len()] {
            let mut gzip = Gzip::default();
            let mut got = 0;
            for data in packed.chunks(piece) {
                gzip.read(data, |decoded| {
                    got += decoded.len();
                    got < 10_000
                });
            }
            assert!((10_000..15_000).contains(&got), "{got}");
            assert_eq!(gzip.inflated, got as u64);
            assert!(matches!(gzip.head, Head::Enough));
            assert_eq!(gzip.decoded_bytes(), Some(50 << 20));
        }
    }
}
