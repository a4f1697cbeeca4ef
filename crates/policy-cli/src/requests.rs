//! Requests made from objects in files.

use serde_json::{Value, json};

use crate::{
    documents::FileObject,
    resources::{KnownResources, TestedResource},
    world::{AnsweredCheck, TestRequest},
};
use fairgate_admission::AdmissionOperation;
use fairgate_core::{digest::User, finding::Finding};
use fairgate_objects::schema::{self, canonical};

/// What is said about a request besides its objects.
#[derive(Clone, Debug)]
pub(super) struct RequestSettings {
    /// `None`: UPDATE if there is an old object, else CREATE.
    pub(super) operation: Option<AdmissionOperation>,
    /// The namespace of namespaced objects that name none.
    pub(super) namespace: String,
    /// The name of the object, for upgrades and subresources, whose objects may have none.
    pub(super) name: String,
    pub(super) user: User,
    pub(super) dry_run: bool,
    /// Members of the options object.
    pub(super) options: Value,
    pub(super) namespaces: Vec<Value>,
    pub(super) params: Vec<Value>,
    pub(super) checks: Vec<AnsweredCheck>,
}

/// Makes a request of an object, and of the one that it replaces. A request that deletes has the object that is deleted
/// in `object`. Returns `None` after reporting what is wrong.
pub(super) fn request(
    object: &FileObject,
    old_object: Option<&FileObject>,
    settings: &RequestSettings,
    known: &KnownResources,
    findings: &mut Vec<Finding>,
) -> Option<TestRequest> {
    let has_namespace = !object.namespace().is_empty();
    let resource = known.of_kind(object.group_version(), object.kind(), has_namespace);
    let resource = match resource {
        Ok(resource) => resource,
        Err(problem) => {
            let remedy = format!(
                "name its resource, as in {}=deployments/scale",
                object.kind()
            );
            findings.push(object.error("kind", problem, remedy));
            return None;
        }
    };
    let operation = settings.operation.unwrap_or(match old_object {
        Some(_) => AdmissionOperation::Update,
        None => AdmissionOperation::Create,
    });
    if operation == AdmissionOperation::Update && old_object.is_none() {
        let remedy = "give the object as it was before, too";
        findings.push(object.error("", "an update needs the old object", remedy));
        return None;
    }
    if let Some(old) = old_object
        && (old.kind(), old.name()) != (object.kind(), object.name())
    {
        let remedy = "give the same object as it was before";
        let message = format!("the old object is {} {:?}", old.kind(), old.name());
        findings.push(object.error("", message, remedy));
        return None;
    }
    let value = canonical_value(object, &resource, settings, findings)?;
    let old_value = match old_object {
        Some(old) => Some(canonical_value(old, &resource, settings, findings)?),
        None => None,
    };
    let name = match settings.name.as_str() {
        "" => object.name(),
        name => name,
    };
    let namespace = namespace(object, &resource, name, settings);
    let (name, namespace) = (name.to_owned(), namespace.to_owned());
    let (object, old_object) = match operation {
        AdmissionOperation::Delete => (None, Some(value)),
        AdmissionOperation::Create | AdmissionOperation::Connect => (Some(value), None),
        AdmissionOperation::Update => (Some(value), old_value),
    };
    Some(TestRequest {
        operation,
        resource,
        namespace,
        name,
        user: settings.user.clone(),
        dry_run: settings.dry_run,
        options: options(operation, settings),
        object,
        old_object,
        namespaces: settings.namespaces.clone(),
        params: settings.params.clone(),
        checks: settings.checks.clone(),
    })
}

/// The namespace of a request: that of a namespace object is its name.
fn namespace<'s>(
    object: &'s FileObject,
    resource: &TestedResource,
    name: &'s str,
    settings: &'s RequestSettings,
) -> &'s str {
    if (&*resource.group, &*resource.plural) == ("", "namespaces") {
        return name;
    }
    match (resource.namespaced, object.namespace()) {
        (false, _) => "",
        (true, "") => &settings.namespace,
        (true, own) => own,
    }
}

/// The object as policies see it: in canonical form, and with its namespace. Defaults are not filled in.
fn canonical_value(
    object: &FileObject,
    resource: &TestedResource,
    settings: &RequestSettings,
    findings: &mut Vec<Finding>,
) -> Option<Value> {
    let mut value = object.value.clone();
    let [group, version, kind] = &resource.kind;
    if let Some(shape) = schema::built_in(group, version, kind) {
        let decoded = match canonical::decode(shape, &value) {
            Ok(decoded) => decoded,
            Err(error) => {
                let remedy = "correct the value: a server refuses the object";
                findings.push(object.error("", error.to_string(), remedy));
                return None;
            }
        };
        for problem in decoded.problems {
            let field = problem.split('"').nth(1).unwrap_or_default().to_owned();
            let remedy = "correct the name of the field: a server drops it";
            findings.push(object.warning(&field, problem, remedy));
        }
        value = decoded.value;
    }
    let is_upgrade = settings.operation == Some(AdmissionOperation::Connect);
    if resource.namespaced && object.namespace().is_empty() && !is_upgrade {
        if !value["metadata"].is_object() {
            value["metadata"] = json!({});
        }
        value["metadata"]["namespace"] = settings.namespace.clone().into();
    }
    Some(value)
}

/// The options object of a request.
fn options(operation: AdmissionOperation, settings: &RequestSettings) -> Value {
    let kind = match operation {
        AdmissionOperation::Create => "CreateOptions",
        AdmissionOperation::Update => "UpdateOptions",
        AdmissionOperation::Delete => "DeleteOptions",
        AdmissionOperation::Connect => return Value::Null,
    };
    let mut options = json!({"apiVersion": "meta.k8s.io/v1", "kind": kind});
    if settings.dry_run {
        options["dryRun"] = json!(["All"]);
    }
    for (member, value) in settings.options.as_object().into_iter().flatten() {
        options[member] = value.clone();
    }
    options
}
