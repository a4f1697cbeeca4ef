//! Records the outcomes of one client's requests while they come in.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::figures::{ClientFigures, LatencyFigures, real};
use fairgate_core::fairness::jain_index;

/// The number of intervals in a plot over time.
const INTERVALS: u32 = 60;
/// Latencies are recorded in microseconds, with this many significant digits.
const DIGITS: u8 = 3;
/// Longer latencies are recorded as this one.
const LONGEST: Duration = Duration::from_secs(3600);

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RequestOutcome {
    /// With success, after `work` seat-seconds of a server that is not overloaded.
    Ok { work: f64 },
    /// With a 429, after which the request was not repeated again.
    Refused,
    /// With anything else.
    Failed(String),
    /// Not before the run was over.
    Unanswered,
}

/// What was measured in one part of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct IntervalFigures {
    /// Seconds from the beginning of the measured time to the middle of the interval.
    pub(crate) at: f64,
    /// Seconds; `None` without a success.
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) ok: u64,
    /// Responses with 429, repeated or not.
    pub(crate) refusals: u64,
    pub(crate) errors: u64,
}

/// The results of one client so far.
#[derive(Debug)]
pub(crate) struct LoadRecorder {
    name: String,
    measured: Duration,
    tally: Mutex<RecordedTally>,
}

#[derive(Debug)]
struct RecordedTally {
    latencies: Histogram<u64>,
    requests: u64,
    refused: u64,
    errors: u64,
    unanswered: u64,
    retried: u64,
    events: u64,
    work: f64,
    ok_by_user: Vec<u64>,
    last_error: Option<String>,
    intervals: Vec<Interval>,
}

#[derive(Debug, Default)]
struct Interval {
    latencies: Option<Histogram<u64>>,
    ok: u64,
    refusals: u64,
    errors: u64,
}

