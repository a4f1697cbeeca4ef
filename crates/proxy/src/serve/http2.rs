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
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    time::Instant,
};

use super::{
    defence::{Defence, Offence},
    frame_credits::{AT_FIRST, FrameCredits, PER_REQUEST, PER_SECOND},
    head_limits::HeadLimits,
    header_block::HeaderBlock,
    http2_frames::{FrameFollower, FrameHeader, HEADER, endless_block, interrupted_block},
};
use fairgate_base::socket::Socket;

/// Logged when the budget of unfinished heads cuts a header block.
const TOO_MUCH: &str = "unfinished heads take too much memory, and its own most of it";

/// The least room that is read into, for a frame's header and something behind it.
const LEAST_ROOM: usize = 64;

/// The reading end of an HTTP/2 connection.
pub(super) struct Http2Reader {
    /// Read already, and yet to be followed.
    first: Bytes,
    /// Followed already, and yet to be passed on to h2.
    out: Bytes,
    frames: FrameFollower,
    /// A header block that h2 has not seen.
    block: Option<HeaderBlock>,
    credits: Arc<FrameCredits>,
    refilled: Instant,
    defence: Arc<Defence>,
    remote: SocketAddr,
    limits: HeadLimits,
    /// Why the connection is to end, as soon as a frame has ended.
    over: Option<Offence>,
    /// h2 has, or gets, what makes it end the connection.
    last_words: bool,
}

impl Http2Reader {
    /// A reader of a connection of which `first` was read already.
    pub(super) fn new(
        first: Bytes,
        credits: Arc<FrameCredits>,
        defence: Arc<Defence>,
        remote: SocketAddr,
        limits: HeadLimits,
    ) -> Self {
        Self {
            first,
            out: Bytes::new(),
            frames: FrameFollower::before_preface(),
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
            FrameHeader::RESET => self.credits.count_reset(),
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
            self.frames = FrameFollower::default();
        }
        if self.over.is_none() {
            self.over = Some(offence);
            self.credits.give_up();
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
