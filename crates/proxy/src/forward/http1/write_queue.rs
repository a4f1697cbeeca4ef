//! Bytes to be sent.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::AsyncWrite;

/// Data up to this length, in bytes, is copied behind the head, so that both leave in one call.
const COPIED: usize = 8 << 10;
/// A connection keeps at most this capacity, in bytes, for the next head.
const KEPT: usize = 4 << 10;
/// The most pieces that one call writes.
const PIECES: usize = 16;

/// What is to be sent, in order: first the pieces, then the tail.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    /// Of the pieces.
    bytes: usize,
}

impl WriteQueue {
    /// Where the next bytes may be written.
    pub(super) fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Appends data. Long data is not copied.
    pub(super) fn push(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            self.tail.extend_from_slice(&data);
            return;
        }
        if !self.tail.is_empty() {
            let before = self.tail.split().freeze();
            self.bytes += before.len();
            self.pieces.push_back(before);
        }
        self.bytes += data.len();
        self.pieces.push_back(data);
    }

    /// How many bytes are to be sent.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.tail.len()
    }

    /// Writes until nothing is left. Returns how many bytes this call has written, also before an error.
    pub(super) fn poll_write(
        &mut self,
        socket: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
        written: &mut u64,
    ) -> Poll<io::Result<()>> {
        while self.bytes() > 0 {
            let count = ready!(self.poll_write_once(socket, cx))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *written += count as u64;
            self.advance(count);
        }
        // All of its memory, not what is left of it behind the bytes that were written.
        if self.tail.try_reclaim(KEPT + 1) {
            self.tail = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_once(
        &self,
        socket: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        // One piece leaves by `send`, which costs less than `writev`.
        match (self.pieces.front(), self.tail.is_empty()) {
            (None, _) => return Pin::new(socket).poll_write(cx, &self.tail),
            (Some(piece), true) if self.pieces.len() == 1 => {
                return Pin::new(socket).poll_write(cx, piece);
            }
            _ => {}
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        let pieces = self.pieces.iter().map(|piece| &piece[..]);
        let all = pieces.chain([&self.tail[..]]);
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(all) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        Pin::new(socket).poll_write_vectored(cx, &slices[..count])
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let Some(piece) = self.pieces.front_mut() else {
                self.tail.advance(count);
                return;
            };
            let of_piece = count.min(piece.len());
            piece.advance(of_piece);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            self.bytes -= of_piece;
            count -= of_piece;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Takes at most so many bytes in each call, and nothing in every other one.
    struct Slow {
        taken: Vec<u8>,
        each: usize,
        busy: bool,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.busy = !self.busy;
            if self.busy {
                return Poll::Pending;
            }
            let count = bytes.len().min(self.each);
            self.taken.extend_from_slice(&bytes[..count]);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn bytes_leave_in_order_however_few_the_socket_takes() {
        for each in [1, 7, 4096, 1 << 20] {
            let mut output = WriteQueue::default();
            let mut expected = Vec::new();
            for (number, length) in [(b'a', 10), (b'b', COPIED + 1), (b'c', 3), (b'd', 30_000)] {
                let data = vec![number; length];
                expected.extend_from_slice(&data);
                output.push(data.into());
            }
            output.tail().extend_from_slice(b"end");
            expected.extend_from_slice(b"end");
            assert_eq!(output.bytes(), expected.len());
            let mut socket = Slow {
                taken: Vec::new(),
                each,
                busy: false,
            };
            let mut written = 0;
            let mut cx = Context::from_waker(Waker::noop());
            while output
                .poll_write(&mut socket, &mut cx, &mut written)
                .is_pending()
            {}
            assert_eq!(socket.taken, expected, "{each}");
            assert_eq!((written, output.bytes()), (expected.len() as u64, 0));
        }
    }

    #[test]
    fn a_long_tail_is_not_kept() {
        let mut output = WriteQueue::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut socket = Slow {
            taken: Vec::new(),
            each: usize::MAX,
            busy: true,
        };
        for (length, is_kept) in [(800, true), (KEPT + 1, false), (COPIED, false)] {
            output.push(vec![b'a'; length].into());
            let written = output.poll_write(&mut socket, &mut cx, &mut 0);
            assert!(matches!(written, Poll::Ready(Ok(()))));
            assert_eq!(output.tail.try_reclaim(length), is_kept, "{length}");
            socket.busy = true;
        }
    }

    #[test]
    fn a_socket_that_takes_nothing_is_an_error() {
        let mut output = WriteQueue::default();
        output.push(Bytes::from_static(b"a"));
        let mut socket = Slow {
            taken: Vec::new(),
            each: 0,
            busy: true,
        };
        let mut cx = Context::from_waker(Waker::noop());
        let written = output.poll_write(&mut socket, &mut cx, &mut 0);
        assert!(matches!(written, Poll::Ready(Err(_))));
    }
}
