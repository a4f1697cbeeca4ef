//! YAML and JSON text into plain values: the only door to the YAML library.
//!
//! Every document of a text comes out as a [`serde_json::Value`], so that nothing else has to know
//! the library, and nobody meets YAML's odder parts: tags, keys that are not text, numbers JSON
//! cannot write. A file may come from a stranger (a `ConfigMap`, a pipe), so the text is bounded in
//! size and depth, and what its aliases expand to is bounded by its length: a few lines cannot
//! become gigabytes. A key given twice is a mistake, not a matter of luck.
//!
//! There are two ways in. [`documents`] reads what people write for us, and is strict. [`manifest`]
//! reads what is sent to an API server, which must take what upstream takes: booleans of YAML 1.1
//! such as `yes`, and keys given twice, which it tells of.
//!
//! Not here: what the values mean.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The longest text that is read: 16 MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// Brackets that may be open at once, those of prose in comments and strings included.
///
/// The library refuses values nested deeper than 128; but its scanner runs before, in a time that
/// grows with the square of open brackets.
const MAX_OPEN_BRACKETS: usize = 1000;

/// How many times its own length a text may expand to by aliases.
const EXPANSION: usize = 4;

/// Why a text is not YAML that can be used.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// Over [`MAX_BYTES`].
    #[error("longer than {} MiB; split it", MAX_BYTES >> 20)]
    TooLong,
    /// Not text.
    #[error("not UTF-8 from byte {valid_up_to} on; save it as UTF-8")]
    NotUtf8 {
        /// Bytes before the first bad one.
        valid_up_to: usize,
    },
    /// More nesting than anything real has.
    #[error("more than {MAX_OPEN_BRACKETS} brackets are open at once; flatten it")]
    TooDeep,
    /// Not YAML, or YAML that JSON has no word for.
    #[error("document {document}: {message}")]
    Syntax {
        /// Counts from 1.
        document: usize,
        /// What the parser says, with line and column.
        message: String,
    },
}

/// The documents of `text`, in order, empty ones left out.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// The first thing that makes the text unusable; see [`YamlError`].
pub fn documents(text: &[u8]) -> Result<Vec<Value>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|error| YamlError::NotUtf8 {
        valid_up_to: error.valid_up_to(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(value) = json(text) {
        return Ok(vec![value]);
    }
    refuse_deep(text)?;
    let budget = Cell::new(text.len().saturating_mul(EXPANSION).saturating_add(1024));
    let mut documents = Vec::new();
    for (index, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let value = (Node { budget: &budget })
            .deserialize(document)
            .map_err(|error| YamlError::Syntax {
                document: index + 1,
                message: error.to_string(),
            })?;
        if !value.is_null() {
            documents.push(value);
        }
    }
    Ok(documents)
}

/// What [`manifest`] read.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The first document; null if there is none. Of a key given twice it has the last value.
    pub value: Value,
    /// Keys given twice in one mapping, at most [`MAX_REPEATED`].
    pub repeated: Vec<Repeated>,
}

/// A key given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// The line of its value, from 1.
    pub line: usize,
    /// The key.
    pub key: String,
}

/// Repeated keys that are told of at most.
pub const MAX_REPEATED: usize = 100;

/// Mappings of a [`manifest`] at most, those that aliases repeat included: each costs hundreds of
/// bytes of memory.
pub const MAX_MAPPINGS: usize = 65_536;

/// What errors of [`manifest`] say of a number that JSON cannot write.
pub const NO_JSON: &str = "json: unsupported value";

/// What they say of a key that is no scalar.
pub const NO_KEY: &str = "invalid map key";

