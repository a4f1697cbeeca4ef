//! A client's connection, as hyper reads and writes it.
//!
//! Three things are done here that hyper does not do. Bytes from the client are parsed before hyper reads them, so that
//! it gets no more than one HTTP/1 message at a time ([`http1`](crate::serve::wire::http1)), and floods of HTTP/2 frames end the connection
//! ([`super::http2`]). A client that does not read is disconnected. And unread bytes are read and discarded before
//! the connection is closed; otherwise the kernel would reset it, and the client could lose a reply that it has not
//! read.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::stall_limits::{StallLimits, WriteState};
use crate::serve::{
    client_connections::{CountedConnection, ParkedConnection},
    wire::http1::Http1Reader,
    wire::http2::Http2Reader,
};
use fairgate_base::socket::Socket;

/// How long a connection that is being closed discards what the client still sends.
const LINGER: Duration = Duration::from_secs(1);

/// The maximum number of bytes to discard, if the connection is closed because the client sends too much.
const LINGER_BYTES: usize = 1 << 20;

/// Parses what is read from a connection.
pub(super) enum HttpReader {
    Http1(Http1Reader),
    Http2(Http2Reader),
}

/// A client's connection as hyper sees it: with message boundaries enforced, and a time limit for writes.
pub(crate) struct CheckedSocket {
    socket: Socket,
    reader: HttpReader,
    stall_limits: StallLimits,
    stall: Option<Stall>,
    writes: Arc<WriteState>,
    /// While the connection is being closed: when it is closed at the latest.
    closing: Option<Pin<Box<Sleep>>>,
    /// How many bytes may still be discarded.
    linger_bytes: usize,
    counted: CountedConnection,
}

/// A write that waits for the client to read.
struct Stall {
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Stall {
    fn begin(limit: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(limit));
        Self {
            since: timer.deadline() - limit,
            timer,
        }
    }

    /// Ready once it has lasted for `limit`, which is another one once the gateway is done with the request.
    fn poll(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let until = self.since + limit;
        if self.timer.deadline() != until {
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx)
    }
}

impl CheckedSocket {
    pub(super) fn new(
        socket: Socket,
        reader: HttpReader,
        stall_limits: StallLimits,
        writes: Arc<WriteState>,
        counted: CountedConnection,
    ) -> Self {
        Self {
            socket,
            linger_bytes: match reader {
                HttpReader::Http1(_) => usize::MAX,
                HttpReader::Http2(_) => LINGER_BYTES,
            },
            reader,
            stall_limits,
            stall: None,
            writes,
            closing: None,
            counted,
        }
    }

    /// Counts the connection as parked until the value is dropped.
    pub(super) fn park(&self) -> ParkedConnection<'_> {
        self.counted.park()
    }

    /// Ready once the client has sent something, or has closed the connection.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(cx)
    }

    /// Returns the result of a write, or an error if it has been pending for too long.
    fn unless_stalled<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.stall.take().is_some() {
                self.writes.set_writing(false);
            }
            return written;
        }
        self.writes.set_writing(true);
        let limit = self.stall_limits.limit(self.writes.may_pause());
        let stall = self.stall.get_or_insert_with(|| Stall::begin(limit));
        if stall.poll(cx, limit).is_ready() {
            return Poll::Ready(Err(too_slow("the client does not read its data")));
        }
        Poll::Pending
    }

    /// Discards what the client still sends. Closing immediately would reset the connection, and a reset
    /// destroys data that the client has not read yet.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let HttpReader::Http2(reader) = &self.reader
            && !reader.is_closing()
        {
            return Poll::Ready(Ok(()));
        }
        let mut scratch = [0; 8192];
        // So many reads in one turn at most, so that a client that keeps sending does not keep the core.
        for _ in 0..64 {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => {
                    let left = self.linger_bytes.checked_sub(buf.filled().len());
                    let Some(left) = left else {
                        return Poll::Ready(Ok(()));
                    };
                    self.linger_bytes = left;
                }
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

impl AsyncRead for CheckedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.reader {
            HttpReader::Http1(reader) => reader.poll_read(&mut this.socket, cx, buf),
            HttpReader::Http2(reader) => reader.poll_read(&mut this.socket, cx, buf),
        }
    }
}

