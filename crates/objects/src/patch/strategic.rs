//! Strategic merge patch: a merge patch that knows how each list is merged, and takes directives.
//!
//! The tables of the kind say how. Directives are members of the patch: `$patch` (replace or
//! delete), `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`. What is
//! not in the object yet is taken over without its nulls and without objects that bear `$patch`;
//! other directives in there stay, and will be unknown fields.
//!
//! Upstream processes the members of a patch in random order. Here deletions from lists come first.
//!
//! Where upstream's server panics, because it compares lists or objects as if they were plain, the
//! patch fails with the same status as other unexpected errors.

use std::{cell::Cell, collections::HashSet};

use serde_json::{Map, Value};

use super::{
    PatchError, Patched,
    merge_list::{self, ItemKey, ItemMerge, PATCH, unknown_directive, wrong_type},
    mismatch, unless_ignored,
};
use crate::{
    codec::{FieldValidation, json},
    go,
    schema::{Field, PatchStrategy, Struct, Type},
};
use fairgate_gotext::Quoted;

const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";

/// Applies a strategic merge patch to an object of the kind that `shape` describes.
///
/// Costs time linear in the object and the patch, and logarithmic for the order of lists.
///
/// # Errors
///
/// [`PatchError::BadRequest`], if the patch is no JSON object or a directive is malformed; [`PatchError::TooLarge`], if it merges the same
/// lists again and again;
/// [`PatchError::Unprocessable`] for lists of lists; [`PatchError::Internal`] for all other
/// errors, as upstream.
pub fn strategic(
    shape: &'static Struct,
    object: &Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Patched, PatchError> {
    let parsed = json::parse(patch).map_err(|error| PatchError::BadRequest(error.to_string()))?;
    let patch = match parsed.value {
        Value::Object(patch) => patch,
        Value::Null => Map::new(),
        other => {
            let why = mismatch(&other, "value of type map[string]interface {}");
            return Err(PatchError::BadRequest(why));
        }
    };
    let mut map = object.as_object().cloned().unwrap_or_default();
    let work = ListWork::for_patch(object, &patch);
    merge_map(&mut map, &patch, MergeType::Struct(shape), &work)?;
    Ok(Patched {
        value: Value::Object(map),
        problems: unless_ignored(parsed.duplicates, validation),
        patch: Some(Value::Object(patch)),
    })
}

/// Items that may be gone through beyond those of the object and of the patch.
const REPEATED_ITEMS: usize = 1 << 16;

/// How many items of lists may still be gone through. A patch may name an item of a list many times, and each time the lists in that item
/// are merged as a whole.
struct ListWork(Cell<usize>);

impl ListWork {
    fn for_patch(object: &Value, patch: &Map<String, Value>) -> Self {
        let given: usize = patch.values().map(items_in).sum();
        // With an order, what is there is gone through twice.
        Self(Cell::new(REPEATED_ITEMS + 2 * (items_in(object) + given)))
    }

    fn take(&self, items: usize) -> Result<(), PatchError> {
        let left = self.0.get().checked_sub(items);
        self.0.set(left.ok_or_else(|| {
            PatchError::TooLarge("the patch merges the same lists too often".to_owned())
        })?);
        Ok(())
    }
}

/// The items of all lists in a value.
fn items_in(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len() + items.iter().map(items_in).sum::<usize>(),
        Value::Object(members) => members.values().map(items_in).sum(),
        _ => 0,
    }
}

