//! `/metrics` of a whole gateway after a fixed sequence of requests: every sample with its labels, help
//! and type, and every value that does not depend on time.
//!
//! The expected text is in `tests/it/metrics.golden`. A metric name or label is an interface: dashboards
//! and alerts are written against it. With `FAIRGATE_BLESS=1` the file is written instead of compared.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::{
    client::{self, TestClient},
    process::{GatewayProcess, ProcessOptions},
    upstream::{Speaks, TestReply, TestUpstream, full, text},
};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Samples whose values depend on time, on the machine, or on how changes happen to be batched.
const VARYING: &[&str] = &[
    "apiserver_current_inflight_requests",
    "apiserver_current_inqueue_requests",
    "apiserver_flowcontrol_current_r",
    "apiserver_flowcontrol_demand_seats",
    "apiserver_flowcontrol_demand_seats_average",
    "apiserver_flowcontrol_demand_seats_high_watermark",
    "apiserver_flowcontrol_demand_seats_smoothed",
    "apiserver_flowcontrol_demand_seats_stdev",
    "apiserver_flowcontrol_dispatch_r",
    "apiserver_flowcontrol_latest_s",
    "apiserver_flowcontrol_priority_level_request_utilization",
    "apiserver_flowcontrol_priority_level_seat_utilization",
    "apiserver_flowcontrol_read_vs_write_current_requests",
    "apiserver_flowcontrol_seat_fair_frac",
    "apiserver_flowcontrol_target_seats",
    "apiserver_flowcontrol_current_limit_seats",
    "apiserver_storage_objects",
    "fairgate_build_info",
    "fairgate_control_long_turns_total",
    "fairgate_control_longest_turn_seconds",
    "fairgate_flow_executing_seats",
    "fairgate_flow_inqueue_requests",
    "fairgate_flow_oldest_wait_seconds",
    "fairgate_jain_index",
    "fairgate_largest_flow_share",
    "fairgate_memory_limit_bytes",
    "fairgate_policy_age_seconds",
    "fairgate_policy_generation",
    "fairgate_policy_loads_total",
    "fairgate_response_peak_bytes",
    "fairgate_hosted_object_bytes",
    "fairgate_hosted_quota_used_ratio",
    "fairgate_store_revision",
    "fairgate_upstream_connections",
    "fairgate_upstream_connections_opened_total",
    "fairgate_uptime_seconds",
    "fairgate_user_seat_seconds_total",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
    "process_virtual_memory_max_bytes",
];

