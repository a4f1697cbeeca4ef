//! Writes of an HTTP/2 connection that leave together.
//!
//! Many requests share such a connection, and each of their tasks makes it write a little. A system call costs more than all else that
//! is done for a short message, so short writes are kept until the tasks that are ready now have had their turn.

use std::{
    cell::Cell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::turn_number;

/// What is kept at most, in bytes.
const MOST_KEPT: usize = 32 << 10;
/// A write of so many bytes is not copied: it is worth a system call.
const LONG: usize = 8 << 10;

thread_local! {
    /// A buffer for whoever keeps something next, so that an idle connection has none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A socket whose short writes leave together: in a later turn of the task that has flushed them, or when there are too many of them.
///
/// While they wait, a flush is ready, and the task is woken: it has to flush again in its next turn, as h2 does. Outside of turns
/// ([`turns`](crate::turns)) nothing waits.
#[derive(Debug)]
pub struct GatheredWrites<S> {
    socket: S,
    kept: Vec<u8>,
    /// How many bytes of `kept` were written.
    gone: usize,
    /// The turn in which something was flushed first.
    flushed_in: Option<u64>,
}

impl<S> GatheredWrites<S> {
    /// Gathers the writes to `socket`.
    pub fn new(socket: S) -> Self {
        Self {
            socket,
            kept: Vec::new(),
            gone: 0,
            flushed_in: None,
        }
    }
}

impl<S: AsyncWrite + Unpin> GatheredWrites<S> {
    /// Writes all that is kept.
    fn poll_kept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.gone < self.kept.len() {
            let rest = &self.kept[self.gone..];
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.gone += count,
            }
        }
        if self.kept.capacity() > 0 {
            self.kept.clear();
            SPARE.set(std::mem::take(&mut self.kept));
        }
        self.gone = 0;
        self.flushed_in = None;
        Poll::Ready(Ok(()))
    }

    /// Whether `bytes` more are kept. Pending while what is kept has to leave first.
    fn poll_keeps(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<bool>> {
        if bytes >= LONG || self.kept.len() + bytes > MOST_KEPT {
            ready!(self.poll_kept(cx))?;
        }
        let is_kept = bytes < LONG;
        if is_kept && self.kept.capacity() == 0 {
            self.kept = SPARE.take();
            self.kept.reserve_exact(MOST_KEPT);
        }
        Poll::Ready(Ok(is_kept))
    }

    /// Whether what is kept waits for another turn. The task is woken then.
    fn waits(&mut self, cx: &Context<'_>) -> bool {
        let Some(turn) = turn_number().filter(|_| self.gone < self.kept.len()) else {
            return false;
        };
        if self.flushed_in.is_none() {
            self.flushed_in = Some(turn);
            cx.waker().wake_by_ref();
        }
        self.flushed_in == Some(turn)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GatheredWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Who waits for an answer to what was flushed may not flush again.
        if self.flushed_in.is_some() && !self.waits(cx) {
            let _ = self.poll_kept(cx)?;
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for GatheredWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if ready!(self.poll_keeps(cx, buf.len()))? {
            self.kept.extend_from_slice(buf);
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        if ready!(self.poll_keeps(cx, bytes))? {
            for buf in bufs {
                self.kept.extend_from_slice(buf);
            }
            return Poll::Ready(Ok(bytes));
        }
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waits(cx) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_kept(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_kept(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::clock::TurnGuard;

    /// Records writes, and takes at most `most` bytes in each.
    struct Recorder {
        writes: Vec<Vec<u8>>,
        most: usize,
        is_full: bool,
    }

    impl AsyncRead for Recorder {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Recorder {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.is_full {
                return Poll::Pending;
            }
            let count = buf.len().min(self.most);
            self.writes.push(buf[..count].to_vec());
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.writes.push(b"shutdown".to_vec());
            Poll::Ready(Ok(()))
        }
    }

    fn gathered(most: usize) -> GatheredWrites<Recorder> {
        GatheredWrites::new(Recorder {
            writes: Vec::new(),
            most,
            is_full: false,
        })
    }

    fn write(socket: &mut GatheredWrites<Recorder>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(socket).poll_write(&mut Context::from_waker(Waker::noop()), bytes)
    }

    fn flush(socket: &mut GatheredWrites<Recorder>) -> Poll<io::Result<()>> {
        Pin::new(socket).poll_flush(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn short_writes_leave_together_in_a_later_turn() {
        let mut socket = gathered(usize::MAX);
        let turn = TurnGuard::begin();
        assert!(matches!(write(&mut socket, b"ab"), Poll::Ready(Ok(2))));
        assert!(flush(&mut socket).is_ready());
        let slices = [IoSlice::new(b"c"), IoSlice::new(b"de")];
        let mut cx = Context::from_waker(Waker::noop());
        let written = Pin::new(&mut socket).poll_write_vectored(&mut cx, &slices);
        assert!(matches!(written, Poll::Ready(Ok(3))));
        assert!(flush(&mut socket).is_ready());
        assert!(socket.socket.writes.is_empty());
        drop(turn);
        let _turn = TurnGuard::begin();
        assert!(write(&mut socket, b"f").is_ready());
        assert!(flush(&mut socket).is_ready());
        assert_eq!(socket.socket.writes, [b"abcdef"]);
        assert_eq!(socket.kept.capacity(), 0);
        // What comes after that waits for the next turn.
        assert!(write(&mut socket, b"g").is_ready());
        assert!(flush(&mut socket).is_ready());
        assert_eq!(socket.socket.writes.len(), 1);
    }

    #[test]
    fn outside_of_turns_nothing_waits() {
        let mut socket = gathered(usize::MAX);
        assert!(write(&mut socket, b"ab").is_ready());
        assert!(flush(&mut socket).is_ready());
        assert_eq!(socket.socket.writes, [b"ab"]);
    }

    #[test]
    fn who_reads_in_a_later_turn_has_sent_what_was_flushed() {
        let mut socket = gathered(usize::MAX);
        let turn = TurnGuard::begin();
        assert!(write(&mut socket, b"ab").is_ready());
        assert!(flush(&mut socket).is_ready());
        let mut cx = Context::from_waker(Waker::noop());
        let mut room = [0; 9];
        let mut read = ReadBuf::new(&mut room);
        let _ = Pin::new(&mut socket).poll_read(&mut cx, &mut read);
        assert!(socket.socket.writes.is_empty());
        drop(turn);
        let _turn = TurnGuard::begin();
        let _ = Pin::new(&mut socket).poll_read(&mut cx, &mut read);
        assert_eq!(socket.socket.writes, [b"ab"]);
    }

    #[test]
    fn the_order_of_bytes_is_kept_whatever_is_short_or_long_or_taken_in_parts() {
        for most in [1, 7, 5_000, usize::MAX] {
            let mut socket = gathered(most);
            let mut expected = Vec::new();
            for (at, length) in [3, LONG, 1, LONG - 1, 2, 3 * LONG, 5]
                .into_iter()
                .enumerate()
            {
                let bytes = vec![u8::try_from(at).unwrap(); length];
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let Poll::Ready(Ok(count)) = write(&mut socket, rest) else {
                        panic!("the socket takes it");
                    };
                    rest = &rest[count..];
                }
                expected.extend(bytes);
            }
            assert!(flush(&mut socket).is_ready());
            assert_eq!(socket.socket.writes.concat(), expected);
        }
    }

    #[test]
    fn a_full_socket_is_not_written_to_without_bound() {
        let mut socket = gathered(usize::MAX);
        socket.socket.is_full = true;
        let mut kept = 0;
        while write(&mut socket, &[0; 1000]).is_ready() {
            kept += 1000;
        }
        assert!(kept <= MOST_KEPT && socket.kept.capacity() <= MOST_KEPT);
        assert!(write(&mut socket, &[0; LONG]).is_pending());
        socket.socket.is_full = false;
        assert!(write(&mut socket, &[0; 1000]).is_ready());
        assert_eq!(socket.socket.writes.concat().len(), kept);
    }

    #[test]
    fn what_is_kept_leaves_before_the_end() {
        let mut socket = gathered(usize::MAX);
        assert!(write(&mut socket, b"ab").is_ready());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut socket).poll_shutdown(&mut cx).is_ready());
        assert_eq!(socket.socket.writes, [b"ab".to_vec(), b"shutdown".to_vec()]);
    }
}
