//! How long requests of a kind take, learnt from those that were answered.
//!
//! When a client leaves, the upstream may go on working: its seat is held for as long as such a
//! request was seen to take. The estimate follows the longest recent times, because a seat given
//! back too early lets more execute than the limit allows, and one held too long only costs
//! throughput that a vanished client wanted.

use std::{collections::HashMap, time::Duration};

use siphasher::sip::SipHasher13;

use crate::digest::RequestInfo;

/// Kinds of request remembered; further ones share no estimate and are learnt when others fade.
const MAX_KINDS: usize = 4096;
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
    /// Requests given up since one was last seen to its end.
    unseen: u32,
}

/// What to do about a request whose client has left while the upstream may be working on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remainder {
    /// Cancel it upstream, and hold its seat for this long.
    Hold(Duration),
    /// Too little is known: let it run to its end unseen, and learn.
    Watch,
}

impl ServiceTimes {
    /// After how many given-up requests in a row one is watched to its end.
    const PROBE_EVERY: u32 = 16;

    /// A request of `kind` was answered, body and all, after `took`.
    pub(super) fn learn(&mut self, kind: Kind, took: Duration) {
        if self.known.len() >= MAX_KINDS && !self.known.contains_key(&kind) {
            self.known.clear();
        }
        let estimate = self.known.entry(kind).or_insert(Estimate {
            time: took,
            unseen: 0,
        });
        estimate.unseen = 0;
        estimate.time = match estimate.time.checked_sub(took) {
            Some(shorter) => estimate.time.saturating_sub(shorter / FADE),
            None => took,
        };
    }

    /// What to do about a request of `kind` that was given up after `elapsed`.
    pub(super) fn remainder(&mut self, kind: Kind, elapsed: Duration) -> Remainder {
        let Some(estimate) = self.known.get_mut(&kind) else {
            return Remainder::Watch;
        };
        estimate.unseen += 1;
        if estimate.unseen >= Self::PROBE_EVERY {
            estimate.unseen = 0;
            return Remainder::Watch;
        }
        match estimate.time.checked_sub(elapsed) {
            Some(rest) if !rest.is_zero() => Remainder::Hold(rest),
            // It already takes longer than any such request was seen to.
            _ => Remainder::Watch,
        }
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
    fn the_rest_of_the_longest_recent_time_is_held() {
        let (mut times, kind) = (ServiceTimes::default(), kind("/api/v1/pods"));
        assert_eq!(
            times.remainder(kind, ms(50)),
            Remainder::Watch,
            "nothing is known"
        );
        times.learn(kind, ms(500));
        assert_eq!(times.remainder(kind, ms(50)), Remainder::Hold(ms(450)));
        times.learn(kind, ms(180));
        assert_eq!(times.remainder(kind, ms(50)), Remainder::Hold(ms(440)));
        assert_eq!(
            times.remainder(kind, ms(490)),
            Remainder::Watch,
            "it takes longer than known"
        );
    }

    #[test]
    fn when_all_are_given_up_one_in_a_while_is_watched() {
        let (mut times, kind) = (ServiceTimes::default(), kind("/api/v1/pods"));
        times.learn(kind, ms(500));
        let watched = (0..64)
            .filter(|_| times.remainder(kind, ms(1)) == Remainder::Watch)
            .count();
        assert_eq!(watched, 4);
    }
}