impl AsyncWrite for CheckedSocket {
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
        // A connection that is being closed is not idle: it would be parked.
        this.writes.set_writing(true);
        if this.closing.is_none() {
            let shut = Pin::new(&mut this.socket).poll_shutdown(cx);
            ready!(this.unless_stalled(cx, shut))?;
            this.closing = Some(Box::pin(tokio::time::sleep(LINGER)));
        }
        this.poll_linger(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use fairgate_base::clock::Clock;
    use tokio::{
        io::AsyncReadExt as _,
        net::{TcpListener, TcpStream},
        time::advance,
    };

    use super::*;
    use crate::serve::{
        client_connections::ClientConnections,
        settings::ServeSettings,
        wire::{defence::Defence, head_limits::HeadLimits},
    };

    const ORDINARY: Duration = Duration::from_secs(60);
    const PAUSE: Duration = Duration::from_secs(4 * 3600);
    const STEP: Duration = Duration::from_secs(30);

    /// A connection over HTTP/1 whose client reads nothing, and the client.
    async fn connection(may_pause: bool) -> (CheckedSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connecting, listener.accept());
        let (stream, from) = accepted.unwrap();
        stream.writable().await.unwrap();
        let settings = ServeSettings {
            stall_timeout: ORDINARY,
            pause_timeout: PAUSE,
            ..ServeSettings::default()
        };
        let limits = HeadLimits {
            bytes: 8192,
            timeout: ORDINARY,
        };
        let defence = Defence::new(8192, Clock::system());
        let reader = Http1Reader::new(Arc::default(), defence, from, limits, b"");
        let connections = ClientConnections::new(1, None);
        let counted = CountedConnection::new(connections, Arc::default(), from.ip()).unwrap();
        let writes = Arc::<WriteState>::default();
        writes.set_may_pause(may_pause);
        let (socket, reader) = (Socket::Plain(stream), HttpReader::Http1(reader));
        let limits = StallLimits::of(&settings);
        let socket = CheckedSocket::new(socket, reader, limits, writes, counted);
        (socket, client.unwrap())
    }

    /// Writes as much as there is room for, for some time. Returns how many bytes that were, and the error that ended it.
    async fn write_for(time: Duration, socket: &mut CheckedSocket) -> (usize, Option<io::Error>) {
        let data = vec![b'x'; 64 << 10];
        let (mut written, mut passed) = (0, Duration::ZERO);
        loop {
            let write =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut *socket).poll_write(cx, &data))).await;
            match write {
                Poll::Ready(Ok(bytes)) => written += bytes,
                Poll::Ready(Err(error)) => return (written, Some(error)),
                Poll::Pending if passed >= time => return (written, None),
                Poll::Pending => {
                    advance(STEP).await;
                    passed += STEP;
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_may_pause_gets_everything_after_a_long_pause() {
        let (mut socket, mut client) = connection(true).await;
        let (written, error) = write_for(PAUSE / 2, &mut socket).await;
        assert!(error.is_none(), "{error:?}");
        let mut read = vec![0; written];
        client.read_exact(&mut read).await.unwrap();
        assert!(read.iter().all(|byte| *byte == b'x'));
        let (more, error) = write_for(PAUSE * 2, &mut socket).await;
        assert!(more > 0);
        assert_eq!(error.unwrap().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn any_other_client_that_does_not_read_is_cut_off_soon() {
        let (mut socket, _client) = connection(false).await;
        let (_, error) = write_for(ORDINARY * 10, &mut socket).await;
        assert_eq!(error.unwrap().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_unwritten_when_the_gateway_is_done_with_a_request_may_not_wait_as_long() {
        let (mut socket, _client) = connection(true).await;
        let (_, error) = write_for(ORDINARY * 2, &mut socket).await;
        assert!(error.is_none(), "{error:?}");
        socket.writes.set_may_pause(false);
        let (written, error) = write_for(ORDINARY * 2, &mut socket).await;
        assert_eq!(written, 0);
        assert_eq!(error.unwrap().kind(), io::ErrorKind::TimedOut);
    }
}
