//! Policies that evaluate nothing, because a name in them is wrong, and those that fail because something is absent.

use serde_json::json;

use crate::{
    policy_test::{Files, as_json, policy, policy_test, run},
    process::{GatewayProcess, ProcessOptions, wait_until},
};

#[test]
fn what_evaluates_nothing_is_told_and_is_no_success() {
    let rules = "{resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [Deployment]}]}";
    let wrong = policy("wrong", rules, "object.spec.replicas < 5");
    let typing = policy(
        "typing",
        &rules.replace("Deployment", "deployments"),
        "variables.r < 5",
    );
    let typing = typing.replace(
        "  validations:",
        "  variables: [{name: r, expression: object.spec.replica}]\n  validations:",
    );
    let misspelt = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissonPolicy\nmetadata: {name: m}\n";
    let object =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 9}\n";
    let files = Files::new(&[
        ("wrong.yaml", &wrong),
        ("typing.yaml", &typing),
        ("misspelt.yaml", misspelt),
        ("object.yaml", object),
    ]);
    let checked = |file: &str| run(&files.0, &["check", "--admission", file]);
    for (file, code, told) in [
        (
            "wrong.yaml",
            0,
            "Kubernetes has no resource \"Deployment\": the rule matches nothing; write deployments",
        ),
        (
            "typing.yaml",
            0,
            "spec.variables[0].expression: apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replica'",
        ),
        (
            "misspelt.yaml",
            1,
            "there is no kind \"ValidatingAdmissonPolicy\" in admissionregistration.k8s.io",
        ),
    ] {
        let (exit, out, err) = checked(file);
        assert_eq!(exit, code, "{file}: {out}{err}");
        assert!(err.contains(told), "{file}: {err}");
    }
    let given = ["-f", "wrong.yaml", "-f", "object.yaml"];
    let (code, out, _) = policy_test(&files.0, &given);
    assert_eq!(code, 1, "{out}");
    assert!(out.starts_with("policy wrong has no binding"), "{out}");
    assert!(
        out.contains("\nno policy CREATE deployments.apps default/d"),
        "{out}"
    );
    assert!(
        out.contains("\n1 request: no policy matches any of them"),
        "{out}"
    );
    let (code, report) = as_json(&given, &files.0);
    assert_eq!(
        (code, &report["ok"], &report["isAnyJudged"]),
        (1, &json!(false), &json!(false))
    );
    // Of several, some may be about others.
    let both = ["-f", "typing.yaml", "-f", "wrong.yaml", "-f", "object.yaml"];
    assert!(
        policy_test(&files.0, &both)
            .1
            .ends_with("1 request: 0 allowed, 1 denied\n")
    );
}

/// A FlowSchema with this resource rule, to this level.
fn flow(level: &str, verbs: &str, group: &str, resource: &str) -> String {
    format!(
        "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {{name: f}}\nspec:\n  priorityLevelConfiguration: {{name: {level}}}\n  matchingPrecedence: 500\n  rules:\n  - subjects: [{{kind: User, user: {{name: a}}}}]\n    resourceRules: [{{verbs: [{verbs}], apiGroups: ['{group}'], resources: [{resource}], namespaces: ['*']}}]\n"
    )
}

#[test]
fn names_in_rules_of_flow_control_that_match_nothing_are_told_with_what_to_write() {
    for (verbs, group, resource, code, field, told) in [
        (
            "get",
            "",
            "Pods",
            0,
            "spec.rules[0].resourceRules[0].resources: ",
            "Kubernetes has no resource \"Pods\": the rule matches nothing; write pods\n",
        ),
        (
            "get",
            "apps/v1",
            "deployments",
            0,
            "spec.rules[0].resourceRules[0].apiGroups: ",
            "\"apps/v1\" is no group: the rule matches nothing; write \"apps\", without a version\n",
        ),
        (
            "get",
            "",
            "deployments",
            0,
            "spec.rules[0].resourceRules[0].resources: ",
            "; write the group \"apps\"\n",
        ),
        (
            "GET, POST",
            "",
            "pods",
            1,
            "spec.rules[0].resourceRules[0].verbs: ",
            "; write get, create\n",
        ),
        ("lst", "", "pods", 1, "verbs: ", "; use one of them\n"),
    ] {
        let text = flow("workload-low", verbs, group, resource);
        let files = Files::new(&[("f.yaml", &text)]);
        let (exit, out, err) = run(&files.0, &["check", "--policies", "f.yaml"]);
        assert_eq!(exit, code, "{out}{err}");
        assert!(err.contains(field) && err.contains(told), "{told}: {err}");
        assert_eq!(err.matches("FlowSchema \"f\"").count(), 1, "{err}");
    }
    let text = flow("workload-low", "get", "apps", "deployments");
    let files = Files::new(&[("f.yaml", &text)]);
    let (_, _, err) = run(&files.0, &["check", "--policies", "f.yaml"]);
    assert_eq!(err, "usable: 0 errors, 0 warnings\n");
}

