//! Commands are run on files and standard input, and what they print is read.

use std::{fs, path::Path};

use clap::CommandFactory as _;
use serde_json::{Value, json};

use super::*;

/// What a command wrote, and how it ended.
struct Ran {
    out: String,
    err: String,
    outcome: Outcome,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}

fn fairgate_with(input: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["fairgate"], arguments].concat();
    let cli = Cli::try_parse_from(arguments).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams {
        input: &mut input.as_bytes(),
        out: &mut out,
        err: &mut err,
    };
    let outcome = run(&cli.command, streams).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        out: text(out),
        err: text(err),
        outcome,
    }
}

fn fairgate(arguments: &[&str]) -> Ran {
    fairgate_with("", arguments)
}

/// A file of the repository.
fn shipped(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    path.display().to_string()
}

/// A file of its own that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("fairgate-cli-{}-{name}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn configuration(name: &str, sections: &str) -> Scratch {
    let head = "apiVersion: fairgate.dev/v1alpha1\nkind: Configuration\n";
    Scratch::new(name, &(head.to_owned() + sections))
}

#[test]
fn the_arguments_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in Cli::command().get_subcommands_mut() {
        let name = command.get_name().to_owned();
        let help = command.render_long_help().to_string();
        assert!(help.contains(&format!("fairgate {name}")), "{help}");
        assert!(help.contains("Example"), "{help}");
    }
}

#[test]
fn wrong_usage_ends_with_two() {
    for arguments in [
        &["fairgate"][..],
        &["fairgate", "fly"],
        &["fairgate", "explain", "GET", "/"],
        &["fairgate", "explain", "--as", "", "GET", "/"],
        &["fairgate", "explain", "--as", "a", "GET", "api"],
        &["fairgate", "check", "--output", "xml"],
        &["fairgate", "demo", "--seconds", "0"],
    ] {
        let error = Cli::try_parse_from(arguments).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{arguments:?}");
    }
}

#[test]
fn what_is_shipped_is_usable_without_a_warning() {
    for policies in [&[][..], &["--policies", &shipped("config/policies")]] {
        let config = shipped("config/fairgate.yaml");
        let ran = fairgate(&[&["check", "--config", &config], policies].concat());
        assert_eq!(ran.outcome, Outcome::Success, "{}", ran.err);
        assert_eq!(ran.err, "usable: 0 errors, 0 warnings\n");
    }
}

#[test]
fn check_shows_the_limits_of_the_levels_in_seats() {
    let ran = fairgate(&["check", "--output", "json"]);
    let report = ran.json();
    assert_eq!(report["totalSeats"], 600);
    let level = |name: &str| {
        let levels = report["levels"].as_array().unwrap();
        levels.iter().find(|l| l["name"] == name).unwrap().clone()
    };
    assert_eq!(
        level("workload-low"),
        json!({
            "name": "workload-low", "response": "Queue", "shares": 100,
            "nominalSeats": 245, "minSeats": 24, "maxSeats": 845,
            "queues": 128, "handSize": 6, "queueLengthLimit": 50, "widestRequestSeats": 37,
        })
    );
    assert_eq!(level("catch-all")["widestRequestSeats"], 100);
    assert_eq!(level("exempt")["widestRequestSeats"], Value::Null);
    let text = fairgate(&["check"]).out;
    assert!(
        text.contains("workload-low     Queue        100      245   24  845"),
        "{text}"
    );
}

#[test]
fn check_tells_the_mistakes_of_the_configuration_and_of_the_objects_together() {
    let config = configuration("mistakes", "limits: {connections: 0}\nlog: {level: loud}\n");
    let objects = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: a}
spec: {matchingPrecedence: 0, priorityLevelConfiguration: {name: }, rulez: []}
---
kind: Pod
";
    let arguments = ["check", "--config", config.path(), "--policies", "-"];
    let ran = fairgate_with(objects, &arguments);
    assert_eq!(ran.outcome, Outcome::Failure);
    for part in [
        "limits.connections: 0 is out of range",
        "log.level: \"loud\" is not a known value",
        "standard input, document 1: FlowSchema \"a\": spec.rulez",
        "standard input, document 2",
        "not usable: ",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }

    let json = fairgate_with(objects, &[&arguments[..], &["--output", "json"]].concat());
    assert_eq!(json.outcome, Outcome::Failure);
    let report = json.json();
    assert_eq!(report["ok"], false);
    assert_eq!(report["levels"], json!([]));
    let findings = report["findings"].as_array().unwrap();
    let first = &findings[0];
    assert_eq!(first["origin"], config.path());
    assert_eq!(first["field"], "limits.connections");
    assert_eq!(first["severity"], "error");
    assert!(findings.iter().all(|f| f["remedy"] != ""), "{report}");
}

