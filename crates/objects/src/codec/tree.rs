//! JSON as it was written: members in their order, including duplicates, and numbers as text.
//!
//! A [`Value`] keeps none of this, but error messages need it.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write};

use serde_json::{Map, Number, Value};

use crate::{
    go::Quoted,
    schema::canonical::{MAX_PROBLEMS, Source, View},
};

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonNode {
    /// Null.
    Null,
    /// A boolean.
    Flag(bool),
    /// The text of a number, valid as JSON.
    Number(Box<str>),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<JsonNode>),
    /// An object.
    Object(Vec<(String, JsonNode)>),
}

impl Source for JsonNode {
    fn view(&self) -> View<'_, Self> {
        match self {
            Self::Null => View::Null,
            Self::Flag(flag) => View::Flag(*flag),
            Self::Number(text) => View::Number(Cow::Borrowed(text)),
            Self::Text(text) => View::Text(text),
            Self::List(items) => View::List(items),
            Self::Object(members) => View::Object(Box::new(
                members.iter().map(|(key, node)| (key.as_str(), node)),
            )),
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Flag(flag) => Value::Bool(*flag),
            Self::Number(text) => number(text),
            Self::Text(text) => Value::String(text.clone()),
            Self::List(items) => items.iter().map(Self::to_value).collect(),
            Self::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(key, node)| (key.clone(), node.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

impl JsonNode {
    /// Whether a key occurs twice in an object.
    pub(crate) fn has_duplicates(&self) -> bool {
        match self {
            Self::List(items) => items.iter().any(Self::has_duplicates),
            Self::Object(members) => {
                let mut seen = BTreeSet::new();
                let is_unique = members.iter().all(|(key, _)| seen.insert(key.as_str()));
                !is_unique || members.iter().any(|(_, node)| node.has_duplicates())
            }
            _ => false,
        }
    }

    /// The duplicate keys, as `duplicate field "spec.a"`: each once, at most [`MAX_PROBLEMS`], and
    /// fewer if their paths are very long.
    pub(crate) fn duplicates(&self) -> Vec<String> {
        let mut found = DuplicateKeys::default();
        found.visit(self);
        found.problems
    }
}

/// A number: an integer if it fits, otherwise floating point, at most the largest there is.
fn number(text: &str) -> Value {
    if text == "-0" {
        return Value::from(0);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::from(number);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Value::from(number);
    }
    let float = text.parse::<f64>().unwrap_or(0.0).clamp(f64::MIN, f64::MAX);
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

/// The limit for `spent`. The same path may occur many times, and may be long.
const MAX_PATHS: usize = 1 << 20;

#[derive(Default)]
struct DuplicateKeys {
    path: String,
    problems: Vec<String>,
    /// The bytes of all paths that were compared.
    spent: usize,
}

impl DuplicateKeys {
    fn visit(&mut self, node: &JsonNode) {
        let length = self.path.len();
        match node {
            JsonNode::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    write!(self.path, "[{index}]").expect("writing to a string cannot fail");
                    self.visit(item);
                    self.path.truncate(length);
                }
            }
            JsonNode::Object(members) => {
                let mut seen = BTreeSet::new();
                for (key, node) in members {
                    if length > 0 {
                        self.path.push('.');
                    }
                    self.path.push_str(key);
                    if !seen.insert(key) {
                        self.report();
                    }
                    self.visit(node);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn report(&mut self) {
        self.spent = self.spent.saturating_add(self.path.len());
        if self.problems.len() >= MAX_PROBLEMS || self.spent > MAX_PATHS {
            return;
        }
        let problem = format!("duplicate field {}", Quoted(&self.path));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}
