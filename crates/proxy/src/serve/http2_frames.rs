//! HTTP/2 frames: where one ends and the next begins, and what their headers say.
//!
//! Only headers of frames are read; payloads are skipped.

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::defence::Offence;

/// Bytes of the preface, which comes before the first frame.
const PREFACE: u32 = 24;
/// Bytes of a frame's header.
pub(super) const HEADER: usize = 9;
/// The largest frame that h2 accepts with its default settings, which are used.
const MAX_FRAME: usize = 16 << 10;
/// The position of a connection within its frames.
#[derive(Debug, Default)]
pub(super) struct FrameFollower {
    /// How much of the payload, or of the preface, is still to come.
    payload: u32,
    header: [u8; HEADER],
    /// How much of a header has arrived. Parts of headers are not passed on.
    have: usize,
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
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RESET: u8 = 3;
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
    pub(super) fn begins_a_long_block(self) -> bool {
        self.kind == Self::HEADERS && !self.ends_headers() && self.fits()
    }

    /// Whether it continues the header block of `stream`.
    pub(super) fn continues(self, stream: u32) -> bool {
        self.kind == Self::CONTINUATION && self.stream == stream && self.fits()
    }

    /// Whether it is no larger than h2 accepts.
    fn fits(self) -> bool {
        usize::try_from(self.len).is_ok_and(|len| len <= MAX_FRAME)
    }

    /// The offence if there are too many of such frames; `None` if the frame belongs to a request.
    pub(super) fn offence(self) -> Option<Offence> {
        match self.kind {
            0 | Self::HEADERS => None,
            2 => Some(Offence::Priorities),
            Self::RESET => Some(Offence::Resets),
            4 => Some(Offence::Settings),
            6 => Some(Offence::Pings),
            8 => Some(Offence::WindowUpdates),
            Self::CONTINUATION => Some(Offence::Continuations),
            _ => Some(Offence::Unknown),
        }
    }
}

impl FrameFollower {
    /// At the beginning of a connection, before its preface.
    pub(super) fn before_preface() -> Self {
        Self {
            payload: PREFACE,
            ..Self::default()
        }
    }

    /// Follows the payload as far as it is in `bytes`. Returns how many of them that are.
    pub(super) fn skip_payload(&mut self, bytes: &[u8]) -> usize {
        let payload = usize::try_from(self.payload).unwrap_or(usize::MAX);
        let skipped = payload.min(bytes.len());
        self.payload -= u32::try_from(skipped).unwrap_or(self.payload);
        skipped
    }

    /// The header at the beginning of `bytes`, which is not followed yet. A part of a header is kept, and put before
    /// what follows.
    pub(super) fn peek(&mut self, bytes: &[u8]) -> Option<FrameHeader> {
        if let Some(header) = bytes.first_chunk() {
            return Some(FrameHeader::parse(*header));
        }
        self.have = bytes.len();
        self.header[..self.have].copy_from_slice(bytes);
        None
    }

    /// Moves on to the payload of `header`.
    pub(super) fn enter(&mut self, header: FrameHeader) {
        self.payload = header.len;
    }

    /// Puts the part of a header that was read before into `buf`.
    pub(super) fn put_part(&self, buf: &mut ReadBuf<'_>) {
        buf.put_slice(&self.header[..self.have]);
    }

    /// The part of a header was read again with what follows it.
    pub(super) fn forget_part(&mut self) {
        self.have = 0;
    }

    pub(super) fn is_between(&self) -> bool {
        self.payload == 0
    }
}

/// More `CONTINUATION` frames than h2 accepts, which is a quarter more than a head of the largest size needs, and at
/// least five.
pub(super) fn too_many_continuations(head_bytes: usize) -> usize {
    head_bytes / MAX_FRAME * 5 / 4 + 8
}

/// A header block of so many frames that h2 closes the connection with `ENHANCE_YOUR_CALM`.
pub(super) fn endless_block(head_bytes: usize) -> Bytes {
    let continuations = too_many_continuations(head_bytes);
    let more = std::iter::repeat_n(FrameHeader::CONTINUATION, continuations);
    empty_frames(std::iter::once(FrameHeader::HEADERS).chain(more))
}

/// A header block inside another, for which h2 closes the connection with `PROTOCOL_ERROR`.
pub(super) fn interrupted_block() -> Bytes {
    empty_frames([FrameHeader::HEADERS; 2])
}

/// Empty frames of these types.
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
            let mut frames = FrameFollower::before_preface();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                let all = [&frames.header[..frames.have], piece].concat();
                frames.forget_part();
                let mut at = 0;
                loop {
                    at += frames.skip_payload(&all[at..]);
                    let Some(h) = frames.peek(&all[at..]) else {
                        break;
                    };
                    frames.enter(h);
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
            assert!(frames.is_between());
        }
    }

    #[test]
    fn what_carries_a_request_costs_nothing() {
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
