//! Configurations are read from text and files, and every mistake in them is told with its remedy.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use super::*;
use fairgate_core::finding::Severity;
use fairgate_manifest::yaml;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory of its own that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fairgate-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> &Self {
        fs::write(self.0.join(name), contents).unwrap();
        self
    }

    /// Files of two authorities, `ca.crt` and `other.crt`, and of a leaf, `leaf.crt` and `leaf.key`.
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

/// The paths of all leaves of `value`.
fn leaves(value: &Value, path: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                leaves(value, &path, out);
            }
        }
        _ => {
            out.insert(path.to_owned());
        }
    }
}

#[test]
fn the_sample_names_every_key_with_its_default() {
    let path = repository().join("config/fairgate.yaml");
    let text = fs::read(&path).unwrap();
    let mut written = BTreeSet::new();
    leaves(&yaml::documents(&text).unwrap()[0], "", &mut written);
    written.remove("apiVersion");
    written.remove("kind");

    let sample = Config::read(Some(&path));
    let defaults = Config::read(None);

    assert_eq!(sample.findings, []);
    assert_eq!(defaults.findings, []);
    assert_eq!(sample.config.effective, defaults.config.effective);
    assert_eq!(written, defaults.config.effective.into_keys().collect());
}

#[test]
fn the_sample_says_which_keys_a_reload_applies() {
    let text = fs::read_to_string(repository().join("config/fairgate.yaml")).unwrap();
    let mut blocks = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        match line.trim_start().strip_prefix('#') {
            Some(words) => comment.push_str(words),
            None if comment.contains("(reload)") => {
                let key = line.trim_start().split(':').next().unwrap();
                blocks.push(key.to_owned());
                comment.clear();
            }
            None => comment.clear(),
        }
    }
    for key in APPLIED_BY_RELOAD {
        let named = |block: &String| key.split('.').any(|part| part == block);
        assert!(blocks.iter().any(named), "{key} is not marked (reload)");
    }
}

