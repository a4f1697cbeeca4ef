//! Timing ratio histograms: how long a ratio was how high.
//!
//! It is as if the ratio of two counts (seats in use and the limit, say) were observed once every
//! nanosecond, so that quantiles are weighted by time and a short burst weighs little however many
//! events it has. The histogram is kept with the counts it describes and changes with them, so an
//! update must cost next to nothing. The bounds are kept as numerators of the present denominator, and the search for a bucket
//! begins at the last one, so that counts are compared with counts; storage is inline.
//!
//! Not here: rendering as a Prometheus histogram, and the metrics' names.

use super::demand::as_f64;
use crate::time::Time;

/// The most bounds a histogram can have.
pub(crate) const MAX_BOUNDS: usize = 15;

/// The upper bounds of a histogram's buckets: ascending, each inclusive, at most `MAX_BOUNDS`;
/// a bucket without bound follows the last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buckets(&'static [f64]);

impl Buckets {
    /// The buckets of `priority_level_seat_utilization`.
    pub const SEAT_UTILIZATION: Self = Self::new(&[
        0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
    ]);
    /// The buckets of `priority_level_request_utilization`.
    pub const REQUEST_UTILIZATION: Self =
        Self::new(&[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1.0]);
    /// The buckets of `read_vs_write_current_requests`.
    pub const READ_VS_WRITE: Self = Self::new(&[
        0.0, 0.001, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0,
    ]);
    /// The buckets of `demand_seats`.
    pub(crate) const DEMAND_SEATS: Self =
        Self::new(&[0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.8, 4.0, 6.0]);

    /// Buckets of these bounds; meant for constants.
    ///
    /// # Panics
    ///
    /// When there are more than `MAX_BOUNDS`, or they do not ascend: while compiling, in a
    /// constant.
    pub const fn new(bounds: &'static [f64]) -> Self {
        assert!(bounds.len() <= MAX_BOUNDS, "too many bounds");
        let mut index = 1;
        while index < bounds.len() {
            assert!(bounds[index - 1] < bounds[index], "bounds must ascend");
            index += 1;
        }
        Self(bounds)
    }

    /// The upper bounds, ascending, without the infinite one.
    pub const fn bounds(self) -> &'static [f64] {
        self.0
    }

    /// For each bucket the greatest numerator in it, over `denominator`; none is above that of the last one.
    fn greatest_numerators(self, denominator: u64) -> [u64; MAX_BOUNDS + 1] {
        let mut greatest = [u64::MAX; MAX_BOUNDS + 1];
        for (greatest, bound) in greatest.iter_mut().zip(self.0) {
            *greatest = greatest_within(*bound, denominator);
        }
        greatest
    }
}

/// The greatest numerator for which the ratio, as it is computed, is at most `bound`.
fn greatest_within(bound: f64, denominator: u64) -> u64 {
    let is_within = |numerator: u64| as_f64(numerator) / as_f64(denominator) <= bound;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounds are not negative, and the cast saturates"
    )]
    let near = (bound * as_f64(denominator)) as u64;
    // The product is rounded, too.
    let candidates = [near.saturating_add(1), near, near.saturating_sub(1)];
    let found = candidates.into_iter().find(|one| is_within(*one));
    found.unwrap_or(0)
}

/// A histogram of numerator over denominator, weighted by time. Inline; never allocates.
#[derive(Clone, Debug)]
pub struct RatioHistogram {
    last: Time,
    ratio: TimedRatio,
}

/// A [`RatioHistogram`] whose owner knows the time, which several of them share.
#[derive(Clone, Debug)]
pub(crate) struct TimedRatio {
    numerator: u64,
    /// The numerator as a real number.
    real: f64,
    denominator: u64,
    bucket: usize,
    /// The greatest numerator of each bucket over the present denominator.
    greatest: [u64; MAX_BOUNDS + 1],
    /// Sum of numerator × nanoseconds over the present denominator.
    weighted: f64,
    /// Sum of ratio × nanoseconds over earlier denominators.
    sum: f64,
    /// Nanoseconds of each bucket, not cumulative.
    nanos: [u64; MAX_BOUNDS + 1],
    buckets: Buckets,
}

/// A time that has passed, in nanoseconds: as a whole and as a real number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassedTime(u64, f64);

