//! The reader of an HTTP/1 connection: passes its bytes to hyper one message at a time.
//!
//! hyper reads as much as there is, parses what it finds, and buffers the rest. Then no other code can find out where a
//! head began: whether two requests in one packet were both well-formed, or where a body with an ambiguous framing
//! ended. So the bytes are scanned here first. hyper gets a complete head, its body, and nothing of the next
//! request until this one is answered.
//!
//! A head that arrives in one read, as nearly all do, is scanned in hyper's own buffer and not copied. Any other is
//! kept until it is complete; all but its beginning counts against the process's budget (`head_budget`). A head
//! that is too large, or is dropped because all heads take too much memory, is replaced by a small one, which the
//! service refuses: hyper offers no other way to send a reply.

use std::{
    future::Future as _,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead as _, AsyncReadExt as _, ReadBuf},
    time::Sleep,
};

use super::{
    chunked::ChunkScanner,
    defence::{Defence, Offence},
    head_budget::{BLOCK_BYTES, FREE_BYTES_PER_CONNECTION, HeadCharge},
    head_limits::HeadLimits,
    head_scan::{HeadFacts, HeadScanner},
    held_bytes::HeldBytes,
    message_state::{HeadCheck, MessageState, Stage},
};
use fairgate_base::socket::Socket;

/// The head that hyper gets in place of one that was dropped or too large.
const REPLACEMENT_HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: none\r\n\r\n";

/// How many header lines hyper parses unless it is told another number.
const USUAL_LINES: usize = 100;

/// The most bytes of a body that are read at a time: at first, and once it is a long one.
const READ_AT_ONCE: usize = 16 << 10;
const READ_AT_ONCE_OF_LONG: usize = 64 << 10;
/// From so many bytes on a body is a long one.
const LONG_BODY: u64 = 256 << 10;

/// The reader of an HTTP/1 connection.
pub(in crate::serve) struct Http1Reader {
    messages: Arc<MessageState>,
    defence: Arc<Defence>,
    remote: SocketAddr,
    limits: HeadLimits,
    scanner: HeadScanner,
    held: HeldBytes,
    /// How many of the held bytes were scanned, and how many may be passed to hyper.
    scanned: usize,
    released: usize,
    /// What follows the held bytes in a large head.
    large: Option<Large>,
    timer: Option<Pin<Box<Sleep>>>,
    /// How many bytes of the current body were read.
    body_bytes: u64,
}

/// All but the beginning of a large head.
struct Large {
    charge: HeadCharge,
    len: usize,
    passed: usize,
    /// What arrived after the head.
    after: HeldBytes,
}

impl Http1Reader {
    /// A reader of a connection from which `first` was already read.
    pub(in crate::serve) fn new(
        messages: Arc<MessageState>,
        defence: Arc<Defence>,
        remote: SocketAddr,
        limits: HeadLimits,
        first: &[u8],
    ) -> Self {
        let mut held = HeldBytes::default();
        held.push(first);
        Self {
            messages,
            defence,
            remote,
            limits,
            scanner: HeadScanner::default(),
            held,
            scanned: 0,
            released: 0,
            large: None,
            timer: None,
            body_bytes: 0,
        }
    }

    /// Reads what belongs to the current message.
    pub(in crate::serve) fn poll_read(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.released > 0 {
            return self.poll_pass_head_on(buf);
        }
        match self.messages.stage() {
            Stage::Head => self.poll_head(socket, cx, buf),
            Stage::Length(left) => {
                let max = usize::try_from(left).unwrap_or(usize::MAX);
                let read = ready!(self.poll_some(socket, cx, buf, |new| Ok(new.len().min(max))))?;
                self.messages.body_read(match left - read as u64 {
                    0 => Stage::Complete,
                    left => Stage::Length(left),
                });
                Poll::Ready(Ok(()))
            }
            Stage::Chunked(scanner) => self.poll_chunks(scanner, socket, cx, buf),
            Stage::Tunnel => self
                .poll_some(socket, cx, buf, |new| Ok(new.len()))
                .map_ok(|_| ()),
            Stage::Parsing | Stage::Complete => {
                self.messages.wait(cx);
                Poll::Pending
            }
        }
    }

    fn poll_chunks(
        &mut self,
        mut scanner: ChunkScanner,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(self.poll_some(socket, cx, buf, |new| scanner.scan(new)));
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::InvalidData
        {
            let (offence, detail) = (Offence::Malformed, error.to_string());
            self.defence.record(offence, self.remote, &detail);
        }
        read?;
        self.messages.body_read(if scanner.is_at_end() {
            Stage::Complete
        } else {
            Stage::Chunked(scanner)
        });
        Poll::Ready(Ok(()))
    }

