//! Writing JSON text, byte for byte as Go's encoder does.

use std::io::Write;

use serde_json::{Map, Number, Value};

use crate::schema::{Presence, Struct, Type, meta_v1::LIST_META};

/// The text of an object of `shape`: `kind`, `apiVersion`, then the fields in the table's order.
///
/// Keys that are not in the table come last. A text that is not `pretty` ends with a newline.
pub fn encode(shape: &Struct, object: &Value, pretty: bool) -> Vec<u8> {
    let mut writer = Writer::new(pretty);
    writer.object_of(shape, object, true);
    writer.finish()
}

/// The text of a list: `kind`, `apiVersion`, `metadata`, and `items` of `shape` without their own
/// `kind` and `apiVersion`.
pub fn encode_list<'a>(
    shape: &Struct,
    kind: &str,
    api_version: &str,
    metadata: &Value,
    items: impl IntoIterator<Item = &'a Value>,
    pretty: bool,
) -> Vec<u8> {
    let mut writer = Writer::new(pretty);
    writer.open(b'{');
    writer.key("kind");
    writer.text(kind);
    writer.key("apiVersion");
    writer.text(api_version);
    writer.key("metadata");
    writer.object_of(&LIST_META, metadata, false);
    writer.key("items");
    writer.open(b'[');
    for item in items {
        writer.separate();
        writer.object_of(shape, item, false);
    }
    writer.close(b']');
    writer.close(b'}');
    writer.finish()
}

/// The text of a document without a table: `kind`, `apiVersion` and `metadata` of the top level first, all
/// other keys in alphabetical order.
pub fn encode_plain(value: &Value, pretty: bool) -> Vec<u8> {
    const FIRST: [&str; 3] = ["kind", "apiVersion", "metadata"];
    let mut writer = Writer::new(pretty);
    match value {
        Value::Object(object) => {
            writer.open(b'{');
            for key in FIRST {
                writer.member(key, object.get(key));
            }
            for (key, value) in object {
                if !FIRST.contains(&key.as_str()) {
                    writer.member(key, Some(value));
                }
            }
            writer.close(b'}');
        }
        other => writer.value(other),
    }
    writer.finish()
}

/// The text of an object of `shape` within another: all fields in the table's order, no newline at its
/// end.
pub(crate) fn encode_part(shape: &Struct, object: &Value) -> Vec<u8> {
    let mut writer = Writer::new(false);
    writer.object_of(shape, object, false);
    writer.out
}

/// The text of raw JSON within a message or a document: no newline at its end.
pub fn encode_raw(value: &Value) -> Vec<u8> {
    let mut writer = Writer::new(false);
    writer.value(value);
    writer.out
}

/// The levels that are indented in pretty output.
const MOST_INDENTED: usize = 100;

struct Writer {
    out: Vec<u8>,
    pretty: bool,
    depth: usize,
    /// Nothing was written yet into the innermost open list or object.
    fresh: bool,
}

impl Writer {
    fn new(pretty: bool) -> Self {
        Self {
            out: Vec::with_capacity(1024),
            pretty,
            depth: 0,
            fresh: true,
        }
    }

    fn finish(mut self) -> Vec<u8> {
        // Go's `Encoder` writes a newline at the end. `MarshalIndent`, with which kube-apiserver indents, does not.
        if !self.pretty {
            self.out.push(b'\n');
        }
        self.out
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.depth += 1;
        self.fresh = true;
    }

    fn close(&mut self, bracket: u8) {
        self.depth -= 1;
        if !self.fresh {
            self.line();
        }
        self.out.push(bracket);
        self.fresh = false;
    }

    /// Before each item or key.
    fn separate(&mut self) {
        if !self.fresh {
            self.out.push(b',');
        }
        self.fresh = false;
        self.line();
    }

