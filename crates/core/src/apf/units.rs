//! The units of flow control: seats, and seats times time.
//!
//! Arithmetic only. Points of time are [`crate::time`]'s.

use std::{fmt, time::Duration};

use crate::time::Nanos;

/// A number of seats, the unit of concurrency.
pub type Seats = u32;

/// Work: seats times seconds, in fixed point of 10⁻⁸ seat-seconds.
///
/// Arithmetic wraps modulo 2⁶⁴, as the original's does: virtual time advances by *epochs* long
/// before a wrap would matter, and a correction by a negative product relies on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeatSeconds(u64);

impl SeatSeconds {
    /// No work.
    pub const ZERO: Self = Self(0);
    /// The greatest representable amount.
    pub const MAX: Self = Self(u64::MAX);
    /// Nanoseconds of one seat in one unit.
    const SEAT_NANOS: u64 = 10;

    /// The amount of `units` of 10⁻⁸ seat-seconds.
    pub(crate) const fn from_units(units: u64) -> Self {
        Self(units)
    }

    /// The amount in units of 10⁻⁸ seat-seconds.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// So many nanoseconds of one seat, rounded down.
    pub(crate) const fn from_seat_nanos(seat_nanos: u64) -> Self {
        Self(seat_nanos / Self::SEAT_NANOS)
    }

    /// `seats` held for `time`, rounded to the nearest unit, half up. Exact below 2⁵³ seat-nanoseconds,
    /// 104 days of one seat.
    pub(crate) fn product(seats: Seats, time: impl Into<Nanos>) -> Self {
        const EXACT: u64 = 1 << 53;
        let time = time.into();
        let seat_nanos = time.as_nanos().saturating_mul(seats.into());
        if seat_nanos < EXACT {
            // The same, without floating point.
            return Self((seat_nanos + Self::SEAT_NANOS / 2) / Self::SEAT_NANOS);
        }
        Self::fractional_product(f64::from(seats), time)
    }

    /// With `seats` held for `actual` instead of `assumed`. The difference is rounded, not both: a unit
    /// more or less decides ties.
    #[must_use]
    pub(crate) fn corrected(self, seats: Seats, assumed: Nanos, actual: Nanos) -> Self {
        let (assumed, actual) = (assumed.as_nanos(), actual.as_nanos());
        let difference = Self::product(seats, Nanos::from_nanos(actual.abs_diff(assumed)));
        if actual >= assumed {
            self.plus(difference)
        } else {
            self.minus(difference)
        }
    }

    /// `seats` (possibly fractional, not negative) held for `time`, rounded to the nearest unit.
    pub(crate) fn fractional_product(seats: f64, time: Nanos) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "rates are far below 2^52 and not negative"
        )]
        Self((seats * (time.as_nanos() as f64) / Self::SEAT_NANOS as f64).round() as u64)
    }

    /// How long `seats` take for this work; whole nanoseconds, zero for zero seats.
    pub(crate) fn per_seat(self, seats: Seats) -> Duration {
        if seats == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(self.0) * u128::from(Self::SEAT_NANOS) / u128::from(seats);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The sum, modulo 2⁶⁴ units.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// The difference, modulo 2⁶⁴ units.
    #[must_use]
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// As a real number of seat-seconds.
    pub fn as_f64(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "for display and metrics")]
        let units = self.0 as f64;
        units / 1e8
    }
}

/// The original's text form: eight decimals and `ss`.
impl fmt::Display for SeatSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08}ss", self.0 / 100_000_000, self.0 % 100_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn work_is_written_with_eight_decimals() {
        assert_eq!(SeatSeconds::from_units(1).to_string(), "0.00000001ss");
        assert_eq!(
            SeatSeconds::product(1, ms(1000)).to_string(),
            "1.00000000ss"
        );
        assert_eq!(
            SeatSeconds::product(123, ms(100)).to_string(),
            "12.30000000ss"
        );
        assert_eq!(
            SeatSeconds::product(1203, ms(10)).to_string(),
            "12.03000000ss"
        );
    }

    #[test]
    fn a_correction_is_the_originals_for_short_and_for_long_work() {
        let corrected = |seats, nanos| {
            let charged = SeatSeconds::product(seats, ms(3));
            let corrected = charged.corrected(seats, ms(3).into(), Nanos::from_nanos(nanos));
            corrected.units()
        };
        assert_eq!(corrected(1, 5), 0);
        assert_eq!(corrected(1, 15), 1);
        assert_eq!(corrected(1, 3_000_005), 300_001);
        assert_eq!(corrected(20, 9_500_000_000_000_665), 19_000_000_000_001_328);
    }

    #[test]
    fn work_divides_over_seats() {
        assert_eq!(SeatSeconds::product(10, ms(1000)).per_seat(1), ms(10_000));
        assert_eq!(SeatSeconds::product(1, ms(1000)).per_seat(10), ms(100));
        assert_eq!(SeatSeconds::product(13, ms(5)).per_seat(5), ms(13));
        assert_eq!(SeatSeconds::product(12, ms(0)).per_seat(10), ms(0));
    }

    #[test]
    fn work_is_a_number_of_seat_seconds() {
        assert!((SeatSeconds::product(3, ms(500)).as_f64() - 1.5).abs() < 1e-12);
    }
}
