//! Replaces what may differ between two correct servers in the responses of one session, and keeps the values
//! that placeholders of later requests stand for.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::corpus::Request;

/// The manager of the conditions that a real server's own controller writes.
const CONTROLLER: &str = "api-priority-and-fairness-config-consumer-v1";
/// The annotation of the bookmark that ends the initial events of a watch.
const INITIAL_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

/// The longest prefix of a `generateName` that a generated name begins with, in bytes.
const BASE: usize = 58;
/// The length of the suffix that the server adds, in bytes.
const SUFFIX: usize = 5;

macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).unwrap());
    };
}
pattern!(PLACEHOLDER, r"\{\{([a-z]+(?::[^{}]+)?)\}\}");
pattern!(
    TIME,
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"
);
pattern!(
    UUID,
    "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
);
pattern!(AGE, r"^(\d+[smhdy](\d+[smhd])?|<invalid>)$");
pattern!(
    VERSION,
    r"([rR]esource ?[vV]ersion: |current: |in the precondition \(|in record \()\d+"
);
pattern!(TOO_OLD, r"(too old resource version: \{\{rv\}\}) \(\d+\)");
pattern!(KEY, "Key: [^,]+");
pattern!(
    DOCUMENT,
    r#"(?s)Invalid value: "(\{.*\}|map\[.*\]|\[.*\])": "#
);

/// What a session has seen so far.
#[derive(Default)]
pub struct Seen {
    managed_fields: bool,
    /// Values of placeholders, by what is between the braces.
    values: BTreeMap<String, String>,
    versions: Marks,
    uids: Marks,
    generated: Vec<String>,
}

/// Numbers of values, in the order of their first appearance.
#[derive(Default)]
struct Marks(BTreeMap<String, usize>);

impl Marks {
    fn of(&mut self, kind: &str, value: &str) -> String {
        let next = self.0.len() + 1;
        let number = self.0.entry(value.to_owned()).or_insert(next);
        format!("{{{{{kind}:{number}}}}}")
    }
}

/// The text at a pointer; empty if there is none.
fn text<'a>(node: &'a Value, pointer: &str) -> &'a str {
    let found = node.pointer(pointer);
    found.and_then(Value::as_str).unwrap_or_default()
}

impl Seen {
    pub fn new(managed_fields: bool) -> Self {
        Self {
            managed_fields,
            ..Self::default()
        }
    }

