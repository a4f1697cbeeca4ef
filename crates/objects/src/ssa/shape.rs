//! The types by which values are merged and owned: those of a schema table, and those of the schema of a custom resource. Everything in this
//! module goes by this view of them.
//!
//! Not here: the tables ([`crate::schema`]), and what such a schema says ([`crate::custom`]).

use serde_json::{Map, Value};

use super::{
    path::{PathElement, Scalar},
    path_set::PathSet,
};
use crate::{
    custom::{CustomList, CustomMember, CustomParts, CustomType, MemberType, StoredPaths},
    schema::{Field, List, Presence, Struct, Topology, Type, canonical::complete},
};
use fairgate_gotext::Quoted;

/// The type of the objects of a kind in one version.
#[derive(Clone, Copy, Debug)]
pub enum ObjectType<'a> {
    /// Of a schema table, whose name is the kind.
    Table(&'static Struct),
    /// Of the schema of a custom resource.
    Custom {
        /// The kind.
        kind: &'a str,
        /// The type of a whole object.
        root: CustomType<'a>,
    },
}

impl<'a> ObjectType<'a> {
    /// The kind of the objects.
    pub fn kind(self) -> &'a str {
        match self {
            Self::Table(shape) => shape.name,
            Self::Custom { kind, .. } => kind,
        }
    }

    /// The type of a whole object.
    pub(super) fn root(self) -> ValueType<'a> {
        match self {
            Self::Table(shape) => ValueType::Table(Type::Object(shape)),
            Self::Custom { root, .. } => ValueType::Custom(root),
        }
    }

    /// The object without any field that a manager set: only fields that are always present.
    pub(super) fn zero(self) -> Value {
        let mut object = Map::new();
        if let Self::Table(shape) = self {
            complete(shape, &mut object);
        }
        Value::Object(object)
    }
}

/// The type of a value.
#[derive(Clone, Copy)]
pub(super) enum ValueType<'a> {
    Table(Type),
    Custom(CustomType<'a>),
}

/// A list whose items are owned one by one.
#[derive(Clone, Copy)]
pub(super) enum ItemList<'a> {
    Table(&'static List),
    Custom(CustomList<'a>),
}

/// How a value is merged and owned.
#[derive(Clone, Copy)]
pub(super) enum MergeKind<'a> {
    /// As a whole: scalars, atomic lists and objects, free-form JSON.
    Leaf,
    /// Field by field, or key by key.
    Object,
    /// Item by item.
    Items(ItemList<'a>),
}

impl MergeKind<'_> {
    /// Whether two values of one type are merged alike.
    pub(super) fn is_as(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Leaf, Self::Leaf)
                | (Self::Object, Self::Object)
                | (Self::Items(_), Self::Items(_))
        )
    }
}

/// How a value is merged. Types of custom resources may leave that to the value.
pub(super) fn merge_kind<'a>(ty: ValueType<'a>, value: Option<&Value>) -> MergeKind<'a> {
    let table = match ty {
        ValueType::Table(table) => table,
        ValueType::Custom(ty) => {
            return match ty.parts(value) {
                CustomParts::Whole => MergeKind::Leaf,
                CustomParts::Members => MergeKind::Object,
                CustomParts::Items(list) => MergeKind::Items(ItemList::Custom(list)),
            };
        }
    };
    match table {
        Type::Object(shape) if !shape.atomic => MergeKind::Object,
        Type::Map(map) if !map.atomic => MergeKind::Object,
        Type::List(list) if list.topology != Topology::Atomic => {
            MergeKind::Items(ItemList::Table(list))
        }
        _ => MergeKind::Leaf,
    }
}

impl<'a> ItemList<'a> {
    /// The type of the items.
    pub(super) fn item(self) -> ValueType<'a> {
        match self {
            Self::Table(list) => ValueType::Table(list.item),
            Self::Custom(list) => ValueType::Custom(list.item),
        }
    }

    /// The names of the fields by which items are told apart; `None` if each is its own key.
    fn keys(self) -> Option<impl Iterator<Item = &'a str> + Clone> {
        let (of_table, of_schema): (&[&str], &[Box<str>]) = match self {
            Self::Table(list) => match list.topology {
                Topology::Map(keys) => (keys, &[]),
                _ => return None,
            },
            Self::Custom(list) if list.keys.is_empty() => return None,
            Self::Custom(list) => (&[], list.keys),
        };
        let of_schema = of_schema.iter().map(|key| &**key);
        Some(of_table.iter().copied().chain(of_schema))
    }

    /// The default of a key field. What it takes is taken from `room`, in bytes of its name and text.
    ///
    /// # Errors
    ///
    /// The message if there is not as much room.
    fn default_of(self, name: &str, room: &mut usize) -> Result<Option<Value>, String> {
        let list = match self {
            Self::Table(list) => {
                let field = match list.item {
                    Type::Object(shape) => shape.field(name),
                    _ => None,
                };
                return Ok(field.and_then(default_of));
            }
            Self::Custom(list) => list,
        };
        let Some(default) = list.item.default_of(name) else {
            return Ok(None);
        };
        let left = room.checked_sub(name.len() + default.bytes);
        *room = left.ok_or("associative list with keys has defaults that are too long")?;
        Ok(Some(default.value.clone()))
    }
}

