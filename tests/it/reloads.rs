//! What SIGHUP changes at once, and what it says.

use std::sync::{Arc, Mutex};

use rustls::{
    SignatureScheme, client::ResolvesClientCert, pki_types::ServerName, sign::CertifiedKey,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    pki::{Authority, Leaf},
    process::{GatewayProcess, ProcessOptions, get, wait_until},
};

/// Has a gateway read a configuration with these members instead.
fn reload(gateway: &GatewayProcess, members: &Value) {
    let file = gateway.directory.join("fairgate.yaml");
    let mut configuration: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (key, value) in members.as_object().unwrap() {
        configuration[key] = value.clone();
    }
    let reloads = || gateway.metric("fairgate_config_reloads_total{outcome=\"ok\"}");
    let before = reloads().unwrap_or_default();
    gateway.write("fairgate.yaml", &configuration.to_string());
    gateway.hang_up();
    wait_until("it is applied", || reloads() == Some(before + 1));
}

#[test]
fn the_log_changes_at_once() {
    let gateway = GatewayProcess::start(json!({"log": {"level": "info"}}));
    let request = |path: &str| drop(get(gateway.address, path));
    request("/quiet");
    reload(
        &gateway,
        &json!({"log": {"level": "info", "access": true, "format": "json"}, "dataCores": 3}),
    );
    request("/told");
    let told: Value = serde_json::from_str(&gateway.wait_for_log("/told", 1)[0]).unwrap();
    assert_eq!(told["target"], "fairgate::access");
    assert!(gateway.logged("/quiet").is_empty());
    let changed = gateway.logged("this key changed, and is in force");
    for words in [
        r#""log.access","from":"false","to":"true""#,
        r#""log.format""#,
    ] {
        assert!(
            changed.iter().any(|line| line.contains(words)),
            "{changed:?}"
        );
    }
    let waiting = gateway.logged("it takes effect after a restart");
    assert!(waiting[0].contains(r#""key":"dataCores""#), "{waiting:?}");
    assert!(waiting[0].contains(r#""to":"3""#), "{waiting:?}");

    // The log says that it says less from now on.
    reload(
        &gateway,
        &json!({"log": {"level": "error", "format": "text"}}),
    );
    let less = |line: &String| line.contains("log.level") && line.contains("error");
    let changed = gateway.wait_for_log("this key changed, and is in force", 3);
    assert!(changed.iter().any(less), "{changed:?}");
    request("/quiet");
    reload(
        &gateway,
        &json!({"log": {"level": "error", "format": "json"}}),
    );
    gateway.write("fairgate.yaml", "nonsense");
    gateway.hang_up();
    let refused = "the configuration is invalid";
    gateway.wait_for_log(refused, 1);
    let lines = gateway.logged("");
    let told_less = lines.iter().rposition(less).unwrap();
    assert!(lines[told_less + 1].contains(refused), "{lines:?}");
    assert!(gateway.logged("/quiet").is_empty());
}

/// The subjects that servers have named to a client, which presents no certificate.
#[derive(Debug, Default)]
struct NamedAuthorities(Mutex<Vec<Vec<u8>>>);

impl ResolvesClientCert for NamedAuthorities {
    fn resolve(&self, named: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        *self.0.lock().unwrap() = named.iter().map(|one| one.to_vec()).collect();
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Go's clients present no certificate whose authority the server does not name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_told_the_authorities_that_are_trusted_now() {
    let servers = Authority::new("servers");
    let [before, after] = ["before", "after"].map(Authority::new);
    let (certificate, key) = servers.issue_pem(&Leaf::named("localhost"));
    let identity = json!({"certFile": "own.crt", "keyFile": "own.key"});
    let gateway = GatewayProcess::with(
        json!({
            "listen": {"tls": identity},
            "authentication": {"clientCertificate": {"caFile": "clients.crt"}},
        }),
        &ProcessOptions {
            files: vec![
                ("own.crt", certificate),
                ("own.key", key),
                ("clients.crt", before.pem()),
            ],
            ..ProcessOptions::default()
        },
    );
    let named = async || {
        let told = Arc::<NamedAuthorities>::default();
        let mut config = rustls::ClientConfig::clone(&servers.client(None, &[b"h2"]));
        config.client_auth_cert_resolver = Arc::clone(&told) as _;
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        drop(connector.connect(name, stream).await.unwrap());
        let subjects = std::mem::take(&mut *told.0.lock().unwrap());
        let names = |subject: &[u8], text: &str| {
            subject.windows(text.len()).any(|at| at == text.as_bytes())
        };
        ["before", "after"].map(|text| subjects.iter().any(|subject| names(subject, text)))
    };
    assert_eq!(named().await, [true, false]);
    gateway.write("clients.crt", &after.pem());
    reload(&gateway, &json!({}));
    assert_eq!(named().await, [false, true]);
}