#[test]
fn the_keys_a_reload_applies_are_keys() {
    let effective = Config::read(None).config.effective;
    for key in APPLIED_BY_RELOAD {
        assert!(effective.contains_key(key), "{key}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_with_file_field_and_remedy() {
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
        assert_eq!(finding.origin, "f.yaml");
        assert!(!finding.remedy.is_empty(), "{finding}");
    }
    let error = reading.usable().unwrap_err().to_string();
    assert!(
        error.starts_with("the configuration has 12 mistakes:\n"),
        "{error}"
    );
    assert!(
        error.contains("f.yaml: limits.streamPerConnection: unknown key; did you mean \"streamsPerConnection\"?"),
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
fn an_absent_file_is_told() {
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
fn the_mistakes_of_a_token_file_are_told_by_line_and_without_tokens() {
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

#[test]
fn an_upstream_is_a_server_and_nothing_more() {
    for (url, expected) in [
        ("https://h", Some((true, "h", 443))),
        ("http://h/", Some((false, "h", 80))),
        ("https://[fd00::1]:6443", Some((true, "fd00::1", 6443))),
        ("https://10.0.0.1:6443", Some((true, "10.0.0.1", 6443))),
        ("h:6443", None),
        ("ftp://h", None),
        ("https://u@h", None),
        ("https://h/api", None),
        ("https://h?x", None),
        ("https://h:0", None),
        ("https://h:x", None),
        ("https://:1", None),
        ("", None),
    ] {
        let reading = read(json!({"upstream": {"url": url}}));
        let refused = fields(&reading, Severity::Error).contains(&"upstream.url");
        assert_eq!(refused, expected.is_none(), "{url}");
        if let Some((tls, host, port)) = expected {
            let host = host.to_owned();
            assert_eq!(
                reading.config.upstream.url,
                UpstreamUrl { tls, host, port },
                "{url}"
            );
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn keys_that_contradict_each_other_are_told() {
    let scratch = Scratch::new("contradict");
    scratch.pki().file("token", "abc");
    let tls = json!({"certFile": "leaf.crt", "keyFile": "leaf.key"});
    for (sections, severity, field) in [
        (
            json!({"authentication": {"clientCertificate": {"caFile": "ca.crt"}}}),
            Severity::Error,
            "authentication.clientCertificate.caFile",
        ),
        (
            json!({"listen": {"tls": tls}, "authentication": {"requestHeader": {
                "caFile": "ca.crt", "groupHeaders": []}}}),
            Severity::Error,
            "authentication.requestHeader.groupHeaders",
        ),
        (
            json!({"listen": {"tls": tls}, "authentication": {
                "clientCertificate": {"caFile": "ca.crt"}, "requestHeader": {"caFile": "ca.crt"}}}),
            Severity::Error,
            "authentication.requestHeader.allowedNames",
        ),
        (
            json!({"listen": {"tls": tls}, "authentication": {
                "clientCertificate": {"caFile": "ca.crt"},
                "requestHeader": {"caFile": "ca.crt", "allowedNames": ["p"]}}}),
            Severity::Warning,
            "authentication.requestHeader.caFile",
        ),
        (
            json!({"mode": "overlay", "listen": {"tls": tls},
                "hostedApi": {"readerGroups": ["devs"]}}),
            Severity::Warning,
            "hostedApi.readerGroups",
        ),
        (
            json!({"upstream": {"identity": {"mode": "requestHeader"}}}),
            Severity::Error,
            "upstream.clientCertificate",
        ),
        (
            json!({"upstream": {"url": "https://h", "caFile": "ca.crt"}}),
            Severity::Error,
            "upstream",
        ),
        (
            json!({"upstream": {"url": "https://h", "tokenFile": "token"}}),
            Severity::Error,
            "upstream.caFile",
        ),
        (
            json!({"upstream": {"url": "http://h"}}),
            Severity::Warning,
            "upstream.url",
        ),
        (
            json!({"upstream": {"url": "http://127.0.0.1:8443"}}),
            Severity::Error,
            "upstream.url",
        ),
        (
            json!({"upstream": {"caFile": "ca.crt"}}),
            Severity::Error,
            "upstream.caFile",
        ),
        (
            json!({"listen": {"address": "0.0.0.0:8443"}}),
            Severity::Warning,
            "listen.tls",
        ),
        (
            json!({"admin": {"address": "127.0.0.1:8443"}}),
            Severity::Error,
            "admin.address",
        ),
        (
            json!({"limits": {"longRunningTotal": 1}}),
            Severity::Error,
            "limits.longRunningPerUser",
        ),
        (
            json!({"limits": {"unfinishedHeaderBytes": "1Mi", "headerBytes": "2Mi"}}),
            Severity::Error,
            "limits.unfinishedHeaderBytes",
        ),
        (
            json!({"limits": {"spoolTotal": "512Ki"}}),
            Severity::Error,
            "limits.spoolPerAnswer",
        ),
        (
            json!({"authentication": {"tokenReview": {"enabled": false}}}),
            Severity::Warning,
            "authentication",
        ),
        (
            json!({"upstream": {"identity": {"usernameHeader": "Authorization"}}}),
            Severity::Error,
            "upstream.identity.usernameHeader",
        ),
    ] {
        let reading = scratch.read(sections.clone());
        assert_eq!(fields(&reading, severity), [field], "{sections}");
    }
}

#[test]
fn watches_have_to_find_streams_upstream() {
    for (sections, wrong) in [
        (
            json!({"limits": {"watchesTotal": 1}}),
            Some("limits.watchesPerUser"),
        ),
        (
            json!({"limits": {"watchesTotal": 46_081}, "upstream": {"protocol": "http2"}}),
            Some("limits.watchesTotal"),
        ),
        (
            json!({"limits": {"watchesTotal": 46_080}, "upstream": {"protocol": "http2"}}),
            None,
        ),
        (
            json!({"limits": {"watchesTotal": 46_081}, "upstream": {"protocol": "http1"}}),
            None,
        ),
    ] {
        let reading = read(sections.clone());
        let wrong: Vec<_> = wrong.into_iter().collect();
        assert_eq!(fields(&reading, Severity::Error), wrong, "{sections}");
    }
}

#[test]
fn anonymous_requests_are_for_listed_paths_unless_told_otherwise() {
    for (anonymous, expected) in [
        (json!({"enabled": false}), AnonymousConfig::Refused),
        (json!({"paths": []}), AnonymousConfig::Refused),
        (json!({"paths": ["*"]}), AnonymousConfig::Everywhere),
        (
            json!({"paths": ["/a"]}),
            AnonymousConfig::Paths(vec!["/a".to_owned()]),
        ),
    ] {
        let reading = read(json!({"authentication": {"anonymous": anonymous}}));
        assert_eq!(
            reading.config.authentication.anonymous, expected,
            "{anonymous}"
        );
    }
}

#[test]
fn nobody_has_to_say_who_they_are_to_ask_for_health_and_for_a_version_that_is_our_own() {
    for (mode, version) in [
        ("files", false),
        ("sidecar", false),
        ("overlay", false),
        ("standalone", true),
    ] {
        let reading = read(json!({"mode": mode}));
        let AnonymousConfig::Paths(paths) = reading.config.authentication.anonymous else {
            panic!("{mode}: only some paths are open");
        };
        let has = |path: &str| paths.iter().any(|open| open == path);
        assert!(has("/livez") && has("/readyz") && has("/healthz"), "{mode}");
        assert_eq!(has("/version"), version, "{mode}");
    }
}

#[test]
fn a_reload_tells_which_changes_wait_for_a_restart() {
    let scratch = Scratch::new("reload");
    scratch.pki();
    let sections = |cert: &str, seats: u32, cores: u32| {
        json!({
            "dataCores": cores,
            "listen": {"tls": {"certFile": cert, "keyFile": "leaf.key"}},
            "flowControl": {"totalSeats": seats, "enforcement": "observe"},
        })
    };
    let before = scratch.read(sections("leaf.crt", 1, 1)).config;
    let same = scratch.read(sections("leaf.crt", 2, 1)).config;
    let other = scratch.read(sections("leaf.crt", 1, 2)).config;
    assert_eq!(before.restart_needed_for(&same), Vec::<String>::new());
    assert_eq!(before.restart_needed_for(&other), ["dataCores"]);

    let renewed = fs::read_to_string(scratch.0.join("leaf.crt")).unwrap() + "\n";
    scratch.file("leaf.crt", renewed);
    let content = scratch.read(sections("leaf.crt", 1, 1)).config;
    assert_eq!(before.restart_needed_for(&content), ["listen.tls.certFile"]);
    let removed = scratch.read(json!({"dataCores": 1})).config;
    assert_eq!(
        before.restart_needed_for(&removed),
        ["listen.tls.certFile", "listen.tls.keyFile"]
    );
}

/// The configurations that files under `config/kubernetes` hold or are.
fn configurations_in(documents: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for document in documents {
        match document["kind"].as_str() {
            Some("Configuration") => found.push(document.to_string()),
            Some("ConfigMap") => {
                let texts = document["data"].as_object().unwrap().values();
                let texts = texts.map(|text| text.as_str().unwrap());
                found.extend(
                    texts
                        .filter(|t| t.contains("kind: Configuration"))
                        .map(str::to_owned),
                );
            }
            _ => {}
        }
    }
    found
}

fn yaml_files(directory: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, out);
        } else {
            out.push(path);
        }
    }
}

#[test]
fn every_file_under_config_parses_and_every_configuration_in_them_is_sound() {
    let scratch = Scratch::new("kubernetes");
    for made in ["ca", "apiserver", "front-proxy-client", "tls"] {
        let identity = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap();
        scratch
            .file(&format!("{made}.crt"), identity.cert.pem())
            .file(&format!("{made}.key"), identity.signing_key.serialize_pem());
    }
    scratch.file("token", "abc");
    fs::create_dir_all(scratch.0.join("policies")).unwrap();
    let here = scratch.0.display().to_string();
    let mut files = Vec::new();
    yaml_files(&repository().join("config"), &mut files);
    let mut configurations = 0;
    for path in files {
        let documents = yaml::documents(&fs::read(&path).unwrap());
        let documents = documents.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(!documents.is_empty(), "{}", path.display());
        for text in configurations_in(&documents) {
            let text = text
                .replace("/etc/kubernetes/pki", &here)
                .replace("/etc/fairgate/tls", &here)
                .replace("/etc/fairgate/policies", &here)
                .replace("/var/run/secrets/kubernetes.io/serviceaccount", &here);
            let file = path.display().to_string();
            let reading = Config::parse(&file, &scratch.0, text.as_bytes());
            assert_eq!(reading.findings, [], "{file}");
            configurations += 1;
        }
    }
    assert_eq!(configurations, 4);
}
