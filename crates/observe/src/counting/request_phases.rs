//! Where the time of requests goes: in a queue, in the upstream, in the response, in the gateway.
//!
//! The parts of one request add up to its duration. What no part accounts for is the gateway's own: authentication with its
//! reviews, admission, and waiting for a processor. Long-running requests are left out: their time says nothing.
//!
//! Requests that were sent upstream are counted apart from all others: a request that the gateway refuses ends in no time, so many of
//! them would make a slow upstream look fast.

use std::{sync::Arc, time::Duration};

use crate::metrics::{catalogue, exposition::Exposition};
use fairgate_call::{RequestContext, Trace};
use fairgate_core::{
    cells::{Histogram, HistogramTotal},
    time::Time,
};

/// Upper bounds in seconds.
const BOUNDS: [f64; 13] = [
    0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// A part of the time that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPhase {
    /// What no other part accounts for.
    Gateway,
    /// In a queue of its level.
    Queue,
    /// Until its disruption budget allowed it, if it was an eviction.
    EvictionWait,
    /// From the moment it was sent upstream to the head of the response; to its end if there was none.
    Upstream,
    /// From the head of the upstream's response to its end, which a slow client delays.
    Response,
}

impl RequestPhase {
    /// All, in the order of their histograms.
    const ALL: [Self; 5] = [
        Self::Gateway,
        Self::Queue,
        Self::EvictionWait,
        Self::Upstream,
        Self::Response,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Queue => "queue",
            Self::EvictionWait => "eviction-wait",
            Self::Upstream => "upstream",
            Self::Response => "response",
        }
    }

    /// Whether only requests that were sent upstream have it.
    const fn is_of_upstream(self) -> bool {
        matches!(self, Self::Upstream | Self::Response)
    }
}

/// The histograms of the phases, in the order of [`RequestPhase::ALL`].
type PhaseHistograms = [Histogram<13>; RequestPhase::ALL.len()];

/// What one core measures: of the requests that were not sent upstream, and of those that were.
#[derive(Debug)]
pub(crate) struct RequestPhases([PhaseHistograms; 2]);

impl Default for RequestPhases {
    fn default() -> Self {
        let all = || RequestPhase::ALL.map(|_| Histogram::new(&BOUNDS));
        Self([all(), all()])
    }
}

impl RequestPhases {
    /// Counts the parts of a request that ends at `now`. Those that it did not have are not counted, except for the gateway's.
    pub(crate) fn observe(&self, context: &RequestContext, now: Time) {
        if context.kind.get().is_long_running() {
            return;
        }
        let is_forwarded = context.trace.sent_upstream.get().is_some();
        let histograms = &self.0[usize::from(is_forwarded)];
        for (phase, duration) in RequestPhase::ALL
            .into_iter()
            .zip(parts(&context.trace, now))
        {
            if let Some(duration) = duration {
                histograms[phase as usize].observe_duration(duration);
            }
        }
    }
}

/// The parts, in the order of [`RequestPhase::ALL`].
fn parts(trace: &Trace, now: Time) -> [Option<Duration>; RequestPhase::ALL.len()] {
    let (wait, eviction_wait) = (trace.wait.get(), trace.eviction_wait.get());
    let (sent, answered) = (trace.sent_upstream.get(), trace.upstream_answered.get());
    let upstream = sent.map(|sent| answered.unwrap_or(now).since(sent));
    let response = answered.map(|answered| now.since(answered));
    let others = [wait, eviction_wait, upstream, response];
    let gateway = others
        .iter()
        .flatten()
        .fold(now.since(trace.received.get()), |left, part| {
            left.saturating_sub(*part)
        });
    [Some(gateway), wait, eviction_wait, upstream, response]
}

/// Writes the histograms of all cores, added up.
pub(crate) fn write(text: &mut Exposition, cores: &[Arc<RequestPhases>]) {
    text.family(&catalogue::REQUEST_PHASES);
    for (at, forwarded) in ["false", "true"].into_iter().enumerate() {
        for phase in RequestPhase::ALL {
            if at == 0 && phase.is_of_upstream() {
                continue;
            }
            let mut total = HistogramTotal::default();
            for core in cores {
                core.0[at][phase as usize].add_to(&mut total);
            }
            let labels = [("forwarded", forwarded), ("phase", phase.as_str())];
            text.histogram(&catalogue::REQUEST_PHASES, &labels, &total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn millis(trace: &Trace, now: u64) -> [Option<u128>; RequestPhase::ALL.len()] {
        parts(trace, at(now)).map(|part| part.map(|part| part.as_millis()))
    }

    #[test]
    fn the_parts_of_a_request_add_up_to_its_duration() {
        let trace = Trace::default();
        trace.received.set(at(100));
        trace.wait.set(Some(Duration::from_millis(200)));
        trace.eviction_wait.set(Some(Duration::from_millis(30)));
        trace.sent_upstream.set(Some(at(340)));
        trace.upstream_answered.set(Some(at(400)));
        assert_eq!(
            millis(&trace, 405),
            [Some(10), Some(200), Some(30), Some(60), Some(5)]
        );
    }

    #[test]
    fn a_request_that_the_upstream_never_answers_is_the_upstreams() {
        let trace = Trace::default();
        trace.received.set(at(0));
        trace.sent_upstream.set(Some(at(1)));
        assert_eq!(
            millis(&trace, 4000),
            [Some(1), None, None, Some(3999), None]
        );
    }

    #[test]
    fn a_request_that_is_refused_at_once_is_the_gateways() {
        let trace = Trace::default();
        trace.received.set(at(0));
        assert_eq!(millis(&trace, 2), [Some(2), None, None, None, None]);
    }

    #[test]
    fn refused_requests_do_not_make_the_upstream_look_fast() {
        let phases = Arc::new(RequestPhases::default());
        let request = || RequestContext::new(http::Method::GET, None, 1);
        let forwarded = request();
        forwarded.trace.sent_upstream.set(Some(at(0)));
        forwarded.trace.upstream_answered.set(Some(at(2000)));
        phases.observe(&forwarded, at(2000));
        for _ in 0..99 {
            phases.observe(&request(), at(0));
        }
        let mut text = Exposition::default();
        write(&mut text, &[phases]);
        let text = text.finish();
        let count = |forwarded: &str, phase: &str| {
            let labels = format!("forwarded=\"{forwarded}\",phase=\"{phase}\"");
            let name = format!("fairgate_request_phase_duration_seconds_count{{{labels}}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&name));
            line.map(|count| count.parse::<u64>().unwrap())
        };
        assert_eq!(count("true", "gateway"), Some(1), "{text}");
        assert_eq!(count("true", "upstream"), Some(1), "{text}");
        assert_eq!(count("false", "gateway"), Some(99), "{text}");
        assert_eq!(count("false", "upstream"), None, "{text}");
    }
}