    /// Passes on as many bytes as `belongs` returns, from those that are held or else from the socket, and holds the
    /// rest. Returns how many were passed on.
    fn poll_some(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        belongs: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let before = buf.filled().len();
        if self.held.is_empty() {
            let limit = read_at_once(self.body_bytes);
            ready!(poll_read_limited(socket, cx, buf, limit))?;
            self.body_bytes += (buf.filled().len() - before) as u64;
            let taken = belongs(&buf.filled()[before..]);
            // hyper must not see bytes that the scanner has refused.
            let taken = taken.inspect_err(|_| buf.set_filled(before))?;
            self.held.push(&buf.filled()[before + taken..]);
            buf.set_filled(before + taken);
            return Poll::Ready(Ok(taken));
        }
        let taken = match self.held.from(0).next() {
            Some(piece) => belongs(&piece[..piece.len().min(buf.remaining())])?,
            None => 0,
        };
        Poll::Ready(Ok(self.held.pass_on(buf, taken)))
    }

    fn poll_head(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.body_bytes = 0;
        if self.held.is_empty() && self.poll_whole_head(socket, cx, buf)?.is_ready() {
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.scan_held() || self.refuse_too_large() || self.is_dropped(cx) {
                return self.poll_pass_head_on(buf);
            }
            match self.poll_more(socket, cx) {
                Poll::Ready(Ok(0)) => {
                    self.forget();
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(read) => read?,
                Poll::Pending => return self.poll_timer(cx),
            };
            if self.released > 0 {
                return self.poll_pass_head_on(buf);
            }
        }
    }

    /// Reads more of a head if a part of it is held already, and does nothing otherwise. The head may be
    /// complete, or dropped, after that.
    fn poll_more(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.held.is_empty() {
            return Poll::Pending;
        }
        if self.large.is_none() && self.held.len() < FREE_BYTES_PER_CONNECTION {
            return self.held.poll_fill(socket, cx);
        }
        let mut scratch = [0; BLOCK_BYTES];
        let mut read = ReadBuf::new(&mut scratch);
        ready!(Pin::new(socket).poll_read(cx, &mut read))?;
        self.enlarge(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Adds `new` bytes to a large head.
    fn enlarge(&mut self, new: &[u8]) {
        if new.is_empty() {
            return;
        }
        let now = self.defence.now();
        let large = self.large.get_or_insert_with(|| Large {
            charge: self.defence.heads.charge(self.remote, now),
            len: 0,
            passed: 0,
            after: HeldBytes::default(),
        });
        let found = self.scanner.scan(new);
        let end = found.map_or(new.len(), |(end, _)| end);
        if !large.charge.keep(&new[..end], now) {
            self.refuse_dropped();
            return;
        }
        large.len += end;
        if let Some((_, facts)) = found {
            large.after.push(&new[end..]);
            let whole = self.held.len() + large.len;
            self.head_complete(whole, facts);
        }
    }

    /// The head is complete, and has this length.
    fn head_complete(&mut self, len: usize, facts: HeadFacts) {
        if facts.bare_line_feed {
            // hyper might wait for an end that it recognizes; the head is refused in any case.
            self.replace_head(HeadCheck::Scanned(facts));
        } else {
            self.released = len;
            self.messages.head_complete(HeadCheck::Scanned(facts));
            // One of the lines is that of the request.
            if facts.lines > 1 + USUAL_LINES {
                self.messages.need_large_parser();
            }
        }
    }

    /// Reads directly into hyper's buffer. If the head is not complete, or has many lines, holds what was read, and is pending.
    fn poll_whole_head(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(socket).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        if new.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if let Some((end, facts)) = self.scanner.scan(new) {
            // hyper gets nothing of this head before it has a parser with room for all its lines.
            if facts.lines > 1 + USUAL_LINES {
                self.held.push(new);
                buf.set_filled(before);
                return Poll::Pending;
            }
            self.held.push(&new[end..]);
            self.messages.head_complete(HeadCheck::Scanned(facts));
            buf.set_filled(before + end);
            return Poll::Ready(Ok(()));
        }
        if self.scanner.cannot_be_head() {
            // It cannot become a head, and hyper refuses it.
            self.messages
                .head_complete(HeadCheck::Scanned(HeadFacts::default()));
            return Poll::Ready(Ok(()));
        }
        self.held.push(new);
        self.scanned = self.held.len();
        buf.set_filled(before);
        Poll::Pending
    }

    /// Scans the held bytes for the end of the head. Returns whether it was found, or can never be.
    fn scan_held(&mut self) -> bool {
        let mut end = None;
        for piece in self.held.from(self.scanned) {
            end = self.scanner.scan(piece);
            self.scanned += end.map_or(piece.len(), |(end, _)| end);
            if end.is_some() {
                break;
            }
        }
        let Some((_, facts)) = end else {
            return self.release_not_a_head();
        };
        self.head_complete(self.scanned, facts);
        true
    }

    /// Whether the held bytes cannot become a head. They are then passed to hyper, which refuses them.
    fn release_not_a_head(&mut self) -> bool {
        let not_a_head = self.scanner.cannot_be_head();
        if not_a_head {
            self.released = self.held.len();
            self.messages
                .head_complete(HeadCheck::Scanned(HeadFacts::default()));
        }
        not_a_head
    }

    /// Whether the head is larger than is allowed. It is then replaced by one that will be refused.
    fn refuse_too_large(&mut self) -> bool {
        let len = self.held.len() + self.large.as_ref().map_or(0, |large| large.len);
        if len < self.limits.bytes {
            return false;
        }
        self.defence
            .record(Offence::TooLarge, self.remote, "its head is too large");
        self.replace_head(HeadCheck::TooLarge);
        true
    }

    /// Whether the budget dropped the head. It is then replaced by one that will be refused.
    fn is_dropped(&mut self, cx: &mut Context<'_>) -> bool {
        let large = self.large.as_ref();
        let dropped = large.is_some_and(|large| large.charge.poll_dropped(cx).is_ready());
        if dropped {
            self.refuse_dropped();
        }
        dropped
    }

    /// The budget dropped the head: reports that, and has the request refused.
    fn refuse_dropped(&mut self) {
        let detail = "unfinished heads take too much memory, and this client's take the most";
        self.defence.record(Offence::Memory, self.remote, detail);
        self.replace_head(HeadCheck::TooLarge);
    }

    /// Replaces the head by a small one that will be refused.
    fn replace_head(&mut self, head: HeadCheck) {
        self.forget();
        self.held.push(REPLACEMENT_HEAD);
        self.released = self.held.len();
        self.messages.head_complete(head);
    }

    /// Drops the current head and everything that was read after it.
    fn forget(&mut self) {
        self.held.clear();
        self.scanner = HeadScanner::default();
        self.scanned = 0;
        self.large = None;
        self.timer = None;
    }

    /// Pending while the head needs another parser; then this is polled again by that one.
    fn poll_pass_head_on(&mut self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.messages.needs_large_parser() {
            return Poll::Pending;
        }
        Poll::Ready(self.pass_head_on(buf))
    }

    fn pass_head_on(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        self.timer = None;
        self.scanned = 0;
        self.released -= self.held.pass_on(buf, self.released);
        if let Some(large) = &mut self.large
            && self.released > 0
            && buf.remaining() > 0
        {
            let passed = large.charge.copy(large.passed, buf);
            if passed == 0 {
                self.refuse_dropped();
                return Err(io::Error::other(
                    "request head dropped: unfinished heads take too much memory",
                ));
            }
            large.passed += passed;
            self.released -= passed;
        }
        if self.released == 0
            && let Some(large) = self.large.take()
        {
            self.held = large.after;
        }
        Ok(())
    }

    /// Fails if a head that has begun is not complete in time.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            return Poll::Pending;
        }
        self.messages.head_begun();
        let limit = self.limits.timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(timer.as_mut().poll(cx));
        self.forget();
        let detail = "its head took too long";
        self.defence.record(Offence::TooSlow, self.remote, detail);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, detail)))
    }
}

