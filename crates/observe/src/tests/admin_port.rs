//! The admin port: metrics, health checks and dumps over a real socket.

use std::io::Read as _;

use super::{scrape::Scrape, *};

/// Asks the admin port and reads to its end.
async fn ask(address: std::net::SocketAddr, request: &str) -> String {
    String::from_utf8(ask_bytes(address, request, "").await).unwrap()
}

/// The same, with further header lines.
async fn ask_bytes(address: std::net::SocketAddr, request: &str, headers: &str) -> Vec<u8> {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request =
        format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

#[test]
fn operators_find_everything_on_their_own_port() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let checks = HealthChecks::new().ready("shutdown", || Err("draining".to_owned()));
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let admin = AdminServer::bind(
            anywhere,
            crate::AdminHosts::default(),
            OperatorEndpoints::new(Arc::clone(&world.telemetry), checks),
        )
        .await
        .unwrap();
        let address = admin.address().unwrap();
        let running = tokio::spawn(admin.run());

        let metrics = ask(address, "GET /metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
        assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
        let (_, text) = metrics.split_once("\r\n\r\n").unwrap();
        Scrape::parse(text).is("fairgate_queued_requests", 2.0);
        assert!(ask(address, "GET /livez").await.ends_with("\r\n\r\nok"));
        let ready = ask(address, "GET /readyz").await;
        assert!(ready.starts_with("HTTP/1.1 500 "), "{ready}");
        assert!(ready.contains("[-]shutdown failed: draining\n"), "{ready}");
        let verbose = ask(address, "GET /healthz?verbose").await;
        assert!(
            verbose.ends_with("[+]ping ok\nhealthz check passed\n"),
            "{verbose}"
        );
        let dump = ask(
            address,
            "GET /debug/api_priority_and_fairness/dump_requests",
        )
        .await;
        assert_eq!(
            dump.lines()
                .filter(|line| line.starts_with("narrow,"))
                .count(),
            3
        );
        assert!(ask(address, "GET /").await.contains("/metrics\n"));
        assert!(
            ask(address, "GET /secret")
                .await
                .starts_with("HTTP/1.1 404 ")
        );
        // A target without a path.
        let authority = ask(address, "GET localhost:80").await;
        assert!(authority.starts_with("HTTP/1.1 404 "), "{authority}");
        let head = ask(address, "HEAD /livez").await;
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        let posted = ask(address, "POST /metrics").await;
        assert!(posted.starts_with("HTTP/1.1 405 ") && posted.contains("allow: GET, HEAD\r\n"));
        running.abort();
        drop(sent);
    });
}

/// DNS rebinding needs a name, so addresses are served.
#[test]
fn a_page_of_another_name_gets_nothing_of_the_admin_port() {
    local(async {
        let world = World::new();
        let endpoints = OperatorEndpoints::new(Arc::clone(&world.telemetry), HealthChecks::new());
        let hosts = crate::AdminHosts::new(["fairgate.ops.svc".to_owned()]);
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let admin = AdminServer::bind(anywhere, hosts, endpoints).await.unwrap();
        let address = admin.address().unwrap();
        let running = tokio::spawn(admin.run());
        for (host, status) in [
            ("localhost:9080", "200 OK"),
            ("127.0.0.1:9080", "200 OK"),
            ("192.0.2.7:9080", "200 OK"),
            ("[2001:db8::7]:9080", "200 OK"),
            ("fairgate.ops.svc:9080", "200 OK"),
            ("rebound.example:9080", "403 Forbidden"),
            ("192.0.2.7.rebound.example", "403 Forbidden"),
            ("other.ops.svc:9080", "403 Forbidden"),
        ] {
            for path in [
                "/livez",
                "/metrics",
                "/debug/api_priority_and_fairness/dump_requests",
            ] {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let request =
                    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
                stream.write_all(request.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                let expected = format!("HTTP/1.1 {status}\r\n");
                assert!(answer.starts_with(&expected), "{host} {path}: {answer}");
                let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                let is_refusal = body.starts_with("the Host of the request is neither");
                assert_eq!(is_refusal, status.starts_with("403"), "{body}");
            }
        }
        running.abort();
    });
}

#[test]
fn metrics_are_compressed_for_clients_that_accept_gzip() {
    local(async {
        let mut world = World::new();
        let sent = world.crowd().await;
        let anywhere = "127.0.0.1:0".parse().unwrap();
        let endpoints = OperatorEndpoints::new(Arc::clone(&world.telemetry), HealthChecks::new());
        let admin = AdminServer::bind(anywhere, crate::AdminHosts::default(), endpoints)
            .await
            .unwrap();
        let address = admin.address().unwrap();
        let running = tokio::spawn(admin.run());
        let metrics = ask(address, "GET /metrics").await;
        let zipped = ask_bytes(
            address,
            "GET /metrics",
            "Accept-Encoding: br, gzip;q=0.5\r\n",
        )
        .await;
        let end = zipped.windows(4).position(|at| at == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8(zipped[..end].to_vec()).unwrap();
        assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
        assert!(zipped.len() * 5 < metrics.len(), "{} bytes", zipped.len());
        let mut text = String::new();
        flate2::read::GzDecoder::new(&zipped[end..])
            .read_to_string(&mut text)
            .unwrap();
        Scrape::parse(&text).is("fairgate_queued_requests", 2.0);
        let refused = ask_bytes(address, "GET /metrics", "Accept-Encoding: gzip;q=0\r\n").await;
        let plain = b"fairgate_queued_requests 2";
        assert!(refused.windows(plain.len()).any(|at| at == plain));
        running.abort();
        drop(sent);
    });
}