/// An empty histogram.
fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, micros(LONGEST), digits).expect("the bounds are valid")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "latencies are far below 2^52 µs"
)]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl LoadRecorder {
    /// An empty recorder for `users` users that are measured for `measured`.
    pub(crate) fn new(name: &str, users: u32, measured: Duration) -> Self {
        Self {
            name: name.to_owned(),
            measured,
            tally: Mutex::new(RecordedTally {
                latencies: histogram(DIGITS),
                requests: 0,
                refused: 0,
                errors: 0,
                unanswered: 0,
                retried: 0,
                events: 0,
                work: 0.0,
                ok_by_user: vec![0; users as usize],
                last_error: None,
                intervals: (0..INTERVALS).map(|_| Interval::default()).collect(),
            }),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Records the end of a request of `user` that was meant to be sent `at` after the beginning of the measured
    /// time and took `latency` from then on.
    pub(crate) fn record(
        &self,
        user: u32,
        at: Duration,
        latency: Duration,
        outcome: RequestOutcome,
    ) {
        let interval = self.interval(at);
        let mut tally = self.lock();
        let tally = &mut *tally;
        let interval = &mut tally.intervals[interval];
        tally.requests += 1;
        match outcome {
            RequestOutcome::Ok { work } => {
                tally.latencies.saturating_record(micros(latency));
                tally.work += work;
                tally.ok_by_user[user as usize] += 1;
                interval.ok += 1;
                // Two digits, and only where there are successes: with three, they would take 11 MiB for each client.
                let latencies = interval.latencies.get_or_insert_with(|| histogram(2));
                latencies.saturating_record(micros(latency));
            }
            RequestOutcome::Refused => {
                tally.refused += 1;
                interval.refusals += 1;
            }
            RequestOutcome::Failed(error) => {
                tally.errors += 1;
                interval.errors += 1;
                tally.last_error = Some(error);
            }
            RequestOutcome::Unanswered => {
                tally.errors += 1;
                tally.unanswered += 1;
                interval.errors += 1;
                let waited = latency.as_secs_f64();
                tally.last_error = Some(format!("no response within {waited:.1} s"));
            }
        }
    }

    /// Records a 429 after which the request is repeated.
    pub(crate) fn retried(&self, at: Duration) {
        let interval = self.interval(at);
        let mut tally = self.lock();
        tally.retried += 1;
        tally.intervals[interval].refusals += 1;
    }

    /// Records events of a watch.
    pub(crate) fn events(&self, count: u64) {
        self.lock().events += count;
    }

    /// The measured requests that have ended, however they did.
    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Successes so far, their 99th percentile in seconds, refusals with repetitions, and errors.
    pub(crate) fn progress(&self) -> (u64, f64, u64, u64) {
        let tally = self.lock();
        let p99 = seconds(tally.latencies.value_at_quantile(0.99));
        (
            tally.latencies.len(),
            p99,
            tally.refused + tally.retried,
            tally.errors,
        )
    }

    /// The results. The ideal share is not known here.
    pub(crate) fn figures(&self) -> ClientFigures {
        let tally = self.lock();
        let ok = tally.latencies.len();
        let nth = |rank: u64| {
            let quantile = real(rank) / real(ok);
            seconds(tally.latencies.value_at_quantile(quantile))
        };
        ClientFigures {
            name: self.name.clone(),
            requests: tally.requests,
            ok,
            refused: tally.refused,
            errors: tally.errors,
            unanswered: tally.unanswered,
            retried: tally.retried,
            events: tally.events,
            rate: real(ok) / self.measured.as_secs_f64(),
            latency: LatencyFigures::new(tally.requests, ok, nth),
            share: tally.work / self.measured.as_secs_f64(),
            ideal_share: 0.0,
            jain: jain_index(tally.ok_by_user.iter().map(|ok| real(*ok))).unwrap_or(0.0),
            last_error: tally.last_error.clone(),
        }
    }

    /// The results over time.
    pub(crate) fn intervals(&self) -> Vec<IntervalFigures> {
        let tally = self.lock();
        let length = self.measured.as_secs_f64() / f64::from(INTERVALS);
        let figures = tally.intervals.iter().enumerate().map(|(index, interval)| {
            let quantile = |quantile: f64| {
                let latencies = interval.latencies.as_ref();
                latencies.map(|latencies| seconds(latencies.value_at_quantile(quantile)))
            };
            IntervalFigures {
                at: (real(index as u64) + 0.5) * length,
                p50: quantile(0.5),
                p99: quantile(0.99),
                ok: interval.ok,
                refusals: interval.refusals,
                errors: interval.errors,
            }
        });
        figures.collect()
    }

    fn interval(&self, at: Duration) -> usize {
        let part = at.as_secs_f64() / self.measured.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part from 0 to 1"
        )]
        let index = (part * f64::from(INTERVALS)) as usize;
        index.min(INTERVALS as usize - 1)
    }

    fn lock(&self) -> MutexGuard<'_, RecordedTally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn figures_are_those_of_the_recorded_requests() {
        let recorder = LoadRecorder::new("mouse", 2, 10 * SECOND);
        for n in 1..=100_u32 {
            let latency = Duration::from_millis(u64::from(n));
            recorder.record(
                n % 2,
                SECOND * n / 11,
                latency,
                RequestOutcome::Ok { work: 0.05 },
            );
        }
        let served = recorder.figures();
        assert!((served.latency.p50 - 0.05).abs() < 0.001, "{served:?}");
        assert!((served.latency.p99 - 0.099).abs() < 0.001, "{served:?}");
        recorder.record(0, SECOND, SECOND, RequestOutcome::Refused);
        recorder.record(
            0,
            SECOND,
            SECOND,
            RequestOutcome::Failed("response 502".to_owned()),
        );
        recorder.record(0, SECOND, SECOND, RequestOutcome::Unanswered);
        let figures = recorder.figures();
        assert_eq!(
            (figures.requests, figures.ok, figures.refused),
            (103, 100, 1)
        );
        assert_eq!((figures.errors, figures.unanswered), (2, 1));
        assert!((figures.latency.p50 - 0.052).abs() < 0.001, "{figures:?}");
        assert!(figures.latency.p99.is_infinite(), "{figures:?}");
        assert!((figures.rate - 10.0).abs() < 1e-9 && (figures.share - 0.5).abs() < 1e-9);
        assert!((figures.jain - 1.0).abs() < 1e-9);
        assert_eq!(figures.events, 0);
        recorder.events(3);
        recorder.events(1);
        assert_eq!(recorder.figures().events, 4);
    }

    #[test]
    fn intervals_show_when_something_happened() {
        let recorder = LoadRecorder::new("mouse", 1, 60 * SECOND);
        recorder.record(0, 3 * SECOND, SECOND, RequestOutcome::Ok { work: 0.0 });
        recorder.retried(5 * SECOND);
        let intervals = recorder.intervals();
        assert_eq!(intervals.len(), 60);
        assert_eq!((intervals[3].ok, intervals[5].refusals), (1, 1));
        assert!(
            intervals[3]
                .p99
                .is_some_and(|p99| (0.98..1.02).contains(&p99))
        );
        assert!(intervals[4].p99.is_none());
    }
}