impl PassedTime {
    /// The time from `last`, which becomes `now`, to `now`; none if `now` is earlier or the same.
    #[inline]
    pub(crate) fn until(now: Time, last: &mut Time) -> Option<Self> {
        let nanos = now.nanos_since(*last).as_nanos();
        if nanos == 0 {
            return None;
        }
        *last = now;
        Some(Self(nanos, as_f64(nanos)))
    }
}

/// What a [`RatioHistogram`] holds at some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioSnapshot {
    buckets: Buckets,
    cumulative: [u64; MAX_BOUNDS + 1],
    /// Sum of ratio × nanoseconds.
    pub sum: f64,
    /// Nanoseconds observed.
    pub count: u64,
}

impl RatioHistogram {
    /// A histogram that observes `numerator / denominator` from `now` on. A denominator of 0 counts
    /// as 1.
    pub fn new(buckets: Buckets, now: Time, numerator: u64, denominator: u64) -> Self {
        Self {
            last: now,
            ratio: TimedRatio::new(buckets, numerator, denominator),
        }
    }

    /// Sets the numerator; the time up to `now` is credited to the ratio that was.
    ///
    /// A `now` before the latest one credits nothing: no instant counts twice.
    #[inline]
    pub fn set_numerator(&mut self, now: Time, numerator: u64) {
        self.credit(now);
        self.ratio.set_numerator(numerator);
    }

    /// Sets the denominator, 0 counting as 1; else as [`Self::set_numerator`].
    pub fn set_denominator(&mut self, now: Time, denominator: u64) {
        self.credit(now);
        self.ratio.set_denominator(denominator);
    }

    /// What was observed up to `now`.
    pub fn snapshot(&self, now: Time) -> RatioSnapshot {
        let mut until_now = self.clone();
        until_now.credit(now);
        until_now.ratio.snapshot()
    }

    fn credit(&mut self, now: Time) {
        if let Some(passed) = PassedTime::until(now, &mut self.last) {
            self.ratio.credit(passed);
        }
    }
}

impl TimedRatio {
    pub(crate) fn new(buckets: Buckets, numerator: u64, denominator: u64) -> Self {
        let denominator = denominator.max(1);
        let mut ratio = Self {
            numerator,
            real: as_f64(numerator),
            denominator,
            bucket: 0,
            greatest: buckets.greatest_numerators(denominator),
            weighted: 0.0,
            sum: 0.0,
            nanos: [0; MAX_BOUNDS + 1],
            buckets,
        };
        ratio.seek();
        ratio
    }

    /// Credits time that has passed to the present ratio.
    #[inline]
    pub(crate) fn credit(&mut self, PassedTime(nanos, real): PassedTime) {
        let bucket = &mut self.nanos[self.bucket];
        // It would overflow in 584 years.
        *bucket = bucket.wrapping_add(nanos);
        self.weighted += self.real * real;
    }

    #[inline]
    pub(crate) fn set_numerator(&mut self, numerator: u64) {
        if self.numerator != numerator {
            self.numerator = numerator;
            self.real = as_f64(numerator);
            self.seek();
        }
    }

    /// Sets the denominator, 0 counting as 1.
    pub(crate) fn set_denominator(&mut self, denominator: u64) {
        let denominator = denominator.max(1);
        if self.denominator == denominator {
            return;
        }
        self.sum = self.sum_of_ratios();
        self.weighted = 0.0;
        self.denominator = denominator;
        self.greatest = self.buckets.greatest_numerators(denominator);
        self.seek();
    }

    /// What has been credited.
    pub(crate) fn snapshot(&self) -> RatioSnapshot {
        let mut count = 0_u64;
        let cumulative = self.nanos.map(|nanos| {
            count = count.saturating_add(nanos);
            count
        });
        RatioSnapshot {
            buckets: self.buckets,
            cumulative,
            sum: self.sum_of_ratios(),
            count,
        }
    }

    /// Finds the bucket of the present ratio, from the last one on.
    #[inline]
    fn seek(&mut self) {
        while self.numerator > self.greatest[self.bucket] {
            self.bucket += 1;
        }
        while self.bucket > 0 && self.numerator <= self.greatest[self.bucket - 1] {
            self.bucket -= 1;
        }
    }

    fn sum_of_ratios(&self) -> f64 {
        self.sum + self.weighted / as_f64(self.denominator)
    }
}

