//! How long requests of a kind take, learnt from those that were answered.
//!
//! When a client leaves, its request is cancelled, but the upstream may go on working: its seat is
//! held for as long as such a request was seen to take, and a quarter more. The estimate follows the
//! longest recent times, because a seat given back too early lets more execute than the limit allows,
//! and one held too long only costs throughput that a vanished client wanted. As long as too few were
//! seen for that, requests are not cancelled but let run to their end, which tells.

use std::{collections::HashMap, time::Duration};

use siphasher::sip::SipHasher13;

use crate::digest::RequestInfo;

/// Kinds of request remembered; further ones share no estimate and are learnt when others fade.
const MAX_KINDS: usize = 4096;
/// Requests of a kind that must have been seen to their end before others are cancelled.
const ENOUGH: u32 = 32;
/// After how many cancelled requests in a row one is let run, to see whether times have changed.
const PROBE_EVERY: u32 = 16;
/// How much of the distance to a shorter time the estimate gives up, each time one is seen.
const FADE: u32 = 32;

/// What a request is, as far as its duration depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind(u64);

impl Kind {
    /// The kind of a request: verb, group, resource and subresource.
    pub(super) fn of(info: &RequestInfo) -> Self {
        use std::hash::Hasher;
        let mut hasher = SipHasher13::new_with_keys(0, 0);
        hasher.write(info.verb.as_str().as_bytes());
        let path = if info.is_resource {
            &b""[..]
        } else {
            info.path()
        };
        for part in [info.group(), info.resource(), info.subresource(), path] {
            hasher.write(&[0]);
            hasher.write(part);
        }
        Self(hasher.finish())
    }
}

/// The estimates of one core.
#[derive(Debug, Default)]
pub(super) struct ServiceTimes {
    known: HashMap<Kind, Estimate>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    time: Duration,
    /// Requests seen to their end.
    seen: u32,
    /// Requests cancelled since one was last seen to its end.
    cancelled: u32,
}

impl ServiceTimes {
    /// A request of `kind` was answered, body and all, after `took`.
    pub(super) fn learn(&mut self, kind: Kind, took: Duration) {
        if self.known.len() >= MAX_KINDS && !self.known.contains_key(&kind) {
            self.known.clear();
        }
        let estimate = self.known.entry(kind).or_insert(Estimate {
            time: took,
            seen: 0,
            cancelled: 0,
        });
        estimate.seen = estimate.seen.saturating_add(1);
        estimate.cancelled = 0;
        estimate.time = match estimate.time.checked_sub(took) {
            Some(shorter) => estimate.time.saturating_sub(shorter / FADE),
            None => took,
        };
    }

    /// How long the seat of a request of `kind` is to be held if it is cancelled after `elapsed`;
    /// `None` if it should rather be let run.
    pub(super) fn cancel(&mut self, kind: Kind, elapsed: Duration) -> Option<Duration> {
        let known = self
            .known
            .get_mut(&kind)
            .filter(|known| known.seen >= ENOUGH)?;
        known.cancelled += 1;
        if known.cancelled >= PROBE_EVERY {
            known.cancelled = 0;
            return None;
        }
        known.rest(elapsed)
    }

    /// How much longer a request of `kind` is to be reckoned with that has been cancelled after
    /// `elapsed`. As long again, if that is longer than any such request was seen to take.
    pub(super) fn rest(&self, kind: Kind, elapsed: Duration) -> Duration {
        let known = self.known.get(&kind);
        known
            .and_then(|known| known.rest(elapsed))
            .unwrap_or(elapsed)
    }
}

impl Estimate {
    /// What is left of the time, and a quarter more, after `elapsed`; `None` if nothing is.
    fn rest(&self, elapsed: Duration) -> Option<Duration> {
        let rest = (self.time + self.time / 4).saturating_sub(elapsed);
        (!rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn kind(target: &str) -> Kind {
        Kind::of(&RequestInfo::from_target("GET", target).unwrap())
    }

    #[test]
    fn kinds_differ_by_resource_not_by_name() {
        assert_eq!(
            kind("/api/v1/namespaces/a/pods/x"),
            kind("/api/v1/namespaces/b/pods/y")
        );
        assert_ne!(
            kind("/api/v1/namespaces/a/pods/x"),
            kind("/api/v1/namespaces/a/pods/x/log")
        );
        assert_ne!(kind("/api/v1/pods"), kind("/api/v1/nodes"));
        assert_ne!(kind("/healthz"), kind("/metrics"));
    }

    #[test]
    fn the_rest_of_the_longest_recent_time_is_held_and_a_quarter_more() {
        let (mut times, kind) = (ServiceTimes::default(), kind("/api/v1/pods"));
        assert_eq!(times.rest(kind, ms(50)), ms(50), "nothing is known");
        times.learn(kind, ms(500));
        assert_eq!(times.rest(kind, ms(50)), ms(575));
        times.learn(kind, ms(180));
        assert_eq!(times.rest(kind, ms(50)), ms(562) + ms(1) / 2);
        assert_eq!(times.rest(kind, ms(700)), ms(700), "longer than is known");
    }

    #[test]
    fn what_is_not_known_well_is_let_run() {
        let (mut times, kind) = (ServiceTimes::default(), kind("/api/v1/pods"));
        for _ in 1..ENOUGH {
            times.learn(kind, ms(500));
            assert_eq!(times.cancel(kind, ms(50)), None);
        }
        times.learn(kind, ms(500));
        assert_eq!(times.cancel(kind, ms(50)), Some(ms(575)));
        assert_eq!(times.cancel(kind, ms(700)), None, "longer than is known");
    }

    #[test]
    fn when_all_are_cancelled_one_in_a_while_is_let_run() {
        let (mut times, kind) = (ServiceTimes::default(), kind("/api/v1/pods"));
        (0..ENOUGH).for_each(|_| times.learn(kind, ms(500)));
        let let_run = (0..64).filter(|_| times.cancel(kind, ms(1)).is_none());
        assert_eq!(let_run.count(), 4);
    }
}
