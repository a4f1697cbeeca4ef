//! What an operator is told in an outage: a line of `/readyz?verbose` and a line of the log each, with what happened,
//! where, and what to do.
//!
//! The alerts of outages are tested by `tests/boards`.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};

use crate::{
    client::{raw, status},
    pki::{Authority, Leaf},
    ports,
    process::{GatewayProcess, ProcessOptions, new_directory, wait_until},
    upstream::{Speaks, TestUpstream},
};

const TOKENS: &str = "root,root,1,system:masters\n";

const REQUEST: &[u8] = b"GET /api/v1/pods HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer root\r\nConnection: close\r\n\r\n";

/// 2001-09-09T01:46:40Z.
const LONG_AGO: i64 = 1_000_000_000;

/// A gateway before `url` that trusts `authority`.
fn before(url: &str, authority: &Authority) -> GatewayProcess {
    let (certificate, key) = authority.issue_pem(&Leaf::named("gateway"));
    let own = json!({"certFile": "gateway.crt", "keyFile": "gateway.key"});
    let upstream = if url.starts_with("https") {
        json!({"url": url, "caFile": "ca.crt", "clientCertificate": own})
    } else {
        json!({"url": url})
    };
    let options = ProcessOptions {
        tokens: TOKENS,
        files: vec![
            ("ca.crt", authority.pem()),
            ("gateway.crt", certificate),
            ("gateway.key", key),
        ],
        ..ProcessOptions::default()
    };
    let configuration = json!({
        "mode": "files", "upstream": upstream, "dataCores": 1, "authentication": {"tokenFile": "tokens"},
    });
    GatewayProcess::with(configuration, &options)
}

/// An upstream with a certificate of `authority` for `leaf`.
fn with_certificate(authority: &Authority, leaf: &Leaf) -> TestUpstream {
    let (chain, key) = authority.issue_with_key(leaf);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    TestUpstream::saying(Speaks::Tls(Arc::new(config)), "served")
}

/// Sends a request, which is refused because of the upstream, and returns what the log and `/readyz` say about that.
fn refused_because(gateway: &GatewayProcess) -> String {
    assert_eq!(status(&raw(gateway.address, REQUEST)), 503);
    assert_eq!(status(&gateway.admin_get("/readyz")), 200);
    let ready = gateway.admin_get("/readyz?verbose");
    let line = ready.lines().find(|line| line.starts_with("[!]upstream: "));
    let line = line.unwrap_or_else(|| panic!("no warning in {ready}"));
    let problem = line.trim_start_matches("[!]upstream: ").to_owned();
    assert!(ready.contains("readyz check passed"), "{ready}");
    // The alert looks at it.
    assert_eq!(gateway.metric("fairgate_upstream_up"), Some(0));
    // The attempt that was logged may have been one or more seconds earlier.
    let timeless = problem.split(" (here it is").next().unwrap();
    let logged = format!("cannot reach the upstream error={timeless}");
    gateway.wait_for_log(&logged, 1);
    problem
}

#[test]
fn an_upstream_that_cannot_be_reached_is_a_warning_that_says_why_and_what_to_do() {
    let authority = Authority::new("test root");
    let url = format!("http://{}", ports::unused());
    let problem = refused_because(&before(&url, &authority));
    assert!(
        problem.starts_with(&format!("{url}: cannot connect: ")),
        "{problem}"
    );
    assert!(
        problem.ends_with("; check that the API server runs and listens there"),
        "{problem}"
    );

    // The top-level domain never exists.
    let url = "https://api.invalid:6443";
    let problem = refused_because(&before(url, &authority));
    assert!(
        problem.starts_with(&format!("{url}: cannot resolve the name: ")),
        "{problem}"
    );
    assert!(
        problem.ends_with("; check upstream.url and DNS"),
        "{problem}"
    );
}

#[test]
fn https_to_an_upstream_that_serves_http_is_called_that() {
    let upstream = TestUpstream::saying(Speaks::Http1, "served");
    let url = format!("https://{}", upstream.address);
    let gateway = before(&url, &Authority::new("test root"));
    assert_eq!(
        refused_because(&gateway),
        format!(
            "{url}: it does not speak TLS; check the port, or write http:// in upstream.url if the server has no TLS"
        )
    );
}

/// Waits for the line of `/readyz` about the upstream, which the gateway's own requests find out, and for the same in the log.
#[track_caller]
fn speaks_tls(gateway: &GatewayProcess, url: &str) {
    let problem = format!(
        "{url}: the server speaks TLS; write https:// in upstream.url, with upstream.caFile"
    );
    wait_until("it is shown", || {
        let ready = gateway.admin_get("/readyz?verbose");
        ready.contains(&format!("\n[!]upstream: {problem}\n"))
    });
    assert_eq!(gateway.metric("fairgate_upstream_up"), Some(0));
    let logged = format!("requests to the upstream fail error={problem}");
    gateway.wait_for_log(&logged, 1);
}

