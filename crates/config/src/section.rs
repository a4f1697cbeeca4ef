//! Reads a configuration file so that all errors in it are found at once.
//!
//! Code reads the keys of a [`ConfigSection`] one by one, each as the type of its setting; [`super::keys`] has its
//! default and range. A malformed value becomes a finding, and the default takes its place, so that reading
//! continues; a key that no code reads is unknown. A derived deserializer would stop at the first error.
//!
//! The reader also stores the effective value of each key, and a digest of the contents of each file, so that
//! a reload can detect changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::identity,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use fairgate_manifest::{read_bounded, yaml::LocatedDocument};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::{
    keys::{self, ConfigKey},
    secret::{SecretText, secrets_of},
    values::{self, InvalidValue, Setting, shown, text, texts},
};
use fairgate_core::finding::{Finding, Severity};

/// The state of reading one configuration file: its findings and effective values.
#[derive(Debug)]
pub(super) struct ConfigReader {
    /// The name of the file in findings.
    file: String,
    /// The directory of the file; paths in it are relative to this directory.
    directory: PathBuf,
    /// Where the keys stand in the file.
    lines: LocatedDocument,
    pub(super) findings: Vec<Finding>,
    /// The effective value of each key, as [`Setting::shown`], by the key's path.
    pub(super) effective: BTreeMap<String, String>,
    /// Each key's value as it is written, or its default, by the key's path.
    pub(super) written: BTreeMap<String, String>,
    /// The notation of each key's value, by the key's path.
    pub(super) notations: BTreeMap<String, String>,
    /// The paths of the keys whose values are not their defaults.
    changed: BTreeSet<String>,
    /// The paths of the keys whose values are malformed, so that their defaults took their places.
    malformed: BTreeSet<String>,
    /// What messages must not show, wherever it was written.
    secrets: Vec<SecretText>,
}

impl ConfigReader {
    pub(super) fn new(file: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            directory: directory.into(),
            lines: LocatedDocument::default(),
            findings: Vec::new(),
            effective: BTreeMap::new(),
            written: BTreeMap::new(),
            notations: BTreeMap::new(),
            changed: BTreeSet::new(),
            malformed: BTreeSet::new(),
            secrets: Vec::new(),
        }
    }

    pub(super) fn error(
        &mut self,
        field: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push(Severity::Error, field, problem.into(), remedy.into());
    }

    pub(super) fn warning(
        &mut self,
        field: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.push(Severity::Warning, field, problem.into(), remedy.into());
    }

    /// Reports that policies cannot be read. With the last good ones, which are kept in a state directory if `are_kept`, the
    /// gateway can start nevertheless.
    pub(super) fn no_policies(&mut self, field: &str, problem: String, are_kept: bool) {
        let remedy = "create it, or check the path, which is relative to the directory of the configuration file";
        if are_kept {
            self.warning(field, problem, remedy);
        } else {
            self.error(field, problem, remedy);
        }
    }

    /// The file is this document.
    pub(super) fn locate(&mut self, document: LocatedDocument) {
        self.lines = document;
    }

    /// Adds a finding, unless the value of the key is malformed and this would be about the default in its place.
    fn push(&mut self, severity: Severity, field: &str, problem: String, remedy: String) {
        if self.malformed.contains(field) {
            return;
        }
        let origin = match self.lines.line_within(field) {
            Some(line) => format!("{}, line {line}", self.file),
            None => self.file.clone(),
        };
        let problem = self.secrets.iter().fold(problem, |problem, secret| {
            problem.replace(&secret.written, &secret.shown)
        });
        let finding = Finding::without_object(severity, origin, problem, remedy);
        self.findings.push(finding.in_field(field));
    }

    /// Whether the value of `field` is malformed, so that the default took its place.
    pub(super) fn has_error(&self, field: &str) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.field == field && finding.is_error())
    }

    /// Whether `field`, which must be a text or a path that has been read, is set to another value than its default,
    /// the empty text. A value that is not a text counts as not set, since the default takes its place.
    pub(super) fn is_set(&self, field: &str) -> bool {
        self.effective
            .get(field)
            .is_some_and(|value| value != "\"\"")
    }

    /// Whether the value of `field` differs from its default: the sample configuration writes all defaults.
    pub(super) fn is_written(&self, field: &str) -> bool {
        self.changed.contains(field)
    }

    /// The path of the file `name` in the directory of the configuration file.
    pub(super) fn relative_path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Reads the root of a file.
    pub(super) fn root<T>(
        &mut self,
        entries: Map<String, Value>,
        read: impl FnOnce(&mut ConfigSection<'_>) -> T,
    ) -> T {
        for (key, value) in &entries {
            self.secrets.extend(secrets_of(key, value));
        }
        self.read_section(String::new(), entries, read)
    }

    fn read_section<T>(
        &mut self,
        path: String,
        entries: Map<String, Value>,
        read: impl FnOnce(&mut ConfigSection<'_>) -> T,
    ) -> T {
        let mut section = ConfigSection {
            reader: self,
            path,
            entries,
            known_keys: Vec::new(),
        };
        let value = read(&mut section);
        section.report_unknown_keys();
        value
    }

    /// Reads the file that `field` refers to; a failure is a finding.
    pub(super) fn contents(&mut self, field: &str, path: &Path) -> Option<Vec<u8>> {
        match read_bounded(path) {
            Ok(contents) => {
                let mut digest = String::new();
                for byte in Sha256::digest(&contents) {
                    let _ = write!(digest, "{byte:02x}");
                }
                self.effective.insert(format!("{field} (content)"), digest);
                Some(contents)
            }
            Err(error) => {
                self.error(
                    field,
                    format!("{} cannot be read: {error}", path.display()),
                    "check the path, which is relative to the directory of the configuration file, and the file's permissions",
                );
                None
            }
        }
    }
}

/// One mapping of the file: `limits`, `authentication.anonymous`.
pub(super) struct ConfigSection<'a> {
    pub(super) reader: &'a mut ConfigReader,
    path: String,
    /// The entries that have not been read yet.
    entries: Map<String, Value>,
    /// The keys that have been read, present or not.
    known_keys: Vec<&'static str>,
}