    /// Replaces placeholders by values of earlier responses.
    pub fn resolve(&self, text: &str) -> String {
        let value = |found: &Captures<'_>| {
            let value = self.values.get(&found[1]).map(String::as_str);
            value.unwrap_or("unknown").to_owned()
        };
        PLACEHOLDER.replace_all(text, value).into_owned()
    }

    /// Keeps the values of the response to `request` that later requests may refer to.
    pub fn learn(&mut self, request: &Request, document: &Value) {
        if document["items"].is_array() || document["rows"].is_array() {
            self.keep("rv", text(document, "/metadata/resourceVersion"));
            self.keep("continue", text(document, "/metadata/continue"));
            for item in document["items"].as_array().into_iter().flatten() {
                self.learn_object(item);
            }
        } else if document["kind"] == "Status" {
            self.learn_refused(request, document);
        } else {
            self.learn_object(document);
        }
    }

    fn learn_object(&mut self, object: &Value) {
        let name = text(object, "/metadata/name");
        if name.is_empty() {
            return;
        }
        self.learn_made(text(object, "/metadata/generateName"), name);
        let version = text(object, "/metadata/resourceVersion");
        self.keep(&format!("rv:{name}"), version);
        self.keep(&format!("uid:{name}"), text(object, "/metadata/uid"));
        let first = format!("first:{name}");
        if !self.values.contains_key(&first) {
            self.keep(&first, version);
        }
    }

    /// Keeps a name if the server has generated it from `base`.
    fn learn_made(&mut self, base: &str, name: &str) {
        let base = &base.as_bytes()[..base.len().min(BASE)];
        let made = !base.is_empty()
            && name.as_bytes().starts_with(base)
            && name.len() == base.len() + SUFFIX;
        if made && !self.generated.iter().any(|known| known == name) {
            self.generated.push(name.to_owned());
            self.keep(&format!("generated:{}", self.generated.len()), name);
        }
    }

    /// Keeps the name that was generated for an object which was then refused.
    fn learn_refused(&mut self, request: &Request, status: &Value) {
        let Ok(sent) = serde_json::from_str::<Value>(&request.body) else {
            return;
        };
        if request.method == "POST" && text(&sent, "/metadata/name").is_empty() {
            let base = text(&sent, "/metadata/generateName");
            self.learn_made(base, text(status, "/details/name"));
        }
    }

    fn keep(&mut self, placeholder: &str, value: &str) {
        if !value.is_empty() {
            self.values.insert(placeholder.to_owned(), value.to_owned());
        }
    }

    /// Normalises an event of a watch; `None` if the server may send it at any time.
    pub fn event(&mut self, mut event: Value) -> Option<Value> {
        if !counts(&event) {
            return None;
        }
        if event["type"] == "BOOKMARK" {
            for pointer in ["/object", "/object/rows/0/object"] {
                if let Some(Value::Object(node)) = event.pointer_mut(&format!("{pointer}/metadata"))
                {
                    node.insert("resourceVersion".to_owned(), json!("{{rv}}"));
                }
            }
        }
        self.tree(&mut event);
        Some(event)
    }

    /// Normalises a document.
    pub fn tree(&mut self, node: &mut Value) {
        match node {
            Value::Object(fields) => {
                self.metadata(fields);
                for column in items(fields.get_mut("columnDefinitions")) {
                    column
                        .as_object_mut()
                        .and_then(|column| column.remove("description"));
                }
                if let Some(Value::Object(status)) = fields.get_mut("status") {
                    drop_conditions(status);
                }
                sort_conflicts(fields);
                for cell in items(fields.get_mut("cells")) {
                    if cell.as_str().is_some_and(|cell| AGE.is_match(cell)) {
                        *cell = json!("{{age}}");
                    }
                }
                // In order, since marks count by first appearance.
                fields.values_mut().for_each(|value| self.tree(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.tree(item)),
            Value::String(value) if TIME.is_match(value) => *node = json!("{{time}}"),
            Value::String(value) => *value = self.text(value),
            _ => {}
        }
    }

    fn metadata(&mut self, node: &mut Map<String, Value>) {
        let many = node.contains_key("items") || node.contains_key("rows");
        let Some(Value::Object(metadata)) = node.get_mut("metadata") else {
            return;
        };
        if metadata.get("continue").is_some_and(is_text) {
            metadata.insert("continue".to_owned(), json!("{{continue}}"));
        }
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
            entries.retain(|entry| entry["manager"] != CONTROLLER);
            entries.sort_by_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource"]
                    .map(|key| entry[key].as_str().unwrap_or_default().to_owned())
            });
        }
        if !self.managed_fields {
            metadata.remove("managedFields");
        }
        if let Some(Value::String(version)) = metadata.get_mut("resourceVersion")
            && !version.is_empty()
            && version != "{{rv}}"
        {
            *version = if many {
                "{{rv}}".to_owned()
            } else {
                self.versions.of("rv", version)
            };
        }
    }

    /// Normalises text.
    pub fn text(&mut self, value: &str) -> String {
        let mut value = value.to_owned();
        for (index, name) in self.generated.iter().enumerate() {
            value = value.replace(name, &format!("{{{{generated:{}}}}}", index + 1));
        }
        let value = DOCUMENT.replace_all(&value, r#"Invalid value: "{{document}}": "#);
        let value = UUID.replace_all(&value, |found: &Captures<'_>| {
            self.uids.of("uid", &found[0])
        });
        let value = VERSION.replace_all(&value, "$1{{rv}}");
        let value = TOO_OLD.replace_all(&value, "$1 ({{rv}})");
        KEY.replace_all(&value, "Key: {{key}}").into_owned()
    }
}

/// Whether every server sends this event at the same time: true for all but bookmarks, of which only the one at
/// the end of the initial events counts.
pub fn counts(event: &Value) -> bool {
    let row = event.pointer("/object/rows/0/object");
    let object = row.unwrap_or(&event["object"]);
    event["type"] != "BOOKMARK" || object.pointer(INITIAL_END).is_some()
}

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Removes the conditions that a controller writes.
fn drop_conditions(status: &mut Map<String, Value>) {
    let Some(Value::Array(conditions)) = status.get_mut("conditions") else {
        return;
    };
    let before = conditions.len();
    conditions.retain(|condition| condition["type"] != "Dangling");
    if conditions.is_empty() && before > 0 {
        status.remove("conditions");
    }
}

/// Sorts conflicts about the ownership of fields, which a real server lists in random order.
fn sort_conflicts(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(causes)) = fields.get_mut("causes")
        && causes
            .first()
            .is_some_and(|cause| cause["reason"] == "FieldManagerConflict")
    {
        let of = |cause: &Value, key| cause[key].as_str().unwrap_or_default().to_owned();
        causes.sort_by_key(|cause| (of(cause, "message"), of(cause, "field")));
    }
}