/// The first document of `text`, read as YAML 1.1, as far as unquoted scalars go.
///
/// Costs time and memory linear in the length of `text`.
///
/// # Errors
///
/// As [`documents`], but for repeated keys.
pub fn manifest(text: &[u8]) -> Result<Manifest, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLong);
    }
    let text = std::str::from_utf8(text).map_err(|error| YamlError::NotUtf8 {
        valid_up_to: error.valid_up_to(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_deep(text)?;
    let reader = Reader {
        text,
        budget: &Cell::new(text.len().saturating_mul(EXPANSION).saturating_add(1024)),
        mappings: &Cell::new(MAX_MAPPINGS),
        repeated: &RefCell::default(),
    };
    let value = match serde_yaml::Deserializer::from_str(text).next() {
        None => Value::Null,
        Some(document) => {
            reader
                .deserialize(document)
                .map_err(|error| YamlError::Syntax {
                    document: 1,
                    message: error.to_string(),
                })?
                .value
        }
    };
    let repeated = lines(text, &reader.repeated.borrow());
    Ok(Manifest { value, repeated })
}

/// The lines of places in `text`, found in one pass.
fn lines(text: &str, places: &[(usize, String)]) -> Vec<Repeated> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|&index| places[index].0);
    let mut repeated: Vec<Repeated> = places
        .iter()
        .map(|(_, key)| Repeated {
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

/// `text` as one JSON value: what `-o json` prints, read without the detour through YAML.
fn json(text: &str) -> Option<Value> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let budget = Cell::new(usize::MAX);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = (Node { budget: &budget })
        .deserialize(&mut deserializer)
        .ok()?;
    deserializer.end().ok()?;
    Some(value)
}

/// Refuses a text that the scanner would take too long over; see [`MAX_OPEN_BRACKETS`].
fn refuse_deep(text: &str) -> Result<(), YamlError> {
    let mut open = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > MAX_OPEN_BRACKETS {
            return Err(YamlError::TooDeep);
        }
    }
    Ok(())
}

/// One value, paid for out of a budget: one unit a node and one a byte of text.
#[derive(Clone, Copy)]
struct Node<'a> {
    budget: &'a Cell<usize>,
}

