//! How a strategic merge patch merges one list into another.
//!
//! Items are identified by the value of their merge key, or are plain values. Afterwards the items that the
//! patch names have the patch's order, and the others keep theirs; where both orders leave a choice, an item
//! that the object has before the patch's next one comes first.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{PatchError, stable_sort};
use crate::go::{PlainList, PlainMap, PlainText, type_name_as_text};

/// How the items of a list are identified.
#[derive(Clone, Copy, Debug)]
pub(super) enum ItemKey {
    /// They are plain values.
    Item,
    /// They are objects with this merge key.
    Key(&'static str),
}

/// A plain value that identifies an item. Only values of the same type can be equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Name {
    Null,
    Flag(bool),
    Whole(i64),
    Real(u64),
    Text(String),
}

impl Name {
    /// `None` for a list or an object, which is equal to nothing.
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Self::Whole(whole),
                None => Self::Real(number.as_f64().unwrap_or_default().to_bits()),
            },
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(_) | Value::Object(_) => return None,
        })
    }
}

impl ItemKey {
    /// The identity of an item.
    ///
    /// # Errors
    ///
    /// If items are objects, and this one is not or has no merge key.
    fn name(self, item: &Value) -> Result<Option<Name>, PatchError> {
        match self {
            Self::Item => Ok(Name::of(item)),
            Self::Key(key) => {
                let Value::Object(map) = item else {
                    return Err(wrong_type("map[string]interface {}", item));
                };
                map.get(key)
                    .map(Name::of)
                    .ok_or_else(|| without_key(map, key))
            }
        }
    }

    /// The first index of each identity in a list.
    fn places(self, items: &[Value]) -> Result<HashMap<Name, usize>, PatchError> {
        let mut places = HashMap::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            if matches!(self, Self::Key(_)) && !item.is_object() {
                let why = format!("value for key {place} is not a map");
                return Err(PatchError::Internal(why));
            }
            if let Some(name) = self.name(item)? {
                // Of several items with one name, the first counts, as the original searches from the start.
                places.entry(name).or_insert(place);
            }
        }
        Ok(places)
    }
}

/// The directive for a whole object.
pub(super) const PATCH: &str = "$patch";

/// How an item that is an object is merged; implemented by the caller, because objects contain
/// lists in turn.
pub(super) struct ItemMerge<'f> {
    /// Go's word for the kind of type, such as `struct`.
    pub(super) kind: &'static str,
    /// Merges a patch into an item.
    pub(super) merge: &'f MergeObjects<'f>,
}

/// Merges the second object, a patch, into the first.
type MergeObjects<'f> =
    dyn Fn(&mut Map<String, Value>, &Map<String, Value>) -> Result<(), PatchError> + 'f;

/// Merges `patch` into `items`, or, if they are plain and `deleting`, removes it from them.
///
/// Costs time linear in both lists, and logarithmic for the order.
///
/// # Errors
///
/// The items are not all of one type, or have no merge key, or bear an unknown directive.
pub(super) fn merge(
    mut items: Vec<Value>,
    patch: &[Value],
    merge: &ItemMerge<'_>,
    merge_key: Option<&'static str>,
    deleting: bool,
) -> Result<Vec<Value>, PatchError> {
    if items.is_empty() && patch.is_empty() {
        return Ok(items);
    }
    if !check_types(&items, patch)? {
        if deleting {
            let gone: HashSet<Name> = patch.iter().filter_map(Name::of).collect();
            items.retain(|item| Name::of(item).is_none_or(|name| !gone.contains(&name)));
            return Ok(items);
        }
        let merged = distinct(items.iter().chain(patch));
        let identity = merge_key.map_or(ItemKey::Item, ItemKey::Key);
        return arrange(merged, patch, &items, identity);
    }
    let Some(key) = merge_key else {
        let kind = merge.kind;
        let why = format!("cannot merge lists without merge key for {kind}");
        return Err(PatchError::Internal(why));
    };
    let Directed { patch, replace } = take_directives(&mut items, patch, key)?;
    if replace {
        items = patch.into_iter().cloned().collect();
        let order = items.clone();
        return arrange(items, &order, &[], ItemKey::Key(key));
    }
    let before: Vec<Value> = items.iter().map(|item| key_alone(item, key)).collect();
    let order: Vec<Value> = patch.iter().map(|item| key_alone(item, key)).collect();
    merge_objects(&mut items, &patch, merge, key)?;
    arrange(items, &order, &before, ItemKey::Key(key))
}

