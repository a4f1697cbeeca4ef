//! Reads mappings of files so that all mistakes in them are found at once, each with its line.

use serde_json::{Map, Value};

use crate::documents::FileObject;
use fairgate_core::finding::{Finding, Severity};

/// A mapping of a document. Keys are read one by one; keys that nobody has read are reported in the end.
pub(super) struct FileFields<'a, 'f> {
    document: &'a FileObject,
    path: String,
    members: &'a Map<String, Value>,
    known: Vec<&'static str>,
    findings: &'f mut Vec<Finding>,
}

impl<'a, 'f> FileFields<'a, 'f> {
    /// The mapping at `path` of a document; `None` after reporting that it is none.
    pub(super) fn of(
        document: &'a FileObject,
        path: String,
        value: &'a Value,
        findings: &'f mut Vec<Finding>,
    ) -> Option<Self> {
        let Some(members) = value.as_object() else {
            findings.push(problem(
                document,
                &path,
                "it is no mapping",
                "write keys with values",
            ));
            return None;
        };
        Some(Self {
            document,
            path,
            members,
            known: Vec::new(),
            findings,
        })
    }

    /// The path of a key in the document.
    pub(super) fn path(&self, key: &str) -> String {
        match &*self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Where the mapping is.
    pub(super) fn origin(&self) -> String {
        self.document.origin(&self.path)
    }

    /// What the mapping is part of, and where mistakes are noted.
    pub(super) fn parts(&mut self) -> (&'a FileObject, &mut Vec<Finding>) {
        (self.document, self.findings)
    }

    /// Reports a mistake in the value of a key.
    pub(super) fn error(
        &mut self,
        key: &str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let path = self.path(key);
        self.findings
            .push(problem(self.document, &path, message, remedy));
    }

    /// The value of a key, unless it is absent or null.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.members.get(key).filter(|value| !value.is_null())
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        let value = self.value(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.error(
                key,
                format!("{value} is no text"),
                "write a text, in quotes if needed",
            );
        }
        text
    }

    /// `true` or `false`; `false` if it is absent.
    pub(super) fn flag(&mut self, key: &'static str) -> bool {
        let Some(value) = self.value(key) else {
            return false;
        };
        value.as_bool().unwrap_or_else(|| {
            self.error(key, format!("{value} is no boolean"), "write true or false");
            false
        })
    }

    /// A list of any values.
    pub(super) fn list(&mut self, key: &'static str) -> Option<&'a [Value]> {
        let value = self.value(key)?;
        let list = value.as_array();
        if list.is_none() {
            self.error(key, "it is no list", "write a list");
        }
        list.map(Vec::as_slice)
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let list = self.list(key)?;
        let mut texts = Vec::new();
        for (index, value) in list.iter().enumerate() {
            match value.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.error(
                    &format!("{key}[{index}]"),
                    format!("{value} is no text"),
                    "write a text, in quotes if needed",
                ),
            }
        }
        Some(texts)
    }

    /// A mapping from texts to texts.
    pub(super) fn text_map(&mut self, key: &'static str) -> Option<Vec<(String, String)>> {
        let value = self.value(key)?;
        let Some(members) = value.as_object() else {
            self.error(key, "it is no mapping", "write keys with texts");
            return None;
        };
        let mut texts = Vec::new();
        for (name, value) in members {
            match value.as_str() {
                Some(text) => texts.push((name.clone(), text.to_owned())),
                None => self.error(
                    &format!("{key}.{name}"),
                    format!("{value} is no text"),
                    "write a text, in quotes if needed",
                ),
            }
        }
        Some(texts)
    }

    /// A mapping within this one.
    pub(super) fn section(&mut self, key: &'static str) -> Option<FileFields<'a, '_>> {
        let value = self.value(key)?;
        let path = self.path(key);
        FileFields::of(self.document, path, value, self.findings)
    }

    /// Reports the keys that nobody has read.
    pub(super) fn finish(mut self) {
        let members = self.members;
        let unknown = members
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()));
        let unknown: Vec<&String> = unknown.collect();
        let known = self.known.join(", ");
        for key in unknown {
            self.error(
                key,
                "there is no such key",
                format!("the keys here are {known}"),
            );
        }
    }
}

fn problem(
    document: &FileObject,
    path: &str,
    message: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    // A file of cases is no object: it has neither kind nor name.
    Finding::without_object(Severity::Error, document.origin(path), message, remedy).in_field(path)
}
