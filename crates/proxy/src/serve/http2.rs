//! The reading end of an HTTP/2 connection: follows the frames, and ends floods of them.
//!
//! h2 bounds what frames cost in memory, and how many small `DATA` and `CONTINUATION` frames there may
//! be. But a client may send any number of others, and one that asks for nothing costs as much time as
//! one that belongs to a request. So frames that carry no request have to be paid for, with credits that
//! a connection earns by requests, by pieces of answers (which clients acknowledge), and by time.
//!
//! A header block that goes on over several frames is an unfinished head: it has the same time limit
//! as one of HTTP/1, and counts against the same budget. h2 gets it when it is whole
//! (`header_block`), so what is given up was never h2's.
//!
//! A connection that is to end should end with `GOAWAY` and `ENHANCE_YOUR_CALM`. hyper offers no way
//! to say so, and writing a frame of our own between h2's would need to follow all that is written.
//! But h2 says just that to a client that sends too many `CONTINUATION` frames; so that is what it
//! gets to read from then on.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    time::Instant,
};

use super::{
    defence::{Defence, Offence},
    header_block::HeaderBlock,
    http1::HeadLimits,
};
use fairgate_base::socket::Socket;

/// Logged when the budget of unfinished heads cuts a header block.
const TOO_MUCH: &str = "unfinished heads take too much memory, and its own most of it";

/// Bytes of the preface, which comes before the first frame.
const PREFACE: u32 = 24;
/// Bytes of a frame's header.
const HEADER: usize = 9;
/// The largest frame that h2 takes unless told otherwise, which it is not.
const MAX_FRAME: usize = 16 << 10;
/// The least room that is read into, for a frame's header and something behind it.
const LEAST_ROOM: usize = 64;

/// Frames without a request that a connection may send at first, or after some quiet time.
const AT_FIRST: u32 = 4096;
/// What is added to them with each second,
const PER_SECOND: u32 = 512;
/// with each request,
const PER_REQUEST: u32 = 32;
/// with each piece of an answer, and with each 256 bytes of it.
const PER_PIECE: u32 = 8;
const PER_BYTES: usize = 256;
/// The most that can be saved up.
const MOST: u32 = 1 << 16;

/// How many frames without a request a connection may still send. One thread writes it.
#[derive(Debug)]
pub(super) struct Credits {
    left: AtomicU32,
    over: AtomicBool,
    /// Streams that the client has reset.
    resets: AtomicU32,
}

impl Default for Credits {
    fn default() -> Self {
        Self {
            left: AtomicU32::new(AT_FIRST),
            over: AtomicBool::new(false),
            resets: AtomicU32::new(0),
        }
    }
}

impl Credits {
    /// A piece of an answer of so many bytes is sent.
    pub(super) fn piece(&self, bytes: usize) {
        let for_bytes = u32::try_from(bytes / PER_BYTES).unwrap_or(MOST);
        self.earn(PER_PIECE.saturating_add(for_bytes));
    }

    /// Whether the connection was given up.
    pub(super) fn are_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// How many streams the client has reset.
    pub(super) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    fn earn(&self, credits: u32) {
        let sum = self.left().saturating_add(credits).min(MOST);
        self.left.store(sum, Ordering::Relaxed);
    }

    /// Takes one; false if there is none.
    fn spend(&self) -> bool {
        let rest = self.left().checked_sub(1);
        self.left.store(rest.unwrap_or(0), Ordering::Relaxed);
        rest.is_some()
    }

    fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }
}

/// The reading end of an HTTP/2 connection.
pub(super) struct Http2Reader {
    /// Read already, and yet to be followed.
    first: Bytes,
    /// Followed already, and yet to be passed on to h2.
    out: Bytes,
    frames: Frames,
    /// A header block that h2 has not seen.
    block: Option<HeaderBlock>,
    credits: Arc<Credits>,
    refilled: Instant,
    defence: Arc<Defence>,
    remote: SocketAddr,
    limits: HeadLimits,
    /// Why the connection is to end, as soon as a frame has ended.
    over: Option<Offence>,
    /// h2 has, or gets, what makes it end the connection.
    last_words: bool,
}

