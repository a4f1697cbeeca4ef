//! Go's stable sort, whose result also depends on its steps where an order contradicts itself.
//!
//! Blocks of 20 items are sorted by insertion, and merged by symmetric comparisons (Kim and Kutzner, "Stable Minimum Storage Merging by
//! Symmetric Comparisons"). Source: Go `sort.SliceStable`.

/// How many items are sorted by insertion.
const BLOCK: usize = 20;

/// Sorts `items` as Go does if `less` says whether an item comes before another, be it in contradiction to itself.
///
/// Costs `O(n log n)` comparisons and at most `O(n log² n)` moves, and allocates nothing.
pub(super) fn sort<T>(items: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    for block in items.chunks_mut(BLOCK) {
        insert(block, less);
    }
    let mut sorted = BLOCK;
    while sorted < items.len() {
        for blocks in items.chunks_mut(2 * sorted) {
            if blocks.len() > sorted {
                merge(blocks, sorted, less);
            }
        }
        sorted *= 2;
    }
}

fn insert<T>(items: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    for end in 1..items.len() {
        let moved = items[..end].iter().rev();
        let moved = moved.take_while(|one| less(&items[end], one)).count();
        items[end - moved..=end].rotate_right(1);
    }
}

/// Merges the items before `middle` with the others. There are some on both sides.
fn merge<T>(items: &mut [T], middle: usize, less: &impl Fn(&T, &T) -> bool) {
    let end = items.len();
    if middle == 1 {
        let place = search(1, end, |at| !less(&items[at], &items[0]));
        items[..place].rotate_left(1);
        return;
    }
    if end - middle == 1 {
        let place = search(0, middle, |at| less(&items[middle], &items[at]));
        items[place..].rotate_right(1);
        return;
    }
    let half = end / 2;
    let sum = half + middle;
    let (low, high) = if middle > half {
        (sum - end, half)
    } else {
        (0, middle)
    };
    let from = search(low, high, |at| less(&items[sum - 1 - at], &items[at]));
    let to = sum - from;
    if from < middle && middle < to {
        items[from..to].rotate_left(middle - from);
    }
    if 0 < from && from < half {
        merge(&mut items[..half], from, less);
    }
    if half < to && to < end {
        merge(&mut items[half..], to - half, less);
    }
}

/// The index from `low` to `high` at which a binary search ends that asks at each place whether it is there or before.
fn search(low: usize, high: usize, is_there: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (low, high);
    while low < high {
        let at = usize::midpoint(low, high);
        if is_there(at) {
            high = at;
        } else {
            low = at + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use crate::{codec::FieldValidation, patch::strategic, schema::built_in};

    /// Items by the places that an order gives them, and how Go sorts them: `sort.SliceStable` by the comparison of
    /// `normalizeSliceOrder` in `apimachinery/pkg/util/strategicpatch`. Those whose items without a place come first, and the others in
    /// order, are what patches of that package lead to.
    const RECORDED: &str = include_str!("stable_sort.json");

    #[derive(Deserialize)]
    struct SortedItems {
        places: Vec<Option<usize>>,
        sorted: Vec<usize>,
    }

    fn recorded() -> Vec<SortedItems> {
        serde_json::from_str(RECORDED).unwrap()
    }

    #[test]
    fn items_are_sorted_as_go_sorts_them() {
        for SortedItems { places, sorted } in recorded() {
            let mut items: Vec<usize> = (0..places.len()).collect();
            sort(
                &mut items,
                &|one: &usize, other: &usize| match (places[*one], places[*other]) {
                    (Some(one), Some(other)) => one < other,
                    _ => true,
                },
            );
            assert_eq!(items, sorted, "{places:?}");
        }
    }

    #[test]
    fn patches_with_an_empty_order_are_applied_as_a_server_applies_them() {
        let shape = built_in("", "v1", "Pod").unwrap();
        let mut patched = 0;
        for SortedItems { places, sorted } in recorded() {
            let new = places.iter().take_while(|place| place.is_none()).count();
            if !places[new..]
                .iter()
                .copied()
                .eq((0..places.len() - new).map(Some))
            {
                continue;
            }
            let finalizers = |of: &[usize]| {
                of.iter()
                    .map(|one| json!(format!("x/{one}")))
                    .collect::<Value>()
            };
            let containers = |of: &[usize]| {
                of.iter()
                    .map(|one| json!({"name": one.to_string()}))
                    .collect::<Value>()
            };
            let numbers: Vec<usize> = (0..places.len()).collect();
            let (new, stored) = numbers.split_at(new);
            let object = json!({"metadata": {"finalizers": finalizers(stored)}, "spec": {"containers": containers(stored)}});
            let patch = json!({
                "metadata": {"finalizers": finalizers(new), "$setElementOrder/finalizers": []},
                "spec": {"containers": containers(new), "$setElementOrder/containers": []},
            });
            let result = strategic(
                shape,
                &object,
                patch.to_string().as_bytes(),
                FieldValidation::Strict,
            );
            let result = result.unwrap().value;
            assert_eq!(
                result["metadata"]["finalizers"],
                finalizers(&sorted),
                "{places:?}"
            );
            assert_eq!(
                result["spec"]["containers"],
                containers(&sorted),
                "{places:?}"
            );
            patched += 1;
        }
        assert_eq!(patched, 12);
    }
}