impl Node<'_> {
    fn pay<E: de::Error>(self, cost: usize) -> Result<(), E> {
        let left = self
            .budget
            .get()
            .checked_sub(cost)
            .ok_or_else(|| E::custom("aliases expand to too much; write the parts out"))?;
        self.budget.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list, text, a number, true, false or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        self.pay(1).map(|()| Value::Null)
    }

    /// An empty document.
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Value, E> {
        self.pay(1).map(|()| Value::Bool(v))
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Value, E> {
        self.pay(1).map(|()| v.into())
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Value, E> {
        self.pay(1).map(|()| v.into())
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Value, E> {
        self.pay(1)?;
        Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| E::custom(format!("{v} is not a number JSON can write")))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Value, E> {
        self.pay(v.len().saturating_add(1))?;
        Ok(Value::String(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        self.pay(1)?;
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.pay(1)?;
        let mut values = Map::new();
        while let Some(key) = map.next_key_seed(self)? {
            let key = match key {
                Value::String(text) => text,
                Value::Bool(value) => value.to_string(),
                Value::Number(value) => value.to_string(),
                _ => return Err(de::Error::custom("a key must be text")),
            };
            let value = map.next_value_seed(self)?;
            if values.contains_key(&key) {
                return Err(de::Error::custom(format!("key {key:?} is given twice")));
            }
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

/// Reads a value for [`manifest`].
#[derive(Clone, Copy)]
struct Reader<'a> {
    text: &'a str,
    budget: &'a Cell<usize>,
    /// Mappings that may follow.
    mappings: &'a Cell<usize>,
    /// Places in the text, and keys.
    repeated: &'a RefCell<Vec<(usize, String)>>,
}

/// A value, with where it begins in the text if that is known.
struct Placed {
    value: Value,
    place: Option<usize>,
    /// Not in quotes.
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

impl Reader<'_> {
    fn pay<E: de::Error>(self, cost: usize) -> Result<(), E> {
        Node {
            budget: self.budget,
        }
        .pay(cost)
    }

    /// A scalar that stands in the text as it is: resolved unless it is quoted or tagged.
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
            // A tag further away is missed: an alias must not cost the spaces before its anchor.
            let near = &before.as_bytes()[before.len().saturating_sub(16)..];
            !quoted('"') && !quoted('\'') && !near.trim_ascii_end().ends_with(b"!!str")
        });
        let resolved = if plain { resolve(scalar) } else { None };
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

    /// Puts a member in, and tells of one that it replaces.
    fn put(self, values: &mut Map<String, Value>, key: String, value: Value, place: Option<usize>) {
        if values.contains_key(&key) {
            self.repeated(place, &key);
        }
        values.insert(key, value);
    }

    /// What the merge key `<<` brings: a mapping, or several of which the first wins.
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

/// What YAML 1.1 has for a plain scalar that the library takes for text.
fn resolve(scalar: &str) -> Option<Value> {
    match scalar {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(Value::Bool(false)),
        _ if scalar.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-') => {
            integer(&scalar.replace('_', ""))
        }
        _ => None,
    }
}

/// A number with a leading zero for octal, or one that had underscores.
fn integer(digits: &str) -> Option<Value> {
    let unsigned = digits.trim_start_matches(['+', '-']);
    if digits.len() > unsigned.len() + 1 || !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let lower = unsigned.to_ascii_lowercase();
    let (radix, rest) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        Some(_) if lower.starts_with('0') && !lower.contains(['.', 'e']) => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let negative = digits.starts_with('-');
    match i128::from_str_radix(rest, radix) {
        Ok(number) => {
            let number = if negative { -number } else { number };
            i64::try_from(number)
                .map(Value::from)
                .or_else(|_| u64::try_from(number).map(Value::from))
                .ok()
        }
        // Such as 08, which is no octal number, or 1_000.5.
        Err(_) => digits.parse::<f64>().ok().and_then(whole_or_float),
    }
}

/// A floating-point number as JSON that came by way of Go: without a fraction it is an integer.
fn whole_or_float(float: f64) -> Option<Value> {
    const EXACT: f64 = 9e18;
    if float.fract() == 0.0 && float.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within range")]
        return Some(Value::from(float as i64));
    }
    Number::from_f64(float).map(Value::Number)
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Placed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Placed, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Placed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping, a list, text, a number, true, false or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Placed, E> {
        self.pay(1).map(|()| Value::Null.into())
    }

    /// An empty document.
    fn visit_none<E: de::Error>(self) -> Result<Placed, E> {
        self.visit_unit()
    }

    fn visit_bool<E: de::Error>(self, v: bool) -> Result<Placed, E> {
        self.pay(1).map(|()| Value::Bool(v).into())
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Placed, E> {
        self.pay(1).map(|()| Value::from(v).into())
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Placed, E> {
        self.pay(1).map(|()| Value::from(v).into())
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
        self.pay(1)?;
        whole_or_float(v).map(Placed::from).ok_or_else(|| {
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
        self.pay(v.len().saturating_add(1))?;
        Ok(self.scalar(v))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Placed, E> {
        self.pay(v.len().saturating_add(1))?;
        Ok(Placed {
            value: Value::from(v),
            place: None,
            plain: false,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Placed, A::Error> {
        self.pay(1)?;
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
        self.pay(1)?;
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
            // A number does not say where it stands; mostly on the line of its key.
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
    use serde_json::json;

    #[test]
    fn every_document_comes_out_and_empty_ones_do_not() {
        let text = b"# nothing\n---\na: 1\n---\n---\n- x\n- {y: off}\n";
        assert_eq!(
            documents(text).unwrap(),
            [json!({"a": 1}), json!(["x", {"y": "off"}])]
        );
    }

    #[test]
    fn a_text_of_nothing_has_no_documents() {
        for text in [
            "",
            "\n",
            "# nothing\n",
            "---\n",
            "---\n# nothing\n",
            "\u{feff}",
        ] {
            let found = documents(text.as_bytes()).unwrap();
            assert!(found.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn json_is_read_as_json() {
        let text = b"\n{\n\t\"a\": [1, 2.5, null, true]\n}\n";
        assert_eq!(
            documents(text).unwrap(),
            [json!({"a": [1, 2.5, null, true]})]
        );
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        assert_eq!(
            documents("\u{feff}a: 1".as_bytes()).unwrap(),
            [json!({"a": 1})]
        );
    }

    #[test]
    fn a_key_given_twice_is_named() {
        for text in [&b"a: 1\na: 2\n"[..], b"{\"a\": 1, \"a\": 2}"] {
            let error = documents(text).unwrap_err().to_string();
            assert!(error.contains("\"a\" is given twice"), "{error}");
        }
    }

    #[test]
    fn a_syntax_error_tells_document_and_place() {
        let error = documents(b"a: 1\n---\nb: [1\n").unwrap_err().to_string();
        assert!(error.starts_with("document 2: "), "{error}");
        assert!(error.contains("line"), "{error}");
    }

    #[test]
    fn an_alias_may_be_used_within_reason() {
        assert_eq!(
            documents(b"a: &x [1]\nb: *x\n").unwrap(),
            [json!({"a": [1], "b": [1]})]
        );
    }

    #[test]
    fn aliases_that_multiply_are_refused() {
        let nested = (1..9).fold("a0: &a0 [lol, lol]\n".to_owned(), |text, i| {
            let last = i - 1;
            format!("{text}a{i}: &a{i} [*a{last}, *a{last}, *a{last}, *a{last}, *a{last}]\n")
        });
        let wide = format!(
            "a: &a [{}1]\nb: [{}1]\n",
            "1, ".repeat(10_000),
            "*a, ".repeat(10_000)
        );
        let long = format!(
            "a: &a {}\nb: [{}1]\n",
            "x".repeat(100_000),
            "*a, ".repeat(10_000)
        );
        for text in [nested, wide, long] {
            let error = documents(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.contains("aliases") || error.contains("repetition"),
                "{error}"
            );
        }
    }

    #[test]
    fn an_alias_to_itself_is_refused() {
        assert!(documents(b"&a [*a]").is_err());
    }

    #[test]
    fn depth_is_refused_in_short_time() {
        for text in [
            "[".repeat(MAX_BYTES / 2),
            "{a: ".repeat(1 << 20),
            "- ".repeat(2000),
        ] {
            assert!(documents(text.as_bytes()).is_err());
        }
    }

    #[test]
    fn what_is_too_long_or_no_text_is_refused() {
        assert!(matches!(
            documents(&vec![b' '; MAX_BYTES + 1]),
            Err(YamlError::TooLong)
        ));
        assert!(matches!(
            documents(b"a: \xff"),
            Err(YamlError::NotUtf8 { valid_up_to: 3 })
        ));
    }

    #[test]
    fn a_plain_text_always_fits_its_budget() {
        let text =
            "a:\n".to_owned() + &"- \n".repeat(100_000) + "b: [" + &"1,".repeat(100_000) + "]\n";
        assert!(documents(text.as_bytes()).is_ok());
    }

    #[test]
    fn a_manifest_has_the_scalars_of_yaml_1_1() {
        let text = "[yes, 'yes', \"no\", !!str on, off, 010, 0o10, 0x10, 0b11, 1_000, 08, -012, 1.0, \
                    1e3, 1.5, ~, 1:30, 2020-01-01, y, -, +, 0x, nO]";
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
                "nO"
            ])
        );
    }

    #[test]
    fn a_manifest_tells_of_keys_given_twice_and_takes_the_last() {
        let text = "a: {b: 1, b: 2}\n\nc:\n  d: x\nc:\n  \"e\": 1\n  e: 2\non: 1\ntrue: 2\n";
        let Manifest { value, repeated } = manifest(text.as_bytes()).unwrap();
        assert_eq!(value, json!({"a": {"b": 2}, "c": {"e": 2}, "true": 2}));
        let told: Vec<_> = repeated.iter().map(|r| (r.line, r.key.as_str())).collect();
        assert_eq!(told[..3], [(1, "b"), (7, "e"), (6, "c")]);
        assert_eq!(told[3].1, "true");
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
