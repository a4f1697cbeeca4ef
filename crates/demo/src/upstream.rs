//! The stand-in API server: so many workers, which take as long on average for any request.
//!
//! Service times vary by a fifth in both directions, like a real server's. With a constant time one stall of the
//! machine would synchronise all workers for good: all seats would come free at once, and the wait for the
//! next would be as long as the service time.
//!
//! Requests that find no free worker wait in an unbounded FIFO queue of the server: if a gateway forwards more
//! requests than it has seats, that shows as latency and in [`StandInServer::most_at_once`]. The server speaks
//! HTTP/1.1 over a real socket on a port that the system chooses.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use super::figures::random_part;
use fairgate_base::tasks;
use fairgate_loadkit::accepting;

/// What a server can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerModel {
    /// The number of requests that it executes concurrently.
    pub(super) workers: u32,
    /// The mean service time.
    pub(super) service_time: Duration,
}

const BODY: &[u8] =
    br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"demo","namespace":"default"}}"#;

/// A running stand-in. Dropping it stops it immediately.
#[derive(Debug)]
pub(super) struct StandInServer {
    address: SocketAddr,
    workers: Arc<Workers>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct Workers {
    model: ServerModel,
    free: Semaphore,
    /// Current requests, and their maximum.
    here: AtomicUsize,
    most: AtomicUsize,
    /// Requests started so far.
    begun: AtomicU64,
}

impl StandInServer {
    /// Starts it on the current runtime.
    pub(super) async fn start(model: ServerModel) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let workers = Arc::new(Workers {
            model,
            free: Semaphore::new(model.workers as usize),
            here: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(tasks::boxed(accept(listener, Arc::clone(&workers))));
        Ok(Self {
            address,
            workers,
            _accepting: accepting,
        })
    }

    /// The address it listens on.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The maximum of concurrent requests, including those in its queue.
    pub(super) fn most_at_once(&self) -> usize {
        self.workers.most.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, workers: Arc<Workers>) {
    let serve = move |stream| {
        let workers = Arc::clone(&workers);
        async move {
            let service = service_fn(|_request| {
                let workers = Arc::clone(&workers);
                async move { Ok::<_, Infallible>(workers.execute().await) }
            });
            // The gateway reports connections that break.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    };
    accepting::accept(listener, serve).await;
}

impl Workers {
    /// Executes one request when a worker is free. Waiting requests get workers in the order of arrival.
    async fn execute(&self) -> Response<Full<Bytes>> {
        let _here = RunningRequest::enter(self);
        // The semaphore is fair, and is never closed.
        let _worker = self.free.acquire().await;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.model.service_time_of(number)).await;
        let mut response = Response::new(Full::new(Bytes::from_static(BODY)));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }
}

impl ServerModel {
    /// The service time of the request with this number; the same in every run.
    fn service_time_of(self, number: u64) -> Duration {
        self.service_time * 4 / 5 + random_part(number, self.service_time * 2 / 5)
    }
}

/// A request in progress; counted down also when its connection breaks.
struct RunningRequest<'a>(&'a Workers);

impl<'a> RunningRequest<'a> {
    fn enter(workers: &'a Workers) -> Self {
        let here = workers.here.fetch_add(1, Ordering::Relaxed) + 1;
        workers.most.fetch_max(here, Ordering::Relaxed);
        Self(workers)
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        self.0.here.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_fifty_milliseconds_on_average() {
        let model = ServerModel {
            workers: 10,
            service_time: Duration::from_millis(50),
        };
        let times = (0..10_000).map(|number| model.service_time_of(number));
        let times: Vec<Duration> = times.collect();
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!((40..41).contains(&least.as_millis()), "{least:?}");
        assert!((59..60).contains(&most.as_millis()), "{most:?}");
        let mean = times.iter().sum::<Duration>() / 10_000;
        assert!(
            mean.abs_diff(model.service_time) < Duration::from_micros(200),
            "{mean:?}"
        );
    }
}
