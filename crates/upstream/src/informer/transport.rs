//! Sends the lists and watches of kube-rs in the gateway's own name, and reports which watches are open.
//!
//! The [`ApiClient`] has to open a connection for each request: there are few of them, a watch holds one anyway, and
//! so none is ever sent on a connection that has died in a pool.

use std::{
    collections::BTreeMap,
    error::Error,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::ACCEPT_ENCODING};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::Service;

use crate::client::{ApiClient, RequestError, ResponseBody};
use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};

/// The same watch is not opened more often than this, however soon the upstream ends each.
const WATCH_SPACING: Duration = Duration::from_millis(500);

/// The largest response that is not a watch. A page of 500 policy objects takes about 1 MiB, one of 500 pods about 5 MiB.
const MAX_LIST_BYTES: usize = 64 << 20;

type BoxError = Box<dyn Error + Send + Sync>;

/// Learns which watches are open.
pub trait WatchObserver: Send + Sync {
    /// A watch was opened. It is open until the returned value is dropped.
    fn opened(self: Arc<Self>) -> Box<dyn ObservedWatch>;
}

/// An open watch.
pub trait ObservedWatch: Send {
    /// Something was received, possibly the end of the watch.
    fn received(&mut self);

    /// The server sent something: an event, or a bookmark. Called after [`received`](Self::received).
    fn heard(&mut self) {}
}

/// Sends requests to the upstream, and reports the watches among them. The service of a [`kube::Client`].
#[derive(Clone)]
pub struct KubeTransport {
    client: ApiClient,
    clock: Clock,
    observer: Arc<dyn WatchObserver>,
    /// When a watch was last opened, by its path.
    watched: Arc<Mutex<BTreeMap<String, Time>>>,
}

impl KubeTransport {
    /// A transport over `client`, which must be one with a connection for each request.
    pub fn new(client: ApiClient, clock: Clock, observer: Arc<dyn WatchObserver>) -> Self {
        Self {
            client,
            clock,
            observer,
            watched: Arc::default(),
        }
    }

    /// A transport whose watches nobody observes; otherwise as [`new`](Self::new).
    pub fn unobserved(client: ApiClient, clock: Clock) -> Self {
        Self::new(client, clock, Arc::new(Unobserved))
    }

    /// A client of kube-rs that uses this transport.
    pub fn into_client(self) -> kube::Client {
        kube::Client::new(self, "default")
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<WatchedBody>, RequestError> {
        // Nothing here decompresses bodies.
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, identity);
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|pair| pair == "watch=true");
        if watches {
            self.space(request.uri().path()).await;
        }
        let answer = self.client.send(request).await?;
        let open = watches && answer.status() == StatusCode::OK;
        let open = open.then(|| Arc::clone(&self.observer).opened());
        Ok(answer.map(|body| WatchedBody {
            body,
            left: (!watches).then_some(MAX_LIST_BYTES),
            open,
        }))
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
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}

impl Service<Request<Body>> for KubeTransport {
    type Response = Response<WatchedBody>;
    type Error = RequestError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, RequestError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

struct Unobserved;

impl WatchObserver for Unobserved {
    fn opened(self: Arc<Self>) -> Box<dyn ObservedWatch> {
        Box::new(Self)
    }
}

impl ObservedWatch for Unobserved {
    fn received(&mut self) {}
}

/// The body of a response. A watch is open until its body is dropped.
pub struct WatchedBody {
    body: ResponseBody,
    /// How many more bytes it may have, unless it is a watch.
    left: Option<usize>,
    open: Option<Box<dyn ObservedWatch>>,
}

impl fmt::Debug for WatchedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedBody").finish_non_exhaustive()
    }
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let (Poll::Ready(frame), Some(open)) = (&polled, &mut this.open) {
            open.received();
            match frame {
                Some(Ok(_)) => open.heard(),
                Some(Err(_)) | None => this.open = None,
            }
        }
        if let (Poll::Ready(Some(Ok(frame))), Some(left)) = (&polled, &mut this.left) {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else {
                let max_bytes = MAX_LIST_BYTES;
                return Poll::Ready(Some(Err(RequestError::TooLong { max_bytes }.into())));
            };
            *left = rest;
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
