//! What is wrong, or probably not meant, in policies and bindings: for `fairgate check`.

use std::{io::Read, path::PathBuf};

use serde_json::Value;

use super::{
    bundle::PolicyBundle,
    documents::{self, FileObject},
    expression_cost,
};
use fairgate_admission::{expression_warnings, typed_kinds};
use fairgate_core::finding::{Finding, Severity};

const FLOW_CONTROL: &str = "flowcontrol.apiserver.k8s.io";
const EVENTS_LOST: &str = "what controllers report is lost";
const OVERLOAD_STAYS: &str = "an overload cannot be corrected";

/// What a cluster and the components around the gateway cannot do without: group, resource and subresource, and what
/// happens if their writes fail.
const VITAL: [([&str; 3], &str); 9] = [
    (
        ["coordination.k8s.io", "leases", ""],
        "controllers lose their leadership, and nodes count as dead",
    ),
    (["", "nodes", "status"], "nodes count as dead"),
    (["", "events", ""], EVENTS_LOST),
    (["events.k8s.io", "events", ""], EVENTS_LOST),
    (["", "serviceaccounts", "token"], "pods get no credentials"),
    (["", "pods", "eviction"], "nodes cannot be drained"),
    (
        ["policy", "poddisruptionbudgets", "status"],
        "budgets are not computed, and nothing is evicted",
    ),
    ([FLOW_CONTROL, "flowschemas", ""], OVERLOAD_STAYS),
    (
        [FLOW_CONTROL, "prioritylevelconfigurations", ""],
        OVERLOAD_STAYS,
    ),
];

/// Resources that policies never judge.
const EXEMPT: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Reviews the policies and bindings in files, directories and standard input (`-`). Other objects are skipped.
pub(in crate::cli) fn review(paths: &[PathBuf], input: &mut dyn Read) -> Vec<Finding> {
    let mut findings = Vec::new();
    let objects = documents::read(paths, input, &mut findings);
    let mut bundle = PolicyBundle::default();
    bundle.take(objects, &mut findings);
    if bundle.policies.is_empty() && bundle.bindings.is_empty() && findings.is_empty() {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        findings.push(Finding {
            severity: Severity::Warning,
            origin: paths.join(", "),
            kind: String::new(),
            name: String::new(),
            field: String::new(),
            message: "no ValidatingAdmissionPolicy was found".to_owned(),
            remedy: "give files with policies and bindings, as kubectl prints them".to_owned(),
        });
    }
    for policy in &bundle.policies {
        review_policy(policy, &bundle, &mut findings);
    }
    for binding in &bundle.bindings {
        review_binding(binding, &bundle, &mut findings);
    }
    findings
}

fn review_policy(policy: &FileObject, bundle: &PolicyBundle, findings: &mut Vec<Finding>) {
    if bundle.bindings_of(policy.name()).next().is_none() {
        let remedy = "add a ValidatingAdmissionPolicyBinding, unless there is one elsewhere";
        findings.push(policy.warning("", "no binding names it: it judges nothing", remedy));
    }
    for warning in expression_warnings(&policy.value, typed_kinds()) {
        let field = warning["fieldRef"].as_str().unwrap_or_default();
        let text = warning["warning"].as_str().unwrap_or_default().trim_end();
        let remedy = "correct the expression: objects of this kind have other types";
        let is_reported = |one: &Finding| one.field == field && one.name == policy.name();
        // An expression that does not compile at all has been reported as an error.
        if !findings.iter().any(is_reported) {
            findings.push(policy.warning(field, text, remedy));
        }
    }
    for (field, problem) in expression_cost::problems(&policy.value["spec"]) {
        let remedy = "make it cheaper; fairgate policy test shows what it costs for an object";
        findings.push(policy.warning(&field, problem, remedy));
    }
    review_exempt(policy, findings);
    review_vital(policy, findings);
}

