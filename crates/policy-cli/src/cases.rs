//! Files of cases: requests, each with what is expected of it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{
    documents::{self, FileObject},
    expectation::ExpectedResult,
    fields::FileFields,
    requests::{self, RequestSettings},
    resources::{KnownResources, ResourceOverride},
    world::{AnsweredCheck, TestRequest},
};
use fairgate_admission::AdmissionOperation;
use fairgate_cel::library::authorizer::AuthorizationAnswer;
use fairgate_core::{
    digest::User,
    finding::{Finding, Severity},
};

/// A request with what is expected of it.
pub(super) struct TestCase {
    pub(super) name: String,
    /// Where it is.
    pub(super) origin: String,
    pub(super) request: TestRequest,
    pub(super) expected: ExpectedResult,
    /// What is known of resources in its file.
    pub(super) known: KnownResources,
}

/// The policies that a file of cases names, which are read before the cases.
pub(super) fn policies(documents: &[FileObject], findings: &mut Vec<Finding>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for document in documents.iter().filter(|one| one.value.is_object()) {
        let mut ignored = Vec::new();
        let fields = FileFields::of(document, String::new(), &document.value, &mut ignored);
        let named = fields.and_then(|mut fields| fields.texts("policies"));
        paths.extend(
            named
                .into_iter()
                .flatten()
                .map(|path| beside(document, &path)),
        );
        findings.extend(ignored);
    }
    paths
}

