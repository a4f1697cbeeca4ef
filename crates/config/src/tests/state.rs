//! The directory in which the last good policies are kept.

use std::fs;

use serde_json::{Value, json};

use super::Scratch;

#[test]
fn policies_are_kept_beside_a_store_by_default_and_else_where_the_configuration_says() {
    let scratch = Scratch::new("state");
    let directory = |sections: Value| scratch.read(sections).config.state_directory;
    let beside = |name: &str| Some(scratch.0.join(name));
    for mode in ["standalone", "overlay"] {
        let store = json!({"mode": mode, "store": {"local": {"path": "data/own.redb"}}});
        assert_eq!(directory(store), beside("data/state"));
        assert_eq!(directory(json!({"mode": mode})), beside("state"));
    }
    for mode in ["files", "sidecar"] {
        assert_eq!(directory(json!({"mode": mode})), None);
        let set = json!({"mode": mode, "state": {"directory": "own"}});
        assert_eq!(directory(set), beside("own"));
    }
    let etcd = json!({"mode": "overlay", "store": {"type": "etcd"}});
    assert_eq!(directory(etcd), None);
}

#[test]
fn a_reload_names_what_it_applies_with_both_values() {
    let scratch = Scratch::new("applied");
    scratch.file("tokens", "secret-one,a,1");
    let read = |seats: u32| {
        let sections = json!({
            "flowControl": {"totalSeats": seats},
            "authentication": {"tokenFile": "tokens"},
            "dataCores": seats,
        });
        scratch.read(sections).config
    };
    let before = read(60);
    scratch.file("tokens", "secret-two,a,1");
    let changes = before.applied_by_reload(&read(80));
    let seats = ("flowControl.totalSeats", "60".to_owned(), "80".to_owned());
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(changes.contains(&seats));
    assert!(format!("{changes:?}").contains("authentication.tokenFile"));
    assert!(!format!("{changes:?}").contains("secret"));
    assert_eq!(read(80).applied_by_reload(&read(80)), []);
    let cores = before.change(&read(80), "dataCores");
    assert_eq!(cores, Some(("60".to_owned(), "80".to_owned())));
    assert_eq!(read(80).change(&read(80), "dataCores"), None);
}

#[test]
fn a_state_directory_without_policies_to_keep_is_reported() {
    let scratch = Scratch::new("no-policies");
    fs::create_dir(scratch.0.join("policies")).unwrap();
    let state = json!({"directory": "state"});
    let warnings = |mode: &str, policies: &str| {
        let read = scratch.read(json!({
            "mode": mode,
            "state": state,
            "flowControl": {"policies": {"directory": policies}},
        }));
        let findings = read.findings.into_iter();
        findings.filter(|f| f.field == "state.directory").count()
    };
    assert_eq!(warnings("files", ""), 1);
    // Those of its store are kept.
    assert_eq!(warnings("standalone", ""), 0);
    assert_eq!(warnings("files", "policies"), 0);
    assert_eq!(warnings("sidecar", ""), 0);
}

#[test]
fn a_state_directory_in_which_policies_are_is_an_error_and_a_file_a_warning() {
    let scratch = Scratch::new("state-of-policies");
    fs::create_dir(scratch.0.join("policies")).unwrap();
    scratch.file("file", "");
    let found = |state: &str, files: &Value| {
        let read = scratch.read(json!({
            "state": {"directory": state},
            "flowControl": {"policies": {"directory": "policies"}},
            "admission": {"mode": "enforce", "policies": {"source": "files", "files": files}},
        }));
        let findings = read.findings.iter();
        let findings = findings.filter(|finding| finding.field == "state.directory");
        findings
            .map(|finding| (finding.is_error(), finding.message.clone()))
            .collect::<Vec<_>>()
    };
    let read_there = "policies are read from it, and what is kept there would be taken for one";
    let read_there = [(true, read_there.to_owned())];
    assert_eq!(found("policies", &json!(["file"])), read_there);
    assert_eq!(found("./policies/", &json!(["file"])), read_there);
    assert_eq!(found("other", &json!(["other"])), read_there);
    assert_eq!(found("state", &json!(["file"])), []);
    let file = scratch.0.join("file");
    let none = format!("{} is not a directory, so nothing is kept", file.display());
    assert_eq!(found("file", &json!(["policies/a.yaml"])), [(false, none)]);
}

#[test]
fn what_changed_is_shown_as_it_is_written() {
    let scratch = Scratch::new("as-written");
    let read = |sections: Value| scratch.read(sections).config;
    let before =
        read(json!({"timeouts": {"request": "60s"}, "upstream": {"url": "http://127.0.0.1:8001"}}));
    let after = read(json!({
        "timeouts": {"request": "1m30s"},
        "upstream": {"servers": [{"url": "http://127.0.0.1:1"}]},
        "limits": {"spoolTotal": "32Mi"},
        "flowControl": {"hashKey": "00112233445566778899aabbccddeeff"},
        "authentication": {"clientCertificate": {"caFile": "https://admin:s3cret@a"}},
    }));
    for (key, from, to) in [
        ("timeouts.request", "60s", "1m30s"),
        (
            "upstream.url",
            "http://127.0.0.1:8001",
            "http://127.0.0.1:8001",
        ),
        ("upstream.servers", "[]", "[127.0.0.1:1]"),
        ("limits.spoolTotal", "64Mi", "32Mi"),
        ("flowControl.hashKey", "not set", "<secret>"),
        (
            "authentication.clientCertificate.caFile",
            "not set",
            "https://…@a",
        ),
    ] {
        let found = before.change(&after, key);
        let expected = Some((from.to_owned(), to.to_owned()));
        if key == "upstream.url" {
            assert!(
                found.is_none_or(|(_, after)| after == "the default that follows from other keys")
            );
        } else {
            assert_eq!(found, expected, "{key}");
        }
    }
}
