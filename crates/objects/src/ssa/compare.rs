//! What changed between two objects, as sets of paths.
//!
//! A value that is on one side only is added or removed with all below it, including itself; this is the origin
//! of the `"."` entries of stored sets. Lists are compared item by item, so their order does not matter. Null
//! and an empty object or list differ from each other; compared with one that is not empty, both have no parts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    path::{PathElement, same},
    path_set::PathSet,
    shape::{ItemList, MergeKind, ValueType, field_type, fields, item_step, items, merge_kind},
};

/// What changed from an old object to a new one. No path is in more than one of the sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// Only in the old object.
    pub(super) removed: PathSet,
    /// In both objects, with different values.
    pub(super) modified: PathSet,
    /// Only in the new object.
    pub(super) added: PathSet,
}

impl Comparison {
    /// The paths whose value was changed or added.
    pub(super) fn into_set_now(self) -> PathSet {
        let mut set = self.modified;
        set.unite(self.added);
        set
    }

    fn unite(&mut self, other: Self) {
        self.removed.unite(other.removed);
        self.modified.unite(other.modified);
        self.added.unite(other.added);
    }

    fn attach(&mut self, step: &PathElement, change: Option<ValueChange>, below: Self) {
        for (set, which, below) in [
            (&mut self.removed, ValueChange::Removed, below.removed),
            (&mut self.modified, ValueChange::Modified, below.modified),
            (&mut self.added, ValueChange::Added, below.added),
        ] {
            let member = change == Some(which);
            if member || !below.is_empty() {
                set.add(step.clone(), member, below);
            }
        }
    }
}

/// How one value changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueChange {
    Removed,
    Modified,
    Added,
}

/// Compares two values of one type.
pub(super) fn compare(ty: ValueType<'_>, old: &Value, new: &Value) -> Comparison {
    visit(ty, Some(old), Some(new)).1
}

fn visit(
    ty: ValueType<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> (Option<ValueChange>, Comparison) {
    let [before, after] = [old, new].map(|value| merge_kind(ty, value));
    if new.is_none() {
        return visit_as(before, ty, old, new);
    }
    let (mut change, mut below) = visit_as(after, ty, old, new);
    // A type of a custom resource may allow an object instead of a scalar: then it is both.
    if old.is_some() && !before.is_as(after) {
        let (other, others) = visit_as(before, ty, old, new);
        change = change.or(other);
        below.unite(others);
    }
    (change, below)
}

fn visit_as(
    kind: MergeKind<'_>,
    ty: ValueType<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> (Option<ValueChange>, Comparison) {
    let one_sided = match (old, new) {
        (None, Some(_)) => Some(ValueChange::Added),
        (Some(_), None) => Some(ValueChange::Removed),
        _ => None,
    };
    let below = match kind {
        MergeKind::Object if fields(old).is_some() || fields(new).is_some() => {
            visit_fields(ty, old, new)
        }
        MergeKind::Items(list) if !(items(old).is_empty() && items(new).is_empty()) => {
            visit_items(list, old, new)
        }
        _ => {
            let modified = match (old, new) {
                (Some(old), Some(new)) if !same(old, new) => Some(ValueChange::Modified),
                _ => None,
            };
            return (one_sided.or(modified), Comparison::default());
        }
    };
    (one_sided, below)
}

fn visit_fields(ty: ValueType<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let (old, new) = (fields(old), fields(new));
    let names: BTreeSet<_> = old
        .into_iter()
        .chain(new)
        .flat_map(serde_json::Map::keys)
        .collect();
    let mut comparison = Comparison::default();
    for name in names {
        let Some(ty) = field_type(ty, name) else {
            continue;
        };
        let (change, below) = visit(
            ty,
            old.and_then(|fields| fields.get(name)),
            new.and_then(|fields| fields.get(name)),
        );
        comparison.attach(&PathElement::name(name), change, below);
    }
    comparison
}

fn visit_items(list: ItemList<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let (old, new) = (by_step(list, old), by_step(list, new));
    let steps: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let mut comparison = Comparison::default();
    for step in steps {
        let old = old.get(step).map_or(&[] as &[_], Vec::as_slice);
        let new = new.get(step).map_or(&[] as &[_], Vec::as_slice);
        visit_item(list, step, old, new, &mut comparison);
    }
    comparison
}

fn by_step<'a>(
    list: ItemList<'_>,
    value: Option<&'a Value>,
) -> BTreeMap<PathElement, Vec<&'a Value>> {
    let mut by_step: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for item in items(value) {
        if let Ok(step) = item_step(list, item) {
            by_step.entry(step).or_default().push(item);
        }
    }
    by_step
}

/// Compares all items of one key. Several of them count as one atomic value.
fn visit_item(
    list: ItemList<'_>,
    step: &PathElement,
    old: &[&Value],
    new: &[&Value],
    comparison: &mut Comparison,
) {
    let mut attach = |old: Option<&&Value>, new: Option<&&Value>| {
        let (change, below) = visit(list.item(), old.copied(), new.copied());
        comparison.attach(step, change, below);
    };
    let repeated = match (old.len(), new.len()) {
        (0 | 1, 0 | 1) => {
            attach(old.first(), new.first());
            None
        }
        (2.., 2..) => {
            let equal = old.len() == new.len() && old.iter().zip(new).all(|(a, b)| same(a, b));
            (!equal).then_some(ValueChange::Modified)
        }
        (2.., _) => {
            if !new.is_empty() {
                attach(None, new.first());
            }
            Some(ValueChange::Removed)
        }
        (_, _) => {
            if !old.is_empty() {
                attach(old.first(), None);
            }
            Some(ValueChange::Added)
        }
    };
    comparison.attach(step, repeated, Comparison::default());
}
