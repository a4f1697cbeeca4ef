//! The way to the upstream for the gateway's own lists and watches.
//!
//! Each request has a connection of its own: there are few of them and a watch holds its own anyway,
//! and so none is ever sent on a connection that has died in a pool. The gateway's credentials are
//! asked for anew each time.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderMap, HeaderValue, Request, Response, StatusCode,
    header::{ACCEPT_ENCODING, HOST},
    uri::Authority,
};
use http_body::{Frame, SizeHint};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tower::Service;

use super::step::{InStep, Open};
use fairgate_base::{clock::Clock, socket};
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// How long the head of an answer may take.
const HEAD_LIMIT: Duration = Duration::from_secs(15);

/// The same watch is not opened more often than this, however soon the upstream ends each.
const WATCH_SPACING: Duration = Duration::from_millis(500);

/// Where the upstream is, and how the gateway proves itself there.
#[derive(Clone)]
pub struct Upstream {
    /// Its host and port; without a port 443, or 80 without TLS.
    pub authority: Authority,
    /// TLS with the gateway's certificate, if it has one, and the name that the upstream's must bear.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The headers by which the gateway proves itself; asked anew for each request.
    pub headers: Arc<dyn Fn() -> HeaderMap + Send + Sync>,
    /// How long connecting may take, TLS included.
    pub connect_timeout: Duration,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

type Failure = Box<dyn Error + Send + Sync>;

/// Sends requests to the upstream, and tells of the watches among them.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    upstream: Upstream,
    clock: Clock,
    step: Arc<InStep>,
    /// When a watch was last opened, by its path.
    watched: Arc<Mutex<BTreeMap<String, Time>>>,
}

impl Transport {
    pub(super) fn new(upstream: Upstream, clock: Clock, step: Arc<InStep>) -> Self {
        Self {
            upstream,
            clock,
            step,
            watched: Arc::default(),
        }
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Answer>, Failure> {
        let headers = request.headers_mut();
        headers.extend((self.upstream.headers)());
        let host = HeaderValue::from_str(self.upstream.authority.as_str())?;
        headers.insert(HOST, host);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|pair| pair == "watch=true");
        if watches {
            self.space(request.uri().path()).await;
        }
        let connecting = timeout(self.upstream.connect_timeout, self.connect());
        let mut sender = connecting.await.map_err(|_| too_slow("connecting"))??;
        let answer = timeout(HEAD_LIMIT, sender.send_request(request));
        let answer = answer.await.map_err(|_| too_slow("answering"))??;
        let open = watches && answer.status() == StatusCode::OK;
        let open = open.then(|| self.step.opened());
        Ok(answer.map(|body| Answer { body, open }))
    }

    /// Waits if the watch of `path` was opened a moment ago.
    async fn space(&self, path: &str) {
        let last = lock(&self.watched).get(path).copied();
        if let Some(last) = last {
            let since = self.clock.now().since(last);
            tokio::time::sleep(WATCH_SPACING.saturating_sub(since)).await;
        }
        lock(&self.watched).insert(path.to_owned(), self.clock.now());
    }

    async fn connect(&self) -> Result<http1::SendRequest<Body>, Failure> {
        let Upstream { authority, tls, .. } = &self.upstream;
        let port = if tls.is_some() { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(port);
        let host = authority.host().trim_matches(['[', ']']);
        let tcp = TcpStream::connect((host, port)).await?;
        socket::set_up(&tcp)?;
        match tls {
            None => speak(tcp).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                speak(connector.connect(name.clone(), tcp).await?).await
            }
        }
    }
}

/// Begins HTTP/1.1 on a connection, which ends with the body of the one answer.
async fn speak<S>(stream: S) -> Result<http1::SendRequest<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

fn too_slow(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} took too long"))
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Answer>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// The body of an answer. As long as that of a watch is there, the watch is open.
#[derive(Debug)]
pub(super) struct Answer {
    body: Incoming,
    open: Option<Open>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let (Poll::Ready(frame), Some(open)) = (&polled, &mut this.open) {
            open.heard();
            if !matches!(frame, Some(Ok(_))) {
                this.open = None;
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
