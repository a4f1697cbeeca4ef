//! Seats that are held after the response: the final seats of requests.
//!
//! They stand for what the server still has to do, not for a request that would have to be interrupted. So in
//! [`Semantics::Improved`](super::Semantics) they give way to a request whose flow has received less than its share, if no
//! seat is free for it: such a request *displaces* as many seats as it needs, and all seats that linger are held for
//! longer in return. The work that they stand for stays the same.
//!
//! Lingering seats have a clock of their own. It runs as time does while none of them is displaced, more slowly the more are,
//! and as if one were not if all are, so that all of them end. What has to be done for one more lingering request or one displaced seat more does not depend on how many there are.
//!
//! Not here: who may displace seats ([`super::parts`]).

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use crate::{
    apf::units::Seats,
    time::{Nanos, Time, nanos},
};

/// The requests of a level that linger.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// When, on `clock`, the seats of each request are released.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    /// Nanoseconds for which a lingering seat has been held since the level exists.
    clock: u64,
    /// The seats of all requests that linger.
    seats: Seats,
    /// Those of them that are displaced at present.
    displaced: Seats,
    /// Whether seats were displaced since there last was no lingering request, so that announced releases are too early.
    was_displaced: bool,
    /// When the caller was last asked to tick because of that.
    asked: Time,
}

impl Lingering {
    /// How many requests linger.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }

    /// The seats of the requests that linger, displaced ones too.
    pub(super) fn seats(&self) -> Seats {
        self.seats
    }

    /// The seats that others have displaced.
    pub(super) fn displaced(&self) -> Seats {
        self.displaced
    }

    /// A request lingers for `latency`, if nobody displaces its `seats`.
    pub(super) fn push(&mut self, index: u32, seats: Seats, latency: Duration) {
        self.seats += seats;
        self.due
            .push(Reverse((self.clock.saturating_add(nanos(latency)), index)));
    }

    /// `more` seats are displaced in addition.
    pub(super) fn displace(&mut self, more: Seats) {
        self.displaced += more;
        self.was_displaced = true;
    }

    /// Displaced are at most so many seats from now on.
    pub(super) fn restore(&mut self, most: Seats) {
        self.displaced = self.displaced.min(most);
    }

    /// Time passes.
    pub(super) fn pass(&mut self, elapsed: Nanos) {
        if self.seats == 0 {
            return;
        }
        let elapsed = elapsed.as_nanos();
        let passed = match self.displaced {
            0 => elapsed,
            _ => scaled(elapsed, self.held(), self.seats),
        };
        self.clock = self.clock.saturating_add(passed);
    }

    /// The seats that count as held: not displaced, and at least one.
    fn held(&self) -> Seats {
        self.seats.saturating_sub(self.displaced).max(1)
    }

    /// The request that is due at or before the present, and its seats no longer linger.
    pub(super) fn pop_due(&mut self) -> Option<u32> {
        let Reverse((at, index)) = *self.due.peek()?;
        if at > self.clock {
            return None;
        }
        self.due.pop();
        Some(index)
    }

    /// The `seats` of a request that was due are released.
    pub(super) fn release(&mut self, seats: Seats) {
        self.seats -= seats;
        self.displaced = self.displaced.min(self.seats);
        if self.due.is_empty() {
            self.was_displaced = false;
        }
    }

    /// When the next request is due, if nothing is displaced or restored until then; `None` if nothing lingers.
    pub(super) fn next_release(&self, now: Time) -> Option<Time> {
        let left = self.left()?;
        if self.displaced == 0 {
            return Some(now.plus(Duration::from_nanos(left)));
        }
        // Rounded up, so that it is due then.
        let real = (u128::from(left) * u128::from(self.seats)).div_ceil(self.held().into());
        let real = u64::try_from(real).unwrap_or(u64::MAX);
        Some(now.plus(Duration::from_nanos(real)))
    }

    /// When the caller is to tick again, because the times that were announced to it have become later.
    pub(super) fn tick_again(&mut self, now: Time) -> Option<Time> {
        let at = self.next_release(now).filter(|_| self.was_displaced)?;
        if now < self.asked && self.asked <= at {
            return None;
        }
        self.asked = at;
        Some(at)
    }

    /// What is left until the next request is due, in nanoseconds of the clock.
    fn left(&self) -> Option<u64> {
        let Reverse((at, _)) = self.due.peek()?;
        Some(at.saturating_sub(self.clock))
    }
}

/// `amount` · `part` / `whole`, rounded down.
fn scaled(amount: u64, part: Seats, whole: Seats) -> u64 {
    let product = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO.plus(ms(millis))
    }

    #[test]
    fn seats_linger_for_as_long_as_announced_if_nobody_displaces_them() {
        let mut lingering = Lingering::default();
        lingering.push(1, 2, ms(20));
        lingering.push(2, 3, ms(10));
        assert_eq!(lingering.next_release(at(0)), Some(at(10)));
        lingering.pass(ms(10).into());
        assert_eq!(lingering.pop_due(), Some(2));
        lingering.release(3);
        assert_eq!(lingering.pop_due(), None);
        assert_eq!(lingering.next_release(at(10)), Some(at(20)));
        assert_eq!(lingering.tick_again(at(10)), None);
    }

    #[test]
    fn displaced_seats_linger_for_longer_in_return() {
        let mut lingering = Lingering::default();
        lingering.push(1, 4, ms(20));
        lingering.displace(2);
        assert_eq!(lingering.next_release(at(0)), Some(at(40)));
        lingering.pass(ms(20).into());
        assert_eq!(lingering.pop_due(), None, "half of it is left");
        assert_eq!(lingering.tick_again(at(20)), Some(at(40)));
        assert_eq!(lingering.tick_again(at(21)), None, "it was asked for");
        lingering.restore(0);
        lingering.pass(ms(10).into());
        assert_eq!(lingering.pop_due(), Some(1));
    }

    #[test]
    fn seats_that_are_all_displaced_end_as_if_one_were_not() {
        let mut lingering = Lingering::default();
        lingering.push(1, 2, ms(5));
        lingering.displace(2);
        assert_eq!(lingering.next_release(at(0)), Some(at(10)));
        lingering.pass(ms(10).into());
        assert_eq!(lingering.pop_due(), Some(1));
        lingering.release(2);
        assert_eq!((lingering.len(), lingering.displaced()), (0, 0));
    }
}