#[test]
fn check_shows_no_limits_of_an_unusable_configuration() {
    let config = configuration("unusable", "flowControl: {totalSeats: 0}\n");
    let ran = fairgate(&["check", "--config", config.path()]);
    assert_eq!(ran.outcome, Outcome::Failure);
    assert!(ran.err.contains("flowControl.totalSeats"), "{}", ran.err);
    assert!(
        ran.err.ends_with("not usable: 1 error, 0 warnings\n"),
        "{}",
        ran.err
    );
    assert_eq!(ran.out, "", "the limits would be those of the defaults");
}

#[test]
fn check_warns_and_yet_finds_it_usable() {
    let objects = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: lost}
spec:
  priorityLevelConfiguration: {name: nowhere}
  rules:
  - subjects: [{kind: User, user: {name: u}}]
    nonResourceRules: [{verbs: [get], nonResourceURLs: [/x]}]
";
    let ran = fairgate_with(objects, &["check", "--policies", "-"]);
    assert_eq!(ran.outcome, Outcome::Success, "{}", ran.err);
    assert!(
        ran.err
            .contains("warning: standard input: FlowSchema \"lost\""),
        "{}",
        ran.err
    );
    assert!(
        ran.err.ends_with("usable: 0 errors, 1 warning\n"),
        "{}",
        ran.err
    );
}

#[test]
fn check_reads_text_that_is_no_yaml_as_a_mistake() {
    let ran = fairgate_with("a: [", &["check", "--policies", "-"]);
    assert_eq!(ran.outcome, Outcome::Failure);
    assert!(
        ran.err.contains("error: standard input: document 1: "),
        "{}",
        ran.err
    );
    assert_eq!(ran.out, "");
}

#[test]
fn an_absent_configuration_or_directory_is_a_mistake() {
    let ran = fairgate(&[
        "check",
        "--config",
        "/nonexistent.yaml",
        "--policies",
        "/nonexistent",
    ]);
    assert_eq!(ran.outcome, Outcome::Failure);
    assert_eq!(ran.err.matches("cannot be read").count(), 2, "{}", ran.err);
}

fn explained(arguments: &[&str]) -> Value {
    let ran = fairgate(&[&["explain", "--output", "json"], arguments].concat());
    assert_eq!(ran.outcome, Outcome::Success, "{}", ran.err);
    ran.json()
}

#[test]
fn explain_tells_how_a_request_is_read_and_where_it_waits() {
    let target = "/apis/apps/v1/namespaces/n/deployments/d/scale?timeout=5s";
    let all = "system:authenticated";
    let it = explained(&["--as", "alice", "--as-group", all, "PATCH", target]);
    assert_eq!(
        it["requestInfo"],
        json!({
            "isResource": true, "verb": "patch", "apiPrefix": "apis", "group": "apps",
            "version": "v1", "namespace": "n", "resource": "deployments", "subresource": "scale",
            "name": "d", "parts": ["deployments", "d", "scale"],
            "path": "/apis/apps/v1/namespaces/n/deployments/d/scale",
        })
    );
    assert_eq!(it["longRunning"], false);
    assert_eq!(it["flowSchema"], "global-default");
    assert_eq!(it["priorityLevel"], "global-default");
    assert_eq!(it["distinguisher"], "alice");
    assert_eq!(it["exempt"], false);
    assert_eq!(it["handIsIllustrative"], true);
    let hand = it["hand"].as_array().unwrap();
    assert_eq!(hand.len(), 6);
    assert!(hand.iter().all(|card| card.as_u64().unwrap() < 128));
    assert_eq!(
        it["work"],
        json!({"initialSeats": 1, "finalSeats": 0, "additionalLatencySeconds": 0.0})
    );
    assert_eq!(it["workDependsOn"]["atMostSeats"], 8);
}

#[test]
fn explain_tells_why_each_earlier_schema_does_not_match() {
    let it = explained(&[
        "--as",
        "system:kube-scheduler",
        "--as-group",
        "system:authenticated",
        "PATCH",
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l",
    ]);
    assert_eq!(it["flowSchema"], "kube-scheduler");
    assert_eq!(it["distinguisher"], "kube-system");
    let names: Vec<_> = it["notMatched"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["flowSchema"])
        .collect();
    assert_eq!(
        names,
        [
            "exempt",
            "probes",
            "system-leader-election",
            "system-node-high",
            "system-nodes",
            "kube-controller-manager"
        ]
    );
    assert_eq!(
        it["notMatched"][2]["reasons"],
        json!(["spec.rules[0].resourceRules[0].verbs: the verb is not listed"])
    );
}

