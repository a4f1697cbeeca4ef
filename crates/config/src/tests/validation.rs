//! Validation across keys, and values that depend on several keys.

use std::num::NonZeroU32;

use super::*;
use fairgate_admission::{AdmissionMode, Fidelity};

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

/// Reads each of the `cases`, in which one key contradicts another: only the given field has a finding of the
/// given severity.
pub(super) fn assert_single_findings(directory: &str, cases: &[(Value, Severity, &str)]) {
    let scratch = Scratch::new(directory);
    scratch.pki().file("token", "abc");
    for (sections, severity, field) in cases {
        let reading = scratch.read(sections.clone());
        assert_eq!(fields(&reading, *severity), [*field], "{sections}");
    }
}

#[test]
fn contradictory_keys_of_authentication_are_reported() {
    let tls = json!({"certFile": "leaf.crt", "keyFile": "leaf.key"});
    assert_single_findings(
        "contradictory-authentication",
        &[
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
                json!({"authentication": {"tokenReview": {"enabled": false}}}),
                Severity::Warning,
                "authentication",
            ),
        ],
    );
}

#[test]
fn contradictory_keys_of_the_upstream_are_reported() {
    assert_single_findings(
        "contradictory-upstream",
        &[
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
                json!({"upstream": {"identity": {"usernameHeader": "Authorization"}}}),
                Severity::Error,
                "upstream.identity.usernameHeader",
            ),
        ],
    );
}

#[test]
fn evictions_that_the_gateway_reads_for_need_an_upstream_and_a_credential() {
    let upstream = json!({"url": "http://127.0.0.1:6443"});
    assert_single_findings(
        "evictions",
        &[
            (
                json!({"mode": "standalone", "eviction": {"mode": "precheck"}}),
                Severity::Error,
                "eviction.mode",
            ),
            (
                json!({"upstream": upstream, "eviction": {"mode": "authoritative"}}),
                Severity::Warning,
                "eviction.mode",
            ),
            (
                json!({"eviction": {"mode": "always"}}),
                Severity::Error,
                "eviction.mode",
            ),
            (
                json!({"mode": "standalone", "eviction": {"controller": "on"}}),
                Severity::Error,
                "eviction.controller",
            ),
            (
                json!({"upstream": upstream, "eviction": {"controller": "on"}}),
                Severity::Warning,
                "eviction.controller",
            ),
            (
                json!({"eviction": {"controller": "auto"}}),
                Severity::Error,
                "eviction.controller",
            ),
        ],
    );
}

#[test]
fn a_limit_of_the_staleness_of_policies_has_to_be_possible_and_to_have_an_effect() {
    let upstream = json!({"url": "http://127.0.0.1:6443", "tokenFile": "token"});
    let of = |mode: &str, max: &str| {
        let policies = json!({"files": ["token"], "maxStaleness": max});
        json!({"upstream": upstream, "admission": {"mode": mode, "policies": policies}})
    };
    let key = "admission.policies.maxStaleness";
    assert_single_findings(
        "admission-staleness",
        &[
            (of("enforce", "2s"), Severity::Error, key),
            (of("audit", "30s"), Severity::Warning, key),
        ],
    );
}

#[test]
fn admission_policies_need_an_upstream_a_credential_and_policies() {
    let upstream = json!({"url": "http://127.0.0.1:6443", "tokenFile": "token"});
    let of = |admission: Value| json!({"upstream": upstream, "admission": admission});
    let files = |mode: &str| json!({"mode": mode, "policies": {"files": ["token"]}});
    let (source, named) = ("admission.policies.source", "admission.policies.files");
    assert_single_findings(
        "admission",
        &[
            (
                json!({"mode": "standalone", "admission": files("audit")}),
                Severity::Error,
                "admission.mode",
            ),
            (
                json!({"upstream": {"url": "http://127.0.0.1:6443"}, "admission": files("audit")}),
                Severity::Warning,
                "admission.mode",
            ),
            (of(json!({"mode": "audit"})), Severity::Error, named),
            (of(files("off")), Severity::Warning, named),
            (
                of(json!({"mode": "enforce", "policies": {"files": ["token", "absent"]}})),
                Severity::Error,
                named,
            ),
            (
                of(
                    json!({"mode": "enforce", "policies": {"source": "upstream", "files": ["token"]}}),
                ),
                Severity::Error,
                named,
            ),
            (
                of(json!({"mode": "enforce", "policies": {"source": "hosted"}})),
                Severity::Error,
                source,
            ),
            (
                json!({"mode": "standalone", "admission": {"policies": {"source": "upstream"}}}),
                Severity::Error,
                source,
            ),
            (
                of(json!({"audit": {"file": "-"}})),
                Severity::Warning,
                "admission.audit.file",
            ),
            (
                of(
                    json!({"mode": "audit", "policies": {"files": ["token"]}, "audit": {"file": "absent/a"}}),
                ),
                Severity::Error,
                "admission.audit.file",
            ),
            (
                of(json!({"mode": "audit", "guard": true, "policies": {"files": ["token"]}})),
                Severity::Warning,
                "admission.guard",
            ),
            (
                of(json!({"bodyBudget": "1Mi"})),
                Severity::Error,
                "admission.bodyBudget",
            ),
        ],
    );
}

