//! Gateways that host their policies and start while their store cannot be read, or has an object that is broken.

use std::{net::SocketAddr, path::Path};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    client::raw,
    process::{GatewayProcess, ProcessOptions, wait_until},
};
use fairgate_base::clock::Clock;
use fairgate_store::{
    HistoryLimits, Precondition, ReadRevision, Store as _, WriteOutcome,
    local::{LocalSettings, LocalStore},
};

const SYNCED: &str = "fairgate_policy_synced";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
/// The key of the level `own`.
const KEY: &str = "/flowcontrol.apiserver.k8s.io/prioritylevelconfigurations/own";

/// A priority level with so many shares.
fn level(name: &str, shares: i32) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": shares, "limitResponse": {"type": "Reject"}}},
    })
}

/// The response of a gateway to a request of an administrator.
fn call(address: SocketAddr, method: &str, target: &str, body: &str) -> String {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer root-s3cret\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len(),
    );
    raw(address, request.as_bytes())
}

/// A gateway that hosts its policies in this store, with the level `own`, and has kept them.
fn start() -> GatewayProcess {
    let gateway = launch("store/objects.redb");
    keeps_its_policies(&gateway);
    gateway
}

fn keeps_its_policies(gateway: &GatewayProcess) {
    create(gateway, &level("own", 30));
    wait_until("the level is in force", || has_level(gateway, "own"));
    wait_until("it is kept", || kept(&gateway.directory, "own"));
}

fn launch(store: &str) -> GatewayProcess {
    launch_with(json!({"store": {"local": {"path": store}}}))
}

fn launch_with(mut configuration: Value) -> GatewayProcess {
    let rest = json!({
        "mode": "standalone",
        "dataCores": 1,
        "authentication": {"tokenFile": "tokens", "tokenReview": {"enabled": false}},
    });
    let (all, rest) = (configuration.as_object_mut(), rest.as_object());
    all.unwrap().extend(rest.unwrap().clone());
    let options = ProcessOptions {
        tokens: "root-s3cret,root,1,system:masters\n",
        ..ProcessOptions::default()
    };
    GatewayProcess::with(configuration, &options)
}

fn create(gateway: &GatewayProcess, object: &Value) {
    let response = call(gateway.address, "POST", LEVELS, &object.to_string());
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
}