/// The order of an object's list that the order which a patch sets is interleaved with.
///
/// Upstream appends in place: the places that deletions freed at the end of the list are taken by the
/// first new items of the patch, and only these count as having had a place.
pub(super) fn order_left(
    items: &[Value],
    patch: &[Value],
    identity: ItemKey,
) -> Result<Vec<Value>, PatchError> {
    let ItemKey::Key(key) = identity else {
        return Ok(items.to_vec());
    };
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let mut left: Vec<Value> = items.iter().map(|item| key_alone(item, key)).collect();
    let directed = take_directives(&mut left, patch, key)?;
    let mut names = identity.places(&left)?;
    for item in directed.patch {
        if let Some(name) = identity.name(item)?
            && names.insert(name, left.len()).is_none()
        {
            left.push(key_alone(item, key));
        }
    }
    left.truncate(items.len());
    Ok(left)
}

/// The distinct values, in the order of their first occurrence.
fn distinct<'v>(items: impl Iterator<Item = &'v Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    let new = |item: &&Value| Name::of(item).is_none_or(|name| seen.insert(name));
    items.filter(new).cloned().collect()
}

/// An object of which only the merge key is left, which is enough to find its position.
fn key_alone(item: &Value, key: &str) -> Value {
    let value = item.get(key);
    value
        .map(|value| (key.to_owned(), value.clone()))
        .into_iter()
        .collect()
}

/// What is left of a patch's list once its directives were followed.
struct Directed<'p> {
    patch: Vec<&'p Value>,
    replace: bool,
}

/// Follows the directives in a patch's list: removes from `items` what it deletes.
fn take_directives<'p>(
    items: &mut Vec<Value>,
    patch: &'p [Value],
    key: &str,
) -> Result<Directed<'p>, PatchError> {
    let mut directed = Directed {
        patch: Vec::with_capacity(patch.len()),
        replace: false,
    };
    let mut gone = HashSet::new();
    for item in patch {
        let Some(map) = item.as_object() else {
            continue;
        };
        match map.get(PATCH) {
            None => directed.patch.push(item),
            Some(Value::String(text)) if text == "delete" => {
                let name = map.get(key).ok_or_else(|| without_key(map, key))?;
                gone.extend(Name::of(name));
            }
            Some(Value::String(text)) if text == "replace" => directed.replace = true,
            Some(Value::String(text)) if text == "merge" => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(PatchError::Internal(why.to_owned()));
            }
            Some(other) => return Err(unknown_directive(other, map)),
        }
    }
    if !gone.is_empty() {
        items.retain(|item| {
            let name = item.get(key).and_then(Name::of);
            name.is_none_or(|name| !gone.contains(&name))
        });
    }
    Ok(directed)
}

/// Merges each object of a patch into the one with its merge key, or appends it.
fn merge_objects(
    items: &mut Vec<Value>,
    patch: &[&Value],
    merge: &ItemMerge<'_>,
    key: &str,
) -> Result<(), PatchError> {
    let mut places = HashMap::new();
    for (place, item) in items.iter().enumerate() {
        if let Some(name) = item.get(key).and_then(Name::of) {
            places.entry(name).or_insert(place);
        }
    }
    for item in patch {
        let Some(map) = item.as_object() else {
            continue;
        };
        let name = map.get(key).ok_or_else(|| without_key(map, key))?;
        let name = Name::of(name);
        let place = name.as_ref().and_then(|name| places.get(name));
        if let Some(found) = place.and_then(|place| items[*place].as_object_mut()) {
            (merge.merge)(found, map)?;
        } else {
            if let Some(name) = name {
                // A later item of the patch with this name is merged into this one.
                places.insert(name, items.len());
            }
            items.push((*item).clone());
        }
    }
    Ok(())
}

