//! How a server behaves under overload: a pure model of shared processors.
//!
//! The server executes all requests concurrently, and divides itself evenly, as a program does whose requests
//! are threads or goroutines. With n requests in progress and the capacity c each proceeds at
//! `min(1, c / n) / (1 + degradation * max(0, n - c) / c)` of the full speed: up to its capacity it is not slowed down,
//! beyond it requests take longer in proportion, and what is lost to switching, locks and garbage collection grows with
//! the overload (the shape of the Universal Scalability Law, N. J. Gunther).
//!
//! Not here: time, threads, HTTP.

use std::{collections::BTreeMap, time::Duration};

use fairgate_core::time::Time;

/// Requests in progress, each with a `T` that is returned at its end.
#[derive(Debug)]
pub(crate) struct SharedProcessor<T> {
    capacity: f64,
    degradation: f64,
    /// The factor by which everything is slower.
    slowdown: f64,
    now: Time,
    /// The progress of a request that executes from the beginning, in nanoseconds at full speed.
    progress: f64,
    /// By the progress at which they end, and the order of their arrival.
    running: BTreeMap<(u64, u64), T>,
    arrived: u64,
}

impl<T> SharedProcessor<T> {
    /// A server without requests. `capacity` is at least 1.
    pub(crate) fn new(capacity: u32, degradation: f64, now: Time) -> Self {
        Self {
            capacity: f64::from(capacity.max(1)),
            degradation,
            slowdown: 1.0,
            now,
            progress: 0.0,
            running: BTreeMap::new(),
            arrived: 0,
        }
    }

    /// The number of requests in progress.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Begins a request that takes `work` at full speed. O(log requests).
    pub(crate) fn begin(&mut self, now: Time, work: Duration, request: T, ended: &mut Vec<T>) {
        self.advance(now, ended);
        self.arrived += 1;
        let end = self.progress + work.as_secs_f64() * 1e9;
        self.running.insert((nanos(end), self.arrived), request);
    }

    /// Everything takes `factor` times as long from now on; at least a hundredth.
    pub(crate) fn slow_down(&mut self, now: Time, factor: f64, ended: &mut Vec<T>) {
        self.advance(now, ended);
        self.slowdown = factor.max(0.01);
    }

    /// Moves to `now`; requests that end until then are added to `ended`, in the order of their ends.
    pub(crate) fn advance(&mut self, now: Time, ended: &mut Vec<T>) {
        while let Some(end) = self.next_end().filter(|end| *end <= now) {
            let Some(((progress, _), request)) = self.running.pop_first() else {
                break;
            };
            self.progress = self.progress.max(real(progress));
            self.now = self.now.max(end);
            ended.push(request);
        }
        self.progress += real(fairgate_core::time::nanos(now.since(self.now))) * self.speed();
        self.now = self.now.max(now);
    }

    /// When the next request ends, if nothing changes until then.
    pub(crate) fn next_end(&self) -> Option<Time> {
        let ((progress, _), _) = self.running.first_key_value()?;
        let left = (real(*progress) - self.progress).max(0.0) / self.speed();
        // Rounded up, so that progress is never left over.
        Some(self.now.plus(Duration::from_nanos(nanos(left.ceil()))))
    }

    /// The part of the full speed at which each request proceeds.
    fn speed(&self) -> f64 {
        let requests = real(self.running.len() as u64).max(1.0);
        let over = (requests - self.capacity).max(0.0) / self.capacity;
        (self.capacity / requests).min(1.0) / (1.0 + self.degradation * over) / self.slowdown
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "progress is positive and far below 2^64 ns"
)]
fn nanos(value: f64) -> u64 {
    value.round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "times are far below 2^52 ns")]
fn real(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.plus(Duration::from_millis(ms))
    }

    const WORK: Duration = Duration::from_millis(50);

    /// Milliseconds at which `requests` that arrive together end.
    fn ends(requests: u32, degradation: f64) -> Vec<u128> {
        let mut server = SharedProcessor::new(10, degradation, Time::ZERO);
        let mut ended = Vec::new();
        for request in 0..requests {
            server.begin(Time::ZERO, WORK, request, &mut ended);
        }
        let mut ends = Vec::new();
        while let Some(end) = server.next_end() {
            server.advance(end, &mut ended);
            ends.extend(ended.drain(..).map(|_| end.since(Time::ZERO).as_millis()));
        }
        ends
    }

    #[test]
    fn up_to_its_capacity_a_server_is_not_slowed_down() {
        assert_eq!(ends(1, 1.0), [50]);
        assert_eq!(ends(10, 1.0), [50; 10]);
    }

    #[test]
    fn beyond_its_capacity_a_server_is_slower_in_proportion_and_by_its_degradation() {
        let ideal = ends(40, 0.0);
        assert_eq!(ideal, [200; 40]);
        // 30 over the capacity of 10: 1 + 0.1 * 3 times as long.
        assert_eq!(ends(40, 0.1), [260; 40]);
    }

    #[test]
    fn a_request_that_arrives_later_ends_later() {
        let mut server = SharedProcessor::new(1, 0.0, Time::ZERO);
        let mut ended = Vec::new();
        server.begin(ms(0), WORK, "first", &mut ended);
        server.begin(ms(20), WORK, "second", &mut ended);
        // 30 ms of work are left at half speed.
        assert_eq!(server.next_end(), Some(ms(80)));
        server.advance(ms(80), &mut ended);
        assert_eq!(ended, ["first"]);
        assert_eq!(server.next_end(), Some(ms(100)));
        server.slow_down(ms(90), 5.0, &mut ended);
        assert_eq!(server.next_end(), Some(ms(140)));
        server.advance(ms(200), &mut ended);
        assert_eq!((ended.len(), server.len()), (2, 0));
        assert_eq!(server.next_end(), None);
    }

    #[test]
    fn a_long_step_ends_requests_in_the_same_order_as_many_short_ones() {
        let play = |step: u64| {
            let mut server = SharedProcessor::new(2, 0.3, Time::ZERO);
            let mut ended = Vec::new();
            for request in 0..7_u64 {
                server.begin(
                    ms(0),
                    Duration::from_millis(5 * (request * 3 % 7 + 1)),
                    request,
                    &mut ended,
                );
            }
            for at in (0..=1000).step_by(usize::try_from(step).unwrap()) {
                server.advance(ms(at), &mut ended);
            }
            ended
        };
        assert_eq!(play(1), play(1000));
        assert_eq!(play(1).len(), 7);
    }
}
