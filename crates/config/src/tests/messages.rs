//! Messages about broken configurations, as somebody reads them who has little time: they say what is wrong, where, and what to do, and
//! nothing that follows from it. They show no secret.

use super::*;

/// The findings of a file of these lines, after its first two, as `check` prints them.
fn messages(scratch: &Scratch, lines: &str) -> Vec<String> {
    let text = format!("apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\n{lines}");
    let reading = Config::parse("f.yaml", &scratch.0, text.as_bytes());
    reading.findings.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_messages(scratch: &Scratch, lines: &str, expected: &[&str]) {
    let found = messages(scratch, lines);
    let expected: Vec<_> = expected
        .iter()
        .map(|line| line.replace("DIR", &scratch.0.display().to_string()))
        .collect();
    assert_eq!(found, expected, "{lines}");
}

#[test]
fn a_finding_names_the_line_of_its_key() {
    let scratch = Scratch::new("lines");
    assert_messages(
        &scratch,
        "limits:\n  # more than any\n  connections: 0\n  spoolPerAnswer: 2Gi\nlog: {colour: red}\n",
        &[
            "error: f.yaml, line 5: limits.connections: 0 is out of range; write a value from 1 to 1000000",
            "error: f.yaml, line 6: limits.spoolPerAnswer: \"2Gi\" is out of range; write a value from 0 to 1Gi",
            "error: f.yaml, line 7: log.colour: unknown key; remove it, or write one of format, level, access",
        ],
    );
    // A key that is missing stands nowhere; the one above it may.
    assert_messages(
        &scratch,
        "listen: {address: 127.0.0.1:1}\nupstream:\n  url: https://a\n",
        &[
            "error: f.yaml, line 4: upstream.caFile: not set, so the upstream's certificate cannot be verified; set it to the CA of the API server's serving certificate",
            "error: f.yaml, line 4: upstream: the gateway has no credential for the upstream; set clientCertificate.certFile and keyFile, or tokenFile",
        ],
    );
    assert_messages(
        &scratch,
        "mode: overlay\n",
        &[
            "warning: f.yaml: listen.tls: not set: kubectl sends no credentials over plain HTTP, so nobody could change a policy; set listen.tls.certFile and keyFile",
        ],
    );
}

#[test]
fn a_value_of_the_wrong_type_is_told_the_range_or_the_words_of_its_key() {
    let scratch = Scratch::new("types");
    assert_messages(
        &scratch,
        "timeouts: {upstreamConnect: 4}\nlimits: {connections: many, headerBytes: [1]}\nlog: {format: 7}\n",
        &[
            "error: f.yaml, line 4: limits.connections: \"many\" is not a whole number; write a whole number, without quotes; from 1 to 1000000",
            "error: f.yaml, line 4: limits.headerBytes: a list is not a size; write a number and a unit, as in 64Ki, 16Mi, 1Gi; from 8Ki to 16Mi",
            "error: f.yaml, line 3: timeouts.upstreamConnect: 4 is not a duration; write a number and a unit, as in 500ms, 10s, 1m30s, 4h; from 1ms to 24h",
            "error: f.yaml, line 5: log.format: 7 is not a known value; write one of text, json",
        ],
    );
}

#[test]
fn one_mistake_in_a_value_is_one_error() {
    let scratch = Scratch::new("once");
    assert_messages(
        &scratch,
        "upstream: {url: http://127.0.0.1:1, caFile: absent.crt}\n",
        &[
            "error: f.yaml, line 3: upstream.caFile: DIR/absent.crt cannot be read: No such file or directory (os error 2); check the path, which is relative to the directory of the configuration file, and the file's permissions",
        ],
    );
    assert_messages(
        &scratch,
        "upstream: {url: http://127.0.0.1:1}\nadmission: {mode: audit, policies: {files: p.yaml}}\nlimits: {watchesPerUser: 99999999, watchesTotal: 10}\neviction: {wait: {limit: 3, groups: [a]}}\n",
        &[
            "error: f.yaml, line 6: eviction.wait.limit: 3 is not a duration; write a number and a unit, as in 500ms, 10s, 1m30s, 4h; from 0s to 1h",
            "error: f.yaml, line 4: admission.policies.files: \"p.yaml\" is not a list; write it as [a, b]",
            "error: f.yaml, line 5: limits.watchesPerUser: 99999999 is out of range; write a value from 1 to 10000000",
            "warning: f.yaml, line 4: admission.mode: the gateway has no credential for the upstream, where it reads namespaces and objects in its own name; set upstream.tokenFile, or use https and upstream.clientCertificate",
        ],
    );
    scratch.file("tokens", "# nobody\na,,1\n");
    let form = "a line is token,user,uid,\"group1,group2\"";
    assert_messages(
        &scratch,
        "authentication: {tokenFile: tokens}\n",
        &[
            &format!(
                "error: f.yaml, line 3: authentication.tokenFile: DIR/tokens: line 1: 1 column(s); write at least token,user,uid; {form}"
            ),
            &format!(
                "error: f.yaml, line 3: authentication.tokenFile: DIR/tokens: line 2: the user name is empty; name a user; {form}"
            ),
        ],
    );
    for key in ["store", "fleet"] {
        let engine = match key {
            "store" => {
                "mode: standalone\nlisten: {tls: {certFile: leaf.crt, keyFile: leaf.key}}\nstore: {type: etcd, "
            }
            _ => "fleet: {engine: etcd, maxGateways: 3, isolatedSeats: 10, ",
        };
        scratch.pki();
        let lines = format!("{engine}etcd: {{endpoints: [\"http://a:1\", \"ftp://b\"]}}}}\n");
        let found = messages(&scratch, &lines);
        let of_endpoints: Vec<_> = (found.iter())
            .filter(|message| message.contains("etcd.endpoints"))
            .collect();
        assert_eq!(of_endpoints.len(), 1, "{found:?}");
        assert!(
            of_endpoints[0].contains("\"ftp://b\" does not begin with"),
            "{found:?}"
        );
    }
}

#[test]
fn what_has_no_effect_is_a_warning_and_what_contradicts_another_key_an_error() {
    let scratch = Scratch::new("severities");
    scratch.pki();
    for (lines, told) in [
        (
            "mode: standalone\nflowControl: {policies: {directory: policies}}\n",
            "error: f.yaml, line 4: flowControl.policies.directory: set, and policy objects are read from files only with mode: files; ",
        ),
        (
            "upstream: {url: http://127.0.0.1:1, tlsServerName: a}\n",
            "error: f.yaml, line 3: upstream.tlsServerName: set, and upstream.url is not https; ",
        ),
        (
            "admin: {secure: {tls: {certFile: leaf.crt, keyFile: leaf.key}}}\n",
            "error: f.yaml, line 3: admin.secure.tls: set, and admin.secure.address is not; ",
        ),
        (
            "admission: {mode: audit, policies: {source: upstream, files: [leaf.crt]}}\n",
            "error: f.yaml, line 3: admission.policies.files: set, and admission.policies.source is not files; ",
        ),
        (
            "admission: {guard: true}\n",
            "warning: f.yaml, line 3: admission.guard: has no effect: ",
        ),
    ] {
        let found = messages(&scratch, lines);
        assert!(
            found.iter().any(|message| message.starts_with(told)),
            "{told}: {found:?}"
        );
        let mut errors = found.iter().filter(|message| message.starts_with("error"));
        assert!(
            !errors.any(|message| message.contains("has no effect")),
            "{found:?}"
        );
    }
}

#[test]
fn a_key_in_another_place_is_told_where_it_belongs() {
    let scratch = Scratch::new("places");
    assert_messages(
        &scratch,
        "totalSeats: 60\nlog: {totalSeats: 60, certFile: a}\n",
        &[
            // There are several places for it.
            "error: f.yaml, line 4: log.certFile: unknown key; remove it, or write one of format, level, access",
            "error: f.yaml, line 4: log.totalSeats: unknown key; move it below flowControl",
            "error: f.yaml, line 3: totalSeats: unknown key; move it below flowControl",
        ],
    );
}

#[test]
fn a_malformed_url_is_one_error_and_its_password_stays_unread() {
    let scratch = Scratch::new("urls");
    let form = "write it as https://host:6443, without user, path or query";
    for (url, problem) in [
        (
            "api.example.org:6443",
            "\"api.example.org:6443\" does not begin with https:// or http://",
        ),
        (
            "ftp://a",
            "\"ftp://a\" does not begin with https:// or http://",
        ),
        (
            "https:/a",
            "\"https:/a\" does not begin with https:// or http://",
        ),
        ("https://", "\"https://\" is not a server URL"),
        ("https://a b", "\"https://a b\" is not a server URL"),
        (
            "https://a:99999",
            "\"https://a:99999\" has a port that is not one of 1 to 65535",
        ),
        (
            "https://a/api?token=s3cret",
            "\"https://a/api\" has a path or a query",
        ),
    ] {
        // What needs https is no error of its own.
        let lines = format!("upstream:\n  url: \"{url}\"\n  tlsServerName: a\n");
        let expected = format!("error: f.yaml, line 4: upstream.url: {problem}; {form}");
        assert_messages(&scratch, &lines, &[&expected]);
    }
    for (url, shown) in [
        ("https://admin:s3cret@a:6443", "https://…@a:6443"),
        ("https://admin:s3/cr@et@a:99999/x", "https://…@a:99999/x"),
        ("admin:s3cret@a", "…@a"),
        ("https://admin:s3?cret@a", "https://…@a"),
        ("admin:s3://cret@a?token=s3cret", "…@a"),
    ] {
        let lines = format!("upstream: {{url: \"{url}\"}}\n");
        let expected = format!(
            "error: f.yaml, line 3: upstream.url: {shown:?} has a user or a password; remove them; \
             upstream.clientCertificate or upstream.tokenFile is the gateway's own credential"
        );
        assert_messages(&scratch, &lines, &[&expected]);
    }
}

/// Whatever is pasted wherever: a list, a mapping, a URL with a password, a key, a token.
#[test]
fn no_message_shows_what_may_be_a_secret_at_any_key() {
    let scratch = Scratch::new("secrets");
    let values = [
        json!(["s3cret"]),
        json!([["s3cret"]]),
        json!({"s3cret": "s3cret"}),
        json!("https://admin:s3cret@a:6443"),
        json!(["https://admin:s3cret@a:6443"]),
        json!("admin:s3cret@a"),
        json!("-----BEGIN EC PRIVATE KEY-----\ns3cret\n-----END EC PRIVATE KEY-----\n"),
        json!("eyJhbGciOiJSUzI1NiJ9.s3cret.s3cret"),
    ];
    let mut told = 0;
    for key in crate::keys::KEYS {
        // A word in a list of words may be shown, as it may be where one word belongs.
        let takes_list = key.default.is_none_or(|default| default.starts_with('['));
        for value in values.iter().skip(usize::from(takes_list)) {
            let found = messages(&scratch, &line(key.path, value));
            told += usize::from(found.iter().any(|message| message.contains(key.path)));
            for message in found {
                // A key that nobody knows is shown: it is not a value.
                let message = message.replace(".s3cret: unknown key", "");
                assert!(!message.contains("s3cret"), "{}: {message}", key.path);
            }
        }
    }
    assert!(told > 4 * crate::keys::KEYS.len(), "{told} messages");
    for key in ["fleet.etcd.passwordFile", "store.etcd.passwordFile"] {
        let found = messages(&scratch, &line(key, &json!("s3cret"))).join("\n");
        assert!(found.contains("cannot be read"), "{found}");
        assert!(!found.contains("s3cret"), "{found}");
    }
}

/// The line that gives a key this value.
fn line(path: &str, value: &Value) -> String {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let mut value = value.clone();
    for part in rest.rsplit('.').filter(|part| !part.is_empty()) {
        value = json!({ part: value });
    }
    format!("{first}: {value}\n")
}

#[test]
fn a_hash_key_without_quotes_is_told_to_be_quoted_and_not_shown() {
    let scratch = Scratch::new("hash-keys");
    for digits in ["1234567890123456", "12345678901234567890123456789e12"] {
        assert_messages(
            &scratch,
            &format!("flowControl:\n  hashKey: {digits}\n"),
            &[
                "error: f.yaml, line 4: flowControl.hashKey: a number, since it is not quoted; put the 32 hex digits in quotes",
            ],
        );
    }
    assert_messages(
        &scratch,
        "flowControl:\n  hashKey: 12345678901234567890123456789012\n",
        &[
            "error: f.yaml: document 1: flowControl.hashKey: a whole number of more than 64 bits (text needs quotes) at line 4 column 12; correct the syntax",
        ],
    );
}

#[test]
fn a_certificate_that_cannot_be_used_is_not_said_to_be_missing() {
    let scratch = Scratch::new("certificates");
    scratch.pki();
    let lines = "mode: overlay\nlisten:\n  tls: {certFile: absent.crt, keyFile: leaf.key}\n";
    assert_messages(
        &scratch,
        lines,
        &[
            "error: f.yaml, line 5: listen.tls.certFile: DIR/absent.crt cannot be read: No such file or directory (os error 2); check the path, which is relative to the directory of the configuration file, and the file's permissions",
        ],
    );
}

#[test]
fn an_encrypted_key_is_told_to_be_decrypted() {
    let scratch = Scratch::new("encrypted");
    let old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,7E30A5494C5F4319\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
    let new = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    scratch
        .pki()
        .file("old.key", old)
        .file("new.key", new.replace('\n', "\r\n"));
    for key in ["old.key", "new.key"] {
        assert_messages(
            &scratch,
            &format!("listen:\n  tls:\n    certFile: leaf.crt\n    keyFile: {key}\n"),
            &[&format!(
                "error: f.yaml, line 6: listen.tls.keyFile: DIR/{key}: the private key is encrypted; decrypt it, as `openssl pkey -in FILE -out DECRYPTED` does"
            )],
        );
    }
}

#[test]
fn keys_without_effect_are_told_once_each() {
    let scratch = Scratch::new("without-effect");
    let warning = |line: usize, key: &str, why: &str, remedy: &str| {
        format!("warning: f.yaml, line {line}: {key}: has no effect: {why}; {remedy}, or remove it")
    };
    let no_api = "only with mode: standalone and overlay the gateway";
    for (lines, expected) in [
        (
            "store:\n  local:\n    path: /x\nhostedApi:\n  readerGroups: [a]\n",
            vec![
                warning(
                    7,
                    "hostedApi.readerGroups",
                    &format!("{no_api} has an API of its own"),
                    "set mode to standalone or overlay",
                ),
                warning(
                    5,
                    "store.local.path",
                    &format!("{no_api} stores objects"),
                    "set mode to standalone or overlay",
                ),
            ],
        ),
        (
            "admission:\n  guard: true\n  fidelity: dryRun\n",
            ["fidelity", "guard"]
                .iter()
                .zip([5, 4])
                .map(|(key, line)| {
                    warning(
                        line,
                        &format!("admission.{key}"),
                        "admission.mode is off",
                        "set admission.mode to audit or enforce",
                    )
                })
                .collect(),
        ),
        (
            "flowControl:\n  semantics: Compatible\n  tenantWeight: 8\n",
            vec![warning(
                5,
                "flowControl.tenantWeight",
                "flowControl.semantics is Compatible, which knows no tenants",
                "set flowControl.semantics to Improved",
            )],
        ),
        // Defaults that are written are no choice.
        (
            "store:\n  local: {path: \"\"}\nadmission: {guard: false}\nflowControl: {borrowingPeriod: 100ms}\n",
            vec![],
        ),
    ] {
        assert_eq!(messages(&scratch, lines), expected, "{lines}");
    }
}

#[test]
fn what_decides_whether_a_key_has_an_effect_is_read_as_it_is_meant() {
    let scratch = Scratch::new("deciding-keys");
    let refused = "authentication:\n  anonymous:\n    enabled: false\n    paths: [/x]\n";
    let found = messages(&scratch, refused);
    assert!(
        found[0].contains("authentication.anonymous.paths: has no effect"),
        "{found:?}"
    );
    // No paths for anonymous requests are a choice.
    let none = "authentication:\n  anonymous:\n    enabled: true\n    paths: []\n";
    assert_eq!(messages(&scratch, none), [""; 0]);
    // What an error decides is not known.
    let broken = messages(&scratch, "admission:\n  mode: enforced\n  guard: true\n");
    assert_eq!(broken.len(), 1, "{broken:?}");
}

#[test]
fn evictions_that_do_not_wait_may_have_groups() {
    let scratch = Scratch::new("waits");
    assert_messages(
        &scratch,
        "eviction:\n  wait:\n    limit: 0s\n    groups: [system:authenticated]\n",
        &[
            "warning: f.yaml, line 6: eviction.wait.groups: has no effect: eviction.wait.limit is 0; set eviction.wait.limit to how long evictions may wait, or remove it",
        ],
    );
}
