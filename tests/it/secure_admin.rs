//! The secure admin port, as a process: metrics, health checks and dumps with TLS, for users that are authenticated
//! as on the main port and authorized by the upstream.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    client::{self, TestClient, connect_from_elsewhere, soon, status},
    failures::until,
    pki::{Authority, Leaf},
    process::{GatewayProcess, ProcessOptions, get},
    upstream::{Speaks, TestReply, TestUpstream, full, text},
};

const DUMP: &str = "/debug/api_priority_and_fairness/dump_priority_levels";

/// The reviews that the upstream was asked for.
#[derive(Clone, Default)]
struct Reviews(Arc<Mutex<Vec<Value>>>);

impl Reviews {
    /// Those of a kind since the last call.
    fn take(&self, kind: &str) -> Vec<Value> {
        let mut all = self.0.lock().unwrap();
        let (of_kind, others) = all.drain(..).partition(|review| review["kind"] == kind);
        *all = others;
        of_kind
    }
}

/// An API server that knows the tokens `prometheus-token` and `other-token`. Prometheus may read metrics and
/// dumps; reviews for the user `broken` fail.
fn upstream(reviews: &Reviews) -> TestUpstream {
    let reviews = reviews.clone();
    TestUpstream::start(Speaks::Http1, move |request: Request<Incoming>| {
        let reviews = reviews.clone();
        async move {
            let Ok(body) = request.into_body().collect().await else {
                return text("");
            };
            let Ok(review) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
                return text("");
            };
            reviews.0.lock().unwrap().push(review.clone());
            reviewed(&review)
        }
    })
}

fn reviewed(review: &Value) -> TestReply {
    let spec = &review["spec"];
    let status = if review["kind"] == "TokenReview" {
        match spec["token"].as_str().unwrap().strip_suffix("-token") {
            Some(user) => {
                json!({"authenticated": true, "user": {"username": user, "groups": ["g"]}})
            }
            None => json!({"authenticated": false}),
        }
    } else {
        let path = spec["nonResourceAttributes"]["path"]
            .as_str()
            .unwrap_or_default();
        let reads = path == "/metrics" || path.starts_with("/debug/") || path.starts_with("/api");
        if spec["user"] == "broken" {
            let mut reply = text("no");
            *reply.status_mut() = StatusCode::FORBIDDEN;
            return reply;
        }
        json!({"allowed": spec["user"] == "prometheus" && reads})
    };
    let mut reply = text("");
    *reply.status_mut() = StatusCode::CREATED;
    *reply.body_mut() = full(json!({"status": status}).to_string());
    reply
}

/// A gateway with a secure admin port, and the authority of its certificate and of its clients'.
struct Secured {
    gateway: GatewayProcess,
    authority: Authority,
}

impl Secured {
    fn start(mut configuration: Value, tokens: &'static str) -> Self {
        let authority = Authority::new("test root");
        let (certificate, key) = authority.issue_pem(&Leaf::named("localhost"));
        let tls = json!({"certFile": "admin.crt", "keyFile": "admin.key"});
        configuration["admin"] = json!({"secure": {"address": "127.0.0.1:0", "tls": tls}});
        configuration["authentication"]["clientCertificate"] = json!({"caFile": "ca.crt"});
        configuration["dataCores"] = json!(1);
        let options = ProcessOptions {
            tokens,
            files: vec![
                ("admin.crt", certificate),
                ("admin.key", key),
                ("ca.crt", authority.pem()),
            ],
            ..ProcessOptions::default()
        };
        let gateway = GatewayProcess::with(configuration, &options);
        Self { gateway, authority }
    }

    fn before(upstream: &TestUpstream) -> Self {
        let url = format!("http://{}", upstream.address);
        Self::start(json!({"upstream": {"url": url}}), "")
    }