/// Where in the frames the connection is.
#[derive(Debug, Default)]
struct Frames {
    /// Of the payload, or the preface, still to come.
    payload: u32,
    header: [u8; HEADER],
    /// How much of a header has come. Nobody is passed a part of one.
    have: usize,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    len: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameHeader {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
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

    /// Whether it begins a header block that goes on in other frames.
    fn begins_a_long_block(self) -> bool {
        self.kind == Self::HEADERS && !self.ends_headers() && self.fits()
    }

    /// Whether it goes on with the header block of `stream`.
    pub(super) fn continues(self, stream: u32) -> bool {
        self.kind == Self::CONTINUATION && self.stream == stream && self.fits()
    }

    /// Whether it is no larger than h2 takes.
    fn fits(self) -> bool {
        usize::try_from(self.len).is_ok_and(|len| len <= MAX_FRAME)
    }

    /// What it is if there are too many of it; `None` if it carries a request or a part of one.
    fn offence(self) -> Option<Offence> {
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

impl Frames {
    /// Follows the payload as far as it is in `bytes`. Returns how many of them that are.
    fn skip_payload(&mut self, bytes: &[u8]) -> usize {
        let payload = usize::try_from(self.payload).unwrap_or(usize::MAX);
        let skipped = payload.min(bytes.len());
        self.payload -= u32::try_from(skipped).unwrap_or(self.payload);
        skipped
    }

    /// The header that `bytes` begin with, and does not follow it yet. A part of one is kept, to come
    /// again before what follows.
    fn peek(&mut self, bytes: &[u8]) -> Option<FrameHeader> {
        if let Some(header) = bytes.first_chunk() {
            return Some(FrameHeader::parse(*header));
        }
        self.have = bytes.len();
        self.header[..self.have].copy_from_slice(bytes);
        None
    }

    /// Goes on to the payload of `header`.
    fn enter(&mut self, header: FrameHeader) {
        self.payload = header.len;
    }

    /// Puts a part of a header that came before into `buf`.
    fn put_part(&self, buf: &mut ReadBuf<'_>) {
        buf.put_slice(&self.header[..self.have]);
    }

    /// The part of a header was put before what follows it.
    fn forget_part(&mut self) {
        self.have = 0;
    }

    fn is_between(&self) -> bool {
        self.payload == 0
    }
}

impl Http2Reader {
    /// A reader of a connection of which `first` was read already.
    pub(super) fn new(
        first: Bytes,
        credits: Arc<Credits>,
        defence: Arc<Defence>,
        remote: SocketAddr,
        limits: HeadLimits,
    ) -> Self {
        Self {
            first,
            out: Bytes::new(),
            frames: Frames {
                payload: PREFACE,
                ..Frames::default()
            },
            block: None,
            credits,
            refilled: defence.now(),
            defence,
            remote,
            limits,
            over: None,
            last_words: false,
        }
    }

    /// Whether the connection is ended from here.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Reads what h2 may see.
    pub(super) fn poll_read(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.out.is_empty() {
            if buf.remaining() >= LEAST_ROOM {
                return self.poll_more(socket, cx, buf);
            }
            let mut room = [0; LEAST_ROOM];
            let mut more = ReadBuf::new(&mut room);
            ready!(self.poll_more(socket, cx, &mut more))?;
            self.out = Bytes::copy_from_slice(more.filled());
        }
        pass_on(&mut self.out, buf);
        Poll::Ready(Ok(()))
    }

    fn poll_more(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            if self.over.is_some() && self.frames.is_between() {
                return Poll::Ready(self.end(buf));
            }
            if self.block.as_ref().is_some_and(HeaderBlock::is_cleared) {
                return Poll::Ready(self.pass_block_on(buf));
            }
            if self.poll_source(socket, cx, buf)?.is_pending() {
                ready!(self.poll_block(cx));
                continue;
            }
            if buf.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            self.frames.forget_part();
            let passed = self.follow(&buf.filled()[before..]);
            buf.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Puts into `buf` what comes next, and before it the part of a header that came last. Nothing if
    /// that is pending or the end.
    fn poll_source(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        self.frames.put_part(buf);
        let with_part = buf.filled().len();
        let read = if self.first.has_remaining() {
            pass_on(&mut self.first, buf);
            Poll::Ready(Ok(()))
        } else {
            Pin::new(socket).poll_read(cx, buf)
        };
        if buf.filled().len() == with_part {
            buf.set_filled(before);
        }
        read
    }

    /// Follows `bytes`. Returns how many of them h2 may have; the others are kept, or thrown away
    /// with the connection.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        if self.block.is_some() {
            self.hold(bytes);
            return 0;
        }
        let mut at = 0;
        loop {
            at += self.frames.skip_payload(&bytes[at..]);
            if self.over.is_some() || at == bytes.len() {
                return at;
            }
            let Some(header) = self.frames.peek(&bytes[at..]) else {
                return at;
            };
            if header.begins_a_long_block() {
                self.block = Some(HeaderBlock::new(header.stream));
                self.hold(&bytes[at..]);
                return at;
            }
            at += HEADER;
            self.enter(header);
        }
    }

    /// Follows `bytes` as far as they belong to the header block, and keeps them there.
    fn hold(&mut self, bytes: &[u8]) {
        let mut at = 0;
        loop {
            at += self.frames.skip_payload(&bytes[at..]);
            let Some(block) = &mut self.block else {
                return;
            };
            if block.has_last_frame() && self.frames.is_between() {
                block.clear();
                break;
            }
            if at == bytes.len() {
                break;
            }
            let Some(header) = self.frames.peek(&bytes[at..]) else {
                self.keep(&bytes[..at]);
                return;
            };
            if let Err(offence) = block.enter(header, self.limits.bytes) {
                let detail = match offence {
                    Offence::Protocol => "a header block is interrupted by another frame",
                    _ => "its head comes in too many frames",
                };
                self.give_up(offence, detail);
                return;
            }
            at += HEADER;
            self.enter(header);
        }
        self.keep(&bytes[..at]);
        self.put_back(&bytes[at..]);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let now = self.defence.now();
        if let Some(block) = &mut self.block
            && !block.keep(bytes, &self.defence.heads, now)
        {
            self.give_up(Offence::Memory, TOO_MUCH);
        }
    }

    /// `bytes` come before all that is still to be followed.
    fn put_back(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.first = [bytes, &self.first].concat().into();
        }
    }

    /// A frame begins.
    fn enter(&mut self, header: FrameHeader) {
        self.frames.enter(header);
        match header.kind {
            FrameHeader::HEADERS => self.credits.earn(PER_REQUEST),
            FrameHeader::RESET => drop(self.credits.resets.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        if let Some(offence) = header.offence()
            && !self.credits.spend()
            && !self.refill()
        {
            let detail = "too many HTTP/2 frames that carry no request";
            self.give_up(offence, detail);
        }
    }

    /// Adds what the time since the last time is worth, and takes one; false if it is worth nothing.
    fn refill(&mut self) -> bool {
        let now = self.defence.now();
        let since = now.saturating_duration_since(self.refilled).as_millis();
        let earned = u32::try_from(since.min(60_000)).unwrap_or(0) * PER_SECOND / 1000;
        self.credits.earn(earned.min(AT_FIRST));
        self.refilled = now;
        self.credits.spend()
    }

    /// Ready when an unfinished header block was given up, for too long a time, or too much memory.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(block) = &mut self.block else {
            return Poll::Pending;
        };
        if block.poll_late(self.limits.timeout, cx).is_ready() {
            self.give_up(Offence::TooSlow, "its head took too long");
            return Poll::Ready(());
        }
        ready!(block.poll_cut(cx));
        self.give_up(Offence::Memory, TOO_MUCH);
        Poll::Ready(())
    }

    fn pass_block_on(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let Some(block) = &mut self.block else {
            return Ok(());
        };
        let is_all = block.pass_on(buf)?;
        if is_all {
            self.block = None;
        }
        Ok(())
    }

    /// The connection is to end. A header block that h2 has not seen goes at once.
    fn give_up(&mut self, offence: Offence, detail: &str) {
        if self.block.take().is_some() {
            self.frames = Frames::default();
        }
        if self.over.is_none() {
            self.over = Some(offence);
            self.credits.over.store(true, Ordering::Relaxed);
            self.defence.record(offence, self.remote, detail);
        }
    }

    /// Has h2 end the connection.
    fn end(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.last_words {
            let detail = "the connection was given up";
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        self.last_words = true;
        let mut words = match self.over {
            Some(Offence::Protocol) => interrupted_block(),
            _ => endless_block(self.limits.bytes),
        };
        pass_on(&mut words, buf);
        self.out = words;
        Ok(())
    }
}

fn pass_on(bytes: &mut Bytes, buf: &mut ReadBuf<'_>) {
    let len = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes.split_to(len));
}

/// How many `CONTINUATION` frames are more than h2 takes: a quarter more than a head of the largest
/// size needs, and at least five.
pub(super) fn too_many_continuations(head_bytes: usize) -> usize {
    head_bytes / MAX_FRAME * 5 / 4 + 8
}

/// A header block of so many frames that h2 ends the connection with `ENHANCE_YOUR_CALM`.
fn endless_block(head_bytes: usize) -> Bytes {
    let continuations = too_many_continuations(head_bytes);
    let more = std::iter::repeat_n(FrameHeader::CONTINUATION, continuations);
    empty_frames(std::iter::once(FrameHeader::HEADERS).chain(more))
}

/// A header block inside another: h2 ends the connection with `PROTOCOL_ERROR`.
fn interrupted_block() -> Bytes {
    empty_frames([FrameHeader::HEADERS; 2])
}

/// Frames of these types, with nothing in them.
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
            let mut frames = Frames {
                payload: PREFACE,
                ..Frames::default()
            };
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

    #[test]
    fn credits_are_bounded_on_both_sides() {
        let credits = Credits::default();
        credits.piece(usize::MAX);
        assert_eq!(credits.left(), MOST);
        for _ in 0..MOST {
            assert!(credits.spend());
        }
        assert!(!credits.spend());
        credits.piece(1024);
        assert_eq!(credits.left(), PER_PIECE + 4);
    }
}
