//! A week of one operator: install, observe, enforce, a bad policy, a slow upstream, a certificate that ends, an upgrade, a
//! rollback. What commands exit with, and what health checks, metrics and the log say, at each step.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use fairgate_base::{clock::Clock, metrics_text};
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    client::raw,
    pki::{Authority, Leaf},
    process::{GatewayProcess, ProcessOptions, wait_until, write_at_once},
    upstream::{Speaks, TestUpstream, text},
};

const TOKENS: &str = "mouse-token,mouse,1,tenants\nbatch-token,batch,2,batchers\n";
const PODS: &str = "/api/v1/namespaces/a/pods";
const DAY: i64 = 86_400;
/// How long a request may take, but while the upstream is slow: nothing is ended by the clock.
const PATIENT: &str = "10m";
/// Of the certificate of the secure admin port.
const EXPIRY: &str = "fairgate_certificate_expiry_timestamp_seconds{certificate=\"admin\"}";
const SYNCED: &str = "fairgate_policy_synced";

/// An API server that answers at once, or not at all while it is slow; requests with the query `held` wait until it lets go.
struct Cluster {
    upstream: TestUpstream,
    is_slow: Arc<AtomicBool>,
    holds: watch::Sender<bool>,
}

impl Cluster {
    fn start() -> Self {
        let is_slow = Arc::<AtomicBool>::default();
        let (holds, held) = watch::channel(true);
        let slow = Arc::clone(&is_slow);
        let upstream = TestUpstream::start(Speaks::Http1, move |request: Request<_>| {
            let (slow, mut held) = (Arc::clone(&slow), held.clone());
            async move {
                if request.uri().query() == Some("held") {
                    let _ = held.wait_for(|holds| !holds).await;
                }
                if slow.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                text("{}")
            }
        });
        Self {
            upstream,
            is_slow,
            holds,
        }
    }
}

/// The configuration; the operator changes `enforcement`, and how long a request may take.
fn configuration(cluster: &Cluster, enforcement: &str, request: &str) -> Value {
    json!({
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Configuration",
        "listen": {"address": "127.0.0.1:0"},
        "admin": {
            "address": "127.0.0.1:0",
            "secure": {"address": "127.0.0.1:0", "tls": {"certFile": "admin.crt", "keyFile": "admin.key"}},
        },
        "upstream": {"url": format!("http://{}", cluster.upstream.address)},
        "authentication": {"tokenFile": "tokens"},
        "flowControl": {
            "totalSeats": 40,
            "enforcement": enforcement,
            "policies": {"directory": "policies"},
        },
        "timeouts": {"request": request},
        "state": {"directory": "state"},
        "drain": {"delay": "0s", "grace": "10m"},
        "dataCores": 1,
    })
}

/// A level without seats, so that all that it is for is over its limit, and the schema of the group `batchers`.
fn policy() -> String {
    let api = "flowcontrol.apiserver.k8s.io/v1";
    let level = json!({
        "apiVersion": api, "kind": "PriorityLevelConfiguration", "metadata": {"name": "none"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}, "borrowingLimitPercent": 0}},
    });
    let schema = json!({
        "apiVersion": api, "kind": "FlowSchema", "metadata": {"name": "batch"},
        "spec": {"priorityLevelConfiguration": {"name": "none"}, "matchingPrecedence": 10, "rules": [{
            "subjects": [{"kind": "Group", "group": {"name": "batchers"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
        }]},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [level, schema]}).to_string()
}

/// Certificate and key for the secure admin port, valid until so many seconds from now.
fn certificate(authority: &Authority, seconds: i64) -> (String, String) {
    let now = i64::try_from(Clock::system().unix_seconds()).unwrap();
    authority.issue_pem(&Leaf::named("localhost").valid(now - DAY, now + seconds))
}

/// Writes the certificate before the key: until both are there, they do not belong together and nothing changes.
fn renew(directory: &Path, authority: &Authority, seconds: i64) {
    let (certificate, key) = certificate(authority, seconds);
    write_at_once(&directory.join("admin.crt"), &certificate);
    write_at_once(&directory.join("admin.key"), &key);
}

/// Runs a command of fairgate with a configuration.
fn fairgate(command: &str, configuration: &Path) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_fairgate"))
        .args([command, "--config"])
        .arg(configuration)
        .output()
        .unwrap();
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).unwrap())
}