/// The type of the values that are merged.
#[derive(Clone, Copy, Debug)]
enum MergeType {
    Struct(&'static Struct),
    /// One without known fields, by Go's word for it.
    Other(&'static str),
}

/// A list, as far as merging goes.
struct ListMergeType {
    item: MergeType,
    patch: PatchStrategy,
}

impl ListMergeType {
    fn merge_key(&self) -> Option<&'static str> {
        match self.patch {
            PatchStrategy::MergeBy(key) | PatchStrategy::MergeByRetainingKeys(key) => Some(key),
            _ => None,
        }
    }
}

impl MergeType {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Object(shape) => Self::Struct(shape),
            Type::List(_) | Type::Bytes => Self::Other("slice"),
            Type::Map(_) => Self::Other("map"),
            Type::Text => Self::Other("string"),
            Type::Int32 => Self::Other("int32"),
            Type::Int64 => Self::Other("int64"),
            Type::Flag => Self::Other("bool"),
            Type::Time
            | Type::MicroTime
            | Type::Raw
            | Type::RawExtension
            | Type::IntOrString
            | Type::Quantity => Self::Other("struct"),
        }
    }

    /// Go's word for the kind of type.
    fn kind(self) -> &'static str {
        match self {
            Self::Struct(_) => "struct",
            Self::Other(kind) => kind,
        }
    }

    fn field(self, name: &str) -> Result<&'static Field, PatchError> {
        let why = match self {
            Self::Struct(shape) => match shape.field(name) {
                Some(field) => return Ok(field),
                None => format!(
                    "unable to find api field in struct {} for the json field {}",
                    shape.name,
                    Quoted(name)
                ),
            },
            Self::Other(kind) => {
                format!("merging an object in json but data type is not struct, instead is: {kind}")
            }
        };
        Err(PatchError::Internal(why))
    }

    fn list(self, name: &str) -> Result<ListMergeType, PatchError> {
        let field = self.field(name)?;
        let item = match &field.ty {
            Type::List(list) => Self::of(&list.item),
            // Upstream uses the type that the pointer points to.
            ty if field.presence.is_pointer() => Self::of(ty),
            _ => {
                let kind = self.kind();
                let why = format!("expected slice or array type, but got: {kind}");
                return Err(PatchError::Internal(why));
            }
        };
        Ok(ListMergeType {
            item,
            patch: field.patch,
        })
    }
}

/// Merges a patch into an object of type `scope`.
fn merge_map(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    scope: MergeType,
    work: &ListWork,
) -> Result<(), PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return follow(target, directive, patch);
    }
    retain(target, patch)?;
    let done = merge_ordered(target, patch, scope, work)?;
    // Sorted, where a Go map has any order: `$deleteFromPrimitiveList/...` comes before the field that adds to the same list.
    for (key, value) in patch {
        let list = listed(key, DELETE, "invalid patch format of primitive list")?;
        let skip = key == RETAIN || key.starts_with(ORDER) || done.contains(&key.as_str());
        if !skip {
            let field = list.filter(|list| !list.is_empty());
            let deleting = list.is_some();
            merge_member(target, field.unwrap_or(key), value, (scope, work), deleting)?;
        }
    }
    Ok(())
}

/// Follows the directive for a whole object.
fn follow(
    target: &mut Map<String, Value>,
    directive: &Value,
    patch: &Map<String, Value>,
) -> Result<(), PatchError> {
    match directive.as_str() {
        Some("replace") => {
            target.clone_from(patch);
            target.remove(PATCH);
        }
        Some("delete") => target.clear(),
        _ => return Err(unknown_directive(directive, patch)),
    }
    Ok(())
}

/// Removes what `$retainKeys` does not name, if it is there; it must name what the patch sets.
fn retain(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN) else {
        return Ok(());
    };
    let malformed = || PatchError::BadRequest("invalid patch format of retainKeys".to_owned());
    let keys = keys.as_array().ok_or_else(malformed)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let sets = |(key, value): (&String, &Value)| {
        let directive = key == RETAIN || key.starts_with(DELETE) || key.starts_with(ORDER);
        !value.is_null() && !directive && !keys.contains(key.as_str())
    };
    if patch.iter().any(sets) {
        return Err(malformed());
    }
    target.retain(|key, _| keys.contains(key.as_str()));
    Ok(())
}

/// The list that a key such as `$setElementOrder/<list>` is about, if it begins with `directive`.
fn listed<'k>(
    key: &'k str,
    directive: &str,
    malformed: &str,
) -> Result<Option<&'k str>, PatchError> {
    let Some(rest) = key.strip_prefix(directive) else {
        return Ok(None);
    };
    match rest.strip_prefix('/') {
        Some(list) => Ok(Some(list)),
        None => Err(PatchError::BadRequest(malformed.to_owned())),
    }
}