#[test]
fn admission_settings_are_read_as_written() {
    let scratch = Scratch::new("admission-settings");
    scratch.file("token", "abc").file("p.yaml", "{}");
    let reading = scratch.read(json!({
        "upstream": {"url": "http://127.0.0.1:6443", "tokenFile": "token"},
        "admission": {
            "mode": "enforce", "policies": {"files": ["p.yaml"], "maxStaleness": "30s"},
            "fidelity": "dryRun", "guard": true, "reads": "consistent",
            "bodyBudget": "8Mi", "workers": 3,
            "audit": {"file": "audit.jsonl", "maxSize": "2Mi", "maxFiles": 9},
        },
    }));
    assert_eq!(reading.findings, []);
    let expected = AdmissionConfig {
        mode: Some(AdmissionMode::Enforce),
        source: AdmissionSource::Files,
        files: vec![scratch.0.join("p.yaml")],
        max_staleness: Some(std::time::Duration::from_secs(30)),
        fidelity: Fidelity::DryRun,
        guard: true,
        reads: AdmissionReads::Consistent,
        body_budget: 8 << 20,
        workers: NonZeroU32::new(3),
        audit: AdmissionAuditConfig {
            file: Some(scratch.0.join("audit.jsonl")),
            max_size: 2 << 20,
            max_files: 9,
        },
    };
    assert_eq!(reading.config.admission, expected);
    let dash = read(json!({"admission": {"audit": {"file": "-"}}})).config;
    assert_eq!(dash.admission.audit.file, Some(PathBuf::from("-")));
    let defaults = read(json!({})).config.admission;
    assert_eq!(
        (defaults.mode, defaults.fidelity),
        (None, Fidelity::Completed)
    );
}