    fn line(&mut self) {
        if self.pretty {
            self.out.push(b'\n');
            // Not deeper, or a small document that nests deep would take hundreds of megabytes.
            let indented = self.depth.min(MOST_INDENTED);
            self.out.extend(std::iter::repeat_n(b' ', 2 * indented));
        }
    }

    fn key(&mut self, key: &str) {
        self.separate();
        self.text(key);
        self.out.push(b':');
        if self.pretty {
            self.out.push(b' ');
        }
    }

    fn member(&mut self, key: &str, value: Option<&Value>) {
        if let Some(value) = value {
            self.key(key);
            self.value(value);
        }
    }

    /// An object of a table, with its `kind` and `apiVersion` if it is a `top`.
    fn object_of(&mut self, shape: &Struct, value: &Value, top: bool) {
        const TYPE_META: [&str; 2] = ["kind", "apiVersion"];
        let Value::Object(object) = value else {
            return self.value(value);
        };
        self.open(b'{');
        if top {
            for key in TYPE_META {
                self.member(key, object.get(key));
            }
        }
        let meta = |key: &str| (top || shape.field(key).is_none()) && TYPE_META.contains(&key);
        for field in shape.fields.iter().filter(|field| !meta(field.name)) {
            if let Some(value) = object.get(field.name) {
                self.key(field.name);
                self.typed(&field.ty, value);
            } else if field.presence == Presence::Nullable {
                self.key(field.name);
                self.value(&Value::Null);
            }
        }
        for (key, value) in object {
            if shape.field(key).is_none() && !meta(key) {
                self.member(key, Some(value));
            }
        }
        self.close(b'}');
    }

    fn typed(&mut self, ty: &Type, value: &Value) {
        match (ty, value) {
            (Type::Object(shape), value) => self.object_of(shape, value, false),
            (Type::List(list), Value::Array(items)) => {
                self.open(b'[');
                for item in items {
                    self.separate();
                    self.typed(&list.item, item);
                }
                self.close(b']');
            }
            (Type::Map(map), Value::Object(entries)) => {
                self.open(b'{');
                for (key, value) in entries {
                    self.key(key);
                    self.typed(&map.value, value);
                }
                self.close(b'}');
            }
            (_, value) => self.value(value),
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => self.number(number),
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.open(b'[');
                for item in items {
                    self.separate();
                    self.value(item);
                }
                self.close(b']');
            }
            Value::Object(object) => self.members(object),
        }
    }

    fn members(&mut self, object: &Map<String, Value>) {
        self.open(b'{');
        for (key, value) in object {
            self.member(key, Some(value));
        }
        self.close(b'}');
    }

    fn number(&mut self, number: &Number) {
        let text = match number.as_f64().filter(|_| number.is_f64()) {
            Some(number) => fairgate_gotext::float::json(number),
            None => number.to_string(),
        };
        self.out.extend_from_slice(text.as_bytes());
    }

    fn text(&mut self, text: &str) {
        self.out.push(b'"');
        let mut start = 0;
        for (at, c) in text.char_indices() {
            if !matches!(
                c,
                // Besides what JSON requires, Go escapes what a browser could misread in HTML or in a script.
                '\0'..' ' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}'
            ) {
                continue;
            }
            self.out.extend_from_slice(&text.as_bytes()[start..at]);
            start = at + c.len_utf8();
            self.escape(c);
        }
        self.out.extend_from_slice(&text.as_bytes()[start..]);
        self.out.push(b'"');
    }

    fn escape(&mut self, c: char) {
        let short = match c {
            '"' => b"\\\"",
            '\\' => b"\\\\",
            '\x08' => b"\\b",
            '\x0c' => b"\\f",
            '\n' => b"\\n",
            '\r' => b"\\r",
            '\t' => b"\\t",
            c => {
                write!(self.out, "\\u{:04x}", u32::from(c))
                    .expect("writing to a vector cannot fail");
                return;
            }
        };
        self.out.extend_from_slice(short);
    }
}
