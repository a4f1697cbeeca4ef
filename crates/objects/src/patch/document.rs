//! A document to which the operations of a JSON patch are applied.
//!
//! An operation has a JSON pointer. kube-apiserver's library interprets pointers in its own way, on
//! which clients may rely: it ignores what comes before the first slash, counts negative indices
//! from the end, reads a missing member of an object as null, and adds a missing member that is to
//! be replaced.

use std::io;

use serde_json::Value;

use super::unescape;
use crate::codec::json::MAX_DEPTH;

/// The limit for the growth of a document by all copies of one patch, in bytes of JSON.
const MAX_COPIED: usize = 3 * 1024 * 1024;
/// The limit for the number of items that one patch may shift, and values it may move. It is far
/// beyond any use, and prevents that ten thousand operations on one huge list take minutes.
const MAX_WORK: usize = 16 * 1024 * 1024;

/// How many levels a patched document may nest beyond [`MAX_DEPTH`], which is found out when all operations are applied, as in the server.
const MAX_EXCESS: usize = 100;

/// An operation does not fit the document. The response does not say why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DoesNotApply;

/// A document that is being patched.
#[derive(Debug)]
pub(super) struct JsonDocument {
    pub(super) root: Value,
    copied: usize,
    work: usize,
}

impl JsonDocument {
    pub(super) fn new(root: Value) -> Self {
        Self {
            root,
            copied: 0,
            work: 0,
        }
    }

    /// Adds a value: a member, replacing one that is there, or an item, before the one at its index.
    pub(super) fn add(&mut self, pointer: &str, value: Value) -> Result<(), DoesNotApply> {
        check_depth(pointer, &value)?;
        let (container, key) = find(&mut self.root, pointer).ok_or(DoesNotApply)?;
        match container {
            Value::Object(map) => {
                map.insert(key, value);
            }
            Value::Array(items) => {
                let at = match key.as_str() {
                    "-" => items.len(),
                    key => gap(key, items.len()).ok_or(DoesNotApply)?,
                };
                self.work += items.len() - at;
                items.insert(at, value);
            }
            _ => return Err(DoesNotApply),
        }
        self.check_work()
    }

    /// Replaces an item, a member, or the whole document.
    pub(super) fn replace(&mut self, pointer: &str, value: Value) -> Result<(), DoesNotApply> {
        if pointer.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                return Err(DoesNotApply);
            }
            self.root = value;
            return Ok(());
        }
        check_depth(pointer, &value)?;
        let (container, key) = find(&mut self.root, pointer).ok_or(DoesNotApply)?;
        match container {
            Value::Object(map) => {
                map.insert(key, value);
            }
            Value::Array(items) => {
                let at = index(&key, items.len()).ok_or(DoesNotApply)?;
                items[at] = value;
            }
            _ => return Err(DoesNotApply),
        }
        Ok(())
    }

    /// Removes an item or a member, which must exist.
    pub(super) fn remove(&mut self, pointer: &str) -> Result<Value, DoesNotApply> {
        let (container, key) = find(&mut self.root, pointer).ok_or(DoesNotApply)?;
        let value = match container {
            Value::Object(map) => map.remove(&key).ok_or(DoesNotApply)?,
            Value::Array(items) => {
                let at = index(&key, items.len()).ok_or(DoesNotApply)?;
                self.work += items.len() - at;
                items.remove(at)
            }
            _ => return Err(DoesNotApply),
        };
        self.check_work()?;
        Ok(value)
    }

    /// Removes a value from one place and adds it at another.
    pub(super) fn move_to(&mut self, from: &str, pointer: &str) -> Result<(), DoesNotApply> {
        let value = self.remove(from)?;
        self.work += size_within(&value, MAX_WORK - self.work).ok_or(DoesNotApply)?;
        self.add(pointer, value)
    }

    /// Adds a copy of a value at another place; what is missing in an object is copied as null.
    pub(super) fn copy_to(&mut self, from: &str, pointer: &str) -> Result<(), DoesNotApply> {
        let left = MAX_COPIED - self.copied;
        let value = self.get(from)?;
        let size = size_within(value, left).ok_or(DoesNotApply)?;
        let value = value.clone();
        self.copied += size;
        self.add(pointer, value)
    }

    /// Checks that a value, or the whole document, is equal to `value`. A null is also equal to a
    /// missing member of an object; without a `value`, a member must be null or missing, and the whole document is never
    /// equal.
    pub(super) fn test(
        &mut self,
        pointer: &str,
        value: Option<&Value>,
    ) -> Result<(), DoesNotApply> {
        let holds = if pointer.is_empty() {
            Some(&self.root) == value
        } else {
            self.get(pointer)? == value.unwrap_or(&Value::Null)
        };
        holds.then_some(()).ok_or(DoesNotApply)
    }

    fn get(&mut self, pointer: &str) -> Result<&Value, DoesNotApply> {
        let (container, key) = find(&mut self.root, pointer).ok_or(DoesNotApply)?;
        match container {
            Value::Object(map) => Ok(map.get(&key).unwrap_or(&Value::Null)),
            Value::Array(items) => {
                let at = index(&key, items.len()).ok_or(DoesNotApply)?;
                Ok(&items[at])
            }
            _ => Err(DoesNotApply),
        }
    }

    /// The bracket that opens the first object or list beyond [`MAX_DEPTH`], in the order of the text; none if the document is not as deep.
    pub(super) fn too_deep(&self) -> Option<u8> {
        beyond(&self.root, MAX_DEPTH)
    }

    fn check_work(&self) -> Result<(), DoesNotApply> {
        if self.work > MAX_WORK {
            return Err(DoesNotApply);
        }
        Ok(())
    }
}

