//! The lines on which the keys of a document stand, for messages about their values.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{ExpansionBudget, YamlError, check_depth, checked, documents, documents::said};
use serde_json::Value;

/// A document with the lines of its keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocatedDocument {
    /// The document.
    pub value: Value,
    /// The line of each key by its path, counted from 1 in the whole text, as [`lines()`] has it. The empty path is the
    /// document itself.
    pub lines: BTreeMap<String, usize>,
}

impl LocatedDocument {
    /// The line of a path, or of the nearest one above it that has a line; 1 if there is none.
    pub fn line(&self, path: &str) -> usize {
        let line = self.line_within(path);
        line.or_else(|| self.lines.get("").copied()).unwrap_or(1)
    }

    /// The line of a path, or of the nearest one above it that has a line, other than the document itself.
    pub fn line_within(&self, path: &str) -> Option<usize> {
        let mut path = path;
        while !path.is_empty() {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '[']).unwrap_or(0)];
        }
        None
    }
}

/// The documents of `text` as [`documents()`](super::documents()) reads them, with the lines of their keys.
///
/// # Errors
///
/// As [`documents()`](super::documents()).
pub fn located_documents(text: &[u8]) -> Result<Vec<LocatedDocument>, YamlError> {
    let values = documents(text)?;
    // Lines are only for messages: a document whose lines cannot be found is used without them.
    let lines = lines_of_all(text, usize::MAX).unwrap_or_default();
    let mut lines = lines.into_iter();
    let located = values.into_iter().map(|value| LocatedDocument {
        value,
        lines: lines.next().unwrap_or_default(),
    });
    Ok(located.collect())
}

/// The line of each key of the first document of `text`, counted from 1.
///
/// A key is named by its path, such as `clients[2].load.rate`; an item of a list has the line of the first key or
/// text in it. Numbers, and keys that contain escapes, have no line of their own: look for the nearest path above.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// As [`documents()`](super::documents()), except for repeated keys.
pub fn lines(text: &[u8]) -> Result<BTreeMap<String, usize>, YamlError> {
    let first = lines_of_all(text, 1)?.into_iter().next();
    let mut lines = first.unwrap_or_default();
    lines.remove("");
    Ok(lines)
}

/// The lines of the first `count` documents that are not empty.
fn lines_of_all(text: &[u8], count: usize) -> Result<Vec<BTreeMap<String, usize>>, YamlError> {
    let text = checked(text)?;
    check_depth(text)?;
    let budget = ExpansionBudget::of(text);
    let mut counter = LineCounter::new(text);
    let mut all = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let found = RefCell::default();
        let visitor = LineVisitor {
            text,
            path: "",
            budget: &budget,
            is_empty: &Cell::new(true),
            found: &found,
        };
        let outcome = visitor.deserialize(document);
        let first = outcome.map_err(|error| YamlError::Syntax {
            document: index + 1,
            message: said(&error, text),
        })?;
        if visitor.is_empty.get() {
            continue;
        }
        let mut places = found.into_inner();
        places.extend(first.map(|place| (String::new(), place)));
        all.push(counter.lines(places));
        if all.len() == count {
            break;
        }
    }
    Ok(all)
}

/// Counts lines from one position to the next. One pass over the text serves all of its documents.
struct LineCounter<'t> {
    text: &'t str,
    place: usize,
    line: usize,
}

impl<'t> LineCounter<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            text,
            place: 0,
            line: 1,
        }
    }

    /// Turns the positions in a document into lines. Documents have to come in the order of the text.
    fn lines(&mut self, places: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
        let mut order: Vec<(String, usize)> = places.into_iter().collect();
        order.sort_by_key(|(_, place)| *place);
        let lines = order.into_iter().map(|(path, place)| {
            let passed = self.text.get(self.place..place).unwrap_or_default();
            self.line += passed.matches('\n').count();
            self.place = place;
            (path, self.line)
        });
        lines.collect()
    }
}

/// Visits the value at `path`, and returns its position in the text if that is known.
#[derive(Clone, Copy)]
struct LineVisitor<'a> {
    text: &'a str,
    path: &'a str,
    budget: &'a ExpansionBudget,
    /// Cleared by the first value that is not null.
    is_empty: &'a Cell<bool>,
    found: &'a RefCell<BTreeMap<String, usize>>,
}

/// A scalar as a key: its text, and its position.
struct KeyVisitor<'a> {
    text: &'a str,
}

/// Where `part` stands in `text`, if it is a part of it.
fn position(text: &str, part: &str) -> Option<usize> {
    // A scalar without escapes is lent from the text, so its address says where it is.
    let place = part.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let rest = text.get(place..)?;
    rest.starts_with(part).then_some(place)
}

impl<'de> DeserializeSeed<'de> for LineVisitor<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! without_position {
    ($($visit:ident: $ty:ty),*) => {
        $(fn $visit<E: de::Error>(self, _: $ty) -> Result<Self::Value, E> {
            self.is_empty.set(false);
            self.budget.spend(1).map(|()| None)
        })*
    };
}