fn delete(gateway: &GatewayProcess) {
    let response = call(gateway.address, "DELETE", &format!("{LEVELS}/own"), "");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

fn has_level(gateway: &GatewayProcess, name: &str) -> bool {
    let label = format!("priority_level=\"{name}\"");
    gateway.metrics().contains(&label)
}

fn ready(gateway: &GatewayProcess) -> String {
    let ready = gateway.admin_get("/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    ready
}

/// Whether the kept set has this name in it.
fn kept(directory: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(directory.join("store/state"));
    let mut paths = (entries.into_iter().flatten().flatten()).map(|entry| entry.path());
    // Others are being written.
    let whole = paths.find(|path| path.extension().is_some_and(|ending| ending == "json"));
    let text = whole.map(|path| std::fs::read_to_string(path).unwrap());
    text.is_some_and(|text| text.contains(&format!("\"{name}\"")))
}

/// Writes to the store, which no gateway has open, what its API would refuse.
fn write_to_store(directory: &Path, text: &str) {
    let settings = LocalSettings {
        path: directory.join("store/objects.redb"),
        limits: HistoryLimits::default(),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let store = LocalStore::open(settings, Clock::system()).unwrap();
    runtime.block_on(async {
        let entry = store.get(KEY, ReadRevision::Cached).await.unwrap().unwrap();
        let text = Bytes::from(text.to_owned());
        let written = store.write(KEY, Precondition::At(entry.revision), Some(text));
        let written = written.await;
        assert!(
            matches!(written, Ok(WriteOutcome::Done { .. })),
            "{written:?}"
        );
    });
}

/// A gateway that starts with what it has kept, since its store has this object.
#[track_caller]
fn starts_with_the_last_good(object: &str, why: &str) -> GatewayProcess {
    let gateway = start()
        .restart(|directory| write_to_store(directory, object))
        .unwrap();
    assert!(has_level(&gateway, "own"));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    for words in [
        "[!]policy: refused for ",
        "prioritylevelconfigurations/own",
        why,
        "; the last good policy, kept ",
        "with the digest sha256:",
        "[+]store ok\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // What is stored meanwhile is neither in force nor kept.
    create(&gateway, &level("other", 20));
    let refused = || gateway.metric("fairgate_policy_loads_total{outcome=\"failed\"}") >= Some(2);
    wait_until("that is refused, too", refused);
    assert!(!has_level(&gateway, "other") && !kept(&gateway.directory, "other"));

    gateway
}

/// The gateway uses what is stored again.
fn is_mended(gateway: &GatewayProcess) {
    wait_until("the others are in force", || has_level(gateway, "other"));
    wait_until("it is in sync", || gateway.metric(SYNCED) == Some(1));
    assert!(ready(gateway).contains("[+]policy ok\n"));
    wait_until("it is kept", || kept(&gateway.directory, "other"));
}

#[test]
fn a_gateway_starts_with_its_last_good_policy_while_its_store_has_an_object_that_is_no_json() {
    let gateway = starts_with_the_last_good("{\"metadata\":", "cannot be read");
    let mended = gateway.restart(|directory| {
        write_to_store(directory, &level("own", 30).to_string());
    });
    is_mended(&mended.unwrap());
}

#[test]
fn a_gateway_starts_with_its_last_good_policy_while_its_store_has_an_object_with_errors() {
    let object = level("own", -1).to_string();
    let gateway = starts_with_the_last_good(&object, "nominalConcurrencyShares");
    delete(&gateway);
    is_mended(&gateway);
}

#[test]
fn a_gateway_without_a_last_good_policy_starts_with_the_built_in_one_and_can_be_mended() {
    let gateway = start()
        .restart(|directory| {
            write_to_store(directory, &level("own", -1).to_string());
            std::fs::remove_dir_all(directory.join("store/state")).unwrap();
        })
        .unwrap();
    assert!(!has_level(&gateway, "own") && has_level(&gateway, "catch-all"));
    assert_eq!(gateway.metric(SYNCED), Some(0));
    let text = ready(&gateway);
    assert!(
        text.contains("[!]policy: refused for ")
            && text.contains("; the built-in policy is in force\n"),
        "{text}"
    );
    delete(&gateway);
    wait_until("it is in sync", || gateway.metric(SYNCED) == Some(1));
}

#[test]
fn a_gateway_whose_store_another_process_has_open_starts_with_the_last_good_policy() {
    let first = start();
    let store = first.directory.join("store/objects.redb");
    let second = launch(store.to_str().unwrap());
    assert!(has_level(&second, "own"));
    assert_eq!(second.metric(SYNCED), Some(0));
    assert_eq!(second.metric("fairgate_store_up"), Some(0));
    let text = ready(&second);
    for words in [
        "[!]policy: not read from its source for ",
        "; the last good policy, kept ",
        "[!]store: ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The directory, too, is the first one's: it stays until the second has ended.
    create(&first, &level("other", 20));
    wait_until("it is kept", || kept(&first.directory, "other"));
    let path = first.directory.clone();
    let moved = path.with_extension("kept");
    std::fs::rename(&path, &moved).unwrap();
    std::fs::create_dir(&path).unwrap();
    drop(first);
    std::fs::rename(&moved, &path).unwrap();
    wait_until("the store is read", || has_level(&second, "other"));
    wait_until("it is in sync", || second.metric(SYNCED) == Some(1));
    assert!(ready(&second).contains("[+]policy ok\n"));
    drop(second);
    std::fs::remove_dir_all(path).unwrap();
}

/// The same with policies in an etcd, which other gateways may use, too.
#[cfg(feature = "etcd")]
mod in_an_etcd {
    use fairgate_testkit::etcd::EtcdServer;

    use super::*;

    /// A gateway that hosts its policies in this etcd. The state directory is where [`kept`] looks.
    fn launch_on(etcd: &EtcdServer) -> GatewayProcess {
        launch_with(json!({
            "store": {"type": "etcd", "etcd": {"endpoints": [etcd.endpoint()]}},
            "state": {"directory": "store/state"},
        }))
    }

    /// Waits until the etcd answers.
    fn is_up(etcd: &EtcdServer) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(etcd.client());
    }

    #[test]
    fn a_gateway_whose_etcd_is_down_starts_with_the_last_good_policy() {
        let mut etcd = EtcdServer::start();
        is_up(&etcd);
        let gateway = launch_on(&etcd);
        keeps_its_policies(&gateway);
        let gateway = gateway.restart(|_| etcd.stop()).unwrap();
        assert!(has_level(&gateway, "own"));
        assert_eq!(gateway.metric(SYNCED), Some(0));
        assert_eq!(gateway.metric("fairgate_store_up"), Some(0));
        let text = ready(&gateway);
        for words in [
            "[!]policy: not read from its source for ",
            "; the last good policy, kept ",
            "with the digest sha256:",
            "[!]store: ",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        etcd.restart();
        is_up(&etcd);
        wait_until("it is in sync", || gateway.metric(SYNCED) == Some(1));
        assert!(has_level(&gateway, "own"));
        let text = ready(&gateway);
        assert!(
            text.contains("[+]policy ok\n") && text.contains("[+]store ok\n"),
            "{text}"
        );
        create(&gateway, &level("other", 20));
        is_mended(&gateway);
    }

    #[test]
    fn a_gateway_whose_etcd_is_down_and_that_has_kept_nothing_starts_with_the_built_in_policy() {
        let mut etcd = EtcdServer::start();
        is_up(&etcd);
        let gateway = launch_on(&etcd);
        keeps_its_policies(&gateway);
        let gateway = gateway.restart(|directory| {
            etcd.stop();
            std::fs::remove_dir_all(directory.join("store/state")).unwrap();
        });
        let gateway = gateway.unwrap();
        assert!(!has_level(&gateway, "own") && has_level(&gateway, "catch-all"));
        assert_eq!(gateway.metric(SYNCED), Some(0));
        let text = ready(&gateway);
        assert!(
            text.contains("; the built-in policy is in force\n"),
            "{text}"
        );
        etcd.restart();
        wait_until("the etcd is read", || has_level(&gateway, "own"));
        wait_until("it is in sync", || gateway.metric(SYNCED) == Some(1));
    }
}

#[test]
fn a_second_gateway_on_a_store_says_which_file_and_key_and_takes_over_when_the_first_has_ended() {
    let mut first = start();
    let path = first.directory.join("store/objects.redb");
    let second = launch(path.to_str().unwrap());
    let why = format!("{} is in use by another process; ", path.display());
    let logged = second.wait_for_log(&why, 1);
    assert!(logged[0].contains("store.local.path"), "{logged:?}");
    let ready = second.admin_get("/readyz?verbose");
    assert!(ready.contains(&why), "{ready}");
    let response = call(second.address, "GET", LEVELS, "");
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    // The state directory is beside the store: both have what the first has kept.
    assert!(has_level(&first, "own") && has_level(&second, "own"));

    first.terminate();
    assert_eq!(first.exit_code(), Some(0));
    wait_until("it has the objects", || {
        let response = call(second.address, "GET", &format!("{LEVELS}/own"), "");
        response.starts_with("HTTP/1.1 200 ")
    });
    create(&second, &level("other", 20));
}
