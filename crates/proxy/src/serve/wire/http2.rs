//! The reader of an HTTP/2 connection: parses frame headers, and closes connections that are flooded with them.
//!
//! h2 limits the memory that frames take, and the number of small `DATA` and `CONTINUATION` frames. But a client may
//! send any number of other frames, and each costs as much time as one that belongs to a request. So frames
//! without a request are paid for with credits (`frame_credits`).
//!
//! A header block that continues over several frames is an unfinished head: it has the same time limit as one of
//! HTTP/1, and counts against the same budget. h2 gets it when it is complete (`header_block`), so that a block
//! which is dropped was never in h2's memory.
//!
//! A flooded connection should end with `GOAWAY` and `ENHANCE_YOUR_CALM`. hyper has no interface for that, and a
//! frame of the gateway's own between those of h2 would require parsing everything that is written. But h2 sends
//! exactly that to a client with too many `CONTINUATION` frames, so the reader passes such frames to h2.

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
    frame_credits::{FrameCredits, INITIAL, PER_REQUEST, PER_SECOND},
    head_limits::HeadLimits,
    header_block::HeaderBlock,
    http2_frames::{FrameHeader, FrameParser, HEADER, endless_block, interrupted_block},
};
use fairgate_base::socket::Socket;

/// Logged when the budget of unfinished heads drops a header block.
const OUT_OF_MEMORY: &str =
    "unfinished heads take too much memory, and this client's take the most";

/// The smallest buffer that is read into. It has room for a frame's header, so that every read makes progress.
const MIN_BUFFER: usize = 64;

/// The reader of an HTTP/2 connection.
pub(in crate::serve) struct Http2Reader {
    /// Bytes that were read and not parsed yet.
    first: Bytes,
    /// Bytes that were parsed and not passed to h2 yet.
    out: Bytes,
    frames: FrameParser,
    /// A header block that h2 has not seen.
    block: Option<HeaderBlock>,
    credits: Arc<FrameCredits>,
    refilled: Instant,
    defence: Arc<Defence>,
    remote: SocketAddr,
    limits: HeadLimits,
    /// Why the connection is closed once the current frame has ended.
    closing: Option<Offence>,
    /// h2 was given the frames that make it close the connection.
    closing_frames_sent: bool,
}

impl Http2Reader {
    /// A reader of a connection from which `first` was already read.
    pub(in crate::serve) fn new(
        first: Bytes,
        credits: Arc<FrameCredits>,
        defence: Arc<Defence>,
        remote: SocketAddr,
        limits: HeadLimits,
    ) -> Self {
        Self {
            first,
            out: Bytes::new(),
            frames: FrameParser::before_preface(),
            block: None,
            credits,
            refilled: defence.now(),
            defence,
            remote,
            limits,
            closing: None,
            closing_frames_sent: false,
        }
    }

