//! Seat demand: how many seats a level wanted, over time.
//!
//! Demand is the seats in use plus the seats that the waiting requests will take. An [`Integrator`]
//! keeps its time-weighted mean, deviation and extremes over a period at constant cost; [`Demand`]
//! turns periods into the figures that borrowing works with: the high watermark of the last period,
//! and a smoothed demand that rises at once and decays slowly (KEP-1040).
//!
//! Not here: what the figures lead to (`borrowing`).

use std::time::Duration;

use crate::{apf::spec::Semantics, time::Time};

/// The usual time between two updates of the statistics.
pub(crate) const UPDATE_PERIOD: Duration = Duration::from_secs(10);

/// What remains of the smoothed demand after one [`UPDATE_PERIOD`]; half of it is gone after 30.
const DECAY: f64 = 0.977;

/// Integrates a level's seat demand over a period. Constant size and cost; no allocation.
#[derive(Clone, Debug)]
pub(crate) struct Integrator {
    last: Time,
    demand: u64,
    min: u64,
    max: u64,
    elapsed_nanos: u64,
    /// Seat-nanoseconds of the period.
    integral: f64,
    /// Integral of the squared demand, in seats² × nanoseconds.
    integral_of_squares: f64,
    /// Seats and seat-seconds of requests that were refused.
    refused_seats: u64,
    refused_work: f64,
}

/// What an [`Integrator`] saw in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DemandSample {
    /// Length of the period.
    pub elapsed: Duration,
    /// Mean demand in seats, weighted by time; NaN for an empty period.
    pub average: f64,
    /// Standard deviation in seats, weighted by time; NaN for an empty period, and where rounding
    /// makes the variance negative.
    pub deviation: f64,
    /// Least demand in seats, also if it lasted for no time.
    pub min: u64,
    /// Greatest demand in seats, also if it lasted for no time.
    pub max: u64,
}

impl DemandSample {
    /// A period of this length in which the demand was `seats`.
    pub(crate) fn constant(seats: u64, elapsed: Duration) -> Self {
        Self {
            elapsed,
            average: as_f64(seats),
            deviation: 0.0,
            min: seats,
            max: seats,
        }
    }
}

impl Integrator {
    /// An integrator of a demand that is 0 at `now`.
    pub(crate) const fn new(now: Time) -> Self {
        Self {
            last: now,
            demand: 0,
            min: 0,
            max: 0,
            elapsed_nanos: 0,
            integral: 0.0,
            integral_of_squares: 0.0,
            refused_seats: 0,
            refused_work: 0.0,
        }
    }

    /// A request that would have held `seats` for `service_time` is refused. It adds to the demand of the
    /// period the seats that it would have held on average, as if it had executed.
    pub(crate) fn refuse(&mut self, seats: u64, service_time: Duration) {
        self.refused_seats += seats;
        self.refused_work += as_f64(seats) * service_time.as_secs_f64();
    }

    /// From `now` on the demand is `seats`. A `now` before the last one counts as the last one.
    pub(crate) fn set(&mut self, now: Time, seats: u64) {
        self.advance(now);
        self.demand = seats;
        self.min = self.min.min(seats);
        self.max = self.max.max(seats);
    }

    /// The demand in seats, as last set.
    pub(crate) const fn demand(&self) -> u64 {
        self.demand
    }

    /// What was seen of the period that began with the last reset, up to `now`.
    pub(crate) fn read(&mut self, now: Time) -> DemandSample {
        self.advance(now);
        let elapsed = Duration::from_nanos(self.elapsed_nanos);
        let (average, deviation) = if self.elapsed_nanos == 0 {
            (f64::NAN, f64::NAN)
        } else {
            let nanos = as_f64(self.elapsed_nanos);
            let average = self.integral / nanos;
            let variance = self.integral_of_squares / nanos - average * average;
            (average, variance.sqrt())
        };
        let refused = self.refused_on_average(elapsed);
        DemandSample {
            elapsed,
            average: average + refused,
            deviation,
            min: self.min,
            max: self.max + whole(refused),
        }
    }

    /// Seats that refused requests would have held, on average; at least one if any was refused, and
    /// never more than all of them side by side.
    fn refused_on_average(&self, elapsed: Duration) -> f64 {
        if self.refused_seats == 0 {
            return 0.0;
        }
        let all = as_f64(self.refused_seats);
        (self.refused_work / elapsed.as_secs_f64()).clamp(1.0, all)
    }