/// Reads the cases of these documents. A document is a list of cases, or a mapping with `cases` and with what they have in
/// common.
pub(super) fn read(
    documents: &[FileObject],
    settings: &RequestSettings,
    known: &KnownResources,
    findings: &mut Vec<Finding>,
) -> Vec<TestCase> {
    let mut cases = Vec::new();
    for document in documents {
        let mut common = CommonFields {
            settings: settings.clone(),
            known: known.clone(),
        };
        let (path, list) = match &document.value {
            Value::Array(list) => (String::new(), Some(&**list)),
            value => {
                let fields = FileFields::of(document, String::new(), value, findings);
                (
                    "cases".to_owned(),
                    fields.and_then(|fields| common.read_suite(fields)),
                )
            }
        };
        for (index, value) in list.into_iter().flatten().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(fields) = FileFields::of(document, path, value, findings) {
                cases.extend(common.clone().read_case(fields));
            }
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for case in &cases {
        if names.contains(&&*case.name) {
            let finding = Finding::without_object(
                Severity::Error,
                case.origin.clone(),
                format!("another case is called {:?}, too", case.name),
                "give each case a name of its own",
            );
            findings.push(finding.in_field("name"));
        }
        names.push(&case.name);
    }
    cases
}

/// What a file says about all of its cases, and then a case about itself.
#[derive(Clone)]
struct CommonFields {
    settings: RequestSettings,
    known: KnownResources,
}

impl CommonFields {
    /// Reads the mapping around cases, and returns these.
    fn read_suite<'a>(&mut self, mut fields: FileFields<'a, '_>) -> Option<&'a [Value]> {
        // These are read before.
        fields.value("policies");
        for key in ["apiVersion", "kind"] {
            fields.value(key);
        }
        for (kind, resource) in fields.text_map("resources").unwrap_or_default() {
            self.known
                .override_kind(ResourceOverride::new(&kind, &resource));
        }
        self.read_common(&mut fields);
        let cases = fields.list("cases");
        if cases.is_none() {
            fields.error("cases", "there are none", "write a list of cases");
        }
        fields.finish();
        cases
    }

    /// Reads the keys that files and cases have.
    fn read_common(&mut self, fields: &mut FileFields<'_, '_>) {
        let settings = &mut self.settings;
        if let Some(user) = user(fields) {
            settings.user = user;
        }
        if let Some(name) = fields.text("namespace") {
            name.clone_into(&mut settings.namespace);
        }
        if let Some(params) = objects(fields, "params") {
            let params = params.into_iter().map(|param| param.value);
            settings.params = params.collect();
        }
        if let Some(namespaces) = objects(fields, "namespaceObjects") {
            let namespaces = namespaces.into_iter().map(|one| one.value);
            settings.namespaces.splice(0..0, namespaces);
        }
        if let Some(checks) = checks(fields) {
            settings.checks.splice(0..0, checks);
        }
    }

    fn read_case(mut self, mut fields: FileFields<'_, '_>) -> Option<TestCase> {
        let origin = fields.origin();
        let name = fields.text("name").unwrap_or_default().to_owned();
        if name.is_empty() {
            fields.error("name", "it is missing", "give the case a name");
        }
        self.read_common(&mut fields);
        self.read_request(&mut fields);
        let labels = fields.text_map("namespaceLabels");
        let before = fields.parts().1.len();
        let object = objects(&mut fields, "object");
        let old_object = objects(&mut fields, "oldObject");
        // That is why there is none then.
        let is_told = fields.parts().1.len() > before;
        let expected = ExpectedResult::read(&mut fields);
        let [object, old_object] =
            [("object", object), ("oldObject", old_object)].map(|(key, of)| {
                let mut of = of.unwrap_or_default();
                if of.len() > 1 {
                    let message = format!("there are {} objects", of.len());
                    let remedy = "choose one: {file: objects.yaml, kind: Pod, name: web}";
                    fields.error(key, message, remedy);
                }
                of.pop()
            });
        if object.is_none() && old_object.is_none() && !is_told {
            fields.error("object", "it is missing", "give the object of the request");
        }
        let (_, findings) = fields.parts();
        let is_delete = self.settings.operation == Some(AdmissionOperation::Delete);
        let pair = match (&object, &old_object) {
            // What is deleted may be called either.
            (Some(only), None) | (None, Some(only)) => Some((only, None)),
            (Some(_), Some(old)) if is_delete => Some((old, None)),
            (Some(new), Some(old)) => Some((new, Some(old))),
            (None, None) => None,
        };
        let request = pair.and_then(|(object, old)| {
            requests::request(object, old, &self.settings, &self.known, findings)
        });
        fields.finish();
        let mut request = request?;
        if let Some(labels) = labels {
            request
                .namespaces
                .insert(0, labelled(&request.namespace, labels));
        }
        Some(TestCase {
            name,
            origin,
            request,
            expected,
            known: self.known,
        })
    }

    /// Reads the keys that only a case has.
    fn read_request(&mut self, fields: &mut FileFields<'_, '_>) {
        let settings = &mut self.settings;
        if let Some(text) = fields.text("operation") {
            settings.operation = AdmissionOperation::of_name(text);
            if settings.operation.is_none() {
                let message = format!("{text:?} is no operation");
                fields.error(
                    "operation",
                    message,
                    "write CREATE, UPDATE, DELETE or CONNECT",
                );
            }
        }
        if let Some(name) = fields.text("objectName") {
            name.clone_into(&mut settings.name);
        }
        settings.dry_run |= fields.flag("dryRun");
        if let Some(options) = fields.value("options") {
            settings.options = options.clone();
        }
        if let Some(resource) = fields.text("resource") {
            let kind = fields.value("object").or_else(|| fields.value("oldObject"));
            let kind = kind.and_then(|object| object["kind"].as_str());
            match kind {
                Some(kind) => self
                    .known
                    .override_kind(ResourceOverride::new(kind, resource)),
                None => fields.error(
                    "resource",
                    "the kind of the object is in another file",
                    "write it into `resources` of the file of cases: {KIND: RESOURCE}",
                ),
            }
        }
    }
}

/// A namespace with these labels, and the one that every namespace has.
fn labelled(name: &str, labels: Vec<(String, String)>) -> Value {
    let mut members = serde_json::Map::new();
    members.insert("kubernetes.io/metadata.name".to_owned(), name.into());
    members.extend(labels.into_iter().map(|(key, value)| (key, value.into())));
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": members},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

/// A user: a name, or a mapping.
fn user(fields: &mut FileFields<'_, '_>) -> Option<User> {
    let value = fields.value("user")?;
    if let Some(name) = value.as_str() {
        return Some(User::new(name, [User::AUTHENTICATED]));
    }
    let mut section = fields.section("user")?;
    let name = section.text("name").unwrap_or_default();
    if name.is_empty() {
        section.error("name", "it is missing", "give the name of the user");
    }
    let mut user = User::new(name, section.texts("groups").unwrap_or_default());
    section
        .text("uid")
        .unwrap_or_default()
        .clone_into(&mut user.uid);
    if let Some(extra) = section.value("extra") {
        for (key, values) in extra.as_object().into_iter().flatten() {
            let values = values.as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned);
            user.extra.insert(key.clone(), values.collect());
        }
    }
    section.finish();
    Some(user)
}

/// The attributes of an authorization check that an answer may name.
const CHECK_ATTRIBUTES: [&str; 10] = [
    "verb",
    "group",
    "resource",
    "subresource",
    "namespace",
    "name",
    "path",
    "serviceAccount",
    "fieldSelector",
    "labelSelector",
];

/// Answers to authorization checks.
fn checks(fields: &mut FileFields<'_, '_>) -> Option<Vec<AnsweredCheck>> {
    let list = fields.list("authorizer")?;
    let mut checks = Vec::new();
    for (index, value) in list.iter().enumerate() {
        let path = fields.path(&format!("authorizer[{index}]"));
        let (document, findings) = fields.parts();
        let Some(mut one) = FileFields::of(document, path, value, findings) else {
            continue;
        };
        let mut check = AnsweredCheck::default();
        for key in CHECK_ATTRIBUTES {
            if let Some(text) = one.text(key) {
                check.attributes.insert(key.to_owned(), text.to_owned());
            }
        }
        check.answer = AuthorizationAnswer {
            allowed: one.flag("allowed"),
            reason: one.text("reason").unwrap_or_default().to_owned(),
            error: one.text("error").map(str::to_owned),
        };
        if check.answer.allowed && check.answer.error.is_some() {
            one.error(
                "error",
                "a check that fails allows nothing",
                "remove one of the two",
            );
        }
        one.finish();
        checks.push(check);
    }
    Some(checks)
}

/// The objects that a key names: a path, an object, `{file, kind, name}`, or a list of these. `None` if it is absent.
fn objects(fields: &mut FileFields<'_, '_>, key: &'static str) -> Option<Vec<FileObject>> {
    let value = fields.value(key)?;
    let path = fields.path(key);
    let (document, findings) = fields.parts();
    let mut found = Vec::new();
    match value {
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                let path = format!("{path}[{index}]");
                add_objects(document, &path, value, findings, &mut found);
            }
        }
        value => add_objects(document, &path, value, findings, &mut found),
    }
    Some(found)
}

