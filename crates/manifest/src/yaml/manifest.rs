//! The reader of bodies sent to an API server, which accepts what kube-apiserver accepts.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{ExpansionBudget, YamlError, check_depth, checked, events, scalars};

/// A body, read by [`manifest`].
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The first document; null if there is none. A repeated key has its last value.
    pub value: Value,
    /// Keys that occur again in the same mapping, at most [`MAX_REPEATED`].
    pub repeated: Vec<RepeatedKey>,
}

/// A key that occurs again in the same mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedKey {
    /// The line of its value, from 1.
    pub line: usize,
    /// The key.
    pub key: String,
}

/// The maximum number of repeated keys that are reported.
pub const MAX_REPEATED: usize = 100;

/// The maximum number of mappings, including those that aliases repeat: each costs hundreds of bytes of memory.
const MAX_MAPPINGS: usize = 65_536;

/// The beginning of the error message for a number that JSON cannot express.
pub const NO_JSON: &str = "json: unsupported value";

/// The error message for a key that is not a scalar.
pub const NO_KEY: &str = "invalid map key";

/// Reads the first document of `text`. Unquoted scalars are read as in YAML 1.1.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// As [`documents()`](super::documents()), except for repeated keys; and when the text has more than half a million
/// scalars, lists and mappings.
pub fn manifest(text: &[u8]) -> Result<Manifest, YamlError> {
    let text = checked(text)?;
    check_depth(text)?;
    events::check(text)?;
    let visitor = ManifestVisitor {
        text,
        budget: &ExpansionBudget::of(text),
        mappings: &Cell::new(MAX_MAPPINGS),
        repeated: &RefCell::default(),
    };
    let value = match serde_yaml::Deserializer::from_str(text).next() {
        None => Value::Null,
        Some(document) => {
            visitor
                .deserialize(document)
                .map_err(|error| YamlError::Syntax {
                    document: 1,
                    message: error.to_string(),
                })?
                .value
        }
    };
    let repeated = lines(text, &visitor.repeated.borrow());
    Ok(Manifest { value, repeated })
}

/// Converts the positions of keys in `text` to lines, in one pass.
fn lines(text: &str, places: &[(usize, String)]) -> Vec<RepeatedKey> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&index| places[index].0);
    let mut repeated: Vec<RepeatedKey> = places
        .iter()
        .map(|(_, key)| RepeatedKey {
            line: 1,
            key: key.clone(),
        })
        .collect();
    let (mut line, mut from) = (1, 0);
    for index in order {
        let to = places[index].0;
        line += text[from..to].matches('\n').count();
        from = to;
        repeated[index].line = line;
    }
    repeated
}

/// Builds one value. The last value of a repeated key counts, and the key is reported.
#[derive(Clone, Copy)]
struct ManifestVisitor<'a> {
    text: &'a str,
    budget: &'a ExpansionBudget,
    /// How many more mappings are allowed.
    mappings: &'a Cell<usize>,
    /// Repeated keys, each with the position in the text of its value.
    repeated: &'a RefCell<Vec<(usize, String)>>,
}

/// A value, and its position in the text if that is known.
struct Placed {
    value: Value,
    place: Option<usize>,
    /// Whether a scalar is plain: neither quoted nor tagged as text. `true` for other values.
    plain: bool,
}

impl From<Value> for Placed {
    fn from(value: Value) -> Self {
        Self {
            value,
            place: None,
            plain: true,
        }
    }
}

