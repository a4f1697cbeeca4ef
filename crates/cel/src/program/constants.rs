//! Sets of constants, for `value in [constants]`.

use std::collections::HashSet;

use crate::value::{CelValue, MapKey};

/// Up to so many texts are compared one by one, which is faster than a search.
const SEARCHED_FROM: usize = 8;

/// Constants of primitive types. Looking up a value allocates nothing.
#[derive(Default)]
pub(super) struct ConstantSet {
    /// Sorted if there are more than [`SEARCHED_FROM`].
    texts: Vec<Box<str>>,
    others: HashSet<MapKey>,
}

impl ConstantSet {
    /// The set of `values`. One that cannot be a key of a map, such as a list, is left out.
    pub(super) fn new<'v>(values: impl IntoIterator<Item = CelValue<'v>>) -> Self {
        let mut set = Self::default();
        for value in values {
            match value {
                CelValue::String(text) => set.texts.push((*text).into()),
                other => set.others.extend(MapKey::of(&other)),
            }
        }
        if set.texts.len() > SEARCHED_FROM {
            set.texts.sort_unstable();
        }
        set
    }

    /// Whether a value of the same type and content is in the set.
    pub(super) fn contains(&self, value: &CelValue<'_>) -> bool {
        match value {
            CelValue::String(text) if self.texts.len() > SEARCHED_FROM => {
                let found = self.texts.binary_search_by(|of| (**of).cmp(text));
                found.is_ok()
            }
            CelValue::String(text) => self.texts.iter().any(|of| **of == **text),
            other => MapKey::of(other).is_some_and(|key| self.others.contains(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_it_was_made_of_whatever_its_size() {
        for size in [0, 1, SEARCHED_FROM, SEARCHED_FROM + 1, 100] {
            let text = |number: usize| CelValue::from(format!("text {number}"));
            let number = |number: usize| CelValue::Uint(number as u64);
            let all = (0..size).flat_map(|of| [text(of), number(of)]);
            let set = ConstantSet::new(all);
            for of in 0..size {
                assert!(set.contains(&text(of)) && set.contains(&number(of)), "{of}");
            }
            assert!(!set.contains(&text(size)) && !set.contains(&number(size)));
            // Numbers of other types are entered by those who know which are equal.
            assert!(!set.contains(&CelValue::Int(0)) && !set.contains(&CelValue::Null));
        }
    }
}
