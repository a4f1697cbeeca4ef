//! `fairgate serve` with admission policies that cannot be used: it does not start, so that nothing passes unevaluated.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::process::new_directory;

/// What the process prints that is to serve with this file of policies; none if there is no text.
fn serve_with(policies: Option<&str>) -> Output {
    let directory = new_directory();
    if let Some(text) = policies {
        std::fs::write(directory.join("policies.yaml"), text).unwrap();
    }
    let configuration = json!({
        "apiVersion": "fairgate.dev/v1alpha1",
        "kind": "Configuration",
        "listen": {"address": "127.0.0.1:0"},
        "admin": {"address": "127.0.0.1:0"},
        "upstream": {"url": "http://127.0.0.1:9"},
        "admission": {"mode": "enforce", "policies": {"source": "files", "files": ["policies.yaml"]}},
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
    ended
}

/// The gateway ends with 1, and says these words.
#[track_caller]
fn does_not_start(policies: Option<&str>, words: &[&str]) {
    let ended = serve_with(policies);
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    for word in words {
        assert!(printed.contains(word), "{word}: {printed}");
    }
}

fn policy(expression: &str) -> String {
    let metadata = json!({"name": "p"});
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]);
    let policy: Value = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression}],
        },
    });
    policy.to_string()
}

#[test]
fn policies_that_are_no_yaml_stop_the_start() {
    does_not_start(
        Some("this: [is not"),
        &["the policies are invalid", "policies.yaml: document 1"],
    );
}

#[test]
fn an_expression_that_does_not_compile_stops_the_start() {
    let text = policy("object.spec.");
    does_not_start(
        Some(&text),
        &["the policies are invalid", "policies.yaml", "expression"],
    );
}

#[test]
fn a_file_that_does_not_exist_stops_the_start() {
    does_not_start(
        None,
        &["admission.policies.files", "policies.yaml does not exist"],
    );
}
