//! Compiles the policies and bindings that a source yields.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fairgate_admission::{
    Fidelity, PolicyParamKind, PolicySet,
    kinds::{ADMISSION_KINDS, VALIDATING_ADMISSION_POLICY},
};
use fairgate_admission_layer::ForwardedPolicies;
use fairgate_core::finding::{Finding, Severity};
use fairgate_objects::{
    codec::{BodyFormat, EmptyValues, ExpectedType, decode_body},
    kind::Kind,
    metadata,
};
use fairgate_policy_sources::{PolicyDocument, PolicyDocuments};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{resources::text, state::ClusterNeeds};

/// The versions in which objects are taken; they have the same fields.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// What to do about an error.
const REMEDY: &str = "correct it or leave it out";

/// Compiled policies.
#[derive(Debug)]
pub struct PreparedPolicies {
    /// The policies.
    pub policies: ForwardedPolicies,
    /// What they need to know of the cluster.
    pub needs: ClusterNeeds,
    /// Problems that do not keep them from being used.
    pub findings: Vec<Finding>,
}

/// A valid object.
#[derive(Debug)]
struct PreparedObject {
    origin: String,
    kind: &'static Kind,
    object: Value,
}

/// Compiles the policies; `fidelity` is that of policies without annotation. Costs about 0.1 ms for each policy.
///
/// # Errors
///
/// All findings, if a file is invalid.
pub fn prepare(
    documents: PolicyDocuments,
    fidelity: Fidelity,
) -> Result<PreparedPolicies, Vec<Finding>> {
    let (mut findings, are_files) = (documents.findings, documents.are_files);
    let mut objects: BTreeMap<(&'static str, String), PreparedObject> = BTreeMap::new();
    // With many policies each copy counts, so objects are moved from step to step.
    for document in documents.documents.into_iter().flat_map(items) {
        let Some(object) = prepared_object(document, are_files, &mut findings) else {
            continue;
        };
        let name = metadata::name(&object.object).to_owned();
        let key = (object.kind.kind, name);
        if let Some(other) = objects.get(&key) {
            let message = format!("defined more than once; also in {}", other.origin);
            findings.push(object.finding(Severity::Error, "metadata.name", &message));
            continue;
        }
        objects.insert(key, object);
    }
    if findings.iter().any(Finding::is_error) {
        return Err(findings);
    }
    let mut compiling = Compiling {
        findings,
        fidelity,
        are_files,
    };
    let (mut policies, mut bindings) = (Vec::new(), Vec::new());
    for object in objects.into_values() {
        if object.kind.kind == VALIDATING_ADMISSION_POLICY.kind {
            policies.extend(compiling.typed::<ValidatingAdmissionPolicy>(object));
        } else {
            bindings.extend(compiling.typed::<ValidatingAdmissionPolicyBinding>(object));
        }
    }
    compiling.prepared(policies, bindings)
}

/// Whether a document is for kustomize, which keeps it beside the objects that it is about.
fn is_of_kustomize(object: &Value) -> bool {
    text(&object["apiVersion"]).starts_with("kustomize.config.k8s.io/")
}

/// The object of a document with its defaults. If it is invalid, there are findings, and perhaps no object.
fn prepared_object(
    document: PolicyDocument,
    are_files: bool,
    findings: &mut Vec<Finding>,
) -> Option<PreparedObject> {
    let PolicyDocument { origin, mut object } = document;
    if is_of_kustomize(&object) {
        let message = "skipped: it is for kustomize".to_owned();
        findings.push(finding(Severity::Warning, origin, &object, "", message));
        return None;
    }
    let Some(kind) = kind_of(&object) else {
        let message = format!(
            "{} {} is neither a ValidatingAdmissionPolicy nor a ValidatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1; move it to a file that admission.policies.files does not name",
            text(&object["apiVersion"]),
            text(&object["kind"])
        );
        findings.push(finding(Severity::Error, origin, &object, "", message));
        return None;
    };
    let version = &kind.versions[0];
    // An older version with the same fields is read by the same table.
    object["apiVersion"] = kind.api_version(version.name).into();
    let mut problems = Vec::new();
    if are_files {
        match decoded(kind, &object) {
            Ok((value, unknown)) => {
                problems.extend(unknown.into_iter().map(|text| (String::new(), text)));
                object = value;
            }
            Err(message) => {
                findings.push(finding(Severity::Error, origin, &object, "", message));
                return None;
            }
        }
    }
    (version.default)(&mut object);
    problems.extend(problems_of(kind, &object, are_files));
    let severity = if are_files {
        Severity::Error
    } else {
        Severity::Warning
    };
    for (field, message) in problems {
        findings.push(finding(severity, origin.clone(), &object, &field, message));
    }
    Some(PreparedObject {
        origin,
        kind,
        object,
    })
}

/// What is wrong with an object that has its defaults: fields, and what is wrong there.
fn problems_of(kind: &Kind, object: &Value, are_files: bool) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    // A server has checked the names of its own objects.
    let checks_name = kind.rules.name.filter(|_| are_files);
    let name = metadata::name(object);
    if let Some(check) = checks_name {
        let wrong = check(name, false).into_iter();
        problems.extend(wrong.map(|text| ("metadata.name".to_owned(), text)));
    }
    let errors = (kind.rules.validate)(object, None);
    problems.extend(errors.into_iter().map(|error| {
        let whole = error.to_string();
        let detail = whole.strip_prefix(&format!("{}: ", error.field));
        let detail = detail.unwrap_or(&whole).to_owned();
        (error.field, detail)
    }));
    if let Err(message) = own_fidelity(object) {
        problems.push((
            format!("metadata.annotations[{}]", Fidelity::ANNOTATION),
            message,
        ));
    }
    problems
}