    async fn connect(&self, own: Option<&Leaf>, protocol: &'static [u8]) -> TestClient {
        let own = own.map(|leaf| self.authority.issue_with_key(leaf));
        let stream = TcpStream::connect(self.gateway.secure_admin.unwrap())
            .await
            .unwrap();
        let connector = TlsConnector::from(self.authority.client(own, &[protocol]));
        let name = ServerName::try_from("localhost").unwrap();
        let stream = soon(connector.connect(name, stream)).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        if protocol == b"h2" {
            TestClient::http2_over(TokioIo::new(stream)).await
        } else {
            TestClient::http1_over(TokioIo::new(stream)).await
        }
    }

    /// A client without a certificate.
    async fn client(&self) -> TestClient {
        self.connect(None, b"http/1.1").await
    }
}

/// The status, the headers and the text of the response to a `GET`, with a token unless that is empty.
async fn read(client: &mut TestClient, target: &str, token: &str) -> (u16, HeaderMap, String) {
    send(client, Method::GET, target, token).await
}

async fn send(
    client: &mut TestClient,
    method: Method,
    target: &str,
    token: &str,
) -> (u16, HeaderMap, String) {
    let mut request = client.request(method, target);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let response = soon(client.send(request.body(full("")).unwrap()))
        .await
        .unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, client::body_text(response).await)
}

/// The message of a `Status`.
fn message(body: &str) -> String {
    let status: Value = serde_json::from_str(body).unwrap();
    assert_eq!(status["kind"], "Status");
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_is_reviewed_its_user_authorized_and_both_decisions_cached() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream);
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let mut client = gateway.connect(None, protocol).await;
        for _ in 0..2 {
            let (status, headers, text) = read(&mut client, "/metrics", "prometheus-token").await;
            assert_eq!(status, 200, "{text}");
            assert_eq!(
                headers["content-type"],
                "text/plain; version=0.0.4; charset=utf-8"
            );
            let metric = "apiserver_flowcontrol_nominal_limit_seats{apiserver=";
            assert!(text.contains(metric), "{text}");
        }
        let (status, _, text) = read(&mut client, DUMP, "prometheus-token").await;
        assert_eq!(
            (status, text.starts_with("PriorityLevelName,")),
            (200, true),
            "{text}"
        );
    }
    assert_eq!(reviews.take("TokenReview").len(), 1);
    let asked: Vec<Value> = reviews
        .take("SubjectAccessReview")
        .into_iter()
        .map(|review| review["spec"].clone())
        .collect();
    let spec = |path: &str| {
        json!({"user": "prometheus", "groups": ["g", "system:authenticated"],
            "nonResourceAttributes": {"verb": "get", "path": path}})
    };
    assert_eq!(asked, [spec("/metrics"), spec(DUMP)]);
}

#[tokio::test]
async fn requests_without_a_valid_credential_or_permission_get_the_servers_errors() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream);
    let mut client = gateway.client().await;
    for token in ["", "unknown"] {
        let (status, _, body) = read(&mut client, "/metrics", token).await;
        assert_eq!((status, &*message(&body)), (401, "Unauthorized"));
    }
    let (status, _, body) = read(&mut client, "/metrics", "other-token").await;
    let denied = "forbidden: User \"other\" cannot get path \"/metrics\"";
    assert_eq!((status, &*message(&body)), (403, denied));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["reason"], &body["code"]),
        (&json!("Forbidden"), &json!(403))
    );
    // The method decides the verb, and is checked after the authorization.
    let (status, _, body) = send(&mut client, Method::POST, "/metrics", "other-token").await;
    let denied = "forbidden: User \"other\" cannot post path \"/metrics\"";
    assert_eq!((status, &*message(&body)), (403, denied));
    let (status, _, _) = send(&mut client, Method::POST, "/metrics", "prometheus-token").await;
    assert_eq!(status, 405);
    let (status, headers, body) = read(&mut client, "/metrics?x=%3C", "broken-token").await;
    assert_eq!(status, 500);
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert!(
        body.starts_with("Internal Server Error: \"/metrics?x=%3C\": SubjectAccessReview: "),
        "{body}"
    );
}

