//! Whether a value fits its table, with kube-apiserver's messages.
//!
//! Null fits everywhere. All numbers fit all number types, and a time may be any scalar: decoding
//! the object is stricter. Lists within atomic lists are checked as well.
//!
//! A value is only followed as far as its table goes, so the depth is bounded by the table's.

use std::{collections::BTreeSet, fmt, fmt::Write as _};

use serde_json::{Map, Value};

use super::{
    path::PathElement,
    shape::{MergeKind, ValueType, field_type, item_step, item_type, merge_kind},
};
use crate::custom::CustomType;
use crate::go;
use crate::schema::Type;

/// All values that do not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaErrors(Vec<String>);

impl fmt::Display for SchemaErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "errors:\n  {}", several.join("\n  ")),
        }
    }
}

/// Whether a list may hold several items of one key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DuplicateItems {
    /// Stored objects may have them.
    Allowed,
    /// Applied objects may not.
    Refused,
}

/// Bytes of errors after which a check ends. Each has the path of its value, and clients choose names in it: without a bound a long one is
/// repeated for each of many values.
const MOST_TEXT: usize = 256 << 10;

/// Checks a value against its type.
///
/// # Errors
///
/// All values that do not fit, but only the first unknown field of each object, and no more after [`MOST_TEXT`].
pub(super) fn validate(
    ty: ValueType<'_>,
    value: &Value,
    duplicates: DuplicateItems,
) -> Result<(), SchemaErrors> {
    let mut check = Check {
        path: String::new(),
        misfits: Vec::new(),
        text: 0,
        duplicates,
    };
    check.value(ty, value);
    if check.misfits.is_empty() {
        Ok(())
    } else {
        Err(SchemaErrors(check.misfits))
    }
}

struct Check {
    path: String,
    misfits: Vec<String>,
    /// Bytes of these.
    text: usize,
    duplicates: DuplicateItems,
}

impl Check {
    fn value(&mut self, ty: ValueType<'_>, value: &Value) {
        if self.text >= MOST_TEXT {
            return;
        }
        match ty {
            ValueType::Table(table) => self.by_table(table, value),
            ValueType::Custom(custom) => match custom.scalar() {
                Some(table) => self.by_table(table, value),
                None => self.by_schema(custom, value),
            },
        }
    }

    fn by_schema(&mut self, custom: CustomType<'_>, value: &Value) {
        if custom.allows_all() {
            return;
        }
        let ty = ValueType::Custom(custom);
        match value {
            Value::Null => {}
            Value::Object(fields) if custom.allows(true) => self.fields(ty, fields),
            Value::Array(items) if custom.allows(false) => self.list(ty, items),
            _ if custom.allows_scalars() => {}
            other if custom.allows(true) => self.unexpected("map", other),
            other => self.unexpected("list", other),
        }
    }

    fn by_table(&mut self, table: Type, value: &Value) {
        let ty = ValueType::Table(table);
        match (table, value) {
            (_, Value::Null)
            | (Type::Raw | Type::RawExtension, _)
            | (Type::Text | Type::Bytes, Value::String(_))
            | (Type::Int32 | Type::Int64, Value::Number(_))
            | (Type::Flag, Value::Bool(_))
            | (
                Type::Time | Type::MicroTime | Type::IntOrString | Type::Quantity,
                Value::String(_) | Value::Number(_) | Value::Bool(_),
            ) => {}
            (Type::Text | Type::Bytes, other) => self.misfit(&format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                go::GoSource(other)
            )),
            (Type::Int32 | Type::Int64, other) => self.misfit(&format!(
                "expected numeric (int or float), got {}",
                go::type_name(other)
            )),
            (Type::Flag, other) => self.unexpected("boolean", other),
            (Type::Time | Type::MicroTime | Type::IntOrString | Type::Quantity, other) => {
                self.unexpected("any scalar", other);
            }
            (Type::List(_), Value::Array(items)) => self.list(ty, items),
            (Type::List(_), other) => self.unexpected("list", other),
            (Type::Object(_) | Type::Map(_), Value::Object(fields)) => self.fields(ty, fields),
            (Type::Object(_) | Type::Map(_), other) => self.unexpected("map", other),
        }
    }

    fn fields(&mut self, ty: ValueType<'_>, fields: &Map<String, Value>) {
        let mut unknown = None;
        for (name, value) in fields {
            match field_type(ty, name) {
                Some(ty) => self.at(&PathElement::name(name), |check| check.value(ty, value)),
                None => unknown = unknown.or(Some(name)),
            }
        }
        if let Some(name) = unknown {
            self.at(&PathElement::name(name), |check| {
                check.misfit("field not declared in schema");
            });
        }
    }

    fn list(&mut self, ty: ValueType<'_>, items: &[Value]) {
        let list = match merge_kind(ty, Some(&Value::Array(Vec::new()))) {
            MergeKind::Items(list) => Some(list),
            _ => None,
        };
        let Some(item_type) = item_type(ty) else {
            return;
        };
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = match list.map(|list| item_step(list, item)) {
                None => PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)),
                Some(Ok(step)) => step,
                Some(Err(why)) => {
                    self.misfit(&format!("element {index}: {why}"));
                    return;
                }
            };
            if self.duplicates == DuplicateItems::Refused && !seen.insert(step.clone()) {
                self.misfit(&format!("duplicate entries for key {step}"));
            }
            self.at(&step, |check| check.value(item_type, item));
        }
    }

    fn at(&mut self, step: &PathElement, f: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        let _ = write!(self.path, "{step}");
        f(self);
        self.path.truncate(length);
    }

    fn unexpected(&mut self, wanted: &str, got: &Value) {
        self.misfit(&format!("expected {wanted}, got &{{{}}}", go::Plain(got)));
    }

    fn misfit(&mut self, text: &str) {
        if self.text >= MOST_TEXT {
            return;
        }
        let misfit = if self.path.is_empty() {
            text.to_owned()
        } else {
            format!("{}: {text}", self.path)
        };
        self.text += misfit.len();
        self.misfits.push(misfit);
    }
}