impl ConfigSection<'_> {
    /// The full path of `key`.
    pub(super) fn field(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Reads the mapping under `key`; an absent one is empty.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut ConfigSection<'_>) -> T,
    ) -> T {
        let field = self.field(key);
        let entries = match self.take(key) {
            None => Map::new(),
            Some(Value::Object(entries)) => entries,
            Some(value) => {
                self.reader.error(
                    &field,
                    format!("{} is not a mapping", shown(&value)),
                    "indent its keys below it",
                );
                Map::new()
            }
        };
        self.reader.read_section(field, entries, read)
    }

    /// The value under `key`; the default where it is absent, null or malformed.
    pub(super) fn get<T: Setting>(&mut self, key: &'static str) -> T {
        self.get_with(key, T::read)
    }

    /// Like [`ConfigSection::get`], for a value that `read` reads, because its type allows more than the key does.
    pub(super) fn get_with<T: Setting>(
        &mut self,
        key: &'static str,
        read: impl Fn(&Value) -> Result<T, InvalidValue>,
    ) -> T {
        self.get_or(key, identity, read)
    }

    /// Like [`ConfigSection::get_with`], for a key whose default follows from the declared one by `default`.
    pub(super) fn get_or<T: Setting>(
        &mut self,
        key: &'static str,
        default: impl FnOnce(T) -> T,
        read: impl Fn(&Value) -> Result<T, InvalidValue>,
    ) -> T {
        self.get_as(key, T::notation(), default, read)
    }

    /// Like [`ConfigSection::get_or`], with an explicit notation.
    fn get_as<T: Setting>(
        &mut self,
        key: &'static str,
        notation: String,
        default: impl FnOnce(T) -> T,
        read: impl Fn(&Value) -> Result<T, InvalidValue>,
    ) -> T {
        let field = self.field(key);
        let declared = keys::declared(&field);
        self.reader.notations.insert(field.clone(), notation);
        let written = self.take(key);
        let as_written = match &written {
            Some(written) => values::as_written(written),
            None => declared.default.unwrap_or_default().to_owned(),
        };
        let value = written.map(|written| read_in_range(&written, declared, &read));
        let value = value.transpose().unwrap_or_else(|invalid| {
            let InvalidValue { problem, remedy } = invalid;
            self.reader.error(&field, problem, remedy);
            self.reader.malformed.insert(field.clone());
            None
        });
        let default = default(read_default(declared, &read));
        let default_shown = default.shown();
        let value = value.unwrap_or(default);
        let shown = value.shown();
        if shown != default_shown {
            self.reader.changed.insert(field.clone());
        }
        let as_written = value.shown_as(as_written);
        self.reader.written.insert(field.clone(), as_written);
        self.reader.effective.insert(field, shown);
        value
    }

    /// The path of a file or directory, relative to the directory of the configuration file; none when empty.
    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let text: String = self.get_as(key, "path".to_owned(), identity, text);
        (!text.is_empty()).then(|| self.reader.relative_path(&text))
    }

    /// As [`path`](Self::path); `-` stands for itself.
    pub(super) fn path_or_dash(&mut self, key: &'static str) -> Option<PathBuf> {
        let text: String = self.get_as(key, "path, or -".to_owned(), identity, text);
        match &*text {
            "" => None,
            "-" => Some(PathBuf::from("-")),
            path => Some(self.reader.relative_path(path)),
        }
    }

    /// The paths of files or directories, relative to the directory of the configuration file.
    pub(super) fn paths(&mut self, key: &'static str) -> Vec<PathBuf> {
        let paths: Vec<String> = self.get_as(key, "list of paths".to_owned(), identity, texts);
        let paths = paths.iter();
        paths.map(|path| self.reader.relative_path(path)).collect()
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        // Absent keys, too: the message about an unknown key suggests them.
        self.known_keys.push(key);
        self.entries.remove(key).filter(|value| !value.is_null())
    }

    /// Reports the entries that no code has read.
    fn report_unknown_keys(self) {
        for (key, _) in &self.entries {
            let field = self.field(key);
            let similar = self.known_keys.iter().find(|known| is_similar(known, key));
            let remedy = match (similar, belongs_below(key)) {
                (Some(similar), _) => format!("did you mean {similar:?}?"),
                (None, Some(place)) => format!("move it below {place}"),
                (None, None) => {
                    format!("remove it, or write one of {}", self.known_keys.join(", "))
                }
            };
            self.reader.error(&field, "unknown key", remedy);
        }
    }
}