impl ManifestVisitor<'_> {
    /// A scalar that is a part of the text: resolved unless it is quoted or tagged.
    fn scalar(self, scalar: &str) -> Placed {
        let place = scalar
            .as_ptr()
            .addr()
            .checked_sub(self.text.as_ptr().addr())
            .filter(|place| {
                self.text
                    .get(*place..)
                    .is_some_and(|text| text.starts_with(scalar))
            });
        let plain = place.is_some_and(|place| {
            let (before, after) = (&self.text[..place], &self.text[place + scalar.len()..]);
            let quoted = |quote: char| before.ends_with(quote) && after.starts_with(quote);
            // Only a tag within 16 bytes is found. Without this limit each alias would scan all the spaces before its
            // anchor again.
            let near = &before.as_bytes()[before.len().saturating_sub(16)..];
            !quoted('"') && !quoted('\'') && !near.trim_ascii_end().ends_with(b"!!str")
        });
        let resolved = if plain {
            scalars::resolve(scalar)
        } else {
            None
        };
        Placed {
            value: resolved.unwrap_or_else(|| Value::from(scalar)),
            place,
            plain,
        }
    }

    fn repeated(self, place: Option<usize>, key: &str) {
        let mut repeated = self.repeated.borrow_mut();
        if repeated.len() < MAX_REPEATED {
            repeated.push((place.unwrap_or(0), key.to_owned()));
        }
    }

    /// Inserts a member, and reports it if it replaces another.
    fn put(self, values: &mut Map<String, Value>, key: String, value: Value, place: Option<usize>) {
        if values.contains_key(&key) {
            self.repeated(place, &key);
        }
        values.insert(key, value);
    }

    /// Inserts the value of the merge key `<<`: a mapping, or several of which the first wins.
    fn merge<E: de::Error>(
        self,
        values: &mut Map<String, Value>,
        merged: Value,
        place: Option<usize>,
    ) -> Result<(), E> {
        let sources = match merged {
            Value::Array(items) => items,
            other => vec![other],
        };
        for source in sources.into_iter().rev() {
            let Value::Object(members) = source else {
                return Err(E::custom(
                    "map merge requires map or sequence of maps as the value",
                ));
            };
            for (key, value) in members {
                self.put(values, key, value, place);
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ManifestVisitor<'_> {
    type Value = Placed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Placed, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ManifestVisitor<'_> {
    type Value = Placed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list, text, a number, true, false or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Placed, E> {
        self.budget.spend(1).map(|()| Value::Null.into())
    }

    /// An empty document.
    fn visit_none<E: de::Error>(self) -> Result<Placed, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Placed, E> {
        self.budget.spend(1).map(|()| Value::Bool(v).into())
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Placed, E> {
        self.budget.spend(1).map(|()| Value::from(v).into())
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Placed, E> {
        self.budget.spend(1).map(|()| Value::from(v).into())
    }

    fn visit_i128<E: de::Error>(self, v: i128) -> Result<Placed, E> {
        #[expect(clippy::cast_precision_loss, reason = "it does not fit an integer")]
        self.visit_f64(v as f64)
    }

    fn visit_u128<E: de::Error>(self, v: u128) -> Result<Placed, E> {
        #[expect(clippy::cast_precision_loss, reason = "it does not fit an integer")]
        self.visit_f64(v as f64)
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Placed, E> {
        self.budget.spend(1)?;
        scalars::whole_or_float(v).map(Placed::from).ok_or_else(|| {
            let sign = if v.is_nan() {
                "NaN"
            } else if v > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            E::custom(format!("{NO_JSON}: {sign}"))
        })
    }

    fn visit_borrowed_str<E: de::Error>(self, v: &'de str) -> Result<Placed, E> {
        self.budget.spend(v.len().saturating_add(1))?;
        Ok(self.scalar(v))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Placed, E> {
        self.budget.spend(v.len().saturating_add(1))?;
        Ok(Placed {
            value: Value::from(v),
            place: None,
            plain: false,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Placed, A::Error> {
        self.budget.spend(1)?;
        let (mut values, mut place) = (Vec::new(), None);
        while let Some(item) = list.next_element_seed(self)? {
            place = place.or(item.place);
            values.push(item.value);
        }
        Ok(Placed {
            place,
            ..Value::Array(values).into()
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Placed, A::Error> {
        self.budget.spend(1)?;
        let left = self.mappings.get().checked_sub(1);
        self.mappings
            .set(left.ok_or_else(|| de::Error::custom("too many mappings"))?);
        let (mut values, mut first) = (Map::new(), None);
        while let Some(key) = map.next_key_seed(self)? {
            first = first.or(key.place);
            let text = match key.value {
                Value::String(text) => text,
                Value::Bool(value) => value.to_string(),
                Value::Number(value) => value.to_string(),
                _ => return Err(de::Error::custom(NO_KEY)),
            };
            let Placed { value, place, .. } = map.next_value_seed(self)?;
            // The position of a number is unknown; mostly it is on the line of its key.
            let place = place.or(key.place);
            if key.plain && text == "<<" {
                self.merge(&mut values, value, place)?;
            } else {
                self.put(&mut values, text, value, place);
            }
        }
        Ok(Placed {
            place: first,
            ..Value::Object(values).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::MAX_BYTES;
    use serde_json::json;

    #[test]
    fn a_manifest_has_the_scalars_of_yaml_1_1() {
        let text = "[yes, 'yes', \"no\", !!str on, off, 010, 0o10, 0x10, 0b11, 1_000, 08, -012, 1.0, \
                    1e3, 1.5, ~, 1:30, 2020-01-01, y, -, +, 0x, nO, 0-23, 0+7, 0x-5, -0-5]";
        assert_eq!(
            manifest(text.as_bytes()).unwrap().value,
            json!([
                true,
                "yes",
                "no",
                "on",
                false,
                8,
                8,
                16,
                3,
                1000,
                8,
                -10,
                1,
                1000,
                1.5,
                null,
                "1:30",
                "2020-01-01",
                true,
                "-",
                "+",
                "0x",
                "nO",
                "0-23",
                "0+7",
                "0x-5",
                "-0-5"
            ])
        );
    }

    #[test]
    fn a_manifest_reports_repeated_keys_and_takes_the_last() {
        let text = "a: {b: 1, b: 2}\n\nc:\n  d: x\nc:\n  \"e\": 1\n  e: 2\non: 1\ntrue: 2\n";
        let Manifest { value, repeated } = manifest(text.as_bytes()).unwrap();
        assert_eq!(value, json!({"a": {"b": 2}, "c": {"e": 2}, "true": 2}));
        let reported: Vec<_> = repeated.iter().map(|r| (r.line, r.key.as_str())).collect();
        assert_eq!(reported[..3], [(1, "b"), (7, "e"), (6, "c")]);
        assert_eq!(reported[3].1, "true");
    }

    #[test]
    fn a_manifest_is_the_first_document() {
        assert_eq!(
            manifest(b"---\na: 1\n---\nb: [\n").unwrap().value,
            json!({"a": 1})
        );
        assert_eq!(manifest(b"").unwrap().value, Value::Null);
        assert_eq!(manifest(b"# nothing\n").unwrap().value, Value::Null);
    }

    #[test]
    fn a_manifest_may_merge_mappings() {
        let text = b"a: &a {x: 1, z: 2}\nb: {<<: *a, z: 3}\nc: {<<: [{x: 7}, *a]}\n";
        let value = manifest(text).unwrap().value;
        assert_eq!(value["b"], json!({"x": 1, "z": 3}));
        assert_eq!(value["c"], json!({"x": 7, "z": 2}));
        assert!(manifest(b"{<<: 1}").is_err());
    }

    #[test]
    fn a_manifest_is_bounded_as_documents_are() {
        for text in [
            "[".repeat(MAX_BYTES / 2),
            "- ".repeat(2000),
            format!(
                "a: &a [{}1]\nb: [{}1]\n",
                "1, ".repeat(9999),
                "*a, ".repeat(9999)
            ),
            "&a [*a]".to_owned(),
            format!("a: &a {{b: 1}}\nc: [{}1]\n", "*a, ".repeat(MAX_MAPPINGS)),
            ".inf".to_owned(),
            "? [a]\n: 1".to_owned(),
        ] {
            assert!(manifest(text.as_bytes()).is_err());
        }
        let many = "a: 1\n".repeat(1000);
        let repeated = manifest(many.as_bytes()).unwrap().repeated;
        assert_eq!(repeated.len(), MAX_REPEATED);
        assert_eq!(repeated[99].line, 101);
    }
}
