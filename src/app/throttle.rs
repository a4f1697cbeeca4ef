//! Limits the share of the control runtime that background work after changes takes.
//!
//! Built-in objects, conditions and the policy are brought up to date after every change. That costs the work
//! for one object, but the tables of the classifier are rebuilt from all objects, and the same runtime serves
//! requests to the hosted API. So each task pauses for a multiple of the time it worked; changes during the pause
//! are processed together.

use std::time::Duration;

use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// The pause is this many times as long as the work, so the work takes at most a quarter of the time, unless a round
/// takes so long that [`LONGEST`] cuts its pause short.
const REST: u32 = 3;
/// The longest pause. Including the work, a change among thousands of objects takes effect within a
/// second.
const LONGEST: Duration = Duration::from_millis(250);

/// One round of work and the pause after it.
#[derive(Debug)]
pub(super) struct Throttle<'a> {
    clock: &'a Clock,
    begun: Time,
}

impl<'a> Throttle<'a> {
    /// Starts a round of work.
    pub(super) fn begin(clock: &'a Clock) -> Self {
        Self {
            clock,
            begun: clock.now(),
        }
    }

    /// Ends the round, and waits until the next may start.
    pub(super) async fn rest(self) {
        let worked = self.clock.now().since(self.begun);
        tokio::time::sleep(rest_after(worked)).await;
    }
}

fn rest_after(worked: Duration) -> Duration {
    worked.saturating_mul(REST).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_is_a_multiple_of_the_work_and_bounded() {
        assert_eq!(rest_after(Duration::ZERO), Duration::ZERO);
        assert_eq!(
            rest_after(Duration::from_millis(2)),
            Duration::from_millis(6)
        );
        assert_eq!(rest_after(Duration::from_secs(9)), LONGEST);
        assert_eq!(rest_after(Duration::MAX), LONGEST);
    }
}
