//! When the requests of an open loop are to be sent: a pure sequence of times.

use std::time::Duration;

use crate::scenario::{ArrivalProcess, OpenLoad};
use fairgate_core::random::Random;

/// The intended times of one user's requests, ascending, from the beginning of its load. Never ends.
#[derive(Debug)]
pub(crate) struct Schedule {
    load: OpenLoad,
    random: Random,
    /// Expected requests until the last time, without bursts.
    expected: f64,
    next: Option<f64>,
    /// The number of the next burst, and what is left of the current one.
    burst: u32,
    burst_left: u32,
    /// Where in its period the first burst comes, from 0 to 1.
    phase: f64,
}

impl Schedule {
    /// The schedule of the user with this `seed`. The bursts of different users coincide.
    pub(crate) fn new(load: OpenLoad, seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let mut schedule = Self {
            load,
            expected: random.unit(),
            random,
            next: None,
            burst: 0,
            burst_left: load.burst.map_or(0, |(size, _)| size),
            phase: 0.5,
        };
        schedule.next = schedule.time_of(schedule.expected);
        schedule
    }

    /// The time at which so many requests are expected to have been sent; `None` if that never comes.
    fn time_of(&self, expected: f64) -> Option<f64> {
        let rate = self.load.rate;
        let Some((to, over)) = self.load.ramp else {
            return (rate > 0.0).then(|| expected / rate);
        };
        let over = over.as_secs_f64();
        let during = f64::midpoint(rate, to) * over;
        if expected > during {
            return (to > 0.0).then(|| over + (expected - during) / to);
        }
        // The rate grows evenly: expected = rate t + growth t² / 2.
        let growth = (to - rate) / over;
        if growth.abs() < 1e-9 {
            return (rate > 0.0).then(|| expected / rate);
        }
        Some(((rate * rate + 2.0 * growth * expected).max(0.0).sqrt() - rate) / growth)
    }

    fn burst_time(&self) -> Option<f64> {
        let (_, every) = self.load.burst?;
        Some((f64::from(self.burst) + self.phase) * every.as_secs_f64())
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let (steady, burst) = (self.next, self.burst_time());
        let is_burst = burst.is_some_and(|burst| steady.is_none_or(|steady| burst <= steady));
        let at = if is_burst { burst } else { steady };
        if is_burst {
            self.burst_left -= 1;
            if self.burst_left == 0 {
                self.burst += 1;
                self.burst_left = self.load.burst.map_or(0, |(size, _)| size);
            }
        } else {
            self.expected += match self.load.arrivals {
                ArrivalProcess::Constant => 1.0,
                ArrivalProcess::Poisson => -(1.0 - self.random.unit()).ln(),
            };
            self.next = self.time_of(self.expected);
        }
        // No run lasts a year.
        at.map(|at| Duration::from_secs_f64(at.min(3e7)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSTANT: OpenLoad = OpenLoad {
        rate: 10.0,
        arrivals: ArrivalProcess::Constant,
        ramp: None,
        burst: None,
    };

    /// Requests until `seconds`.
    fn count(load: OpenLoad, seconds: u64) -> usize {
        let schedule = Schedule::new(load, 7);
        schedule
            .take_while(|at| *at < Duration::from_secs(seconds))
            .count()
    }

    #[test]
    fn constant_arrivals_are_equally_spaced() {
        let times: Vec<Duration> = Schedule::new(CONSTANT, 7).take(50).collect();
        for pair in times.windows(2) {
            assert!(
                pair[1].abs_diff(pair[0] + Duration::from_millis(100)) < Duration::from_micros(1)
            );
        }
        assert!(times[0] < Duration::from_millis(100));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_exponential_gaps() {
        let load = OpenLoad {
            arrivals: ArrivalProcess::Poisson,
            ..CONSTANT
        };
        let sent = count(load, 1000);
        assert!((9_700..10_300).contains(&sent), "{sent}");
        let times: Vec<f64> = Schedule::new(load, 7)
            .take(10_000)
            .map(|at| at.as_secs_f64())
            .collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let short = gaps.iter().filter(|gap| **gap < 0.1 * 2_f64.ln()).count();
        assert!(
            (4_800..5_200).contains(&short),
            "half are below the median: {short}"
        );
        assert!(times.is_sorted());
    }

    #[test]
    fn a_ramp_changes_the_rate_evenly_and_then_keeps_it() {
        let load = OpenLoad {
            ramp: Some((30.0, Duration::from_secs(10))),
            ..CONSTANT
        };
        assert!(
            (199..=201).contains(&count(load, 10)),
            "{}",
            count(load, 10)
        );
        assert!(
            (499..=501).contains(&count(load, 20)),
            "{}",
            count(load, 20)
        );
        let down = OpenLoad {
            rate: 30.0,
            ramp: Some((10.0, Duration::from_secs(10))),
            ..CONSTANT
        };
        assert!(
            (199..=201).contains(&count(down, 10)),
            "{}",
            count(down, 10)
        );
    }

    #[test]
    fn bursts_add_to_a_steady_load_or_come_alone() {
        let burst = Some((50, Duration::from_secs(2)));
        let both = OpenLoad { burst, ..CONSTANT };
        assert!(
            (349..=351).contains(&count(both, 10)),
            "{}",
            count(both, 10)
        );
        let alone = OpenLoad { rate: 0.0, ..both };
        let times: Vec<Duration> = Schedule::new(alone, 7).take(51).collect();
        assert_eq!(times[0], Duration::from_secs(1));
        assert_eq!((times[49], times[50]), (times[0], Duration::from_secs(3)));
        let ordered: Vec<Duration> = Schedule::new(both, 7).take(500).collect();
        assert!(ordered.is_sorted());
    }

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let load = OpenLoad {
            arrivals: ArrivalProcess::Poisson,
            ..CONSTANT
        };
        let times = |seed| Schedule::new(load, seed).take(100).collect::<Vec<_>>();
        assert_eq!(times(1), times(1));
        assert_ne!(times(1), times(2));
    }
}