/// Merges the lists that the patch sets an order for; gives their names.
fn merge_ordered<'p>(
    target: &mut Map<String, Value>,
    patch: &'p Map<String, Value>,
    scope: MergeType,
    work: &ListWork,
) -> Result<Vec<&'p str>, PatchError> {
    let mut done = Vec::new();
    for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(ORDER)) {
        let order = as_list(order)?;
        let malformed = "invalid patch format of setElementOrder list";
        let name = listed(key, ORDER, malformed)?.unwrap_or_default();
        let before = target.get(name).map(as_list).transpose()?;
        let given = patch.get(name).map(as_list).transpose()?;
        let list = scope.list(name)?;
        if let Some(merged) = merge_one_ordered(before, given, order, (&list, work))? {
            target.insert(name.to_owned(), Value::Array(merged));
            done.push(name);
        }
    }
    Ok(done)
}

fn merge_one_ordered(
    before: Option<&[Value]>,
    given: Option<&[Value]>,
    order: &[Value],
    (list, work): (&ListMergeType, &ListWork),
) -> Result<Option<Vec<Value>>, PatchError> {
    work.take(before.unwrap_or_default().len() + order.len())?;
    let identity = list.merge_key().map_or(ItemKey::Item, ItemKey::Key);
    merge_list::check_order(given.unwrap_or_default(), order, identity)?;
    let merged = match (before, given) {
        (None, None) => return Ok(None),
        (Some(before), None) => before.to_vec(),
        (None, Some(given)) => given.iter().filter_map(|item| taken(item, true)).collect(),
        (Some(before), Some(given)) => merge_lists(before.to_vec(), given, (list, work), false)?,
    };
    let (before, given) = (before.unwrap_or_default(), given.unwrap_or_default());
    merge_list::check_types(before, given)?;
    let before = merge_list::order_left(before, given, identity)?;
    merge_list::arrange(merged, order, &before, identity).map(Some)
}

fn merge_lists(
    target: Vec<Value>,
    patch: &[Value],
    (list, work): (&ListMergeType, &ListWork),
    deleting: bool,
) -> Result<Vec<Value>, PatchError> {
    work.take(target.len() + patch.len())?;
    if deleting || list.patch == PatchStrategy::MergeSet || list.merge_key().is_some() {
        let scope = list.item;
        let item = ItemMerge {
            kind: scope.kind(),
            merge: &|item, patch| merge_map(item, patch, scope, work),
        };
        merge_list::merge(target, patch, &item, list.merge_key(), deleting)
    } else {
        Ok(patch.to_vec())
    }
}

fn as_list(value: &Value) -> Result<&[Value], PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong_type("[]interface {}", other)),
    }
}

/// Merges one member of a patch, or, if `deleting`, removes the listed items from a list.
fn merge_member(
    target: &mut Map<String, Value>,
    key: &str,
    value: &Value,
    (scope, work): (MergeType, &ListWork),
    deleting: bool,
) -> Result<(), PatchError> {
    match (target.get_mut(key), value) {
        (_, Value::Null) => {
            target.remove(key);
        }
        (Some(Value::Object(map)), Value::Object(patch)) => {
            let field = scope.field(key)?;
            if field.patch == PatchStrategy::Replace {
                map.clone_from(patch);
            } else {
                merge_map(map, patch, MergeType::of(&field.ty), work)?;
            }
        }
        (Some(Value::Array(items)), Value::Array(patch)) => {
            let list = scope.list(key)?;
            *items = merge_lists(std::mem::take(items), patch, (&list, work), deleting)?;
        }
        (Some(plain), value) if deleting && same_type(plain, value) => *plain = value.clone(),
        _ if deleting => {}
        (_, value) => match taken(value, false) {
            Some(value) => {
                target.insert(key.to_owned(), value);
            }
            None => {
                target.remove(key);
            }
        },
    }
    Ok(())
}

fn same_type(one: &Value, other: &Value) -> bool {
    go::type_name(one) == go::type_name(other)
}

/// What is taken over of a value that the object does not have: no objects with a directive and, if
/// they shall not stay, no null members.
fn taken(value: &Value, nulls: bool) -> Option<Value> {
    match value {
        Value::Object(map) => {
            let directive = map.get(PATCH);
            if directive.is_some_and(|directive| nulls || !directive.is_null()) {
                return None;
            }
            let members = map.iter().filter(|(_, value)| nulls || !value.is_null());
            let members =
                members.filter_map(|(key, value)| Some((key.clone(), taken(value, nulls)?)));
            Some(members.collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(|item| taken(item, nulls)).collect()),
        plain => Some(plain.clone()),
    }
}