/// The status of the response to a request.
fn ask(gateway: &GatewayProcess, user: &str, method: &Method, target: &str) -> u16 {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {user}-token\r\nConnection: close\r\n\r\n"
    );
    let response = raw(gateway.address, request.as_bytes());
    response[9..12].parse().unwrap()
}

fn get(gateway: &GatewayProcess, user: &str) -> u16 {
    ask(gateway, user, &Method::GET, PODS)
}

/// The sum of the samples of a metric that have all of these labels.
fn sum(gateway: &GatewayProcess, name: &str, labels: &[&str]) -> f64 {
    let text = gateway.metrics();
    let of_metric = metrics_text::samples(&text).filter(|sample| {
        let rest = sample.series.strip_prefix(name);
        rest.is_some_and(|rest| {
            rest.starts_with('{') && labels.iter().all(|label| rest.contains(label))
        })
    });
    of_metric.map(|sample| sample.value).sum()
}

/// The lines of `/readyz?verbose`, all good but these.
#[track_caller]
fn warns(gateway: &GatewayProcess, expected: &[&str]) {
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    let lines = || ready.lines().filter(|line| line.starts_with('['));
    let (good, others): (Vec<_>, Vec<_>) = lines().partition(|line| line.starts_with("[+]"));
    assert!(good.len() >= 4 && others.len() == expected.len(), "{ready}");
    for (line, words) in others.iter().zip(expected) {
        assert!(line.contains(words), "{words}: {ready}");
    }
}

/// Writes the configuration, and waits until the gateway says that this key is in force.
fn reload(gateway: &GatewayProcess, configuration: &Value, key: &str) {
    gateway.write("fairgate.yaml", &configuration.to_string());
    let before = gateway.logged("this key changed").len();
    gateway.hang_up();
    let logged = gateway.wait_for_log("this key changed, and is in force", before + 1);
    assert!(logged[before].contains(key), "{key}: {logged:?}");
}

#[test]
fn a_week_of_an_operator() {
    let cluster = Cluster::start();
    let authority = Authority::new("operators");
    let gateway = install(&cluster, &authority);
    enforce(&gateway, &cluster);
    let gateway = survive_a_bad_policy(gateway);
    see_a_slow_upstream(&gateway, &cluster);
    see_a_certificate_that_ends(&gateway, &authority);
    let gateway = upgrade(gateway, &cluster);
    roll_back(gateway, &cluster);
}

