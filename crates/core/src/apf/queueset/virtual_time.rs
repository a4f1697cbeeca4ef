//! Virtual time, and its epochs.
//!
//! Virtual time is seat-seconds given to each active queue. Being fixed point modulo 2⁶⁴ it is set
//! back by half its range, an *epoch*, when three quarters are used up; this happens in tests only.

use super::{Phase, QueueSet};
use crate::apf::units::SeatSeconds;

/// How far one epoch sets back.
const EPOCH: u64 = u64::MAX / 2;
/// When an epoch is due.
const DUE: u64 = EPOCH + EPOCH / 2;
/// A request of more work than this is implausible.
const IMPLAUSIBLE: u64 = EPOCH / 100;
/// Of all work, flows that are far behind may receive this part (1 / n) while it stands still. Any part would do against starvation; with a
/// smaller one, polite flows wait longer beside others that have saved, with a greater one the others get less of their shares.
const STANDS_STILL: u64 = 8;

/// The virtual clock of a queue set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VirtualTime {
    r: SeatSeconds,
    /// Work of all active flows together by which it has not advanced yet, in units of seat-seconds: less than one for each.
    undivided: u64,
    /// How much flows that are far behind it may still receive before it advances for that, too, in units of seat-seconds.
    standstill: u64,
}

impl VirtualTime {
    pub(super) fn r(self) -> SeatSeconds {
        self.r
    }

    /// Advances; true when an epoch is due.
    pub(super) fn advance(&mut self, by: SeatSeconds) -> bool {
        self.r = self.r.plus(by);
        self.r.units() >= DUE
    }

    /// Raises virtual time to `start`, the virtual start of a request that is dispatched.
    ///
    /// `start` must not contain estimates: virtual time does not go back when they prove too high, and requests that
    /// arrive later would have to wait for all earlier ones.
    pub(super) fn catch_up(&mut self, start: SeatSeconds) {
        self.r = self.r.max(start);
    }

    /// Each flow of weight 1 has received `work`.
    pub(super) fn follow(&mut self, work: SeatSeconds) {
        self.r = self.r.plus(work);
    }

    /// What was [kept](Self::keep_undivided).
    pub(super) fn undivided(self) -> u64 {
        self.undivided
    }

    /// So much work of all active flows together, in units of seat-seconds, is less than one unit for each: it counts the next time.
    pub(super) fn keep_undivided(&mut self, work: u64) {
        self.undivided = work;
    }

    /// Active flows have received `work`, of which those that are far behind it received `behind`. Returns how much of the latter does
    /// not advance it: all of it, but a bounded part of all work over any longer time, and at most `most` at once.
    pub(super) fn stands_still_for(&mut self, behind: u64, work: u64, most: u64) -> u64 {
        let may = self.standstill.saturating_add(work / STANDS_STILL);
        let may = may.min(most);
        let still = behind.min(may);
        self.standstill = may - still;
        still
    }

    pub(super) fn check_plausible(total_work: SeatSeconds) {
        debug_assert!(
            total_work.units() <= IMPLAUSIBLE,
            "no request is that long: {total_work}"
        );
    }
}

impl<W: Copy> QueueSet<W> {
    /// Sets virtual time, and everything measured in it, back by one epoch.
    pub(super) fn next_epoch(&mut self) {
        let mut wrapped = false;
        let mut back = |time: SeatSeconds| {
            let earlier = time.minus(SeatSeconds::from_units(EPOCH));
            wrapped |= earlier > time;
            earlier
        };
        self.virtual_time.r = back(self.virtual_time.r);
        for &slot in &self.deck {
            let queue = &mut self.slots[slot as usize];
            if !queue.is_active() {
                queue.next_dispatch_r = SeatSeconds::ZERO;
                continue;
            }
            queue.next_dispatch_r = back(queue.next_dispatch_r);
            let mut next = queue.line.head;
            while next != super::NONE {
                let entry = self.entries.at_mut(next);
                debug_assert_eq!(
                    entry.phase,
                    Phase::Waiting,
                    "only waiting requests are in a queue"
                );
                entry.arrival_r = back(entry.arrival_r);
                next = entry.next_in_queue();
            }
        }
        if wrapped {
            self.counters.epochs_failed += 1;
        } else {
            self.counters.epochs += 1;
        }
        self.order.clear();
        for position in 0..self.deck.len() {
            self.settle(self.deck[position]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_far_behind_hold_virtual_time_for_a_bounded_part_of_all_work() {
        let mut time = VirtualTime::default();
        let mut still = || time.stands_still_for(800, 800, 2_000);
        let all: u64 = (0..1_000).map(|_| still()).sum();
        assert_eq!(all, 100 * 1_000);
        // What they do not use is kept, but not for ever.
        let nothing: u64 = (0..1_000)
            .map(|_| time.stands_still_for(0, 800, 2_000))
            .sum();
        assert_eq!(nothing, 0);
        assert_eq!(time.stands_still_for(5_000, 5_000, 2_000), 2_000);
    }
}