#[test]
fn a_gateway_logs_names_that_match_nothing_once_for_each_change_and_counts_them() {
    let rule = |resource: &str| flow("workload-low", "get", "", resource);
    let options = ProcessOptions {
        files: vec![("policies/f.yaml", rule("Pods"))],
        ..ProcessOptions::default()
    };
    let configuration = json!({
        "upstream": {"url": "http://127.0.0.1:9"}, "flowControl": {"policies": {"directory": "policies"}},
    });
    let gateway = GatewayProcess::with(configuration, &options);
    let told =
        |name: &str| format!("Kubernetes has no resource {name:?}: the rule matches nothing");
    let count = || gateway.metric("fairgate_policy_warning_reasons{reason=\"schema-resources\"}");
    gateway.wait_for_log(&told("Pods"), 1);
    assert_eq!(count(), Some(1));
    gateway.write("policies/f.yaml", &rule("nods"));
    gateway.wait_for_log(&told("nods"), 1);
    assert_eq!(gateway.logged(&told("Pods")).len(), 1);
    gateway.write("policies/f.yaml", &rule("pods"));
    wait_until("nothing is wrong", || count() == Some(0));
    let lines = gateway.logged("the rule matches nothing");
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn a_misspelt_kind_is_one_error() {
    let level = "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguraton\nmetadata: {name: own}\nspec: {type: Exempt}\n---\n";
    let rules = "{resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}";
    let binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Deny]}\n";
    let policy = policy("p", rules, "true") + binding;
    let files = Files::new(&[
        (
            "level.yaml",
            &(level.to_owned() + &flow("own", "get", "", "pods")),
        ),
        (
            "policy.yaml",
            &policy.replace(
                "kind: ValidatingAdmissionPolicy\n",
                "kind: ValidatingAdmisionPolicy\n",
            ),
        ),
        (
            "version.yaml",
            &policy.replacen("k8s.io/v1\n", "k8s.io/v1beta7\n", 1),
        ),
        (
            "binding.yaml",
            &policy.replace("PolicyBinding", "PolicyBindng"),
        ),
    ]);
    for (argument, file) in [
        ("--policies", "level.yaml"),
        ("--admission", "policy.yaml"),
        ("--admission", "version.yaml"),
        ("--admission", "binding.yaml"),
    ] {
        let (code, _, err) = run(&files.0, &["check", argument, file]);
        assert_eq!(code, 1, "{file}: {err}");
        assert!(
            err.ends_with("not usable: 1 error, 0 warnings\n"),
            "{file}: {err}"
        );
    }
}

#[test]
fn a_kind_of_params_that_no_server_has_is_told() {
    let rules = "{resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}";
    let text = policy("p", rules, "params != null").replace(
        "spec:",
        "spec:\n  paramKind: {apiVersion: v1, kind: Configmap}",
    );
    let files = Files::new(&[("p.yaml", &text)]);
    let (_, _, err) = run(&files.0, &["check", "--admission", "p.yaml"]);
    let told = "spec.paramKind.kind: Kubernetes has no kind \"Configmap\" in v1; write ConfigMap\n";
    assert!(err.contains(told), "{err}");
}

#[test]
fn what_fails_for_some_objects_is_told() {
    let rules = |operations: &str| {
        format!(
            "{{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [{operations}], resources: [configmaps]}}]}}"
        )
    };
    let labels = "object.metadata.labels['team'] == 'a'";
    let old = "object.data == oldObject.data";
    let tested = "has(object.metadata.labels) && 'team' in object.metadata.labels";
    for (operations, expression, told) in [
        (
            "CREATE",
            labels,
            "it fails when an object has no labels: the request is refused",
        ),
        ("CREATE", tested, ""),
        (
            "CREATE",
            "has(object.metadata.labels) && object.metadata.labels['team'] == 'a'",
            "it fails when an object has other labels, but not the one that is read",
        ),
        (
            "UPDATE",
            "has(object.metadata.annotations) && object.metadata.annotations['team'] == 'a'",
            "it fails when an object has other annotations, but not the one that is read",
        ),
        (
            "CREATE, UPDATE",
            "oldObject == null || oldObject.metadata.labels['team'] == 'a'",
            "it fails when an old object has no labels",
        ),
        (
            "CREATE",
            "oldObject == null || oldObject.metadata.labels['team'] == 'a'",
            "",
        ),
        (
            "DELETE",
            labels,
            "it fails when an object is deleted, since object is null then",
        ),
        ("UPDATE", old, ""),
        (
            "'*'",
            old,
            "it fails when an object is created, since oldObject is null then",
        ),
    ] {
        let files = Files::new(&[("p.yaml", &policy("p", &rules(operations), expression))]);
        let (code, out, err) = run(&files.0, &["check", "--admission", "p.yaml"]);
        assert_eq!(code, 0, "{out}{err}");
        assert_eq!(
            err.contains("it fails when"),
            !told.is_empty(),
            "{expression}: {err}"
        );
        assert!(err.contains(told), "{expression}: {err}");
    }
}

