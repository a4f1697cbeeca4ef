//! fairgate's HTTP/1 client, with a list of idle connections.
//!
//! Not here: sending a request again that met a connection which the upstream had closed meanwhile, and sending the rest of
//! a body whose response has come.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use anyhow::Context as _;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use tokio::net::TcpStream;

use crate::{remove_hop_by_hop, target};
use fairgate_call::BodyError;
use fairgate_http1::{RequestHeaderLines, ResponseHeadLimits};
use fairgate_proxy::forward::http1::{Exchange, ExchangeError, OutgoingHead, ReadBuffer};

/// As fairgate's.
const LIMITS: ResponseHeadLimits = ResponseHeadLimits {
    bytes: 1 << 20,
    lines: 512,
};
/// How much memory is kept for the header lines of the next request, in bytes.
const LINES_KEPT: usize = 16 << 10;

type Connection = Exchange<TcpStream, ClientIncoming>;

/// Sends requests by fairgate's client.
pub(crate) struct OwnClient {
    upstream: SocketAddr,
    idle: RefCell<Vec<Connection>>,
    buffer: ReadBuffer,
    lines: Cell<RequestHeaderLines>,
}

impl OwnClient {
    /// A client of the calling thread.
    pub(crate) fn new(upstream: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            upstream,
            idle: RefCell::default(),
            buffer: ReadBuffer::default(),
            lines: Cell::default(),
        })
    }

    /// Forwards a request.
    pub(crate) async fn forward(
        self: Rc<Self>,
        request: Request<Incoming>,
    ) -> anyhow::Result<Response<ExchangeBody>> {
        let mut connection = match self.take_idle() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let (head, body) = request.into_parts();
        let mut lines = self.lines.take();
        lines.clear(LINES_KEPT);
        for (name, value) in &head.headers {
            lines.add(name, value);
        }
        let outgoing = OutgoingHead {
            method: &head.method,
            target: target(&head.uri),
            lines: &lines,
        };
        connection.begin(&outgoing, ClientIncoming(body), LIMITS);
        self.lines.set(lines);
        let answered = poll_fn(|cx| connection.poll_head(cx, &self.buffer)).await?;
        let body = ExchangeBody {
            connection: Some(connection),
            client: self,
        };
        let mut response = Response::new(body);
        *response.status_mut() = answered.status;
        *response.headers_mut() = answered.headers;
        remove_hop_by_hop(&mut response)?;
        Ok(response)
    }

    /// The connection that was used last.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_open(Waker::noop(), &self.buffer) {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(self.upstream).await;
        let stream = stream.with_context(|| format!("cannot connect to {}", self.upstream))?;
        stream.set_nodelay(true)?;
        Ok(Exchange::new(stream))
    }
}

/// The body of a client's request.
pub(crate) struct ClientIncoming(Incoming);

impl Body for ClientIncoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map_err(BodyError::Client)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The body of a response, which holds its connection and gives it back.
pub(crate) struct ExchangeBody {
    /// `None` after an error.
    connection: Option<Connection>,
    client: Rc<OwnClient>,
}

impl Body for ExchangeBody {
    type Data = Bytes;
    type Error = ExchangeError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        let this = &mut *self;
        let Some(connection) = &mut this.connection else {
            return Poll::Ready(None);
        };
        let polled = connection.poll_frame(cx, &this.client.buffer);
        if let Poll::Ready(Some(Err(_))) = polled {
            this.connection = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.connection.as_ref().is_none_or(Exchange::is_end)
    }

    fn size_hint(&self) -> SizeHint {
        let connection = self.connection.as_ref();
        connection.map_or_else(SizeHint::default, Exchange::size_hint)
    }
}

impl Drop for ExchangeBody {
    fn drop(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && connection.end_is_clean()
        {
            self.client.idle.borrow_mut().push(connection);
        }
    }
}
