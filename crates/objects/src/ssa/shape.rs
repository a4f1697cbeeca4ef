//! What field ownership needs of the schema tables: steps, and the types of the values they lead
//! to.
//!
//! Not here: the tables ([`crate::schema`]).

use serde_json::{Map, Value};

use super::{
    path::{PathElement, Scalar},
    path_set::PathSet,
};
use crate::schema::{Field, List, Presence, Struct, Topology, Type, canonical::complete};
use fairgate_gotext::Quoted;

/// How values of a type are merged and owned.
#[derive(Clone, Copy)]
pub(super) enum MergeKind {
    /// As a whole: scalars, atomic lists and objects, free-form JSON.
    Leaf,
    /// Field by field, or key by key.
    Object,
    /// Item by item.
    Items(&'static List),
}

/// The merge kind of a type.
pub(super) fn merge_kind(ty: &Type) -> MergeKind {
    match ty {
        Type::Object(shape) if !shape.atomic => MergeKind::Object,
        Type::Map(map) if !map.atomic => MergeKind::Object,
        Type::List(list) if list.topology != Topology::Atomic => MergeKind::Items(list),
        _ => MergeKind::Leaf,
    }
}

/// The field of a struct that a step leads to; `None` for keys of maps.
pub(super) fn declared(ty: &Type, name: &str) -> Option<&'static Field> {
    match ty {
        Type::Object(shape) => shape.field(name),
        _ => None,
    }
}

/// The type of a field or of a map's values.
pub(super) fn field_type(ty: &Type, name: &str) -> Option<&'static Type> {
    match ty {
        Type::Object(shape) => shape.field(name).map(|field| &field.ty),
        Type::Map(map) => Some(&map.value),
        _ => None,
    }
}

/// The type that a step of a stored set leads to. The step may not fit the table any more.
pub(super) fn step_type(ty: &Type, step: &PathElement) -> Option<&'static Type> {
    match (ty, step) {
        (Type::Object(_) | Type::Map(_), PathElement::Name(name)) => field_type(ty, name),
        (Type::Map(map), _) => Some(&map.value),
        (Type::List(list), _) => Some(&list.item),
        _ => None,
    }
}

/// The fields of an object; none if it has none, or is something else.
pub(super) fn fields(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value
        .and_then(Value::as_object)
        .filter(|fields| !fields.is_empty())
}

/// The items of a list; none if it is something else.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The step to an item of a list that is not atomic.
///
/// # Errors
///
/// The message for an invalid item.
pub(super) fn item_step(list: &List, item: &Value) -> Result<PathElement, String> {
    match list.topology {
        Topology::Map(keys) => key_step(list, keys, item),
        _ => match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => Err(
                "associative list without keys has an element that's an explicit null".to_owned(),
            ),
            scalar => Ok(PathElement::Item(Scalar(scalar.clone()))),
        },
    }
}

fn key_step(list: &List, keys: &[&str], item: &Value) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut key: Vec<_> = keys
        .iter()
        .filter_map(|name| {
            let value = fields.get(*name).cloned();
            let value = value.or_else(|| default_of(declared(&list.item, name)?))?;
            Some(((*name).to_owned(), Scalar(value)))
        })
        .collect();
    if key.is_empty() {
        let keys: Vec<_> = keys.iter().map(|name| Quoted(name).to_string()).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't \
             have default values for any key fields)",
            keys.join(" ")
        ));
    }
    key.sort();
    Ok(PathElement::Key(key))
}

/// The default of a key field in the published schema: one of its own, or the zero value if the field
/// is always present.
fn default_of(field: &Field) -> Option<Value> {
    if let Some(default) = field.default {
        return serde_json::from_str(default).ok();
    }
    if field.presence != Presence::Always {
        return None;
    }
    match field.ty {
        Type::Text => Some("".into()),
        Type::Int32 | Type::Int64 => Some(0.into()),
        Type::Flag => Some(false.into()),
        _ => None,
    }
}

/// The object without any field that a manager set: only fields that are always present.
pub(super) fn zero(shape: &Struct) -> Value {
    let mut object = Map::new();
    complete(shape, &mut object);
    Value::Object(object)
}

/// The set with every struct field added that has members below it.
///
/// The set of what an applier no longer applies has only leaves; this removes structs that have
/// lost all of them.
pub(super) fn with_struct_fields(set: &PathSet, ty: Option<&Type>) -> PathSet {
    let mut out = PathSet::default();
    for (step, node) in set.iter() {
        let is_field = match (ty, step) {
            (Some(ty), PathElement::Name(name)) => declared(ty, name).is_some(),
            _ => false,
        };
        let member = node.member || is_field && !node.below.is_empty();
        let below = with_struct_fields(&node.below, ty.and_then(|ty| step_type(ty, step)));
        out.add(step.clone(), member, below);
    }
    out
}

/// The set, in which paths into values that are atomic by now are shortened to those values.
pub(super) fn reconciled(set: &PathSet, ty: &Type) -> PathSet {
    let mut out = PathSet::default();
    for (step, node) in set.iter() {
        let (member, below) = match step_type(ty, step) {
            None => (node.member, node.below.clone()),
            Some(ty) if is_atomic(ty) => (true, PathSet::default()),
            Some(ty) => (node.member, reconciled(&node.below, ty)),
        };
        out.add(step.clone(), member, below);
    }
    out
}

fn is_atomic(ty: &Type) -> bool {
    matches!(ty, Type::Object(_) | Type::List(_) | Type::Map(_))
        && matches!(merge_kind(ty), MergeKind::Leaf)
}