fn review_exempt(policy: &FileObject, findings: &mut Vec<Finding>) {
    let rules = &policy.value["spec"]["matchConstraints"]["resourceRules"];
    for (index, rule) in items(rules).enumerate() {
        for (group, resource) in EXEMPT {
            if has(&rule["apiGroups"], group) && has(&rule["resources"], resource) {
                let field = format!("spec.matchConstraints.resourceRules[{index}].resources");
                let message = format!("policies never judge {resource}");
                findings.push(policy.warning(&field, message, "remove it"));
            }
        }
    }
}

fn review_vital(policy: &FileObject, findings: &mut Vec<Finding>) {
    let spec = &policy.value["spec"];
    let constraints = &spec["matchConstraints"];
    let selects = |selector: &str| {
        let members = constraints[selector].as_object();
        members.is_some_and(|members| !members.is_empty())
    };
    let is_limited = selects("namespaceSelector") || selects("objectSelector");
    let has_conditions = items(&spec["matchConditions"]).next().is_some();
    if spec["failurePolicy"] == "Ignore" || is_limited || has_conditions {
        return;
    }
    let takes =
        |list: &str, of: [&str; 3]| items(&constraints[list]).any(|rule| is_covered(of, rule));
    let endangered: Vec<String> = VITAL
        .iter()
        .filter(|(of, _)| takes("resourceRules", *of) && !takes("excludeResourceRules", *of))
        .map(|(of, danger)| format!("{} ({danger})", shown(*of)))
        .collect();
    if !endangered.is_empty() {
        let message = format!(
            "with failurePolicy: Fail, an error in an expression refuses writes of {}",
            endangered.join(", ")
        );
        let remedy = "name the resources that you mean, exclude these with excludeResourceRules, or set it to Ignore";
        findings.push(policy.warning("spec.failurePolicy", message, remedy));
    }
}

fn review_binding(binding: &FileObject, bundle: &PolicyBundle, findings: &mut Vec<Finding>) {
    let name = binding.text(&["spec", "policyName"]);
    let Some(policy) = bundle.policy(name) else {
        if !name.is_empty() {
            let message = format!("there is no policy {name:?}: the binding does nothing");
            let remedy = "correct the name, unless the policy is elsewhere";
            findings.push(binding.warning("spec.policyName", message, remedy));
        }
        return;
    };
    let has_kind = !policy.value["spec"]["paramKind"].is_null();
    let has_params = !binding.value["spec"]["paramRef"].is_null();
    if has_kind && !has_params {
        let message = format!("policy {name:?} takes params, and gets null");
        let remedy = "name the params, or see that the expressions accept null";
        findings.push(binding.warning("spec.paramRef", message, remedy));
    } else if has_params && !has_kind {
        let message = format!("policy {name:?} takes no params");
        let remedy = "remove it, or set spec.paramKind of the policy";
        findings.push(binding.warning("spec.paramRef", message, remedy));
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn has(list: &Value, wanted: &str) -> bool {
    items(list).any(|item| item == wanted)
}

/// A resource as kubectl names it: `poddisruptionbudgets.policy/status`.
fn shown([group, resource, subresource]: [&str; 3]) -> String {
    let mut shown = resource.to_owned();
    for (before, part) in [(".", group), ("/", subresource)] {
        if !part.is_empty() {
            shown.push_str(before);
            shown.push_str(part);
        }
    }
    shown
}

/// Whether a rule is for writes of a resource, whatever the name.
fn is_covered([group, resource, subresource]: [&str; 3], rule: &Value) -> bool {
    let any = |list: &Value, wanted: &[&str]| {
        items(list).any(|item| item == "*" || wanted.iter().any(|one| item == one))
    };
    let takes = |pattern: &Value| {
        let pattern = pattern.as_str().unwrap_or_default();
        let (main, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
        (main == "*" || main == resource) && (sub == "*" || sub == subresource)
    };
    any(&rule["operations"], &["CREATE", "UPDATE"])
        && any(&rule["apiGroups"], &[group])
        && items(&rule["resources"]).any(takes)
        && items(&rule["resourceNames"]).next().is_none()
}
