//! Reviews of disruption budgets.

use serde_json::{Value, json};

use super::{CommandOutcome, fairgate, fairgate_with, shipped};

/// What `check --budgets -` finds in these documents, one line each: severity, name and message.
fn budget_findings(documents: &[Value]) -> Vec<String> {
    let documents: Vec<String> = documents.iter().map(Value::to_string).collect();
    let input = documents.join("\n---\n");
    let output = fairgate_with(&input, &["check", "--budgets", "-", "--output", "json"]);
    let report = output.json();
    let findings = report["findings"].as_array().unwrap();
    let errors = findings.iter().any(|found| found["severity"] == "error");
    assert_eq!(
        (
            report["ok"] == false,
            output.outcome == CommandOutcome::Failure
        ),
        (errors, errors)
    );
    assert_eq!(report["levels"], json!([]));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |found: &Value| {
        let parts = ["severity", "name", "field", "message"].map(|key| text(&found[key]));
        parts.join(" | ")
    };
    findings.iter().map(line).collect()
}

fn budget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn check_says_which_budgets_keep_nodes_from_being_drained() {
    let web = json!({"matchLabels": {"app": "web"}});
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        budget("a", &json!({"minAvailable": "50%", "selector": web})),
        budget("b", &json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}})),
    ]});
    let typed = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [
        {"metadata": {"name": "w0", "labels": {"app": "web"}}}, pod("w1")]});
    assert_eq!(
        budget_findings(&[list.clone(), typed]),
        [
            "warning | a | spec.minAvailable | pods without a controller do not count as expected pods: w0, w1",
            "warning | b | spec.selector | the selector matches none of the pods",
        ]
    );
    // Without pods only the budgets are evaluated.
    assert_eq!(budget_findings(&[list]), Vec::<String>::new());
    // A deployment stands for its pods, but not beside them.
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": {"metadata": {"labels": {"app": "web"}}}}});
    let two = budget("a", &json!({"minAvailable": 2, "selector": web}));
    let text = "warning | a | spec.minAvailable | 2 pods must be available and there are 2: no ready pod can be evicted";
    assert_eq!(budget_findings(&[two.clone(), deployment.clone()]), [text]);
    let pods = ["w0", "w1", "w2"].map(pod);
    let all = [&[two, deployment][..], &pods].concat();
    assert_eq!(budget_findings(&all), Vec::<String>::new());
}

#[test]
fn check_reports_budgets_that_no_api_server_accepts() {
    let old = json!({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "old"}});
    let findings = budget_findings(&[
        budget("a", &json!({"minAvailable": true, "selector": {}})),
        budget(
            "b",
            &json!({"minAvailable": -1, "selector": {"matchLabels": {"app": "db"}}}),
        ),
        budget(
            "c",
            &json!({"maxUnavailable": 1, "selector": {"matchLabel": {}}}),
        ),
        budget(
            "d",
            &json!({"maxUnavailable": 1, "selector": {"matchLabels": {"a b": "c"}}}),
        ),
        old,
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "skipped"}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 7}}),
    ]);
    let starts = [
        "error | a |  | json: cannot unmarshal bool",
        "error | c |  | unknown field \"spec.selector.matchLabel\"",
        "error | old | apiVersion | \"policy/v1beta1\" is not served any more",
        "warning |  |  | metadata.name",
        "error | b | spec.minAvailable | Invalid value: -1: must be greater than or equal to 0",
        "error | d | spec.selector.matchLabels | Invalid value: \"a b\"",
    ];
    assert_eq!(findings.len(), starts.len(), "{findings:#?}");
    for (found, start) in findings.iter().zip(starts) {
        assert!(found.starts_with(start), "{found} != {start}");
    }
}

#[test]
fn check_reads_standard_input_once() {
    for (one, other) in [
        ("--budgets", "--policies"),
        ("--admission", "--budgets"),
        ("--policies", "--admission"),
    ] {
        let output = fairgate(&["check", one, "-", other, "-"]);
        let expected = "more than one of --policies, --budgets and --admission";
        assert!(output.err.contains(expected), "{}", output.err);
        assert_eq!(
            (&*output.out, output.outcome),
            ("", CommandOutcome::Unusable)
        );
    }
}

#[test]
fn check_needs_budgets_to_review() {
    let nothing =
        budget_findings(&[json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})]);
    assert_eq!(nothing, ["error |  |  | no PodDisruptionBudget was found"]);
    let output = fairgate_with("a: [", &["check", "--budgets", "-"]);
    assert!(
        output
            .err
            .starts_with("error: standard input: document 1: "),
        "{}",
        output.err
    );
    let output = fairgate(&["check", "--budgets", "/nonexistent"]);
    assert!(
        output.err.contains("/nonexistent: cannot be read"),
        "{}",
        output.err
    );
    // With a configuration its limits are shown, too.
    let sample = shipped("config/kubernetes/eviction/mistakes.yaml");
    let config = shipped("config/fairgate.yaml");
    let output = fairgate(&[
        "check",
        "--config",
        &config,
        "--budgets",
        &sample,
        "--output",
        "json",
    ]);
    let report = output.json();
    assert_eq!(report["levels"].as_array().unwrap().len(), 8);
    assert_eq!(report["findings"].as_array().unwrap().len(), 9);
}
