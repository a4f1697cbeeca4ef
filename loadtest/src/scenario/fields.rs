//! Reads the keys of a scenario one by one, so that all mistakes are found at once.
//!
//! A malformed value becomes a finding with its line, and a default takes its place so that reading continues. A key
//! that nothing reads is unknown. The reader also notes each key that it knows, for the tests of the documentation
//! and of the keys that the simulation ignores.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::values::InvalidKey;
use fairgate_core::finding::{Finding, Severity};

/// The state of reading one scenario.
#[derive(Debug, Default)]
pub(super) struct ScenarioReader {
    file: String,
    /// Lines of keys, by their paths.
    pub(super) lines: BTreeMap<String, usize>,
    /// With the line of each; 0 where that is unknown.
    findings: Vec<(usize, Finding)>,
    /// Every key that was asked for, with `[]` in place of the indices of items.
    pub(super) known: BTreeSet<String>,
}

/// One mapping of the file.
pub(super) struct Fields<'a> {
    pub(super) reader: &'a mut ScenarioReader,
    pub(super) path: String,
    /// What has not been read yet.
    entries: Map<String, Value>,
    known_keys: Vec<&'static str>,
}

impl ScenarioReader {
    pub(super) fn new(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            ..Self::default()
        }
    }

    /// Reports a mistake in the value at `path`.
    pub(super) fn error(
        &mut self,
        path: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let line = self.line(path);
        let origin = match line {
            Some(line) => format!("{}, line {line}", self.file),
            None => self.file.clone(),
        };
        let finding = Finding::without_object(Severity::Error, origin, problem, remedy);
        self.findings
            .push((line.unwrap_or(0), finding.in_field(path)));
    }

    /// All findings, in the order of their lines.
    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort_by_key(|(line, _)| *line);
        self.findings
            .into_iter()
            .map(|(_, finding)| finding)
            .collect()
    }

    /// Whether a mistake was reported.
    pub(super) fn has_findings(&self) -> bool {
        !self.findings.is_empty()
    }

    /// Whether a mistake was reported below `path`.
    pub(super) fn has_findings_below(&self, path: &str) -> bool {
        self.findings
            .iter()
            .any(|(_, finding)| finding.field.starts_with(path))
    }

    /// Keeps the first finding only.
    pub(super) fn keep_first(&mut self) {
        self.findings.truncate(1);
    }

    /// The line of the value at `path`, or of what contains it.
    pub(super) fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// Reads a mapping at `path`.
    pub(super) fn mapping<T>(
        &mut self,
        path: String,
        entries: Map<String, Value>,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let mut fields = Fields {
            reader: self,
            path,
            entries,
            known_keys: Vec::new(),
        };
        let value = read(&mut fields);
        fields.report_unknown();
        value
    }
}

impl Fields<'_> {
    /// The path of `key`.
    pub(super) fn at(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// Whether `key` is there and has not been read.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|value| !value.is_null())
    }

    /// The value under `key` in the notation of `parse`; `default` where absent or malformed.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&Value) -> Result<T, InvalidKey>,
    ) -> T {
        match self.take(key).map(|value| parse(&value)) {
            None => default,
            Some(Ok(value)) => value,
            Some(Err(InvalidKey { problem, remedy })) => {
                let path = self.at(key);
                self.reader.error(&path, problem, remedy);
                default
            }
        }
    }

    /// Like [`Fields::get`], for a key that must be there.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        stand_in: T,
        example: &str,
        parse: impl FnOnce(&Value) -> Result<T, InvalidKey>,
    ) -> T {
        if !self.has(key) {
            let path = self.path.clone();
            let problem = format!("{key} is missing");
            self.reader
                .error(&path, problem, format!("add {key}: {example}"));
        }
        self.get(key, stand_in, parse)
    }

    /// Reads the mapping under `key`; an absent one is empty.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) -> T {
        let path = self.at(key);
        let entries = match self.take(key) {
            None => Map::new(),
            Some(value) => self.entries_of(&path, value),
        };
        self.reader.mapping(path, entries, read)
    }

    /// Reads each mapping of the list under `key`; an absent list is empty.
    pub(super) fn each<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Fields<'_>) -> T,
    ) -> Vec<T> {
        let path = self.at(key);
        let items = match self.take(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(_) => {
                self.reader.error(
                    &path,
                    "not a list",
                    "begin each item with \"- \" on a line of its own",
                );
                Vec::new()
            }
        };
        if items.is_empty() {
            // So that a test of all keys notices a list whose keys it does not see.
            let unseen = format!("{}[]", without_numbers(&path));
            self.reader.known.insert(unseen);
        }
        let mut values = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            let entries = self.entries_of(&path, item);
            values.push(self.reader.mapping(path, entries, &mut read));
        }
        values
    }

    /// The values of the list under `key`, as they are.
    pub(super) fn raw_list(&mut self, key: &'static str) -> Vec<Value> {
        self.get(key, Vec::new(), |value| match value {
            Value::Array(items) => Ok(items.clone()),
            _ => Err(InvalidKey::new(
                "not a list",
                "begin each item with \"- \" on a line of its own",
            )),
        })
    }

    fn entries_of(&mut self, path: &str, value: Value) -> Map<String, Value> {
        if let Value::Object(entries) = value {
            return entries;
        }
        self.reader
            .error(path, "not a mapping", "indent its keys below it");
        Map::new()
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known_keys.push(key);
        let path = without_numbers(&self.at(key));
        self.reader.known.insert(path);
        self.entries.remove(key).filter(|value| !value.is_null())
    }

    fn report_unknown(self) {
        for key in self.entries.keys() {
            let path = self.at(key);
            let similar = self.known_keys.iter().find(|known| is_similar(known, key));
            let remedy = match similar {
                Some(similar) => format!("did you mean {similar:?}?"),
                None => format!("remove it, or write one of {}", self.known_keys.join(", ")),
            };
            self.reader.error(&path, "unknown key", remedy);
        }
    }
}

/// `path` with `[]` in place of the indices of items.
pub(crate) fn without_numbers(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        inside = match c {
            '[' => true,
            ']' => false,
            _ => inside,
        };
        if !inside || c == '[' {
            plain.push(c);
        }
    }
    plain
}

/// Whether two keys differ in case or in one letter only.
fn is_similar(known: &str, key: &str) -> bool {
    let (a, b) = (known.to_lowercase(), key.to_lowercase());
    let start = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    let end = a
        .chars()
        .rev()
        .zip(b.chars().rev())
        .take_while(|(x, y)| x == y)
        .count();
    let (a, b) = (a.chars().count(), b.chars().count());
    a.abs_diff(b) <= 1 && start + end + 1 >= a.max(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_line_has_the_line_of_its_parent() {
        let mut reader = ScenarioReader::new("a.yaml");
        reader.lines = BTreeMap::from([("a".to_owned(), 3), ("a.b[1]".to_owned(), 7)]);
        assert_eq!(reader.line("a.b[1].c.d"), Some(7));
        assert_eq!(reader.line("a.b[2].c"), Some(3));
        assert_eq!(reader.line("x"), None);
    }

    #[test]
    fn names_of_keys_leave_out_the_indices_of_items() {
        assert_eq!(
            without_numbers("clients[12].requests[0].verb"),
            "clients[].requests[].verb"
        );
    }
}
