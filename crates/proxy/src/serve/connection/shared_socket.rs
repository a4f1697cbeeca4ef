//! A connection that the gateway can still write to after hyper has been dropped.

use std::{
    cell::{Cell, RefCell},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::checked_socket::CheckedSocket;
use fairgate_base::gathered_writes::GatheredWrites;

/// How long to wait for the client to read the last frame.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// GOAWAY: any stream may have been served; `ENHANCE_YOUR_CALM`.
const GOAWAY: [u8; 17] = [
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0xb,
];

/// A connection that hyper shares with the gateway, which may send a last frame after hyper has been dropped.
#[derive(Clone)]
pub(super) struct SharedSocket {
    socket: Rc<RefCell<GatheredWrites<CheckedSocket>>>,
    /// Whether the last write was complete, so that the next byte begins a frame.
    at_frame_start: Rc<Cell<bool>>,
}

impl SharedSocket {
    pub(super) fn new(socket: CheckedSocket) -> Self {
        Self {
            socket: Rc::new(RefCell::new(GatheredWrites::new(socket))),
            at_frame_start: Rc::new(Cell::new(true)),
        }
    }

    /// Sends `GOAWAY` with `ENHANCE_YOUR_CALM`, if the client reads it soon.
    pub(super) async fn send_enhance_your_calm(mut self) {
        if self.at_frame_start.get() {
            let goaway = async {
                self.write_all(&GOAWAY).await?;
                self.shutdown().await
            };
            // Best effort: the connection ends in any case.
            let _ = tokio::time::timeout(GOAWAY_TIMEOUT, goaway).await;
        }
    }

    fn record_write(&self, len: usize, written: &Poll<io::Result<usize>>) {
        let complete = matches!(written, Poll::Ready(Ok(bytes)) if *bytes == len);
        self.at_frame_start.set(complete);
    }
}

impl AsyncRead for SharedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.socket.borrow_mut()).poll_write(cx, buf);
        self.record_write(buf.len(), &written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.socket.borrow_mut()).poll_write_vectored(cx, bufs);
        self.record_write(bufs.iter().map(|buf| buf.len()).sum(), &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_shutdown(cx)
    }
}