#[test]
fn what_fails_in_a_variable_or_for_a_template_is_told_where_it_is() {
    let rules = "{resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}";
    let variable = policy("p", rules, "variables.team == 'a'").replace(
        "  validations:",
        "  variables:\n  - {name: other, expression: '1'}\n  - {name: team, expression: \"object.metadata.labels['team']\"}\n  validations:",
    );
    let template = policy(
        "p",
        rules,
        "object.spec.template.metadata.labels['team'] == 'a'",
    );
    let of_jobs = |expression: &str| {
        policy(
            "p",
            "{resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [cronjobs]}]}",
            expression,
        )
    };
    let job = of_jobs("object.spec.jobTemplate.metadata.labels['team'] == 'a'");
    let pod = of_jobs("object.spec.jobTemplate.spec.template.metadata.annotations['team'] == 'a'");
    let tested = of_jobs(
        "has(object.spec.jobTemplate.spec.template.metadata.labels) && object.spec.jobTemplate.spec.template.metadata.labels['team'] == 'a'",
    );
    let old = of_jobs("oldObject == null || oldObject.spec.template.metadata.annotations.a == 'b'");
    let files = Files::new(&[
        ("variable.yaml", &variable),
        ("template.yaml", &template),
        ("job.yaml", &job),
        ("pod.yaml", &pod),
        ("tested.yaml", &tested),
        ("old.yaml", &old),
    ]);
    for (file, told) in [
        (
            "variable.yaml",
            "spec.variables[1].expression: it fails when an object has no labels: ",
        ),
        (
            "template.yaml",
            "spec.validations[0].expression: it fails when a template has other labels, but not the one that is read: ",
        ),
        (
            "job.yaml",
            "spec.validations[0].expression: it fails when a job template has no labels: ",
        ),
        (
            "pod.yaml",
            "spec.validations[0].expression: it fails when a pod template has no annotations: ",
        ),
        (
            "tested.yaml",
            "spec.validations[0].expression: it fails when a pod template has other labels, but not the one that is read: ",
        ),
        (
            "old.yaml",
            "spec.validations[0].expression: it fails when an old template has no annotations: ",
        ),
    ] {
        let (_, _, err) = run(&files.0, &["check", "--admission", file]);
        assert!(err.contains(told), "{file}: {err}");
        assert_eq!(err.matches("it fails when").count(), 1, "{file}: {err}");
    }
}

#[test]
fn a_policy_that_is_misspelt_is_no_object_that_policies_allow() {
    let object =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 9}\n";
    let misspelt = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissonPolicy\nmetadata: {name: m}\n";
    let group = misspelt
        .replace("Admisson", "Admission")
        .replace("admissionregistration", "admission");
    let files = Files::new(&[
        (
            "policy.yaml",
            &policy(
                "few",
                "{resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}",
                "object.spec.replicas < 10",
            ),
        ),
        ("misspelt.yaml", misspelt),
        ("group.yaml", &group),
        ("object.yaml", object),
        (
            "other.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
        ),
    ]);
    for (named, told) in [
        (
            "misspelt.yaml",
            "there is no kind \"ValidatingAdmissonPolicy\"",
        ),
        (
            "group.yaml",
            "ValidatingAdmissionPolicy is no kind of \"admission.k8s.io\"",
        ),
    ] {
        let given = ["-f", "policy.yaml", "-f", named, "-f", "object.yaml"];
        let (code, out, err) = policy_test(&files.0, &given);
        assert_eq!(code, 2, "{out}{err}");
        assert!(err.contains(told), "{err}");
    }
    // Nor is what no policy is about allowed by any.
    let given = ["-f", "policy.yaml", "-f", "object.yaml", "-f", "other.yaml"];
    let (code, out, _) = policy_test(&files.0, &given);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("\n2 requests: 1 allowed, 0 denied; 1 evaluated by no policy"),
        "{out}"
    );
}

#[test]
fn a_review_of_nothing_is_no_success() {
    let files = Files::new(&[
        ("empty.yaml", ""),
        (
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
        ),
    ]);
    for arguments in [
        ["--admission", "empty.yaml"],
        ["--admission", "pod.yaml"],
        ["--admission", "."],
        ["--budgets", "empty.yaml"],
        ["--budgets", "pod.yaml"],
        ["--policies", "empty.yaml"],
    ] {
        let (code, out, err) = run(&files.0, &[&["check"], &arguments[..]].concat());
        assert_eq!(code, 1, "{arguments:?}: {out}{err}");
        assert_eq!(err.matches("error:").count(), 1, "{arguments:?}: {err}");
    }
}
