//! Sends the lists and watches of the policy objects, and knows which watches are open.
//!
//! The client has to open a connection for each request: there are few of them, a watch holds one anyway, and
//! so none is ever sent on a connection that has died in a pool.

use std::{
    collections::BTreeMap,
    error::Error,
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

use super::sync_status::{OpenWatch, SyncStatus};
use fairgate_base::clock::Clock;
use fairgate_core::{
    sync::{Mutex, lock},
    time::Time,
};
use fairgate_upstream::client::{ApiClient, RequestError, ResponseBody};

/// The same watch is not opened more often than this, however soon the upstream ends each.
const WATCH_SPACING: Duration = Duration::from_millis(500);

/// The largest answer that is not a watch. A page of 500 policy objects takes about 1 MiB.
const MAX_LIST_BYTES: usize = 64 << 20;

type BoxError = Box<dyn Error + Send + Sync>;

/// Sends requests to the upstream, and reports the watches among them.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    client: ApiClient,
    clock: Clock,
    status: Arc<SyncStatus>,
    /// When a watch was last opened, by its path.
    watched: Arc<Mutex<BTreeMap<String, Time>>>,
}

impl Transport {
    pub(super) fn new(client: ApiClient, clock: Clock, status: Arc<SyncStatus>) -> Self {
        Self {
            client,
            clock,
            status,
            watched: Arc::default(),
        }
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<WatchedBody>, RequestError> {
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(ACCEPT_ENCODING, identity);
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|pair| pair == "watch=true");
        if watches {
            self.space(request.uri().path()).await;
        }
        let answer = self.client.send(request).await?;
        let open = watches && answer.status() == StatusCode::OK;
        let open = open.then(|| self.status.opened());
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

impl Service<Request<Body>> for Transport {
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

/// The body of an answer. While that of a watch is there, the watch is open.
#[derive(Debug)]
pub(super) struct WatchedBody {
    body: ResponseBody,
    /// How many bytes more it may have, unless it is a watch.
    left: Option<usize>,
    open: Option<OpenWatch>,
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
            if !matches!(frame, Some(Ok(_))) {
                this.open = None;
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
