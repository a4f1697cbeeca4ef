//! `fairgate policy test` as its users call it: the binary, on files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};

/// A directory with files, which is removed with it.
pub(crate) struct Files(pub(crate) PathBuf);

impl Files {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fairgate-policy-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
        Self(directory)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Exit code, standard output, standard error.
pub(crate) fn policy_test(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    run(directory, &[&["policy", "test"], arguments].concat())
}

pub(crate) fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fairgate"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap();
    (code, text(output.stdout), text(output.stderr))
}

/// The shipped examples.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/admission")
}

pub(crate) fn as_json(arguments: &[&str], directory: &Path) -> (i32, Value) {
    let arguments = [arguments, &["--output", "json"]].concat();
    let (code, out, err) = policy_test(directory, &arguments);
    let value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{err}"));
    (code, value)
}

const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}
  validations:
  - expression: request.operation == 'DELETE' || object.metadata.name.startsWith('a')
";

#[test]
fn the_shipped_cases_come_as_they_expect() {
    let arguments = ["-f", "policies", "--cases", "cases.yaml"];
    let (code, out, err) = policy_test(&examples(), &arguments);
    assert_eq!((code, &*err), (0, ""), "{out}");
    assert!(out.ends_with("5 cases: 5 passed, 0 failed\n"), "{out}");
}

#[test]
fn each_policy_is_shown_with_its_expressions_and_their_costs() {
    let arguments = [
        "-f",
        "policies",
        "-f",
        "deployments.yaml",
        "--params",
        "limits.yaml",
        "--namespace-object",
        "namespaces.yaml",
    ];
    let (code, report) = as_json(&arguments, &examples());
    assert_eq!(code, 1);
    let [web, queue] = [0, 1].map(|index| &report["results"][index]["request"]);
    assert_eq!(
        (&web["verdict"], &queue["verdict"]),
        (&json!("denied"), &json!("allowed"))
    );
    let status = &web["status"];
    assert_eq!(status["code"], 403);
    assert_eq!(
        status["message"],
        "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'replica-limit' with binding \
         'replica-limit-production' denied request: at most 5 replicas, not 9"
    );
    let limit = &web["policies"][1];
    assert_eq!(
        (&limit["policy"], &limit["param"]),
        (&json!("replica-limit"), &json!("limits"))
    );
    let expressions = limit["expressions"].as_array().unwrap();
    let shown: Vec<_> = expressions
        .iter()
        .map(|one| (&one["field"], &one["value"]))
        .collect();
    let expected = [
        ("spec.matchConditions[0].expression", "true"),
        ("spec.variables[1].expression", "9"),
        ("spec.variables[0].expression", "5"),
        ("spec.validations[0].expression", "false"),
        // Messages have variables of their own.
        ("spec.variables[0].expression", "5"),
        ("spec.variables[1].expression", "9"),
        (
            "spec.validations[0].messageExpression",
            "at most 5 replicas, not 9",
        ),
    ];
    let expected = expected.map(|(field, value)| (json!(field), json!(value)));
    let expected: Vec<_> = expected
        .iter()
        .map(|(field, value)| (field, value))
        .collect();
    assert_eq!(shown, expected);
    let cost: u64 = expressions
        .iter()
        .map(|one| one["cost"].as_u64().unwrap())
        .sum();
    assert_eq!(limit["cost"], cost);
    assert!(cost > 10, "{cost}");
    let warning = queue["warnings"][0].as_str().unwrap();
    assert!(
        warning.ends_with("give every image a tag other than latest"),
        "{warning}"
    );
    assert_eq!(queue["auditAnnotations"]["image-tags/unpinned"], "queue");
    assert_eq!(queue["policies"][0]["outcome"], "violated");
}

#[test]
fn a_policy_without_binding_denies_and_the_output_says_so() {
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}";
    let files = Files::new(&[("policy.yaml", POLICY), ("object.yaml", object)]);
    let (code, out, _) = policy_test(&files.0, &["-f", "."]);
    assert_eq!(code, 1);
    for text in [
        "policy names has no binding: it is evaluated as if it had one with validationActions: [Deny]\n",
        "denied   CREATE configmaps default/b (./object.yaml, line 1)\n",
        "\n  denied: policy names, cost ",
        "\n    spec.validations[0].expression = false (cost ",
        "\n    message: failed expression: request.operation == 'DELETE'",
        "\n  response: 422 Invalid: configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'names'",
        "\n1 request: 0 allowed, 1 denied\n",
    ] {
        assert!(out.contains(text), "{text}\n{out}");
    }
    let (code, out, _) = policy_test(&files.0, &["-f", ".", "--operation", "DELETE"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("DELETE configmaps default/b"), "{out}");
}

