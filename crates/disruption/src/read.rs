//! Reading fields of objects that an API server sent.
//!
//! Absent and null fields are empty, as in Go. A field of a wrong type is an error: ignoring it could
//! allow one disruption too many.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The error of an object with a field of a wrong type, or without a required field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is not {expected}")]
pub struct MalformedObject {
    /// The path of the field, such as `metadata.name`.
    pub field: String,
    /// What the field should be, such as `a string`.
    pub expected: &'static str,
}

/// A value and its path in the object.
#[derive(Clone, Copy)]
pub(crate) struct ObjectField<'v, 'p> {
    value: &'v Value,
    parent: Option<&'p ObjectField<'v, 'p>>,
    name: &'static str,
}

static NULL: Value = Value::Null;

impl<'v> ObjectField<'v, '_> {
    /// The whole object.
    pub(crate) fn root(value: &'v Value) -> Self {
        Self {
            value,
            parent: None,
            name: "",
        }
    }

    pub(crate) fn value(&self) -> &'v Value {
        self.value
    }

    pub(crate) fn path(&self) -> String {
        match self.parent {
            Some(parent) if parent.parent.is_some() => format!("{}.{}", parent.path(), self.name),
            _ => self.name.to_owned(),
        }
    }

    fn wrong(&self, expected: &'static str) -> MalformedObject {
        MalformedObject {
            field: self.path(),
            expected,
        }
    }

    /// A member of this object; null if either is absent.
    pub(crate) fn get<'q>(
        &'q self,
        name: &'static str,
    ) -> Result<ObjectField<'v, 'q>, MalformedObject> {
        let value = self.map()?.and_then(|map| map.get(name)).unwrap_or(&NULL);
        Ok(ObjectField {
            value,
            parent: Some(self),
            name,
        })
    }

    pub(crate) fn map(&self) -> Result<Option<&'v Map<String, Value>>, MalformedObject> {
        match self.value {
            Value::Object(map) => Ok(Some(map)),
            Value::Null => Ok(None),
            _ => Err(self.wrong("an object")),
        }
    }

    pub(crate) fn list(&self) -> Result<&'v [Value], MalformedObject> {
        match self.value {
            Value::Array(list) => Ok(list),
            Value::Null => Ok(&[]),
            _ => Err(self.wrong("a list")),
        }
    }

    /// A string; `None` if absent.
    pub(crate) fn optional_text(&self) -> Result<Option<&'v str>, MalformedObject> {
        match self.value {
            Value::String(text) => Ok(Some(text)),
            Value::Null => Ok(None),
            _ => Err(self.wrong("a string")),
        }
    }

    /// A string; empty if absent.
    pub(crate) fn text(&self) -> Result<&'v str, MalformedObject> {
        Ok(self.optional_text()?.unwrap_or_default())
    }

    /// A string that must be present and not empty.
    pub(crate) fn required_text(&self) -> Result<&'v str, MalformedObject> {
        match self.text()? {
            "" => Err(self.wrong("a string that is not empty")),
            text => Ok(text),
        }
    }

    pub(crate) fn flag(&self) -> Result<Option<bool>, MalformedObject> {
        match self.value {
            Value::Bool(flag) => Ok(Some(*flag)),
            Value::Null => Ok(None),
            _ => Err(self.wrong("a boolean")),
        }
    }

    /// An integer; 0 if absent.
    pub(crate) fn integer(&self) -> Result<i64, MalformedObject> {
        match self.value {
            Value::Null => Ok(0),
            value => value.as_i64().ok_or_else(|| self.wrong("an integer")),
        }
    }

    /// An integer of 32 bits; 0 if absent.
    pub(crate) fn counter(&self) -> Result<i32, MalformedObject> {
        i32::try_from(self.integer()?).map_err(|_| self.wrong("an integer of 32 bits"))
    }

    /// An RFC 3339 time; `None` if absent.
    pub(crate) fn time(&self) -> Result<Option<Timestamp>, MalformedObject> {
        let Some(text) = self.optional_text()? else {
            return Ok(None);
        };
        match text.parse() {
            Ok(time) => Ok(Some(time)),
            Err(_) => Err(self.wrong("an RFC 3339 time")),
        }
    }
}

/// A time as API objects store it, truncated to whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_fields_are_empty_and_wrong_ones_are_named() {
        let object = json!({"metadata": {"name": 5, "labels": null}, "spec": []});
        let root = ObjectField::root(&object);
        let metadata = root.get("metadata").unwrap();
        assert_eq!(metadata.get("labels").unwrap().map(), Ok(None));
        assert_eq!(metadata.get("uid").unwrap().text(), Ok(""));
        let error = metadata.get("name").unwrap().text().unwrap_err();
        assert_eq!(error.to_string(), "metadata.name is not a string");
        let error = root.get("spec").unwrap().map().unwrap_err();
        assert_eq!(error.to_string(), "spec is not an object");
    }
}
