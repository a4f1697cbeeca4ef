//! The work that requests take, as a moving mean: the measure of how far flows are ahead and behind in turn.
//!
//! Not here: what follows from it ([`super::savings`]).

use super::service_times::MEAN_WINDOW;
use crate::apf::{units::SeatSeconds, work::Work};

/// The work of requests, by which a flow that always has requests waiting is at times ahead of its share and at times
/// behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charges {
    /// Moving sums over requests of their work and of its square, in [`Charges::UNIT`]s.
    sum: u64,
    squares: u64,
    /// The part of `squares` of requests of more than one seat.
    wide_squares: u64,
    /// The quotients, because they are needed more often than requests end.
    usual: u64,
    usual_wide: u64,
}

impl Charges {
    /// As a power of two, how many of the units of [`SeatSeconds`] one here has; so that squares do not overflow.
    const UNIT: u32 = 10;
    /// The most work that counts, about 5 500 seat-seconds.
    const MOST: u64 = 1 << 29;

    /// Before anything is known: one request of one seat that takes as long as is assumed.
    pub(super) fn new() -> Self {
        let work = SeatSeconds::product(1, Work::ASSUMED_SERVICE_TIME).units() >> Self::UNIT;
        Self {
            sum: work,
            squares: work * work,
            wide_squares: 0,
            usual: work << Self::UNIT,
            usual_wide: 0,
        }
    }

    /// A request of so many units of seat-seconds has ended.
    pub(super) fn count(&mut self, work: u64, is_wide: bool) {
        let work = (work >> Self::UNIT).min(Self::MOST);
        let window = u64::from(MEAN_WINDOW);
        self.sum = self.sum - self.sum / window + work;
        self.squares = self.squares - self.squares / window + work * work;
        let wide = if is_wide { work * work } else { 0 };
        self.wide_squares = self.wide_squares - self.wide_squares / window + wide;
        let quotient = |squares: u64| squares.checked_div(self.sum).unwrap_or(0) << Self::UNIT;
        self.usual = quotient(self.squares);
        self.usual_wide = match self.wide_squares {
            0 => 0,
            squares => quotient(squares),
        };
    }

    /// The mean work of requests, in units of seat-seconds.
    pub(super) fn mean(&self) -> u64 {
        (self.sum / u64::from(MEAN_WINDOW)) << Self::UNIT
    }

    /// The part of [`Self::usual`] that is due to requests of more than one seat.
    pub(super) fn usual_wide(&self) -> u64 {
        self.usual_wide
    }

    /// The work of the request in which the mean seat-second was used, in units of seat-seconds.
    pub(super) fn usual(&self) -> u64 {
        self.usual
    }
}
