//! The paths that an object sets, which its applier owns.
//!
//! Scalars and atomic values are members, and so is every item of a list and every key of a map. A
//! declared field that contains an object is not a member, only what it contains; unless it is
//! empty.

use serde_json::Value;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    path::PathElement,
    path_set::PathSet,
    shape::{
        ItemList, MergeKind, ValueType, field_type, is_declared, item_step, items, merge_kind,
    },
};

/// The paths that a value sets below itself.
pub(super) fn field_set(ty: ValueType<'_>, value: &Value) -> PathSet {
    below(ty, value).0
}

/// The paths below a value, and whether the value is itself a leaf.
fn below(ty: ValueType<'_>, value: &Value) -> (PathSet, bool) {
    match merge_kind(ty, Some(value)) {
        MergeKind::Leaf => (PathSet::default(), true),
        MergeKind::Object => (fields_of(ty, value), false),
        MergeKind::Items(list) => (items_of(list, value), false),
    }
}

fn fields_of(ty: ValueType<'_>, value: &Value) -> PathSet {
    let mut set = PathSet::default();
    for (name, value) in value.as_object().into_iter().flatten() {
        let Some(field) = field_type(ty, name) else {
            continue;
        };
        let (below, leaf) = below(field, value);
        let nothing = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        let member = leaf || nothing || !is_declared(ty, name);
        set.add(PathElement::name(name), member, below);
    }
    set
}

fn items_of(list: ItemList<'_>, value: &Value) -> PathSet {
    let mut by_step: BTreeMap<PathElement, &Value> = BTreeMap::new();
    let mut repeated = BTreeSet::new();
    for item in items(Some(value)) {
        if let Ok(step) = item_step(list, item)
            && by_step.insert(step.clone(), item).is_some()
        {
            repeated.insert(step);
        }
    }
    let mut set = PathSet::default();
    for (step, item) in by_step {
        let below = if repeated.contains(&step) {
            PathSet::default()
        } else {
            below(list.item(), item).0
        };
        set.add(step, true, below);
    }
    set
}
