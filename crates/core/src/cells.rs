//! Counters for what happens on every request.
//!
//! Each data core counts in cells of its own, so counting is a load and a store without contention,
//! and costs the same however many series there are. A scrape reads the cells of all cores and adds
//! them up; nothing has to be drained, so memory does not grow without scrapes.
//!
//! One thread writes a cell, any may read it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{digest::Verb, rejection::RejectReason};

/// A count.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        // One writer: no read-modify-write is needed.
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram over `N` upper bounds; what exceeds the last falls into one bucket more.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds: &'static [f64; N],
    buckets: [Counter; N],
    beyond: Counter,
    /// Bits of a double.
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    /// An empty histogram over `bounds`, ascending.
    pub fn new(bounds: &'static [f64; N]) -> Self {
        Self {
            bounds,
            buckets: std::array::from_fn(|_| Counter::default()),
            beyond: Counter::default(),
            sum: AtomicU64::new(0.0_f64.to_bits()),
        }
    }

    /// Counts `value`.
    pub fn observe(&self, value: f64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        bucket
            .map_or(&self.beyond, |bucket| &self.buckets[bucket])
            .increment();
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed)) + value;
        self.sum.store(sum.to_bits(), Ordering::Relaxed);
    }

    /// Counts a duration in seconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    /// Adds these counts to `total`.
    pub fn add_to(&self, total: &mut HistogramTotal) {
        total.bounds = self.bounds;
        total.counts.resize(N + 1, 0);
        for (total, bucket) in total
            .counts
            .iter_mut()
            .zip(self.buckets.iter().chain([&self.beyond]))
        {
            *total += bucket.get();
        }
        total.sum += f64::from_bits(self.sum.load(Ordering::Relaxed));
    }
}

/// Histograms of several cores, added up.
#[derive(Clone, Debug, Default)]
pub struct HistogramTotal {
    /// The upper bounds, without the infinite one.
    pub bounds: &'static [f64],
    /// Counts per bucket, not cumulative, the infinite one last.
    pub counts: Vec<u64>,
    /// Sum of the values.
    pub sum: f64,
}

impl HistogramTotal {
    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Upper bounds of durations in seconds.
pub(crate) const DURATIONS: [f64; 13] = [
    0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
];
const QUEUE_LENGTHS: [f64; 8] = [0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0];
const WATCH_COUNTS: [f64; 6] = [0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0];
const SEATS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0];

/// What one core counts of one flow schema in one priority level.
#[derive(Debug)]
pub struct FlowCells {
    /// Requests whose execution began.
    pub dispatched: Counter,
    rejected: [Counter; RejectReason::ALL.len()],
    /// Dispatch attempts at which a request of the schema was next but did not fit.
    pub no_accommodation: Counter,
    /// Waiting time, in seconds, of requests that then executed.
    pub wait_executed: Histogram<13>,
    /// Waiting time, in seconds, of those that did not.
    pub wait_refused: Histogram<13>,
    /// Execution time, in seconds.
    pub execution: Histogram<13>,
    /// Time to initialise a watch, in seconds.
    pub watch_init: Histogram<13>,
    /// Waiting requests in the chosen queue, the arriving one included.
    pub queue_length: Histogram<8>,
    /// Watchers that a mutating request concerns.
    pub watch_count: Histogram<6>,
    /// The greater of a request's initial and final seats.
    pub seats: Histogram<8>,
}

impl Default for FlowCells {
    fn default() -> Self {
        Self {
            dispatched: Counter::default(),
            rejected: Default::default(),
            no_accommodation: Counter::default(),
            wait_executed: Histogram::new(&DURATIONS),
            wait_refused: Histogram::new(&DURATIONS),
            execution: Histogram::new(&DURATIONS),
            watch_init: Histogram::new(&DURATIONS),
            queue_length: Histogram::new(&QUEUE_LENGTHS),
            watch_count: Histogram::new(&WATCH_COUNTS),
            seats: Histogram::new(&SEATS),
        }
    }
}

impl FlowCells {
    /// Requests rejected for `reason`.
    pub fn rejected(&self, reason: RejectReason) -> &Counter {
        &self.rejected[reason as usize]
    }
}

/// Whether a request only reads: the distinction of the API server's limits and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `get`, `list` or `watch`.
    ReadOnly,
    /// Any other verb.
    Mutating,
}

impl Access {
    /// Both, in the order of their cells.
    pub const ALL: [Self; 2] = [Self::ReadOnly, Self::Mutating];

    /// Whether a request of `verb` only reads.
    pub const fn of(verb: &Verb) -> Self {
        if verb.is_read_only() {
            Self::ReadOnly
        } else {
            Self::Mutating
        }
    }

    /// The value of the `request_kind` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "readOnly",
            Self::Mutating => "mutating",
        }
    }
}

/// The number of the present window of all [`Occupancy`]s that share it. The sampler increments it.
#[derive(Debug, Default)]
pub struct Window(AtomicU32);