/// Orders a merged list: what is in `order` by that, the rest by `before`, and both interleaved.
///
/// # Errors
///
/// An item of one of the lists has no name.
pub(super) fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    identity: ItemKey,
) -> Result<Vec<Value>, PatchError> {
    let names = merged.iter().map(|item| identity.name(item));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let (order, before) = (identity.places(order)?, identity.places(before)?);
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for (item, name) in merged.into_iter().zip(names) {
        let place = |places: &HashMap<Name, usize>| places.get(name.as_ref()?).copied();
        let was = place(&before);
        match place(&order) {
            Some(place) => named.push((place, was, item)),
            None => others.push((was, item)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    let others = sort_others(others);
    Ok(interleave(named, others))
}

/// Sorts items by their place, as upstream does: there, one without a place counts as less than any
/// other and any other as less than it, so the result depends on the steps of Go's sort. Only a patch
/// that sets an empty order leads to that.
fn sort_others(items: Vec<(Option<usize>, Value)>) -> Vec<(Option<usize>, Value)> {
    let mut sorted = items;
    if sorted.iter().all(|(was, _)| was.is_some()) {
        sorted.sort_by_key(|(was, _)| *was);
        return sorted;
    }
    stable_sort::sort(
        &mut sorted,
        &|(one, _): &(Option<usize>, Value), (other, _): &(Option<usize>, Value)| {
            one.is_none_or(|one| other.is_none_or(|other| one < other))
        },
    );
    sorted
}

fn interleave(
    named: Vec<(usize, Option<usize>, Value)>,
    others: Vec<(Option<usize>, Value)>,
) -> Vec<Value> {
    let mut list = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, was, item) in named {
        while let Some((_, other)) =
            others.next_if(|(other, _)| matches!((*other, was), (Some(a), Some(b)) if a < b))
        {
            list.push(other);
        }
        list.push(item);
    }
    list.extend(others.map(|(_, item)| item));
    list
}

/// Checks that the items of a patch come in the order that the patch itself sets.
///
/// # Errors
///
/// They do not, or one cannot be identified.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    identity: ItemKey,
) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    if let ItemKey::Key(_) = identity
        && let Some(item) = patch.iter().find(|item| !item.is_object())
    {
        return Err(wrong_type("map[string]interface {}", item));
    }
    let deletes = |item: &&Value| {
        item.get(PATCH)
            .is_some_and(|directive| directive == "delete")
    };
    let mut items = patch.iter().filter(|item| !deletes(item)).peekable();
    let mut places = order.iter().peekable();
    while let (Some(item), Some(place)) = (items.peek(), places.peek()) {
        if item.get(PATCH).is_some() {
            items.next();
            continue;
        }
        let name = identity.name(item)?;
        if name.is_some() && name == identity.name(place)? {
            items.next();
        }
        places.next();
    }
    // A directive behind the last place counts as out of order, too.
    if items.peek().is_some() {
        return Err(PatchError::Internal(format!(
            "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
            PlainList(patch),
            PlainList(order)
        )));
    }
    Ok(())
}

/// Checks that all items are of one type; whether they are objects.
///
/// # Errors
///
/// They are of several types, or lists, or there are none.
pub(super) fn check_types(items: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut all = items.iter().chain(patch);
    let internal = |why: String| Err(PatchError::Internal(why));
    let Some(first) = all.next() else {
        return internal("no elements in any of the given slices".to_owned());
    };
    match first {
        Value::Array(_) => return Err(PatchError::Unprocessable),
        Value::Null => return internal("a list that is merged begins with null".to_owned()),
        _ => {}
    }
    if all.any(|item| type_name_as_text(item) != type_name_as_text(first)) {
        let (items, patch) = (PlainList(items), PlainList(patch));
        return internal(format!(
            "list element types are not identical: [{items} {patch}]"
        ));
    }
    Ok(first.is_object())
}

/// The failure of an object that has no merge key.
fn without_key(map: &Map<String, Value>, key: &str) -> PatchError {
    PatchError::Internal(format!(
        "map: {} does not contain declared merge key: {key}",
        PlainMap(map)
    ))
}

/// The failure of an unknown directive.
pub(super) fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> PatchError {
    PatchError::Internal(format!(
        "unknown patch type: {} in map: {}",
        PlainText(directive),
        PlainMap(map)
    ))
}

/// The failure of a value that should be of another Go type.
pub(super) fn wrong_type(wanted: &str, value: &Value) -> PatchError {
    let found = type_name_as_text(value);
    PatchError::Internal(format!("expected a {wanted}, but received a {found}"))
}