impl RatioSnapshot {
    /// Each bound with the nanoseconds for which the ratio was no higher. The bucket without bound
    /// is [`Self::count`].
    pub fn buckets(&self) -> impl ExactSizeIterator<Item = (f64, u64)> {
        let bounds = self.buckets.bounds().iter().copied();
        bounds.zip(self.cumulative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const ALL: [Buckets; 4] = [
        Buckets::SEAT_UTILIZATION,
        Buckets::REQUEST_UTILIZATION,
        Buckets::READ_VS_WRITE,
        Buckets::DEMAND_SEATS,
    ];

    /// A direct computation: every interval is kept.
    #[derive(Default)]
    struct Intervals(Vec<(f64, u64)>);

    impl Intervals {
        fn agree_with(&self, snapshot: &RatioSnapshot) {
            for (bound, nanos) in snapshot.buckets() {
                let within = self.0.iter().filter(|(ratio, _)| *ratio <= bound);
                assert_eq!(nanos, within.map(|(_, nanos)| nanos).sum::<u64>());
            }
            assert_eq!(
                snapshot.count,
                self.0.iter().map(|(_, nanos)| nanos).sum::<u64>()
            );
            let products = self.0.iter().map(|(ratio, n)| ratio * as_f64(*n));
            let sum: f64 = products.sum();
            assert!((snapshot.sum - sum).abs() <= 1e-9 * sum.max(1.0));
        }
    }

    #[test]
    fn random_steps_in_time_and_value_give_what_a_direct_computation_gives() {
        for (index, buckets) in ALL.into_iter().enumerate() {
            let mut random = Random::seeded(index as u64);
            let mut now = 1_000_000_000_u64;
            let mut latest = now;
            let (mut numerator, mut denominator) = (3, 10);
            let mut histogram =
                RatioHistogram::new(buckets, Time::from_nanos(now), numerator, denominator);
            let mut intervals = Intervals::default();
            for _ in 0..100 {
                now = now + random.number() % 3_000_000 - 500_000;
                let ratio = as_f64(numerator) / as_f64(denominator);
                intervals.0.push((ratio, now.saturating_sub(latest)));
                latest = latest.max(now);
                if random.number().is_multiple_of(4) {
                    denominator = 1 + random.number() % 100;
                    histogram.set_denominator(Time::from_nanos(now), denominator);
                } else {
                    numerator = random.number() % 120;
                    histogram.set_numerator(Time::from_nanos(now), numerator);
                }
                intervals.agree_with(&histogram.snapshot(Time::from_nanos(latest)));
            }
        }
    }

    #[test]
    fn a_snapshot_credits_the_time_up_to_now_and_changes_nothing() {
        let mut histogram = RatioHistogram::new(Buckets::SEAT_UTILIZATION, Time::ZERO, 0, 4);
        histogram.set_numerator(Time::from_nanos(10), 1);

        let snapshot = histogram.snapshot(Time::from_nanos(30));

        assert_eq!(snapshot.count, 30);
        assert!((snapshot.sum - 5.0).abs() < 1e-12);
        let buckets: Vec<_> = snapshot.buckets().collect();
        assert_eq!(buckets[..4], [(0.0, 10), (0.1, 10), (0.2, 10), (0.3, 30)]);
        assert_eq!(buckets.len(), 13);
        assert_eq!(histogram.snapshot(Time::from_nanos(30)), snapshot);
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_what_exceeds_all_shows_in_the_count_alone() {
        let mut histogram = RatioHistogram::new(Buckets::SEAT_UTILIZATION, Time::ZERO, 10, 10);
        histogram.set_numerator(Time::from_nanos(5), 11);

        let snapshot = histogram.snapshot(Time::from_nanos(12));

        assert_eq!(snapshot.buckets().last(), Some((1.0, 5)));
        assert_eq!(snapshot.count, 12);
    }

    #[test]
    fn a_denominator_of_zero_counts_as_one() {
        let mut histogram = RatioHistogram::new(Buckets::DEMAND_SEATS, Time::ZERO, 0, 0);
        histogram.set_denominator(Time::ZERO, 0);
        histogram.set_numerator(Time::ZERO, 2);

        let snapshot = histogram.snapshot(Time::from_nanos(10));

        assert!((snapshot.sum - 20.0).abs() < 1e-12);
    }
}
