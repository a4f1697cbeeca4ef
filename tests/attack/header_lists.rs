//! How Go's HTTP/2 server, and so kube-apiserver, limits heads: one that is much too long is not refused, but ends the connection.
//!
//! [`LimitedHeads`] reads the frames of a connection before the HTTP/2 library, which has no such rule. It decodes header blocks as far
//! as their sizes need it: of a text in Huffman code only the number of characters.
//!
//! Not here: padding and priorities of HEADERS frames, which the gateway's HTTP/2 library does not send.
//!
//! Source: Go 1.26 `net/http/h2_bundle.go`, `readMetaFrame`, and golang.org/x/net `http2/hpack/hpack.go`, `Decoder`; RFC 7541.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::frames::{END_HEADERS, PREFACE, kind};

/// How large a list of headers may be: 1 MiB, and what Go adds for the overhead of ten lines.
pub(crate) const LIST_LIMIT: u32 = (1 << 20) + 320;
/// The longest frame that kube-apiserver takes.
pub(crate) const FRAME_LIMIT: u32 = 256 << 10;
/// What is counted of a line besides its name and its value.
const LINE: usize = 32;
/// The bytes of a frame before its payload.
const FRAME_HEAD: usize = 9;
/// The longest table of lines, which is the default.
const TABLE_LIMIT: usize = 4096;

/// A connection that ends with [`io::ErrorKind::InvalidData`] when Go's server would end it because of a head.
pub(crate) struct LimitedHeads {
    stream: TcpStream,
    frames: Frames,
}

impl LimitedHeads {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let frames = Frames {
            skipped: PREFACE.len(),
            pending: Vec::new(),
            list: HeaderList::default(),
        };
        Self { stream, frames }
    }
}

impl AsyncRead for LimitedHeads {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let read = this.frames.read(&buf.filled()[before..]);
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidData, "header list too large");
        Poll::Ready(read.map_err(too_long))
    }
}

impl AsyncWrite for LimitedHeads {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A head is too long for its connection.
struct TooLong;

/// The frames of a connection.
struct Frames {
    /// How many of the next bytes are of no interest.
    skipped: usize,
    /// What has come of a frame.
    pending: Vec<u8>,
    list: HeaderList,
}

impl Frames {
    fn read(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            let skipped = self.skipped.min(bytes.len());
            self.skipped -= skipped;
            bytes = &bytes[skipped..];
            let wanted = self.wanted() - self.pending.len();
            let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.pending.extend_from_slice(taken);
            bytes = rest;
            if taken.len() == wanted {
                self.take_frame()?;
            }
        }
        Ok(())
    }

    /// How much of a frame is to be collected before it is looked at: first its head, then all of it.
    fn wanted(&self) -> usize {
        match self.pending[..] {
            [a, b, c, _, _, _, _, _, _, ..] => {
                FRAME_HEAD + usize::from(a) * 0x1_0000 + usize::from(b) * 0x100 + usize::from(c)
            }
            _ => FRAME_HEAD,
        }
    }

    fn take_frame(&mut self) -> Result<(), TooLong> {
        let (kind, flags) = (self.pending[3], self.pending[4]);
        if !matches!(kind, kind::HEADERS | kind::CONTINUATION) {
            self.skipped = self.wanted() - FRAME_HEAD;
            self.pending.clear();
        }
        if self.pending.len() < self.wanted() {
            return Ok(());
        }
        self.list.take_fragment(&self.pending[FRAME_HEAD..])?;
        self.pending.clear();
        if flags & END_HEADERS != 0 {
            self.list.end();
        }
        Ok(())
    }
}

/// The list of headers that is being read, and the table that all lists of a connection share.
struct HeaderList {
    /// What may still come.
    left: usize,
    /// What has come of a line.
    line: Vec<u8>,
    /// The lengths of names and values, the newest first.
    table: VecDeque<(usize, usize)>,
    table_limit: usize,
}

impl Default for HeaderList {
    fn default() -> Self {
        Self {
            left: LIST_LIMIT as usize,
            line: Vec::new(),
            table: VecDeque::new(),
            table_limit: TABLE_LIMIT,
        }
    }
}

/// Why a line was not read.
enum Unread {
    /// More of it is to come.
    Incomplete,
    TooLong,
}

