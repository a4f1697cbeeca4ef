//! JSON as it was written: members in their order, including duplicates, and numbers as text.
//!
//! A [`Value`] keeps none of this, but error messages need it.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write};

use serde_json::{Map, Number, Value};

use crate::schema::canonical::{MAX_PATHS, MAX_PROBLEMS, Source, View};
use fairgate_gotext::Quoted;

/// One JSON value. It borrows the texts that stand in the source as they are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JsonNode<'a> {
    /// Null.
    Null,
    /// A boolean.
    Flag(bool),
    /// The text of a number, valid as JSON.
    Number(&'a str),
    /// A string.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<JsonNode<'a>>),
    /// An object.
    Object(Vec<JsonMember<'a>>),
}

/// A member of an object.
pub(crate) type JsonMember<'a> = (Cow<'a, str>, JsonNode<'a>);

/// The members of an object, in their order.
pub(crate) struct NodeMembers<'m, 'a>(std::slice::Iter<'m, JsonMember<'a>>);

impl<'m, 'a> Iterator for NodeMembers<'m, 'a> {
    type Item = (&'m str, &'m JsonNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, node)| (&**key, node))
    }
}

impl<'m, 'a> Source<'m> for &'m JsonNode<'a> {
    type Items = std::slice::Iter<'m, JsonNode<'a>>;
    type Members = NodeMembers<'m, 'a>;

    fn view(self) -> View<'m, Self> {
        match self {
            JsonNode::Null => View::Null,
            JsonNode::Flag(flag) => View::Flag(*flag),
            JsonNode::Number(text) => View::Number(Cow::Borrowed(text)),
            JsonNode::Text(text) => View::Text(text),
            JsonNode::List(items) => View::List(items.iter()),
            JsonNode::Object(members) => View::Object(NodeMembers(members.iter())),
        }
    }

    fn to_value(self) -> Value {
        match self {
            JsonNode::Null => Value::Null,
            JsonNode::Flag(flag) => Value::Bool(*flag),
            JsonNode::Number(text) => number(text),
            JsonNode::Text(text) => Value::String(text.clone().into_owned()),
            JsonNode::List(items) => items.iter().map(Self::to_value).collect(),
            JsonNode::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(key, node)| (key.clone().into_owned(), node.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// Of so few members each is compared with each.
pub(super) const FEW_MEMBERS: usize = 16;

/// Whether a key occurs twice among the members of one object.
pub(crate) fn repeats_key(members: &[JsonMember<'_>]) -> bool {
    if members.len() > FEW_MEMBERS {
        let mut seen = BTreeSet::new();
        return !members.iter().all(|(key, _)| seen.insert(&**key));
    }
    let mut later = members.iter();
    while let Some((key, _)) = later.next() {
        if later.as_slice().iter().any(|(other, _)| other == key) {
            return true;
        }
    }
    false
}

impl JsonNode<'_> {
    /// The duplicate keys, as `duplicate field "spec.a"`: each once, at most [`MAX_PROBLEMS`], and
    /// fewer if their paths are very long.
    pub(crate) fn duplicates(&self) -> Vec<String> {
        let mut found = DuplicateKeys::default();
        found.visit(self);
        found.problems
    }
}

/// A number: an integer if it fits, otherwise floating point, at most the largest there is.
pub(super) fn number(text: &str) -> Value {
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

#[derive(Default)]
struct DuplicateKeys {
    path: String,
    problems: Vec<String>,
    /// The bytes of all paths that were compared.
    spent: usize,
}

impl DuplicateKeys {
    fn visit(&mut self, node: &JsonNode<'_>) {
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
        let is_spent = self.spent > MAX_PATHS && !self.problems.is_empty();
        if self.problems.len() >= MAX_PROBLEMS || is_spent {
            return;
        }
        let problem = format!("duplicate field {}", Quoted(&self.path));
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}