#[test]
fn http_to_an_upstream_that_speaks_tls_is_called_that() {
    let authority = Authority::new("test root");
    // This one answers with an alert.
    let upstream = with_certificate(&authority, &Leaf::named("127.0.0.1"));
    let url = format!("http://{}", upstream.address);
    let gateway = before(&url, &authority);
    speaks_tls(&gateway, &url);
    assert_eq!(status(&raw(gateway.address, REQUEST)), 503);
    assert_eq!(gateway.logged("requests to the upstream fail").len(), 1);
}

#[test]
fn http_to_a_server_in_go_that_speaks_tls_is_called_that() {
    let authority = Authority::new("test root");
    let tls = with_certificate(&authority, &Leaf::named("127.0.0.1"));
    let url = format!("http://{}", as_in_go(tls.address));
    let gateway = before(&url, &authority);
    speaks_tls(&gateway, &url);
    assert_eq!(status(&raw(gateway.address, REQUEST)), 400);
    drop(tls);
}

/// A server before `tls` that answers requests without TLS as Go's does.
fn as_in_go(tls: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut client = stream.unwrap();
            let mut beginning = [0; 4096];
            let length = client.read(&mut beginning).unwrap_or_default();
            if beginning[0] != 0x16 {
                let _ = client.write_all(
                    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
                );
                continue;
            }
            let Ok(mut server) = TcpStream::connect(tls) else {
                return;
            };
            server.write_all(&beginning[..length]).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut client, &mut server));
        }
    });
    address
}

#[test]
fn what_is_wrong_with_the_certificate_of_the_upstream_is_said_with_times_and_names() {
    let authority = Authority::new("test root");
    for (leaf, says) in [
        (
            Leaf::named("127.0.0.1").valid(0, LONG_AGO),
            "its certificate expired at 2001-09-09T01:46:40Z; renew it (here it is ",
        ),
        (
            Leaf::named("127.0.0.1").valid(9_000_000_000, 9_100_000_000),
            "its certificate is valid from 2255-03-14T16:00:00Z only; check the clocks of both machines (here it is ",
        ),
        (
            Leaf::named("kubernetes.default").valid(0, 9_000_000_000),
            "its certificate is for kubernetes.default, not for 127.0.0.1; set upstream.tlsServerName to a name that it has",
        ),
        (
            Leaf::named("127.0.0.1").usages(&[ExtendedKeyUsagePurpose::ClientAuth]),
            "its certificate is not one for servers; issue one with the extended key usage serverAuth",
        ),
    ] {
        let upstream = with_certificate(&authority, &leaf);
        let url = format!("https://{}", upstream.address);
        let problem = refused_because(&before(&url, &authority));
        assert!(problem.starts_with(&format!("{url}: {says}")), "{problem}");
    }
    let upstream = with_certificate(&Authority::new("another root"), &Leaf::named("127.0.0.1"));
    let url = format!("https://{}", upstream.address);
    assert_eq!(
        refused_because(&before(&url, &authority)),
        format!(
            "{url}: its certificate is not signed by a CA in upstream.caFile; add that CA to the file"
        )
    );
}

#[tokio::test]
async fn the_warning_ends_once_the_upstream_can_be_reached() {
    // A port that is bound refuses connections until somebody listens.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let gateway = before(&url, &Authority::new("test root"));
    refused_because(&gateway);
    let listener = socket.listen(16).unwrap().into_std().unwrap();
    listener.set_nonblocking(false).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    assert_eq!(status(&raw(gateway.address, REQUEST)), 200);
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.contains("\n[+]upstream ok\n"), "{ready}");
    assert_eq!(gateway.metric("fairgate_upstream_up"), Some(1));
}

/// An upstream that reads requests, and closes the connection or waits.
fn unanswering(closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            if !closes {
                open.push(stream);
            }
        }
    });
    address.to_string()
}

#[test]
fn an_upstream_that_takes_requests_and_does_not_answer_is_logged() {
    for (closes, code, text) in [
        (
            true,
            502,
            "the upstream closed a connection before it answered; read its log, ",
        ),
        (
            false,
            504,
            "the upstream did not answer a request in time; check its health, ",
        ),
    ] {
        let upstream = unanswering(closes);
        let configuration = json!({
            "mode": "files", "upstream": {"url": format!("http://{upstream}")}, "dataCores": 1,
            "timeouts": {"request": "300ms"}, "authentication": {"tokenFile": "tokens"},
        });
        let options = ProcessOptions {
            tokens: TOKENS,
            ..ProcessOptions::default()
        };
        let gateway = GatewayProcess::with(configuration, &options);
        let request = String::from_utf8_lossy(REQUEST).replace("GET", "DELETE");
        for _ in 0..2 {
            assert_eq!(status(&raw(gateway.address, request.as_bytes())), code);
        }
        let lines = gateway.wait_for_log(text, 2);
        let named = format!("upstream=\"{upstream}\"");
        assert!(lines.iter().all(|line| line.contains(&named)), "{lines:?}");
    }
}

