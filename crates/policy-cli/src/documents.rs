//! Objects in files, with the lines on which their fields are.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    rc::Rc,
};

use serde_json::Value;

use fairgate_core::finding::{Finding, Severity};
use fairgate_manifest::{
    file_texts,
    yaml::{self, LocatedDocument},
};

/// How deep lists may be nested in lists.
const MAX_LIST_DEPTH: u32 = 4;

/// An object in a file.
#[derive(Clone, Debug)]
pub(super) struct FileObject {
    /// The file, or `standard input`.
    pub(super) file: String,
    /// The document in which it is, without its value.
    located: Rc<LocatedDocument>,
    /// Its path in the document: empty, or such as `items[2]`.
    path: String,
    /// The object.
    pub(super) value: Value,
}

impl FileObject {
    /// An object that is part of this one.
    pub(super) fn part(&self, path: &str, value: Value) -> Self {
        Self {
            file: self.file.clone(),
            located: Rc::clone(&self.located),
            path: joined(&self.path, path),
            value,
        }
    }

    /// Where a field is: `policies.yaml, line 12`.
    pub(super) fn origin(&self, field: &str) -> String {
        let line = self.located.line(&joined(&self.path, field));
        format!("{}, line {line}", self.file)
    }

    /// The text at a path of the object; empty if there is none.
    pub(super) fn text(&self, path: &[&str]) -> &str {
        let found = path.iter().fold(&self.value, |value, key| &value[*key]);
        found.as_str().unwrap_or_default()
    }

    /// The kind.
    pub(super) fn kind(&self) -> &str {
        self.text(&["kind"])
    }

    /// The name.
    pub(super) fn name(&self) -> &str {
        self.text(&["metadata", "name"])
    }

    /// The namespace; empty if none is given.
    pub(super) fn namespace(&self) -> &str {
        self.text(&["metadata", "namespace"])
    }

    /// The API group, and the version.
    pub(super) fn group_version(&self) -> (&str, &str) {
        let api_version = self.text(&["apiVersion"]);
        api_version.split_once('/').unwrap_or(("", api_version))
    }

    /// An error in a field.
    pub(super) fn error(
        &self,
        field: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::Error,
            origin: self.origin(field),
            kind: self.kind().to_owned(),
            name: self.name().to_owned(),
            field: field.to_owned(),
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A warning about a field.
    pub(super) fn warning(
        &self,
        field: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::Warning,
            ..self.error(field, message, remedy)
        }
    }
}

fn joined(path: &str, field: &str) -> String {
    match (path, field) {
        ("", only) | (only, "") => only.to_owned(),
        _ if field.starts_with('[') => format!("{path}{field}"),
        _ => format!("{path}.{field}"),
    }
}

/// Reads the objects in files, directories and standard input (`-`), and the items of lists among them.
pub(super) fn read(
    paths: &[PathBuf],
    input: &mut dyn Read,
    findings: &mut Vec<Finding>,
) -> Vec<FileObject> {
    let mut objects = Vec::new();
    for path in paths {
        for document in read_documents(path, input, findings) {
            take_apart(document, None, MAX_LIST_DEPTH, &mut objects, findings);
        }
    }
    objects
}

/// Reads the documents of a file, a directory or standard input (`-`) as they are.
pub(super) fn read_documents(
    path: &Path,
    input: &mut dyn Read,
    findings: &mut Vec<Finding>,
) -> Vec<FileObject> {
    let texts = if path.as_os_str() == "-" {
        let mut text = Vec::new();
        let limit = u64::try_from(yaml::MAX_BYTES).unwrap_or(u64::MAX);
        let read = input.take(limit + 1).read_to_end(&mut text);
        vec![("standard input".to_owned(), read.map(|_| text))]
    } else {
        file_texts(path)
    };
    let mut documents = Vec::new();
    for (file, text) in texts {
        match located(&file, text) {
            Ok(found) => documents.extend(found),
            Err(finding) => findings.push(*finding),
        }
    }
    documents
}

fn located(file: &str, text: io::Result<Vec<u8>>) -> Result<Vec<FileObject>, Box<Finding>> {
    let unreadable = |message: String, remedy: &str| {
        Box::new(Finding::without_object(
            Severity::Error,
            file,
            message,
            remedy,
        ))
    };
    let check_path = "check the path and its permissions";
    let text = text.map_err(|error| unreadable(format!("cannot be read: {error}"), check_path))?;
    let correct = "correct it or leave it out";
    let documents =
        yaml::located_documents(&text).map_err(|error| unreadable(error.to_string(), correct))?;
    let objects = documents.into_iter().map(|mut document| FileObject {
        file: file.to_owned(),
        value: document.value.take(),
        located: Rc::new(document),
        path: String::new(),
    });
    Ok(objects.collect())
}

/// The items of a list, or the object itself. `items_of` is the API version and kind that a typed list implies.
fn take_apart(
    mut object: FileObject,
    items_of: Option<(&str, &str)>,
    depth: u32,
    objects: &mut Vec<FileObject>,
    findings: &mut Vec<Finding>,
) {
    if !object.value.is_object() {
        let remedy = "write an object with apiVersion and kind, as kubectl prints it";
        findings.push(object.error("", "it is not an object", remedy));
        return;
    }
    if let Some((api_version, kind)) = items_of.filter(|_| object.kind().is_empty()) {
        object.value["apiVersion"] = api_version.into();
        object.value["kind"] = kind.into();
    }
    let is_list = object.kind().ends_with("List") && object.value["items"].is_array();
    if is_list && depth > 0 {
        let Value::Array(items) = object.value["items"].take() else {
            return;
        };
        let api_version = object.text(&["apiVersion"]).to_owned();
        let kind = object.kind().trim_end_matches("List").to_owned();
        let items_of = (!kind.is_empty()).then_some((&*api_version, &*kind));
        for (index, item) in items.into_iter().enumerate() {
            let item = object.part(&format!("items[{index}]"), item);
            take_apart(item, items_of, depth - 1, objects, findings);
        }
        return;
    }
    for field in ["apiVersion", "kind"] {
        if object.text(&[field]).is_empty() {
            let remedy = "say which kind of object it is, or move what is no object elsewhere";
            findings.push(object.error(field, "it is missing", remedy));
        }
    }
    objects.push(object);
}

/// The elements of a list; none if it is no list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
