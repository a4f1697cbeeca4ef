//! The members of a mapping, whose keys Go turns into text.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::resolve::Resolved;

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    text: String,
    ty: KeyType,
}

/// What a key is before it becomes text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyType {
    Text,
    Integer,
    Flag,
}

impl Key {
    pub(super) fn quoted(text: String) -> Self {
        let ty = KeyType::Text;
        Self { text, ty }
    }

    /// The key of a plain scalar, or what speaks against it.
    pub(super) fn plain(text: &str) -> Result<Self, &'static str> {
        let (text, ty) = match super::resolve::resolve(text) {
            Resolved::Text => (text.to_owned(), KeyType::Text),
            Resolved::Integer(number) => (number.to_string(), KeyType::Integer),
            Resolved::Flag(flag) => (flag.to_string(), KeyType::Flag),
            Resolved::Merge => return Err("a merge key (<<)"),
            Resolved::Null | Resolved::Unsigned(_) | Resolved::Float(_) | Resolved::Odd => {
                return Err("a key that is neither text nor a whole number");
            }
        };
        Ok(Self { text, ty })
    }
}

/// A mapping that is being read.
#[derive(Debug, Default)]
pub(super) struct YamlMembers {
    values: Map<String, Value>,
    types: BTreeMap<String, KeyType>,
}

impl YamlMembers {
    /// Adds a member. One of the same key is replaced.
    pub(super) fn put(&mut self, key: Key, value: Value) -> Result<(), &'static str> {
        match self.types.get(&key.text) {
            None => {}
            Some(KeyType::Text) if key.ty == KeyType::Text => {}
            // Go does not say which of them counts, or names them otherwise.
            Some(_) => {
                return Err("keys that differ only in their type, or numbers as repeated keys");
            }
        }
        self.types.insert(key.text.clone(), key.ty);
        self.values.insert(key.text, value);
        Ok(())
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.values)
    }
}