/// Whether a type names a field; not for keys of maps.
pub(super) fn is_declared(ty: ValueType<'_>, name: &str) -> bool {
    match ty {
        ValueType::Table(Type::Object(shape)) => shape.field(name).is_some(),
        ValueType::Table(_) => false,
        ValueType::Custom(ty) => matches!(ty.member(name), Some(CustomMember::Declared(_))),
    }
}

/// The type of a field or of a map's values.
pub(super) fn field_type<'a>(ty: ValueType<'a>, name: &str) -> Option<ValueType<'a>> {
    match ty {
        ValueType::Table(Type::Object(shape)) => {
            shape.field(name).map(|field| ValueType::Table(field.ty))
        }
        ValueType::Table(Type::Map(map)) => Some(ValueType::Table(map.value)),
        ValueType::Table(_) => None,
        ValueType::Custom(ty) => ty.member(name).map(|member| match member {
            CustomMember::Declared(MemberType::Table(ty)) => ValueType::Table(ty),
            CustomMember::Declared(MemberType::Custom(ty)) | CustomMember::Other(ty) => {
                ValueType::Custom(ty)
            }
        }),
    }
}

/// The type that a step of a stored set leads to. The step may not fit the type any more.
pub(super) fn step_type<'a>(ty: ValueType<'a>, step: &PathElement) -> Option<ValueType<'a>> {
    match (ty, step) {
        (ValueType::Table(Type::List(_)), _) => item_type(ty),
        (_, PathElement::Name(name)) => field_type(ty, name),
        (ValueType::Table(Type::Map(map)), _) => Some(ValueType::Table(map.value)),
        _ => item_type(ty),
    }
}

/// The type of the items of a list.
pub(super) fn item_type(ty: ValueType<'_>) -> Option<ValueType<'_>> {
    match ty {
        ValueType::Table(Type::List(list)) => Some(ValueType::Table(list.item)),
        ValueType::Table(_) => None,
        ValueType::Custom(ty) => Some(ValueType::Custom(ty.item())),
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
pub(super) fn item_step(list: ItemList<'_>, item: &Value) -> Result<PathElement, String> {
    if let Some(keys) = list.keys() {
        return key_step(list, keys, item);
    }
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".to_owned())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        scalar => Ok(PathElement::Item(Scalar(scalar.clone()))),
    }
}

/// Bytes of the defaults in the key of one item. An object of the version that the schema describes has its defaults; an item of another
/// version lacks them, and without a bound a long default is copied into the key of each.
const MOST_DEFAULTS: usize = 1 << 10;

fn key_step<'k>(
    list: ItemList<'_>,
    keys: impl Iterator<Item = &'k str> + Clone,
    item: &Value,
) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut room = MOST_DEFAULTS;
    let with_values = keys.clone().filter_map(|name| {
        let value = match fields.get(name) {
            Some(value) => Ok(Some(value.clone())),
            None => list.default_of(name, &mut room),
        };
        let value = value.transpose()?;
        Some(value.map(|value| (name.to_owned(), Scalar(value))))
    });
    // Some of the fields may be missing, as in the original: an item without any is the error.
    let mut key: Vec<_> = with_values.collect::<Result<_, _>>()?;
    if key.is_empty() {
        let keys: Vec<_> = keys.map(|name| Quoted(name).to_string()).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't \
             have default values for any key fields)",
            keys.join(" ")
        ));
    }
    // Stored sets have them by name, whatever order the schema lists them in.
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

/// The set with every struct field added that has members below it.
///
/// The set of what an applier no longer applies has only leaves; this removes structs that have
/// lost all of them.
pub(super) fn with_struct_fields(set: &PathSet, ty: Option<ValueType<'_>>) -> PathSet {
    let mut out = PathSet::default();
    for (step, node) in set.iter() {
        let is_field = match (ty, step) {
            (Some(ty), PathElement::Name(name)) => is_declared(ty, name),
            _ => false,
        };
        let member = node.member || is_field && !node.below.is_empty();
        let below = with_struct_fields(&node.below, ty.and_then(|ty| step_type(ty, step)));
        out.add(step.clone(), member, below);
    }
    out
}

/// The set, in which paths into values that are atomic by now are shortened to those values.
pub(super) fn reconciled(set: &PathSet, ty: ValueType<'_>) -> PathSet {
    let mut out = PathSet::default();
    for (step, node) in set.iter() {
        let ty = step_type(ty, step);
        let (member, below) = match ty.map_or(StoredPaths::Stay, stored_paths) {
            StoredPaths::Shortened => (true, PathSet::default()),
            StoredPaths::Followed if let Some(ty) = ty => {
                (node.member, reconciled(&node.below, ty))
            }
            _ => (node.member, node.below.clone()),
        };
        out.add(step.clone(), member, below);
    }
    out
}

fn stored_paths(ty: ValueType<'_>) -> StoredPaths {
    let table = match ty {
        ValueType::Table(table) => table,
        ValueType::Custom(ty) => return ty.stored_paths(),
    };
    match (table, merge_kind(ty, None)) {
        (Type::Object(_) | Type::List(_) | Type::Map(_), MergeKind::Leaf) => StoredPaths::Shortened,
        _ => StoredPaths::Followed,
    }
}
