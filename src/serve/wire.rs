//! The bytes of a client's connection, on their way to and from hyper.
//!
//! Four things need the bytes themselves. A client that takes too long over a request head, or that
//! does not take what is ready for it, is cut off: hyper times the first only together with the idle
//! time between requests, and the second not at all. And some malformed HTTP/1 heads cannot be told
//! from good ones once hyper has parsed them, so a copy of the head is kept until it has been looked
//! at ([`super::head`]). Last, an answer given before a request's body was read would be destroyed if
//! the connection were closed with bytes unread, so those are taken and forgotten.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use super::acceptor::Counted;
use crate::{socket::Socket, sync::lock};

/// Bytes of a head that are kept. A head that does not fit is taken on hyper's word.
const KEPT_BYTES: usize = 16 << 10;

/// How long a connection that is being closed takes what the client still sends.
const LINGER: Duration = Duration::from_secs(1);

/// What an HTTP/1 connection has brought since the last request was looked at.
#[derive(Debug, Default)]
pub struct Http1Head {
    /// Whether a request is being served: what is read now belongs to its body.
    serving: AtomicBool,
    /// Whether a request's body was left unread: what is read now may belong to it.
    pub(super) unread: Arc<AtomicBool>,
    kept: Mutex<Vec<u8>>,
}

impl Http1Head {
    /// Gives the bytes that hold the head of a new request to `look`, if they are all here and
    /// nothing else is before them, and forgets them. From now on the connection brings a body.
    pub(super) fn take<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let pipelined = self.serving.swap(true, Ordering::Relaxed);
        let after_unread = self.unread.swap(false, Ordering::Relaxed);
        let mut kept = lock(&self.kept);
        let whole = !pipelined && !after_unread && kept.len() < KEPT_BYTES;
        let looked = whole.then(|| look(&kept));
        kept.clear();
        looked
    }

    /// The request has been answered: what is read now is the next head.
    pub(super) fn answered(&self) {
        self.serving.store(false, Ordering::Relaxed);
    }

    fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed)
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = lock(&self.kept);
        let room = KEPT_BYTES - kept.len().min(KEPT_BYTES);
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// A client's connection as hyper sees it.
pub struct Wire {
    socket: Socket,
    /// Read already, to find out what the client speaks.
    first: Bytes,
    /// `None` for HTTP/2.
    head: Option<Arc<Http1Head>>,
    head_timeout: Duration,
    head_timer: Option<Pin<Box<Sleep>>>,
    stall_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
    /// While the connection is being closed: until when, at the latest.
    closing: Option<Pin<Box<Sleep>>>,
    _counted: Counted,
}

impl Wire {
    pub(super) fn new(
        socket: Socket,
        first: Bytes,
        head: Option<Arc<Http1Head>>,
        head_timeout: Duration,
        stall_timeout: Duration,
        counted: Counted,
    ) -> Self {
        Self {
            socket,
            first,
            head,
            head_timeout,
            head_timer: None,
            stall_timeout,
            stall_timer: None,
            closing: None,
            _counted: counted,
        }
    }

    fn poll_read_any(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.has_remaining() {
            let len = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first.split_to(len));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }

    /// Cuts the client off when a head that has begun is not complete in time.
    fn poll_head_timer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(timer) = &mut self.head_timer
            && timer.as_mut().poll(cx).is_ready()
        {
            self.head_timer = None;
            return Poll::Ready(Err(too_slow("the request head took too long")));
        }
        Poll::Pending
    }

    /// Passes a write's outcome on, and cuts the client off when it has been pending for too long.
    fn unless_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall_timer = None;
            return written;
        }
        let limit = self.stall_timeout;
        let timer = self
            .stall_timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(too_slow("the client takes nothing")));
        }
        Poll::Pending
    }
}

impl Wire {
    /// Takes and forgets what the client still sends. Closing at once would reset the connection,
    /// and a reset destroys the answer the client has not read yet.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.head.is_none() {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; 8192];
        for _ in 0..64 {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    return match &mut self.closing {
                        Some(limit) => limit.as_mut().poll(cx).map(Ok),
                        None => Poll::Ready(Ok(())),
                    };
                }
            }
        }
        if self
            .closing
            .as_mut()
            .is_some_and(|limit| limit.as_mut().poll(cx).is_ready())
        {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn too_slow(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = this.poll_read_any(cx, buf);
        let Some(head) = &this.head else {
            return read;
        };
        if head.is_serving() {
            this.head_timer = None;
            return read;
        }
        match read {
            Poll::Pending => this.poll_head_timer(cx),
            Poll::Ready(Ok(())) => {
                let bytes = &buf.filled()[before..];
                if !bytes.is_empty() {
                    head.keep(bytes);
                    let limit = this.head_timeout;
                    this.head_timer
                        .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                }
                Poll::Ready(Ok(()))
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.unless_stalled(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.unless_stalled(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.unless_stalled(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.closing.is_none() {
            let shut = Pin::new(&mut this.socket).poll_shutdown(cx);
            ready!(this.unless_stalled(cx, shut))?;
            this.closing = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        this.poll_linger(cx)
    }
}
