//! How long requests take, as moving means over the last ones.

use crate::time::Nanos;

/// The number of requests over which a mean service time is taken.
pub(super) const MEAN_WINDOW: u32 = 32;

/// The longest service time that is assumed for a request.
pub(super) const LONGEST_ASSUMED: Nanos = Nanos::from_millis(60_000);

/// The service times of a flow, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceTimes {
    /// The mean over requests: what the next request is expected to take.
    pub(super) mean: Nanos,
    /// The mean over the time in which they executed, in microseconds.
    usual: u32,
    /// Of how many requests these are, up to the number that is remembered.
    pub(super) learnt: u32,
}

impl ServiceTimes {
    /// Nothing is known yet.
    pub(super) fn assumed(time: Nanos) -> Self {
        Self {
            mean: time,
            usual: u32::try_from(micros(time)).unwrap_or(u32::MAX),
            learnt: 0,
        }
    }

    /// What a request that is found executing is expected to take in all. That is longer than the mean: where some requests are
    /// short, most that execute are others.
    pub(super) fn usual(&self) -> Nanos {
        Nanos::from_nanos(u64::from(self.usual) * 1_000)
    }

    /// A request has ended that took so long.
    pub(super) fn learn(&mut self, took: Nanos) {
        let last = micros(took.min(LONGEST_ASSUMED));
        let before = micros(self.mean) * u64::from(self.learnt + 1).min(MEAN_WINDOW.into());
        let squares = u64::from(self.usual) * before + last * last;
        if let Some(usual) = squares.checked_div(before + last) {
            self.usual = u32::try_from(usual).unwrap_or(u32::MAX);
        }
        self.mean = moved(self.mean, &mut self.learnt, took);
    }
}

fn micros(time: Nanos) -> u64 {
    time.as_nanos() / 1_000
}

/// The mean service time after one more request, whose predecessors were `learnt`.
pub(super) fn moved(mean: Nanos, learnt: &mut u32, took: Nanos) -> Nanos {
    let took = took.min(LONGEST_ASSUMED);
    *learnt = (*learnt + 1).min(MEAN_WINDOW);
    // The service time assumed at first counts as one request.
    let learnt = u64::from(*learnt);
    Nanos::from_nanos((mean.as_nanos() * learnt + took.as_nanos()) / (learnt + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_execute_take_longer_than_the_mean_request() {
        let millis = Nanos::from_millis;
        let mut time = ServiceTimes::assumed(millis(3));
        for _ in 0..200 {
            // Two of three are short: they take 100 of every 400 ms.
            for took in [50, 50, 300] {
                time.learn(millis(took));
            }
        }
        let between = |time: Nanos, least, most| time > millis(least) && time < millis(most);
        assert!(between(time.mean, 125, 145), "{time:?}");
        assert!(between(time.usual(), 230, 245), "{time:?}");
    }

    #[test]
    fn requests_that_take_no_time_are_no_error() {
        let mut time = ServiceTimes::assumed(Nanos::ZERO);
        time.learn(Nanos::ZERO);
        assert_eq!((time.mean, time.usual()), (Nanos::ZERO, Nanos::ZERO));
        let mut time = ServiceTimes::assumed(LONGEST_ASSUMED);
        for _ in 0..100 {
            time.learn(Nanos::from_nanos(u64::MAX));
        }
        assert_eq!(
            (time.mean, time.usual()),
            (LONGEST_ASSUMED, LONGEST_ASSUMED)
        );
    }
}
