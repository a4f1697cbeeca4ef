//! A client whose requests start before those of all others.
//!
//! Its requests never enter the level: they take the next seats that are free, and the level has as many seats less. What
//! executes is not interrupted, and seats that linger in its place do so for longer. So nobody can serve this client sooner who lets the others have what is left as `Improved` divides
//! it: a client that is still worse off than it may be, is so under any such rule.

use std::collections::VecDeque;

use super::{Number, Stage};
use fairgate_core::{
    apf::{queueset::QueueSetEvents, units::Seats},
    time::Time,
};

/// The requests of the preferred client.
pub(super) struct Preferred {
    pub(super) flow: u32,
    waiting: VecDeque<Number>,
    /// The seats with which its requests execute, and those of all others.
    own: Seats,
    others: Seats,
    /// All seats, and those of them that the level has.
    seats: Seats,
    limit: Seats,
}

impl Preferred {
    pub(super) fn new(flow: u32, seats: Seats) -> Self {
        Self {
            flow,
            waiting: VecDeque::new(),
            own: 0,
            others: 0,
            seats,
            limit: seats,
        }
    }
}

impl Stage<'_> {
    /// Whether requests of this client start before those of all others.
    pub(super) fn prefers(&self, flow: u32) -> bool {
        let preferred = self.preferred.as_ref();
        preferred.is_some_and(|preferred| preferred.flow == flow)
    }

    /// A request of the preferred client arrives. It starts as soon as its seats are free.
    pub(super) fn call_preferred(&mut self, now: Time, number: Number) {
        if let Some(preferred) = &mut self.preferred {
            preferred.waiting.push_back(number);
        }
        self.wait(now, number);
    }

    /// A request begins to execute with `after` seats instead of `before`, or ends.
    pub(super) fn count_executing(&mut self, flow: u32, before: Seats, after: Seats) {
        let Some(preferred) = &mut self.preferred else {
            return;
        };
        let seats = if preferred.flow == flow {
            &mut preferred.own
        } else {
            &mut preferred.others
        };
        *seats = *seats - before + after;
    }

    /// The limit becomes `seats`, if there is a preferred client; otherwise this does nothing and returns false.
    pub(super) fn limit_preferred(&mut self, seats: Seats) -> bool {
        let Some(preferred) = &mut self.preferred else {
            return false;
        };
        preferred.seats = seats;
        true
    }

    /// What executes has changed: what the preferred client has waiting starts if it fits, and the level has the seats that are left.
    pub(super) fn serve_preferred(&mut self, now: Time) {
        while let Some(number) = self.next_preferred() {
            self.begin(now, number);
        }
        let Some(preferred) = &mut self.preferred else {
            return;
        };
        let first = preferred.waiting.front();
        let kept = first.map_or(0, |number| self.requests[*number as usize].width);
        let seats = preferred.seats;
        let limit = seats.saturating_sub(preferred.own + kept);
        if limit != preferred.limit {
            preferred.limit = limit;
            let mut out = QueueSetEvents::default();
            self.level
                .act(|set| set.set_limit(now, limit, seats, &mut out));
            self.carry_out(now, out);
        }
        self.level.act(|set| set.displace_above_limit(now));
    }

    /// Takes the first request that waits, if it fits.
    fn next_preferred(&mut self) -> Option<Number> {
        let preferred = self.preferred.as_mut()?;
        // Those that have given up.
        while let Some(number) = preferred.waiting.front()
            && !self.requests[*number as usize].waits
        {
            preferred.waiting.pop_front();
        }
        let number = *preferred.waiting.front()?;
        let in_use = preferred.own + preferred.others;
        // A request that is wider than the level executes alone.
        if in_use > 0 && in_use + self.requests[number as usize].width > preferred.seats {
            return None;
        }
        preferred.waiting.pop_front()
    }
}