#[test]
fn a_token_review_that_fails_is_logged_once() {
    let url = format!("http://{}", ports::unused());
    let gateway = GatewayProcess::start(json!({
        "mode": "files", "upstream": {"url": url}, "dataCores": 1, "authentication": {"tokenReview": {"enabled": true}},
    }));
    for _ in 0..2 {
        assert_eq!(status(&raw(gateway.address, REQUEST)), 503);
    }
    // A second line about the first would come before the line about the second.
    for line in &gateway.wait_for_log("token", 2)[..2] {
        let text = "token_review: requests get 503 because a bearer token could not be reviewed";
        assert!(line.contains(text), "{line}");
        let error = format!("error=TokenReview: {url}: cannot connect: ");
        assert!(line.contains(&error), "{line}");
    }
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(
        ready.contains(&format!("[!]upstream: {url}: cannot connect: ")),
        "{ready}"
    );
}

/// A gateway whose serving certificate is `leaf`.
fn serving(leaf: &Leaf) -> GatewayProcess {
    let (certificate, key) = Authority::new("test root").issue_pem(leaf);
    let options = ProcessOptions {
        tokens: TOKENS,
        files: vec![("tls.crt", certificate), ("tls.key", key)],
        ..ProcessOptions::default()
    };
    let configuration = json!({
        "mode": "files", "upstream": {"url": format!("http://{}", ports::unused())}, "dataCores": 1,
        "listen": {"tls": {"certFile": "tls.crt", "keyFile": "tls.key"}},
        "authentication": {"tokenFile": "tokens"},
    });
    GatewayProcess::with(configuration, &options)
}

#[test]
fn a_serving_certificate_that_clients_refuse_is_a_warning_until_it_is_replaced() {
    let for_servers = [ExtendedKeyUsagePurpose::ServerAuth];
    for (leaf, problem) in [
        (
            Leaf::named("localhost").valid(0, LONG_AGO),
            "expired at 2001-09-09T01:46:40Z; renew it",
        ),
        (
            Leaf::named("localhost").valid(9_000_000_000, 9_100_000_000),
            "is valid from 2255-03-14T16:00:00Z only; check the clock of this machine, or issue another one",
        ),
        (
            Leaf::new("localhost"),
            "is not one for servers; issue one with the extended key usage serverAuth",
        ),
    ] {
        let gateway = serving(&leaf);
        let ready = gateway.admin_get("/readyz?verbose");
        assert_eq!(status(&ready), 200);
        let line = ready
            .lines()
            .find(|line| line.starts_with("[!]certificates: "));
        let line = line.unwrap_or_else(|| panic!("no warning in {ready}"));
        assert!(
            line.ends_with(&format!("tls.crt (listen.tls) {problem}")),
            "{line}"
        );
        wait_until("it is logged", || gateway.logged(problem).len() == 1);
        let good = Leaf::named("localhost").usages(&for_servers);
        let (certificate, key) = Authority::new("test root").issue_pem(&good);
        gateway.write("tls.crt", &certificate);
        gateway.write("tls.key", &key);
        wait_until("the new certificate is in use", || {
            gateway
                .admin_get("/readyz?verbose")
                .contains("[+]certificates ok\n")
        });
        assert_eq!(gateway.logged(problem).len(), 1, "{problem}");
    }
}

#[test]
fn check_names_certificates_that_peers_refuse() {
    let authority = Authority::new("test root");
    let directory = new_directory();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let (certificate, key) = authority.issue_pem(&Leaf::named("localhost").valid(0, LONG_AGO));
    write("tls.crt", &certificate);
    write("tls.key", &key);
    let for_servers = [ExtendedKeyUsagePurpose::ServerAuth];
    let (certificate, key) = authority.issue_pem(&Leaf::named("gateway").usages(&for_servers));
    write("own.crt", &certificate);
    write("own.key", &key);
    write("ca.crt", &authority.pem());
    let configuration: Value = json!({
        "apiVersion": "fairgate.dev/v1alpha1", "kind": "Configuration", "mode": "files",
        "listen": {"tls": {"certFile": "tls.crt", "keyFile": "tls.key"}},
        "upstream": {
            "url": "https://10.0.0.1:6443", "caFile": "ca.crt",
            "clientCertificate": {"certFile": "own.crt", "keyFile": "own.key"},
        },
    });
    write("fairgate.yaml", &configuration.to_string());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_fairgate"))
        .args(["check", "--config"])
        .arg(directory.join("fairgate.yaml"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    for line in [
        "tls.crt: listen.tls: the certificate expired at 2001-09-09T01:46:40Z; renew it\n",
        "own.crt: upstream.clientCertificate: the certificate is not one for clients; issue one with the extended key usage clientAuth\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    // A gateway would start with them.
    assert!(output.status.success(), "{text}");
}
