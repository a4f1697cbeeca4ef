//! The reading end of an HTTP/2 connection: follows the frames, and ends floods of them.
//!
//! h2 bounds what frames cost in memory, and how many small `DATA` and `CONTINUATION` frames there may
//! be. But a client may send any number of others, and one that asks for nothing costs as much time as
//! one that belongs to a request. So frames that carry no request have to be paid for, with credits that
//! a connection earns by requests, by pieces of answers (which clients acknowledge), and by time.
//!
//! A header block that goes on over several frames is an unfinished head: it has the same time limit
//! as one of HTTP/1, and counts against the same budget.
//!
//! A connection that is to end should end with `GOAWAY` and `ENHANCE_YOUR_CALM`. hyper offers no way
//! to say so, and writing a frame of our own between h2's would need to follow all that is written.
//! But h2 says just that to a client that sends too many `CONTINUATION` frames; so that is what it
//! gets to read from then on.

use std::{
    future::Future as _,
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
    time::{Instant, Sleep},
};

use super::{
    defence::{Defence, Offence},
    head_budget::{HeadCharge, UNCOUNTED},
    http1::HeadLimits,
};
use crate::socket::Socket;

/// Bytes of the preface, which comes before the first frame.
const PREFACE: u32 = 24;
/// Bytes of a frame's header.
const HEADER: usize = 9;
/// The largest frame that h2 takes unless told otherwise, which it is not.
const MAX_FRAME: usize = 16 << 10;

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
    first: Bytes,
    frames: Frames,
    block: Option<Block>,
    credits: Arc<Credits>,
    refilled: Instant,
    defence: Arc<Defence>,
    remote: SocketAddr,
    limits: HeadLimits,
    /// Why the connection is to end, as soon as a frame has ended.
    over: Option<Offence>,
    /// What h2 has yet to read to end it.
    last_words: Option<Bytes>,
}

/// Where in the frames the connection is.
#[derive(Debug)]
struct Frames {
    /// Of the payload, or the preface, still to come.
    payload: u32,
    header: [u8; HEADER],
    /// How much of a header has come.
    have: usize,
}

/// A header block that is not complete.
struct Block {
    stream: u32,
    bytes: usize,
    charge: Option<HeadCharge>,
    timer: Option<Pin<Box<Sleep>>>,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHeader {
    len: u32,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl FrameHeader {
    const END_HEADERS: u8 = 0x4;

    fn parse([l0, l1, l2, kind, flags, s0, s1, s2, s3]: [u8; HEADER]) -> Self {
        Self {
            len: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
        }
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What it is if there are too many of it; `None` if it carries a request or a part of one.
    fn offence(self) -> Option<Offence> {
        match self.kind {
            0 | 1 => None,
            2 => Some(Offence::Priorities),
            3 => Some(Offence::Resets),
            4 => Some(Offence::Settings),
            6 => Some(Offence::Pings),
            8 => Some(Offence::WindowUpdates),
            9 => Some(Offence::Continuations),
            _ => Some(Offence::Unknown),
        }
    }
}

impl Frames {
    /// Follows `bytes` up to the end of the next frame's header, or all of them. Returns how many
    /// that were, and the header.
    fn next(&mut self, bytes: &[u8]) -> (usize, Option<FrameHeader>) {
        let payload = usize::try_from(self.payload).unwrap_or(usize::MAX);
        let skipped = payload.min(bytes.len());
        self.payload -= u32::try_from(skipped).unwrap_or(self.payload);
        let rest = &bytes[skipped..];
        let taken = rest.len().min(HEADER - self.have);
        self.header[self.have..self.have + taken].copy_from_slice(&rest[..taken]);
        self.have += taken;
        if self.have < HEADER {
            return (skipped + taken, None);
        }
        self.have = 0;
        let header = FrameHeader::parse(self.header);
        self.payload = header.len;
        (skipped + taken, Some(header))
    }

    fn is_between(&self) -> bool {
        self.payload == 0 && self.have == 0
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
            frames: Frames {
                payload: PREFACE,
                header: [0; HEADER],
                have: 0,
            },
            block: None,
            credits,
            refilled: defence.now(),
            defence,
            remote,
            limits,
            over: None,
            last_words: None,
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
        if let Some(words) = &mut self.last_words {
            if words.is_empty() {
                return Poll::Ready(Err(ended()));
            }
            pass_on(words, buf);
            return Poll::Ready(Ok(()));
        }
        if self.over.is_some() && self.frames.is_between() {
            return self.end(buf);
        }
        let before = buf.filled().len();
        if self.first.has_remaining() {
            pass_on(&mut self.first, buf);
        } else if Pin::new(socket).poll_read(cx, buf)?.is_pending() {
            ready!(self.poll_block(cx));
            return self.end(buf);
        }
        let passed = self.follow(&buf.filled()[before..]);
        buf.set_filled(before + passed);
        Poll::Ready(Ok(()))
    }

    /// Follows `bytes`; returns how many of them h2 may have.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.over.is_some() && self.frames.is_between() {
                return at;
            }
            if self.over.is_some() {
                // The rest of the present frame, no more.
                let rest = usize::try_from(self.frames.payload).unwrap_or(usize::MAX);
                if rest > 0 {
                    let skipped = rest.min(bytes.len() - at);
                    self.frames.next(&bytes[at..at + skipped]);
                    at += skipped;
                    continue;
                }
            }
            let (passed, header) = self.frames.next(&bytes[at..]);
            at += passed;
            if let Some(header) = header {
                self.frame(header);
            }
        }
        at
    }

