//! Merging an applied object into a live one, and removing paths from an object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{
    path::PathElement,
    path_set::PathSet,
    shape::{ItemList, MergeKind, ValueType, field_type, fields, item_step, items, merge_kind},
};

/// The live value with the applied one merged into it. Only replaced values are lost; a null
/// replaces scalars and atomic values only.
pub(super) fn merge(ty: ValueType<'_>, live: &Value, applied: &Value) -> Value {
    match merge_kind(ty, Some(applied)) {
        MergeKind::Object if fields(Some(live)).is_some() || fields(Some(applied)).is_some() => {
            merge_fields(ty, live, applied)
        }
        MergeKind::Items(list)
            if !(items(Some(live)).is_empty() && items(Some(applied)).is_empty()) =>
        {
            Value::Array(merge_items(list, items(Some(live)), items(Some(applied))))
        }
        _ => applied.clone(),
    }
}

fn merge_fields(ty: ValueType<'_>, live: &Value, applied: &Value) -> Value {
    let nothing = Map::new();
    let [live, applied] = [live, applied].map(|value| value.as_object().unwrap_or(&nothing));
    // Only what stays is copied here: copies of what is merged below would add up level by level.
    let kept = live.iter().filter(|(name, _)| !applied.contains_key(*name));
    let kept = kept.map(|(name, live)| (name.clone(), live.clone()));
    let merged = applied.iter().map(|(name, applied)| {
        let value = match (live.get(name), field_type(ty, name)) {
            (Some(live), Some(ty)) => merge(ty, live, applied),
            _ => applied.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(kept.chain(merged).collect())
}

/// Merges lists: shared and new items have the applied order, and items that are only in the live
/// list stay next to their neighbours.
fn merge_items(list: ItemList<'_>, live: &[Value], applied: &[Value]) -> Vec<Value> {
    let live = with_steps(list, live);
    let applied = with_steps(list, applied);
    let merge = ListMerge::new(list, &live, &applied);
    merge.run(&live, &applied)
}

type KeyedItems<'a> = Vec<(PathElement, &'a Value)>;

fn with_steps<'a>(list: ItemList<'_>, items: &'a [Value]) -> KeyedItems<'a> {
    let stepped = items.iter().filter_map(|item| {
        let step = item_step(list, item).ok()?;
        Some((step, item))
    });
    stepped.collect()
}

struct ListMerge<'a> {
    list: ItemList<'a>,
    /// The live item of each key; none if there are several, since the key then identifies no item.
    live_by_step: BTreeMap<&'a PathElement, Option<&'a Value>>,
    applied_steps: BTreeSet<&'a PathElement>,
    /// The keys in both lists that were not merged yet, in the applied order.
    shared: VecDeque<&'a PathElement>,
    merged: BTreeSet<&'a PathElement>,
    out: Vec<Value>,
}

impl<'a> ListMerge<'a> {
    fn new(list: ItemList<'a>, live: &'a KeyedItems<'a>, applied: &'a KeyedItems<'a>) -> Self {
        let mut live_by_step = BTreeMap::new();
        for (step, item) in live {
            live_by_step
                .entry(step)
                .and_modify(|item| *item = None)
                .or_insert(Some(*item));
        }
        let shared = applied
            .iter()
            .map(|(step, _)| step)
            .filter(|step| live_by_step.contains_key(step))
            .collect();
        Self {
            list,
            live_by_step,
            applied_steps: applied.iter().map(|(step, _)| step).collect(),
            shared,
            merged: BTreeSet::new(),
            out: Vec::new(),
        }
    }

    fn run(mut self, live: &'a KeyedItems<'a>, applied: &'a KeyedItems<'a>) -> Vec<Value> {
        // The steps of `visitListItems` of structured-merge-diff: clients see the order of the items.
        let (mut l, mut a) = (0, 0);
        while l < live.len() || a < applied.len() {
            if let (Some((step, _)), Some((wanted, _))) = (live.get(l), applied.get(a)) {
                if step == wanted {
                    self.take(&applied[a]);
                    self.shared.pop_front();
                    l += 1;
                    a += 1;
                    continue;
                }
                let turn = self.shared.front();
                if self.applied_steps.contains(step) && turn.is_some_and(|turn| *turn != step) {
                    l += 1;
                    continue;
                }
            }
            if let Some((step, item)) = live.get(l) {
                if !self.applied_steps.contains(step) {
                    self.out.push((*item).clone());
                    l += 1;
                    continue;
                }
                if self.merged.contains(step) {
                    l += 1;
                }
            }
            if let Some(item) = applied.get(a) {
                self.take(item);
                a += 1;
                if self.shared.front() == Some(&&item.0) {
                    self.shared.pop_front();
                }
            }
        }
        self.out
    }

    /// Emits an applied item, merged with its live counterpart.
    fn take(&mut self, (step, item): &'a (PathElement, &'a Value)) {
        self.merged.insert(step);
        let live = self.live_by_step.get(step).copied().flatten();
        self.out.push(match live {
            Some(live) => merge(self.list.item(), live, item),
            None => (*item).clone(),
        });
    }
}

/// The value without the paths of a set. Containers that lose everything become null, and so do
/// atomic values of which parts are to be removed.
pub(super) fn remove(ty: ValueType<'_>, value: &Value, gone: &PathSet) -> Value {
    match merge_kind(ty, Some(value)) {
        MergeKind::Object => remove_fields(ty, value, gone),
        MergeKind::Items(list) => remove_items(list, value, gone),
        MergeKind::Leaf if value.is_object() || value.is_array() => Value::Null,
        MergeKind::Leaf => value.clone(),
    }
}

fn remove_fields(ty: ValueType<'_>, value: &Value, gone: &PathSet) -> Value {
    let mut kept = Map::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        let value = match gone.get(&PathElement::name(name)) {
            None => value.clone(),
            Some(node) if node.member => continue,
            Some(node) => match field_type(ty, name) {
                Some(ty) => remove(ty, value, &node.below),
                None => value.clone(),
            },
        };
        kept.insert(name.clone(), value);
    }
    if kept.is_empty() {
        Value::Null
    } else {
        Value::Object(kept)
    }
}

fn remove_items(list: ItemList<'_>, value: &Value, gone: &PathSet) -> Value {
    let mut kept = Vec::new();
    for item in items(Some(value)) {
        let step = item_step(list, item).ok();
        match step.as_ref().and_then(|step| gone.get(step)) {
            None => kept.push(item.clone()),
            Some(node) if node.member => {}
            Some(node) => kept.push(remove(list.item(), item, &node.below)),
        }
    }
    if kept.is_empty() {
        Value::Null
    } else {
        Value::Array(kept)
    }
}