/// The most bytes that are read at once of a body of which `before` bytes were read.
///
/// hyper doubles its buffer with each read that fills it, up to the length of the longest head, and keeps it while the request is
/// queued, where nobody counts it. So it stays small until a body is long: then more of it was read ahead, and is counted, than the
/// buffer takes, or the request has its seat.
fn read_at_once(before: u64) -> usize {
    if before < LONG_BODY {
        READ_AT_ONCE
    } else {
        READ_AT_ONCE_OF_LONG
    }
}

/// Reads at most `limit` bytes.
fn poll_read_limited(
    socket: &mut Socket,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
    limit: usize,
) -> Poll<io::Result<()>> {
    let mut limited = socket.take(limit as u64);
    Pin::new(&mut limited).poll_read(cx, buf)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::{
        io::AsyncWriteExt as _,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[tokio::test]
    async fn little_of_a_body_is_read_at_a_time_however_much_there_is_room_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (mut client, mut socket) = (client.unwrap(), Socket::Plain(accepted.unwrap().0));
        let sent: Vec<u8> = (0..=250_u8).cycle().take(8 * READ_AT_ONCE).collect();
        let sending = client.write_all(&sent);
        let reading = async {
            let mut room = vec![0; sent.len()];
            let mut buf = ReadBuf::new(&mut room);
            while buf.filled().len() < sent.len() {
                let before = buf.filled().len();
                let limit = read_at_once(before as u64);
                let read = poll_fn(|cx| poll_read_limited(&mut socket, cx, &mut buf, limit));
                read.await.unwrap();
                let read = buf.filled().len() - before;
                assert!((1..=READ_AT_ONCE).contains(&read), "{read}");
            }
            assert!(buf.filled() == sent);
        };
        let (written, ()) = tokio::join!(sending, reading);
        written.unwrap();
    }

    #[test]
    fn more_is_read_at_a_time_of_a_long_body() {
        for (before, limit) in [
            (0, READ_AT_ONCE),
            (LONG_BODY - 1, READ_AT_ONCE),
            (LONG_BODY, READ_AT_ONCE_OF_LONG),
            (1 << 30, READ_AT_ONCE_OF_LONG),
        ] {
            assert_eq!(read_at_once(before), limit, "after {before} bytes");
        }
    }
}
