//! A table from four small numbers to a range, for what an index has decomposed.

use std::ops::Range;

/// A tuple of a rule; the index defines the meaning of each number.
pub(super) type TupleKey = [u32; 4];

/// Open addressing, at most a quarter full, so that chains are short; the slots are small, so that free ones cost
/// little memory. Clients cannot choose the numbers, so the hash needs no key.
pub(super) struct Tuples {
    slots: Box<[TupleSlot]>,
    entries: Box<[TupleEntry]>,
}

#[derive(Clone, Copy)]
struct TupleSlot {
    /// Bits of the hash that do not choose the slot. They differ for most other keys.
    tag: u32,
    /// The index of the entry plus 1; 0 in a free slot.
    number: u32,
}

struct TupleEntry {
    key: TupleKey,
    start: u32,
    end: u32,
}

const FREE: TupleSlot = TupleSlot { tag: 0, number: 0 };

impl Tuples {
    /// A table of these entries, whose keys are distinct.
    pub(super) fn new(entries: &[(TupleKey, Range<u32>)]) -> Self {
        let len = (entries.len() * 4).max(4).next_power_of_two();
        let mut slots = vec![FREE; len].into_boxed_slice();
        for (number, (key, _)) in (1..).zip(entries) {
            let hash = hash(*key);
            let mut at = first_slot(hash, len);
            while slots[at].number != 0 {
                at = (at + 1) & (len - 1);
            }
            let tag = tag(hash);
            slots[at] = TupleSlot { tag, number };
        }
        let entry = |(key, range): &(TupleKey, Range<u32>)| TupleEntry {
            key: *key,
            start: range.start,
            end: range.end,
        };
        Self {
            slots,
            entries: entries.iter().map(entry).collect(),
        }
    }

    /// The range of a key.
    pub(super) fn find(&self, key: TupleKey) -> Option<Range<usize>> {
        let hash = hash(key);
        let len = self.slots.len();
        let mut at = first_slot(hash, len);
        loop {
            super::count();
            let slot = self.slots[at];
            if slot.number == 0 {
                return None;
            }
            if slot.tag == tag(hash) {
                let entry = &self.entries[slot.number as usize - 1];
                if entry.key == key {
                    return Some(entry.start as usize..entry.end as usize);
                }
            }
            at = (at + 1) & (len - 1);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "masked")]
const fn first_slot(hash: u64, len: usize) -> usize {
    hash as usize & (len - 1)
}

const fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

fn hash([a, b, c, d]: TupleKey) -> u64 {
    let low = (u64::from(a) << 32 | u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let high = (u64::from(c) << 32 | u64::from(d)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    let mixed = (low ^ high.rotate_left(29)).wrapping_mul(0x1656_67b1_9e37_79f9);
    mixed ^ (mixed >> 32)
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