impl HeaderList {
    fn take_fragment(&mut self, fragment: &[u8]) -> Result<(), TooLong> {
        if fragment.len() > 2 * self.left {
            return Err(TooLong);
        }
        let mut block = std::mem::take(&mut self.line);
        block.extend_from_slice(fragment);
        let mut reader = Reader(&block);
        while !reader.0.is_empty() {
            let begin = reader.0;
            match self.read_line(&mut reader) {
                Ok(size) => self.left = self.left.saturating_sub(size),
                Err(Unread::Incomplete) => {
                    self.line = begin.to_vec();
                    return Ok(());
                }
                Err(Unread::TooLong) => return Err(TooLong),
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        self.left = LIST_LIMIT as usize;
        self.line.clear();
    }

    /// Reads a line, and returns what it counts.
    fn read_line(&mut self, reader: &mut Reader<'_>) -> Result<usize, Unread> {
        let first = *reader.0.first().ok_or(Unread::Incomplete)?;
        if first & 0x80 != 0 {
            let (name, value) = self.entry(reader.number(7)?);
            return Ok(name + value + LINE);
        }
        if first & 0xe0 == 0x20 {
            self.table_limit = reader.number(5)?;
            self.shorten_table();
            return Ok(0);
        }
        let is_added = first & 0x40 != 0;
        let index = reader.number(if is_added { 6 } else { 4 })?;
        let name = match index {
            0 => reader.text()?,
            index => self.entry(index).0,
        };
        let value = reader.text()?;
        if is_added {
            self.table.push_front((name, value));
            self.shorten_table();
        }
        Ok(name + value + LINE)
    }

    /// The lengths of a line in the tables.
    fn entry(&self, index: usize) -> (usize, usize) {
        let Some(own) = index.checked_sub(STATIC_NAMES.len() + 1) else {
            let name = STATIC_NAMES[index.saturating_sub(1)];
            return (name.into(), static_value(index));
        };
        self.table.get(own).copied().unwrap_or_default()
    }

    fn shorten_table(&mut self) {
        let size = |table: &VecDeque<(usize, usize)>| -> usize {
            table.iter().map(|(name, value)| name + value + LINE).sum()
        };
        while size(&self.table) > self.table_limit {
            self.table.pop_back();
        }
    }
}

/// The rest of a header block.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, Unread> {
        let (first, rest) = self.0.split_first().ok_or(Unread::Incomplete)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A number that begins with so many bits of the first byte.
    fn number(&mut self, bits: u32) -> Result<usize, Unread> {
        let most = (1 << bits) - 1;
        let mut number = usize::from(self.byte()?) & most;
        if number < most {
            return Ok(number);
        }
        for shift in (0..28).step_by(7) {
            let byte = self.byte()?;
            number += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Unread::TooLong)
    }

    /// A text, of which only the length is read.
    fn text(&mut self) -> Result<usize, Unread> {
        let is_coded = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.number(7)?;
        if length > LIST_LIMIT as usize {
            return Err(Unread::TooLong);
        }
        let (text, rest) = self.0.split_at_checked(length).ok_or(Unread::Incomplete)?;
        self.0 = rest;
        Ok(if is_coded { characters(text) } else { length })
    }
}

/// How many characters have codes of each length, in bits. The code is canonical, so this is enough to know where each of them ends.
const CODES: [u8; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19,
    29, 0, 4,
];

/// The number of characters in a text in Huffman code.
fn characters(text: &[u8]) -> usize {
    let (mut found, mut code, mut first, mut length) = (0, 0_u32, 0_u32, 0);
    for byte in text {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            first = (first + u32::from(CODES[length])) << 1;
            length += 1;
            if length + 1 == CODES.len() || code - first < u32::from(CODES[length]) {
                found += 1;
                (code, first, length) = (0, 0, 0);
            }
        }
    }
    found
}

/// The lengths of the names in the static table: RFC 7541, appendix A.
const STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];

/// The length of the value of an entry of that table.
fn static_value(index: usize) -> usize {
    match index {
        4 => 1,
        2 | 8..=14 => 3,
        3 | 6 => 4,
        7 => 5,
        5 => 11,
        16 => 13,
        _ => 0,
    }
}