#[test]
fn groups_are_exactly_those_given() {
    let it = explained(&["--as", "alice", "GET", "/version"]);
    assert_eq!(it["flowSchema"], "catch-all");
    assert_eq!(it["matched"], "");
    assert_eq!(it["hand"], json!([]));
    assert_eq!(it["distinguisher"], "");
    let it = explained(&[
        "--as",
        "alice",
        "--as-group",
        "system:masters",
        "GET",
        "/version",
    ]);
    assert_eq!(it["flowSchema"], "exempt");
    assert_eq!(it["exempt"], true);
    assert_eq!(it["notMatched"], json!([]));
}

#[test]
fn what_bypasses_flow_control_is_told() {
    for (target, long_running, bypasses) in [
        ("/api/v1/namespaces/n/pods/p/log", true, true),
        ("/api/v1/pods?watch=1", true, false),
        ("/api/v1/pods", false, false),
    ] {
        let it = explained(&["--as", "u", "GET", target]);
        assert_eq!(it["longRunning"], long_running, "{target}");
        assert_eq!(it["bypasses"], bypasses, "{target}");
    }
}

#[test]
fn with_a_hash_key_the_hand_is_the_real_one() {
    let key = "flowControl: {hashKey: 000102030405060708090a0b0c0d0e0f}\n";
    let config = configuration("key", key);
    let request = [
        "--as",
        "u",
        "--as-group",
        "system:authenticated",
        "GET",
        "/version",
    ];
    let real = explained(&[&["--config", config.path()], &request[..]].concat());
    assert_eq!(real["handIsIllustrative"], false);
    assert_ne!(real["hand"], explained(&request)["hand"]);
}

#[test]
fn explain_follows_the_objects_given() {
    let policies = shipped("config/policies");
    let it = explained(&[
        "--policies",
        &policies,
        "--as",
        "u",
        "--as-group",
        "inventory",
        "GET",
        "/api/v1/pods",
    ]);
    assert_eq!(it["flowSchema"], "inventory-lists");
    assert_eq!(it["workDependsOn"]["atMostSeats"], 2);
}

#[test]
fn explain_needs_a_usable_policy_but_no_certificates() {
    let request = ["--as", "u", "GET", "/"];
    let config = configuration("no-certs", "listen: {tls: {certFile: a, keyFile: b}}\n");
    let ran = fairgate(&[&["explain", "--config", config.path()], &request[..]].concat());
    assert_eq!(ran.outcome, Outcome::Success, "{}", ran.err);
    assert!(ran.err.contains("listen.tls.certFile"), "{}", ran.err);

    let config = configuration("no-policy", "flowControl: {totalSeats: 0}\n");
    let ran = fairgate(&[&["explain", "--config", config.path()], &request[..]].concat());
    assert_eq!(ran.outcome, Outcome::Failure);
    assert_eq!(ran.out, "");
}

#[test]
fn a_request_that_no_server_reads_is_told() {
    let ran = fairgate(&["explain", "--as", "u", "GET", "/api/v1/watch"]);
    assert_eq!(ran.outcome, Outcome::Failure);
    assert!(
        ran.err.contains("unable to determine kind and namespace"),
        "{}",
        ran.err
    );
}

#[test]
fn explain_reads_well() {
    let ran = fairgate(&[
        "explain",
        "--as",
        "u",
        "--as-group",
        "system:authenticated",
        "GET",
        "/api/v1/pods?watch=1",
    ]);
    for line in [
        "Request     GET /api/v1/pods?watch=1",
        "User        u, in system:authenticated",
        "Read as     watch pods, version v1",
        "            long-running: holds its seats until the watch is initialised",
        "FlowSchema  global-default (precedence 9900)",
        "Level       global-default (Queue)",
        "Flow        \"u\" of global-default",
        "  exempt (precedence 1)",
    ] {
        assert!(ran.out.lines().any(|l| l == line), "{line}\n{}", ran.out);
    }
    assert!(ran.out.contains("(illustrative: "), "{}", ran.out);
}

#[test]
fn serve_refuses_a_bad_configuration_with_all_mistakes() {
    let config = configuration("serve", "a: 1\nlimits: {connections: 0}\n");
    let ran = fairgate(&["serve", "--config", config.path()]);
    assert_eq!(ran.outcome, Outcome::Failure);
    assert!(
        ran.err.contains("the configuration has 2 errors"),
        "{}",
        ran.err
    );
}
