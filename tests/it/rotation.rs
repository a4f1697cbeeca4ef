//! Certificates, keys and tokens that are replaced in their files while a gateway runs.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use fairgate::{
    app::{self, Running},
    config::Config,
    observe::GatewayMetrics,
};
use http::{Method, StatusCode, header::AUTHORIZATION};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    client::{TestClient, body_text, soon},
    pki::{Authority, Leaf},
    process::write_at_once,
    upstream::{Speaks, TestReply, TestUpstream, full, text},
};

/// The files of one gateway.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-rotation-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, contents: &str) {
        write_at_once(&self.0.join(name), contents);
    }

    /// Writes `NAME.crt` and `NAME.key`; returns the certificate.
    fn write_identity(&self, name: &str, by: &Authority, leaf: &Leaf) -> CertificateDer<'static> {
        let (certificate, key) = by.issue_pem(leaf);
        self.write(&format!("{name}.crt"), &certificate);
        self.write(&format!("{name}.key"), &key);
        CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()
    }

    async fn start(&self, more: &str) -> Running {
        let text = format!(
            "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\n\
             dataCores: 1\n{}drain: {{delay: 0s, grace: 0s}}\n{more}",
            if more.contains("admin:") {
                ""
            } else {
                "admin: {address: '127.0.0.1:0'}\n"
            }
        );
        let (config, _) = Config::parse("test.yaml", &self.0, text.as_bytes())
            .usable()
            .unwrap();
        let started =
            tokio::task::spawn_blocking(move || app::start(config, None, GatewayMetrics::new()));
        started.await.unwrap().unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Repeats `attempt` until it returns true.
async fn until(mut attempt: impl AsyncFnMut() -> bool) {
    soon(async {
        while !attempt().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Accepts every client certificate, and records which were presented.
#[derive(Clone, Debug, Default)]
struct Presented(Arc<Mutex<Vec<CertificateDer<'static>>>>);

impl Presented {
    /// The certificates presented since the last call.
    fn take(&self) -> Vec<CertificateDer<'static>> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl ClientCertVerifier for Presented {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.lock().unwrap().push(leaf.clone().into_owned());
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// An upstream that demands client certificates, reviews every token as valid, and closes each connection after
/// one response.
fn upstream(authority: &Authority, presented: &Presented) -> TestUpstream {
    let (chain, key) = authority.issue_with_key(&Leaf::named("localhost"));
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(presented.clone()))
        .with_single_cert(chain, key)
        .unwrap();
    // A resumed session presents no certificate.
    config.send_tls13_tickets = 0;
    TestUpstream::start(Speaks::Tls(Arc::new(config)), |request| {
        let is_review = request.uri().path().ends_with("/tokenreviews");
        async move {
            closing(if is_review {
                text(r#"{"status": {"authenticated": true, "user": {"username": "alice"}}}"#)
            } else {
                text("served")
            })
        }
    })
}

fn closing(mut reply: TestReply) -> TestReply {
    let close = http::HeaderValue::from_static("close");
    reply.headers_mut().insert("connection", close);
    reply
}

/// Sends a request with a token that was never used before, so that the gateway has it reviewed.
async fn send(gateway: &Running) -> StatusCode {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let token = format!("Bearer token-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut client = TestClient::http1(gateway.address()).await;
    let request = client.request(Method::GET, "/api");
    let request = request.header(AUTHORIZATION, token).body(full(""));
    let response = client.send(request.unwrap()).await.unwrap();
    let status = response.status();
    body_text(response).await;
    status
}

#[tokio::test]
async fn forwarded_requests_and_the_gateways_own_present_a_replaced_client_certificate() {
    let (servers, first, second) = (
        Authority::new("servers"),
        Authority::new("first"),
        Authority::new("second"),
    );
    let (files, presented) = (Files::new(), Presented::default());
    files.write("ca.crt", &servers.pem());
    let before = files.write_identity("own", &first, &Leaf::new("fairgate"));
    let upstream = upstream(&servers, &presented);
    let gateway = files
        .start(&format!(
            "listen: {{address: '127.0.0.1:0'}}\n\
             upstream:\n  url: https://{}\n  tlsServerName: localhost\n  caFile: ca.crt\n  \
             clientCertificate: {{certFile: own.crt, keyFile: own.key}}\n",
            upstream.address
        ))
        .await;
    assert_eq!(send(&gateway).await, 200);
    let all = presented.take();
    assert!(all.len() >= 2, "a review and the request itself");
    assert!(all.iter().all(|certificate| *certificate == before));

    let after = files.write_identity("own", &second, &Leaf::new("fairgate"));
    until(async || {
        assert_eq!(send(&gateway).await, 200);
        let shown = presented.take();
        assert!(shown.len() >= 2);
        shown.iter().all(|one| *one == after)
    })
    .await;

    // A certificate without its key is not used; the next good pair is.
    let (orphan, _) = second.issue_pem(&Leaf::new("fairgate"));
    files.write("own.crt", &orphan);
    for _ in 0..20 {
        // Beside busy processes, the time for a connection may pass.
        until(async || send(&gateway).await == 200).await;
    }
    assert!(presented.take().iter().all(|shown| *shown == after));
    let last = files.write_identity("own", &first, &Leaf::new("fairgate"));
    until(async || {
        assert_eq!(send(&gateway).await, 200);
        let shown = presented.take();
        assert!(shown.len() >= 2);
        assert!(shown.iter().all(|one| *one == after || *one == last));
        shown.iter().all(|one| *one == last)
    })
    .await;
}

#[tokio::test]
async fn an_upstream_of_a_new_authority_is_trusted_once_the_bundle_has_it() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (files, presented) = (Files::new(), Presented::default());
    files.write("ca.crt", &old.pem());
    files.write_identity("own", &old, &Leaf::new("fairgate"));
    let upstream = upstream(&new, &presented);
    let gateway = files
        .start(&format!(
            "listen: {{address: '127.0.0.1:0'}}\n\
             authentication: {{tokenReview: {{enabled: false}}, anonymous: {{paths: ['*']}}}}\n\
             upstream:\n  url: https://{}\n  tlsServerName: localhost\n  caFile: ca.crt\n  \
             clientCertificate: {{certFile: own.crt, keyFile: own.key}}\n",
            upstream.address
        ))
        .await;
    let get = async || {
        let mut client = TestClient::http1(gateway.address()).await;
        client.get("/api").await.status()
    };
    assert_eq!(get().await, 503);
    files.write("ca.crt", &format!("{}{}", old.pem(), new.pem()));
    until(async || get().await == 200).await;
}

#[tokio::test]
async fn a_renewed_token_is_sent() {
    let files = Files::new();
    files.write("token", "first\n");
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let gateway = files
        .start(&format!(
            "listen: {{address: '127.0.0.1:0'}}\n\
             authentication: {{tokenReview: {{enabled: false}}, anonymous: {{paths: ['*']}}}}\n\
             upstream: {{url: 'http://{}', tokenFile: token}}\n",
            upstream.address
        ))
        .await;
    let sent = async || {
        let mut client = TestClient::http1(gateway.address()).await;
        assert_eq!(client.get("/api").await.status(), 200);
        let mut seen = upstream.seen().into_iter();
        let last = seen.rfind(|seen| seen.target == "/api");
        last.unwrap().headers[AUTHORIZATION].clone()
    };
    assert_eq!(sent().await, "Bearer first");
    files.write("token", "second\n");
    until(async || sent().await == "Bearer second").await;
    files.write("token", "two words\n");
    for _ in 0..20 {
        assert_eq!(sent().await, "Bearer second");
    }
    files.write("token", "third\n");
    until(async || match sent().await {
        token if token == "Bearer third" => true,
        token => {
            assert_eq!(token, "Bearer second");
            false
        }
    })
    .await;
}

#[tokio::test]
async fn clients_are_shown_a_replaced_serving_certificate() {
    let authority = Authority::new("servers");
    let files = Files::new();
    let before = files.write_identity("own", &authority, &Leaf::named("localhost"));
    let gateway = files
        .start("listen: {address: '127.0.0.1:0', tls: {certFile: own.crt, keyFile: own.key}}\n")
        .await;
    let shown = async || shown_at(gateway.address(), &authority).await;
    assert_eq!(shown().await, before);
    let after = files.write_identity("own", &authority, &Leaf::named("localhost"));
    until(async || shown().await == after).await;
}

#[tokio::test]
async fn a_replaced_certificate_is_shown_on_the_secure_admin_port() {
    let authority = Authority::new("servers");
    let files = Files::new();
    let before = files.write_identity("own", &authority, &Leaf::named("localhost"));
    let gateway = files
        .start(
            "listen: {address: '127.0.0.1:0'}\nadmin: {address: '127.0.0.1:0', secure: \
             {address: '127.0.0.1:0', tls: {certFile: own.crt, keyFile: own.key}}}\n",
        )
        .await;
    let address = gateway.secure_admin_address().unwrap();
    assert_eq!(shown_at(address, &authority).await, before);
    let after = files.write_identity("own", &authority, &Leaf::named("localhost"));
    until(async || shown_at(address, &authority).await == after).await;
}

#[tokio::test]
async fn without_a_certificate_of_its_own_the_secure_admin_port_shows_that_of_clients_also_renewed()
{
    let authority = Authority::new("servers");
    let files = Files::new();
    let before = files.write_identity("own", &authority, &Leaf::named("localhost"));
    let gateway = files
        .start(
            "listen: {address: '127.0.0.1:0', tls: {certFile: own.crt, keyFile: own.key}}\n\
             admin: {address: '127.0.0.1:0', secure: {address: '127.0.0.1:0'}}\n",
        )
        .await;
    let address = gateway.secure_admin_address().unwrap();
    assert_eq!(shown_at(address, &authority).await, before);
    let after = files.write_identity("own", &authority, &Leaf::named("localhost"));
    until(async || shown_at(address, &authority).await == after).await;
}

/// The certificate that the server at `address` shows.
async fn shown_at(address: SocketAddr, authority: &Authority) -> CertificateDer<'static> {
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = TlsConnector::from(authority.client(None, &[b"h2"]))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
        .unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}
