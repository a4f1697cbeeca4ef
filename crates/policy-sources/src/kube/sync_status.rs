//! Whether the known objects are up to date with the upstream.
//!
//! They are *in sync* while a watch is open for each kind. Their age is the time since they were last in sync.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{KINDS, watch_failure::WatchFailure};
use fairgate_base::clock::Clock;
use fairgate_upstream::informer::WatchHealth;

/// Watches end regularly and are opened again; a gap of this length is not a problem.
const RENEWAL_GRACE: Duration = Duration::from_secs(2);

/// Whether a source is in sync with its upstream, and since when it is not.
#[derive(Debug)]
pub struct SyncStatus {
    /// One for each kind.
    health: [Arc<WatchHealth>; KINDS.len()],
    /// Whether the policy in force since the start is the last good one.
    has_last_good: AtomicBool,
}

impl SyncStatus {
    pub(super) fn new(clock: &Clock, kinds: [&'static str; KINDS.len()]) -> Arc<Self> {
        let health = |what| WatchHealth::new(clock.clone(), what, "for flow control");
        Arc::new(Self {
            health: kinds.map(health),
            has_last_good: AtomicBool::new(false),
        })
    }

    /// Time since the objects were last in sync; zero while they are. If they never were, the time since the
    /// start.
    pub fn age(&self) -> Duration {
        let ages = self.health.iter().map(|health| health.age());
        ages.max().unwrap_or_default()
    }

    /// Why the objects are not in sync, and which policy is in force meanwhile; `None` if they are, or
    /// were less than 2 s ago.
    pub fn problem(&self) -> Option<String> {
        let age = self.age();
        let was_in_sync = self.health.iter().all(|health| health.was_open());
        let is_in_sync = self.health.iter().all(|health| health.is_open());
        if is_in_sync || was_in_sync && age < RENEWAL_GRACE {
            return None;
        }
        let seconds = age.as_secs();
        let failure = self.health.iter().find_map(|health| health.failure());
        let default = if was_in_sync {
            "the upstream does not respond"
        } else {
            "no response yet"
        };
        let why = failure.map_or_else(|| default.to_owned(), |(why, _)| why);
        Some(if was_in_sync {
            format!("out of sync for {seconds} s: {why}; the last good policy stays in force")
        } else if self.has_last_good.load(Ordering::Relaxed) {
            format!("not reached for {seconds} s: {why}; the last good policy is in force")
        } else {
            format!("not reached for {seconds} s: {why}; the built-in objects are in force")
        })
    }

    /// The gateway has started with the last good policy, not with the built-in one.
    pub fn started_with_last_good(&self) {
        self.has_last_good.store(true, Ordering::Relaxed);
    }

    /// The health of the watch of one of [`KINDS`].
    pub(super) fn health(&self, kind: usize) -> Arc<WatchHealth> {
        Arc::clone(&self.health[kind])
    }

    /// The versions to watch are not known. Said of one kind only, so that it is logged once.
    pub(super) fn failed(&self, why: &WatchFailure) {
        self.health[0].failed(KINDS[0].0, why.to_string(), false);
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::time::Time;
    use fairgate_upstream::informer::WatchObserver as _;

    use super::*;

    #[test]
    fn the_age_begins_when_the_first_of_the_watches_ends() {
        let clock = Clock::manual(Time::ZERO);
        let status = SyncStatus::new(&clock, ["levels", "schemas"]);
        clock.advance(Duration::from_secs(3));
        assert_eq!(status.age(), Duration::from_secs(3));
        let problem = status.problem().unwrap();
        assert!(
            problem.contains("the built-in objects are in force"),
            "{problem}"
        );

        let (mut a, mut b) = (status.health(0).opened(), status.health(1).opened());
        clock.advance(Duration::from_secs(10));
        assert_eq!(status.age(), Duration::ZERO);
        assert_eq!(status.problem(), None);
        a.received();

        drop(a);
        status
            .health(0)
            .failed("PriorityLevelConfiguration", "refused".to_owned(), false);
        clock.advance(Duration::from_secs(1));
        assert_eq!(status.problem(), None, "watches are renewed");
        b.received();
        drop(b);
        clock.advance(Duration::from_secs(4));
        assert_eq!(status.age(), Duration::from_secs(5));
        let problem = status.problem().unwrap();
        assert_eq!(
            problem,
            "out of sync for 5 s: refused; the last good policy stays in force"
        );

        let one = status.health(0).opened();
        assert_eq!(status.age(), Duration::from_secs(4), "one of two");
        let _other = status.health(1).opened();
        assert_eq!(status.problem(), None);
        clock.advance(Duration::from_secs(60));
        drop(one);
        assert_eq!(status.age(), Duration::from_secs(60), "it had been silent");
        let problem = status.problem().unwrap();
        assert!(
            problem.contains("the upstream does not respond"),
            "{problem}"
        );
    }
}
