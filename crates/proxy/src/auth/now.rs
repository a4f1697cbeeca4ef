//! The time by both clocks.

use std::time::{Duration, SystemTime};

use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// The time by both clocks: the monotonic clock decides how long something is cached, the wall clock whether
/// certificates and tokens are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time of the monotonic clock.
    pub time: Time,
    /// The time of the wall clock, since 1970.
    pub wall: Duration,
}

impl Now {
    /// The time now.
    pub fn of(clock: &Clock) -> Self {
        let wall = clock.wall().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            time: clock.turn(),
            wall: wall.unwrap_or_default(), // a clock before 1970 makes every certificate invalid
        }
    }

    /// Whole seconds since 1970.
    pub fn unix_seconds(self) -> i64 {
        i64::try_from(self.wall.as_secs()).unwrap_or(i64::MAX)
    }
}