/// Where a key of this name belongs, if there is one place for it.
fn belongs_below(key: &str) -> Option<&'static str> {
    let places = keys::KEYS.iter();
    let mut places = places.filter_map(|declared| {
        let (place, name) = declared.path.rsplit_once('.')?;
        (name == key).then_some(place)
    });
    places.next().filter(|_| places.next().is_none())
}

/// What `read` makes of a value of the file, which must be in the range of its key.
fn read_in_range<T: Setting>(
    written: &Value,
    key: &ConfigKey,
    read: impl Fn(&Value) -> Result<T, InvalidValue>,
) -> Result<T, InvalidValue> {
    let value = read(written).map_err(|InvalidValue { problem, remedy }| match key.range {
        Some([low, high]) => InvalidValue::new(problem, format!("{remedy}; from {low} to {high}")),
        None => InvalidValue { problem, remedy },
    })?;
    match key.range {
        Some([low, high])
            if !value.is_in(&(read_declared(low, &read)..=read_declared(high, &read))) =>
        {
            Err(InvalidValue::new(
                format!("{} is out of range", shown(written)),
                format!("write a value from {low} to {high}"),
            ))
        }
        _ => Ok(value),
    }
}

/// The default of the key with this path.
pub(super) fn default_of<T: Setting>(path: &str) -> T {
    read_default(keys::declared(path), T::read)
}

fn read_default<T>(key: &ConfigKey, read: impl Fn(&Value) -> Result<T, InvalidValue>) -> T {
    read_declared(key.default.unwrap_or_default(), read)
}

/// What `read` makes of a declared value.
fn read_declared<T>(written: &str, read: impl Fn(&Value) -> Result<T, InvalidValue>) -> T {
    read(&keys::value(written)).expect("declared values are valid")
}

/// Whether two keys differ in case, punctuation or one letter only.
fn is_similar(known: &str, key: &str) -> bool {
    let plain = |text: &str| -> Vec<char> {
        text.chars()
            .filter(|c| c.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect()
    };
    let (a, b) = (plain(known), plain(key));
    let same_start = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let same_end = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    let longer = a.len().max(b.len());
    // All letters but one are in the common beginning or the common end.
    longer.abs_diff(a.len().min(b.len())) <= 1 && same_start + same_end + 1 >= longer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_similar_to_the_key() {
        assert!(is_similar("caFile", "cafile"));
        assert!(is_similar("caFile", "ca_file"));
        assert!(is_similar("totalSeats", "totalSeat"));
        assert!(!is_similar("caFile", "keyFile"));
        assert!(!is_similar("address", "enforcement"));
    }
}