/// The gateway as a process of its own, because some of its metrics belong to the process.
fn gateway_before(upstream: &TestUpstream) -> GatewayProcess {
    let configuration = json!({
        "mode": "overlay",
        "upstream": {"url": format!("http://{}", upstream.address)},
        "authentication": {"tokenFile": "tokens"},
        "flowControl": {"totalSeats": 50}, "dataCores": 1, "apiserver": "golden",
    });
    let options = ProcessOptions {
        tokens: "root-token,root,1,system:masters\nalice-token,alice,2,devs\n",
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

/// Waits until the metrics contain each of these lines.
async fn shows(gateway: &GatewayProcess, lines: &[&str]) {
    let missing = || {
        let text = gateway.metrics();
        let shown = |part: &&&str| text.lines().any(|line| line.contains(**part));
        lines.iter().find(|part| !shown(part)).copied()
    };
    client::soon(async {
        while missing().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Sends a request with a token, and returns the status of the response.
async fn send(
    gateway: &GatewayProcess,
    method: Method,
    target: &str,
    token: &str,
    body: Value,
) -> StatusCode {
    let mut client = TestClient::http1(gateway.address).await;
    let mut request = client
        .request(method, target)
        .header("content-type", "application/json");
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let answer = client
        .send(request.body(full(body)).unwrap())
        .await
        .unwrap();
    let status = answer.status();
    client::body(answer).await;
    status
}

async fn get(gateway: &GatewayProcess, target: &str, token: &str) -> u16 {
    let response = send(gateway, Method::GET, target, token, Value::Null);
    response.await.as_u16()
}

/// An API server that knows the token `bob-token`, lets everybody read, and delays its response to
/// requests with `hold` in their path until `go` is true.
async fn answer(request: Request<Incoming>, go: Arc<AtomicBool>) -> TestReply {
    let path = request.uri().path().to_owned();
    let watches = request.uri().query() == Some("watch=1");
    let review: Value = match request.into_body().collect().await {
        Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
        Err(_) => Value::Null,
    };
    let created = |status: Value| {
        let mut answer = text("");
        *answer.status_mut() = StatusCode::CREATED;
        *answer.body_mut() = full(json!({"status": status}).to_string());
        answer
    };
    match path.as_str() {
        TOKEN_REVIEWS if review["spec"]["token"] == "bob-token" => created(json!({
            "authenticated": true, "user": {"username": "bob", "groups": ["devs"]}
        })),
        TOKEN_REVIEWS => created(json!({"authenticated": false})),
        ACCESS_REVIEWS => {
            let verb = &review["spec"]["resourceAttributes"]["verb"];
            let reads = ["get", "list", "watch"].iter().any(|read| verb == read);
            created(json!({"allowed": reads}))
        }
        _ if path.contains("hold") => {
            while !go.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            text("held")
        }
        _ if path.contains("missing") => {
            let mut answer = text("no");
            *answer.status_mut() = StatusCode::NOT_FOUND;
            answer
        }
        _ if watches => text("{\"type\":\"BOOKMARK\",\"object\":{}}\n"),
        _ => text("{}"),
    }
}

/// A level of one seat for alice, which rejects requests while the seat is taken.
fn strict_level() -> [(&'static str, Value); 2] {
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "strict"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"}}},
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "alices"},
        "spec": {
            "matchingPrecedence": 500, "priorityLevelConfiguration": {"name": "strict"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "alice"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "clusterScope": true, "namespaces": ["*"]}],
            }],
        },
    });
    [(LEVELS, level), (SCHEMAS, schema)]
}

/// Sends requests with every outcome: served, not found, refused, unauthenticated, forbidden, a watch, and reads of
/// the hosted API.
async fn play(gateway: &GatewayProcess, go: &AtomicBool) {
    for (target, object) in strict_level() {
        let posted = send(gateway, Method::POST, target, "root-token", object);
        assert_eq!(posted.await, 201);
    }
    let strict = "flow_schema=\"alices\",priority_level=\"strict\"";
    shows(gateway, &[strict]).await;
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(get(gateway, pods, "bob-token").await, 200);
    assert_eq!(get(gateway, pods, "bob-token").await, 200);
    assert_eq!(
        get(gateway, &format!("{pods}/missing"), "bob-token").await,
        404
    );
    assert_eq!(
        get(gateway, &format!("{pods}?watch=1"), "bob-token").await,
        200
    );
    let posted = send(gateway, Method::POST, pods, "bob-token", json!({}));
    assert_eq!(posted.await, 200);
    assert_eq!(get(gateway, pods, "").await, 401);
    assert_eq!(get(gateway, pods, "nobody-token").await, 401);
    assert_eq!(get(gateway, "/livez", "").await, 200);
    assert_eq!(get(gateway, SCHEMAS, "bob-token").await, 200);
    assert_eq!(
        get(gateway, &format!("{LEVELS}/strict"), "bob-token").await,
        200
    );
    let strict_level = format!("{LEVELS}/strict");
    let forbidden = send(
        gateway,
        Method::DELETE,
        &strict_level,
        "bob-token",
        Value::Null,
    );
    assert_eq!(forbidden.await, 403);
    let held = async {
        assert_eq!(
            get(gateway, "/api/v1/namespaces/hold/pods/a", "alice-token").await,
            200
        );
    };
    let refused = async {
        let executing = format!(
            "apiserver_flowcontrol_current_executing_requests{{apiserver=\"golden\",{strict}}} 1"
        );
        shows(gateway, &[&executing]).await;
        assert_eq!(get(gateway, pods, "alice-token").await, 429);
        go.store(true, Ordering::SeqCst);
    };
    tokio::join!(held, refused);
}