fn add_objects(
    document: &FileObject,
    path: &str,
    value: &Value,
    findings: &mut Vec<Finding>,
    found: &mut Vec<FileObject>,
) {
    let is_reference = value["file"].is_string() && value["apiVersion"].is_null();
    let file = match value {
        Value::String(file) => Some(&**file),
        value if is_reference => value["file"].as_str(),
        _ => None,
    };
    let Some(file) = file else {
        let object = document.part(path, value.clone());
        for field in ["apiVersion", "kind"] {
            if object.text(&[field]).is_empty() {
                let remedy = "write an object, or the path of a file with objects";
                findings.push(object.error(field, "it is missing", remedy));
            }
        }
        found.push(object);
        return;
    };
    let before = findings.len();
    let read = documents::read(&[beside(document, file)], &mut std::io::empty(), findings);
    let is_meant = |object: &FileObject| {
        let is = |key: &str, own: &str| value[key].as_str().is_none_or(|wanted| wanted == own);
        is("kind", object.kind())
            && is("name", object.name())
            && is("namespace", object.namespace())
    };
    if read.is_empty() && findings.len() > before {
        return;
    }
    let others: Vec<String> = read.iter().map(|object| named(&object.value)).collect();
    let before = found.len();
    found.extend(read.into_iter().filter(is_meant));
    if found.len() == before {
        let (message, remedy) = match others.as_slice() {
            [] => (
                format!("{file} has no object"),
                "name a file with objects".to_owned(),
            ),
            others => (
                format!("{file} has no {}", wanted(value)),
                format!("name one that it has: {}", others.join(", ")),
            ),
        };
        let origin = document.origin(path);
        let finding = Finding::without_object(Severity::Error, origin, message, remedy);
        findings.push(finding.in_field(path));
    }
}

/// An object as `Deployment shop/web`.
fn named(object: &Value) -> String {
    let metadata = &object["metadata"];
    let texts = [&object["kind"], &metadata["namespace"], &metadata["name"]];
    let [kind, namespace, name] = texts.map(|text| text.as_str().unwrap_or_default());
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!("{kind} {namespace}{separator}{name}")
}

/// What `{file, kind, namespace, name}` asks for.
fn wanted(reference: &Value) -> String {
    let asked = ["kind", "namespace", "name"].iter().filter_map(|key| {
        let text = reference[*key].as_str()?;
        Some(format!("{key} {text:?}"))
    });
    format!("object with {}", asked.collect::<Vec<_>>().join(", "))
}

/// A path beside a file.
fn beside(document: &FileObject, path: &str) -> PathBuf {
    let directory = Path::new(&document.file).parent();
    directory.unwrap_or(Path::new("")).join(path)
}
