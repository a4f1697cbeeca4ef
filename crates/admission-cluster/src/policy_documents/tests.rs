//! Policies of files and of an API, as they are used.

use serde_json::json;

use super::*;

fn policy(name: &str, expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]},
            "validations": [{"expression": expression}],
        },
    })
}

fn binding(name: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": ["Deny"]},
    })
}

fn prepared(objects: &[Value], are_files: bool) -> Result<PreparedPolicies, Vec<Finding>> {
    let numbered = objects.iter().enumerate();
    let documents = PolicyDocuments {
        documents: numbered
            .map(|(at, object)| PolicyDocument {
                origin: format!("f{at}"),
                object: object.clone(),
            })
            .collect(),
        findings: Vec::new(),
        are_files,
        last_good: None,
    };
    prepare(documents, Fidelity::Completed)
}

#[test]
fn what_is_for_kustomize_is_skipped_and_anything_else_is_an_error_that_says_what_to_do() {
    let of = |api_version: &str| json!({"apiVersion": api_version, "kind": "X"});
    let other = of("kustomize.config.k8s.io/v1beta1");
    let objects = [policy("p", "true"), binding("b", "p"), other];
    let read = prepared(&objects, true).unwrap();
    let skipped = read.findings.iter();
    let skipped = skipped.filter(|one| one.message == "skipped: it is for kustomize");
    assert_eq!((read.policies.set.len(), skipped.count()), (1, 1));
    let findings = prepared(&[of("v1")], true).err().unwrap();
    let message = &findings[0].message;
    assert!(
        message.ends_with("; move it to a file that admission.policies.files does not name"),
        "{message}"
    );
}

#[test]
fn bound_policies_are_compiled_with_their_fidelity() {
    let mut exact = policy("exact", "true");
    exact["metadata"]["annotations"] = json!({Fidelity::ANNOTATION: "dryRun"});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [exact, binding("b", "exact")]});
    let objects = [policy("a", "1 < 2"), list, binding("a", "a")];
    let prepared = prepared(&objects, true).unwrap();
    assert_eq!(prepared.findings, []);
    assert_eq!(prepared.policies.set.len(), 2);
    assert!(prepared.policies.are_static);
    let fidelity = [("a", Fidelity::Completed), ("exact", Fidelity::DryRun)];
    assert_eq!(
        prepared.policies.fidelity,
        fidelity.map(|(name, of)| (name.to_owned(), of))
    );
    let needs = ClusterNeeds {
        namespaces: true,
        params: BTreeSet::new(),
    };
    assert_eq!(prepared.needs, needs);
}

#[test]
fn all_errors_of_all_files_are_reported_and_nothing_is_compiled() {
    let mut unknown = policy("b", "object.spec.x == 1");
    unknown["spec"]["rules"] = json!([]);
    unknown["metadata"]["annotations"] = json!({Fidelity::ANNOTATION: "best"});
    let objects = [
        policy("a", "1 +"),
        unknown,
        policy("a", "true"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
    ];
    let findings = prepared(&objects, true).unwrap_err();
    let shown: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 5, "{shown:#?}");
    let begin =
        "error: f0: ValidatingAdmissionPolicy \"a\": spec.validations[0].expression: Invalid value";
    assert!(shown[0].starts_with(begin), "{}", shown[0]);
    for (at, text) in [
        (0, "compilation failed"),
        (1, "unknown field \"spec.rules\""),
        (2, "write one of asSent, completed, dryRun"),
        (3, "defined more than once; also in f0"),
        (4, "v1 ConfigMap is neither"),
    ] {
        assert!(shown[at].contains(text), "{}", shown[at]);
    }
}

#[test]
fn loose_ends_in_files_are_warnings() {
    let prepared = prepared(&[policy("a", "true"), binding("b", "c")], true).unwrap();
    let fields: Vec<_> = prepared
        .findings
        .iter()
        .map(|one| (one.severity, one.field.as_str()))
        .collect();
    assert_eq!(
        fields,
        [
            (Severity::Warning, ""),
            (Severity::Warning, "spec.policyName")
        ]
    );
    assert!(prepared.policies.set.is_empty() && !prepared.needs.namespaces);
}

#[test]
fn objects_of_an_api_are_taken_as_they_are() {
    let mut old = policy("old", "nonsense(");
    old["apiVersion"] = json!("admissionregistration.k8s.io/v1beta1");
    let mut odd = policy("odd", "true");
    odd["spec"]["validations"] = json!("none");
    let objects = [
        old,
        odd,
        binding("b", "old"),
        binding("c", "odd"),
        binding("d", "absent"),
    ];
    let prepared = prepared(&objects, false).unwrap();
    assert_eq!(prepared.policies.set.len(), 1);
    assert!(!prepared.policies.are_static);
    let warned = |name: &str, text: &str| {
        let mut of = prepared.findings.iter().filter(|one| one.name == name);
        of.any(|one| !one.is_error() && one.message.contains(text))
    };
    assert!(
        warned("old", "compilation failed"),
        "{:?}",
        prepared.findings
    );
    assert!(warned("odd", "cannot be read"), "{:?}", prepared.findings);
}

#[test]
fn params_are_needed_if_a_binding_names_any() {
    let with_params = |name: &str, kind: &str| {
        let mut policy = policy(name, "params.x == 1");
        policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": kind});
        policy
    };
    let mut referring = binding("b", "used");
    referring["spec"]["paramRef"] = json!({"name": "p", "parameterNotFoundAction": "Deny"});
    let objects = [
        with_params("used", "ConfigMap"),
        with_params("unused", "Secret"),
        referring,
        binding("c", "unused"),
    ];
    let needs = prepared(&objects, true).unwrap().needs;
    let kind = PolicyParamKind {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
    };
    assert_eq!(needs.params, BTreeSet::from([kind]));
}
