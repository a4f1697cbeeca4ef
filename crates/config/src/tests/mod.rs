//! Reads configurations from text and files; every error in them is reported with its remedy.

mod fleet;
mod generated;
mod messages;
mod sample;
mod servers;
mod state;
mod validation;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};

use super::*;
use fairgate_core::finding::Severity;
use fairgate_manifest::yaml;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A directory for one test, which is removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        // Tests that run at a time may use the same name.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-{}-{name}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> &Self {
        fs::write(self.0.join(name), contents).unwrap();
        self
    }

    /// Files of two authorities, `ca.crt` and `other.crt`, of a leaf, `leaf.crt` and `leaf.key`, and a key of no
    /// certificate, `wrong.key`.
    fn pki(&self) -> &Self {
        let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let leaf = made();
        self.file("ca.crt", made().cert.pem())
            .file("other.crt", made().cert.pem())
            .file("leaf.crt", leaf.cert.pem())
            .file("leaf.key", leaf.signing_key.serialize_pem())
            .file("wrong.key", made().signing_key.serialize_pem())
    }

    /// Reads a configuration of these sections.
    fn read(&self, sections: Value) -> ConfigReading {
        let mut object = json!({"apiVersion": "fairgate.dev/v1alpha1", "kind": "Configuration"});
        let (Value::Object(all), Value::Object(sections)) = (&mut object, sections) else {
            panic!("sections are a mapping");
        };
        all.extend(sections);
        Config::parse("f.yaml", &self.0, object.to_string().as_bytes())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(sections: Value) -> ConfigReading {
    Scratch::new("none").read(sections)
}

fn fields(reading: &ConfigReading, severity: Severity) -> Vec<&str> {
    let findings = reading.findings.iter();
    findings
        .filter(|m| m.severity == severity)
        .map(|m| m.field.as_str())
        .collect()
}

#[test]
fn all_errors_are_reported_at_once_with_file_field_and_remedy() {
    let reading = read(json!({
        "listen": {"address": "localhost:1", "tls": {"certFile": "absent.crt"}},
        "limits": {"connections": 0, "streamPerConnection": 1},
        "timeouts": {"request": 60},
        "dataCores": "4",
        "flowControl": {"enforcement": false, "hashKey": "42", "policies": {"directory": "absent"}},
        "log": "text",
        "upstream": {"url": "https://example.org/path"},
        "extra": 1,
    }));
    let mut found = fields(&reading, Severity::Error);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "dataCores",
            "extra",
            "flowControl.enforcement",
            "flowControl.hashKey",
            "flowControl.policies.directory",
            "limits.connections",
            "limits.streamPerConnection",
            "listen.address",
            "listen.tls.keyFile",
            "log",
            "timeouts.request",
            "upstream.url",
        ]
    );
    for finding in &reading.findings {
        assert_eq!(finding.origin, "f.yaml, line 1");
        assert!(!finding.remedy.is_empty(), "{finding}");
    }
    let error = reading.usable().unwrap_err().to_string();
    assert!(
        error.starts_with("the configuration has 12 errors:\n"),
        "{error}"
    );
    assert!(
        error.contains("f.yaml, line 1: limits.streamPerConnection: unknown key; did you mean \"streamsPerConnection\"?"),
        "{error}"
    );
    assert!(
        error.contains("enforce, observe, off, in quotes"),
        "{error}"
    );
}

#[test]
fn a_file_of_another_kind_is_refused() {
    for (text, field) in [
        ("kind: Configuration", "apiVersion"),
        (
            "apiVersion: fairgate.dev/v1\nkind: Configuration",
            "apiVersion",
        ),
        ("apiVersion: fairgate.dev/v1alpha1\nkind: Pod", "kind"),
        ("", ""),
        ("- a", ""),
        ("a: [", ""),
        (
            "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\n---\na: 1",
            "",
        ),
    ] {
        let reading = Config::parse("f.yaml", Path::new(""), text.as_bytes());
        assert_eq!(fields(&reading, Severity::Error), [field], "{text}");
    }
}

#[test]
fn an_absent_file_is_reported() {
    let reading = Config::read(Some(Path::new("/nonexistent/f.yaml")));
    let error = reading.usable().unwrap_err().to_string();
    assert!(
        error.contains("/nonexistent/f.yaml: cannot be read"),
        "{error}"
    );
}

#[test]
fn null_is_the_default() {
    let reading = read(json!({"limits": null, "listen": {"address": null}}));
    assert_eq!(reading.findings, []);
    assert_eq!(
        reading.config.effective,
        Config::read(None).config.effective
    );
}