/// The items of a document that is a list, or the document itself.
fn items(mut document: PolicyDocument) -> Vec<PolicyDocument> {
    let is_list = text(&document.object["kind"]).ends_with("List");
    let items = document.object.get_mut("items").filter(|_| is_list);
    let Some(Value::Array(items)) = items else {
        return vec![document];
    };
    let items = std::mem::take(items).into_iter().enumerate();
    let numbered = items.map(|(at, object)| PolicyDocument {
        origin: format!("{}, item {}", document.origin, at + 1),
        object,
    });
    numbered.collect()
}

/// An object that was written by hand, in canonical form, and its unknown and duplicate fields.
fn decoded(kind: &'static Kind, object: &Value) -> Result<(Value, Vec<String>), String> {
    let version = &kind.versions[0];
    let expected = ExpectedType {
        group: kind.group,
        version: version.name,
        kind: kind.kind,
        shape: version.shape,
        scheme: &[],
        empty: EmptyValues::Null,
    };
    let text = object.to_string();
    let decoded = decode_body(BodyFormat::Json, text.as_bytes(), &expected, false);
    let decoded = decoded.map_err(|error| error.to_string())?;
    Ok((decoded.value, decoded.problems))
}

fn kind_of(object: &Value) -> Option<&'static Kind> {
    let (api_version, name) = (text(&object["apiVersion"]), text(&object["kind"]));
    let version = |kind: &Kind| VERSIONS.map(|version| kind.api_version(version));
    let mut kinds = ADMISSION_KINDS.into_iter();
    kinds.find(|kind| kind.kind == name && version(kind).iter().any(|one| one == api_version))
}

fn finding(
    severity: Severity,
    origin: String,
    object: &Value,
    field: &str,
    message: String,
) -> Finding {
    let name = text(&object["metadata"]["name"]);
    finding_of(
        (text(&object["kind"]), name),
        severity,
        origin,
        field,
        message,
    )
}

/// A finding about an object by its kind and name.
fn finding_of(
    (kind, name): (&str, &str),
    severity: Severity,
    origin: String,
    field: &str,
    message: String,
) -> Finding {
    Finding {
        severity,
        origin,
        kind: kind.to_owned(),
        name: name.to_owned(),
        field: field.to_owned(),
        message,
        remedy: REMEDY.to_owned(),
    }
}

impl PreparedObject {
    fn finding(&self, severity: Severity, field: &str, message: &str) -> Finding {
        let origin = self.origin.clone();
        finding(severity, origin, &self.object, field, message.to_owned())
    }
}

/// Compiles valid objects, and collects the problems that remain.
struct Compiling {
    findings: Vec<Finding>,
    fidelity: Fidelity,
    are_files: bool,
}

/// An object that could be read. What it was read from is gone: with many policies each form of them counts.
struct TypedObject<T> {
    origin: String,
    kind: &'static str,
    name: String,
    /// What its annotation asks for. An unknown value counts as none: it has been reported.
    fidelity: Option<Fidelity>,
    object: T,
}

impl<T> TypedObject<T> {
    /// A warning about this object.
    fn warning(&self, field: &str, message: &str) -> Finding {
        let (origin, message) = (self.origin.clone(), message.to_owned());
        finding_of(
            (self.kind, &self.name),
            Severity::Warning,
            origin,
            field,
            message,
        )
    }
}