/// Monday: the configuration is checked, and the gateway started in observe mode. What is over a limit is counted and passes.
fn install(cluster: &Cluster, authority: &Authority) -> GatewayProcess {
    let (certificate, key) = certificate(authority, 90 * DAY);
    let options = ProcessOptions {
        tokens: TOKENS,
        files: vec![
            ("policies/batch.yaml", policy()),
            ("admin.crt", certificate),
            ("admin.key", key),
        ],
        ..ProcessOptions::default()
    };
    let gateway = GatewayProcess::with(configuration(cluster, "observe", PATIENT), &options);
    let (code, said) = fairgate("check", &gateway.directory.join("fairgate.yaml"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("usable: 0 errors, 1 warning\n"), "{said}");

    assert_eq!(get(&gateway, "mouse"), 200);
    for _ in 0..3 {
        assert_eq!(get(&gateway, "batch"), 200);
    }
    warns(&gateway, &[]);
    let reason = ["reason=\"concurrency-limit\""];
    let unenforced = || sum(&gateway, "fairgate_unenforced_refusals_total", &reason);
    assert!((unenforced() - 3.0).abs() < 0.1, "{}", unenforced());
    let refused = sum(&gateway, "fairgate_refusals_total", &reason);
    assert!(refused.abs() < 0.1, "{refused}");
    gateway
}

/// Tuesday: a reload enforces the limits.
fn enforce(gateway: &GatewayProcess, cluster: &Cluster) {
    reload(
        gateway,
        &configuration(cluster, "enforce", PATIENT),
        "flowControl.enforcement",
    );
    assert_eq!((get(gateway, "batch"), get(gateway, "mouse")), (429, 200));
    let reason = ["reason=\"concurrency-limit\""];
    let refused = sum(gateway, "fairgate_refusals_total", &reason);
    assert!((refused - 1.0).abs() < 0.1, "{refused}");
    let labels = ["flow_schema=\"batch\"", "priority_level=\"none\""];
    let refused = sum(
        gateway,
        "apiserver_flowcontrol_rejected_requests_total",
        &labels,
    );
    assert!(refused >= 1.0, "{refused}");
    warns(gateway, &[]);
}

/// Wednesday: a policy file is broken. The last good policy holds, also over a restart, until the file is mended.
fn survive_a_bad_policy(gateway: GatewayProcess) -> GatewayProcess {
    gateway.write(
        "policies/batch.yaml",
        &policy().replace("\"Reject\"", "\"Regret\""),
    );
    wait_until("it is refused", || gateway.metric(SYNCED) == Some(0));
    warns(&gateway, &["[!]policy: refused for "]);
    assert!(gateway.admin_get("/readyz?verbose").contains("batch.yaml"));
    let logged = gateway.wait_for_log("limitResponse.type", 1);
    assert!(
        logged[0].contains("batch.yaml") && logged[0].contains("Regret"),
        "{logged:?}"
    );
    let configuration = gateway.directory.join("fairgate.yaml");
    let (code, said) = fairgate("check", &configuration);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("batch.yaml") && said.contains("Regret"),
        "{said}"
    );
    assert_eq!((get(&gateway, "batch"), get(&gateway, "mouse")), (429, 200));

    let gateway = gateway.restart(|_| ()).unwrap();
    assert_eq!(
        gateway
            .wait_for_log("the last good policy is in force", 1)
            .len(),
        1
    );
    warns(&gateway, &["; the last good policy, kept "]);
    assert_eq!((get(&gateway, "batch"), get(&gateway, "mouse")), (429, 200));
    gateway.write("policies/batch.yaml", &policy());
    wait_until("it is mended", || gateway.metric(SYNCED) == Some(1));
    warns(&gateway, &[]);
    assert_eq!(fairgate("check", &configuration).0, Some(0));
    gateway
}

/// Thursday: the upstream accepts connections and answers nothing. Requests end in time, which a reload makes shorter, and the
/// metrics and the log blame the upstream.
fn see_a_slow_upstream(gateway: &GatewayProcess, cluster: &Cluster) {
    cluster.is_slow.store(true, Ordering::SeqCst);
    let impatient = configuration(cluster, "enforce", "1s");
    reload(gateway, &impatient, "timeouts.request");
    assert_eq!((get(gateway, "mouse"), get(gateway, "batch")), (504, 429));
    let late = sum(
        gateway,
        "fairgate_refusals_total",
        &["reason=\"upstream-timeout\""],
    );
    assert!((late - 1.0).abs() < 0.1, "{late}");
    let answered = sum(gateway, "apiserver_request_total", &["code=\"504\""]);
    assert!((answered - 1.0).abs() < 0.1, "{answered}");
    // It can be connected to.
    assert_eq!(gateway.metric("fairgate_upstream_up"), Some(1));
    warns(gateway, &[]);
    let logged = gateway.wait_for_log("the upstream did not answer a request in time", 1);
    assert!(logged[0].contains("timeouts.request"), "{logged:?}");
    cluster.is_slow.store(false, Ordering::SeqCst);
    let patient = configuration(cluster, "enforce", PATIENT);
    reload(gateway, &patient, "timeouts.request");
    assert_eq!(get(gateway, "mouse"), 200);
}