#[test]
fn files_are_read_relative_to_the_configuration() {
    let scratch = Scratch::new("relative");
    scratch.pki().file("tokens.csv", "t,u,1");
    let reading = scratch.read(json!({
        "listen": {"tls": {"certFile": "leaf.crt", "keyFile": "leaf.key"}},
        "upstream": {
            "url": "https://[::1]:6443", "caFile": "ca.crt",
            "clientCertificate": {"certFile": "leaf.crt", "keyFile": "leaf.key"},
            "identity": {"mode": "requestHeader", "userHeader": null},
        },
        "authentication": {
            "clientCertificate": {"caFile": "ca.crt"},
            "requestHeader": {"caFile": "other.crt", "allowedNames": ["proxy"]},
            "tokenFile": "tokens.csv",
        },
    }));
    assert_eq!(
        fields(&reading, Severity::Error),
        ["upstream.identity.userHeader"]
    );
    let config = reading.config;
    assert_eq!(config.apiserver, "[::1]:6443");
    assert_eq!(config.upstream.url.host, "::1");
    assert!(config.listen.tls.is_some() && config.upstream.client_certificate.is_some());
    assert!(config.authentication.request_header.is_some());
    assert_eq!(
        &**config.authentication.token_file.unwrap().contents,
        b"t,u,1"
    );
}

#[test]
fn a_broken_file_is_named_with_its_key() {
    let scratch = Scratch::new("broken");
    scratch.pki().file("empty", "").file("two", "a b");
    let reading = scratch.read(json!({
        "listen": {"tls": {"certFile": "leaf.crt", "keyFile": "wrong.key"}},
        "upstream": {"url": "https://h", "caFile": "leaf.key", "tokenFile": "two"},
        "authentication": {"clientCertificate": {"caFile": "empty"}, "tokenFile": "absent"},
    }));
    let mut found = fields(&reading, Severity::Error);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "authentication.clientCertificate.caFile",
            "authentication.tokenFile",
            "listen.tls.keyFile",
            "upstream.caFile",
            "upstream.tokenFile",
        ]
    );
    assert!(
        reading
            .findings
            .iter()
            .any(|m| m.message.contains("wrong.key"))
    );
}

#[test]
fn a_broken_file_for_etcd_is_named_with_its_key() {
    let scratch = Scratch::new("etcd");
    scratch.pki().file("password", b"\xff");
    let reading = scratch.read(json!({"store": {"etcd": {
        "endpoints": ["https://e:2379"], "caFile": "leaf.key",
        "clientCertificate": {"certFile": "leaf.crt", "keyFile": "wrong.key"},
        "user": "u", "passwordFile": "password",
    }}}));
    let mut found = fields(&reading, Severity::Error);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            "store.etcd.caFile",
            "store.etcd.clientCertificate.keyFile",
            "store.etcd.passwordFile",
        ]
    );
}

#[test]
fn the_errors_of_a_token_file_are_reported_by_line_and_without_tokens() {
    let scratch = Scratch::new("tokens");
    scratch
        .file("broken.csv", "hunter2\nhunter3,,1\n")
        .file("odd.csv", ",u,1\na,u,1\n");
    for (file, severity, lines) in [
        (
            "broken.csv",
            Severity::Error,
            ["line 1", "line 2"].as_slice(),
        ),
        ("odd.csv", Severity::Warning, &["line 1"]),
    ] {
        let reading = scratch.read(json!({"authentication": {"tokenFile": file}}));
        let keys = vec!["authentication.tokenFile"; lines.len()];
        assert_eq!(fields(&reading, severity), keys);
        for (finding, line) in reading.findings.iter().zip(lines) {
            assert!(finding.message.contains(line), "{finding}");
            assert!(!finding.to_string().contains("hunter"), "{finding}");
        }
    }
}

#[test]
fn no_secret_is_printed() {
    let scratch = Scratch::new("secret");
    let key = "0123456789abcdef0123456789abcdef";
    scratch
        .pki()
        .file("tokens.csv", "hunter2,u,1")
        .file("hash", format!("{key}\n"));
    for flow_control in [
        json!({"hashKey": key}),
        json!({"hashKeyFile": "hash"}),
        json!({"hashKey": format!("{key}0")}),
        json!({"hashKey": key, "hashKeyFile": "hash"}),
        json!({"hashKeyFile": "tokens.csv"}),
    ] {
        let reading = scratch.read(json!({
            "flowControl": flow_control,
            "listen": {"tls": {"certFile": "leaf.crt", "keyFile": "leaf.key"}},
            "authentication": {"tokenFile": "tokens.csv"},
        }));
        let printed = format!("{reading:?}");
        assert!(
            !printed.contains(key) && !printed.contains("hunter2"),
            "{printed}"
        );
        assert!(!printed.contains("104, 117, 110"), "{printed}");
    }
}

#[test]
fn the_hash_key_is_read_most_significant_digit_first() {
    let reading = read(json!({"flowControl": {"hashKey": "000102030405060708090A0B0C0D0E0F"}}));
    assert_eq!(reading.findings, []);
    let key = reading.config.flow_control.hash_key.unwrap();
    assert_eq!(*key, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
}