impl Window {
    /// Begins the next window; returns the number of the one that has ended.
    pub fn advance(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// How many there are now, and the most there were in a window of time.
#[derive(Debug)]
pub struct Occupancy {
    window: Arc<Window>,
    now: AtomicU32,
    /// Number of the window with the latest change, and the most in it.
    peak: AtomicU64,
    /// The same of the window with a change before that.
    before: AtomicU64,
}

impl Occupancy {
    /// An occupancy of zero.
    pub fn new(window: Arc<Window>) -> Self {
        Self {
            window,
            now: AtomicU32::new(0),
            peak: AtomicU64::new(0),
            before: AtomicU64::new(0),
        }
    }

    /// Adds one to the number.
    pub fn enter(&self) {
        let before = self.now();
        self.set(before, before.wrapping_add(1));
    }

    /// Subtracts one from the number.
    pub fn leave(&self) {
        let before = self.now();
        self.set(before, before.wrapping_sub(1));
    }

    /// The present number.
    pub fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    /// The most there were in the window of this number, which has just ended. Those that were there
    /// all the time count, too.
    pub fn most_in(&self, window: u32) -> u32 {
        let peak = self.peak.load(Ordering::Acquire);
        let before = self.before.load(Ordering::Relaxed);
        for (of, most) in [unpack(peak), unpack(before)] {
            if of == window {
                return most;
            }
        }
        self.now()
    }

    fn set(&self, before: u32, after: u32) {
        self.now.store(after, Ordering::Relaxed);
        let window = self.window.0.load(Ordering::Relaxed);
        let peak = self.peak.load(Ordering::Relaxed);
        let (of, most) = unpack(peak);
        if of != window {
            self.before.store(peak, Ordering::Relaxed);
            self.peak
                .store(pack(window, before.max(after)), Ordering::Release);
        } else if most < after {
            self.peak.store(pack(window, after), Ordering::Release);
        }
    }
}

fn pack(window: u32, most: u32) -> u64 {
    u64::from(window) << 32 | u64::from(most)
}

#[expect(clippy::cast_possible_truncation, reason = "that is how it was packed")]
fn unpack(packed: u64) -> (u32, u32) {
    ((packed >> 32) as u32, packed as u32)
}

/// Upper bounds of the time until the request is forwarded, in seconds.
const FILTER_DURATIONS: [f64; 13] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0, 10.0, 15.0, 30.0,
];

/// What one core counts of all its requests.
#[derive(Debug)]
pub struct CoreCells {
    executing: [Occupancy; 2],
    waiting: [Occupancy; 2],
    /// Time until the request is forwarded, in seconds; of requests that are forwarded.
    pub filter: Histogram<13>,
    /// Requests whose start was held back for a moment, to spread starts out.
    pub held_back: Counter,
    /// Seats of requests whose clients read too slowly, at the last check.
    pub stalled_seats: AtomicU32,
}

impl CoreCells {
    /// Cells of a core whose watermarks follow `window`.
    pub fn new(window: &Arc<Window>) -> Self {
        let two = || std::array::from_fn(|_| Occupancy::new(Arc::clone(window)));
        Self {
            executing: two(),
            waiting: two(),
            filter: Histogram::new(&FILTER_DURATIONS),
            held_back: Counter::default(),
            stalled_seats: AtomicU32::new(0),
        }
    }

    /// Requests that hold seats and have not finished; of a watch, while it is initialised.
    pub fn executing(&self, access: Access) -> &Occupancy {
        &self.executing[access as usize]
    }

    /// Requests that wait in a queue.
    pub fn waiting(&self, access: Access) -> &Occupancy {
        &self.waiting[access as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_in_a_window_includes_what_was_there_all_the_time() {
        let window = Arc::new(Window::default());
        let seats = Occupancy::new(Arc::clone(&window));
        seats.enter();
        seats.enter();
        seats.leave();
        assert_eq!(seats.most_in(window.advance()), 2);
        assert_eq!(seats.most_in(window.advance()), 1, "nothing changed");
        seats.leave();
        assert_eq!(seats.most_in(window.advance()), 1, "there was one at first");
        let ended = window.advance();
        seats.enter();
        assert_eq!(
            seats.most_in(ended),
            1,
            "a change since then does not hide it"
        );
    }

    #[test]
    fn a_value_counts_in_the_first_bucket_that_reaches_it() {
        static BOUNDS: [f64; 3] = [0.0, 1.0, 2.0];
        let (one, other) = (Histogram::new(&BOUNDS), Histogram::new(&BOUNDS));
        for value in [0.0, 1.0, 1.5, 9.0] {
            one.observe(value);
        }
        other.observe(0.5);
        let mut total = HistogramTotal::default();
        one.add_to(&mut total);
        other.add_to(&mut total);
        assert_eq!(total.counts, [1, 2, 1, 1]);
        assert!((total.sum - 12.0).abs() < 1e-12);
    }
}
