//! The connections of one user: HTTP/1.1 or HTTP/2, with or without TLS, opened when they are needed.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
    rt::{Read, Write},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpSocket, TcpStream},
    sync::{Semaphore, SemaphorePermit},
};

use super::target::{CONNECT_TIMEOUT, LoadTarget};
use crate::scenario::ConnectionSpec;
use fairgate_base::clock::Clock;
use fairgate_upstream::dial::HttpVersion;

/// The pause before a refused connection is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);
/// The receive buffer of a client that reads slowly, in bytes.
const SMALL_WINDOW: u32 = 16 << 10;

type Body = Full<Bytes>;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadClientError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("no response: {}", chain(.0))]
    Http(#[from] hyper::Error),
}

/// An error with its causes, which hyper leaves out.
fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        if wants_certificate(cause) {
            text += "; the server requires a client certificate: name one with --client-certificate and --client-key";
        }
        source = cause.source();
    }
    text
}

/// Whether the server ended the connection because it saw no client certificate.
fn wants_certificate(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref);
    let error = error.and_then(|error| error.downcast_ref::<rustls::Error>());
    let required = rustls::AlertDescription::CertificateRequired;
    error.is_some_and(|error| *error == rustls::Error::AlertReceived(required))
}

/// The connections of one user.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    target: Arc<LoadTarget>,
    spec: ConnectionSpec,
    reads_slowly: bool,
    clock: Clock,
    permits: Semaphore,
    idle: Mutex<Vec<http1::SendRequest<Body>>>,
    shared: Vec<tokio::sync::Mutex<Option<http2::SendRequest<Body>>>>,
    next: AtomicUsize,
}

/// A response that is being read. Dropping it before [`PooledResponse::finish`] closes an HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct PooledResponse<'a> {
    pub(crate) response: Response<Incoming>,
    pool: &'a ConnectionPool,
    connection: Option<http1::SendRequest<Body>>,
    _permit: SemaphorePermit<'a>,
}

impl PooledResponse<'_> {
    /// Keeps the connection; to be called when the response has been read.
    pub(crate) fn finish(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle().push(connection);
        }
    }
}

