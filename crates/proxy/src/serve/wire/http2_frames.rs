//! Parses the headers of HTTP/2 frames (RFC 9113, section 4.1), and skips their payloads.

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::defence::Offence;

/// Length of the connection preface in bytes, which comes before the first frame.
const PREFACE: u32 = 24;
/// Length of a frame header in bytes.
pub(super) const HEADER: usize = 9;
/// The largest payload that h2 accepts: the default of `SETTINGS_MAX_FRAME_SIZE` (RFC 9113, section 6.5.2), which the
/// gateway does not change.
const MAX_FRAME: usize = 16 << 10;

/// The position of a connection within its frames.
#[derive(Debug, Default)]
pub(super) struct FrameParser {
    /// How much of the payload, or of the preface, is still to come.
    payload: u32,
    header: [u8; HEADER],
    /// How many bytes of `header` have arrived. A partial header is never passed on.
    header_len: usize,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    len: u32,
    pub(super) kind: u8,
    flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    // RFC 9113, section 6.
    const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    const PRIORITY: u8 = 2;
    pub(super) const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 0x4;

    fn parse([l0, l1, l2, kind, flags, s0, s1, s2, s3]: [u8; HEADER]) -> Self {
        Self {
            len: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    /// Whether it is the last of its header block.
    pub(super) fn ends_headers(self) -> bool {
        self.flags & Self::END_HEADERS != 0
    }

    /// Whether it begins a header block that continues in other frames.
    pub(super) fn begins_continued_block(self) -> bool {
        self.kind == Self::HEADERS && !self.ends_headers() && self.fits()
    }

    /// Whether it validly continues the header block of `stream`.
    pub(super) fn continues(self, stream: u32) -> bool {
        self.kind == Self::CONTINUATION && self.stream == stream && self.fits()
    }

    /// Whether it is no larger than h2 accepts.
    fn fits(self) -> bool {
        usize::try_from(self.len).is_ok_and(|len| len <= MAX_FRAME)
    }

    /// The offence to report if there are too many frames of this type; `None` if the frame belongs to a request.
    pub(super) fn offence(self) -> Option<Offence> {
        match self.kind {
            Self::DATA | Self::HEADERS => None,
            Self::PRIORITY => Some(Offence::Priorities),
            Self::RST_STREAM => Some(Offence::Resets),
            Self::SETTINGS => Some(Offence::Settings),
            Self::PING => Some(Offence::Pings),
            Self::WINDOW_UPDATE => Some(Offence::WindowUpdates),
            Self::CONTINUATION => Some(Offence::Continuations),
            // Also PUSH_PROMISE, which clients may not send, and GOAWAY, which they need to send once.
            _ => Some(Offence::Unknown),
        }
    }
}

impl FrameParser {
    /// At the beginning of a connection, before its preface.
    pub(super) fn before_preface() -> Self {
        Self {
            payload: PREFACE,
            ..Self::default()
        }
    }

    /// Skips the payload at the beginning of `bytes`. Returns how many bytes of it they contain.
    pub(super) fn skip_payload(&mut self, bytes: &[u8]) -> usize {
        let payload = usize::try_from(self.payload).unwrap_or(usize::MAX);
        let skipped = payload.min(bytes.len());
        self.payload -= u32::try_from(skipped).unwrap_or(self.payload);
        skipped
    }

    /// Parses the frame header at the beginning of `bytes` without consuming it. A partial header is kept for
    /// [`copy_partial_header`](Self::copy_partial_header).
    pub(super) fn peek_header(&mut self, bytes: &[u8]) -> Option<FrameHeader> {
        if let Some(header) = bytes.first_chunk() {
            return Some(FrameHeader::parse(*header));
        }
        self.header_len = bytes.len();
        self.header[..self.header_len].copy_from_slice(bytes);
        None
    }

    /// Consumes `header`: its payload is next.
    pub(super) fn begin_payload(&mut self, header: FrameHeader) {
        self.payload = header.len;
    }

    /// Copies the partial header to `buf`, so that the rest of it is read behind it.
    pub(super) fn copy_partial_header(&self, buf: &mut ReadBuf<'_>) {
        buf.put_slice(&self.header[..self.header_len]);
    }

    /// Forgets the partial header, after it was copied and more was read.
    pub(super) fn forget_partial_header(&mut self) {
        self.header_len = 0;
    }

    /// Whether the next byte is the first of a frame header.
    pub(super) fn is_between_frames(&self) -> bool {
        self.payload == 0
    }
}

/// The maximum number of `CONTINUATION` frames in a header block. It is above the limit of h2 itself, which is a
/// quarter more than a head of the maximum size needs, and at least five.
pub(super) fn max_continuations(head_bytes: usize) -> usize {
    head_bytes / MAX_FRAME * 5 / 4 + 8
}

/// A header block of so many frames that h2 closes the connection with `ENHANCE_YOUR_CALM`.
pub(super) fn endless_block(head_bytes: usize) -> Bytes {
    let continuations = max_continuations(head_bytes);
    let more = std::iter::repeat_n(FrameHeader::CONTINUATION, continuations);
    empty_frames(std::iter::once(FrameHeader::HEADERS).chain(more))
}

/// A header block inside another, for which h2 closes the connection with `PROTOCOL_ERROR`.
pub(super) fn interrupted_block() -> Bytes {
    empty_frames([FrameHeader::HEADERS; 2])
}

/// Empty frames of these types on stream 1, without flags.
fn empty_frames(kinds: impl IntoIterator<Item = u8>) -> Bytes {
    let frame = |kind| [0, 0, 0, kind, 0, 0, 0, 0, 1];
    kinds.into_iter().flat_map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
        let mut bytes = u32::try_from(len).unwrap().to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.resize(HEADER + len, 0);
        bytes
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let mut bytes = vec![0; 24];
        bytes.extend(frame(0, 4, 0, 0));
        bytes.extend(frame(300, 1, 4, 1));
        bytes.extend(frame(8, 6, 0, 0));
        bytes.extend(frame(20_000, 0, 1, 1));
        for size in [1, 2, 7, 9, 10, 100, 100_000] {
            let mut frames = FrameParser::before_preface();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                let all = [&frames.header[..frames.header_len], piece].concat();
                frames.forget_partial_header();
                let mut at = 0;
                loop {
                    at += frames.skip_payload(&all[at..]);
                    let Some(h) = frames.peek_header(&all[at..]) else {
                        break;
                    };
                    frames.begin_payload(h);
                    found.push((h.kind, h.len, h.flags, h.stream));
                    at += HEADER;
                }
            }
            let expected = [
                (4, 0, 0, 0),
                (1, 300, 4, 1),
                (6, 8, 0, 0),
                (0, 20_000, 1, 1),
            ];
            assert_eq!(found, expected, "in pieces of {size}");
            assert!(frames.is_between_frames());
        }
    }

    #[test]
    fn frames_of_requests_are_no_offence() {
        let offence = |len, kind, flags| {
            FrameHeader::parse(frame(len, kind, flags, 1)[..9].try_into().unwrap()).offence()
        };
        assert_eq!(offence(100, 0, 0), None);
        assert_eq!(offence(0, 0, 0), None, "h2 counts those");
        assert_eq!(offence(20, 1, 0), None);
        assert_eq!(offence(4, 8, 0), Some(Offence::WindowUpdates));
        assert_eq!(offence(1, 0x20, 0), Some(Offence::Unknown));
    }
}
