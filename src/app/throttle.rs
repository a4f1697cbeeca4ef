//! How much of the control runtime what follows from changes may take.
//!
//! The built-in objects, the conditions and the policy are looked at as a whole after every change:
//! that takes the longer the more objects there are, and requests to the hosted API are served by the
//! same thread. So each of them rests for a multiple of the time it worked, and changes that come
//! meanwhile are one change.

use std::time::Duration;

use fairgate_base::clock::Clock;
use fairgate_core::time::Time;

/// Rest is this many times the work: a quarter of the time is worked at most.
const REST: u32 = 3;
/// The longest rest: with the work itself, a change among thousands of objects takes effect within a
/// second.
const LONGEST: Duration = Duration::from_millis(250);

/// One round of work and the rest after it.
#[derive(Debug)]
pub(super) struct Throttle<'a> {
    clock: &'a Clock,
    begun: Time,
}

impl<'a> Throttle<'a> {
    /// Work begins.
    pub(super) fn begin(clock: &'a Clock) -> Self {
        Self {
            clock,
            begun: clock.now(),
        }
    }

    /// Work has ended; waits until there may be more.
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
