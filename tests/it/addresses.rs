//! `fairgate serve` with addresses on which it cannot listen: it says which key, why, and what to do.

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
};

use serde_json::json;

use crate::process::new_directory;

/// The last line that the process prints that is to listen on these addresses; it ends with 1.
#[track_caller]
fn last_line(listen: &str, admin: &str) -> String {
    let directory = new_directory();
    let configuration = json!({
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Configuration",
        "listen": {"address": listen},
        "admin": {"address": admin},
        "upstream": {"url": "http://127.0.0.1:9"},
    });
    let path = directory.join("fairgate.yaml");
    std::fs::write(&path, configuration.to_string()).unwrap();
    // One that starts would serve for ever.
    let ended = Command::new("timeout")
        .args(["180", env!("CARGO_BIN_EXE_fairgate"), "serve", "--config"])
        .arg(path)
        .output()
        .unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    printed.lines().last().unwrap_or_default().to_owned()
}

/// Somebody listens there.
fn taken() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

const FREE: &str = "127.0.0.1:0";
/// For documentation: no machine has it.
const NOT_OURS: &str = "192.0.2.1:8443";

#[test]
fn an_address_that_another_process_has_is_said_to_be_in_use() {
    let (_listener, address) = taken();
    let address = address.to_string();
    for (key, line) in [
        ("listen.address", last_line(&address, FREE)),
        ("admin.address", last_line(FREE, &address)),
    ] {
        let expected = format!(
            "fairgate: {key}: cannot listen on {address}: Address already in use (os error 98); stop the other process, which may \
             be another fairgate, or use another port"
        );
        assert_eq!(line, expected);
    }
}

#[test]
fn an_address_of_another_machine_is_not_said_to_be_in_use() {
    for (key, line) in [
        ("listen.address", last_line(NOT_OURS, FREE)),
        ("admin.address", last_line(FREE, NOT_OURS)),
    ] {
        let expected = format!(
            "fairgate: {key}: cannot listen on {NOT_OURS}: Cannot assign requested address (os error 99); use an address of this \
             machine; 0.0.0.0 or [::] stands for all of them"
        );
        assert_eq!(line, expected);
    }
}