/// The text with its varying values replaced by `*`, and the buckets of each histogram in one line.
fn normalised(text: &str) -> String {
    let mut out = String::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut bounds: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            kinds.extend(rest.split_once(' '));
        }
        if line.starts_with('#') {
            let _ = writeln!(out, "{line}");
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        if let Some((labels, bound)) = series.rsplit_once("le=\"")
            && name.ends_with("_bucket")
        {
            bounds.push(bound.trim_end_matches("\"}"));
            if bounds.last() == Some(&"+Inf") {
                let _ = writeln!(out, "{labels}le=[{}]}}", bounds.join(" "));
                bounds.clear();
            }
            continue;
        }
        let family = ["_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .filter(|family| kinds.get(family) == Some(&"histogram"));
        let of_time = family.is_some() && name.ends_with("_sum");
        let varies = of_time || VARYING.contains(&family.unwrap_or(name));
        let series = if name == "fairgate_build_info" {
            name
        } else {
            series
        };
        let _ = writeln!(out, "{series} {}", if varies { "*" } else { value });
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fixed_sequence_of_requests_gives_the_expected_metrics() {
    let go = Arc::<AtomicBool>::default();
    let of_upstream = Arc::clone(&go);
    let upstream = TestUpstream::start(Speaks::Http1, move |request| {
        answer(request, Arc::clone(&of_upstream))
    });
    let gateway = gateway_before(&upstream);
    play(&gateway, &go).await;
    shows(&gateway, &[
            "apiserver_flowcontrol_current_executing_requests{apiserver=\"golden\",flow_schema=\"alices\",priority_level=\"strict\"} 0",
            "fairgate_bootstrap_ensured 1",
            "fairgate_connections 0",
            "fairgate_streams 0",
            "fairgate_upstream_streams{carry=\"watches\"} 0",
            "fairgate_watches 0",
        ])
        .await;
    let found = normalised(&gateway.metrics());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/metrics.golden");
    if std::env::var_os("FAIRGATE_BLESS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    let differing: Vec<_> = (found.lines().zip(expected.lines()))
        .filter(|(found, expected)| found != expected)
        .take(10)
        .collect();
    assert!(
        found == expected,
        "{} lines, and {} in the file; found and expected: {differing:#?}",
        found.lines().count(),
        expected.lines().count()
    );
}

#[test]
fn the_catalogue_has_the_samples_of_the_fixed_sequence_with_their_labels() {
    use fairgate::observe::catalogue::{CELL_METRICS, FACADE_METRICS};
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/metrics.golden");
    let golden = fs::read_to_string(path).unwrap();
    let mut family = CELL_METRICS.iter().next();
    for line in golden.lines().filter(|line| !line.starts_with("# HELP")) {
        if let Some(comment) = line.strip_prefix("# TYPE ") {
            let (name, metric_type) = comment.split_once(' ').unwrap();
            family = CELL_METRICS
                .iter()
                .chain(FACADE_METRICS)
                .find(|metric| metric.name == name);
            assert_eq!(
                family.map(|metric| metric.metric_type.as_str()),
                Some(metric_type),
                "{name}"
            );
            continue;
        }
        let Some((name, labels)) = line.split_once('{') else {
            continue;
        };
        let (labels, _) = labels.rsplit_once('}').unwrap();
        // The label `le` of a histogram is no label of the metric.
        let labels = labels.split("le=[").next().unwrap();
        let names: Vec<&str> = labels
            .split("\",")
            .filter_map(|label| label.split_once('=').map(|(name, _)| name))
            .collect();
        assert_eq!(family.map(|metric| metric.labels), Some(&*names), "{name}");
    }
}