#[test]
fn updates_are_evaluated_with_the_old_object() {
    let policy = POLICY.replace(
        "object.metadata.name.startsWith('a')",
        "object.data == oldObject.data",
    );
    let object = |data: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: b}}, data: {{k: {data}}}}}")
    };
    let (old, new) = (object("x"), object("'y'"));
    let files = [
        ("policy.yaml", &*policy),
        ("old.yaml", &*old),
        ("new.yaml", &*new),
    ];
    let files = Files::new(&files);
    for (new, expected) in [("new.yaml", 1), ("old.yaml", 0)] {
        let arguments = ["-f", "policy.yaml", "-f", new, "--old", "old.yaml"];
        let (code, report) = as_json(&arguments, &files.0);
        assert_eq!(code, expected, "{report:#}");
        assert_eq!(report["results"][0]["request"]["operation"], "UPDATE");
    }
}

#[test]
fn built_in_kinds_are_converted_to_the_version_that_a_policy_names() {
    let constraints = "{resourceRules: [{apiGroups: ['*'], apiVersions: [v1], operations: ['*'], resources: [resourceclaims, geese]}]}";
    let expression = "object.spec.devices.requests[0].exactly.deviceClassName == oldObject.spec.devices.requests[0].exactly.deviceClassName";
    let claim = |class: &str| {
        format!(
            "{{apiVersion: resource.k8s.io/v1beta1, kind: ResourceClaim, metadata: {{name: c}}, \
             spec: {{devices: {{requests: [{{name: r, deviceClassName: {class}}}]}}}}}}"
        )
    };
    let (policy, old, new) = (policy("p", constraints, expression), claim("a"), claim("b"));
    let files = Files::new(&[
        ("policy.yaml", &*policy),
        ("old.yaml", &*old),
        ("new.yaml", &*new),
    ]);
    for (new, expected) in [("new.yaml", 1), ("old.yaml", 0)] {
        let arguments = ["-f", "policy.yaml", "-f", new, "--old", "old.yaml"];
        let (code, report) = as_json(&arguments, &files.0);
        assert_eq!(code, expected, "{report:#}");
    }
}

#[test]
fn custom_kinds_have_the_resource_that_is_defined_given_or_guessed() {
    let goose = "{apiVersion: farm.example/v1, kind: Goose, metadata: {name: a}}";
    let definition = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, \
                      spec: {group: farm.example, scope: Namespaced, names: {kind: Goose, plural: geese}, \
                      versions: [{name: v1}]}}";
    let files = [
        ("policy.yaml", POLICY),
        ("goose.yaml", goose),
        ("definition.yaml", definition),
    ];
    let files = Files::new(&files);
    let resource = |further: &[&str]| {
        let arguments = [&["-f", "policy.yaml", "-f", "goose.yaml"], further].concat();
        let (_, report) = as_json(&arguments, &files.0);
        let request = &report["results"][0]["request"];
        (
            request["resource"].clone(),
            request["namespace"].clone(),
            request["notes"].clone(),
        )
    };
    let (name, namespace, notes) = resource(&[]);
    assert_eq!((name, namespace), (json!("gooses.farm.example"), json!("")));
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .contains("--resource Goose=PLURAL"),
        "{notes}"
    );
    let (name, _, notes) = resource(&["--resource", "Goose=geese"]);
    assert_eq!((name, notes), (json!("geese.farm.example"), json!([])));
    let (name, namespace, _) = resource(&["-f", "definition.yaml"]);
    assert_eq!(
        (name, namespace),
        (json!("geese.farm.example"), json!("default"))
    );
}

#[test]
fn checks_of_the_authorizer_are_answered_by_the_cases() {
    let policy = POLICY.replace(
        "object.metadata.name.startsWith('a')",
        "authorizer.group('').resource('secrets').check('get').allowed()",
    );
    let case = |name: &str, authorizer: &str, expect: &str| {
        format!(
            "- name: {name}\n  object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}\n  \
             authorizer: {authorizer}\n  expect: {expect}\n"
        )
    };
    let cases = [
        case(
            "answered",
            "[{verb: get, resource: secrets, allowed: true}]",
            "allowed",
        ),
        case("refused", "[{verb: get, allowed: false}]", "denied"),
        case("not answered", "[{verb: list, allowed: true}]", "allowed"),
    ];
    let files = [("policy.yaml", &*policy), ("cases.yaml", &*cases.concat())];
    let files = Files::new(&files);
    let arguments = ["-f", "policy.yaml", "--cases", "cases.yaml"];
    let (code, report) = as_json(&arguments, &files.0);
    assert_eq!(code, 1);
    let surprises: Vec<_> = (0..3)
        .map(|index| {
            report["results"][index]["surprises"]
                .as_array()
                .unwrap()
                .len()
        })
        .collect();
    assert_eq!(surprises, [0, 0, 1]);
    let notes = report["results"][2]["request"]["notes"].to_string();
    assert!(notes.contains("{verb: get, resource: secrets}"), "{notes}");
}

