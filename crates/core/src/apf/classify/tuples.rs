//! A table from four small numbers to a range, for what an index has decomposed.

use std::ops::Range;

/// A tuple of a rule; the index defines the meaning of each number.
pub(super) type TupleKey = [u32; 4];

/// Open addressing, at most a quarter full, so that chains are short. Clients cannot choose the numbers, so the
/// hash needs no key.
pub(super) struct Tuples {
    slots: Box<[TupleSlot]>,
}

#[derive(Clone, Copy)]
struct TupleSlot {
    key: TupleKey,
    start: u32,
    end: u32,
}

/// No range is empty, so this one marks a free slot.
const FREE: TupleSlot = TupleSlot {
    key: [0; 4],
    start: 0,
    end: 0,
};

impl Tuples {
    /// A table of these entries, whose keys are distinct and whose ranges are not empty.
    pub(super) fn new(entries: &[(TupleKey, Range<u32>)]) -> Self {
        let len = (entries.len() * 4).max(4).next_power_of_two();
        let mut slots = vec![FREE; len].into_boxed_slice();
        for (key, range) in entries {
            debug_assert!(!range.is_empty());
            let mut at = hash(*key) & (len - 1);
            while slots[at].end != 0 {
                at = (at + 1) & (len - 1);
            }
            slots[at] = TupleSlot {
                key: *key,
                start: range.start,
                end: range.end,
            };
        }
        Self { slots }
    }

    /// The range of a key.
    pub(super) fn find(&self, key: TupleKey) -> Option<Range<usize>> {
        let mask = self.slots.len() - 1;
        let mut at = hash(key) & mask;
        loop {
            super::count();
            let slot = self.slots[at];
            if slot.end == 0 {
                return None;
            }
            if slot.key == key {
                return Some(slot.start as usize..slot.end as usize);
            }
            at = (at + 1) & mask;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked by the caller")]
fn hash([a, b, c, d]: TupleKey) -> usize {
    let low = (u64::from(a) << 32 | u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let high = (u64::from(c) << 32 | u64::from(d)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    let mixed = (low ^ high.rotate_left(29)).wrapping_mul(0x1656_67b1_9e37_79f9);
    (mixed ^ (mixed >> 32)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_finds_its_own_range() {
        let entries: Vec<(TupleKey, Range<u32>)> = (0..5000)
            .map(|i| ([i % 7, i, 2 + i / 3, i % 2], i..i + 1))
            .collect();
        let tuples = Tuples::new(&entries);
        for (i, (key, _)) in entries.iter().enumerate() {
            assert_eq!(tuples.find(*key), Some(i..i + 1));
        }
        assert_eq!(tuples.find([0, 1, 2, 3]), None);
        assert_eq!(Tuples::new(&[]).find([0; 4]), None);
    }
}
