//! JSON as expressions see it, borrowed from the text that it was read from.
//!
//! [`CelJson`] is read by any serde format: from text by `serde_json::from_slice`, or from a `&serde_json::Value`,
//! which is a deserializer, too. Strings without escapes are borrowed. Numbers without fraction and exponent that
//! fit into 64 bits are integers; all others are doubles. (`serde_json` reads some doubles one unit in the last place
//! off, unless its feature `float_roundtrip` is on; the original reads them exactly.)

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::short_texts::equal_texts;

/// Objects with more members than this are sorted by name and searched by binary search.
const SORTED_FROM: usize = 16;

/// A JSON value.
///
/// How deep values nest is bounded by whoever reads them; walking one recurses as deep.
#[derive(Clone, Debug, PartialEq)]
pub enum CelJson<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent that fits into 64 bits.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// A string; borrowed if it has no escapes.
    String(Cow<'a, str>),
    /// A list.
    Array(Vec<CelJson<'a>>),
    /// Members with distinct names.
    Object(JsonObject<'a>),
}

impl<'a> CelJson<'a> {
    /// The value at a path of members; the document itself for an empty path.
    pub fn at(&self, path: &[&str]) -> Option<&CelJson<'a>> {
        path.iter().try_fold(self, |node, name| match node {
            Self::Object(members) => members.get(name),
            _ => None,
        })
    }

    /// The text at a path of members; empty if there is none.
    pub fn text_at(&self, path: &[&str]) -> &str {
        match self.at(path) {
            Some(Self::String(text)) => text,
            _ => "",
        }
    }
}

/// The members of a JSON object. Of several members with one name, only the last is kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonObject<'a> {
    members: Vec<(Cow<'a, str>, CelJson<'a>)>,
}

impl<'a> JsonObject<'a> {
    /// Makes an object of `members`. Of several members with one name, the last is kept.
    pub fn new(mut members: Vec<(Cow<'a, str>, CelJson<'a>)>) -> Self {
        if members.len() > SORTED_FROM {
            members.sort_by(|a, b| a.0.cmp(&b.0));
            // The sort is stable: equal names are in the order of the text, and the last is kept.
            members.dedup_by(|later, kept| {
                let same = later.0 == kept.0;
                if same {
                    std::mem::swap(&mut kept.1, &mut later.1);
                }
                same
            });
        } else {
            remove_earlier(&mut members);
        }
        Self { members }
    }

    /// Makes an object of members whose names differ; it does not compare them as [`new`](Self::new) does.
    pub fn of_distinct(mut members: Vec<(Cow<'a, str>, CelJson<'a>)>) -> Self {
        if members.len() > SORTED_FROM {
            members.sort_by(|a, b| a.0.cmp(&b.0));
        }
        debug_assert!(
            members
                .iter()
                .enumerate()
                .all(|(at, (name, _))| members[..at].iter().all(|(other, _)| other != name)),
            "names differ"
        );
        Self { members }
    }

    /// The value of the member `name`. It costs at most 16 comparisons, or a binary search.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&CelJson<'a>> {
        if self.members.len() > SORTED_FROM {
            let found = self.members.binary_search_by(|(key, _)| (**key).cmp(name));
            return found.ok().map(|at| &self.members[at].1);
        }
        self.members
            .iter()
            .find_map(|(key, value)| equal_texts(key, name).then_some(value))
    }

    /// The members: in the order of the text, or by name if there are more than 16.
    #[inline]
    pub fn members(&self) -> &[(Cow<'a, str>, CelJson<'a>)] {
        &self.members
    }
}

/// Removes members whose name comes again later; there are at most [`SORTED_FROM`].
fn remove_earlier(members: &mut Vec<(Cow<'_, str>, CelJson<'_>)>) {
    let mut at = 0;
    while at < members.len() {
        let again = members[at + 1..]
            .iter()
            .any(|(key, _)| *key == members[at].0);
        if again {
            members.remove(at);
        } else {
            at += 1;
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for CelJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = CelJson<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(CelJson::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(CelJson::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(CelJson::Int(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "as the original reads numbers")]
    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(value).map_or(CelJson::Double(value as f64), CelJson::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(CelJson::Double(value))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(CelJson::String(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(CelJson::String(Cow::Owned(value.to_owned())))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Self::Value, E> {
        Ok(CelJson::String(Cow::Owned(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            list.push(element);
        }
        Ok(CelJson::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((MemberName(name), value)) = entries.next_entry()? {
            members.push((name, value));
        }
        Ok(CelJson::Object(JsonObject::new(members)))
    }
}

/// The name of a member, borrowed if it has no escapes.
struct MemberName<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(MemberNameVisitor).map(Self)
    }
}

struct MemberNameVisitor;

impl<'de> Visitor<'de> for MemberNameVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> CelJson<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn whole_numbers_that_fit_are_integers() {
        assert_eq!(node("5"), CelJson::Int(5));
        assert_eq!(node("-9223372036854775808"), CelJson::Int(i64::MIN));
        assert_eq!(
            node("9223372036854775808"),
            CelJson::Double(9_223_372_036_854_775_808.0)
        );
        assert_eq!(node("1.0"), CelJson::Double(1.0));
        assert_eq!(node("1e3"), CelJson::Double(1000.0));
    }

    #[test]
    fn doubles_are_exact() {
        for text in [
            "-9.223372036854776e+77",
            "0.1",
            "123456789.12345679",
            "2.2250738585072011e-308",
            "9007199254740993.0",
        ] {
            let exact = text.parse::<f64>().unwrap();
            assert_eq!(node(text), CelJson::Double(exact), "{text}");
        }
        for number in (1..20_000).map(|digits| f64::from(digits * 104_729) * 1.1e-9) {
            assert_eq!(node(&format!("{number:?}")), CelJson::Double(number));
        }
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        assert!(matches!(
            node(r#""plain""#),
            CelJson::String(Cow::Borrowed("plain"))
        ));
        assert!(matches!(node(r#""\n""#), CelJson::String(Cow::Owned(_))));
    }

    #[test]
    fn of_members_with_the_same_name_the_last_is_kept() {
        for extra in [0, 40] {
            let mut text = String::from(r#"{"a":1,"b":2,"a":3"#);
            text.extend((0..extra).map(|number| format!(r#","k{number}":0"#)));
            text.push('}');
            let CelJson::Object(object) = node(&text) else {
                panic!("an object");
            };
            assert_eq!(object.members().len(), 2 + extra);
            assert_eq!(object.get("a"), Some(&CelJson::Int(3)));
            assert_eq!(object.get("b"), Some(&CelJson::Int(2)));
            assert_eq!(object.get("c"), None);
        }
    }
}
