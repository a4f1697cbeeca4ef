//! Requests over real sockets to a server that speaks one protocol or both.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering},
};

use hyper::{server::conn, service::service_fn};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Notify,
};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::endpoint::Endpoint;
use crate::tls::{UpstreamTls, client_config};
use http::{header::HOST, uri::Authority};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// A server on loopback that answers a request as its body says, and counts connections.
struct Server {
    authority: Authority,
    certificate: CertificateDer<'static>,
    connections: Arc<AtomicUsize>,
    /// Notified of each request that is never answered.
    unanswered: Arc<Notify>,
}

impl Server {
    /// Without protocols it speaks plaintext HTTP, otherwise TLS with these in ALPN.
    async fn start(protocols: &[&str]) -> Self {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["upstream".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn(protocols);
        let tls = (!protocols.is_empty()).then(|| TlsAcceptor::from(Arc::new(config)));

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let unanswered = Arc::<Notify>::default();
        let notify = Arc::clone(&unanswered);
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let notify = Arc::clone(&notify);
                match tls.clone() {
                    None => drop(tokio::spawn(serve(tcp, false, notify))),
                    Some(tls) => drop(tokio::spawn(async move {
                        if let Ok(stream) = tls.accept(tcp).await {
                            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                            serve(stream, http2, notify).await;
                        }
                    })),
                }
            }
        });
        Self {
            authority: authority.parse().unwrap(),
            certificate: cert.der().clone(),
            connections,
            unanswered,
        }
    }

    fn client(&self, protocols: &[&str]) -> ApiClient {
        self.client_trusting(protocols, &self.certificate)
    }

    fn client_trusting(
        &self,
        protocols: &[&str],
        certificate: &CertificateDer<'static>,
    ) -> ApiClient {
        let tls = (!protocols.is_empty()).then(|| {
            let config = client_config([certificate.clone()], None).unwrap();
            UpstreamTls::new(config, "upstream".try_into().unwrap())
        });
        let endpoint = Endpoint::new(self.authority.clone(), tls);
        let credentials: HeaderSource = Arc::new(|| {
            let token = HeaderValue::from_static("Bearer gateway");
            [(http::header::AUTHORIZATION, token)].into_iter().collect()
        });
        ApiClient::new(endpoint, credentials, ConnectionReuse::Pooled)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn alpn(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|p| p.as_bytes().to_vec()).collect()
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    http2: bool,
    unanswered: Arc<Notify>,
) {
    let stream = TokioIo::new(stream);
    let service = service_fn(move |request| answer(request, Arc::clone(&unanswered)));
    if http2 {
        let _ = conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    } else {
        let _ = conn::http1::Builder::new()
            .serve_connection(stream, service)
            .await;
    }
}

async fn answer(
    request: Request<Incoming>,
    unanswered: Arc<Notify>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut response = Response::new(Full::new(Bytes::new()));
    let as_expected = head.method == Method::POST
        && head.uri.path() == PATH
        && head.headers["authorization"] == "Bearer gateway"
        && head.headers["content-type"] == "application/json"
        && (head.headers.contains_key(HOST) || head.uri.authority().is_some());
    *response.status_mut() = match &*body {
        _ if !as_expected => StatusCode::IM_A_TEAPOT,
        b"busy" => StatusCode::TOO_MANY_REQUESTS,
        b"silence" => {
            unanswered.notify_one();
            std::future::pending().await
        }
        _ => StatusCode::CREATED,
    };
    match &*body {
        b"busy" => {
            response.headers_mut().insert(RETRY_AFTER, 7.into());
            let status = r#"{"kind":"Status","message":"User \"gate\" has to wait"}"#;
            *response.body_mut() = Full::new(status.into());
        }
        b"close" => {
            let close = HeaderValue::from_static("close");
            response
                .headers_mut()
                .insert(http::header::CONNECTION, close);
        }
        b"endless" => *response.body_mut() = Full::new(vec![b'x'; MAX_BODY_BYTES + 1].into()),
        _ => *response.body_mut() = Full::new(body),
    }
    Ok(response)
}

