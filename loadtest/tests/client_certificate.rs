//! Load with a client certificate, against a server that requires one.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Command, Output},
    sync::{Arc, Mutex},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

const SCENARIO: &str = "\
apiVersion: fairgate.dev/v1alpha1
kind: Scenario
title: Certificate
warmUp: 100ms
duration: 300ms
clients:
- name: mouse
  groups: [small]
  load: {closed: {threads: 1, think: 20ms}}
  requests: [{path: /api/v1/namespaces/a/pods/b}]
expect: [all.errors == 0]
";

/// A server that requires client certificates of its authority, and a directory with the files of clients.
struct StrictServer {
    directory: PathBuf,
    url: String,
    /// The headers that say who a user is, of all requests.
    identities: Arc<Mutex<BTreeSet<String>>>,
}

impl StrictServer {
    fn start(name: &str) -> Self {
        let name = format!("fairgate-loadtest-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let issue = |file: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(names).unwrap();
            let certificate = params.signed_by(&key, &authority).unwrap().pem();
            fs::write(directory.join(format!("{file}.crt")), certificate).unwrap();
            fs::write(directory.join(format!("{file}.key")), key.serialize_pem()).unwrap();
        };
        issue("server", &["127.0.0.1"]);
        issue("client", &["mouse"]);
        issue("other", &["cat"]);
        fs::write(directory.join("ca.crt"), authority.pem()).unwrap();
        fs::write(directory.join("token"), "secret\n").unwrap();
        fs::write(directory.join("scenario.yaml"), SCENARIO).unwrap();
        let mut server = Self {
            directory,
            url: String::new(),
            identities: Arc::default(),
        };
        server.listen();
        server
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    /// Serves as long as this process lives.
    fn listen(&mut self) {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.file("ca.crt")).unwrap();
        roots.add(ca).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let chain = CertificateDer::from_pem_file(self.file("server.crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("server.key")).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![chain], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        self.url = format!("https://{}", listener.local_addr().unwrap());
        let identities = Arc::clone(&self.identities);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (config, identities) = (Arc::clone(&config), Arc::clone(&identities));
                std::thread::spawn(move || answer(stream.unwrap(), config, &identities));
            }
        });
    }

    fn run(&self, options: &[&str]) -> Output {
        self.run_against(&self.url, options)
    }

    fn run_against(&self, url: &str, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_fairgate-loadtest"))
            .args(["run", &self.file("scenario.yaml"), "--target", url])
            .args(["--ca", &self.file("ca.crt")])
            .args(options)
            .output()
            .unwrap()
    }

    /// Runs with these options, which must succeed; returns the headers that say who a user is.
    fn identities(&self, options: &[&str]) -> Vec<String> {
        let output = self.run(options);
        assert!(output.status.success(), "{}", said(&output));
        std::mem::take(&mut *self.identities.lock().unwrap())
            .into_iter()
            .collect()
    }
}

impl Drop for StrictServer {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Responds to all requests on a connection.
fn answer(stream: TcpStream, config: Arc<ServerConfig>, identities: &Mutex<BTreeSet<String>>) {
    let tls = ServerConnection::new(config).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    let mut line = String::new();
    // A client without a certificate ends here.
    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let header = line.trim().to_lowercase();
        if header.starts_with("authorization") || header.starts_with("impersonate") {
            identities.lock().unwrap().insert(header.clone());
        }
        line.clear();
        if header.is_empty() {
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            stream.get_mut().write_all(response).unwrap();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &output.stderr].concat()).into_owned()
}

#[test]
fn a_client_certificate_is_shown_instead_of_tokens_and_may_impersonate() {
    let server = StrictServer::start("client-certificate");
    let (certificate, key) = (server.file("client.crt"), server.file("client.key"));
    let shown = ["--client-certificate", &certificate, "--client-key", &key];
    assert!(server.identities(&shown).is_empty());
    let token = server.file("token");
    let with_token = [&shown[..], &["--token", &token]].concat();
    assert_eq!(
        server.identities(&with_token),
        ["authorization: bearer secret"]
    );
    let impersonating = [&shown[..], &["--impersonate"]].concat();
    let impersonated = ["impersonate-group: small", "impersonate-user: mouse"];
    assert_eq!(server.identities(&impersonating), impersonated);
    let without = server.run(&[]);
    assert_eq!(without.status.code(), Some(1));
    let expected = "the server requires a client certificate: name one with --client-certificate and --client-key";
    assert!(said(&without).contains(expected), "{}", said(&without));
}

#[test]
fn a_client_certificate_that_cannot_be_used_is_reported_with_its_file() {
    let server = StrictServer::start("wrong-certificate");
    let problem = |certificate: &str, key: &str| {
        let [certificate, key] = [certificate, key].map(|file| server.file(file));
        let options = ["--client-certificate", &certificate, "--client-key", &key];
        let output = server.run(&options);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    for (certificate, key, file, expected) in [
        (
            "none.crt",
            "client.key",
            "none.crt",
            "cannot be read: No such file",
        ),
        (
            "client.crt",
            "none.key",
            "none.key",
            "cannot be read: No such file",
        ),
        (
            "client.key",
            "client.key",
            "client.key",
            "it has no certificate; --client-certificate wants",
        ),
        (
            "client.crt",
            "client.crt",
            "client.crt",
            "it has no private key; --client-key wants",
        ),
        (
            "client.crt",
            "other.key",
            "other.key",
            "it is not the key of the certificate in ",
        ),
    ] {
        let message = problem(certificate, key);
        let expected = format!("{}: {expected}", server.file(file));
        assert!(message.contains(&expected), "{expected}\n{message}");
    }
}

#[test]
fn a_client_certificate_needs_its_key_and_a_target_with_tls() {
    let server = StrictServer::start("half-certificate");
    let (certificate, key) = (server.file("client.crt"), server.file("client.key"));
    let half = server.run(&["--client-certificate", &certificate]);
    assert_eq!(half.status.code(), Some(2));
    assert!(
        said(&half).contains("--client-key <FILE>"),
        "{}",
        said(&half)
    );
    let nobody = server.run(&["--impersonate"]);
    assert!(
        said(&nobody).contains("--token <FILE>|--client-certificate <FILE>"),
        "{}",
        said(&nobody)
    );
    let shown = ["--client-certificate", &certificate, "--client-key", &key];
    let plain = server.run_against("http://127.0.0.1:1", &shown);
    assert_eq!(plain.status.code(), Some(2));
    assert!(
        said(&plain).contains("http://127.0.0.1:1 has no TLS"),
        "{}",
        said(&plain)
    );
}
