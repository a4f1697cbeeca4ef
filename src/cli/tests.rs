//! Runs commands on files and standard input, and checks their output.

mod budgets;
mod verdicts;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory as _;
use serde_json::{Value, json};

use super::*;

/// The output and the outcome of a command.
struct CommandOutput {
    out: String,
    err: String,
    outcome: CommandOutcome,
}

impl CommandOutput {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}

fn fairgate_with(input: &str, arguments: &[&str]) -> CommandOutput {
    let arguments = [&["fairgate"], arguments].concat();
    let cli = Cli::try_parse_from(arguments).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = CommandStreams {
        input: &mut input.as_bytes(),
        out: &mut out,
        err: &mut err,
    };
    let outcome = run(&cli.command, streams).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput {
        out: text(out),
        err: text(err),
        outcome,
    }
}

fn fairgate(arguments: &[&str]) -> CommandOutput {
    fairgate_with("", arguments)
}

/// A file of the repository.
fn shipped(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    path.display().to_string()
}

/// A file for one test, which is removed with it.
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
fn wrong_usage_exits_with_code_2() {
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
fn the_shipped_configuration_is_usable_without_a_warning() {
    for policies in [&[][..], &["--policies", &shipped("config/policies")]] {
        let config = shipped("config/fairgate.yaml");
        let output = fairgate(&[&["check", "--config", &config], policies].concat());
        assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
        assert_eq!(output.err, "usable: 0 errors, 0 warnings\n");
    }
}

#[test]
fn check_shows_the_limits_of_the_levels_in_seats() {
    let output = fairgate(&["check", "--output", "json"]);
    let report = output.json();
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
fn check_shows_what_tenants_weigh_and_who_names_others() {
    let config = configuration("tenants", "flowControl: {tenantWeight: 3}\n");
    let objects = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: builds, annotations: {fairgate.dev/tenant: namespace}}
spec:
  priorityLevelConfiguration: {name: workload-low}
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects: [{kind: User, user: {name: builder}}]
    nonResourceRules: [{verbs: [get], nonResourceURLs: [/x]}]
";
    let arguments = ["check", "--config", config.path(), "--policies", "-"];
    let text = fairgate_with(objects, &arguments).out;
    assert!(text.contains("weigh at most 3 together."), "{text}");
    let table = "FLOWSCHEMA  LEVEL         TENANT\nbuilds      workload-low  namespace\n";
    assert!(text.ends_with(table), "{text}");
    let report = fairgate_with(objects, &[&arguments[..], &["--output", "json"]].concat()).json();
    assert_eq!(report["tenantWeight"], 3);
    let named =
        json!({"flowSchema": "builds", "priorityLevel": "workload-low", "tenant": "namespace"});
    assert_eq!(report["tenants"], json!([named]));

    let unknown = objects.replace("tenant: namespace", "tenant: team");
    let output = fairgate_with(&unknown, &arguments);
    assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
    let finding = "metadata.annotations[fairgate.dev/tenant]: \"team\" names no tenant";
    assert!(output.err.contains(finding), "{}", output.err);
    let config = configuration("original", "flowControl: {semantics: Compatible}\n");
    let text = fairgate(&["check", "--config", config.path()]).out;
    assert!(!text.contains("tenant"), "{text}");
}

#[test]
fn check_reports_errors_of_the_configuration_and_of_the_objects_together() {
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
    let output = fairgate_with(objects, &arguments);
    assert_eq!(output.outcome, CommandOutcome::Failure);
    for part in [
        "limits.connections: 0 is out of range",
        "log.level: \"loud\" is not a known value",
        "standard input, document 1: FlowSchema \"a\": spec.rulez",
        "standard input, document 2",
        "not usable: ",
    ] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }

    let json = fairgate_with(objects, &[&arguments[..], &["--output", "json"]].concat());
    assert_eq!(json.outcome, CommandOutcome::Failure);
    let report = json.json();
    assert_eq!(report["ok"], false);
    assert_eq!(report["levels"], json!([]));
    let findings = report["findings"].as_array().unwrap();
    let first = &findings[0];
    assert_eq!(first["origin"], format!("{}, line 3", config.path()));
    assert_eq!(first["field"], "limits.connections");
    assert_eq!(first["severity"], "error");
    assert!(findings.iter().all(|f| f["remedy"] != ""), "{report}");
}

#[test]
fn check_shows_no_limits_of_an_unusable_configuration() {
    let config = configuration("unusable", "flowControl: {totalSeats: 0}\n");
    let output = fairgate(&["check", "--config", config.path()]);
    assert_eq!(output.outcome, CommandOutcome::Failure);
    assert!(
        output.err.contains("flowControl.totalSeats"),
        "{}",
        output.err
    );
    assert!(
        output.err.ends_with("not usable: 1 error, 0 warnings\n"),
        "{}",
        output.err
    );
    assert_eq!(output.out, "", "the limits would be those of the defaults");
}

#[test]
fn a_configuration_with_warnings_is_usable() {
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
    let output = fairgate_with(objects, &["check", "--policies", "-"]);
    assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
    assert!(
        output
            .err
            .contains("warning: standard input: FlowSchema \"lost\""),
        "{}",
        output.err
    );
    assert!(
        output.err.ends_with("usable: 0 errors, 1 warning\n"),
        "{}",
        output.err
    );
}

#[test]
fn check_reports_text_that_is_not_yaml() {
    let output = fairgate_with("a: [", &["check", "--policies", "-"]);
    assert_eq!(output.outcome, CommandOutcome::Failure);
    assert!(
        output.err.contains("error: standard input: document 1: "),
        "{}",
        output.err
    );
    assert_eq!(output.out, "");
}

