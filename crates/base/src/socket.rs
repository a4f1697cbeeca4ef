//! A TCP connection, plain or under TLS, as one type.
//!
//! One type instead of a generic parameter, so that hyper's connections are compiled once, not
//! twice. The cost of the extra branch per read and write cannot be measured.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

/// A TCP connection, plain or under TLS.
#[derive(Debug)]
pub enum Socket {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS, as its client or its server.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Sets up a TCP connection: data is sent without delay, and a peer that has disappeared is detected within two
/// minutes.
///
/// # Errors
///
/// When the connection has ended already.
pub fn set_up(stream: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(())
}

impl Socket {
    /// Ready once there may be something to read: data, the end of the stream, or an error. With TLS, what was read before and not decrypted
    /// yet does not count.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        // An error is read, too.
        stream.poll_read_ready(cx).map(|_| ())
    }
}

/// So many bytes are copied rather than written from several places: `send` costs the kernel less than `writev`.
const SHORT: usize = 8 << 10;

thread_local! {
    /// Where they are copied to.
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn is_short(bufs: &[IoSlice<'_>]) -> bool {
    bufs.iter().map(|buf| buf.len()).sum::<usize>() <= SHORT
}

fn poll_write_gathered(
    stream: &mut TcpStream,
    cx: &mut Context<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    GATHERED.with_borrow_mut(|gathered| {
        gathered.clear();
        for buf in bufs {
            gathered.extend_from_slice(buf);
        }
        Pin::new(stream).poll_write(cx, gathered)
    })
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) if is_short(bufs) => poll_write_gathered(stream, cx, bufs),
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn parts_arrive_in_their_order_whether_they_are_copied_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut sender, mut receiver) = (Socket::Plain(sender.unwrap()), accepted.unwrap().0);
        let mut expected = Vec::<u8>::new();
        for length in [1, SHORT - 2, SHORT - 1, SHORT, 3 * SHORT] {
            let parts = [vec![b'a'; length], Vec::new(), b"bc".to_vec()];
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let written = sender.write_vectored(&slices).await.unwrap();
            expected.extend(&parts.concat()[..written]);
        }
        sender.shutdown().await.unwrap();
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, expected);
    }
}
