//! What is wrong, or probably not meant, in policies and bindings: for `fairgate check`.

use std::{io::Read, path::PathBuf};

use serde_json::Value;

use crate::{
    absences,
    bundle::PolicyBundle,
    documents::{self, FileObject, items},
    expression_cost, resource_names, set_fields, vital,
};
use fairgate_admission::{Fidelity, expression_warnings, further_expression_warnings, typed_kinds};
use fairgate_core::finding::{Finding, Severity};

/// Resources that policies never evaluate.
const EXEMPT: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Reviews the policies and bindings in files, directories and standard input (`-`). Other objects are skipped.
///
/// `fidelity` is how the gateway obtains the objects of policies that do not say so themselves. `nothing` is how bad it is if there are neither
/// policies nor bindings.
pub fn review(
    paths: &[PathBuf],
    input: &mut dyn Read,
    fidelity: Fidelity,
    nothing: Severity,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let objects = documents::read(paths, input, &mut findings);
    let mut bundle = PolicyBundle::default();
    bundle.take(objects, &mut findings);
    if bundle.policies.is_empty() && bundle.bindings.is_empty() && findings.is_empty() {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        findings.push(Finding::without_object(
            nothing,
            paths.join(", "),
            "no ValidatingAdmissionPolicy was found",
            "give files with policies and bindings, as kubectl prints them",
        ));
    }
    for policy in &bundle.policies {
        review_policy(policy, &bundle, &mut findings);
        findings.extend(set_fields::warnings(policy, fidelity));
    }
    for binding in &bundle.bindings {
        review_binding(binding, &bundle, &mut findings);
    }
    findings
}

fn review_policy(policy: &FileObject, bundle: &PolicyBundle, findings: &mut Vec<Finding>) {
    if !bundle.is_bound(policy.name()) {
        let remedy = "add a ValidatingAdmissionPolicyBinding, unless there is one elsewhere";
        findings.push(policy.warning(
            "",
            "no binding references it, so it is never evaluated",
            remedy,
        ));
    }
    let kinds = typed_kinds().to_vec();
    let further = further_expression_warnings(&policy.value, &kinds);
    for warning in expression_warnings(&policy.value, &kinds)
        .iter()
        .chain(&further)
    {
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
    findings.extend(absences::warnings(policy));
    findings.extend(resource_names::warnings(policy));
    review_exempt(policy, findings);
    review_vital(policy, findings);
}

fn review_exempt(policy: &FileObject, findings: &mut Vec<Finding>) {
    let rules = &policy.value["spec"]["matchConstraints"]["resourceRules"];
    for (index, rule) in items(rules).enumerate() {
        for (group, resource) in EXEMPT {
            if has(&rule["apiGroups"], group) && has(&rule["resources"], resource) {
                let field = format!("spec.matchConstraints.resourceRules[{index}].resources");
                let message = format!("policies never evaluate {resource}");
                findings.push(policy.warning(&field, message, "remove it"));
            }
        }
    }
}

fn review_vital(policy: &FileObject, findings: &mut Vec<Finding>) {
    let endangered = vital::endangered(&policy.value["spec"]);
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
        if !name.is_empty() && !bundle.is_left_out(name) {
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

fn has(list: &Value, wanted: &str) -> bool {
    items(list).any(|item| item == wanted)
}
