//! How much a level recently wanted.

use std::time::Duration;

use crate::time::Time;

/// The greatest demand of the present half second and of the one before.
///
/// Seats that were lent come back within a tenth of a second, so there is no need to hold them back for
/// longer. All levels forget at the same times, twice a second, so limits change at most that
/// often once demand is constant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watermarks {
    steps: [(u64, u64); Self::STEPS],
    /// When there was last any demand.
    asked: Option<Time>,
}

impl Watermarks {
    const STEPS: usize = 2;
    const STEP_NANOS: u64 = 500_000_000;
    /// Longer than clients wait that were told to try again after a second.
    const RETRY_WITHIN: Duration = Duration::from_secs(3);

    /// Notes that the greatest demand up to `now` was `latest`; returns that of the last half to whole second. O(1).
    pub(crate) fn greatest(&mut self, now: Time, latest: u64) -> u64 {
        let step = now.as_nanos() / Self::STEP_NANOS;
        let place = &mut self.steps[usize::try_from(step % Self::STEPS as u64).unwrap_or(0)];
        *place = if place.0 == step {
            (step, place.1.max(latest))
        } else {
            (step, latest)
        };
        if latest > 0 {
            self.asked = Some(now);
        }
        let recent = self
            .steps
            .iter()
            .filter(|(at, _)| at + (Self::STEPS as u64) > step);
        recent.map(|(_, seats)| *seats).max().unwrap_or(latest)
    }

    /// Whether a request that was refused lately may soon be sent again.
    pub(crate) fn has_recent_demand(&self, now: Time) -> bool {
        self.asked
            .is_some_and(|asked| now.since(asked) < Self::RETRY_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(halves: u64) -> Time {
        Time::from_nanos(halves * Watermarks::STEP_NANOS)
    }

    #[test]
    fn a_watermark_is_remembered_for_the_next_half_second() {
        let mut marks = Watermarks::default();
        assert_eq!(marks.greatest(at(100), 7), 7);
        assert_eq!(marks.greatest(at(101), 3), 7);
        assert_eq!(marks.greatest(at(101), 0), 7);
        assert_eq!(marks.greatest(at(102), 0), 3);
        assert_eq!(marks.greatest(at(105), 0), 0);
    }
}
