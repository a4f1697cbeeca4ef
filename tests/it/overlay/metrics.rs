//! `/metrics` of the main port: the upstream's metrics, with the gateway's flow control metrics merged in.

use std::{collections::BTreeSet, io::Read as _};

use flate2::read::GzDecoder;
use http::Method;
use serde_json::json;

use super::{
    Client, ClientResponse, client_of, gateway_before,
    upstream::{LONG, METRICS, Server},
};
use crate::client;

const LIMIT: &str = "apiserver_flowcontrol_nominal_limit_seats";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";

/// The value of the first sample of a level in this metric, as the tests of Kubernetes look it up.
fn nominal_limit(text: &str, level: &str) -> Option<String> {
    let label = format!("priority_level=\"{level}\"");
    let mut lines = text.lines();
    let sample =
        lines.find(|line| line.starts_with(&format!("{LIMIT}{{")) && line.contains(&label));
    sample.map(|line| line.rsplit(' ').next().unwrap().to_owned())
}

/// Checks what makes a scrape valid, and that the upstream's part of it is unchanged.
fn assert_merged(text: &str) {
    let mut described = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("# ")) {
        let words: Vec<_> = line.split(' ').take(3).collect();
        assert!(described.insert(words), "twice: {line}");
    }
    let mut rest = text.lines();
    for line in METRICS.lines() {
        assert!(
            rest.any(|other| other == line),
            "missing or out of order: {line}"
        );
    }
    let ours = text.lines().filter(|line| !METRICS.contains(line));
    for line in ours {
        let name = line
            .trim_start_matches("# HELP ")
            .trim_start_matches("# TYPE ");
        assert!(name.starts_with("apiserver_flowcontrol_"), "{line}");
        let is_labelled = line.contains("{apiserver=\"") || line.starts_with('#');
        assert!(is_labelled, "{line}");
    }
}

async fn scrape(client: &mut Client, headers: &[(&str, &str)]) -> ClientResponse {
    let response = client.get("/metrics", headers).await;
    assert_eq!(response.status, 200);
    response
}

#[tokio::test]
async fn a_hosted_level_is_found_among_the_upstreams_metrics() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut root = client_of(&gateway, "root").await;
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "hosted"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}},
    });
    let headers = [("content-type", "application/json")];
    let created = root
        .send(Method::POST, LEVELS, &headers, level.to_string())
        .await;
    assert_eq!(created.status, 201);
    let text = client::soon(async {
        loop {
            let text = scrape(&mut root, &[]).await.text();
            if nominal_limit(&text, "hosted").is_some() {
                return text;
            }
        }
    })
    .await;
    assert_merged(&text);
    let limit: u32 = nominal_limit(&text, "hosted").unwrap().parse().unwrap();
    assert!(limit > 0);
    // Samples of the same level follow the upstream's.
    assert_eq!(nominal_limit(&text, "catch-all").unwrap(), "13");
    let catch_all = format!("{LIMIT}{{apiserver=");
    assert!(
        text.lines()
            .any(|line| line.starts_with(&catch_all) && line.contains("catch-all"))
    );
    assert!(text.contains("apiserver_flowcontrol_current_limit_seats{apiserver="));
    assert!(!text.contains("fairgate_"));
}

#[tokio::test]
async fn the_upstream_is_asked_for_text_in_the_clients_name_and_the_client_gets_gzip() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                  application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let headers = [("accept", accept), ("accept-encoding", "gzip")];
    let response = scrape(&mut alice, &headers).await;
    assert_eq!(response.header("content-encoding"), "gzip");
    assert_eq!(response.header("vary"), "Accept-Encoding");
    assert_eq!(response.header("cache-control"), "no-cache, private");
    let plain = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert_eq!(response.header("content-type"), plain);
    assert_eq!(
        response.header("content-length"),
        response.body.len().to_string()
    );
    let mut text = String::new();
    GzDecoder::new(&*response.body)
        .read_to_string(&mut text)
        .unwrap();
    assert_merged(&text);
    let seen = server.of("/metrics");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].headers["impersonate-user"], "alice");
    assert_eq!(seen[0].headers["accept"], "text/plain;version=0.0.4");
    assert_eq!(seen[0].headers["accept-encoding"], "identity");
    let uncompressed = scrape(&mut alice, &[("accept", "*/*")]).await;
    assert_eq!(uncompressed.header("content-encoding"), "");
    assert_merged(&uncompressed.text());
}

#[tokio::test]
async fn what_is_not_200_or_not_text_is_passed_on_unchanged() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut mallory = client_of(&gateway, "mallory").await;
    let refused = mallory.get("/metrics", &[]).await;
    assert_eq!(
        (refused.status, &*refused.text()),
        (403, "the upstream says no")
    );
    let mut alice = client_of(&gateway, "alice").await;
    let failing = alice.get("/metrics?failing", &[]).await;
    assert_eq!((failing.status, &*failing.text()), (500, "broken metrics"));
    let html = alice.get("/metrics?html", &[]).await;
    assert_eq!(
        (html.status, &*html.text()),
        (200, "<html>no metrics</html>")
    );
    let open = alice.get("/metrics?openmetrics", &[]).await;
    assert_eq!(
        (open.status, open.text()),
        (200, format!("{METRICS}# EOF\n"))
    );
    assert!(
        open.header("content-type")
            .starts_with("application/openmetrics-text")
    );
    let head = alice
        .send(Method::HEAD, "/metrics", &[], String::new())
        .await;
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[tokio::test]
async fn metrics_that_are_too_long_to_be_merged_are_passed_on_whole() {
    let server = Server::start();
    let gateway = gateway_before(&server);
    let mut alice = client_of(&gateway, "alice").await;
    for _ in 0..4 {
        let long = alice
            .get("/metrics?long", &[("accept-encoding", "gzip")])
            .await;
        assert_eq!(long.status, 200);
        assert!(long.body.len() == LONG && long.body.chunks(4).all(|line| line == b"x 1\n"));
    }
    // Nothing of them is left behind.
    assert_merged(&scrape(&mut alice, &[]).await.text());
}