/// Friday: the certificate of the secure admin port ends soon, has ended, and is renewed. No restart is needed.
fn see_a_certificate_that_ends(gateway: &GatewayProcess, authority: &Authority) {
    let left = || {
        let now = Clock::system().unix_seconds().cast_signed();
        gateway.metric(EXPIRY).unwrap().cast_signed() - now
    };
    assert!(left() > 80 * DAY);
    renew(&gateway.directory, authority, 3 * DAY);
    wait_until("the one that ends soon is used", || left() < 7 * DAY);
    warns(gateway, &[]);
    let configuration = gateway.directory.join("fairgate.yaml");
    let (code, said) = fairgate("check", &configuration);
    assert_eq!(code, Some(0), "{said}");

    renew(&gateway.directory, authority, -60);
    wait_until("the one that has ended is used", || left() < 0);
    warns(gateway, &["admin.crt (admin.secure.tls) expired at "]);
    let logged = gateway.wait_for_log("clients refuse the gateway's certificate", 1);
    assert!(logged[0].contains("admin.crt"), "{logged:?}");
    let (_, said) = fairgate("check", &configuration);
    assert!(
        said.contains("admin.crt") && said.contains("expired"),
        "{said}"
    );

    renew(&gateway.directory, authority, 90 * DAY);
    wait_until("the new one is used", || left() > 80 * DAY);
    warns(gateway, &[]);
}

/// Saturday: the gateway is replaced. It drains: what has begun is finished, and it exits with 0.
fn upgrade(mut gateway: GatewayProcess, cluster: &Cluster) -> GatewayProcess {
    let address = gateway.address;
    let held = thread::spawn(move || {
        let request = format!(
            "GET {PODS}?held HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer mouse-token\r\nConnection: close\r\n\r\n"
        );
        raw(address, request.as_bytes())
    });
    let has_begun = || {
        let seen = cluster.upstream.seen();
        seen.iter().any(|seen| seen.target.ends_with("?held"))
    };
    wait_until("a request has begun", has_begun);
    gateway.terminate();
    wait_until("it is not ready", || {
        gateway.admin_get("/readyz").starts_with("HTTP/1.1 500 ")
    });
    assert!(gateway.admin_get("/livez").starts_with("HTTP/1.1 200 "));
    cluster.holds.send(false).unwrap();
    assert!(held.join().unwrap().starts_with("HTTP/1.1 200 "));
    assert_eq!(gateway.exit_code(), Some(0));
    let gateway = gateway.restart(|_| ()).unwrap();
    warns(&gateway, &[]);
    assert_eq!((get(&gateway, "batch"), get(&gateway, "mouse")), (429, 200));
    gateway
}

/// Sunday: a configuration of a later version has a key that this one does not know. `check` and `serve` say which, and a running
/// gateway keeps what it has; with the configuration from before all is as it was.
fn roll_back(gateway: GatewayProcess, cluster: &Cluster) {
    let before = configuration(cluster, "enforce", PATIENT);
    let mut later = before.clone();
    later["flowControl"]["ofALaterVersion"] = json!(true);
    gateway.write("fairgate.yaml", &later.to_string());
    let configuration: PathBuf = gateway.directory.join("fairgate.yaml");
    for command in ["check", "serve"] {
        let (code, said) = fairgate(command, &configuration);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("flowControl.ofALaterVersion"), "{said}");
    }
    let refused = "fairgate_config_last_reload_successful";
    gateway.hang_up();
    wait_until("it is refused", || gateway.metric(refused) == Some(0));
    assert_eq!((get(&gateway, "batch"), get(&gateway, "mouse")), (429, 200));
    gateway.write("fairgate.yaml", &before.to_string());
    gateway.hang_up();
    wait_until("it is accepted", || gateway.metric(refused) == Some(1));
    let gateway = gateway.restart(|_| ()).unwrap();
    warns(&gateway, &[]);
    assert_eq!((get(&gateway, "batch"), get(&gateway, "mouse")), (429, 200));
    assert!(fs::exists(gateway.directory.join("state")).unwrap());
}
