//! The `Lease` and `Secret` objects of an API server, in memory: optimistic concurrency, and lists by label.
//!
//! Not here: HTTP, which callers bring.

use std::{collections::BTreeMap, sync::Mutex};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Map, Value, json};

/// Objects by their paths.
#[derive(Debug, Default)]
pub struct LeaseTable(Mutex<Objects>);

#[derive(Debug, Default)]
struct Objects {
    version: u64,
    by_path: BTreeMap<String, Value>,
}

impl LeaseTable {
    /// Answers a request: its status, and an object or a `Status`. `target` is a path, perhaps with a query.
    pub fn call(&self, method: &str, target: &str, body: Option<&Value>) -> (u16, Value) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut objects = self.0.lock().unwrap();
        match (method, body) {
            ("GET", _) if is_collection(path) => (200, objects.list(path, query)),
            ("GET", _) => match objects.by_path.get(path) {
                Some(object) => (200, object.clone()),
                None => refused(404),
            },
            ("POST", Some(object)) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                if objects.by_path.contains_key(&path) {
                    return refused(409);
                }
                (201, objects.store(path, object))
            }
            ("PUT", Some(object)) => {
                let Some(stored) = objects.by_path.get(path) else {
                    return refused(404);
                };
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                if version(stored) != version(object) {
                    return refused(409);
                }
                (200, objects.store(path.to_owned(), object))
            }
            _ => refused(405),
        }
    }

    /// All objects, by path.
    pub fn objects(&self) -> BTreeMap<String, Value> {
        self.0.lock().unwrap().by_path.clone()
    }
}

impl Objects {
    fn store(&mut self, path: String, object: &Value) -> Value {
        self.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if let Some(Value::Object(texts)) = object.as_object_mut().unwrap().remove("stringData") {
            object["data"] = encoded(&texts);
        }
        self.by_path.insert(path, object.clone());
        object
    }

    fn list(&self, path: &str, query: &str) -> Value {
        let selector = query.strip_prefix("labelSelector=").unwrap_or_default();
        let selector = selector.replace("%3D", "=");
        let wanted: Vec<(&str, &str)> = selector
            .split(',')
            .filter_map(|requirement| requirement.split_once('='))
            .collect();
        let prefix = format!("{path}/");
        let is_wanted = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            wanted.iter().all(|(key, value)| labels[*key] == *value)
        };
        let listed = self.by_path.iter();
        let listed = listed.filter(|(path, object)| path.starts_with(&prefix) && is_wanted(object));
        let items: Vec<_> = listed.map(|(_, object)| object).collect();
        json!({"metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }
}

fn is_collection(path: &str) -> bool {
    path.ends_with("/leases") || path.ends_with("/secrets")
}

fn refused(code: u16) -> (u16, Value) {
    let message = format!("refused with {code}");
    (
        code,
        json!({"kind": "Status", "code": code, "message": message}),
    )
}

fn encoded(texts: &Map<String, Value>) -> Value {
    let encode = |value: &Value| BASE64.encode(value.as_str().unwrap_or_default());
    let entries = texts
        .iter()
        .map(|(key, value)| (key.clone(), json!(encode(value))));
    Value::Object(entries.collect())
}
