//! The upstream of the bench: it responds at once, and to a watch with one event after another, as it is told.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpListener,
    sync::{Barrier, mpsc},
};

/// The bytes of an event, with its line feed.
pub(crate) const EVENT_BYTES: usize = 1024;

const EVENT: [u8; EVENT_BYTES] = {
    let mut event = [b'x'; EVENT_BYTES];
    event[EVENT_BYTES - 1] = b'\n';
    event
};

/// A server on the runtime of whoever starts it.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    /// Each lets the only watch have an event.
    pub(crate) next_event: mpsc::UnboundedSender<()>,
}

/// What all connections share.
struct Shared {
    /// Nobody gets a response before as many have asked.
    together: Barrier,
    events: Mutex<Option<mpsc::UnboundedReceiver<()>>>,
}

impl Upstream {
    /// Starts a server that responds to so many requests at a time.
    pub(crate) async fn start(together: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let (next_event, events) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            together: Barrier::new(together),
            events: Mutex::new(Some(events)),
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let answer = service_fn(move |request| respond(Arc::clone(&shared), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self {
            address,
            next_event,
        }
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let is_watch = request
        .uri()
        .query()
        .is_some_and(|query| query.contains("watch"));
    let _ = request.into_body().collect().await;
    shared.together.wait().await;
    let body = if is_watch {
        let events = shared.events.lock().expect("nobody panics").take();
        let events = events.expect("there is one watch");
        UnsyncBoxBody::new(StreamBody::new(futures_util::stream::unfold(
            events,
            |mut events| async {
                events.recv().await?;
                Some((Ok(Frame::data(Bytes::from_static(&EVENT))), events))
            },
        )))
    } else {
        UnsyncBoxBody::new(Full::new(Bytes::from_static(&[b'x'; 512])))
    };
    Ok(Response::new(body))
}
