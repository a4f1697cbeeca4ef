//! A connection that hyper has, and that comes back when hyper is dropped.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::checked_socket::CheckedSocket;
use fairgate_core::sync::{Mutex, lock};

/// Where the socket of a connection comes back to.
///
/// The lock is never contended: hyper is dropped on the connection's thread. It is there because hyper's `upgrade` needs a
/// connection that is `Send`.
#[derive(Clone, Default)]
pub(super) struct SocketLender(Arc<Mutex<Lent>>);

#[derive(Default)]
struct Lent {
    is_recalled: bool,
    returned: Option<Box<CheckedSocket>>,
}

/// A connection as hyper sees it. When it is dropped, the socket is closed unless it was recalled before.
pub(super) struct LentSocket {
    /// Present until it is dropped.
    socket: Option<Box<CheckedSocket>>,
    lender: SocketLender,
}

impl SocketLender {
    /// Gives `socket` away.
    pub(super) fn lend(&self, socket: Box<CheckedSocket>) -> LentSocket {
        lock(&self.0).is_recalled = false;
        LentSocket {
            socket: Some(socket),
            lender: self.clone(),
        }
    }

    /// Drops `borrower`, and returns the socket that it had; `None` if it had passed it on, or closed it.
    ///
    /// What hyper has read and not passed on is lost, and what it has not sent: it must be between two requests.
    pub(super) fn take_back<B>(&self, borrower: B) -> Option<Box<CheckedSocket>> {
        lock(&self.0).is_recalled = true;
        drop(borrower);
        let mut lent = lock(&self.0);
        lent.is_recalled = false;
        lent.returned.take()
    }
}

impl LentSocket {
    fn get(self: Pin<&mut Self>) -> io::Result<Pin<&mut CheckedSocket>> {
        let socket = self.get_mut().socket.as_deref_mut();
        socket
            .map(Pin::new)
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Drop for LentSocket {
    fn drop(&mut self) {
        let mut lent = lock(&self.lender.0);
        if lent.is_recalled {
            lent.returned = self.socket.take();
        }
    }
}

impl AsyncRead for LentSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for LentSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket
            .as_ref()
            .is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get()?.poll_shutdown(cx)
    }
}
