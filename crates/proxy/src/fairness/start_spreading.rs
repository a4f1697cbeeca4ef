//! Spreads out the starts of requests whose seats became free at the same time.
//!
//! If all requests take about the same time, those that start together also end together, again and again: a proxy
//! reads responses and sends requests in batches. Seats then become free in groups with most of a service time in
//! between, and a request that arrives in between waits for it. A start that is delayed once ends apart from the
//! group from then on.
//!
//! Delays cost seat time, so they are paid from a budget: 1/256 of the time that requests executed. Constant service
//! times need it once; random ones, which spread without delays, use it up. Only requests are
//! delayed that have already waited for half a service time: a client that uses less than its share is next in turn,
//! and waits for less.
//!
//! Pure: time is an argument. Not here: timers ([`super::delayed_starts`]), and which request
//! starts next ([`fairgate_core::apf`]).

use std::time::Duration;

use fairgate_core::time::Time;

/// The part of the time that requests executed which may be spent: one in this many.
const COST: u32 = 256;
/// The maximum budget: enough to spread out 32 requests of 30 ms, which costs half a service time each.
const MAX_BUDGET: Duration = Duration::from_millis(500);
/// Starts that are closer than this are not delayed: the runtime's timers are not more precise.
const GRAIN: Duration = Duration::from_millis(1);
/// Over how many events the means are taken, approximately.
const MEAN_WINDOW: u32 = 256;
/// An interval longer than this many mean ones is a pause without waiting requests, and counts as this many.
const PAUSE: u32 = 32;

/// The starts of one level's requests on one core. O(1) each.
#[derive(Debug, Default)]
pub(super) struct StartSpreading {
    /// When a waiting request was last granted its seat.
    last: Option<Time>,
    /// The mean interval between grants.
    interval: Duration,
    /// The mean execution time of requests.
    service: Duration,
    /// The next start is early before this time.
    next: Time,
    saved: Duration,
}

impl StartSpreading {
    /// A request has executed for `time`.
    pub(super) fn executed(&mut self, time: Duration) {
        self.service = mean(self.service, time);
        self.saved = (self.saved + time / COST).min(MAX_BUDGET);
    }

    /// A request that has waited for `waited` is granted its seat. Returns when it should start, if not immediately: at
    /// most one mean service time later.
    pub(super) fn start(&mut self, now: Time, waited: Duration) -> Option<Time> {
        let since = self.last.replace(now).map_or(GRAIN, |last| now.since(last));
        self.interval = mean(self.interval, since.min((self.interval * PAUSE).max(GRAIN)));
        // A little less than the mean, so that late starts catch up.
        let step = self.interval.saturating_sub(self.interval / 16);
        let early = self.next.since(now);
        if early < GRAIN {
            self.next = now.plus(early + step);
            return None;
        }
        // A timer fires up to a grain late.
        let price = early + GRAIN / 2;
        if waited < self.service / 2 || early > self.service || price > self.saved {
            return None;
        }
        self.saved = self.saved.saturating_sub(price);
        let due = self.next;
        self.next = due.plus(step);
        Some(due)
    }
}

fn mean(before: Duration, value: Duration) -> Duration {
    before.saturating_sub(before / MEAN_WINDOW) + value / MEAN_WINDOW
}

#[cfg(test)]
mod tests {
    use fairgate_core::random::Random;

    use super::*;

    const SEATS: usize = 16;
    const LONG: Duration = Duration::from_secs(1);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Seats for each of which a request always waits.
    struct World {
        spread: StartSpreading,
        ends: Vec<Time>,
        executed: Duration,
        delayed: Duration,
    }

    impl World {
        fn new() -> Self {
            Self {
                spread: StartSpreading::default(),
                ends: vec![Time::ZERO; SEATS],
                executed: Duration::ZERO,
                delayed: Duration::ZERO,
            }
        }

        /// Runs until `until`; returns the gaps between ends after `from`.
        fn run(
            &mut self,
            from: Time,
            until: Time,
            mut service: impl FnMut() -> Duration,
        ) -> Vec<Duration> {
            let (mut gaps, mut before) = (Vec::new(), from);
            loop {
                self.ends.sort_unstable();
                let now = self.ends[0];
                if now >= until {
                    return gaps;
                }
                if now >= from {
                    gaps.push(now.since(before));
                    before = now;
                }
                let takes = service();
                let start = self.spread.start(now, LONG).unwrap_or(now);
                self.delayed += start.since(now);
                self.ends[0] = start.plus(takes);
                self.spread.executed(takes);
                self.executed += takes;
            }
        }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO.plus(ms(millis))
    }

    #[test]
    fn requests_that_began_together_end_one_by_one_after_a_while() {
        let mut world = World::new();
        let gaps = world.run(at(3_000), at(4_000), || ms(10));
        let longest = gaps.iter().max().copied().unwrap_or_default();
        assert!(longest <= ms(3), "{longest:?}");
        assert!(gaps.len() > SEATS * 100 * 98 / 100, "{}", gaps.len());
    }

    #[test]
    fn once_requests_are_spread_out_hardly_any_is_delayed() {
        let mut world = World::new();
        world.run(at(0), at(5_000), || ms(10));
        let delayed = world.delayed;
        world.run(at(5_000), at(10_000), || ms(10));
        let more = world.delayed.saturating_sub(delayed);
        assert!(more <= ms(80), "{more:?}");
    }

    #[test]
    fn delays_cost_at_most_one_part_in_256_of_the_execution_time() {
        let mut random = Random::seeded(1);
        let mut world = World::new();
        world.run(at(0), at(20_000), || {
            Duration::from_micros(random.within(100..60_100))
        });
        assert!(world.delayed <= world.executed / 256, "{:?}", world.delayed);
    }

    #[test]
    fn a_request_that_has_not_waited_long_starts_at_once() {
        let mut world = World::new();
        world.run(at(0), at(200), || ms(10));
        let now = at(200);
        assert!((0..64).all(|_| world.spread.start(now, ms(3)).is_none()));
        assert!((0..64).any(|_| world.spread.start(now, LONG).is_some()));
    }

    #[test]
    fn a_pause_does_not_make_later_requests_wait() {
        let mut world = World::new();
        world.run(at(0), at(1_000), || ms(10));
        let now = at(60_000);
        world.spread.start(now, LONG);
        let latest = (0..SEATS)
            .filter_map(|_| world.spread.start(now, LONG))
            .max();
        assert!(
            latest.is_none_or(|latest| latest.since(now) <= ms(10)),
            "{latest:?}"
        );
    }
}
