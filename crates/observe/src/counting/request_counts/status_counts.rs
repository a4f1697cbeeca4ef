//! Counts by status and dry run in a fixed number of cells.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
};

use super::DryRun;
use fairgate_core::cells::Counter;

/// Counts by status and dry run: the first `N` of them apart, the rest together.
#[derive(Debug)]
pub(super) struct StatusCounts<const N: usize> {
    /// Status and dry run; 0 while the cell is free.
    tags: [AtomicU32; N],
    counts: [Counter; N],
    rest: Counter,
}

impl<const N: usize> Default for StatusCounts<N> {
    fn default() -> Self {
        Self {
            tags: std::array::from_fn(|_| AtomicU32::new(0)),
            counts: std::array::from_fn(|_| Counter::default()),
            rest: Counter::default(),
        }
    }
}

impl<const N: usize> StatusCounts<N> {
    pub(super) fn count(&self, code: u16, dry_run: DryRun) {
        let expected_tag = u32::from(code) << 2 | dry_run as u32 | 1 << 31;
        for (tag, count) in self.tags.iter().zip(&self.counts) {
            let present = tag.load(Ordering::Relaxed);
            if present == 0 {
                tag.store(expected_tag, Ordering::Relaxed);
            }
            if present == 0 || present == expected_tag {
                count.increment();
                return;
            }
        }
        self.rest.increment();
    }

    pub(super) fn add_to(&self, totals: &mut StatusTotals) {
        for (tag, count) in self.tags.iter().zip(&self.counts) {
            let tag = tag.load(Ordering::Relaxed);
            if tag == 0 {
                return;
            }
            let dry_run = match tag & 3 {
                0 => DryRun::No,
                1 => DryRun::All,
                _ => DryRun::Invalid,
            };
            let code = u16::try_from(tag >> 2 & 0xffff).ok();
            *totals.entry((code, dry_run)).or_default() += count.get();
        }
        let rest = self.rest.get();
        if rest > 0 {
            *totals.entry((None, DryRun::No)).or_default() += rest;
        }
    }
}

/// Counts by dry run and status; `None` stands for all statuses that are not distinguished.
pub(crate) type StatusTotals = BTreeMap<(Option<u16>, DryRun), u64>;