#[tokio::test]
async fn a_client_certificate_authenticates_and_members_of_system_masters_are_not_reviewed() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream);
    let mut admin = gateway
        .connect(
            Some(&Leaf::new("root").organization("system:masters")),
            b"h2",
        )
        .await;
    assert_eq!(read(&mut admin, "/metrics", "").await.0, 200);
    assert_eq!(read(&mut admin, "/", "").await.0, 200);
    assert_eq!(read(&mut admin, "/nothing", "").await.0, 404);
    assert!(reviews.take("SubjectAccessReview").is_empty());
    let mut prometheus = gateway
        .connect(
            Some(&Leaf::new("prometheus").organization("monitoring")),
            b"http/1.1",
        )
        .await;
    assert_eq!(read(&mut prometheus, "/metrics", "").await.0, 200);
    assert_eq!(read(&mut prometheus, "/readyz/policy", "").await.0, 403);
    let asked = reviews.take("SubjectAccessReview");
    assert_eq!(
        asked[0]["spec"]["groups"],
        json!(["monitoring", "system:authenticated"])
    );
    assert!(reviews.take("TokenReview").is_empty());
}

#[tokio::test]
async fn health_checks_are_allowed_to_everybody_and_a_path_is_never_a_resource() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream);
    let mut client = gateway.client().await;
    for path in ["/livez", "/readyz?verbose", "/healthz"] {
        for token in ["", "other-token"] {
            assert_eq!(read(&mut client, path, token).await.0, 200, "{path}");
        }
    }
    assert!(reviews.take("SubjectAccessReview").is_empty());
    let pods = "/api/v1/namespaces/x/pods";
    assert_eq!(read(&mut client, pods, "prometheus-token").await.0, 404);
    let asked = reviews.take("SubjectAccessReview");
    let attributes = json!({"verb": "get", "path": pods});
    assert_eq!(asked[0]["spec"]["nonResourceAttributes"], attributes);
    assert_eq!(asked[0]["spec"]["resourceAttributes"], Value::Null);
}

#[tokio::test]
async fn scrapes_are_compressed_and_head_has_a_length_but_no_body() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream);
    for protocol in [&b"http/1.1"[..], b"h2"] {
        let mut client = gateway.connect(None, protocol).await;
        let request = client
            .request(Method::GET, "/metrics")
            .header("authorization", "Bearer prometheus-token")
            .header("accept-encoding", "gzip");
        let response = client.send(request.body(full("")).unwrap()).await.unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let length = response.headers()["content-length"].clone();
        let body = client::body(response).await;
        assert_eq!(length, body.len().to_string());
        assert_eq!(body[..2], [0x1f, 0x8b]);
        let (status, headers, body) =
            send(&mut client, Method::HEAD, "/livez", "prometheus-token").await;
        assert_eq!((status, &*body), (200, ""));
        assert_eq!(headers["content-length"], "2");
    }
}

#[tokio::test]
async fn the_plain_admin_port_is_unchanged_and_the_secure_one_has_no_plain_http() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream).gateway;
    assert_eq!(status(&get(gateway.admin, "/metrics")), 200);
    let response = get(gateway.secure_admin.unwrap(), "/livez");
    assert!(!response.starts_with("HTTP/1.1 200"), "{response}");
    // The client may see the end of its connection before the gateway has counted it.
    let is_counted = |line: &str| {
        line.starts_with("apiserver_tls_handshake_errors_total{") && line.ends_with(" 1")
    };
    until(|| gateway.metrics().lines().any(is_counted)).await;
    let errors = gateway.metrics();
    let expiry = "fairgate_certificate_expiry_timestamp_seconds{certificate=\"admin\"}";
    assert!(errors.contains(expiry));
}

/// A connection from 127.0.0.2 that sends nothing.
async fn silent_stranger(secured: &Secured) -> TcpStream {
    connect_from_elsewhere(secured.gateway.secure_admin.unwrap()).await
}

/// Whether the gateway has not closed a connection yet. What it has sent is discarded.
async fn is_open(socket: &TcpStream) -> bool {
    loop {
        let _ = tokio::time::timeout(std::time::Duration::ZERO, socket.readable()).await;
        match socket.try_read(&mut [0; 4096]) {
            Ok(length) if length > 0 => {}
            read => {
                return read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            }
        }
    }
}