impl ConnectionPool {
    /// A pool without connections yet, for at most `in_flight` concurrent requests.
    pub(crate) fn new(
        target: Arc<LoadTarget>,
        spec: ConnectionSpec,
        in_flight: u32,
        reads_slowly: bool,
    ) -> Self {
        let needed = match spec.protocol {
            HttpVersion::Http1 => in_flight,
            HttpVersion::Http2 => in_flight.div_ceil(spec.streams),
        };
        let connections = spec
            .connections
            .unwrap_or(needed)
            .clamp(1, in_flight.max(1));
        let permits = match spec.protocol {
            HttpVersion::Http1 => connections,
            HttpVersion::Http2 => connections.saturating_mul(spec.streams),
        };
        let shared = match spec.protocol {
            HttpVersion::Http1 => 0,
            HttpVersion::Http2 => connections,
        };
        Self {
            target,
            spec,
            reads_slowly,
            clock: Clock::system(),
            permits: Semaphore::new(permits as usize),
            idle: Mutex::default(),
            shared: (0..shared).map(|_| tokio::sync::Mutex::default()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    /// Sends a request; waits for a connection if all are in use. A request on a connection that the server has closed
    /// meanwhile is sent again on a new one.
    ///
    /// # Errors
    ///
    /// When there is no response.
    pub(crate) async fn send(
        &self,
        request: &Request<Body>,
    ) -> Result<PooledResponse<'_>, LoadClientError> {
        // The semaphore is never closed.
        let permit = self
            .permits
            .acquire()
            .await
            .map_err(|_| LoadClientError::Connect(io::ErrorKind::NotConnected.into()))?;
        let (response, connection) = match self.spec.protocol {
            HttpVersion::Http1 => {
                let (response, connection) = self.send_http1(request).await?;
                (response, Some(connection))
            }
            HttpVersion::Http2 => (self.send_http2(request).await?, None),
        };
        Ok(PooledResponse {
            response,
            pool: self,
            connection,
            _permit: permit,
        })
    }

    async fn send_http1(
        &self,
        request: &Request<Body>,
    ) -> Result<(Response<Incoming>, http1::SendRequest<Body>), LoadClientError> {
        while let Some(mut connection) = self.pop_idle() {
            if connection.ready().await.is_err() {
                continue;
            }
            if let Ok(response) = connection.send_request(request.clone()).await {
                return Ok((response, connection));
            }
        }
        let mut connection = self.connect(http1_handshake).await?;
        let response = connection.send_request(request.clone()).await?;
        Ok((response, connection))
    }

    async fn send_http2(
        &self,
        request: &Request<Body>,
    ) -> Result<Response<Incoming>, LoadClientError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.shared.len().max(1);
        let mut used = true;
        loop {
            let mut sender = {
                let mut slot = self.shared[index].lock().await;
                match slot.as_mut() {
                    Some(open) if !open.is_closed() => open.clone(),
                    _ => {
                        used = false;
                        let small = self.reads_slowly;
                        let open = self
                            .connect(move |stream| http2_handshake(stream, small))
                            .await?;
                        slot.insert(open).clone()
                    }
                }
            };
            let result = match sender.ready().await {
                Ok(()) => sender.send_request(request.clone()).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(response) => return Ok(response),
                // Only a connection that was open before may have been closed meanwhile.
                Err(_) if used => {
                    used = false;
                    self.shared[index]
                        .lock()
                        .await
                        .take_if(|open| open.is_closed());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Opens a connection; a refused one is tried again for as long as the scenario says.
    async fn connect<S, F>(&self, handshake: impl Fn(Stream) -> F) -> Result<S, LoadClientError>
    where
        F: Future<Output = Result<S, hyper::Error>>,
    {
        let until = self.clock.now().plus(self.spec.reconnect);
        loop {
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.open(&handshake)).await;
            match connecting
                .unwrap_or_else(|_| Err(LoadClientError::Connect(io::ErrorKind::TimedOut.into())))
            {
                Ok(connection) => return Ok(connection),
                Err(_) if self.clock.now() < until => tokio::time::sleep(RECONNECT_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn open<S, F>(&self, handshake: &impl Fn(Stream) -> F) -> Result<S, LoadClientError>
    where
        F: Future<Output = Result<S, hyper::Error>>,
    {
        let stream = self.tcp().await.map_err(LoadClientError::Connect)?;
        let stream: Stream = match self.target.tls(self.spec.protocol) {
            None => Box::new(TokioIo::new(stream)),
            Some((config, name)) => {
                let connector = tokio_rustls::TlsConnector::from(config);
                let stream = connector
                    .connect(name, stream)
                    .await
                    .map_err(LoadClientError::Connect)?;
                Box::new(TokioIo::new(stream))
            }
        };
        Ok(handshake(stream).await?)
    }

    async fn tcp(&self) -> io::Result<TcpStream> {
        let address = self.target.address;
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        if self.reads_slowly {
            socket.set_recv_buffer_size(SMALL_WINDOW)?;
        }
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn pop_idle(&self) -> Option<http1::SendRequest<Body>> {
        self.idle().pop()
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<http1::SendRequest<Body>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, with or without TLS.
pub(crate) trait Transport: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Transport for T {}

type Stream = Box<dyn Transport>;

async fn http1_handshake(stream: Stream) -> Result<http1::SendRequest<Body>, hyper::Error> {
    let (sender, connection) = http1::handshake(stream).await?;
    // An error of the connection is returned by the request on it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

async fn http2_handshake(
    stream: Stream,
    small: bool,
) -> Result<http2::SendRequest<Body>, hyper::Error> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    if small {
        builder.initial_stream_window_size(SMALL_WINDOW);
    }
    let (sender, connection) = builder.handshake(stream).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