#[test]
fn check_reads_policies_of_one_file() {
    let objects = fs::read_to_string(shipped("config/policies/batch.yaml"));
    let file = Scratch::new("one-file", &objects.unwrap());
    let output = fairgate(&["check", "--policies", file.path()]);
    assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
}

#[test]
fn policies_without_any_object_are_an_error() {
    let file = Scratch::new("no-object", "# nothing\n---\n");
    for (input, from, message) in [
        (
            "",
            "-",
            "error: standard input: holds no object; see whether the command before the pipe prints any\n",
        ),
        (
            "# nothing\n",
            "-",
            "error: standard input: holds no object; ",
        ),
        (
            "",
            file.path(),
            ": holds no object; name a file of objects, or a directory with files *.yaml, *.yml or *.json\n",
        ),
    ] {
        let output = fairgate_with(input, &["check", "--policies", from]);
        assert_eq!(output.outcome, CommandOutcome::Failure, "{from}");
        assert!(output.err.contains(message), "{}", output.err);
    }
}

#[test]
fn a_method_that_is_none_of_http_is_refused() {
    for method in ["get", "FETCH", ""] {
        let arguments = [
            "fairgate",
            "explain",
            "--as",
            "alice",
            method,
            "/api/v1/pods",
        ];
        let error = Cli::try_parse_from(arguments).unwrap_err().to_string();
        assert!(error.contains("GET, HEAD, POST"), "{method}: {error}");
    }
}

/// A terminal of 80 columns does not wrap a line inside of a command, which somebody is about to paste.
#[test]
fn commands_in_examples_fit_into_a_terminal() {
    fn check(command: &clap::Command, seen: &mut usize) {
        let help = command.get_after_help().map(ToString::to_string);
        let lines = help.iter().flat_map(|help| help.lines());
        for line in lines.filter(|line| line.starts_with("  ")) {
            *seen += 1;
            assert!(line.len() <= 80, "{}: {line}", command.get_name());
        }
        for inner in command.get_subcommands() {
            check(inner, seen);
        }
    }
    let mut seen = 0;
    check(&Cli::command(), &mut seen);
    assert!(seen > 20, "{seen}");
}

#[test]
fn an_absent_configuration_or_directory_is_an_error() {
    let output = fairgate(&[
        "check",
        "--config",
        "/nonexistent.yaml",
        "--policies",
        "/nonexistent",
    ]);
    assert_eq!(output.outcome, CommandOutcome::Failure);
    assert_eq!(
        output.err.matches("cannot be read").count(),
        2,
        "{}",
        output.err
    );
}

fn explained(arguments: &[&str]) -> Value {
    let output = fairgate(&[&["explain", "--output", "json"], arguments].concat());
    assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
    output.json()
}

#[test]
fn explain_shows_the_attributes_and_the_flow_of_a_request() {
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
fn explain_shows_whose_flow_it_is() {
    let tenant = |user: &str, groups: &[&str], target| {
        let mut arguments = vec!["--as", user];
        for group in groups {
            arguments.extend(["--as-group", group]);
        }
        arguments.extend(["GET", target]);
        explained(&arguments)["tenant"].clone()
    };
    let authenticated = "system:authenticated";
    let pods = "/api/v1/namespaces/n/pods";
    assert_eq!(
        tenant("alice", &[authenticated], pods),
        json!({"kind": "user", "name": "alice", "atMostWeight": 4})
    );
    let groups = [authenticated, "system:serviceaccounts"];
    assert_eq!(
        tenant("system:serviceaccount:ci:build", &groups, pods),
        json!({"kind": "serviceAccounts", "name": "ci", "atMostWeight": 4})
    );
    assert_eq!(tenant("root", &["system:masters"], pods), Value::Null);
}

#[test]
fn explain_shows_why_each_earlier_schema_does_not_match() {
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
fn explain_shows_what_bypasses_flow_control() {
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
    let output = fairgate(&[&["explain", "--config", config.path()], &request[..]].concat());
    assert_eq!(output.outcome, CommandOutcome::Success, "{}", output.err);
    assert!(output.err.contains("listen.tls.certFile"), "{}", output.err);

    let config = configuration("no-policy", "flowControl: {totalSeats: 0}\n");
    let output = fairgate(&[&["explain", "--config", config.path()], &request[..]].concat());
    assert_eq!(output.outcome, CommandOutcome::Failure);
    assert_eq!(output.out, "");
}

#[test]
fn explain_reports_a_malformed_request() {
    let output = fairgate(&["explain", "--as", "u", "GET", "/api/v1/watch"]);
    assert_eq!(output.outcome, CommandOutcome::Failure);
    assert!(
        output
            .err
            .contains("unable to determine kind and namespace"),
        "{}",
        output.err
    );
}

#[test]
fn explain_prints_one_line_per_attribute() {
    let output = fairgate(&[
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
        "Tenant      user \"u\", whose flows weigh at most 4 together",
        "  exempt (precedence 1)",
    ] {
        assert!(
            output.out.lines().any(|l| l == line),
            "{line}\n{}",
            output.out
        );
    }
    assert!(output.out.contains("(illustrative: "), "{}", output.out);
}

#[test]
fn serve_refuses_an_invalid_configuration_and_reports_all_errors() {
    let config = configuration("serve", "a: 1\nlimits: {connections: 0}\n");
    let output = fairgate(&["serve", "--config", config.path()]);
    assert_eq!(output.outcome, CommandOutcome::Failure);
    assert!(
        output.err.contains("the configuration has 2 errors"),
        "{}",
        output.err
    );
}
