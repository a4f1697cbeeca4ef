//! Object literals, such as `kubernetes.UserInfo{username: 'x'}`. They are checked as in Go, although none can be
//! evaluated.

use super::{Checker, CheckerScope, Expr, ExprId};
use crate::source::CodePosition;
use crate::types::CelType;

/// Messages of protocol buffers, which the crate does not support.
const MESSAGES: &str = "google.protobuf.";
const TIMESTAMP: &str = "google.protobuf.Timestamp";
const DURATION: &str = "google.protobuf.Duration";
/// The types of messages that stand for any value, and for one that may be null. There are no values of them.
const ANY: &str = "any";
const WRAPPER: &str = "wrapper";

/// What an object literal says about its name.
struct NamedType {
    /// The name in the container.
    name: String,
    of: CelType,
}

/// The type of a field.
enum FieldType {
    Known(CelType),
    /// The type of the literal has no such field.
    Undefined,
    /// The type of the literal is none that can have fields.
    Unresolved,
}

impl CheckerScope {
    /// A type whose name is known while types are checked, but not later: one with declared fields, and messages that
    /// stand for other types.
    pub(super) fn checked_only(&self, name: &str) -> Option<CelType> {
        if let Some(object) = self.objects.get(name) {
            return Some(CelType::Object(object.name.clone()));
        }
        let wrapper = |of| Some(CelType::opaque_with(WRAPPER, [of]));
        match name.strip_prefix(MESSAGES) {
            Some("Any") => Some(CelType::opaque(ANY)),
            Some("ListValue") => Some(CelType::list(CelType::Dyn)),
            Some("Struct") => Some(CelType::map(CelType::String, CelType::Dyn)),
            Some("Value") => Some(CelType::Dyn),
            Some("BoolValue") => wrapper(CelType::Bool),
            Some("BytesValue") => wrapper(CelType::Bytes),
            Some("DoubleValue" | "FloatValue") => wrapper(CelType::Double),
            Some("Int32Value" | "Int64Value") => wrapper(CelType::Int),
            Some("StringValue") => wrapper(CelType::String),
            Some("UInt32Value" | "UInt64Value") => wrapper(CelType::Uint),
            None if !self.basic_types_are_objects => None,
            None if name == "timestamp" => Some(CelType::Timestamp),
            None if name == "duration" => Some(CelType::Duration),
            _ => None,
        }
    }

    /// The type of a field of an object literal of the type `object`.
    fn literal_field(&self, object: &str, field: &str) -> FieldType {
        let fields = self.objects.get(object).map(|object| &object.fields);
        match (object, fields) {
            (_, Some(fields)) => match fields.get(field) {
                Some(of) => FieldType::Known(of.clone()),
                None => FieldType::Undefined,
            },
            (TIMESTAMP | DURATION, _) if ["seconds", "nanos"].contains(&field) => {
                FieldType::Known(CelType::Int)
            }
            (TIMESTAMP | DURATION, _) => FieldType::Undefined,
            ("map", _) if self.basic_types_are_objects => FieldType::Known(CelType::Dyn),
            ("bool" | "bytes" | "double" | "int" | "list" | "string" | "uint", _)
                if self.basic_types_are_objects =>
            {
                FieldType::Undefined
            }
            _ => FieldType::Unresolved,
        }
    }
}

impl Checker<'_> {
    pub(super) fn check_object(&mut self, id: ExprId) {
        let Expr::Object { name, fields } = self.ast.expr(id) else {
            return;
        };
        let Some(found) = self.named_type(name) else {
            self.undeclared(id, name);
            return;
        };
        let object = self.literal_type(id, found);
        for field in fields {
            self.check(field.value);
            let mut of = self.type_of(field.value);
            if field.optional {
                of = self.unwrap_optional(field.value, of);
            }
            let name = &field.name;
            let message = match self.scope.literal_field(&object, name) {
                FieldType::Known(expected) if self.substitutions.assign(&expected, &of) => continue,
                FieldType::Known(expected) => format!(
                    "expected type of field '{name}' is '{expected}' but provided type is '{of}'"
                ),
                FieldType::Undefined => format!("undefined field '{name}'"),
                FieldType::Unresolved => format!("unexpected failed resolution of '{object}'"),
            };
            self.issues.report(CodePosition::at(field.offset), message);
        }
    }

    /// What the name of an object literal refers to.
    fn named_type(&self, name: &str) -> Option<NamedType> {
        if name.trim_start_matches('.').starts_with(MESSAGES) {
            return None;
        }
        self.candidates(name).into_iter().find_map(|name| {
            let (of, _) = self.declared(&name)?;
            Some(NamedType { name, of })
        })
    }

    /// Sets the type of an object literal. Returns the name of the type that has its fields.
    fn literal_type(&mut self, id: ExprId, named: NamedType) -> String {
        let NamedType { name, of } = named;
        let of = self.substitutions.substitute(&of, false);
        let (result, message) = match &of {
            CelType::Error => (None, None),
            CelType::Type(_) => match of.parameters() {
                [
                    found @ (CelType::Timestamp
                    | CelType::Duration
                    | CelType::Null
                    | CelType::Object(_)),
                ] => (Some(found.clone()), None),
                [found, ..] => {
                    let message = format!("'{}' is not a message type", found.runtime_name());
                    (None, Some(message))
                }
                [] => (None, Some("'type' is not a message type".to_owned())),
            },
            _ => (None, Some(format!("'{}' is not a type", of.runtime_name()))),
        };
        if let Some(message) = message {
            self.report(id, message);
        }
        let Some(result) = result else {
            self.set_type(id, CelType::Error);
            return name;
        };
        let object = match &result {
            CelType::Null => "google.protobuf.NullValue",
            of => of.runtime_name(),
        };
        let object = object.to_owned();
        self.set_type(id, result);
        object
    }
}