    /// Reads, and begins a new period, whose extremes start at the present demand.
    ///
    /// A demand that falls just as a period ends hence shows in the next period's maximum too.
    pub(crate) fn read_and_reset(&mut self, now: Time) -> DemandSample {
        let sample = self.read(now);
        self.min = self.demand;
        self.max = self.demand;
        self.elapsed_nanos = 0;
        self.integral = 0.0;
        self.integral_of_squares = 0.0;
        self.refused_seats = 0;
        self.refused_work = 0.0;
        sample
    }

    fn advance(&mut self, now: Time) {
        let passed = now.nanos_since(self.last).as_nanos();
        if passed == 0 {
            return;
        }
        self.last = now;
        self.elapsed_nanos = self.elapsed_nanos.saturating_add(passed);
        let nanos = as_f64(passed);
        let seats = as_f64(self.demand);
        self.integral += seats * nanos;
        self.integral_of_squares += seats * seats * nanos;
    }
}

/// A level's demand as borrowing sees it; updated once a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Greatest demand of the last period, in seats.
    pub high_watermark: u64,
    /// Mean demand of the last period that had a length, in seats.
    pub average: f64,
    /// Standard deviation in that period, in seats; never NaN.
    pub deviation: f64,
    /// Smoothed envelope (average plus deviation) of all periods, in seats.
    pub smoothed: f64,
}

impl Demand {
    /// Takes a period into account.
    ///
    /// The smoothed demand rises to the period's envelope at once. It decays towards the envelope
    /// by 2.3 % per update in [`Semantics::Compatible`], however short the period was, so that
    /// frequent changes of policy make levels forget; in [`Semantics::Improved`] by 2.3 % per
    /// 10 s that the period lasted.
    pub(crate) fn update(&mut self, sample: &DemandSample, semantics: Semantics) {
        self.high_watermark = sample.max;
        if sample.elapsed.is_zero() {
            return;
        }
        self.average = sample.average;
        self.deviation = if sample.deviation.is_nan() {
            0.0
        } else {
            sample.deviation
        };
        let kept = match semantics {
            Semantics::Compatible => DECAY,
            Semantics::Improved => {
                DECAY.powf(sample.elapsed.as_secs_f64() / UPDATE_PERIOD.as_secs_f64())
            }
        };
        let envelope = self.average + self.deviation;
        let decayed = kept * self.smoothed + (1.0 - kept) * envelope;
        self.smoothed = decayed.max(envelope);
    }
}

/// A count as a real number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts are far below 2^52, and statistics bear rounding"
)]
pub(super) fn as_f64(count: u64) -> f64 {
    // Processors convert signed numbers with one instruction, and others with several.
    i64::try_from(count).unwrap_or(i64::MAX) as f64
}