/// Refuses a value that would make the document too deep for the code that recurses over it later.
fn check_depth(pointer: &str, value: &Value) -> Result<(), DoesNotApply> {
    let above = pointer.matches('/').count();
    let room = (MAX_DEPTH + MAX_EXCESS)
        .checked_sub(above)
        .ok_or(DoesNotApply)?;
    match beyond(value, room) {
        None => Ok(()),
        Some(_) => Err(DoesNotApply),
    }
}

/// Finds the object or list that holds what a pointer points to, and the key or index there.
fn find<'v>(root: &'v mut Value, pointer: &str) -> Option<(&'v mut Value, String)> {
    let (_, tokens) = pointer.split_once('/')?;
    let (parents, key) = match tokens.rsplit_once('/') {
        Some((parents, key)) => (Some(parents), key),
        None => (None, tokens),
    };
    let mut value = root;
    for token in parents.into_iter().flat_map(|parents| parents.split('/')) {
        let token = unescape(token);
        value = match value {
            Value::Object(map) => map.get_mut(&*token)?,
            Value::Array(items) => {
                let at = index(&token, items.len())?;
                &mut items[at]
            }
            _ => return None,
        };
    }
    Some((value, unescape(key).into_owned()))
}

/// Reads the index of an item of a list of this length; a negative one counts from the end.
fn index(text: &str, length: usize) -> Option<usize> {
    gap(text, length.checked_sub(1)?)
}

/// Reads the index of a gap between the items of a list of this length, both ends included; of
/// negative ones, -1 is the last.
fn gap(text: &str, length: usize) -> Option<usize> {
    let number: i64 = text.parse().ok()?;
    let at = if let Ok(at) = usize::try_from(number) {
        at
    } else {
        let back = usize::try_from(number.unsigned_abs()).ok()?;
        (length + 1).checked_sub(back)?
    };
    (at <= length).then_some(at)
}

/// The bracket of the first list or object in a value of which more than `room` are open at once; none if there is none.
fn beyond(value: &Value, room: usize) -> Option<u8> {
    let inside = room.checked_sub(1);
    match (value, inside) {
        (Value::Array(_), None) => Some(b'['),
        (Value::Object(_), None) => Some(b'{'),
        (Value::Array(items), Some(inside)) => items.iter().find_map(|item| beyond(item, inside)),
        (Value::Object(map), Some(inside)) => {
            map.values().find_map(|member| beyond(member, inside))
        }
        _ => None,
    }
}

/// The length of a value as Go's JSON, unless it exceeds `limit`; then counting stops early.
fn size_within(value: &Value, limit: usize) -> Option<usize> {
    let mut counter = LengthCounter { left: limit };
    serde_json::to_writer(&mut counter, value).ok()?;
    Some(limit - counter.left)
}

/// Counts the bytes that are written to it, as many as are `left`.
struct LengthCounter {
    left: usize,
}

impl io::Write for LengthCounter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        // A character that Go escapes takes six bytes: five more than one, or three more than three.
        let escaped = text.iter().filter(|byte| b"<>&".contains(byte)).count() * 5;
        let separators = text
            .windows(3)
            .filter(|bytes| matches!(bytes, [0xe2, 0x80, 0xa8 | 0xa9]))
            .count();
        let left = self.left.checked_sub(text.len() + escaped + separators * 3);
        self.left = left.ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{deep_documents::on_half_of_the_stack, go};

    #[test]
    fn indices_count_from_either_end() {
        assert_eq!(index("0", 2), Some(0));
        assert_eq!(index("-1", 2), Some(1));
        assert_eq!(index("-2", 2), Some(0));
        assert_eq!(index("-3", 2), None);
        assert_eq!(index("2", 2), None);
        assert_eq!(index("0", 0), None);
        assert_eq!(index("", 2), None);
        assert_eq!(gap("2", 2), Some(2));
        assert_eq!(gap("-1", 2), Some(2));
        assert_eq!(gap("-3", 2), Some(0));
        assert_eq!(gap("-9223372036854775808", 2), None);
        assert_eq!(gap("99999999999999999999", 2), None);
    }

    #[test]
    fn sizes_are_those_of_go() {
        let value = json!({"a": "<\u{2028}x>"});
        assert_eq!(size_within(&value, 1000), Some(go::json(&value).len()));
        assert_eq!(size_within(&value, 10), None);
    }

    #[test]
    fn copies_into_themselves_do_not_nest_without_end() {
        on_half_of_the_stack(|| {
            let mut document = JsonDocument::new(json!({"a": {"b": {}}}));
            let mut place = String::from("/a");
            let mut steps = 0;
            while document.copy_to("/a", &format!("{place}/b")).is_ok() {
                place.push_str("/b");
                steps += 1;
            }
            assert!(steps > 5);
            assert!(beyond(&document.root, MAX_DEPTH + MAX_EXCESS).is_none());
        });
    }

    #[test]
    fn the_work_on_one_huge_list_is_bounded() {
        let mut document = JsonDocument::new(json!({"a": vec![0; 100_000]}));
        let done = (0..10_000)
            .take_while(|_| document.add("/a/0", json!(0)).is_ok())
            .count();
        assert!((100..200).contains(&done), "{done}");
    }
}
