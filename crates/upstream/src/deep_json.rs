//! Reads JSON that nests as deep as an API server stores it.
//!
//! `serde_json` by itself reads 128 levels. An API server takes 10 000 of clients, and sends such objects to whoever lists or watches
//! them, with a few levels around them. Each thread that reads them has the stack for that (`fairgate_base::stack`).

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};

/// How deep a document may nest: what a server takes of an object, and the list around it.
const MAX_DEPTH: usize = 10_010;

/// The name by which `serde_json` recognizes that a value is wanted as its text.
const RAW: &str = "$serde_json::private::RawValue";

/// Reads a document. It may nest 10 010 levels deep.
///
/// # Errors
///
/// If it is not JSON, nests deeper, or is not what is expected.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    if !is_shallow(text) {
        return Err(serde_json::Error::custom("it nests too deep"));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    reader.disable_recursion_limit();
    let read = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(read)
}

/// Whether a text nests no deeper than [`MAX_DEPTH`]. Costs one pass over it.
fn is_shallow(text: &[u8]) -> bool {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for byte in text {
        if in_string {
            in_string = *byte != b'"' || is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return false;
        }
    }
    true
}

/// A value within a document that somebody else reads, as a client of an API does its lists and watches: it may nest deep all the same.
///
/// Where that reader keeps the value before it knows what to read it as, `serde` has read it by then, and 128 levels are all.
#[derive(Clone, Debug, PartialEq)]
pub struct DeepValue(pub Value);

impl<'de> Deserialize<'de> for DeepValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_newtype_struct(RAW, DeepVisitor).map(Self)
    }
}

struct DeepVisitor;

impl<'de> Visitor<'de> for DeepVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    /// The text, which `serde_json` finds without recursion.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        let text = Box::<RawValue>::deserialize(MapAccessDeserializer::new(map))?;
        read(text.get().as_bytes()).map_err(A::Error::custom)
    }

    /// What has been read before.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        Value::deserialize(from)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use fairgate_base::stack::STACK_BYTES;
    use serde_json::json;

    use super::*;

    /// Lists in lists.
    fn nested(levels: usize) -> String {
        "[".repeat(levels) + &"]".repeat(levels)
    }

    fn depth(mut value: &Value) -> usize {
        let mut levels = 0;
        while let Some(list) = value.as_array() {
            levels += 1;
            let Some(inner) = list.first() else { break };
            value = inner;
        }
        levels
    }

    fn on_half_of_the_stack(test: impl FnOnce() + Send + 'static) {
        let thread = thread::Builder::new().stack_size(STACK_BYTES / 2);
        thread.spawn(test).unwrap().join().unwrap();
    }

    #[test]
    fn a_document_may_nest_as_deep_as_a_server_takes_it_and_no_deeper() {
        on_half_of_the_stack(|| {
            let read = |levels| read::<Value>(nested(levels).as_bytes());
            for levels in [1, 127, 128, 129, 10_000, MAX_DEPTH] {
                assert_eq!(depth(&read(levels).unwrap()), levels);
            }
            for levels in [MAX_DEPTH + 1, 1 << 20] {
                let error = read(levels).unwrap_err().to_string();
                assert!(error.contains("nests too deep"), "{error}");
            }
        });
    }

    #[test]
    fn a_value_within_another_document_may_nest_deep() {
        #[derive(Deserialize)]
        struct Page {
            items: Vec<DeepValue>,
        }
        on_half_of_the_stack(|| {
            let text = format!("{{\"items\": [{}, 7]}}", nested(10_000));
            let page: Page = serde_json::from_str(&text).unwrap();
            assert_eq!(depth(&page.items[0].0), 10_000);
            assert_eq!(page.items[1].0, json!(7));
        });
    }

    #[test]
    fn a_value_that_was_read_before_is_taken_as_it_is() {
        #[derive(Deserialize)]
        #[serde(tag = "type", content = "object")]
        enum Sent {
            Added(DeepValue),
        }
        let object = json!({"metadata": {"name": "a"}, "list": [1, null, 2.5]});
        for text in [
            format!("{{\"type\": \"Added\", \"object\": {object}}}"),
            format!("{{\"object\": {object}, \"type\": \"Added\"}}"),
        ] {
            let Sent::Added(found) = serde_json::from_str(&text).unwrap();
            assert_eq!(found.0, object);
        }
        let found: DeepValue = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(found.0, object);
    }

    #[test]
    fn brackets_in_strings_are_no_levels() {
        let inner = "[".repeat(MAX_DEPTH + 1);
        for text in [
            json!([inner]).to_string(),
            format!("[\"\\\"{inner}\"]"),
            format!("[\"\\\\\", \"{inner}\"]"),
        ] {
            assert!(read::<Value>(text.as_bytes()).is_ok());
        }
        let not_closed = format!("[\"\\\\\", {inner}");
        assert!(!is_shallow(not_closed.as_bytes()));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in ["", "[", "[1] 2", "{\"a\"}", "\"\\"] {
            assert!(read::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }
}