#[test]
fn waiting_evictions_need_a_limit_a_mode_and_somebody_to_wait() {
    let of = |wait: serde_json::Value| json!({"eviction": {"mode": "precheck", "wait": wait}});
    let base = json!({"url": "https://127.0.0.1:6443", "caFile": "ca.pem", "tokenFile": "token"});
    let cases = [
        (
            of(json!({"limit": "30s", "groups": ["ops"]})),
            vec!["eviction.wait.limit"],
        ),
        (
            of(json!({"limit": "30s"})),
            vec!["eviction.wait.limit", "eviction.wait.limit"],
        ),
        (
            of(json!({"users": ["alice"], "groups": ["ops"], "perBudget": 2, "total": 1})),
            vec![
                "eviction.wait.perBudget",
                "eviction.wait.users",
                "eviction.wait.groups",
                "eviction.wait.total",
            ],
        ),
        (of(json!({"limit": "2h"})), vec!["eviction.wait.limit"]),
        (of(json!({"limit": 30})), vec!["eviction.wait.limit"]),
    ];
    for (mut config, expected) in cases {
        config["upstream"] = base.clone();
        config["apiVersion"] = json!("fairgate.dev/v1alpha1");
        config["kind"] = json!("Configuration");
        let directory = std::env::temp_dir();
        let text = config.to_string();
        let reading = Config::parse("test.yaml", &directory, text.as_bytes());
        let found = reading.findings.iter().map(|finding| &*finding.field);
        let found: Vec<&str> = found
            .filter(|field| field.starts_with("eviction"))
            .collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn the_secure_admin_port_needs_an_address_and_a_certificate() {
    let tls = json!({"certFile": "leaf.crt", "keyFile": "leaf.key"});
    assert_single_findings(
        "secure-admin",
        &[
            (
                json!({"admin": {"secure": {"address": "127.0.0.1:9443"}}}),
                Severity::Error,
                "admin.secure.tls",
            ),
            (
                json!({"admin": {"secure": {"tls": tls}}}),
                Severity::Error,
                "admin.secure.tls",
            ),
            (
                json!({"admin": {"secure": {"address": "127.0.0.1:9080", "tls": tls}}}),
                Severity::Error,
                "admin.secure.address",
            ),
            (
                json!({"admin": {"secure": {"address": "127.0.0.1:8443", "tls": tls}}}),
                Severity::Error,
                "admin.secure.address",
            ),
            (
                json!({"admin": {"secure": {"address": "9443", "tls": tls}}}),
                Severity::Error,
                "admin.secure.address",
            ),
        ],
    );
}

#[test]
fn the_secure_admin_port_has_a_certificate_of_its_own_or_that_of_clients() {
    let scratch = Scratch::new("secure-admin-tls");
    scratch.pki();
    let tls = json!({"certFile": "leaf.crt", "keyFile": "leaf.key"});
    let own = scratch.read(
        json!({"admin": {"secure": {"address": "[::]:9443", "tls": tls}},
        "authentication": {"clientCertificate": {"caFile": "ca.crt"}}}),
    );
    assert_eq!(fields(&own, Severity::Error), [""; 0]);
    let secure = own.config.admin.secure.unwrap();
    assert_eq!(secure.address, "[::]:9443".parse().unwrap());
    assert!(secure.tls.is_some());
    let shared = scratch.read(json!({"listen": {"tls": tls},
        "admin": {"secure": {"address": "[::]:9443"}}}));
    assert_eq!(fields(&shared, Severity::Error), [""; 0]);
    assert!(shared.config.admin.secure.unwrap().tls.is_none());
    assert!(Config::read(None).config.admin.secure.is_none());
}

#[test]
fn contradictory_addresses_and_limits_are_reported() {
    assert_single_findings(
        "contradictory-others",
        &[
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
                json!({"limits": {"longHeaderBytes": "3Mi", "headerBytes": "2Mi"}}),
                Severity::Error,
                "limits.longHeaderBytes",
            ),
            (
                json!({"limits": {"tokenReviewBytes": "7Mi", "headerBytes": "2Mi"}}),
                Severity::Error,
                "limits.tokenReviewBytes",
            ),
            (
                json!({"limits": {"spoolTotal": "512Ki"}}),
                Severity::Error,
                "limits.spoolPerAnswer",
            ),
        ],
    );
}

#[test]
fn each_malformed_quota_is_named_and_all_of_them_at_once() {
    let reading = read(json!({"hostedApi": {"quota": {
        "flowSchemas": {"objects": -1, "bytes": "16Mi"},
        "podDisruptionBudgets": {"objects": "many", "bytes": "16 MB"},
        "priorityLevelConfigurations": {"objects": 4_294_967_296_u64, "bytes": "2Ti"},
        "validatingAdmissionPolicies": {"objects": 1.5, "size": "1Mi"},
        "validatingAdmissionPolicyBindings": 5000,
        "secrets": {"objects": 1},
        "total": {"objects": [], "bytes": -1},
    }}}));
    let mut found = fields(&reading, Severity::Error);
    found.sort_unstable();
    let expected = [
        "flowSchemas.objects",
        "podDisruptionBudgets.bytes",
        "podDisruptionBudgets.objects",
        "priorityLevelConfigurations.bytes",
        "priorityLevelConfigurations.objects",
        "secrets",
        "total.bytes",
        "total.objects",
        "validatingAdmissionPolicies.objects",
        "validatingAdmissionPolicies.size",
        "validatingAdmissionPolicyBindings",
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|key| format!("hostedApi.quota.{key}"))
        .collect();
    assert_eq!(found, expected);
    assert!(reading.findings.iter().all(|one| !one.remedy.is_empty()));
    let reading = read(json!({"hostedApi": {"quota": {
        "flowSchemas": {"objects": 0, "bytes": 0}, "total": {"bytes": "1Ti"},
    }}}));
    assert_eq!(fields(&reading, Severity::Error), [""; 0]);
    let quota = &reading.config.hosted_api.quota;
    assert_eq!(
        (quota.total.objects, quota.total.bytes),
        (Some(200_000), Some(1 << 40))
    );
}

#[test]
fn watches_need_enough_upstream_streams() {
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
fn anonymous_requests_are_allowed_for_the_configured_paths() {
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
fn health_checks_and_the_gateways_own_version_are_anonymous_by_default() {
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
fn a_reload_reports_the_changes_that_need_a_restart() {
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
    scratch
        .file("leaf.crt", &renewed)
        .file("copy.crt", &renewed);
    let followed = scratch.read(sections("leaf.crt", 1, 1)).config;
    assert_eq!(before.restart_needed_for(&followed), Vec::<String>::new());
    let other_file = scratch.read(sections("copy.crt", 1, 1)).config;
    assert_eq!(
        before.restart_needed_for(&other_file),
        ["listen.tls.certFile"]
    );
    let removed = scratch.read(json!({"dataCores": 1})).config;
    assert_eq!(
        before.restart_needed_for(&removed),
        ["listen.tls.certFile", "listen.tls.keyFile"]
    );
}

#[test]
fn changed_contents_of_files_that_are_followed_need_no_restart() {
    let scratch = Scratch::new("not-followed");
    scratch.file("password", "first");
    let etcd = json!({"endpoints": ["http://127.0.0.1:2379"], "user": "fairgate", "passwordFile": "password"});
    let sections = json!({"mode": "standalone", "store": {"etcd": etcd}});
    let before = scratch.read(sections.clone()).config;
    scratch.file("password", "second");
    let after = scratch.read(sections).config;
    assert_eq!(before.restart_needed_for(&after), [""; 0]);
}