async fn post(client: &ApiClient, text: &'static str) -> Result<Bytes, RequestError> {
    client
        .post_json(PathAndQuery::from_static(PATH), body(text))
        .await
}

fn body(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

const ALL: [&[&str]; 3] = [&[], &["http/1.1"], &["h2", "http/1.1"]];

#[tokio::test]
async fn sequential_requests_share_a_connection_whatever_the_protocol() {
    for protocols in ALL {
        let server = Server::start(protocols).await;
        let client = server.client(protocols);
        for text in ["one", "two", "three"] {
            assert_eq!(post(&client, text).await, Ok(body(text)));
        }
        assert_eq!(server.connections(), 1, "{protocols:?}");
    }
}

#[tokio::test]
async fn concurrent_requests_share_a_connection_over_http2_only() {
    for (protocols, shared) in [(&["http/1.1"][..], false), (&["h2"], true)] {
        let server = Server::start(protocols).await;
        let client = server.client(protocols);
        post(&client, "first").await.unwrap();
        let posts = (post(&client, "a"), post(&client, "b"), post(&client, "c"));
        let answers = tokio::join!(posts.0, posts.1, posts.2);
        assert_eq!(
            answers,
            (Ok(body("a")), Ok(body("b")), Ok(body("c"))),
            "{protocols:?}"
        );
        assert_eq!(server.connections() == 1, shared, "{protocols:?}");
    }
}

#[tokio::test]
async fn a_status_comes_back_with_its_retry_after_and_keeps_the_connection() {
    for protocols in ALL {
        let server = Server::start(protocols).await;
        let client = server.client(protocols);
        assert_eq!(
            post(&client, "busy").await,
            Err(RequestError::Status {
                status: 429,
                retry_after: Some(Duration::from_secs(7)),
                message: "User \"gate\" has to wait".into(),
            })
        );
        assert_eq!(post(&client, "x").await, Ok(body("x")));
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn a_closed_connection_is_replaced() {
    let server = Server::start(&[]).await;
    let client = server.client(&[]);
    post(&client, "close").await.unwrap();
    assert_eq!(post(&client, "x").await, Ok(body("x")));
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_whose_request_was_dropped_is_not_reused() {
    for protocols in ALL {
        let server = Server::start(protocols).await;
        let client = server.client(protocols);
        post(&client, "x").await.unwrap();
        tokio::select! {
            answer = post(&client, "silence") => panic!("{answer:?}"),
            () = server.unanswered.notified() => {}
        }
        assert_eq!(post(&client, "y").await, Ok(body("y")));
        assert_eq!(server.connections(), 2, "{protocols:?}");
    }
}

#[tokio::test]
async fn an_endless_response_is_cut_off() {
    for protocols in ALL {
        let server = Server::start(protocols).await;
        let client = server.client(protocols);
        assert_eq!(
            post(&client, "endless").await,
            Err(RequestError::TooLong {
                max_bytes: MAX_BODY_BYTES
            })
        );
        assert_eq!(post(&client, "x").await, Ok(body("x")));
    }
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_without_the_certificate_of_the_upstream() {
    let (server, other) = (Server::start(&["h2"]).await, Server::start(&["h2"]).await);
    let client = server.client_trusting(&["h2"], &other.certificate);
    let refused = post(&client, "x").await;
    assert!(matches!(refused, Err(RequestError::Connect { .. })));
}

#[tokio::test]
async fn an_unreachable_upstream_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = Server::start(&[]).await;
    server.authority = listener.local_addr().unwrap().to_string().parse().unwrap();
    drop(listener);
    let refused = post(&server.client(&[]), "x").await;
    assert!(matches!(refused, Err(RequestError::Connect { .. })));
}
