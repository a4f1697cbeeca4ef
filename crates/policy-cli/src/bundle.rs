//! Policies and bindings in files: checked as a server checks them, and compiled.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    slice,
};

use serde_json::{Value, json};

use crate::documents::FileObject;
use fairgate_admission::{
    PolicySet,
    kinds::{VALIDATING_ADMISSION_POLICY, VALIDATING_ADMISSION_POLICY_BINDING},
};
use fairgate_core::finding::Finding;
use fairgate_objects::{field_error::ApiFieldError, kind::Kind, schema::canonical};

/// The API group of policies and bindings.
const GROUP: &str = "admissionregistration.k8s.io";

/// Policies and bindings, as a server would store them.
#[derive(Default)]
pub(super) struct PolicyBundle {
    pub(super) policies: NamedObjects,
    pub(super) bindings: NamedObjects,
    /// The policies that bindings name.
    bound: HashSet<String>,
    /// The names of objects that were left out, because their kind or version is wrong.
    left_out: HashSet<String>,
}

/// Objects of a kind, each name once, in the order of the files.
#[derive(Default)]
pub(super) struct NamedObjects {
    all: Vec<FileObject>,
    by_name: HashMap<String, usize>,
}

impl NamedObjects {
    pub(super) fn iter(&self) -> slice::Iter<'_, FileObject> {
        self.all.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn get(&self, name: &str) -> Option<&FileObject> {
        self.by_name.get(name).map(|index| &self.all[*index])
    }

    fn push(&mut self, object: FileObject) {
        self.by_name
            .insert(object.name().to_owned(), self.all.len());
        self.all.push(object);
    }
}

impl<'o> IntoIterator for &'o NamedObjects {
    type Item = &'o FileObject;
    type IntoIter = slice::Iter<'o, FileObject>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PolicyBundle {
    /// Takes the policies and bindings out of `objects`, and reports what a server would refuse; returns the others.
    pub(super) fn take(
        &mut self,
        objects: Vec<FileObject>,
        findings: &mut Vec<Finding>,
    ) -> Vec<FileObject> {
        let mut others = Vec::new();
        for object in objects {
            let kinds = [
                &VALIDATING_ADMISSION_POLICY,
                &VALIDATING_ADMISSION_POLICY_BINDING,
            ];
            let (group, version) = object.group_version();
            let known = kinds.into_iter().find(|kind| kind.kind == object.kind());
            let Some(kind) = known.filter(|_| group == GROUP) else {
                match misspelt_kind(&object) {
                    Some(misspelt) => {
                        self.left_out.insert(object.name().to_owned());
                        // A binding says which policy it is for, whatever its kind.
                        self.bind(&object);
                        findings.push(misspelt);
                    }
                    None => others.push(object),
                }
                continue;
            };
            if version != "v1" {
                let message = format!("version {version:?} is not served by Kubernetes any more");
                let remedy = "write admissionregistration.k8s.io/v1, which has the same fields";
                findings.push(object.error("apiVersion", message, remedy));
                self.left_out.insert(object.name().to_owned());
                self.bind(&object);
                continue;
            }
            let object = checked(kind, object, findings);
            let is_policy = kind.is_same_resource(&VALIDATING_ADMISSION_POLICY);
            let of_kind = if is_policy {
                &mut self.policies
            } else {
                &mut self.bindings
            };
            if let Some(first) = of_kind.get(object.name()) {
                let message = format!("{} has this name, too", first.origin(""));
                let remedy = "remove one of the two, or give it another name";
                findings.push(object.error("metadata.name", message, remedy));
                continue;
            }
            of_kind.push(object.clone());
            if !is_policy {
                self.bind(&object);
            }
        }
        others
    }

    /// Notes the policy that a binding names.
    fn bind(&mut self, binding: &FileObject) {
        let policy = binding.text(&["spec", "policyName"]);
        if !policy.is_empty() {
            self.bound.insert(policy.to_owned());
        }
    }

    /// Whether an object of this name was left out because of an error, which has been reported.
    pub(super) fn is_left_out(&self, name: &str) -> bool {
        self.left_out.contains(name)
    }

    /// The policy of this name.
    pub(super) fn policy(&self, name: &str) -> Option<&FileObject> {
        self.policies.get(name)
    }

    /// Whether a binding names the policy.
    pub(super) fn is_bound(&self, policy: &str) -> bool {
        self.bound.contains(policy)
    }