impl<'de> Visitor<'de> for LineVisitor<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list, text, a number, true, false or null")
    }

    without_position!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64);

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        self.budget.spend(1).map(|()| None)
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        self.visit_unit()
    }

    fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Self::Value, E> {
        self.is_empty.set(false);
        self.budget.spend(v.len().saturating_add(1))?;
        Ok(position(self.text, v))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
        self.is_empty.set(false);
        self.budget.spend(v.len().saturating_add(1)).map(|()| None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        self.is_empty.set(false);
        self.budget.spend(1)?;
        let mut first = None;
        for index in 0.. {
            let path = format!("{}[{index}]", self.path);
            let item = LineVisitor {
                path: &path,
                ..self
            };
            let Some(place) = list.next_element_seed(item)? else {
                break;
            };
            if let Some(place) = place {
                first = first.or(Some(place));
                self.found.borrow_mut().insert(path, place);
            }
        }
        Ok(first)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        self.is_empty.set(false);
        self.budget.spend(1)?;
        let mut first = None;
        while let Some((key, place)) = map.next_key_seed(KeyVisitor { text: self.text })? {
            let path = match self.path {
                "" => key,
                path => format!("{path}.{key}"),
            };
            if let Some(place) = place {
                first = first.or(Some(place));
                self.found.borrow_mut().insert(path.clone(), place);
            }
            map.next_value_seed(LineVisitor {
                path: &path,
                ..self
            })?;
        }
        Ok(first)
    }
}

impl<'de> DeserializeSeed<'de> for KeyVisitor<'_> {
    type Value = (String, Option<usize>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeyVisitor<'_> {
    type Value = (String, Option<usize>);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is text, a number, true or false")
    }

    fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Self::Value, E> {
        Ok((v.to_owned(), position(self.text, v)))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
        Ok((v.to_owned(), None))
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Self::Value, E> {
        Ok((v.to_string(), None))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Self::Value, E> {
        Ok((v.to_string(), None))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Self::Value, E> {
        Ok((v.to_string(), None))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Self::Value, E> {
        let number = serde_json::Number::from_f64(v);
        let number =
            number.ok_or_else(|| E::custom(format!("{v} is not a number JSON can write")))?;
        Ok((number.to_string(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_and_item_has_its_line() {
        let text = "# é\na: 1\nb:\n  c: [x,\n    'y']\n  d:\n  - e: 2\n    f: z\n  - {g: 3}\n";
        let lines = lines(text.as_bytes()).unwrap();
        let expected = [
            ("a", 2),
            ("b", 3),
            ("b.c", 4),
            ("b.c[0]", 4),
            ("b.c[1]", 5),
            ("b.d", 6),
            ("b.d[0]", 7),
            ("b.d[0].e", 7),
            ("b.d[0].f", 8),
            ("b.d[1]", 9),
            ("b.d[1].g", 9),
        ];
        let expected = expected.map(|(path, line)| (path.to_owned(), line));
        assert_eq!(lines, BTreeMap::from(expected));
    }

    #[test]
    fn keys_are_named_as_in_the_document() {
        let text = b"1: {a: b}\n-2: {a: b}\n1.0: {a: b}\ntrue: {a: b}\n";
        let found: Vec<_> = lines(text).unwrap().into_iter().collect();
        let expected = [("-2.a", 2), ("1.0.a", 3), ("1.a", 1), ("true.a", 4)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
        let documents = crate::yaml::documents(text).unwrap();
        let mut keys: Vec<_> = documents[0].as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["-2", "1", "1.0", "true"]);
    }

    #[test]
    fn every_document_has_its_lines() {
        let text = "# a\n---\na: 1\nb:\n- c\n---\n---\n'x': {y: 2}\n---\n7\n";
        let all = located_documents(text.as_bytes()).unwrap();
        let lines = |path| all.iter().map(|one| one.line(path)).collect::<Vec<_>>();
        assert_eq!(all.len(), 3);
        assert_eq!(lines(""), [3, 8, 1]);
        assert_eq!(lines("b[0].absent"), [5, 8, 1]);
        assert_eq!(lines("x.y"), [3, 8, 1]);
        let json = b"{\"a\":\n {\"b\": [1,\n \"c\"]}}";
        let one = &located_documents(json).unwrap()[0];
        assert_eq!((one.line("a.b[1]"), one.line("a.b[0]")), (3, 2));
    }

    #[test]
    fn what_has_no_lines_is_empty_or_an_error() {
        assert!(lines(b"").unwrap().is_empty());
        assert!(lines(b"7").unwrap().is_empty());
        assert!(lines(b"a: [").is_err());
        assert!(lines("[".repeat(2000).as_bytes()).is_err());
        let aliases = format!(
            "a: &a [{}1]\nb: [{}1]\n",
            "1, ".repeat(9999),
            "*a, ".repeat(9999)
        );
        assert!(lines(aliases.as_bytes()).is_err());
    }
}
