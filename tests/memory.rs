//! How much memory a hosted object takes, measured as the bytes in use of the whole process.
//!
//! A figure without a verdict, for `.ci/run measure_memory`: maintenance runs by the clock, and what the process allocates depends
//! on when it does. What an object takes is counted by `fairgate_store::mirror::tests`, which blocks: after maintenance, an entry
//! takes less memory than its text (`after_maintenance_an_entry_takes_less_memory_than_its_text`).
//!
//! A test binary of its own, because it has the allocator of the `fairgate` binary, and nothing else may
//! allocate while it measures.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![cfg(unix)]

use std::{env, fs, io::Write as _, process, time::Duration};

use fairgate::{app, config::Config, observe::GatewayMetrics};
use fairgate_testkit::{
    client::{TestClient, body},
    upstream::full,
};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tikv_jemalloc_ctl::{epoch, stats};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Maintenance, every ten seconds, compresses values and drops what was decoded of them.
const THREE_ROUNDS: Duration = Duration::from_secs(31);

const CONFIGURATION: &str = "
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
mode: standalone
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
authentication:
  tokenFile: tokens.csv
  tokenReview: {enabled: false}
dataCores: 2
drain: {delay: 0s, grace: 0s}
";

fn schema(number: usize) -> Value {
    let tenant = format!("tenant-{number}");
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {
            "name": format!("tenant-{number:05}"),
            "labels": {"app.kubernetes.io/managed-by": "tests", "team": format!("team-{}", number % 50)},
            "annotations": {"description": format!("Requests of {tenant}: {}", "described. ".repeat(21))},
        },
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},
            "matchingPrecedence": 1000 + number % 8000,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [
                    {"kind": "User", "user": {"name": format!("user-{number}")}},
                    {"kind": "ServiceAccount", "serviceAccount": {"name": "default", "namespace": tenant}},
                ],
                "resourceRules": [{
                    "verbs": ["get", "list", "watch"], "apiGroups": ["apps"],
                    "resources": ["deployments"], "namespaces": [tenant],
                }],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
            }],
        },
    })
}

async fn create(client: &mut TestClient, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let request = client
            .request(
                Method::POST,
                "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            )
            .header("authorization", "Bearer secret")
            .header("content-type", "application/json");
        let object = full(schema(number).to_string());
        let response = client.send(request.body(object).unwrap()).await;
        let response = response.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        body(response).await;
    }
}

fn bytes_in_use() -> usize {
    epoch::advance().unwrap();
    stats::allocated::read().unwrap()
}

/// The least memory in use during three rounds of maintenance, in bytes.
async fn settled() -> usize {
    const PAUSE: Duration = Duration::from_millis(200);
    let mut least = bytes_in_use();
    for _ in 0..THREE_ROUNDS.as_millis() / PAUSE.as_millis() {
        tokio::time::sleep(PAUSE).await;
        least = least.min(bytes_in_use());
    }
    least
}

#[tokio::test]
#[ignore = "a measurement, which takes a minute: .ci/run measure_memory"]
async fn how_much_memory_a_hosted_object_takes() {
    let home = env::temp_dir().join(format!("fairgate-memory-{}", process::id()));
    fs::create_dir(&home).unwrap();
    fs::write(home.join("tokens.csv"), "secret,admin,1,system:masters\n").unwrap();
    let reading = Config::parse("test.yaml", &home, CONFIGURATION.as_bytes());
    let (config, _) = reading.usable().unwrap();
    let started = tokio::task::spawn_blocking(|| app::start(config, None, GatewayMetrics::new()));
    let gateway = started.await.unwrap().unwrap();

    let mut client = TestClient::http1(gateway.address()).await;
    // What is there once, such as tables, caches and dictionaries, exists after these.
    create(&mut client, 0..100).await;
    let before = settled().await;
    let objects = 2000;
    create(&mut client, 100..100 + objects).await;
    let after = settled().await;
    let each = after.saturating_sub(before) / objects;
    println!("{each} bytes an object: {before} before and {after} after {objects} were created");
    if let Some(path) = env::var_os("FAIRGATE_MEASURED") {
        let line = json!({"name": "memory of a hosted FlowSchema", "value": each, "unit": "bytes"});
        let file = fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }

    tokio::task::spawn_blocking(move || gateway.shut_down())
        .await
        .unwrap();
    fs::remove_dir_all(&home).unwrap();
}