/// A connection from 127.0.0.2 after its handshake; `None` if the gateway closes it before.
async fn idle_stranger(secured: &Secured) -> Option<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(secured.authority.client(None, &[b"http/1.1"]));
    let name = ServerName::try_from("localhost").unwrap();
    let stream = silent_stranger(secured).await;
    soon(connector.connect(name, stream)).await.ok()
}

#[tokio::test]
async fn one_address_cannot_keep_prometheus_from_scraping() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let secured = Secured::before(&upstream);
    // More than the port has connections.
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.extend(idle_stranger(&secured).await);
    }
    // Where that takes so long that the first ones are closed for their silence, others come in their place.
    assert!(strangers.len() >= 32, "{}", strangers.len());
    let mut open = 0;
    for stranger in &strangers {
        open += usize::from(is_open(stranger.get_ref().0).await);
    }
    assert!(open <= 32, "{open}");
    let mut prometheus = secured.client().await;
    let (code, _, metrics) = read(&mut prometheus, "/metrics", "prometheus-token").await;
    assert_eq!(code, 200);
    assert!(metrics.contains("fairgate_"), "{metrics}");
    drop(strangers);
    while idle_stranger(&secured).await.is_none() {}
}

#[tokio::test]
async fn silent_connections_are_given_up_for_others_of_the_same_address() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let secured = Secured::before(&upstream);
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(silent_stranger(&secured).await);
    }
    // It is served while the youngest of them still are open.
    let mut stranger = idle_stranger(&secured).await.unwrap();
    soon(stranger.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"))
        .await
        .unwrap();
    let mut answer = [0; 12];
    soon(stranger.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    let mut open = 0;
    for socket in &silent {
        open += usize::from(is_open(socket).await);
    }
    assert!(open <= 31, "{open}");
}

#[tokio::test]
async fn a_client_without_a_handshake_or_a_head_is_closed_however_long_the_main_port_waits() {
    let reviews = Reviews::default();
    let url = format!("http://{}", upstream(&reviews).address);
    let timeouts = json!({"handshake": "10m", "headerRead": "10m", "idle": "10m"});
    let secured = Secured::start(json!({"upstream": {"url": url}, "timeouts": timeouts}), "");
    let mut silent = silent_stranger(&secured).await;
    let mut slow = idle_stranger(&secured).await.unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    assert_eq!(soon(silent.read(&mut [0])).await.unwrap_or(0), 0);
    let mut said = Vec::new();
    // Without a close_notify the end is an error.
    let _ = soon(slow.read_to_end(&mut said)).await;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 408"),
        "{said}"
    );
}

#[tokio::test]
async fn a_head_far_over_64_kib_is_refused() {
    let reviews = Reviews::default();
    let upstream = upstream(&reviews);
    let gateway = Secured::before(&upstream);
    let mut client = gateway.client().await;
    let request = client
        .request(Method::GET, "/livez")
        .header("x-filler", "x".repeat(200_000));
    let response = soon(client.send(request.body(full("")).unwrap()))
        .await
        .unwrap();
    assert_eq!(response.status(), 431);
}

#[tokio::test]
async fn without_an_upstream_the_gateways_own_rules_authorize() {
    let configuration = json!({
        "mode": "standalone",
        "authentication": {"tokenFile": "tokens"},
        "hostedApi": {"readerGroups": ["monitoring"]},
    });
    let tokens = "reader-token,reader,1,monitoring\nroot-token,root,2,system:masters\nbob-token,bob,3,devs\n";
    let gateway = Secured::start(configuration, tokens);
    let mut client = gateway.client().await;
    for (path, token, expected) in [
        ("/metrics", "reader-token", 200),
        ("/metrics", "root-token", 200),
        ("/metrics", "bob-token", 403),
        (DUMP, "reader-token", 403),
        (DUMP, "root-token", 200),
        ("/livez/ping", "bob-token", 200),
    ] {
        let (status, _, body) = read(&mut client, path, token).await;
        assert_eq!(status, expected, "{path} for {token}: {body}");
    }
}