    /// Whether this reader is closing the connection.
    pub(in crate::serve) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Reads bytes that may be passed to h2.
    pub(in crate::serve) fn poll_read(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.out.is_empty() {
            if buf.remaining() >= MIN_BUFFER {
                return self.poll_more(socket, cx, buf);
            }
            let mut room = [0; MIN_BUFFER];
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
            // Only between two frames: within one, h2 would take what closes the connection for a part of its
            // payload.
            if self.closing.is_some() && self.frames.is_between_frames() {
                return Poll::Ready(self.send_closing_frames(buf));
            }
            if self.block.as_ref().is_some_and(HeaderBlock::is_released) {
                return Poll::Ready(self.pass_block_on(buf));
            }
            if self.poll_source(socket, cx, buf)?.is_pending() {
                ready!(self.poll_block(cx));
                continue;
            }
            if buf.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            self.frames.forget_partial_header();
            let passed = self.parse(&buf.filled()[before..]);
            buf.set_filled(before + passed);
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads the next bytes into `buf`, after the part of a header that was read before. Leaves `buf` as it was if the
    /// socket is pending or at its end.
    fn poll_source(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        self.frames.copy_partial_header(buf);
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

    /// Parses `bytes`. Returns how many of them may be passed to h2; the others are kept, or dropped with the
    /// connection.
    fn parse(&mut self, bytes: &[u8]) -> usize {
        if self.block.is_some() {
            self.parse_block(bytes);
            return 0;
        }
        let mut at = 0;
        loop {
            at += self.frames.skip_payload(&bytes[at..]);
            if self.closing.is_some() || at == bytes.len() {
                return at;
            }
            let Some(header) = self.frames.peek_header(&bytes[at..]) else {
                return at;
            };
            if header.begins_continued_block() {
                self.block = Some(HeaderBlock::new(header.stream));
                self.parse_block(&bytes[at..]);
                return at;
            }
            at += HEADER;
            self.begin_frame(header);
        }
    }

    /// Parses `bytes` as far as they belong to the header block, and keeps them in it.
    fn parse_block(&mut self, bytes: &[u8]) {
        let mut at = 0;
        loop {
            at += self.frames.skip_payload(&bytes[at..]);
            let Some(block) = &mut self.block else {
                return;
            };
            if block.has_last_frame() && self.frames.is_between_frames() {
                block.release();
                break;
            }
            if at == bytes.len() {
                break;
            }
            let Some(header) = self.frames.peek_header(&bytes[at..]) else {
                self.keep(&bytes[..at]);
                return;
            };
            if let Err(offence) = block.add_frame(header, self.limits.bytes) {
                let detail = match offence {
                    Offence::Protocol => "a header block is interrupted by another frame",
                    _ => "its head comes in too many frames",
                };
                self.close(offence, detail);
                return;
            }
            at += HEADER;
            self.begin_frame(header);
        }
        self.keep(&bytes[..at]);
        self.put_back(&bytes[at..]);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let now = self.defence.now();
        if let Some(block) = &mut self.block
            && !block.keep(bytes, &self.defence.heads, self.remote, now)
        {
            self.close(Offence::Memory, OUT_OF_MEMORY);
        }
    }

    /// Puts `bytes` before all that is not parsed yet.
    fn put_back(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.first = [bytes, &self.first].concat().into();
        }
    }

    /// A frame begins.
    fn begin_frame(&mut self, header: FrameHeader) {
        self.frames.begin_payload(header);
        match header.kind {
            FrameHeader::HEADERS => self.credits.earn(PER_REQUEST),
            FrameHeader::RST_STREAM => self.credits.count_reset(),
            _ => {}
        }
        if let Some(offence) = header.offence()
            && !self.credits.spend()
            // The clock is read only once the credits are used up, so ordinary frames do not pay for it.
            && !self.refill()
        {
            let detail = "too many HTTP/2 frames that carry no request";
            self.close(offence, detail);
        }
    }

    /// Adds the credits for the time since the last refill, and takes one; false if there are none.
    fn refill(&mut self) -> bool {
        let now = self.defence.now();
        let since = now.saturating_duration_since(self.refilled).as_millis();
        // Bounded so that the product fits into 32 bits; more is not kept anyway.
        let earned = u32::try_from(since.min(60_000)).unwrap_or(0) * PER_SECOND / 1000;
        self.credits.earn(earned.min(INITIAL));
        self.refilled = now;
        self.credits.spend()
    }

    /// Ready when an unfinished header block was dropped because of its time or its memory.
    fn poll_block(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(block) = &mut self.block else {
            return Poll::Pending;
        };
        if block.poll_timeout(self.limits.timeout, cx).is_ready() {
            self.close(Offence::TooSlow, "its head took too long");
            return Poll::Ready(());
        }
        ready!(block.poll_dropped(cx));
        self.close(Offence::Memory, OUT_OF_MEMORY);
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

    /// Starts to close the connection. A header block that h2 has not seen is dropped at once.
    fn close(&mut self, offence: Offence, detail: &str) {
        if self.block.take().is_some() {
            // h2 has seen nothing of the block, so for h2 this is between two frames.
            self.frames = FrameParser::default();
        }
        if self.closing.is_none() {
            self.closing = Some(offence);
            self.credits.close();
            self.defence.record(offence, self.remote, detail);
        }
    }

    /// Passes frames to h2 that make it close the connection.
    fn send_closing_frames(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        if self.closing_frames_sent {
            let detail = "the connection was closed because of a violation of HTTP/2 or of a limit";
            return Err(io::Error::new(io::ErrorKind::InvalidData, detail));
        }
        self.closing_frames_sent = true;
        let mut frames = match self.closing {
            Some(Offence::Protocol) => interrupted_block(),
            _ => endless_block(self.limits.bytes),
        };
        pass_on(&mut frames, buf);
        self.out = frames;
        Ok(())
    }
}

fn pass_on(bytes: &mut Bytes, buf: &mut ReadBuf<'_>) {
    let len = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes.split_to(len));
}