    /// Compiles the policies by name, each with its bindings. A policy without binding gets one that denies, whose params
    /// are all that `params` has of the policy's kind.
    ///
    /// # Errors
    ///
    /// When an object is none; [`take`](Self::take) has reported that.
    pub(super) fn compile(&self, params: &[Value]) -> Result<CompiledBundle, serde_json::Error> {
        let policies: BTreeMap<&str, &Value> = self
            .policies
            .iter()
            .map(|policy| (policy.name(), &policy.value))
            .collect();
        let mut bindings: BTreeMap<&str, Value> = self
            .bindings
            .iter()
            .map(|binding| (binding.name(), binding.value.clone()))
            .collect();
        let mut assumed = Vec::new();
        for (name, policy) in &policies {
            if !self.is_bound(name) {
                assumed.push((*name).to_owned());
                bindings.insert(name, assumed_binding(name, policy, params));
            }
        }
        let policies: Vec<&Value> = policies.into_values().collect();
        let set = PolicySet::from_json(&policies, &bindings.values().collect::<Vec<_>>())?;
        let values = bindings.into_iter();
        let values = values.map(|(name, binding)| (name.to_owned(), binding));
        Ok(CompiledBundle {
            set,
            bindings: values.collect(),
            assumed,
        })
    }
}

/// That an object is meant for a policy or a binding, and is none: its kind is none of the group's, or its group is another one. It must not pass for an
/// object that policies are asked about.
fn misspelt_kind(object: &FileObject) -> Option<Finding> {
    const OTHERS: [&str; 4] = [
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ];
    let (group, _) = object.group_version();
    let kind = object.kind();
    let policies = [
        VALIDATING_ADMISSION_POLICY.kind,
        VALIDATING_ADMISSION_POLICY_BINDING.kind,
    ];
    if policies.contains(&kind) {
        let message = format!("{kind} is no kind of {group:?}");
        let remedy = format!("write apiVersion: {GROUP}/v1");
        return Some(object.error("apiVersion", message, remedy));
    }
    if group != GROUP || OTHERS.contains(&kind) {
        return None;
    }
    let message = format!("there is no kind {kind:?} in {group}");
    let remedy = "write ValidatingAdmissionPolicy or ValidatingAdmissionPolicyBinding";
    Some(object.error("kind", message, remedy))
}

/// Policies that are ready to evaluate requests.
pub(super) struct CompiledBundle {
    pub(super) set: PolicySet,
    /// By name.
    pub(super) bindings: BTreeMap<String, Value>,
    /// The policies without binding, by name. Their bindings have their names.
    pub(super) assumed: Vec<String>,
}

/// The binding of a policy that has none.
fn assumed_binding(name: &str, policy: &Value, params: &[Value]) -> Value {
    let mut binding = json!({
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let kind = &policy["spec"]["paramKind"];
    if !kind.is_null() {
        let of_kind =
            |one: &&Value| one["apiVersion"] == kind["apiVersion"] && one["kind"] == kind["kind"];
        let first = params.iter().find(of_kind);
        let mut reference = json!({"selector": {}, "parameterNotFoundAction": "Deny"});
        if let Some(namespace) = first.map(|param| &param["metadata"]["namespace"])
            && !namespace.is_null()
        {
            reference["namespace"] = namespace.clone();
        }
        binding["spec"]["paramRef"] = reference;
    }
    binding
}

/// The object in canonical form with defaults. Reports what a server would refuse.
fn checked(kind: &Kind, mut object: FileObject, findings: &mut Vec<Finding>) -> FileObject {
    let version = kind.stored();
    match canonical::decode(version.shape, &object.value) {
        Ok(decoded) => {
            for problem in decoded.problems {
                let field = quoted(&problem).to_owned();
                let remedy = "correct the name of the field, or remove it";
                findings.push(object.error(&field, problem, remedy));
            }
            object.value = decoded.value;
        }
        Err(error) => {
            let remedy = "correct the value";
            findings.push(object.error("", error.to_string(), remedy));
            return object;
        }
    }
    (version.default)(&mut object.value);
    let mut errors = Vec::new();
    if object.name().is_empty() {
        errors.push(ApiFieldError::required("metadata.name", "name is required"));
    } else if let Some(rule) = kind.rules.name {
        let problems = rule(object.name(), false);
        let value = &object.value["metadata"]["name"];
        let invalid = |problem| ApiFieldError::invalid("metadata.name", value, problem);
        errors.extend(problems.into_iter().map(invalid));
    }
    errors.extend((kind.rules.validate)(&object.value, None));
    for error in errors {
        findings.push(finding(&object, &error));
    }
    object
}

/// What is between the first two quotes.
fn quoted(text: &str) -> &str {
    text.split('"').nth(1).unwrap_or_default()
}

fn finding(object: &FileObject, error: &ApiFieldError) -> Finding {
    let is_compiler = error.detail.contains("ERROR: <input>");
    let (message, remedy) = if is_compiler {
        (error.detail.clone(), "correct the expression")
    } else {
        let remedy = "correct it: a server refuses the object";
        (error.message(), remedy)
    };
    object.error(&error.field, message, remedy)
}
