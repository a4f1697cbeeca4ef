//! JSON documents that are changed in places: what is not touched keeps its text to the byte.
//!
//! A document is split into the texts of its members or entries, level by level, only as deep as something
//! changes. So keys keep their order, and numbers and strings the form that the upstream gave them.
//!
//! Not here: what is changed ([`crate::discovery`], [`crate::openapi`]).

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::{RawValue, to_raw_value};

/// The text of a value.
pub(crate) type Raw = Box<RawValue>;

/// The members of an object in their order.
#[derive(Default)]
pub(crate) struct RawMembers(Vec<(String, Raw)>);

impl RawMembers {
    /// The members of `text`; `None` if it is not an object.
    pub(crate) fn parse(text: &RawValue) -> Option<Self> {
        serde_json::from_str(text.get()).ok()
    }

    /// The text of the object, without white space between its members.
    pub(crate) fn raw(&self) -> Raw {
        raw(self)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| &**value)
    }

    /// The string at `key`; empty if there is none.
    pub(crate) fn text(&self, key: &str) -> String {
        let value = self.get(key);
        value
            .and_then(|value| serde_json::from_str(value.get()).ok())
            .unwrap_or_default()
    }

    /// The object at `key`.
    pub(crate) fn object(&self, key: &str) -> Option<Self> {
        Self::parse(self.get(key)?)
    }

    /// The entries of the list at `key`.
    pub(crate) fn items(&self, key: &str) -> Option<Vec<Raw>> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// Replaces the value at `key`; a new member comes last.
    pub(crate) fn set(&mut self, key: &str, value: Raw) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// Replaces the value at `key`. A new member comes before the first with a greater key, so that sorted
    /// members stay sorted.
    pub(crate) fn set_sorted(&mut self, key: &str, value: Raw) {
        if self.get(key).is_some() {
            return self.set(key, value);
        }
        let greater = self.0.iter().position(|(name, _)| name.as_str() > key);
        let index = greater.unwrap_or(self.0.len());
        self.0.insert(index, (key.to_owned(), value));
    }

    /// Keeps the members whose key passes `keep`.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|(key, _)| keep(key));
    }
}

impl IntoIterator for RawMembers {
    type Item = (String, Raw);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The text of a value.
pub(crate) fn raw(value: &(impl Serialize + ?Sized)) -> Raw {
    to_raw_value(value).expect("keys are strings, and no number is infinite")
}

impl Serialize for RawMembers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for RawMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawMembersVisitor)
    }
}

struct RawMembersVisitor;

impl<'de> Visitor<'de> for RawMembersVisitor {
    type Value = RawMembers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMembers, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(RawMembers(members))
    }
}

/// For tests that compare values.
#[cfg(test)]
pub(crate) fn value(text: &RawValue) -> serde_json::Value {
    serde_json::from_str(text.get()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> RawMembers {
        RawMembers::parse(&RawValue::from_string(text.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_changed_keeps_its_text() {
        let mut object = parse(
            r#"{"z":1e400,"a":{"y":1.50,"b":"\u003c<\/"},"list":[ 1 ,{"q":0,"p":0}],"m":null}"#,
        );
        object.set("m", raw("new"));
        object.set("k", raw(&[1]));
        assert_eq!(
            object.raw().get(),
            r#"{"z":1e400,"a":{"y":1.50,"b":"\u003c<\/"},"list":[ 1 ,{"q":0,"p":0}],"m":"new","k":[1]}"#
        );
        assert_eq!(object.items("list").unwrap()[1].get(), r#"{"q":0,"p":0}"#);
        assert_eq!(object.object("a").unwrap().text("b"), "<</");
        assert_eq!(object.text("a"), "");
    }

    #[test]
    fn sorted_members_stay_sorted() {
        let mut object = parse(r#"{"b":1,"d":2}"#);
        for key in ["c", "a", "d", "e"] {
            object.set_sorted(key, raw(&0));
        }
        assert_eq!(object.raw().get(), r#"{"a":0,"b":1,"c":0,"d":0,"e":0}"#);
    }

    #[test]
    fn only_an_object_has_members() {
        for text in ["null", "[]", "1", "\"{}\""] {
            assert!(RawMembers::parse(&RawValue::from_string(text.to_owned()).unwrap()).is_none());
        }
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert_eq!(parse(&deep).raw().get(), deep);
    }
}
