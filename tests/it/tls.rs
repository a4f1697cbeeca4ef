//! TLS on both sides.

use std::sync::{Arc, Mutex};

use fairgate_call::{Call, Refusal, Reply, ReplyBody};
use fairgate_proxy::{
    forward::UpstreamSettings,
    serve::tls::{ServingCertificate, ServingTls},
};
use fairgate_upstream::tls::UpstreamTls;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    client::{TestClient, body_text, piece, soon},
    gate::{Gate, Leaf},
    pki::{self, Authority, Chain},
    upstream::{Speaks, TestUpstream, full},
};

async fn connect(
    gate: &Gate,
    pki: &Authority,
    own: Option<Chain>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(gate.address()).await?;
    TlsConnector::from(pki.client(own, protocols))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

/// How to reach an upstream whose certificate is of this authority.
fn towards(upstream: &TestUpstream, pki: &Authority) -> UpstreamSettings {
    let config = fairgate_upstream::tls::client_config([pki.certificate()], None).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    UpstreamSettings::new(
        upstream.address.to_string().parse().unwrap(),
        Some(UpstreamTls::new(config, name)),
    )
}

#[tokio::test]
async fn both_protocols_are_negotiated_with_clients_and_upstream() {
    let pki = Authority::new("test root");
    for offered in [vec![&b"h2"[..], b"http/1.1"], vec![b"http/1.1"], vec![]] {
        let upstream = TestUpstream::saying(Speaks::Tls(pki.server(&offered)), "served");
        let to = towards(&upstream, &pki);
        let (chain, key) = pki.issue_with_key(&pki::Leaf::named("localhost"));
        let own =
            ServingTls::new(&ServingCertificate::new(chain, key).unwrap(), Vec::new()).unwrap();
        let gate = Gate::towards(to, |settings, _| settings.serve.tls = Some(own));
        for protocol in [&b"h2"[..], b"http/1.1"] {
            let stream = connect(&gate, &pki, None, &[protocol]).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
            let io = TokioIo::new(stream);
            let mut client = if protocol == b"h2" {
                TestClient::http2_over(io).await
            } else {
                TestClient::http1_over(io).await
            };
            assert_eq!(body_text(client.get("/api").await).await, "served");
        }
        for seen in upstream.seen() {
            assert_eq!(seen.headers["x-forwarded-proto"], "https");
            let http2 = offered.contains(&&b"h2"[..]);
            assert_eq!(seen.version == http::Version::HTTP_2, http2);
        }
    }
}

#[tokio::test]
async fn a_long_body_arrives_whole_at_an_upstream_that_reads_slowly() {
    const LENGTH: usize = 8 << 20;
    let pki = Authority::new("test root");
    for offered in [&b"http/1.1"[..], b"h2"] {
        let speaks = Speaks::Tls(pki.server(&[offered]));
        // It reads less than comes, so that the last bytes wait for room in the socket.
        let upstream = TestUpstream::start(speaks, |request| async {
            let (mut body, mut length) = (request.into_body(), 0);
            while let Some(Ok(data)) = piece(&mut body).await {
                length += data.len();
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            http::Response::new(full(length.to_string()))
        });
        let gate = Gate::towards(towards(&upstream, &pki), |_, _| ());
        let mut client = TestClient::http1(gate.address()).await;
        let sent = client.post("/api", full(vec![b'x'; LENGTH]));
        let answered = soon(async { body_text(sent.await).await }).await;
        assert_eq!(answered, LENGTH.to_string(), "{offered:?}");
    }
}

#[tokio::test]
async fn an_upstream_of_an_untrusted_authority_gets_no_request() {
    let (ours, theirs) = (Authority::new("test root"), Authority::new("test root"));
    let upstream = TestUpstream::saying(Speaks::Tls(theirs.server(&[b"h2"])), "served");
    let config = fairgate_upstream::tls::client_config([ours.certificate()], None).unwrap();
    let to = UpstreamSettings::new(
        upstream.address.to_string().parse().unwrap(),
        Some(UpstreamTls::new(
            config,
            ServerName::try_from("localhost").unwrap(),
        )),
    );
    let gate = Gate::towards(to, |_, _| {});
    let mut client = TestClient::http1(gate.address()).await;
    assert_eq!(client.get("/api").await.status(), 503);
    assert!(upstream.seen().is_empty());
}

type Chains = Arc<Mutex<Vec<Vec<CertificateDer<'static>>>>>;

/// Keeps the certificates that the client presented.
fn certificates(chains: Chains) -> Leaf<impl FnMut(&Call) -> Result<Reply, Refusal> + Clone> {
    Leaf(move |call: &Call| {
        let presented = call.peer.certificates().to_vec();
        chains.lock().unwrap().push(presented);
        Ok(http::Response::new(ReplyBody::empty()))
    })
}

#[tokio::test]
async fn any_certificate_whose_key_the_client_holds_is_passed_to_the_layers() {
    let (pki, stranger) = (Authority::new("test root"), Authority::new("test root"));
    let (chain, key) = pki.issue_with_key(&pki::Leaf::named("localhost"));
    let own = ServingTls::new(&ServingCertificate::new(chain, key).unwrap(), Vec::new()).unwrap();
    let shown: Chains = Arc::default();
    let leaf = certificates(shown.clone());
    let gate = Gate::around(
        move || leaf.clone(),
        |settings| settings.serve.tls = Some(own),
    );
    let alice = stranger.issue_with_key(&pki::Leaf::named("alice"));
    let expected = alice.0.clone();
    for own in [None, Some(alice)] {
        let stream = connect(&gate, &pki, own, &[b"h2"]).await.unwrap();
        let mut client = TestClient::http2_over(TokioIo::new(stream)).await;
        assert_eq!(client.get("/api").await.status(), 200);
    }
    assert_eq!(*shown.lock().unwrap(), [Vec::new(), expected]);
}

#[tokio::test]
async fn a_certificate_whose_key_the_client_does_not_hold_ends_the_handshake() {
    let pki = Authority::new("test root");
    let (chain, key) = pki.issue_with_key(&pki::Leaf::named("localhost"));
    let own = ServingTls::new(&ServingCertificate::new(chain, key).unwrap(), Vec::new()).unwrap();
    let gate = Gate::around(
        || certificates(Arc::default()),
        |settings| settings.serve.tls = Some(own),
    );
    let (stolen, _) = pki.issue_with_key(&pki::Leaf::named("alice"));
    let (_, other_key) = pki.issue_with_key(&pki::Leaf::named("mallory"));
    let provider = rustls::crypto::ring::default_provider();
    let key = provider.key_provider.load_private_key(other_key).unwrap();
    let mut config = rustls::ClientConfig::clone(&pki.client(None, &[b"h2"]));
    config.client_auth_cert_resolver = Arc::new(Thief(Arc::new(rustls::sign::CertifiedKey::new(
        stolen, key,
    ))));
    let stream = TcpStream::connect(gate.address()).await.unwrap();
    let connected = TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await;
    // In TLS 1.3 the client has completed the handshake before the server rejects it; the first read fails.
    if let Ok(mut stream) = connected {
        let read = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1]).await;
        assert!(read.is_err(), "{read:?}");
    }
}

#[derive(Debug)]
struct Thief(Arc<rustls::sign::CertifiedKey>);

impl rustls::client::ResolvesClientCert for Thief {
    fn resolve(
        &self,
        _: &[&[u8]],
        _: &[rustls::SignatureScheme],
    ) -> Option<Arc<rustls::sign::CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