    fn frame(&mut self, header: FrameHeader) {
        match header.kind {
            1 => self.credits.earn(PER_REQUEST),
            3 => drop(self.credits.resets.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        if let Some(offence) = header.offence()
            && !self.credits.spend()
            && !self.refill()
        {
            let detail = "too many HTTP/2 frames that carry no request";
            self.give_up(offence, detail);
        }
        match header.kind {
            1 | 9 if header.has(FrameHeader::END_HEADERS) => self.block = None,
            1 | 9 => self.block_goes_on(header),
            _ => {}
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

    fn block_goes_on(&mut self, header: FrameHeader) {
        let block = self.block.get_or_insert(Block {
            stream: header.stream,
            bytes: 0,
            charge: None,
            timer: None,
        });
        block.bytes += usize::try_from(header.len).unwrap_or(usize::MAX);
        if block.bytes > UNCOUNTED {
            let now = self.defence.now();
            let heads = &self.defence.heads;
            let charge = block.charge.get_or_insert_with(|| heads.charge(now));
            charge.hold(block.bytes, now);
        }
    }

    /// Ready when an unfinished header block has taken too long, or too much memory.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(block) = &mut self.block else {
            return Poll::Pending;
        };
        let limit = self.limits.timeout;
        let timer = block
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if timer.as_mut().poll(cx).is_ready() {
            self.give_up(Offence::TooSlow, "its head took too long");
            return Poll::Ready(());
        }
        let charge = block.charge.as_ref();
        ready!(charge.map_or(Poll::Pending, |charge| charge.poll_cut(cx)));
        let detail = "unfinished heads take too much memory, and its own most of it";
        self.give_up(Offence::Memory, detail);
        Poll::Ready(())
    }

    fn give_up(&mut self, offence: Offence, detail: &str) {
        if self.over.is_none() {
            self.over = Some(offence);
            self.credits.over.store(true, Ordering::Relaxed);
            self.defence.record(offence, self.remote, detail);
        }
    }

    /// Has h2 end the connection; in the middle of a frame it cannot be told why.
    fn end(&mut self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.frames.is_between() {
            return Poll::Ready(Err(ended()));
        }
        let stream = self.block.take().map(|block| block.stream);
        let words = self
            .last_words
            .insert(last_words(stream, self.limits.bytes));
        pass_on(words, buf);
        Poll::Ready(Ok(()))
    }
}

fn pass_on(bytes: &mut Bytes, buf: &mut ReadBuf<'_>) {
    let len = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes.split_to(len));
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the connection was given up")
}

/// A header block of so many frames that h2 ends the connection. It goes on with the block of
/// `stream`, if one is open.
fn last_words(stream: Option<u32>, head_bytes: usize) -> Bytes {
    // h2 allows a quarter more than a head of the largest size needs, and at least five.
    let continuations = head_bytes / MAX_FRAME * 5 / 4 + 8;
    let begin = stream.is_none().then_some(1);
    let kinds = begin
        .into_iter()
        .chain(std::iter::repeat_n(9, continuations));
    let id = stream.unwrap_or(1).to_be_bytes();
    let empty = |kind| [0, 0, 0, kind, 0, id[0], id[1], id[2], id[3]];
    kinds.flat_map(empty).collect()
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
                header: [0; HEADER],
                have: 0,
            };
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                let mut at = 0;
                while at < piece.len() {
                    let (passed, header) = frames.next(&piece[at..]);
                    at += passed;
                    found.extend(header.map(|h| (h.kind, h.len, h.flags, h.stream)));
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