#[test]
fn surprises_are_reported_in_every_format() {
    let cases = "cases:\n\
        - name: should <be> denied\n  object: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n  expect: denied\n\
        - name: other message\n  object: {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n  \
        expect: {policy: names, message: too long}\n";
    let files = Files::new(&[("policy.yaml", POLICY), ("cases.yaml", cases)]);
    let arguments = ["-f", "policy.yaml", "--cases", "cases.yaml"];
    let (code, out, _) = policy_test(&files.0, &arguments);
    assert_eq!(code, 1);
    assert!(
        out.contains("FAIL   should <be> denied (cases.yaml, line 2)"),
        "{out}"
    );
    assert!(
        out.contains("expected to be denied, but it was allowed"),
        "{out}"
    );
    assert!(out.contains("2 cases: 0 passed, 2 failed"), "{out}");
    let junit = [&arguments[..], &["-o", "junit"]].concat();
    let (code, out, _) = policy_test(&files.0, &junit);
    assert_eq!(code, 1);
    assert!(
        out.contains(r#"<testsuites tests="2" failures="2" errors="0">"#),
        "{out}"
    );
    assert!(
        out.contains(r#"<testcase name="should &lt;be&gt; denied" classname="cases.yaml">"#),
        "{out}"
    );
    assert!(
        out.contains("failed expression: request.operation"),
        "{out}"
    );
}

#[test]
fn all_mistakes_of_all_files_are_reported_at_once_with_their_lines() {
    let policy = POLICY.replace("request.operation ==", "request.operatoin ==");
    let binding = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                   metadata: {name: b}\nspec:\n  policyName: names\n  validationActions: [Deny, Warn]\n  colour: red\n";
    let cases =
        "cases:\n- name: one\n  objekt: {}\n  operation: MAKE\n  expect: {verdict: maybe}\n";
    let files = [
        ("policy.yaml", &*policy),
        ("binding.yaml", binding),
        ("broken.yaml", "a: ["),
        ("cases.txt", cases),
    ];
    let files = Files::new(&files);
    let (code, out, err) = policy_test(&files.0, &["-f", ".", "--cases", "cases.txt"]);
    assert_eq!((code, &*out), (2, ""), "{err}");
    for text in [
        "./policy.yaml, line 10: ValidatingAdmissionPolicy \"names\": spec.validations[0].expression",
        "undefined field 'operatoin'",
        "^",
        "./binding.yaml, line 6: ValidatingAdmissionPolicyBinding \"b\": spec.validationActions",
        "./binding.yaml, line 7",
        "./broken.yaml",
        "cases.txt, line 3: cases[0].objekt: there is no such key",
        "cases.txt, line 4: cases[0].operation",
        "cases.txt, line 5: cases[0].expect.verdict",
        "nothing was evaluated",
    ] {
        assert!(err.contains(text), "{text}\n{err}");
    }
}

#[test]
fn an_object_that_a_case_does_not_find_is_named_once_beside_those_that_there_are() {
    let policy = policy("p", PODS, "true");
    let objects = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\n";
    let cases = "cases:\n- name: one\n  object: {file: pods.txt, kind: Pod, name: wob}\n  expect: allowed\n\
                 - name: two\n  object: absent.txt\n  expect: allowed\n";
    let files = [
        ("policy.yaml", &*policy),
        ("pods.txt", objects),
        ("cases.txt", cases),
    ];
    let files = Files::new(&files);
    let (code, _, err) = policy_test(&files.0, &["-f", ".", "--cases", "cases.txt"]);
    let lines: Vec<&str> = err.lines().collect();
    let found = "error: cases.txt, line 3: cases[0].object: pods.txt has no object with kind \"Pod\", name \"wob\"; \
                 name one that it has: Pod shop/web";
    assert_eq!((code, lines.len()), (2, 3), "{err}");
    assert_eq!(lines[0], found);
    let unread = "error: absent.txt: cannot be read: ";
    assert!(lines[1].starts_with(unread), "{err}");
    assert!(
        lines[1].ends_with("; check the path and its permissions"),
        "{err}"
    );
    assert_eq!(
        lines[2],
        "nothing was evaluated: correct the 2 errors above first"
    );
}

/// Constraints to Pods.
const PODS: &str = "{resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}";

pub(crate) fn policy(name: &str, constraints: &str, expression: &str) -> String {
    format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  matchConstraints: {constraints}\n  validations: [{{expression: \"{expression}\"}}]\n"
    )
}

#[test]
fn check_reports_everything_about_policies_at_once() {
    let all = "{resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}], \
               namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}}";
    let binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                   metadata: {name: lost}\nspec: {policyName: none, validationActions: [Deny]}\n";
    let text = [
        policy("broken", PODS, "object.spec.x +"),
        policy("typed", PODS, "object.spec.replicas > 1"),
        policy("all", all, "object.metadata.name != 'x'"),
        binding.to_owned(),
    ];
    let files = Files::new(&[("policies.yaml", &text.concat())]);
    let (code, _, found) = run(&files.0, &["check", "--admission", "policies.yaml"]);
    assert_eq!(code, 1, "{found}");
    for wanted in [
        "\"broken\": spec.validations[0].expression: compilation failed: ERROR: <input>:1:16: Syntax error",
        "  | object.spec.x +\n   | ...............^",
        "\"typed\": spec.validations[0].expression: /v1, Kind=Pod: ERROR: <input>:1:12: undefined field 'replicas'",
        "\"all\": no binding references it",
        "\"all\": spec.failurePolicy: with failurePolicy: Fail, an error in an expression refuses writes of leases.coordination.k8s.io",
        "nodes/status (nodes count as dead)",
        "\"lost\": spec.policyName: there is no policy \"none\"",
        "not usable: 1 error",
    ] {
        assert!(found.contains(wanted), "{wanted}\nis not in\n{found}");
    }
}

/// The expressions of which tests in front of a real server show which a gateway evaluates as the server does.
const EXACT: &str = include_str!("../cluster/exactverdicts/expressions.json");

#[test]
fn check_names_the_expressions_that_read_what_only_the_server_sets() {
    let expressions: Vec<Value> = serde_json::from_str(EXACT).unwrap();
    assert_eq!(expressions.len(), 28);
    let resource = |kind: &str| match kind {
        "ConfigMap" | "Pod" | "Service" => ("", kind.to_lowercase() + "s"),
        "Deployment" => ("apps", "deployments".to_owned()),
        "CronJob" => ("batch", "cronjobs".to_owned()),
        other => panic!("{other}"),
    };
    let policies = expressions.iter().enumerate().map(|(at, one)| {
        let (group, resource) = resource(one["kind"].as_str().unwrap());
        let constraints = format!(
            "{{resourceRules: [{{apiGroups: ['{group}'], apiVersions: [v1], operations: [CREATE], resources: [{resource}]}}]}}"
        );
        policy(&format!("p{at}"), &constraints, one["expression"].as_str().unwrap())
    });
    let text: String = policies.collect();
    let files = Files::new(&[("policies.yaml", &text)]);
    let (code, _, found) = run(&files.0, &["check", "--admission", "policies.yaml"]);
    assert_eq!(code, 0, "{found}");
    for (at, one) in expressions.iter().enumerate() {
        let warning = format!(
            "\"p{at}\": spec.validations[0].expression: it reads what only the server can set: "
        );
        let warnings: Vec<_> = found
            .lines()
            .filter(|line| line.contains(&warning))
            .collect();
        match one["setByServer"].as_array() {
            None => assert_eq!(warnings, [""; 0], "{one}"),
            Some(fields) => {
                assert_eq!(warnings.len(), 1, "{one}");
                for field in fields {
                    let wanted = format!("{} of ", field.as_str().unwrap());
                    assert!(warnings[0].contains(&wanted), "{one}: {warnings:?}");
                }
            }
        }
    }
    // With dry runs the gateway knows what the server sets.
    let config = "admission: {fidelity: dryRun}\n";
    let files = Files::new(&[("policies.yaml", &text), ("fairgate.yaml", config)]);
    let args = [
        "check",
        "--config",
        "fairgate.yaml",
        "--admission",
        "policies.yaml",
    ];
    let (_, _, found) = run(&files.0, &args);
    assert!(
        found.contains("no binding references it") && !found.contains("only the server"),
        "{found}"
    );
}

#[test]
fn check_leaves_out_what_is_for_kustomize_and_says_so() {
    let kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [policy.yaml]\n";
    let binding = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
                   metadata: {name: b}\nspec: {policyName: p, validationActions: [Deny]}\n";
    let policies = policy("p", PODS, "object.metadata.name != 'x'") + binding;
    let files = Files::new(&[
        ("kustomization.yaml", "resources: [policies.yaml]\n"),
        ("base.yaml", kustomization),
        ("policies.yaml", &policies),
    ]);
    let (code, _, found) = run(&files.0, &["check", "--admission", "."]);
    let note = "note: ./kustomization.yaml: skipped: it is for kustomize\n";
    assert!(code == 0 && found.starts_with(note), "{found}");
    // What is neither is still an error.
    std::fs::write(files.0.join("values.yaml"), "a: b\n").unwrap();
    let (code, _, found) = run(&files.0, &["check", "--admission", "."]);
    let error = "./values.yaml, line 1: kind: it is missing; say which kind of object it is, or move what is no object elsewhere";
    assert!(code == 1 && found.contains(error), "{found}");
}

/// Policies, bindings and the lines of their documents used to be searched for one by one: minutes for so many. Now it takes four
/// seconds of CPU time without optimization.
#[test]
fn check_takes_no_more_time_for_each_policy_if_there_are_many() {
    const COUNT: usize = 12_000;
    /// The kernel ends the process when it has used so much CPU time; waiting does not count.
    const LIMITED: &str = "ulimit -t 60 && exec \"$0\" check --admission policies.yaml";
    let with_binding = |number: usize| {
        let name = format!("p{number}");
        // Of a kind without types, to be quick.
        let policy = policy(&name, &PODS.replace("pods", "things"), "true");
        format!(
            "{policy}---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\n\
             metadata: {{name: {name}}}\nspec: {{policyName: {name}, validationActions: [Deny]}}\n"
        )
    };
    let text: String = (0..COUNT).map(with_binding).collect();
    let files = Files::new(&[("policies.yaml", &text)]);
    let output = Command::new("sh")
        .args(["-c", LIMITED, env!("CARGO_BIN_EXE_fairgate")])
        .current_dir(&files.0)
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {found}", output.status);
}

#[test]
fn check_finds_what_may_cost_too_much_in_every_expression_of_a_policy() {
    let loops = "object.a.all(b, b.all(c, c.exists(d, d > 1)))";
    let check = "authorizer.group('').resource('pods').check('get').allowed()";
    let three = [check; 3].join(" || ");
    let many = format!("{check} && {check}");
    // 14 variables with two checks each, and one more check, where 28 may be made.
    let variables: Vec<String> = (0..14)
        .map(|at| format!("  - {{name: v{at}, expression: \"{many}\"}}\n"))
        .collect();
    let variables = variables.concat();
    let text = format!(
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {{name: costly}}\nspec:\n\
         \x20 failurePolicy: Ignore\n\
         \x20 matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]}}\n\
         \x20 matchConditions: [{{name: a, expression: \"{loops}\"}}, {{name: b, expression: \"{three}\"}}]\n\
         \x20 variables:\n{variables}  - {{name: w, expression: \"{loops}\"}}\n\
         \x20 validations:\n\
         \x20 - {{expression: \"{check}\", messageExpression: \"{loops} ? 'a' : 'b'\"}}\n\
         \x20 - {{expression: \"{loops}\", messageExpression: \"'fine'\"}}\n\
         \x20 auditAnnotations: [{{key: k, valueExpression: \"{loops} ? 'a' : 'b'\"}}]\n"
    );
    let files = Files::new(&[("policies.yaml", &text)]);
    let (code, _, found) = run(&files.0, &["check", "--admission", "policies.yaml"]);
    assert_eq!(code, 0, "{found}");
    for (field, why) in [
        ("matchConditions[0].expression", "3 loops are nested"),
        (
            "matchConditions[1].expression",
            "3 authorization checks cost 1050000",
        ),
        ("variables[14].expression", "3 loops are nested"),
        ("validations[0].messageExpression", "3 loops are nested"),
        ("validations[1].expression", "3 loops are nested"),
        ("validations", "29 authorization checks cost 10150000"),
        ("auditAnnotations[0].valueExpression", "3 loops are nested"),
    ] {
        let wanted = format!("\"costly\": spec.{field}: {why}");
        assert!(found.contains(&wanted), "{wanted}\nis not in\n{found}");
    }
    assert_eq!(found.matches("loops are nested").count(), 5, "{found}");
}
