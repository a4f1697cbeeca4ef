//! Object counts from the upstream's own metrics, once a minute, where the gateway may read them.
//!
//! They tell what a list will cost before the first one has passed. A connection of its own for each
//! reading: it happens rarely, and must not depend on any pool.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request, StatusCode,
    header::{ACCEPT, HOST},
    uri::Authority,
};
use http_body_util::Empty;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::observe::upstream_counts::{self, FetchError, ObjectCount};
use fairgate_base::clock::Clock;
use fairgate_core::apf::scope::StatsScope;
use fairgate_proxy::fairness::Hub;

/// How often the metrics are read; the upstream itself counts about as often.
const PERIOD: Duration = Duration::from_secs(60);
/// The limit of connecting and of waiting for the head of the answer.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Where the upstream's metrics are, and who asks for them.
#[derive(Clone)]
pub(super) struct UpstreamMetrics {
    pub(super) authority: Authority,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The headers by which the gateway proves itself.
    pub(super) headers: Arc<dyn Fn() -> HeaderMap + Send + Sync>,
}

/// Reads the metrics for ever, and tells the hub what they count.
pub(super) async fn follow(hub: Arc<Hub>, clock: Clock, metrics: UpstreamMetrics) {
    let seed = |counts: &[ObjectCount]| {
        let now = clock.now();
        hub.with_counts(|known| {
            for count in counts {
                let scope = StatsScope {
                    group: count.group.as_bytes(),
                    resource: count.resource.as_bytes(),
                    namespace: None,
                };
                known.seed(now, &scope, count.count, count.total_bytes);
            }
        });
    };
    upstream_counts::follow(|| metrics.clone().fetch(), PERIOD, seed).await;
}

impl UpstreamMetrics {
    async fn fetch(self) -> Result<Incoming, FetchError> {
        let answer = tokio::time::timeout(HEAD_LIMIT, self.ask()).await;
        answer.unwrap_or_else(|_| Err(FetchError::Failed("no answer in time".into())))
    }

    async fn ask(self) -> Result<Incoming, FetchError> {
        let port = if self.tls.is_some() { 443 } else { 80 };
        let port = self.authority.port_u16().unwrap_or(port);
        let host = self.authority.host().trim_matches(['[', ']']);
        let tcp = TcpStream::connect((host, port)).await.map_err(failed)?;
        match &self.tls {
            None => self.get(tcp).await,
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                let tls = connector.connect(name.clone(), tcp).await.map_err(failed)?;
                self.get(tls).await
            }
        }
    }

    async fn get<S>(&self, stream: S) -> Result<Incoming, FetchError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        // It ends with the answer's body.
        tokio::spawn(connection);
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = http::Uri::from_static("/metrics");
        *request.headers_mut() = (self.headers)();
        let host = HeaderValue::from_str(self.authority.as_str()).map_err(failed)?;
        request.headers_mut().insert(HOST, host);
        request
            .headers_mut()
            .insert(ACCEPT, HeaderValue::from_static("text/plain"));
        let answer = sender.send_request(request).await.map_err(failed)?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Err(FetchError::Forbidden),
            status => Err(FetchError::Failed(format!("it answered {status}").into())),
        }
    }
}

fn failed(error: impl std::fmt::Display) -> FetchError {
    FetchError::Failed(error.to_string().into())
}
