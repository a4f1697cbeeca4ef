//! The sockets of the stand-in server.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_rustls::TlsAcceptor;

use super::workers::Workers;
use crate::{
    objects::StandInObjects,
    scenario::{Scenario, ServiceSpread, UpstreamSpec},
};
use fairgate_core::{digest::RequestInfo, random::Random};
use fairgate_loadkit::accepting;

/// Length of the kernel's queue of connections that are not accepted yet; the default of Linux, which Go uses, too.
const BACKLOG: i32 = 4096;

/// Where the stand-in listens; printed as one line of JSON when it does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UpstreamAddresses {
    /// The address for requests.
    pub(crate) address: SocketAddr,
    /// The address at which the stand-in is controlled.
    pub(crate) control: SocketAddr,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

struct StandIn {
    spec: UpstreamSpec,
    seed: u64,
    workers: Arc<Workers>,
    objects: StandInObjects,
    requests: AtomicU64,
    down: watch::Sender<bool>,
}

/// Serves until the process ends, with TLS if there are settings for it; `listening` gets the addresses. The control
/// has no TLS.
///
/// # Errors
///
/// When an address cannot be used.
pub(crate) async fn serve(
    scenario: &Scenario,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    listening: impl FnOnce(UpstreamAddresses) -> io::Result<()>,
) -> io::Result<()> {
    let spec = scenario.upstream.clone();
    let listener = listen(address).await?;
    let control = TcpListener::bind((address.ip(), 0)).await?;
    listening(UpstreamAddresses {
        address: listener.local_addr()?,
        control: control.local_addr()?,
    })?;
    let server = Arc::new(StandIn {
        workers: Workers::start(
            spec.capacity_of_server(),
            spec.degradation,
            spec.max_in_flight,
        ),
        objects: StandInObjects::new(spec.clone()),
        spec,
        seed: scenario.seed,
        requests: AtomicU64::new(0),
        down: watch::Sender::new(false),
    });
    tokio::spawn(accept(control, None, Arc::clone(&server), true));
    accept(listener, tls.map(TlsAcceptor::from), server, false).await;
    Ok(())
}

/// Listens on `address`. The default of the standard library is so short a queue that the kernel drops some of a proxy's
/// connections when it opens many at once; each of those is repeated after a second, which would be measured.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    server: Arc<StandIn>,
    controls: bool,
) {
    let serve = move |stream| {
        let (tls, server) = (tls.clone(), Arc::clone(&server));
        async move {
            match tls {
                None => connection(stream, server, controls).await,
                Some(tls) => secured(stream, tls, server).await,
            }
        }
    };
    accepting::accept(listener, serve).await;
}

async fn secured(stream: TcpStream, tls: TlsAcceptor, server: Arc<StandIn>) {
    // The client notices a failed handshake.
    if let Ok(stream) = tls.accept(stream).await {
        connection(stream, server, false).await;
    }
}

/// Serves a connection until it ends, or the server is down.
async fn connection<S>(stream: S, server: Arc<StandIn>, controls: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut down = server.down.subscribe();
    let service = service_fn(|request: Request<Incoming>| {
        let server = Arc::clone(&server);
        async move {
            let response = if controls {
                server.control(&request)
            } else {
                server.answer(request).await
            };
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(1000);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    if controls {
        let _ = serving.await;
        return;
    }
    tokio::select! {
        // The client notices a broken connection.
        _ = serving => {}
        _ = down.wait_for(|down| *down) => {}
    }
}

impl StandIn {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        // The request body is read, as by a real server.
        let _ = body.collect().await;
        let target = head
            .uri
            .path_and_query()
            .map_or("/", |target| target.as_str());
        if head.uri.path() == "/metrics" {
            return response(StatusCode::OK, "text/plain", full(self.objects.metrics()));
        }
        let Ok(info) = RequestInfo::from_target(head.method.as_str(), target) else {
            return response(
                StatusCode::BAD_REQUEST,
                "text/plain",
                full("not a request\n"),
            );
        };
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if !self.workers.execute(self.service_time(&info, number)).await {
            let mut refusal = response(
                StatusCode::TOO_MANY_REQUESTS,
                "text/plain",
                full("Too many requests\n"),
            );
            refusal
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            return refusal;
        }
        let status = if head.method == Method::POST {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        if info.is_watch() {
            return response(StatusCode::OK, "application/json", self.events(&info));
        }
        response(status, "application/json", full(self.objects.body(&info)))
    }

    /// The service time of the request with this number; the same in every run.
    fn service_time(&self, info: &RequestInfo, number: u64) -> Duration {
        let mean = self.spec.mean_service(info);
        let mut random = Random::seeded(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let drawn = random.unit();
        mean.mul_f64(match self.spec.service_of(info).distribution {
            ServiceSpread::Constant => 1.0,
            ServiceSpread::Exponential => (-(1.0 - drawn).ln()).min(10.0),
            ServiceSpread::Bimodal if drawn < 0.1 => 5.5,
            ServiceSpread::Bimodal => 0.5,
        })
    }

    /// The events of a watch: all objects first, unless the client knows them; then one event after another.
    fn events(&self, info: &RequestInfo) -> Body {
        let version = info
            .list
            .as_ref()
            .map_or("", |options| &*options.resource_version);
        let first = match version {
            "" | "0" => self.objects.first_events(info),
            _ => Bytes::new(),
        };
        let event = self.objects.event(info);
        let pause = match self.spec.watch_events {
            rate if rate > 0.0 => Some(Duration::from_secs_f64(1.0 / rate)),
            _ => None,
        };
        let events = stream::unfold(Some(first), move |first| {
            let event = event.clone();
            async move {
                if let Some(first) = first.filter(|first| !first.is_empty()) {
                    return Some((Ok(Frame::data(first)), None));
                }
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending::<()>().await,
                }
                Some((Ok(Frame::data(event)), None))
            }
        });
        StreamBody::new(events).boxed_unsync()
    }

    fn control(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let done = || response(StatusCode::OK, "text/plain", full("done\n"));
        match (request.method(), path, path.strip_prefix("/slowdown/")) {
            (&Method::GET, "/stats", _) => {
                let stats = serde_json::to_string(&self.workers.stats()).unwrap_or_default();
                response(StatusCode::OK, "application/json", full(stats))
            }
            (&Method::POST, "/down" | "/up", _) => {
                self.down.send_replace(path == "/down");
                done()
            }
            (&Method::POST, _, Some(factor)) if factor.parse::<f64>().is_ok_and(f64::is_finite) => {
                self.workers.slow_down(factor.parse().unwrap_or(1.0));
                done()
            }
            _ => response(
                StatusCode::NOT_FOUND,
                "text/plain",
                full("see the documentation\n"),
            ),
        }
    }
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).boxed_unsync()
}

fn response(status: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_connections_can_wait_to_be_accepted() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = Vec::new();
        for _ in 0..1000 {
            let connecting = TcpStream::connect(address);
            let connected = tokio::time::timeout(Duration::from_secs(10), connecting).await;
            connections.push(connected.unwrap().unwrap());
        }
        drop(listener);
    }
}