impl Compiling {
    /// Reads an object. An object of an API that cannot be read has no effect, but the others do.
    fn typed<T: DeserializeOwned>(&mut self, from: PreparedObject) -> Option<TypedObject<T>> {
        match T::deserialize(&from.object) {
            Ok(object) => Some(TypedObject {
                kind: from.kind.kind,
                name: metadata::name(&from.object).to_owned(),
                fidelity: own_fidelity(&from.object).ok().flatten(),
                origin: from.origin,
                object,
            }),
            Err(error) => {
                let severity = self.severity();
                let message = format!("cannot be read: {error}");
                self.findings.push(from.finding(severity, "", &message));
                None
            }
        }
    }

    /// The severity of an invalid object.
    fn severity(&self) -> Severity {
        if self.are_files {
            Severity::Error
        } else {
            Severity::Warning
        }
    }

    fn prepared(
        mut self,
        policies: Vec<TypedObject<ValidatingAdmissionPolicy>>,
        bindings: Vec<TypedObject<ValidatingAdmissionPolicyBinding>>,
    ) -> Result<PreparedPolicies, Vec<Finding>> {
        self.report_loose_ends(&policies, &bindings);
        let mut fidelity: Vec<_> = policies
            .iter()
            .map(|policy| {
                let fidelity = policy.fidelity.unwrap_or(self.fidelity);
                (policy.name.clone(), fidelity)
            })
            .collect();
        fidelity.sort_by(|one: &(String, _), other| one.0.cmp(&other.0));
        if self.findings.iter().any(Finding::is_error) {
            return Err(self.findings);
        }
        let (policies, bindings): (Vec<_>, Vec<_>) = (
            policies.into_iter().map(|one| one.object).collect(),
            bindings.into_iter().map(|one| one.object).collect(),
        );
        let set = PolicySet::compile(&policies, &bindings);
        let needs = ClusterNeeds {
            namespaces: !set.is_empty(),
            params: param_kinds(&policies, &bindings),
        };
        Ok(PreparedPolicies {
            policies: ForwardedPolicies {
                set: Arc::new(set),
                fidelity,
                are_static: self.are_files,
            },
            needs,
            findings: self.findings,
        })
    }

    /// Reports policies without binding and bindings without policy in files. In an API that is normal,
    /// because objects are created one after the other.
    fn report_loose_ends(
        &mut self,
        policies: &[TypedObject<ValidatingAdmissionPolicy>],
        bindings: &[TypedObject<ValidatingAdmissionPolicyBinding>],
    ) {
        if !self.are_files {
            return;
        }
        let names = policies.iter().map(|policy| policy.name.as_str());
        let names: BTreeSet<&str> = names.collect();
        let bound = bindings
            .iter()
            .map(|binding| binding.object.spec.policy_name.as_str());
        let bound: BTreeSet<&str> = bound.collect();
        for policy in policies {
            if !bound.contains(policy.name.as_str()) {
                let message = "no binding references it, so it is never evaluated";
                self.findings.push(policy.warning("", message));
            }
        }
        for binding in bindings {
            if !names.contains(binding.object.spec.policy_name.as_str()) {
                let message = "there is no such policy, so the binding has no effect";
                let warning = binding.warning("spec.policyName", message);
                self.findings.push(warning);
            }
        }
    }
}

/// The fidelity that the annotation of a policy asks for, if it has one.
fn own_fidelity(policy: &Value) -> Result<Option<Fidelity>, String> {
    let Some(text) = metadata::entry(policy, "annotations", Fidelity::ANNOTATION) else {
        return Ok(None);
    };
    Fidelity::of_name(text).map(Some).ok_or_else(|| {
        let words = Fidelity::ALL.map(Fidelity::as_str).join(", ");
        format!("{text:?} is not a known value; write one of {words}")
    })
}

/// The kinds of params of policies with a binding that names any.
fn param_kinds(
    policies: &[ValidatingAdmissionPolicy],
    bindings: &[ValidatingAdmissionPolicyBinding],
) -> BTreeSet<PolicyParamKind> {
    let with_params = bindings
        .iter()
        .filter(|binding| binding.spec.param_ref.is_some());
    let named: BTreeSet<&str> = with_params
        .map(|binding| binding.spec.policy_name.as_str())
        .collect();
    let is_named = |policy: &&ValidatingAdmissionPolicy| {
        let name = policy.metadata.name.as_deref();
        named.contains(name.unwrap_or_default())
    };
    let kinds = policies.iter().filter(is_named);
    let kinds = kinds.filter_map(|policy| policy.spec.as_ref()?.param_kind.as_ref());
    kinds
        .map(|kind| PolicyParamKind {
            api_version: kind.api_version.clone().unwrap_or_default(),
            kind: kind.kind.clone().unwrap_or_default(),
        })
        .collect()
}
