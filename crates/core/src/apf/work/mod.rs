//! Work: what a request costs.
//!
//! Here are the types; `estimate` says how wide a request is.

pub(crate) mod estimate;

use std::{num::NonZero, time::Duration};

pub use estimate::{EstimateInput, EstimatorSettings, ObjectStats};

use super::units::{SeatSeconds, Seats};
use crate::time::Nanos;

/// How wide a level lets a request be, besides the caps that hold for all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WidthCap(Option<NonZero<Seats>>);

impl WidthCap {
    /// The level has no cap of its own.
    pub const NONE: Self = Self(None);

    /// At most `seats`; 0 is [`Self::NONE`].
    pub const fn at(seats: Seats) -> Self {
        Self(NonZero::new(seats))
    }

    /// The cap in seats, if there is one.
    pub fn seats(self) -> Option<Seats> {
        self.0.map(NonZero::get)
    }

    /// The narrower of this cap and `general`.
    pub(super) fn within(self, general: Seats) -> Seats {
        self.seats().map_or(general, |seats| seats.min(general))
    }
}

/// What a request costs: seats while it executes, and seats that linger after its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Seats while it executes; at least 1.
    pub initial_seats: Seats,
    /// Seats that linger; 0 when none do.
    pub final_seats: Seats,
    /// How long the final seats linger.
    pub additional_latency: Duration,
}

impl Work {
    /// The service time assumed of every request before it is known: 3 ms.
    pub(crate) const ASSUMED_SERVICE_TIME: Duration = Duration::from_millis(3);

    /// An ordinary request: one seat, nothing lingers.
    pub const ONE: Self = Self::seats(1);

    /// A request of `seats` seats of which nothing lingers.
    pub const fn seats(seats: Seats) -> Self {
        Self {
            initial_seats: seats,
            final_seats: 0,
            additional_latency: Duration::ZERO,
        }
    }

    /// The wider of its two phases.
    pub fn max_seats(&self) -> Seats {
        self.initial_seats.max(self.final_seats)
    }

    /// The work of the phase that lingers.
    pub(crate) fn final_work(&self) -> SeatSeconds {
        // Of most requests nothing lingers, and each is asked several times.
        if self.final_seats == 0 {
            return SeatSeconds::ZERO;
        }
        SeatSeconds::product(self.final_seats, self.additional_latency)
    }

    /// The work of both phases, given a service time.
    pub(crate) fn total_work(&self, service_time: impl Into<Nanos>) -> SeatSeconds {
        SeatSeconds::product(self.initial_seats, service_time).plus(self.final_work())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(initial_seats: Seats, final_seats: Seats, seconds: u64) -> Work {
        Work {
            initial_seats,
            final_seats,
            additional_latency: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_wider_phase_is_the_width() {
        for (initial, last) in [(3, 3), (1, 3), (3, 1)] {
            assert_eq!(work(initial, last, 1).max_seats(), 3);
        }
    }

    #[test]
    fn the_total_work_is_that_of_both_phases() {
        let expected = SeatSeconds::product(3 * 2 + 50 * 70, Duration::from_secs(1));
        assert_eq!(work(3, 50, 70).total_work(Duration::from_secs(2)), expected);
    }
}