/// The next whole number at or above `seats`, which is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of seats, and the cast saturates"
)]
fn whole(seats: f64) -> u64 {
    (seats - 1e-6).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_count_as_if_they_had_executed() {
        let mut integrator = Integrator::new(Time::ZERO);
        integrator.set(Time::ZERO, 3);
        // Forty requests of 50 ms in a second: two seats.
        (0..40).for_each(|_| integrator.refuse(1, ms(50)));
        let sample = integrator.read_and_reset(Time::ZERO.plus(ms(1000)));
        assert_eq!(sample.max, 5);
        assert!(close(sample.average, 5.0), "{sample:?}");
        let next = integrator.read_and_reset(Time::ZERO.plus(ms(2000)));
        assert_eq!(next.max, 3);
    }

    #[test]
    fn refused_requests_count_as_one_seat_at_least_and_as_all_at_most() {
        let refused = |times: u32, period: u64| {
            let mut integrator = Integrator::new(Time::ZERO);
            (0..times).for_each(|_| integrator.refuse(1, ms(10)));
            integrator.read_and_reset(Time::ZERO.plus(ms(period))).max
        };
        assert_eq!((refused(1, 1000), refused(7, 1), refused(7, 0)), (1, 7, 7));
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-9 * right.abs().max(1.0)
    }

    #[test]
    fn a_period_has_the_extremes_and_the_time_weighted_moments_of_its_demand() {
        let mut now = Time::from_nanos(77);
        let mut integrator = Integrator::new(now);
        integrator.set(now, 3);
        now = now.plus(ms(1000));
        assert_eq!(
            integrator.read_and_reset(now),
            DemandSample {
                elapsed: ms(1000),
                average: 3.0,
                deviation: 0.0,
                min: 0,
                max: 3
            }
        );

        integrator.set(now, 2);
        let sample = integrator.read(now);
        assert_eq!(sample.elapsed, Duration::ZERO);
        assert!(sample.average.is_nan() && sample.deviation.is_nan());
        assert_eq!((sample.min, sample.max), (2, 3));

        now = now.plus(ms(1));
        integrator.set(now, 1);
        now = now.plus(ms(1));
        let sample = integrator.read(now);
        assert_eq!(sample.elapsed, ms(2));
        assert!(close(sample.average, 1.5), "{sample:?}");
        assert!(close(sample.deviation, 0.5), "{sample:?}");
        assert_eq!((sample.min, sample.max), (1, 3));
    }

    #[test]
    fn a_new_period_starts_at_the_present_demand_and_not_at_zero() {
        let mut integrator = Integrator::new(Time::ZERO);
        integrator.set(Time::ZERO, 40);
        let boundary = Time::ZERO.plus(ms(10_000));
        integrator.read_and_reset(boundary);
        integrator.set(boundary, 0);

        let sample = integrator.read_and_reset(boundary.plus(ms(10_000)));

        assert_eq!((sample.min, sample.max), (0, 40));
        assert!(close(sample.average, 0.0));
    }

    #[test]
    fn a_clock_that_goes_back_neither_loses_nor_doubles_time() {
        let mut integrator = Integrator::new(Time::ZERO);
        integrator.set(Time::ZERO.plus(ms(10)), 4);
        integrator.set(Time::ZERO.plus(ms(5)), 2);

        let sample = integrator.read(Time::ZERO.plus(ms(20)));

        assert_eq!(sample.elapsed, ms(20));
        assert!(close(sample.average, 1.0), "{sample:?}");
        assert_eq!(sample.max, 4);
    }

    /// Demand 40 for the first half of a period and 10 for the second.
    fn forty_then_ten(period: Duration) -> DemandSample {
        let mut integrator = Integrator::new(Time::ZERO);
        integrator.set(Time::ZERO, 40);
        integrator.read_and_reset(Time::ZERO);
        integrator.set(Time::ZERO.plus(period / 2), 10);
        integrator.read_and_reset(Time::ZERO.plus(period))
    }

    #[test]
    fn smoothed_demand_follows_a_rise_at_once_and_a_fall_slowly() {
        let sample = forty_then_ten(ms(10_000));
        for semantics in [Semantics::Compatible, Semantics::Improved] {
            let mut fresh = Demand::default();
            fresh.update(&sample, semantics);
            assert_eq!(fresh.high_watermark, 40);
            assert!(close(fresh.average, 25.0) && close(fresh.deviation, 15.0));
            assert!(close(fresh.smoothed, 40.0), "{fresh:?}");

            let mut busy = Demand {
                smoothed: 80.0,
                ..Demand::default()
            };
            busy.update(&sample, semantics);
            assert!(close(busy.smoothed, 79.08), "{busy:?}");
        }
    }

    #[test]
    fn an_empty_period_moves_the_high_watermark_alone() {
        let mut integrator = Integrator::new(Time::ZERO);
        integrator.set(Time::ZERO, 7);
        let sample = integrator.read_and_reset(Time::ZERO);
        let before = Demand {
            high_watermark: 1,
            average: 2.0,
            deviation: 3.0,
            smoothed: 4.0,
        };
        let mut demand = before;

        demand.update(&sample, Semantics::Improved);

        assert_eq!(
            demand,
            Demand {
                high_watermark: 7,
                ..before
            }
        );
    }

    /// Smoothed demand after 10 idle seconds seen in `updates` equal periods, from 100.
    fn after_ten_idle_seconds(updates: u32, semantics: Semantics) -> f64 {
        let mut integrator = Integrator::new(Time::ZERO);
        let mut demand = Demand {
            smoothed: 100.0,
            ..Demand::default()
        };
        for update in 1..=updates {
            let now = Time::ZERO.plus(ms(10_000) / updates * update);
            demand.update(&integrator.read_and_reset(now), semantics);
        }
        demand.smoothed
    }

    #[test]
    fn compatible_a_change_of_policy_makes_smoothed_demand_decay_faster() {
        assert!(close(
            after_ten_idle_seconds(1, Semantics::Compatible),
            97.7
        ));
        let churned = after_ten_idle_seconds(100, Semantics::Compatible);
        assert!(close(churned, 100.0 * 0.977_f64.powi(100)), "{churned}");
    }

    #[test]
    fn improved_smoothed_demand_decays_by_time_however_often_it_is_updated() {
        assert!(close(after_ten_idle_seconds(1, Semantics::Improved), 97.7));
        let churned = after_ten_idle_seconds(100, Semantics::Improved);
        assert!(close(churned, 97.7), "{churned}");
    }
}
